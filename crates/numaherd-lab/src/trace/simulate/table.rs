//! The table of `trace simulate`: policies side by side, compared with the first.

use numaherd_experiment::statistics;
use numaherd_experiment::table::{Table, figure, percent, saved};
use numaherd_trace::world::Figures;

use super::Compared;

/// One line for each policy: means of its runs.
pub fn compared(policies: &[Compared]) -> String {
    let headings = "policy|ms|dev. %|saves %|misses/1000|saves %|interchip MB|saves %|remote %|\
        right pages %|of time %|pages moved|threads moved|TLB misses %|nJ/instr.|\
        saves %";
    let mut table = Table::new(1, headings.split('|'));
    let Some(first) = policies.first() else {
        return String::new();
    };
    for policy in policies {
        let runs = &policy.runs;
        let mean = |of: &dyn Fn(&Figures) -> f64| mean(runs, of);
        let saves =
            |of: &dyn Fn(&Figures) -> f64| percent(saved(mean(of), self::mean(&first.runs, of)));
        let share = |of: &dyn Fn(&Figures) -> f64| percent(mean(of));
        let seconds = |figures: &Figures| figures.seconds;
        let misses = |figures: &Figures| figures.caches.llc_misses_per_1000_instructions;
        let traffic = |figures: &Figures| figures.interchip_bytes as f64 / 1e6;
        let energy = |figures: &Figures| figures.energy.per_instruction_nj;
        let times: Vec<f64> = runs.iter().map(seconds).collect();
        let tlb: Option<Vec<f64>> = runs
            .iter()
            .map(|figures| Some(figures.tlb?.miss_rate))
            .collect();
        table.row([
            policy.policy.clone(),
            figure(1e3 * mean(&seconds), 3),
            percent(statistics::relative_deviation(&times)),
            saves(&seconds),
            figure(mean(&misses), 3),
            saves(&misses),
            figure(mean(&traffic), 1),
            saves(&traffic),
            share(&|figures| figures.remote_access_share),
            share(&|figures| figures.pages.right_share),
            share(&|figures| figures.pages.right_by_time),
            figure(mean(&|figures| figures.pages.moved as f64), 0),
            figure(mean(&|figures| figures.thread_moves as f64), 0),
            figure(tlb.map(|rates| 100.0 * statistics::mean(rates)), 3),
            figure(mean(&energy), 3),
            saves(&energy),
        ]);
    }
    table.text()
}

/// What the columns mean.
pub const LEGEND: &str = "\
Saved is against the first policy. Misses are lines from beyond the last-level cache, prefetched ones
too. Remote accesses are those to a page on another node, wherever the line was found. A page is right
where most accesses to it come from, over the whole run: at the end, and as a share of the time.";

/// What a reader should know of these runs, a sentence each.
pub fn remarks(policies: &[Compared]) -> Vec<String> {
    let mut remarks = Vec::new();
    let mut all = policies.iter().flat_map(|policy| &policy.runs);
    if let Some(figures) = all.clone().find(|figures| figures.released > 0) {
        remarks.push(format!(
            "{} sleeps were ended by someone outside the trace; when is not known.",
            figures.released
        ));
    }
    if let Some(figures) = all.clone().find(|figures| figures.without_memory > 0) {
        remarks.push(format!(
            "{} accesses were left out: no node had memory left for their pages.",
            figures.without_memory
        ));
    }
    if let Some(figures) = all.find(|figures| !figures.failures.is_empty()) {
        remarks.extend(figures.failures.iter().cloned());
    }
    remarks
}

fn mean(runs: &[Figures], of: &dyn Fn(&Figures) -> f64) -> f64 {
    statistics::mean(runs.iter().map(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(scale: f64, moved: u64) -> Figures {
        let mut figures = Figures {
            seconds: 0.02 * scale,
            interchip_bytes: (5e6 * scale) as u64,
            remote_access_share: 0.75 * scale,
            released: moved / 100,
            ..Figures::default()
        };
        figures.caches.llc_misses_per_1000_instructions = 12.0 * scale;
        figures.pages.right_share = 1.0 - 0.7 * scale;
        figures.pages.moved = moved;
        figures.energy.per_instruction_nj = 20.0 * scale;
        figures
    }

    #[test]
    fn the_table_shows_every_figure_and_a_dash_for_what_is_unknown() {
        let policies = [
            Compared {
                policy: "first-touch".to_owned(),
                runs: vec![figures(1.0, 0), figures(1.1, 0)],
            },
            Compared {
                policy: "ipm".to_owned(),
                runs: vec![figures(0.5, 4096), figures(0.6, 4000)],
            },
        ];
        insta::assert_snapshot!("compared", compared(&policies));
        insta::assert_snapshot!(remarks(&policies).join("\n"), @"40 sleeps were ended by someone outside the trace; when is not known.");
    }
}
