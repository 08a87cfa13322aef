//! Boots a guest without a model and runs one command in it: `boot NODES CORES CMD...`.

use numaherd_lab::{Command, Ending, Guest, KernelFiles, Options, Shape, Stream};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let mut number = || {
        words
            .next()
            .and_then(|w| w.to_str()?.parse::<u32>().ok())
            .ok_or("number")
    };
    let (nodes, cores) = (number()?, number()?);
    let shape = Shape::uniform(nodes as usize, cores, 512);
    let guest = Guest::start(&Options::new(shape, KernelFiles::find(None)?))?;
    eprintln!("Linux {} is up", guest.kernel());
    let ending = guest.stream(&Command::inherited(words)?, None, |stream, bytes| {
        let _ = match stream {
            Stream::Stdout => std::io::stdout().write_all(bytes),
            Stream::Stderr => std::io::stderr().write_all(bytes),
        };
    })?;
    guest.stop()?;
    match ending {
        Ending::Exited(code) => std::process::exit(code),
        Ending::Killed(signal) => std::process::exit(128 + signal),
    }
}
