//! Several scenarios together: how much of Linux's time each contender takes, in its worst scenario and on average,
//! and how far the best of our policies is behind the best peer, with the largest gap first.

use numaherd_experiment::Scenario;
use numaherd_experiment::chart::Series;
use numaherd_experiment::chart::bars::bars;
use numaherd_experiment::in_lab::{Better, Measure};
use numaherd_experiment::scenario::BEST_KNOWN;
use numaherd_experiment::statistics::mean;
use numaherd_experiment::table::{Table, figure};

use super::outcome::{Results, Summary};
use super::table::{digits, version};
use super::{BASELINE, is_ours};

/// The results of all contenders in a scenario on a kernel.
pub struct Line<'a> {
    scenario: &'a str,
    kernel: &'a str,
    measure: Measure,
    policies: &'a [String],
    summaries: Vec<Summary>,
}

/// The time of a contender as a share of Linux's; where a rate is measured, Linux's rate as a share of its.
#[derive(Clone, Copy)]
struct Share<'a> {
    scenario: &'a str,
    share: f64,
    /// Half of its 95 % interval; `None` if either had a single trial.
    interval: Option<f64>,
}

/// A contender on a kernel, over all scenarios.
struct Overall<'a> {
    policy: &'a str,
    kernel: &'a str,
    shares: Vec<Share<'a>>,
    /// How many scenarios there are.
    of: usize,
}

impl<'a> Line<'a> {
    /// The line of a scenario on a kernel.
    pub fn of(scenario: &'a Scenario, results: &'a Results) -> Self {
        let measure = scenario.measure();
        Self {
            scenario: &scenario.name,
            kernel: version(&results.kernel),
            policies: &results.policies,
            summaries: results.summaries(measure.better),
            measure,
        }
    }

    /// What a mean costs in place of another: above 1 if it is worse.
    fn cost(&self, of: &Summary, instead_of: &Summary) -> f64 {
        match self.measure.better {
            Better::Lower => of.mean / instead_of.mean,
            Better::Higher => instead_of.mean / of.mean,
        }
    }

    /// Half of the 95 % interval of that cost, to first order in the intervals of both means.
    fn cost_interval(&self, of: &Summary, instead_of: &Summary) -> Option<f64> {
        let of_mean = of.interval? / of.mean;
        let of_other = instead_of.interval? / instead_of.mean;
        Some(self.cost(of, instead_of) * of_mean.hypot(of_other))
    }

    fn find(&self, policy: &str) -> Option<&Summary> {
        self.summaries.iter().find(|one| one.policy == policy)
    }

    /// The best of those of one kind.
    fn best(&self, is_one: impl Fn(&str) -> bool) -> Option<&Summary> {
        let all = self.summaries.iter().filter(|one| is_one(&one.policy));
        all.min_by(|a, b| self.measure.better.order(a.mean, b.mean))
    }

    /// The best of our policies, the best of the others, and the cost of ours.
    fn ours(&self) -> (Option<&Summary>, Option<&Summary>, Option<f64>) {
        let ours = self.best(is_ours);
        let peer = self.best(|policy| !is_ours(policy) && policy != BEST_KNOWN);
        let cost = ours.zip(peer).map(|(ours, peer)| self.cost(ours, peer));
        (ours, peer, cost)
    }
}

impl Share<'_> {
    /// Whether it is above 1 by more than chance; `None` where that is unknown.
    fn is_slower(&self) -> Option<bool> {
        Some(self.share - self.interval? > 1.0)
    }
}

impl Overall<'_> {
    fn worst(&self) -> Option<Share<'_>> {
        let shares = self.shares.iter().copied();
        shares.max_by(|a, b| a.share.total_cmp(&b.share))
    }

    /// In how many scenarios it is slower than Linux by more than chance; `None` if that is known for none.
    fn slower(&self) -> Option<usize> {
        let known: Vec<bool> = self.shares.iter().filter_map(Share::is_slower).collect();
        (!known.is_empty()).then(|| known.iter().filter(|&&is_slower| is_slower).count())
    }

    /// The geometric mean.
    fn mean(&self) -> Option<f64> {
        let logarithms = self.shares.iter().map(|share| share.share.ln());
        (!self.shares.is_empty()).then(|| mean(logarithms).exp())
    }
}

/// Each contender on each kernel, the one with the mildest worst case first; those that lack scenarios come last.
fn overall<'a>(lines: &'a [Line<'a>]) -> Vec<Overall<'a>> {
    let mut all: Vec<Overall<'a>> = Vec::new();
    let mut policies: Vec<&String> = Vec::new();
    for policy in lines.iter().flat_map(|line| line.policies) {
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    let mut kernels: Vec<&str> = lines.iter().map(|line| line.kernel).collect();
    kernels.sort_unstable();
    kernels.dedup();
    for policy in policies {
        for kernel in &kernels {
            let on_kernel = || lines.iter().filter(|line| line.kernel == *kernel);
            let share = |line: &'a Line<'a>| {
                let (of, linux) = (line.find(policy)?, line.find(BASELINE)?);
                let is_linux = policy == BASELINE;
                Some(Share {
                    scenario: line.scenario,
                    share: line.cost(of, linux),
                    interval: line.cost_interval(of, linux).filter(|_| !is_linux),
                })
            };
            all.push(Overall {
                policy,
                kernel,
                shares: on_kernel().filter_map(share).collect(),
                of: on_kernel().count(),
            });
        }
    }
    let worst = |of: &Overall<'_>| of.worst().map_or(f64::INFINITY, |worst| worst.share);
    let lacks = |of: &Overall<'_>| of.of - of.shares.len();
    all.sort_by(|a, b| lacks(a).cmp(&lacks(b)).then(worst(a).total_cmp(&worst(b))));
    all
}

/// Both tables. A contender without a figure in a scenario has dashes, or counts fewer scenarios.
pub fn text(lines: &[Line<'_>]) -> String {
    let percent = |share: Option<f64>| figure(share.map(|share| share * 100.0), 0);
    let headings = [
        "contender",
        "Linux",
        "worst %",
        "±",
        "in",
        "slower",
        "mean %",
        "scenarios",
    ];
    let mut contenders = Table::new(2, headings);
    for one in overall(lines) {
        let worst = one.worst();
        let scenarios = match one.shares.len() == one.of {
            true => one.of.to_string(),
            false => format!("{} of {}", one.shares.len(), one.of),
        };
        contenders.row([
            one.policy.to_owned(),
            one.kernel.to_owned(),
            percent(worst.map(|worst| worst.share)),
            percent(worst.and_then(|worst| worst.interval)),
            worst.map_or("-", |worst| worst.scenario).to_owned(),
            one.slower().map_or("-".to_owned(), |n| n.to_string()),
            percent(one.mean()),
            scenarios,
        ]);
    }
    let headings = [
        "scenario",
        "Linux",
        "best of ours",
        "mean",
        "±",
        "best peer",
        "mean",
        "±",
        "unit",
        "ours %",
    ];
    let mut scenarios = Table::new(2, headings);
    let mut sorted: Vec<&Line<'_>> = lines.iter().collect();
    let cost = |line: &Line<'_>| line.ours().2.unwrap_or(f64::NEG_INFINITY);
    sorted.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
    for line in sorted {
        let (ours, peer, cost) = line.ours();
        let mut row = vec![line.scenario.to_owned(), line.kernel.to_owned()];
        for of in [ours, peer] {
            let places = of.map_or(0, |of| digits(of.mean));
            row.push(of.map_or("-", |of| &of.policy).to_owned());
            row.push(figure(of.map(|of| of.mean), places));
            row.push(figure(of.and_then(|of| of.interval), places));
        }
        row.extend([line.measure.unit.clone(), percent(cost)]);
        scenarios.row(row);
    }
    format!(
        "All scenarios\n{}\nTime as a share of that of linux on the same kernel, the worst first: of the worst scenario, and the\n\
         geometric mean of all in which both have figures; of a rate, that of linux as a share of it. ±: half of the\n\
         95 % interval. slower: in how many scenarios it takes longer than linux by more than that.\n\n{}\nThe best of our \
         policies beside the best of the others: its time as a share of the other's, where it is\nfurthest behind first. The \
         best of several is so partly by chance: see the intervals.\n",
        contenders.text(),
        scenarios.text(),
    )
}

/// The contenders' shares as a chart, the text of an SVG file.
pub fn chart(lines: &[Line<'_>]) -> String {
    let mut all = overall(lines);
    all.retain(|one| !one.shares.is_empty() && one.policy != BASELINE);
    let mut kernels: Vec<&str> = all.iter().map(|one| one.kernel).collect();
    kernels.sort_unstable();
    kernels.dedup();
    let mut names: Vec<&str> = Vec::new();
    for one in &all {
        if !names.contains(&one.policy) {
            names.push(one.policy);
        }
    }
    let mut series = Vec::new();
    for kernel in &kernels {
        let percents = |name: &&str| {
            let mut all = all.iter();
            let one = all.find(|one| one.policy == *name && one.kernel == *kernel);
            let worst = one.and_then(|one| Some(one.worst()?.share * 100.0));
            (worst, one.and_then(|one| Some(one.mean()? * 100.0)))
        };
        let (worst, mean) = names.iter().map(percents).unzip();
        for (what, figures) in [("worst scenario", worst), ("mean of all", mean)] {
            let name = format!("{what}, Linux {kernel}");
            series.push(Series { name, figures });
        }
    }
    // Names of two words in two lines.
    let names: Vec<String> = names
        .iter()
        .map(|name| name.replacen('-', "-\n", 1))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let scenarios = all.iter().map(|one| one.of).max().unwrap_or(0);
    let title =
        format!("Time in % of Linux's without NUMA balancing, in {scenarios} scenarios of the lab");
    bars(&title, &names, &series)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies() -> Vec<String> {
        [
            "linux",
            "linux-balancing",
            "scx_rusty",
            "dino",
            "adaptive",
            "best-known",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn summary((policy, mean): &(&str, f64)) -> Summary {
        Summary {
            policy: (*policy).to_owned(),
            settings: None,
            trials: 3,
            mean: *mean,
            worst: mean * 1.1,
            deviation: Some(0.04),
            interval: Some(0.1),
            misses_per_1000_instructions: None,
            local_access_ratio: None,
            thread_moves: None,
            thread_moves_ordered: 0.0,
            pages_moved: 0.0,
            pages_moved_ordered: 0.0,
        }
    }

    fn line<'a>(
        scenario: &'a str,
        policies: &'a [String],
        measure: Measure,
        means: &[(&str, f64)],
    ) -> Line<'a> {
        Line {
            scenario,
            kernel: "7.3.4",
            measure,
            policies,
            summaries: means.iter().map(summary).collect(),
        }
    }

    /// A line of times, one of rates, and one with figures of Linux alone.
    fn lines(policies: &[String]) -> [Line<'_>; 3] {
        let rate = Measure {
            unit: "GB/s".to_owned(),
            better: Better::Higher,
            ..Measure::default()
        };
        [
            line(
                "devils",
                policies,
                Measure::default(),
                &[
                    ("linux", 4.0),
                    ("linux-balancing", 3.0),
                    ("dino", 2.0),
                    ("adaptive", 1.0),
                    ("best-known", 0.5),
                ],
            ),
            line(
                "stream",
                policies,
                rate,
                &[
                    ("linux", 10.0),
                    ("linux-balancing", 20.0),
                    ("dino", 8.0),
                    ("adaptive", 12.5),
                ],
            ),
            line("table", policies, Measure::default(), &[("linux", 1.0)]),
        ]
    }

    #[test]
    fn the_worst_case_is_first_and_where_ours_is_furthest_behind() {
        let policies = policies();
        insta::assert_snapshot!("overview", text(&lines(&policies)));
    }

    #[test]
    fn it_is_slower_only_beyond_the_intervals_of_both() {
        let policies = policies();
        let slower = |mean: f64, intervals: [Option<f64>; 2]| {
            let means = [("linux", 10.0), ("dino", mean)];
            let mut line = line("pairs", &policies, Measure::default(), &means);
            for (summary, interval) in line.summaries.iter_mut().zip(intervals) {
                summary.interval = interval;
            }
            let lines = [line];
            let all = overall(&lines);
            let dino = all.iter().find(|one| one.policy == "dino");
            dino.and_then(Overall::slower)
        };
        // Errors of 30 and 40 % are one of 50 % together, of the 1.2 or 1.8 times as long that it takes.
        assert_eq!(slower(12.0, [Some(3.0), Some(4.8)]), Some(0));
        assert_eq!(slower(18.0, [Some(3.0), Some(7.2)]), Some(0));
        assert_eq!(slower(12.0, [Some(0.6), Some(0.96)]), Some(1));
        assert_eq!(slower(8.0, [Some(0.1), Some(0.1)]), Some(0));
        assert_eq!(slower(18.0, [Some(0.1), None]), None);
    }

    #[test]
    fn the_chart_has_two_bars_for_whatever_has_figures_beside_linux() {
        let policies = policies();
        let svg = chart(&lines(&policies));
        let has = |text: &str| svg.contains(&format!(">{text}</text>"));
        for text in [
            "linux-",
            "balancing",
            "dino",
            "adaptive",
            "worst scenario, Linux 7.3.4",
        ] {
            assert!(has(text), "{text}\n{svg}");
        }
        assert!(!has("scx_rusty") && !has("linux"), "{svg}");
        // Four contenders, and the legend.
        for colour in ["#8c8c8c", "#e69f00"] {
            assert_eq!(svg.matches(&format!("fill=\"{colour}\"")).count(), 4 + 1);
        }
    }
}
