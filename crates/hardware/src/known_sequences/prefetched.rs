//! Accesses that wait for lines that the prefetcher has requested.

use super::*;

#[test]
fn an_access_that_waits_for_a_prefetched_line_says_from_which_node() {
    let waited = |gb_per_s: f64| {
        let machine = machine(Config {
            prefetch: Some(Prefetch {
                streams: 16,
                depth_lines: 16,
            }),
            controller_gb_per_s: vec![gb_per_s; 4],
            ..config()
        });
        let mut program = Program::on(&machine, 0);
        program.gap = 2;
        let lines = (NODE_BYTES..NODE_BYTES + (1 << 20)).step_by(8);
        let fetches = lines.filter_map(|address| program.load(address)?.fetch);
        let late: Vec<_> = fetches.filter(|fetch| fetch.prefetched).collect();
        assert!(late.iter().all(|fetch| fetch.node == 1 && fetch.remote));
        late.len()
    };
    let lines = (1 << 20) / 64;
    assert!(waited(1.6) > lines * 3 / 4, "{}", waited(1.6));
    assert!(waited(64.0) < lines / 4, "{}", waited(64.0));
}
