//! What a redraw of `top` costs at 5,000 threads of 625 processes: a new snapshot is folded, rows are
//! sorted anew, and a frame is drawn into a buffer. The target is 16 ms.
//!
//! Compared in the same run, on the same snapshots: reading the snapshot's line from JSON, which whoever
//! shows a ledger pays before anything else; and ratatui's own table filled with all rows of the same
//! cells, of which it shows those that fit: what one would write first.
//!
//! Printed besides: for each view and sort the least, the median and the longest of some redraws, and
//! the ratios.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::Criterion;
use numaherd_herd::{Line, Record};
use numaherd_show::top::{Key, Look, Tab, Timeline, Top};
use numaherd_testing::ledger::{first_line, start};
use numaherd_testing::seen::{SECOND_NS, empty, process_on, thread_on};
use numaherd_topology::{Machine, Topology};
use numaherd_world::{Counts, Snapshot, Thread};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Constraint, Rect};
use ratatui_core::widgets::StatefulWidget;
use ratatui_widgets::table::{Row, Table, TableState};

const THREADS: u32 = 5_000;
const OF_A_PROCESS: u32 = 8;
/// The lowest number of a thread.
const FIRST: u32 = 4000;
const SCREEN: Rect = Rect::new(0, 0, 200, 60);
const TIMES: usize = 100;
const TARGET_MS: f64 = 16.0;

fn main() {
    let machine = Machine::preset("xeon-e5620-2s").expect("a preset");
    let topology = machine.topology().expect("a machine");
    // Two snapshots in turn, in which every figure differs.
    let lines = [0, 1].map(|second| Arc::new(snapshot(&topology, second)));
    let texts = lines
        .each_ref()
        .map(|line| serde_json::to_vec(&**line).expect("a line"));
    let mut criterion = Criterion::default().sample_size(20).configure_from_args();
    let mut group = criterion.benchmark_group(format!("a redraw of {THREADS} threads"));
    let mut redraw = redraw(&topology, &lines, Tab::Threads, "CPU%");
    group.bench_function("top", |bench| bench.iter(&mut redraw));
    let mut turn = 0;
    let mut read = || {
        turn += 1;
        Line::read(&texts[turn % 2]).expect("a line")
    };
    group.bench_function("reading the line", |bench| bench.iter(&mut read));
    let mut turn = 0;
    let mut table = || {
        turn += 1;
        whole_table(&lines[turn % 2])
    };
    group.bench_function("ratatui's table of all rows", |bench| {
        bench.iter(&mut table);
    });
    group.finish();
    criterion.final_summary();

    let reading = times(read);
    let tabled = times(table);
    println!(
        "\n{THREADS} threads on {}x{}: ms, least, median, longest of {TIMES}",
        SCREEN.width, SCREEN.height
    );
    let say = |what: &str, times: &[Duration]| {
        let [least, median, most] = [0, TIMES / 2, TIMES - 1].map(|at| ms(times[at]));
        println!("{what:<28} {least:>7.2} {median:>7.2} {most:>7.2}");
        median
    };
    let reading = say("reading the line", &reading);
    let tabled = say("ratatui's table of all rows", &tabled);
    let mut worst = 0.0f64;
    for (tab, columns) in [
        (
            Tab::Threads,
            &["TID", "NAME", "CLASS", "CPU%", "LAST MOVE", "WHY"][..],
        ),
        (Tab::Processes, &["NAME", "CPU%", "PAGES"][..]),
        (Tab::Heat, &[""][..]),
        (Tab::Decisions, &[""][..]),
    ] {
        for column in columns {
            let times = times(self::redraw(&topology, &lines, tab, column));
            worst = worst.max(say(&format!("top, {} by {column}", tab.title()), &times));
        }
    }
    println!(
        "top's slowest view: {worst:.2} ms of {TARGET_MS} ms; / reading the line {:.2}; / ratatui's table {:.2}",
        worst / reading,
        worst / tabled
    );
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// How long some work takes each time, ascending.
fn times<T>(mut work: impl FnMut() -> T) -> Vec<Duration> {
    let each = (0..TIMES).map(|_| {
        let began = Instant::now();
        std::hint::black_box(work());
        began.elapsed()
    });
    let mut times: Vec<Duration> = each.collect();
    times.sort_unstable();
    times
}

/// A redraw: the next snapshot comes, and a frame is drawn.
fn redraw<'l>(
    topology: &Topology,
    lines: &'l [Arc<Line>; 2],
    tab: Tab,
    column: &str,
) -> impl FnMut() + 'l {
    let mut top = Top::new(Timeline::new(), "the bench", Look::default()).growing();
    let begins = first_line(Record::Start(start(topology, "dino")));
    top.take(&Arc::new(begins));
    top.show_tab(tab);
    top.sort_by_title(column);
    let mut buffer = Buffer::empty(SCREEN);
    let mut turn = 0;
    move || {
        turn += 1;
        top.take(&lines[turn % 2]);
        // As if someone went down the rows meanwhile.
        top.key(Key::Down);
        buffer.reset();
        top.prepare(SCREEN.width, SCREEN.height, &mut |_| None);
        top.draw(&mut buffer);
        std::hint::black_box(&buffer);
    }
}

/// All threads as rows of text, sorted, in ratatui's table.
fn whole_table(line: &Line) -> Buffer {
    let Record::Snapshot(snapshot) = &line.record else {
        panic!("a snapshot")
    };
    let mut threads: Vec<&Thread> = snapshot.threads.iter().collect();
    threads.sort_by(|a, b| b.cpu_share.total_cmp(&a.cpu_share));
    let rows = threads.iter().map(|thread| {
        let process = snapshot.process(thread.process);
        let counts = thread.counts.unwrap_or_default();
        Row::new([
            thread.id.tid.to_string(),
            thread.name.clone(),
            process.map_or(String::new(), |process| process.name.clone()),
            format!("{:.0}", thread.cpu_share * 100.0),
            format!("{:.0}", thread.wait_share * 100.0),
            thread.cpu.to_string(),
            format!("{:.1}", counts.miss_rate().unwrap_or(0.0)),
            format!("{:.0}%", counts.local_access_ratio().unwrap_or(0.0) * 100.0),
        ])
    });
    let widths = [7, 15, 15, 5, 5, 4, 5, 5].map(Constraint::Length);
    let mut buffer = Buffer::empty(SCREEN);
    let mut state = TableState::default();
    StatefulWidget::render(Table::new(rows, widths), SCREEN, &mut buffer, &mut state);
    buffer
}

fn snapshot(topology: &Topology, second: u64) -> Line {
    let cpus = Arc::new(topology.online_cpus());
    let nodes = Arc::new(topology.memory_nodes());
    let process_of = |number: u32| FIRST + number / OF_A_PROCESS * OF_A_PROCESS;
    let thread = |number: u32| {
        let wave = (second + 1) * 7919 * u64::from(number + 1) % 1_000_003;
        let lines = 1_000 + wave * 9;
        let near = lines / 100 * (wave % 100);
        let cpu = (number + wave as u32) % cpus.len() as u32;
        Thread {
            name: format!("worker-{number}"),
            cpu_share: (wave % 1000) as f64 / 1000.0,
            wait_share: (wave % 77) as f64 / 770.0,
            counts: Some(Counts {
                instructions: 120_000_000 + wave,
                lines,
                local: Some(near),
                remote: Some(lines - near),
                counted_share: 1.0,
                ..Counts::default()
            }),
            ..thread_on(FIRST + number, process_of(number), cpu, &cpus)
        }
    };
    let process = |number: u32| {
        let pages = [(0, 10_000 + second), (1, u64::from(number))];
        process_on(
            process_of(number),
            &format!("crew-{number}"),
            &pages,
            &nodes,
        )
    };
    let time_ns = (second + 1) * SECOND_NS;
    let processes = (0..THREADS).step_by(OF_A_PROCESS as usize);
    let snapshot = Snapshot {
        sequence: second,
        time_ns,
        threads: (0..THREADS).map(thread).collect(),
        processes: processes.map(process).collect(),
        ..empty(topology)
    };
    Line {
        sequence: second + 1,
        time_ns,
        record: Record::Snapshot(snapshot),
    }
}
