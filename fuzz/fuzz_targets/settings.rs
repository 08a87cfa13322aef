//! Settings in TOML: of the policies and of the loop, the two halves of the configuration file.
//!
//! Holds: no text makes either reader or check panic; settings that were read can be written and
//! read back the same; settings that pass the check build every policy that needs no cost model, and give both intervals.
//!
//! Reader: crates/policy/src/settings.rs crates/herd/src/settings.rs crates/herd/src/settings
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_files::setting;
use numaherd_herd::Settings as HerdSettings;
use numaherd_policy::Settings as PolicySettings;
use numaherd_policy::registry::{self, Worlds};

numaherd_fuzz::changes_figures!();

numaherd_fuzz::target!(|text: &str| {
    match PolicySettings::parse(text) {
        Ok(settings) => {
            let written = toml::to_string(&settings).expect("settings can be written");
            let again = PolicySettings::parse(&written).expect("and read back");
            assert_eq!(again, settings);
            for entry in registry::POLICIES.iter() {
                let needs_cost_model = matches!(entry.worlds, Worlds::Simulated | Worlds::Model);
                let is_built = registry::build(entry.name, &settings).is_ok();
                assert_eq!(is_built, !needs_cost_model, "{}", entry.name);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(settings) = toml::from_str::<HerdSettings>(text) {
        let checked = setting::check(&settings);
        let _ = (settings.placement_interval(0), settings.paging_interval());
        let json = serde_json::to_string(&settings).expect("settings can be written");
        if checked.is_ok() {
            let again: HerdSettings = serde_json::from_str(&json).expect("and read back");
            assert_eq!(again, settings);
        }
    }
});
