//! The worked example of docs/researchers.md, run as the guide runs it: on the model, beside the kernel and
//! another policy, by its name alone.

use std::process::Command;

use serde_json::Value;

#[test]
fn homeward_runs_on_the_model_beside_linux_and_dino() {
    let output = Command::new(env!("CARGO_BIN_EXE_numaherd-lab"))
        .args(["simulate", "memory-on-one-node", "--repeat", "1"])
        .args(["--policies", "linux,homeward,dino", "--json", "-"])
        .output()
        .expect("the program can be started");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("--json prints JSON");
    let policies = report["policies"].as_array().expect("a list of policies");
    let local: Vec<(&str, f64)> = policies
        .iter()
        .map(|policy| {
            let name = policy["policy"].as_str();
            let ratio = policy["local_access_ratio"].as_f64();
            (
                name.expect("it has a name"),
                ratio.expect("the model knows it"),
            )
        })
        .collect();
    let names: Vec<&str> = local.iter().map(|&(name, _)| name).collect();
    assert_eq!(names, ["linux", "homeward", "dino"]);
    // What it is for: nearly all accesses are local, where the kernel leaves about half remote.
    assert!(local[0].1 < 0.9 && local[1].1 > 0.95, "{local:?}");
}
