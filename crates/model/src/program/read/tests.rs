//! What a file of profiles says, and what is refused, where and why.

use super::*;

const EXAMPLE: &str = r#"source = "my own choice"
[[program]]
name = "stream"
about = "reads an array"
footprint_mib = 64
threads = 2
hot_pages = 0.25
hot_accesses = 0.5
shared_accesses = 0.5
[[program.phase]]
instructions = 2e9
cycles_per_instruction = 0.5
cache_accesses = 20
lines = [[1, 16.0], [4.0, 4]]
misses_in_flight = 10
busy = 0.5
sleep_ms = 2.5
"#;

#[test]
fn a_profile_is_read_as_it_is_written() {
    let programs = programs(EXAMPLE, Path::new("my.toml")).unwrap();
    let [program] = &programs[..] else {
        panic!("one program, not {}", programs.len());
    };
    assert_eq!(program.name, "stream");
    assert_eq!(program.source, "my own choice");
    assert_eq!(program.threads, 2);
    assert_eq!(program.footprint_bytes, 64 << 20);
    let hot = Hot {
        pages: 0.25,
        accesses: 0.5,
    };
    assert_eq!(program.hot, Some(hot));
    assert_eq!(
        (program.shared_accesses, program.shared_written),
        (0.5, 0.0)
    );
    assert!(!program.repeat);
    assert_eq!(program.instructions(), 2e9);
    let phase = &program.phases[0];
    assert_eq!(phase.lines.at(0.0), 20.0);
    assert!((phase.lines.at(2.0 * MIB) - 10.0).abs() < 1e-12);
    assert_eq!((phase.busy, phase.sleep_ns), (0.5, 2.5e6));
    assert_eq!(
        (phase.misses_in_flight, phase.written_per_line),
        (10.0, 0.0)
    );
}
