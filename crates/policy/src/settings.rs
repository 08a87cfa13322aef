//! What a user can set about policies, table by table.
//!
//! Each table is defined once ([`numaherd_files::settings!`]): what a key does, its default, unit, range
//! and source. Reading, checks, `numaherd config`, `docs/configuration.md` and the pages on policies follow
//! from that. How often a policy is asked is a setting of the loop that asks it, not one of these.

use numaherd_files::setting::{self, Wrong};
use numaherd_files::{FileError, choices, settings};

pub use crate::added::AddedSettings;
use crate::classes::ClassRule;
pub use crate::penalty::PenaltySettings;
pub use crate::placement::di::DiSettings;

settings! {
    /// What can be set about the policies. Every default is what the policy's source says, so that a
    /// policy does what its paper describes; docs/policies.md lists the rules.
    pub struct Settings {
        /// How threads are classed by their miss rate.
        classes: ClassSettings;
        /// Which threads are placed.
        placement: PlacementSettings;
        /// How Distributed Intensity deals threads.
        di: DiSettings;
        /// Which pages are moved.
        paging: PagingSettings;
        /// When threads leave their home.
        n_mass: NMassSettings;
        /// What IPM decides from, and how it maps threads.
        ipm: IpmSettings;
        /// Which pages kMAF moves.
        kmaf: KmafSettings;
        /// Which threads BRM moves, and how it looks for better nodes.
        brm: BrmSettings;
        /// How long the best layout is searched for.
        oracle: OracleSettings;
        /// How NUMA penalties are found.
        penalty: PenaltySettings;
        ..added: AddedSettings;
    }
}

impl Settings {
    /// Reads settings from TOML and checks them.
    ///
    /// # Errors
    /// [`FileError::Wrong`] names line and key of everything that is wrong.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let (settings, _) = setting::read(text, "the settings of policies")?;
        Ok(settings)
    }

    /// Looks for settings that cannot be.
    ///
    /// # Errors
    /// The first of them.
    pub fn check(&self) -> Result<(), Wrong> {
        setting::check(self)
    }
}

choices! {
    /// Which set of values the class rule starts from.
    pub enum ClassPreset {
        /// DINO's values.
        #[default]
        Paper = "paper",
        /// The values of the scheduler that DINO's authors published (Clavis).
        Clavis = "clavis",
    }
}

settings! {
    /// How threads are classed by their miss rate: turtles, devils, super-devils (DINO 3.3.2). `dino` uses
    /// the classes. The preset decides what is left out.
    #[derive(Copy)]
    pub struct ClassSettings {
        /// Which set of values the rule starts from.
        preset: ClassPreset, source: "DINO 3.3.2, 3.3.3; Clavis";
        /// Lowest miss rate of a devil.
        devil_from: Option<f64>, unit: "lines per 1000 instructions", range: 0.0..=f64::MAX,
            source: "DINO 3.3.2", left_out: "2, or 1.5 with the preset \"clavis\"", example: "2.0";
        /// Miss rate above which a thread is a super-devil.
        super_devil_above: Option<f64>, unit: "lines per 1000 instructions", range: 0.0..=f64::MAX,
            source: "DINO 3.3.2", left_out: "100, or 50 with the preset \"clavis\"", example: "100.0";
        /// How many intervals must agree on another class before a thread gets it.
        votes: Option<usize>, unit: "intervals", range: 1.0..=f64::MAX,
            source: "DINO 3.3.3", left_out: "7, or 5 with the preset \"clavis\"", example: "7";
        /// How many of the last intervals vote.
        of_last: Option<usize>, unit: "intervals", range: 1.0..=f64::MAX,
            source: "DINO 3.3.3", left_out: "10", example: "10";
    }
    where check = ClassSettings::agree
}

impl ClassSettings {
    /// The rule that the settings describe.
    pub fn rule(&self) -> ClassRule {
        let preset = match self.preset {
            ClassPreset::Paper => ClassRule::PAPER,
            ClassPreset::Clavis => ClassRule::CLAVIS,
        };
        ClassRule {
            devil_from: self.devil_from.unwrap_or(preset.devil_from),
            super_devil_above: self.super_devil_above.unwrap_or(preset.super_devil_above),
            votes: self.votes.unwrap_or(preset.votes),
            of_last: self.of_last.unwrap_or(preset.of_last),
            mean_moved_by: preset.mean_moved_by,
        }
    }

    fn agree(&self, wrong: &mut dyn FnMut(&str, String)) {
        let rule = self.rule();
        let (devil, super_devil) = (rule.devil_from, rule.super_devil_above);
        if super_devil < devil {
            let why = format!("must be at least `devil_from` ({devil}), not {super_devil}");
            wrong("super_devil_above", why);
        }
        let (votes, of_last) = (rule.votes, rule.of_last);
        if votes > of_last {
            let why = format!("must be at most `of_last` ({of_last}), not {votes}");
            wrong("votes", why);
        }
    }
}

settings! {
    /// Which threads are placed at all.
    #[derive(Copy)]
    pub struct PlacementSettings {
        /// Threads that use less of a CPU than this are left to the kernel. When more threads run than
        /// there are CPUs, the share that each must use is lower.
        least_cpu_share: f64 = 0.9, unit: "share of a CPU", range: 0.0..=1.0, source: "Clavis";
    }
}

settings! {
    /// Which pages are moved, by the policies whose memory follows (`dino`, `di-migrate`).
    #[derive(Copy, Eq)]
    pub struct PagingSettings {
        /// K: how many pages one sampled access moves in total, half of them before it.
        window_pages: u64 = 4096, unit: "base pages", range: 1.0..=MOST_WINDOW_PAGES,
            source: "DINO 4.1; a total in Clavis";
        /// How often a chunk of pages may be ordered back to another node before it is frozen.
        bounce_limit: u32 = 5, unit: "orders back", source: "Clavis";
        /// After what time of the samples a frozen chunk gets another chance. DINO 3.3.2 only says that
        /// migration is discontinued.
        thaw_after_s: u64 = 60, unit: "s", source: "chosen here";
    }
}

/// The most base pages that one access may move (64 GiB of 4 KiB pages): the governor looks at
/// every piece of a window.
const MOST_WINDOW_PAGES: f64 = (1 << 24) as f64;

choices! {
    /// How much a thread that leaves its home may take with it: two readings of N-MASS 3.1.
    pub enum MostMoved {
        /// Less than half the difference of the pressures, as the text says.
        #[default]
        Half = "half",
        /// As much as leaves both pressures between where they began, so that the difference falls.
        Difference = "difference",
    }
}

settings! {
    /// When threads leave their home (`n-mass`; `maximum-local` uses `changed_by` alone).
    #[derive(Copy)]
    pub struct NMassSettings {
        /// Pressure that a processor must stay below when it gets a thread whose home is elsewhere: where
        /// the link between the paper's processors saturates.
        threshold: f64 = 60.0, unit: "lines per 1000 instructions", range: 0.0..=f64::MAX, source: "N-MASS 3.4";
        /// Threads are placed anew when a miss rate changes by more than this.
        changed_by: f64 = 0.2, unit: "share of a miss rate", range: 0.0..=f64::MAX, source: "N-MASS 3.4";
        /// How much a thread that leaves its home may take with it.
        most_moved: MostMoved, source: "N-MASS 3.1";
        /// Whether threads may change places when no core is free. The algorithm as printed does not.
        exchange: bool = false, source: "chosen here";
    }
}

choices! {
    /// What pages and threads are judged by.
    pub enum Evidence {
        /// How long translations stay in TLBs, as a unit at them measures it (IPM 3.2).
        #[default]
        Residency = "residency",
        /// Memory samples, for machines without such a unit: weaker, since samples are fewer than accesses.
        Samples = "samples",
    }
}

choices! {
    /// What maps threads to CPUs by the pages that they share.
    pub enum Mapper {
        /// EagerMap.
        #[default]
        Eager = "eager",
        /// Never worse than EagerMap.
        Refined = "refined",
        /// The best mapping for up to a dozen threads, and the refined one beyond.
        Exact = "exact",
    }
}

settings! {
    /// What `ipm` decides from, and how it maps threads. `tlb-miss-history` uses all but `evidence`.
    #[derive(Copy)]
    pub struct IpmSettings {
        /// How much of the sharing known so far remains after an interval.
        age: f64 = 0.75, unit: "share", range: 0.0..=1.0, source: "IPM 4.4.4";
        /// Threads are mapped anew when more than this share of all sharing is between other pairs. IPM
        /// 4.4.4 says "significantly".
        changed_by: f64 = crate::mapping::CHANGED_BY, unit: "share", range: 0.0..=1.0, source: "chosen here";
        /// What maps threads to CPUs by the pages that they share.
        mapper: Mapper, source: "IPM 4.4.4";
        /// What pages and threads are judged by.
        evidence: Evidence, source: "IPM 3";
        /// CR_aging of events (misses, samples) that are credited in place of residency.
        cr_aging: u32 = 7, unit: "binary digits", range: 1.0..=15.0,
            because: " (a counter of 16 bits must hold what a page begins with)", source: "IPM 6.4";
        /// CR_mig of the same events; below `cr_aging`.
        cr_mig: u32 = 2, unit: "binary digits", source: "IPM 6.4";
    }
    where check = IpmSettings::can_move
}

impl IpmSettings {
    fn can_move(&self, wrong: &mut dyn FnMut(&str, String)) {
        let (aging, migration) = (self.cr_aging, self.cr_mig);
        if migration >= aging {
            let why = format!(
                "must be below `cr_aging` ({aging}), or no event could move a page, not {migration}"
            );
            wrong("cr_mig", why);
        }
    }
}

settings! {
    /// Which pages `kmaf` moves.
    #[derive(Copy)]
    pub struct KmafSettings {
        /// The share of a page's faults that a node must have to get the page. No source is known to us.
        exclusivity: f64 = 0.9, unit: "share", range: 0.0..=1.0, source: "chosen here";
    }
}

choices! {
    /// What makes a thread a candidate: one that BRM moves at all.
    pub enum CandidatesBy {
        /// Tags in processes that have any; in others, what is observed of the thread.
        #[default]
        Auto = "auto",
        /// Tags alone, which users or agents in virtual machines set (BRM 4.3).
        Tagged = "tagged",
        /// What is observed of the thread alone (BRM 8).
        Inferred = "inferred",
        /// Every thread is a candidate.
        All = "all",
    }
}

choices! {
    /// What happens to average penalties when a thread moves to another node: two readings of BRM 5,
    /// which does not say.
    pub enum AverageOver {
        /// All begin again, the thread's own with the second interval there: in the first its caches are cold.
        #[default]
        Anew = "anew",
        /// They continue: for some ten intervals they partly describe the layout before.
        Through = "through",
    }
}

choices! {
    /// How the probability to move changes on a machine of more than two nodes: two readings of BRM.
    /// With two nodes they are the same.
    pub enum Steps {
        /// One step a tick: up if any other node had a smaller penalty, else down (BRM 4.4).
        #[default]
        Text = "text",
        /// A step for every other node (Algorithm 1, lines 17 to 26).
        Printed = "printed",
    }
}

choices! {
    /// How the system-wide penalty is kept.
    pub enum SystemPenaltyForm {
        /// One total, exact at every update (BRM 4.2).
        #[default]
        Plain = "plain",
        /// A part for each node, which sees the others as of the last tick (BRM 8).
        Sharded = "sharded",
    }
}

settings! {
    /// Which threads `brm` moves, and how it looks for better nodes.
    #[derive(Copy)]
    pub struct BrmSettings {
        /// What makes a thread a candidate: one that is moved at all.
        candidates: CandidatesBy, source: "BRM 4.3, 8";
        /// Requests to the uncore that make a thread a candidate where no tag decides.
        requests_per_s: f64 = 1e6, unit: "requests per second", range: 0.0..=f64::MAX, source: "chosen here";
        /// A candidate that was on another node, and whose own uncore penalty changed by less than this,
        /// is a candidate no longer.
        least_change: f64 = 0.05, unit: "share of its uncore penalty", range: 0.0..=f64::MAX,
            source: "BRM 8; the figure chosen here";
        /// What a thread knows of nodes is forgotten after a random time: at least this, for each node that
        /// it then has to explore. BRM 4.4 says "random".
        forget_after_least_ms: u64 = 10_000, unit: "ms", range: 1.0..=DAY_MS, because: ", a day", source: "chosen here";
        /// The most that this random time may be, likewise for each node.
        forget_after_most_ms: u64 = 30_000, unit: "ms", range: 1.0..=DAY_MS, because: ", a day", source: "chosen here";
        /// A node counts as better when the system-wide penalty was lower by more than this. BRM prints 0.
        least_gain: f64 = 0.03, unit: "share of the system-wide penalty", range: 0.0..=f64::MAX, source: "chosen here";
        /// What happens to average penalties when a thread moves to another node, which BRM 5 does not say.
        average: AverageOver, source: "BRM 5";
        /// How the probability to move changes on more than two nodes.
        steps: Steps, source: "BRM 4.4; Algorithm 1";
        /// How the system-wide penalty is kept.
        system_penalty: SystemPenaltyForm, source: "BRM 4.2, 8";
    }
    where check = BrmSettings::forget_in_order
}

/// A day in ms, the longest that BRM may remember.
const DAY_MS: f64 = 86_400_000.0;

impl BrmSettings {
    fn forget_in_order(&self, wrong: &mut dyn FnMut(&str, String)) {
        let (least, most) = (self.forget_after_least_ms, self.forget_after_most_ms);
        if most < least {
            let why = format!("must be at least `forget_after_least_ms` ({least}), not {most}");
            wrong("forget_after_most_ms", why);
        }
    }
}

settings! {
    /// How long `oracle` searches for the best layout; it runs in modelled worlds only.
    #[derive(Copy)]
    pub struct OracleSettings {
        /// How many layouts are tried at most; if there are no more than that, all are.
        layouts: usize = 20_000, unit: "layouts", range: 1.0..=f64::MAX, source: "chosen here";
        /// Threads are placed anew when a miss rate changes by more than this.
        changed_by: f64 = 0.2, unit: "share of a miss rate", range: 0.0..=f64::MAX, source: "as N-MASS 3.4";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_set_is_the_papers_values() {
        let settings = Settings::parse("").unwrap();
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.classes.rule(), ClassRule::PAPER);
        assert_eq!(settings.paging.window_pages, 4096);
    }

    #[test]
    fn a_preset_can_be_changed_value_by_value() {
        let settings = Settings::parse("[classes]\npreset = \"clavis\"\nvotes = 6").unwrap();
        let expected = ClassRule {
            votes: 6,
            ..ClassRule::CLAVIS
        };
        assert_eq!(settings.classes.rule(), expected);
    }

    #[test]
    fn what_is_written_reads_back() {
        let text = "[classes]\npreset = \"clavis\"\ndevil_from = 1.0\n[paging]\nbounce_limit = 2";
        let settings = Settings::parse(text).unwrap();
        let written = toml::to_string(&settings).unwrap();
        assert_eq!(Settings::parse(&written).unwrap(), settings);
    }

    #[test]
    fn penalties_of_programs_are_read() {
        let settings = Settings::parse("[penalty]\nprograms = { mcf = 1.21, lbm = 1.3 }").unwrap();
        assert_eq!(settings.penalty.of("lbm", 0.0), 1.3);
        let written = toml::to_string(&settings).unwrap();
        assert_eq!(Settings::parse(&written).unwrap(), settings);
    }

    #[test]
    fn a_table_that_is_nobodys_is_refused_however_it_is_read() {
        let read = toml::from_str::<Settings>("[mine]\nkey = 1");
        assert!(
            read.unwrap_err()
                .message()
                .starts_with("unknown field `mine`")
        );
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let told = |text: &str| {
            let told = Settings::parse(text).unwrap_err().to_string();
            told.replace("the settings of policies", "")
        };
        for (text, expected) in [
            (
                "[classes]\nvoters = 3",
                ":2: classes.voters: unknown key; did you mean `votes`?",
            ),
            // The cadence is the loop's: there is one place to set it.
            (
                "[paging]\ninterval_ms = 10",
                ":2: paging.interval_ms: unknown key",
            ),
            (
                "[classes]\nvotes = 11",
                ":2: classes.votes: must be at most `of_last` (10), not 11",
            ),
            (
                "[placement]\nleast_cpu_share = 90",
                ":2: placement.least_cpu_share: must be a number from 0 to 1, not 90",
            ),
            (
                "[paging]\nwindow_pages = 0",
                ":2: paging.window_pages: must be a whole number from 1 to 16777216, not 0",
            ),
            (
                "[paging]\nwindow_pages = 9223372036854775807",
                ":2: paging.window_pages: must be a whole number from 1 to 16777216, not 9223372036854775807",
            ),
            (
                "[penalty]\nprograms = { mcf = 0.9 }",
                ":2: penalty.programs.mcf: must be a number, 1 or more, not 0.9",
            ),
            (
                "[n_mass]\nthreshold = nan",
                ":2: n_mass.threshold: must be a number, 0 or more, not NaN",
            ),
            (
                "[brm]\nforget_after_least_ms = 40000",
                ": brm.forget_after_most_ms: must be at least `forget_after_least_ms` (40000), not 30000 \
                 (its default)",
            ),
            (
                "[brm]\nleast_change = -0.1",
                ":2: brm.least_change: must be a number, 0 or more, not -0.1",
            ),
            (
                "[brm]\nrequests_per_s = inf",
                ":2: brm.requests_per_s: must be a number, 0 or more, not inf",
            ),
            (
                "[brm]\ncandidates = \"tag\"",
                ":2: brm.candidates: must be \"auto\", \"tagged\", \"inferred\" or \"all\", not \"tag\"",
            ),
            (
                "[oracle]\nlayouts = 0",
                ":2: oracle.layouts: must be a whole number, 1 or more, not 0",
            ),
            (
                "[classes]\ndevil_from = 60\npreset = \"clavis\"",
                ": classes.super_devil_above: must be at least `devil_from` (60), not 50 (its default)",
            ),
            (
                "[ipm]\ncr_mig = 7",
                ":2: ipm.cr_mig: must be below `cr_aging` (7), or no event could move a page, not 7",
            ),
            ("[mine]\nkey = 1", ":1: mine: unknown key"),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }
}
