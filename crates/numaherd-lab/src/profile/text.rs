//! A profile as people and as `numaherd simulate` read it: a table, and TOML.

use numaherd_experiment::table::{Table, figure as shown};
use numaherd_quantity::bytes;
use serde::Serialize;

use super::derive::{InFlight, Latencies, Rates, Wait};

/// Why a profile cannot be written.
pub const NO_LATENCIES: &str = "\
a profile needs the machine's latencies, to tell waiting for memory from work: describe this machine \
in a file (see `numaherd topology --presets`) and give it with --machine";

const MIB: f64 = (1 << 20) as f64;

/// A program's figures, as they were measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// What the program is called in scenarios.
    pub name: String,
    /// The command, as one would type it.
    pub command: String,
    /// Where and how it was measured, a line each.
    pub how: Vec<String>,
    /// Threads of one process that were at work at the same time.
    pub threads: u32,
    /// Resident memory of one process in bytes.
    pub footprint_bytes: u64,
    /// Instructions of one thread in the part that was measured.
    pub instructions: f64,
    /// Cycles and lines with local memory.
    pub local: Rates,
    /// Cycles and lines with remote memory.
    pub remote: Rates,
    /// CPI remote / CPI local.
    pub numa_penalty: f64,
    /// Lines in flight and what the core needs, where the machine's latencies are known.
    pub wait: Option<Wait>,
    /// Those latencies.
    pub machine: Option<Latencies>,
    /// Accesses to the last-level cache per 1000 instructions, where they are counted.
    pub cache_accesses: Option<f64>,
    /// Bytes of the machine's last-level cache: which of the points `local` and `remote` are of.
    pub cache_bytes: u64,
    /// Lines from memory against the size of the last-level cache, ascending.
    pub points: Vec<Point>,
    /// Lines written back per line read, where they are counted.
    pub written_per_line: Option<f64>,
}

/// What one size of the last-level cache gave, with local memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Bytes of the last-level cache.
    pub cache_bytes: u64,
    /// Cycles per instruction.
    pub cycles_per_instruction: f64,
    /// Lines from memory per 1000 instructions, prefetched ones counted.
    pub lines: f64,
    /// Of these, on demand; where the two are told apart.
    pub demand: Option<f64>,
}

impl Profile {
    /// The profile, in the form of the files of `data/programs`.
    ///
    /// # Errors
    /// The file would lack a figure; the message says what would give it.
    pub fn to_toml(&self) -> Result<String, &'static str> {
        let wait = self.wait.as_ref().ok_or(NO_LATENCIES)?;
        // The threads shared the cache, so each held its part.
        let held = |point: &Point| point.cache_bytes / u64::from(self.threads);
        let lines = falling(self.points.iter().map(|p| (held(p), p.lines)));
        let mut text = String::new();
        for line in &self.how {
            text += &format!("# {line}\n");
        }
        text += &format!("# {}\n", self.rule(wait));
        if self.threads > 1 {
            text += &format!(
                "# Its {} threads shared the cache; each is taken to have held an equal part.\n",
                self.threads
            );
        }
        text += &format!("source = {}\n\n", quoted(&self.how[0]));
        text += "[[program]]\n";
        text += &format!("name = {}\n", quoted(&self.name));
        text += &format!("about = {}\n", quoted(&self.command));
        text += &format!("source = {}\n", quoted(&self.how[0]));
        if self.threads > 1 {
            text += &format!("threads = {}\n", self.threads);
        }
        let footprint = self.footprint_bytes as f64 / MIB;
        text += &format!("footprint_mib = {}\n", figure(footprint));
        text += &format!("numa_penalty = {}\n", figure(self.numa_penalty.max(1.0)));
        text += "\n[[program.phase]]\n";
        text += &format!("instructions = {:e}\n", significant(self.instructions));
        let cpi = wait.cycles_per_instruction;
        text += &format!("cycles_per_instruction = {}\n", figure(cpi));
        let most = lines.first().map_or(0.0, |&(_, lines)| lines);
        let accesses = self.cache_accesses.unwrap_or(most).max(most);
        let unknown = if self.cache_accesses.is_none() {
            "   # not counted here: the lines of the smallest cache"
        } else {
            ""
        };
        text += &format!("cache_accesses = {}{unknown}\n", figure(accesses));
        text += &format!("lines = {}\n", curve(&lines));
        if let Some(demand) = self.demand(&lines) {
            text += &format!("demand = {}\n", curve(&demand));
        }
        text += &format!("misses_in_flight = {}\n", figure(wait.misses_in_flight));
        match self.written_per_line {
            Some(written) => text += &format!("written_per_line = {}\n", figure(written)),
            None => text += "# written_per_line: write-backs are not counted here\n",
        }
        Ok(text)
    }

    /// Demand lines, where they are told apart at every size: at most the lines of that size.
    fn demand(&self, lines: &[(u64, f64)]) -> Option<Vec<(u64, f64)>> {
        let demand: Option<Vec<f64>> = self.points.iter().map(|point| point.demand).collect();
        let sizes = lines.iter().map(|&(held, _)| held);
        let demand = falling(sizes.zip(demand?));
        let within = demand.iter().zip(lines).map(|(d, l)| (d.0, d.1.min(l.1)));
        Some(within.collect())
    }

    /// One line on how cycles and lines in flight were told apart.
    fn rule(&self, wait: &Wait) -> String {
        let Some(machine) = &self.machine else {
            return String::new();
        };
        let Latencies {
            local_ns,
            remote_ns,
            llc_ns,
            ..
        } = machine;
        let (local, remote) = (&self.local, &self.remote);
        let how = match wait.how {
            InFlight::Measured => "from the difference of the two",
            InFlight::AtLeastOne => "1, as the difference of the two gives less",
            InFlight::CoreLimit => {
                "the core's limit, as the difference of the two gives more (latency is hidden)"
            }
            InFlight::NotTold => {
                "the core's limit, as the two differ by no more than repeats of one do"
            }
        };
        format!(
            "CPI {} local ({local_ns} ns) and {} remote ({remote_ns} ns), last-level cache \
             {llc_ns} ns; misses_in_flight is {how}.",
            figure(local.cycles_per_instruction),
            figure(remote.cycles_per_instruction),
        )
    }

    /// The table and what follows from it.
    pub fn table(&self) -> String {
        let headings = "memory|last-level cache|CPI|lines/1000|on demand";
        let mut table = Table::new(1, headings.split('|'));
        let mut row = |memory: &str, point: &Point, spread: f64| {
            let cpi = point.cycles_per_instruction;
            let half = match spread > 0.0 {
                true => format!(" ±{:.3}", spread / 2.0),
                false => String::new(),
            };
            table.row([
                memory.to_owned(),
                bytes(point.cache_bytes),
                format!("{cpi:.3}{half}"),
                shown(point.lines, 2),
                shown(point.demand, 2),
            ]);
        };
        let own = self.own_point();
        row("local", own, self.local.spread);
        let remote = Point {
            cycles_per_instruction: self.remote.cycles_per_instruction,
            lines: self.remote.lines,
            demand: None,
            ..*own
        };
        row("remote", &remote, self.remote.spread);
        for point in self.points.iter().rev().filter(|point| *point != own) {
            row("local", point, 0.0);
        }
        let mut text = format!("{}: {}\n{}\n", self.name, self.command, table.text());
        text += &format!("NUMA penalty {:.3}", self.numa_penalty);
        if let Some(wait) = &self.wait {
            text += &format!(
                "; {:.2} cycles per instruction and {:.2} lines in flight while it waits{}",
                wait.cycles_per_instruction,
                wait.misses_in_flight,
                match wait.how {
                    InFlight::Measured => "",
                    InFlight::AtLeastOne => " (no less)",
                    InFlight::CoreLimit => " (the core's limit: latency is hidden)",
                    InFlight::NotTold =>
                        " (the core's limit: local and remote cannot be told apart)",
                },
            );
        }
        if let Some(written) = self.written_per_line {
            text += &format!("; {written:.2} lines written back per line read");
        }
        text += &format!(
            "; {} resident, {} thread{} at work.\n",
            bytes(self.footprint_bytes),
            self.threads,
            if self.threads == 1 { "" } else { "s" },
        );
        text
    }

    /// The point of the machine as it is.
    fn own_point(&self) -> &Point {
        let own = |point: &&Point| point.cache_bytes == self.cache_bytes;
        self.points.iter().find(own).expect("it was measured")
    }
}

/// A curve that never rises: where chance gave a larger cache more lines, the smaller has as many.
fn falling(points: impl DoubleEndedIterator<Item = (u64, f64)>) -> Vec<(u64, f64)> {
    let mut most = 0.0f64;
    let raised = points.rev().map(|(bytes, lines)| {
        most = most.max(lines);
        (bytes, most)
    });
    let mut falling: Vec<_> = raised.collect();
    falling.reverse();
    falling
}

fn curve(points: &[(u64, f64)]) -> String {
    let point = |&(bytes, lines): &(u64, f64)| {
        format!("[{}, {}]", figure(bytes as f64 / MIB), figure(lines))
    };
    let points: Vec<String> = points.iter().map(point).collect();
    format!("[{}]", points.join(", "))
}

/// Four significant digits: more than any of these is worth.
fn significant(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// A figure in TOML: always with a point, never with an exponent.
fn figure(value: f64) -> String {
    let text = significant(value).to_string();
    if text.contains('.') {
        text
    } else {
        text + ".0"
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.replace(char::is_control, " ")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let rates = |cycles_per_instruction| Rates {
            cycles_per_instruction,
            lines: 66.7,
            spread: 0.02,
        };
        let point = |cache_bytes, lines, cycles_per_instruction| Point {
            cache_bytes,
            cycles_per_instruction,
            lines,
            demand: Some(lines * 0.75),
        };
        Profile {
            name: "update".into(),
            command: "menagerie update --rounds 3".into(),
            how: vec!["numaherd profile of a test".into(), "a second line".into()],
            threads: 1,
            footprint_bytes: 17 << 20,
            instructions: 123_456_789.0,
            local: rates(6.5),
            remote: rates(7.375),
            numa_penalty: 7.375 / 6.5,
            wait: Some(Wait {
                misses_in_flight: 9.1476,
                how: InFlight::Measured,
                cycles_per_instruction: 5.406,
            }),
            machine: Some(Latencies {
                local_ns: 180.0,
                remote_ns: 300.0,
                llc_ns: 30.0,
                clock_ghz: 1.0,
                in_flight: 10.0,
            }),
            cache_accesses: Some(80.0),
            cache_bytes: 2 << 20,
            points: vec![
                point(512 << 10, 66.6, 7.0),
                point(1 << 20, 66.7, 6.75),
                point(2 << 20, 50.0, 6.5),
            ],
            written_per_line: Some(1.0),
        }
    }

    #[test]
    fn the_file_says_what_was_measured_and_how() {
        insta::assert_snapshot!(profile().to_toml().unwrap());
    }

    #[test]
    fn the_table_shows_each_run() {
        insta::assert_snapshot!(profile().table());
    }

    #[test]
    fn threads_that_share_a_cache_have_held_a_part_each() {
        let two = Profile {
            threads: 2,
            ..profile()
        };
        let text = two.to_toml().unwrap();
        let curve = "lines = [[0.25, 66.7], [0.5, 66.7], [1.0, 50.0]]";
        assert!(
            text.contains(curve) && text.contains("threads = 2"),
            "{text}"
        );
        assert!(text.contains("2 threads shared the cache"), "{text}");
    }

    #[test]
    fn what_was_not_counted_is_said_and_not_made_up() {
        let bare = Profile {
            cache_accesses: None,
            written_per_line: None,
            ..profile()
        };
        let text = bare.to_toml().unwrap();
        assert!(
            text.contains("# written_per_line: write-backs are not counted"),
            "{text}"
        );
        assert!(
            text.contains("cache_accesses = 66.7   # not counted"),
            "{text}"
        );
        let blind = Profile {
            wait: None,
            ..profile()
        };
        assert!(blind.to_toml().unwrap_err().contains("--machine"));
    }

    #[test]
    fn figures_have_four_digits_and_a_point() {
        assert_eq!(figure(1234.56), "1235.0");
        assert_eq!(figure(0.000_012_345_6), "0.00001235");
        assert_eq!(figure(0.0), "0.0");
    }
}
