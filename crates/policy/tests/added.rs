//! A policy is added by one file, wherever that file lies: tried as a stranger would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A program outside the tree that lists the policies and what they need, one a line.
fn stranger() -> PathBuf {
    // Kept between runs, so that only what changed is built again.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stranger");
    fs::create_dir_all(folder.join("src")).expect("the target directory can be written");
    let manifest = format!(
        "[package]\nname = \"stranger\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [profile.dev]\ndebug = false\n\n[dependencies]\n\
         numaherd-policy.path = {:?}\nnumaherd-files.path = {:?}\n",
        crate_folder(),
        crate_folder().join("../files")
    );
    let main = "use numaherd_policy::registry::{needs, POLICIES};\nuse numaherd_policy::Settings;\n\n\
                fn main() {\n    \
                for policy in POLICIES.iter() {\n        \
                println!(\"{}: {:?}\", policy.name, needs(policy.name).unwrap());\n    }\n    \
                let section = <Settings as numaherd_files::setting::Value>::KIND.section().unwrap();\n    \
                for (name, key) in section.keys().iter().filter(|key| key.0.starts_with(\"mine.\")) {\n        \
                println!(\"= {name}: {} ({})\", key.what, key.wanted());\n    }\n    \
                for text in [\"[mine]\\nleast = 0.25\", \"[mine]\\nleast = 2\", \"[mine]\\nleats = 1\"] {\n        \
                match Settings::parse(text) {\n            \
                Ok(settings) => println!(\"= {}\", numaherd_policy::added::mine::least(&settings)),\n            \
                Err(error) => println!(\"= {error}\"),\n        }\n    }\n}\n";
    fs::write(folder.join("Cargo.toml"), manifest).expect("can be written");
    fs::write(folder.join("src/main.rs"), main).expect("can be written");
    // The same versions of everything, so that nothing has to be fetched.
    fs::copy(
        crate_folder().join("../../Cargo.lock"),
        folder.join("Cargo.lock"),
    )
    .expect("a lock");
    folder
}

/// What somebody's file says about its own settings.
const SETTINGS: &str = "
numaherd_files::settings! {
    /// What can be set about mine.
    pub struct MineSettings {
        /// The least share that counts.
        least: f64 = 0.5, unit: \"share\", range: 0.0..=1.0, source: \"chosen here\";
    }
}

/// What is set.
pub fn least(settings: &crate::Settings) -> f64 {
    settings.added.of::<MineSettings>(\"mine\").least
}
";

fn run(stranger: &Path, policies: &Path) -> Output {
    Command::new(env!("CARGO"))
        .args(["run", "--offline", "--quiet"])
        .current_dir(stranger)
        .env("CARGO_TARGET_DIR", stranger.join("target"))
        .env("NUMAHERD_POLICIES", policies)
        .output()
        .expect("cargo can be run")
}

#[test]
fn a_file_in_a_folder_of_ones_own_is_a_policy_beside_the_others() {
    let stranger = stranger();
    let policies = stranger.join("policies");
    let _ = fs::remove_dir_all(&policies);
    fs::create_dir(&policies).expect("can be made");
    let example =
        fs::read_to_string(crate_folder().join("src/added/homeward.rs")).expect("is here");

    let own = "settings: &[crate::added::AddedTable::of::<MineSettings>(\"mine\")]";
    let example = example
        .replace("..Added::NOTHING", &format!("{own}, ..Added::NOTHING"))
        .replace("#[cfg(test)]", &format!("{SETTINGS}\n#[cfg(test)]"));

    // Under the name that it has already, it is refused before anything runs.
    fs::write(policies.join("mine.rs"), &example).expect("can be written");
    let refused = run(&stranger, &policies);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(
        told.contains("two policies, placements or pagings have one name"),
        "{told}"
    );

    // Under a name of its own it is there, with settings of its own, and everything else is as it was.
    fs::write(
        policies.join("mine.rs"),
        example.replace("homeward", "mine"),
    )
    .expect("can be written");
    let listed = run(&stranger, &policies);
    let told = String::from_utf8_lossy(&listed.stderr).into_owned();
    assert!(listed.status.success(), "{told}");
    let listed = String::from_utf8(listed.stdout).expect("names are UTF-8");
    let settings: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("= "))
        .collect();
    assert_eq!(
        settings,
        [
            "mine.least: The least share that counts. (a number from 0 to 1)",
            "0.25",
            "the settings of policies:2: mine.least: must be a number from 0 to 1, not 2",
            "the settings of policies:2: mine.leats: unknown key; did you mean `least`?",
        ]
    );
    let without: Vec<&str> = listed
        .lines()
        .filter(|line| !line.starts_with("= "))
        .filter(|line| !line.starts_with("mine: "))
        .collect();
    let ours = numaherd_policy::registry::POLICIES
        .iter()
        .map(|policy| policy.name);
    let names = without.iter().filter_map(|line| line.split_once(':'));
    assert!(names.map(|(name, _)| name).eq(ours), "{listed}");
    assert!(listed.contains("\nmine: [CpuUse, Residency]\n"), "{listed}");
}

/// `cargo fmt` follows `mod` lines only, and these files have none.
#[test]
fn added_policies_are_formatted() {
    let entries = fs::read_dir(crate_folder().join("src/added")).expect("a folder");
    for entry in entries {
        let file = entry.expect("can be listed").path();
        let checked = Command::new("rustfmt")
            .args(["--check", "--edition", "2024"])
            .arg(&file)
            .output()
            .expect("rustfmt can be run");
        assert!(
            checked.status.success(),
            "run: rustfmt --edition 2024 {}",
            file.display()
        );
    }
}
