//! `/proc/cpuinfo`.
//!
//! Holds: no bytes make the reader panic, and what was read can be written and reads back the same.
//!
//! Reader: crates/host/src/proc/cpuinfo.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_host::proc::cpuinfo::{Processor, parse};

numaherd_fuzz::target!(|text: &[u8]| {
    let processor = parse(text);
    assert_eq!(parse(written(&processor).as_bytes()), processor);
});

fn written(processor: &Processor) -> String {
    let Processor {
        vendor,
        family,
        model,
        implementer,
        part,
        name,
        hypervisor,
    } = processor;
    let implementer = implementer.map(|code| format!("CPU implementer\t: {code:#x}\n"));
    let implementer = implementer.unwrap_or_default();
    let flags = if *hypervisor { "fpu hypervisor" } else { "fpu" };
    format!(
        "vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
         model name\t: {name}\nflags\t\t: {flags}\n{implementer}CPU part\t: {part:#x}\n"
    )
}
