//! What a user can set about policies: the tables.
//!
//! Each table is defined once ([`numaherd_files::settings!`]), beside the policy that uses it: what a key
//! does, its default, unit, range and source. Reading, checks, `numaherd config`, `docs/configuration.md`
//! and the pages on policies follow from that. How often a policy is asked is a setting of the loop that
//! asks it, not one of these.

use numaherd_files::setting::{self, Wrong};
use numaherd_files::{FileError, settings};

pub use crate::added::AddedSettings;
pub use crate::busy::PlacementSettings;
pub use crate::candidates::CandidatesBy;
pub use crate::classes::{ClassPreset, ClassSettings};
pub use crate::paging::by_use::ByUseSettings;
pub use crate::paging::counted::KmafSettings;
pub use crate::paging::guard::PagingSettings;
pub use crate::paging::tiered::TieredSettings;
pub use crate::penalty::PenaltySettings;
pub use crate::placement::adaptive::AdaptiveSettings;
pub use crate::placement::brm::{AverageOver, BrmSettings, Steps};
pub use crate::placement::di::DiSettings;
pub use crate::placement::n_mass::{MostMoved, NMassSettings};
pub use crate::placement::oracle::OracleSettings;
pub use crate::placement::sharing::{Evidence, IpmSettings, Mapper};
pub use crate::uncore::SystemPenaltyForm;

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
        /// In which pieces `by-use` moves memory.
        by_use: ByUseSettings;
        /// Which memory goes to nodes without CPUs.
        tiered: TieredSettings;
        /// When threads leave their home.
        n_mass: NMassSettings;
        /// What IPM decides from, and how it maps threads.
        ipm: IpmSettings;
        /// Which pages kMAF moves.
        kmaf: KmafSettings;
        /// Which threads BRM moves, and how it looks for better nodes.
        brm: BrmSettings;
        /// When it acts.
        adaptive: AdaptiveSettings;
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

    /// Looks for invalid settings.
    ///
    /// # Errors
    /// The first of them.
    pub fn check(&self) -> Result<(), Wrong> {
        setting::check(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::ClassRule;

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
