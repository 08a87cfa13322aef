//! Tenants with threads, which a shell has not.

use std::io::Write;
use std::path::Path;
use std::thread;

/// Whether tenants still start threads and processes.
fn goes() -> bool {
    Path::new("go").exists()
}

fn rest() {
    loop {
        thread::park();
    }
}

/// Uses a processor for a while.
fn work(times: u32) {
    for _ in 0..times {
        if !goes() {
            return;
        }
    }
}

fn say() {
    // Nobody hears it any more once the storm is over.
    let _ = std::io::stdout().write_all(b"\n");
}

/// A process with memory of its own, of so many MiB, which it uses.
pub fn memory(mib: u32) {
    let mut own = vec![1_u8; (mib as usize) << 20];
    while goes() {
        for byte in own.iter_mut().step_by(64) {
            *byte = byte.wrapping_add(1);
        }
        std::hint::black_box(&own);
        say();
    }
    rest();
}

/// Threads that stay, that end, and that start others and end; at most so many stay.
pub fn threads(most: u32) {
    let busy = || {
        while goes() {
            work(200);
        }
    };
    thread::spawn(move || {
        busy();
        rest();
    });
    for n in 0.. {
        if !goes() {
            break;
        }
        work(200);
        if n < most {
            thread::spawn(|| {
                thread::spawn(|| work(100));
                thread::spawn(rest);
            });
            thread::spawn(rest);
        }
        say();
    }
    rest();
}
