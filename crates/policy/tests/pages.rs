//! The page on policies in `docs/` is what the registry says.

use std::path::Path;

#[test]
fn the_page_on_policies_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies.md");
    let page = numaherd_policy::pages::policies();
    if std::env::var_os("NUMAHERD_RENEW").is_some() {
        std::fs::write(&path, &page).expect("docs/policies.md can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/policies.md is stale: run NUMAHERD_RENEW=1 cargo test -p numaherd-policy --test pages"
    );
}

#[test]
fn every_setting_is_on_the_page() {
    let all = "[classes]\npreset = \"paper\"\ndevil_from = 2.0\nsuper_devil_above = 100.0\n\
               votes = 7\nof_last = 10\n";
    let settings = numaherd_policy::Settings::parse(all).expect("these are the defaults");
    let written = toml::Value::try_from(&settings).expect("settings are plain TOML");
    let page = numaherd_policy::pages::policies();
    for (section, keys) in written.as_table().expect("settings are a table") {
        for key in keys.as_table().expect("sections are tables").keys() {
            assert!(
                page.contains(&format!("`{section}.{key}`")),
                "{section}.{key}"
            );
        }
    }
}
