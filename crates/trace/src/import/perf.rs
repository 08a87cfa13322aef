//! The text of `perf script` for samples that have data addresses.
//!
//! The expected text is that of `perf script -F comm,pid,tid,time,period,event,addr`; more fields are allowed (`cpu`,
//! `data_src`, `ip`, `sym`):
//!
//! ```text
//! cg.x 4711/4713 [002] 22940.851418:  4000  cpu/mem-loads,ldlat=30/P:  7f39975a9b70 |OP LOAD|...
//! name process/thread [CPU] time:  period  event:  address  what the sample was
//! ```
//!
//! perf keeps this order and leaves out what was not asked for; here name, process, CPU, time and period may be
//! missing. A sample is a store when its data source or its event's name says so. An address of 0, or a line whose
//! first number after the event is followed by a symbol (the instruction's address, as `perf script` prints without
//! `-F`), is a sample without an address. Samples do not count instructions: each becomes one instruction with one
//! access of one byte.

use std::collections::HashMap;
use std::io::{BufRead, Write};

use super::sink::Sink;
use super::{Imported, Sampled, decimal, each_line, hexadecimal};
use crate::error::Error;
use crate::event::Event;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Sample<'a> {
    name: &'a [u8],
    process: Option<u32>,
    tid: u32,
    time_ns: Option<u64>,
    period: Option<u64>,
    event: &'a [u8],
    /// `None` if the sample is not of an access to memory.
    address: Option<u64>,
    is_store: bool,
}

/// Whether a line is a sample.
pub(super) fn is_line(line: &[u8]) -> bool {
    parse(line).is_some()
}

/// The words of a line, each with the place where it starts.
fn words(line: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    line.split(|byte| byte.is_ascii_whitespace())
        .map(move |word| {
            let start = at;
            at += word.len() + 1;
            (start, word)
        })
        .filter(|(_, word)| !word.is_empty())
}

fn parse(line: &[u8]) -> Option<Sample<'_>> {
    let words: Vec<_> = words(line).collect();
    let is_event = |word: &[u8]| word.len() > 1 && word.ends_with(b":") && seconds(word).is_none();
    // A name may hold anything: the event is the first word that looks like an event and has a thread before it.
    let (at, head) = words.iter().enumerate().find_map(|(at, (_, word))| {
        let head = is_event(word).then(|| head(line, &words[..at]))?;
        Some((at, head?))
    })?;
    let event = words[at].1.strip_suffix(b":")?;
    let address = hexadecimal(words.get(at + 1)?.1)?;
    let after = words[at + 2..].iter().map(|(_, word)| *word);
    let is_source = |word: &[u8]| word.starts_with(b"|") || decimal(word).is_some();
    let next = after.clone().next();
    let is_data = next.is_none_or(|next| is_source(next) || hexadecimal(next).is_some());
    let mut sources = after.flat_map(|word| word.split(|&byte| byte == b'|'));
    Some(Sample {
        event,
        address: (is_data && address != 0).then_some(address),
        is_store: contains(event, b"store") || sources.any(|word| word == b"STORE"),
        ..head
    })
}

/// What stands before the event: name, thread, CPU, time, period.
fn head<'a>(line: &'a [u8], words: &[(usize, &'a [u8])]) -> Option<Sample<'a>> {
    let time = words.iter().rposition(|(_, word)| seconds(word).is_some());
    let (before, after) = words.split_at(time.unwrap_or(words.len()));
    let is_cpu = |word: &[u8]| word.starts_with(b"[") && word.ends_with(b"]");
    let mut period = after.get(1).and_then(|(_, word)| decimal(word));
    let before: Vec<_> = before.iter().filter(|(_, word)| !is_cpu(word)).collect();
    let thread = |(start, word): &(usize, &'a [u8])| Some((*start, ids(word)?));
    let (start, (process, tid)) = match before[..] {
        // Without a time, the second of two numbers is the period.
        [.., first, second] if time.is_none() && thread(first).is_some() => {
            match decimal(second.1) {
                Some(number) => {
                    period = Some(number);
                    thread(first)?
                }
                None => thread(second)?,
            }
        }
        [.., last] => thread(last)?,
        [] => return None,
    };
    Some(Sample {
        name: line[..start].trim_ascii(),
        process,
        tid,
        time_ns: after.first().and_then(|(_, word)| seconds(word)),
        period,
        event: b"",
        address: None,
        is_store: false,
    })
}

/// `process/thread`, or the thread alone.
fn ids(word: &[u8]) -> Option<(Option<u32>, u32)> {
    let number = |digits| u32::try_from(decimal(digits)?).ok();
    match word.iter().position(|&byte| byte == b'/') {
        Some(slash) => Some((Some(number(&word[..slash])?), number(&word[slash + 1..])?)),
        None => Some((None, number(word)?)),
    }
}

/// `seconds.fraction:` in nanoseconds.
fn seconds(word: &[u8]) -> Option<u64> {
    let word = word.strip_suffix(b":")?;
    let dot = word.iter().position(|&byte| byte == b'.')?;
    let (whole, fraction) = (&word[..dot], &word[dot + 1..]);
    if fraction.len() > 9 {
        return None;
    }
    let digits = 10_u64.pow(9 - fraction.len() as u32);
    let fraction = decimal(fraction)?.checked_mul(digits)?;
    decimal(whole)?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len())
        .any(|some| some.eq_ignore_ascii_case(part))
}

/// Reads all lines.
///
/// # Errors
/// When the text cannot be read or the trace cannot be written.
pub(super) fn read<W: Write>(
    text: &mut impl BufRead,
    sink: &mut Sink<'_, W>,
    imported: &mut Imported,
) -> Result<(), Error> {
    let mut start_ns = None;
    let mut events: HashMap<Vec<u8>, usize> = HashMap::new();
    each_line(text, imported, |line, imported| {
        if line.starts_with(b"#") {
            return Ok(true);
        }
        let Some(sample) = parse(line) else {
            return Ok(false);
        };
        let Some(address) = sample.address else {
            imported.without_address += 1;
            return Ok(true);
        };
        let next = imported.sampled.len();
        let at = *events.entry(sample.event.to_owned()).or_insert(next);
        if at == next {
            imported.sampled.push(Sampled {
                event: String::from_utf8_lossy(sample.event).into_owned(),
                samples: 0,
                happened: None,
            });
        }
        let sampled = &mut imported.sampled[at];
        sampled.samples += 1;
        if let Some(period) = sample.period {
            sampled.happened = Some(sampled.happened.unwrap_or(0).saturating_add(period));
        }
        let time_ns = sample
            .time_ns
            .map_or(0, |time| time.saturating_sub(*start_ns.get_or_insert(time)));
        let name = String::from_utf8_lossy(sample.name);
        let thread = sink.thread(sample.process.unwrap_or(sample.tid), sample.tid, &name);
        let event = match sample.is_store {
            true => Event::store(address, 1, 0),
            false => Event::load(address, 1, 0),
        };
        sink.push(thread, time_ns, 1, event)?;
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(line: &str) -> Sample<'_> {
        parse(line.as_bytes()).unwrap_or_else(|| panic!("{line:?} is a sample"))
    }

    fn expected<'a>() -> Sample<'a> {
        Sample {
            name: b"cg.x",
            process: Some(4711),
            tid: 4713,
            time_ns: Some(22_940_851_418_000),
            period: Some(4000),
            event: b"mem-loads:u",
            address: Some(0x7f39_975a_9b70),
            is_store: false,
        }
    }

    #[test]
    fn whatever_columns_there_are_a_sample_is_read() {
        let all = expected();
        let bare = Sample {
            process: None,
            period: None,
            ..all
        };
        for (line, sampled) in [
            (
                "  cg.x 4711/4713 22940.851418:   4000 mem-loads:u:   7f39975a9b70",
                all,
            ),
            (
                "  cg.x 4711/4713 [002] 22940.851418:   4000 mem-loads:u:   7f39975a9b70 ",
                all,
            ),
            (
                "  cg.x 4711/4713 22940.851418:   4000 mem-loads:u:   7f39975a9b70   401136 main+0x6 (/bin/cg.x)",
                all,
            ),
            (
                "  cg.x 4713 22940.851418: mem-loads:u:   7f39975a9b70",
                bare,
            ),
            (
                "  cg.x 4713 mem-loads:u:   7f39975a9b70",
                Sample {
                    time_ns: None,
                    ..bare
                },
            ),
            (
                "4713 mem-loads:u: 7f39975a9b70",
                Sample {
                    name: b"",
                    time_ns: None,
                    ..bare
                },
            ),
            (
                "4713 4000 mem-loads:u: 7f39975a9b70",
                Sample {
                    name: b"",
                    time_ns: None,
                    period: Some(4000),
                    ..bare
                },
            ),
            (
                "4711/4713 4000 mem-loads:u: 7f39975a9b70",
                Sample {
                    name: b"",
                    time_ns: None,
                    ..all
                },
            ),
        ] {
            assert_eq!(sample(line), sampled, "{line}");
        }
    }

    #[test]
    fn names_may_have_spaces_numbers_and_colons() {
        for name in ["Web Content", "worker 12", "a: b", "12", "[kworker]"] {
            let line = format!("{name} 4711/4713 22940.851418: 4000 mem-loads:u: 7f39975a9b70");
            let read = sample(&line);
            assert_eq!(
                read,
                Sample {
                    name: name.as_bytes(),
                    ..expected()
                }
            );
        }
    }

    #[test]
    fn a_store_is_told_by_its_source_or_its_event() {
        let head = "cg.x 4711/4713 22940.851418: 4000";
        for (rest, is_store) in [
            ("cpu/mem-stores/P: 7f39975a9b70", true),
            ("cpu/mem-loads,ldlat=30/P: 7f39975a9b70", false),
            (
                "ibs_op//: 7f39975a9b70 5080022 |OP STORE|LVL L1 hit|SNP N/A|TLB N/A|LCK N/A",
                true,
            ),
            (
                "ibs_op//: 7f39975a9b70 5080021 |OP LOAD|LVL L1 hit|SNP N/A|TLB N/A|LCK N/A",
                false,
            ),
        ] {
            let line = format!("{head} {rest}");
            assert_eq!(sample(&line).is_store, is_store, "{line}");
            assert_eq!(sample(&line).address, expected().address);
        }
    }

    #[test]
    fn an_instruction_s_address_is_not_taken_for_the_data_s() {
        for line in [
            "ls 29198 22940.851418: 1 page-faults:u: 7f39975a9b70 _start+0x0 (/usr/lib/ld-linux.so.2)",
            "ls 29198 22940.851418: 1 page-faults:u: 7f39975a9b70 [unknown] (/usr/lib/ld-linux.so.2)",
            "ls 29198 22940.851418: 1 ibs_op//: 0",
        ] {
            assert_eq!(sample(line).address, None, "{line}");
        }
    }

    #[test]
    fn what_is_no_sample_is_none() {
        for line in [
            "",
            "    7f39975a9b70 _start+0x0 (/usr/lib/ld-linux.so.2)",
            "mem-loads:u: 7f39975a9b70",
            "cg.x 4713 22940.851418:",
            "cg.x 4713 22940.851418: 4000 mem-loads:u:",
            "cg.x 4713 22940.851418: 4000 mem-loads:u: nothing",
            "cg.x 99999999999 mem-loads:u: 7f39975a9b70",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
