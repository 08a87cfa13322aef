//! The table of `trace simulate`: policies side by side, held against the first.

use comfy_table::{Cell, CellAlignment, Table, presets};
use numaherd_trace::world::Figures;

use super::Compared;

/// One line for each policy: means of its runs.
pub fn compared(policies: &[Compared]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let headings = [
        "policy",
        "ms",
        "dev. %",
        "saves %",
        "misses/1000",
        "saves %",
        "interchip MB",
        "saves %",
        "remote %",
        "right pages %",
        "of time %",
        "pages moved",
        "threads moved",
        "TLB misses %",
        "nJ/instr.",
        "saves %",
    ];
    let right = |heading: &&str| match *heading {
        "policy" => Cell::new(heading),
        _ => Cell::new(heading).set_alignment(CellAlignment::Right),
    };
    table.set_header(headings.iter().map(right));
    let Some(first) = policies.first() else {
        return String::new();
    };
    for policy in policies {
        let runs = &policy.runs;
        let saves = |of: &dyn Fn(&Figures) -> f64| saved(mean(&first.runs, of), mean(runs, of));
        let seconds = |figures: &Figures| figures.seconds;
        let misses = |figures: &Figures| figures.caches.llc_misses_per_1000_instructions;
        let traffic = |figures: &Figures| figures.interchip_bytes as f64 / 1e6;
        let energy = |figures: &Figures| figures.energy.per_instruction_nj;
        let percent = |of: &dyn Fn(&Figures) -> f64| format!("{:.1}", 100.0 * mean(runs, of));
        let cells = [
            format!("{:.3}", 1e3 * mean(runs, &seconds)),
            deviation(runs, &seconds),
            saves(&seconds),
            format!("{:.3}", mean(runs, &misses)),
            saves(&misses),
            format!("{:.1}", mean(runs, &traffic)),
            saves(&traffic),
            percent(&|figures| figures.remote_access_share),
            percent(&|figures| figures.pages.right_share),
            percent(&|figures| figures.pages.right_by_time),
            format!("{:.0}", mean(runs, &|figures| figures.pages.moved as f64)),
            format!("{:.0}", mean(runs, &|figures| figures.thread_moves as f64)),
            if runs.iter().all(|figures| figures.tlb.is_some()) {
                let rate = |figures: &Figures| figures.tlb.map_or(0.0, |tlb| tlb.miss_rate);
                format!("{:.3}", 100.0 * mean(runs, &rate))
            } else {
                "-".to_owned()
            },
            format!("{:.3}", mean(runs, &energy)),
            saves(&energy),
        ];
        let cells = cells.map(|text| Cell::new(text).set_alignment(CellAlignment::Right));
        table.add_row([Cell::new(&policy.policy)].into_iter().chain(cells));
    }
    table.trim_fmt()
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
    runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64
}

/// Standard deviation over the mean, in percent; a dash for one run.
fn deviation(runs: &[Figures], of: &dyn Fn(&Figures) -> f64) -> String {
    let mean = mean(runs, of);
    if runs.len() < 2 || mean == 0.0 {
        return "-".to_owned();
    }
    let squares: f64 = runs
        .iter()
        .map(|figures| (of(figures) - mean).powi(2))
        .sum();
    let deviation = (squares / (runs.len() - 1) as f64).sqrt();
    format!("{:.1}", 100.0 * deviation / mean)
}

/// What is saved of a baseline, in percent; a dash where there was nothing to save.
fn saved(baseline: f64, value: f64) -> String {
    if baseline == 0.0 {
        return "-".to_owned();
    }
    let shown = format!("{:.1}", 100.0 * (1.0 - value / baseline));
    if shown == "-0.0" {
        "0.0".to_owned()
    } else {
        shown
    }
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

    #[test]
    fn nothing_to_save_is_a_dash_and_nothing_saved_has_no_sign() {
        assert_eq!(saved(0.0, 1.0), "-");
        assert_eq!(saved(1.0, 1.000_01), "0.0");
        assert_eq!(saved(2.0, 1.0), "50.0");
    }
}
