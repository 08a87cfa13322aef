//! What a user can set about policies: every key with its default, unit and source.
//!
//! Settings are TOML; every key may be left out, and an unknown key is an error that names it. How
//! often a policy is asked is set of the loop that asks it, not here.
//!
//! ```toml
//! [classes]
//! preset = "paper"         # or "clavis"; the keys below replace single values of the preset
//! devil_from = 2.0         # lines per 1000 instructions; DINO 3.3.2 (clavis: 1.5)
//! super_devil_above = 100  # lines per 1000 instructions; DINO 3.3.2 (clavis: 50)
//! votes = 7                # intervals; DINO 3.3.3 (clavis: 5)
//! of_last = 10             # intervals; DINO 3.3.3 (clavis: 10)
//!
//! [placement]
//! least_cpu_share = 0.9    # share of a CPU, 0 to 1; Clavis
//!
//! [paging]
//! window_pages = 4096      # base pages in total; DINO 4.1, Clavis
//! bounce_limit = 5         # orders back; Clavis
//! thaw_after_s = 60        # seconds of sample time; no source
//!
//! [n_mass]
//! threshold = 60.0         # lines per 1000 instructions; N-MASS 3.4
//! changed_by = 0.2         # share of a miss rate; N-MASS 3.4
//! most_moved = "half"      # or "difference"; N-MASS 3.1
//! exchange = false         # no source
//!
//! [ipm]
//! age = 0.75               # share of what was known that an interval leaves; IPM 4.4.4
//! changed_by = 0.2         # share of all sharing; no source
//! mapper = "eager"         # or "refined", "exact"; IPM 4.4.4
//! evidence = "residency"   # or "samples"; IPM 3
//! cr_aging = 7             # Eq. 6, of events credited in place of residency; IPM 6.4
//! cr_mig = 2               # Eq. 8, likewise
//!
//! [kmaf]
//! exclusivity = 0.9        # share of a page's faults; no source
//!
//! [brm]
//! candidates = "auto"      # or "tagged", "inferred", "all"; BRM 4.3, 8
//! requests_per_s = 1000000 # requests to the uncore that make a candidate; no source
//! least_change = 0.05      # share of its own penalty that keeps it one; BRM 8, figure: no source
//! forget_after_least_ms = 10000  # ms for each node to explore; no source (BRM 4.4: "random")
//! forget_after_most_ms = 30000   # likewise
//! least_gain = 0.03        # share of the system-wide penalty; no source (as printed: 0)
//! average = "anew"         # or "through"; BRM 5
//! steps = "text"           # or "printed"; BRM 4.4, Algorithm 1
//! system_penalty = "plain" # or "sharded"; BRM 4.2, 8
//!
//! [oracle]
//! layouts = 20000          # how many it may try; no source
//! changed_by = 0.2         # share of a miss rate; as N-MASS
//!
//! [penalty]
//! estimate = "profile"     # or "regression"; N-MASS 3.4, 4.5
//! intercept = 1.05         # NUMA penalty; N-MASS 4.5
//! slope = 0.015            # NUMA penalty per line per 1000 instructions; N-MASS 4.5
//! programs = { mcf = 1.21 }  # measured penalties by process name; none by default
//! miss_rates = { mcf = 38.3 }  # recorded of the program alone, in place of those seen now; N-MASS 3.4; none by default
//! ```

use serde::{Deserialize, Serialize};

use crate::classes::ClassRule;
use crate::error::PolicyError;
use crate::penalty::PenaltySettings;

/// The most base pages that one access may move (64 GiB of 4 KiB pages): the governor looks at
/// every piece of a window.
const MOST_WINDOW_PAGES: u64 = 1 << 24;

/// The longest that BRM may go by what it knows: a day, in ms.
const MOST_FORGET_MS: u64 = 86_400_000;

/// All settings of all policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How threads are classed by their miss rate.
    pub classes: ClassSettings,
    /// Which threads are placed.
    pub placement: PlacementSettings,
    /// Which pages are moved.
    pub paging: PagingSettings,
    /// When threads leave their home.
    pub n_mass: NMassSettings,
    /// What IPM goes by and how it maps threads.
    pub ipm: IpmSettings,
    /// Which pages kMAF moves.
    pub kmaf: KmafSettings,
    /// Whom BRM moves, and how it looks for better nodes.
    pub brm: BrmSettings,
    /// How long the best layout is looked for.
    pub oracle: OracleSettings,
    /// How NUMA penalties are found.
    pub penalty: PenaltySettings,
}

/// Which set of values the class rule starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassPreset {
    /// DINO §3.3.2, §3.3.3: [`ClassRule::PAPER`].
    #[default]
    Paper,
    /// The authors' own scheduler: [`ClassRule::CLAVIS`].
    Clavis,
}

/// How threads are classed. A value that is left out is the preset's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassSettings {
    /// `paper` (default) or `clavis`.
    pub preset: ClassPreset,
    /// Lowest miss rate of a devil in lines per 1000 instructions; 2 (DINO §3.3.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devil_from: Option<f64>,
    /// Miss rate above which a thread is a super-devil, in lines per 1000 instructions; 100
    /// (DINO §3.3.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub super_devil_above: Option<f64>,
    /// Intervals that must speak for another class; 7 (DINO §3.3.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub votes: Option<usize>,
    /// Of how many last intervals; 10 (DINO §3.3.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_last: Option<usize>,
}

impl ClassSettings {
    /// The rule that the settings come to.
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
}

/// Which threads are placed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlacementSettings {
    /// Threads that use less of a CPU are left to the kernel; 0.9 (Clavis), of 0 to 1. Where a
    /// machine is full, see [`crate::busy`].
    pub least_cpu_share: f64,
}

impl Default for PlacementSettings {
    fn default() -> Self {
        Self {
            least_cpu_share: 0.9,
        }
    }
}

/// Which pages are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PagingSettings {
    /// K: base pages that one sampled access moves, in total; 4096 (DINO §4.1; that it is a total,
    /// half of it before the page, is Clavis').
    pub window_pages: u64,
    /// How often a chunk of pages may be ordered back to another node before it is frozen; 5
    /// (Clavis' bouncing limit).
    pub bounce_limit: u32,
    /// Seconds, of the samples' own time, after which a frozen chunk gets another chance; 60 (no
    /// source: DINO §3.3.2 only says that migration is discontinued).
    pub thaw_after_s: u64,
}

impl Default for PagingSettings {
    fn default() -> Self {
        Self {
            window_pages: 4096,
            bounce_limit: 5,
            thaw_after_s: 60,
        }
    }
}

/// How much a thread that leaves its home may take with it: two readings of N-MASS §3.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MostMoved {
    /// Less than half the difference of the pressures: as the text says.
    #[default]
    Half,
    /// As long as both pressures end between where they began: the difference falls.
    Difference,
}

/// When threads leave their home (`maximum-local` knows only the second).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NMassSettings {
    /// Pressure that a processor must stay below when a thread is moved there that is not at home
    /// there, in lines per 1000 instructions; 60 (N-MASS §3.4: where the link between the paper's
    /// processors saturates).
    pub threshold: f64,
    /// Threads are placed anew when a miss rate changed by more than this share of it; 0.2
    /// (N-MASS §3.4).
    pub changed_by: f64,
    /// How much a thread may take with it; half the difference (N-MASS §3.1).
    pub most_moved: MostMoved,
    /// Whether threads may change places where there is no free core; not in the algorithm as
    /// printed.
    pub exchange: bool,
}

impl Default for NMassSettings {
    fn default() -> Self {
        Self {
            threshold: 60.0,
            changed_by: 0.2,
            most_moved: MostMoved::Half,
            exchange: false,
        }
    }
}

/// What pages and threads are judged by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// How long translations stay in TLBs, as a unit at them tells (IPM §3.2).
    #[default]
    Residency,
    /// Memory samples in its place: for machines without such a unit. Weaker, by as much as samples
    /// are fewer than accesses.
    Samples,
}

/// What maps threads to CPUs by what they share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapper {
    /// EagerMap (IPM §4.4.4).
    #[default]
    Eager,
    /// Never worse than that ([`crate::mapping::refined_map`]).
    Refined,
    /// The best there is, for a dozen threads; beyond, the refined one
    /// ([`crate::mapping::exact_map`]).
    Exact,
}

/// What IPM goes by and how it maps threads. `tlb-miss-history` goes by the same but for
/// `evidence`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IpmSettings {
    /// What is left after an interval of what was known to be shared; 0.75, of 0 to 1 (IPM §4.4.4).
    pub age: f64,
    /// Threads are mapped anew when more than this share of all sharing is between other pairs;
    /// 0.2, of 0 to 1 (no source: IPM §4.4.4 says "significantly").
    pub changed_by: f64,
    /// What maps them; EagerMap (IPM §4.4.4).
    pub mapper: Mapper,
    /// What pages and threads are judged by.
    pub evidence: Evidence,
    /// `CR_aging` of events that are credited in place of residency; 7, of 1 to 15 (IPM §6.4).
    pub cr_aging: u32,
    /// `CR_mig`, likewise; 2, below `cr_aging` (IPM §6.4).
    pub cr_mig: u32,
}

impl Default for IpmSettings {
    fn default() -> Self {
        Self {
            age: 0.75,
            changed_by: crate::mapping::CHANGED_BY,
            mapper: Mapper::default(),
            evidence: Evidence::default(),
            cr_aging: 7,
            cr_mig: 2,
        }
    }
}

/// Which pages kMAF moves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KmafSettings {
    /// The share of a page's faults that a node must have to get it; 0.9, of 0 to 1 (no source
    /// known to us).
    pub exclusivity: f64,
}

impl Default for KmafSettings {
    fn default() -> Self {
        Self { exclusivity: 0.9 }
    }
}

/// Who says which threads are candidates: are moved by BRM at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CandidatesBy {
    /// In processes of which anybody tells, the tags; in others what is seen of the thread.
    #[default]
    Auto,
    /// Tags alone: threads whose users, or whose agents in virtual machines, say so (BRM §4.3).
    Tagged,
    /// What is seen of the thread alone (BRM §8).
    Inferred,
    /// All threads are.
    All,
}

/// What becomes of average penalties when a thread comes to another node: two readings of BRM §5,
/// which does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AverageOver {
    /// When any candidate has come to another node all begin anew, its own with the second interval
    /// there: in the first its caches are cold.
    #[default]
    Anew,
    /// They go on: for some ten intervals they are partly of the layout before.
    Through,
}

/// How the probability to move goes up and down on a machine of more than two nodes: two readings
/// of BRM. With two nodes they are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steps {
    /// One step a tick: up if any other node has had a smaller penalty, down if none (§4.4).
    #[default]
    Text,
    /// A step for every other node (Algorithm 1, lines 17 to 26).
    Printed,
}

/// How the system-wide penalty is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemPenaltyForm {
    /// One total, exact at every update (BRM §4.2).
    #[default]
    Plain,
    /// A shard per node that sees the others as of the last tick (BRM §8).
    Sharded,
}

/// Whom BRM moves, and how it looks for better nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrmSettings {
    /// Who says which threads are candidates.
    pub candidates: CandidatesBy,
    /// Requests to the uncore per second that make a thread a candidate where nobody tells;
    /// 1,000,000 (no source: see [`crate::candidates`]).
    pub requests_per_s: f64,
    /// One that was on another node and whose own penalty changed by less than this share of it is
    /// none any more; 0.05 (BRM §8; the figure has no source).
    pub least_change: f64,
    /// What a thread knows of nodes is forgotten after a random time, at least this for each node
    /// that it then has to explore, in ms; 10,000 (no source: see [`crate::placement::brm`]).
    pub forget_after_least_ms: u64,
    /// At most this, likewise; 30,000 (no source).
    pub forget_after_most_ms: u64,
    /// A node counts as better where the system-wide penalty was less by more than this share of it;
    /// 0.03 (BRM prints 0; the figure has no source: see [`crate::placement::brm`]).
    pub least_gain: f64,
    /// What becomes of averages on another node.
    pub average: AverageOver,
    /// How the probability to move goes up and down.
    pub steps: Steps,
    /// How the system-wide penalty is kept.
    pub system_penalty: SystemPenaltyForm,
}

impl Default for BrmSettings {
    fn default() -> Self {
        Self {
            candidates: CandidatesBy::default(),
            requests_per_s: 1e6,
            least_change: 0.05,
            forget_after_least_ms: 10_000,
            forget_after_most_ms: 30_000,
            least_gain: 0.03,
            average: AverageOver::default(),
            steps: Steps::default(),
            system_penalty: SystemPenaltyForm::default(),
        }
    }
}

/// How long the best layout is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OracleSettings {
    /// How many layouts are tried at most; 20,000 (no source). Where there are no more than that,
    /// all are.
    pub layouts: usize,
    /// Threads are placed anew when a miss rate changed by more than this share of it; 0.2, as for
    /// N-MASS.
    pub changed_by: f64,
}

impl Default for OracleSettings {
    fn default() -> Self {
        Self {
            layouts: 20_000,
            changed_by: 0.2,
        }
    }
}

impl Settings {
    /// Reads settings from TOML and checks them.
    ///
    /// # Errors
    /// [`PolicyError::Settings`] for text that is not TOML, an unknown key or a wrong type;
    /// [`PolicyError::Setting`] for a value that cannot be.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let settings: Self = toml::from_str(text).map_err(|error| PolicyError::Settings {
            reason: error.to_string(),
        })?;
        settings.check()?;
        Ok(settings)
    }

    /// Checks that every value can be.
    ///
    /// # Errors
    /// [`PolicyError::Setting`] names the first that cannot.
    pub fn check(&self) -> Result<(), PolicyError> {
        let require = |holds: bool, key: &'static str, value: String, must: &'static str| {
            let wrong = PolicyError::Setting { key, value, must };
            if holds { Ok(()) } else { Err(wrong) }
        };
        let rule = self.classes.rule();
        let share = self.placement.least_cpu_share;
        require(
            rule.devil_from.is_finite() && rule.devil_from >= 0.0,
            "classes.devil_from",
            rule.devil_from.to_string(),
            "be a miss rate of 0 or more",
        )?;
        require(
            rule.super_devil_above.is_finite() && rule.super_devil_above >= rule.devil_from,
            "classes.super_devil_above",
            rule.super_devil_above.to_string(),
            "be at least classes.devil_from",
        )?;
        require(
            (1..=rule.of_last).contains(&rule.votes),
            "classes.votes",
            rule.votes.to_string(),
            "be at least 1 and at most classes.of_last",
        )?;
        require(
            (0.0..=1.0).contains(&share),
            "placement.least_cpu_share",
            share.to_string(),
            "be a share of a CPU, from 0 to 1",
        )?;
        require(
            (1..=MOST_WINDOW_PAGES).contains(&self.paging.window_pages),
            "paging.window_pages",
            self.paging.window_pages.to_string(),
            "be from 1 to 16777216",
        )?;
        let pressure = self.n_mass.threshold;
        require(
            pressure.is_finite() && pressure >= 0.0,
            "n_mass.threshold",
            pressure.to_string(),
            "be a miss rate of 0 or more",
        )?;
        for (key, share) in [
            ("n_mass.changed_by", self.n_mass.changed_by),
            ("oracle.changed_by", self.oracle.changed_by),
        ] {
            require(
                share.is_finite() && share >= 0.0,
                key,
                share.to_string(),
                "be a share of a miss rate, 0 or more",
            )?;
        }
        require(
            self.oracle.layouts >= 1,
            "oracle.layouts",
            self.oracle.layouts.to_string(),
            "be at least 1",
        )?;
        for (key, share) in [
            ("ipm.age", self.ipm.age),
            ("ipm.changed_by", self.ipm.changed_by),
            ("kmaf.exclusivity", self.kmaf.exclusivity),
        ] {
            require(
                (0.0..=1.0).contains(&share),
                key,
                share.to_string(),
                "be a share, from 0 to 1",
            )?;
        }
        require(
            (1..=15).contains(&self.ipm.cr_aging),
            "ipm.cr_aging",
            self.ipm.cr_aging.to_string(),
            "be from 1 to 15, so that a counter of 16 bits holds what a page begins with",
        )?;
        require(
            self.ipm.cr_mig < self.ipm.cr_aging,
            "ipm.cr_mig",
            self.ipm.cr_mig.to_string(),
            "be below ipm.cr_aging, or no event could ever move a page",
        )?;
        let brm = &self.brm;
        require(
            brm.requests_per_s.is_finite() && brm.requests_per_s >= 0.0,
            "brm.requests_per_s",
            brm.requests_per_s.to_string(),
            "be a number of requests per second, 0 or more",
        )?;
        for (key, share) in [
            ("brm.least_change", brm.least_change),
            ("brm.least_gain", brm.least_gain),
        ] {
            require(
                share.is_finite() && share >= 0.0,
                key,
                share.to_string(),
                "be a share of an uncore penalty, 0 or more",
            )?;
        }
        require(
            (1..=MOST_FORGET_MS).contains(&brm.forget_after_least_ms),
            "brm.forget_after_least_ms",
            brm.forget_after_least_ms.to_string(),
            "be from 1 to 86400000, a day",
        )?;
        require(
            (brm.forget_after_least_ms..=MOST_FORGET_MS).contains(&brm.forget_after_most_ms),
            "brm.forget_after_most_ms",
            brm.forget_after_most_ms.to_string(),
            "be at least brm.forget_after_least_ms and at most 86400000, a day",
        )?;
        let penalty = &self.penalty;
        for (key, figure) in [
            ("penalty.intercept", penalty.intercept),
            ("penalty.slope", penalty.slope),
        ] {
            require(
                figure.is_finite() && figure >= 0.0,
                key,
                figure.to_string(),
                "be 0 or more",
            )?;
        }
        for (program, &rate) in &penalty.miss_rates {
            require(
                rate.is_finite() && rate >= 0.0,
                "penalty.miss_rates",
                format!("{program} = {rate}"),
                "give every program a miss rate of 0 or more",
            )?;
        }
        for (program, &figure) in &penalty.programs {
            require(
                figure.is_finite() && figure >= 1.0,
                "penalty.programs",
                format!("{program} = {figure}"),
                "give every program a NUMA penalty of 1 or more",
            )?;
        }
        Ok(())
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
    fn a_wrong_setting_is_named() {
        let told = |text: &str| Settings::parse(text).unwrap_err().to_string();
        assert!(told("[classes]\nvoters = 3").contains("unknown field `voters`"));
        // The cadence is the loop's: there is one place to set it.
        assert!(told("[paging]\ninterval_ms = 10").contains("unknown field `interval_ms`"));
        assert_eq!(
            told("[classes]\nvotes = 11"),
            "classes.votes is 11, but must be at least 1 and at most classes.of_last"
        );
        assert_eq!(
            told("[placement]\nleast_cpu_share = 90"),
            "placement.least_cpu_share is 90, but must be a share of a CPU, from 0 to 1"
        );
        assert_eq!(
            told("[paging]\nwindow_pages = 0"),
            "paging.window_pages is 0, but must be from 1 to 16777216"
        );
        assert_eq!(
            told("[paging]\nwindow_pages = 9223372036854775807"),
            "paging.window_pages is 9223372036854775807, but must be from 1 to 16777216"
        );
        assert_eq!(
            told("[penalty]\nprograms = { mcf = 0.9 }"),
            "penalty.programs is mcf = 0.9, but must give every program a NUMA penalty of 1 or more"
        );
        assert_eq!(
            told("[n_mass]\nthreshold = nan"),
            "n_mass.threshold is NaN, but must be a miss rate of 0 or more"
        );
        assert_eq!(
            told("[brm]\nforget_after_least_ms = 40000"),
            "brm.forget_after_most_ms is 30000, but must be at least brm.forget_after_least_ms and \
             at most 86400000, a day"
        );
        assert_eq!(
            told("[brm]\nleast_change = -0.1"),
            "brm.least_change is -0.1, but must be a share of an uncore penalty, 0 or more"
        );
        assert_eq!(
            told("[brm]\nrequests_per_s = inf"),
            "brm.requests_per_s is inf, but must be a number of requests per second, 0 or more"
        );
        assert!(told("[brm]\ncandidates = \"some\"").contains("unknown variant `some`"));
        assert_eq!(
            told("[oracle]\nlayouts = 0"),
            "oracle.layouts is 0, but must be at least 1"
        );
        assert_eq!(
            told("[classes]\ndevil_from = 60\npreset = \"clavis\""),
            "classes.super_devil_above is 50, but must be at least classes.devil_from"
        );
    }
}
