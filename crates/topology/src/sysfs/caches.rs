//! Caches: sysfs shows each once per CPU that shares it; it is kept once.

use std::collections::HashSet;

use numaherd_quantity::parse_bytes;

use super::tree::Tree;
use crate::error::ReadError;
use crate::id::CpuId;
use crate::set::CpuSet;
use crate::topology::{Cache, CacheKind};

const CPU: &str = "sys/devices/system/cpu";

pub(super) fn read(tree: &Tree<'_>, online: &CpuSet) -> Result<Vec<Cache>, ReadError> {
    let mut caches = Vec::new();
    let mut seen: HashSet<(u8, CacheKind, String)> = HashSet::new();
    for cpu in online.iter() {
        let directory = format!("{CPU}/cpu{cpu}/cache");
        for index in tree.numbered(&directory, "index") {
            let directory = format!("{directory}/index{index}");
            let Some(level) = level(tree, &directory)? else {
                continue;
            };
            let Some(kind) = kind(tree, &directory)? else {
                continue;
            };
            let cpus = shared_by(tree, &directory, cpu)?;
            if seen.insert((level, kind, cpus.to_string())) {
                caches.push(Cache {
                    level,
                    kind,
                    size_bytes: size(tree, &format!("{directory}/size"))?,
                    line_bytes: tree.number(&format!("{directory}/coherency_line_size"))?,
                    ways: tree.number(&format!("{directory}/ways_of_associativity"))?,
                    cpus,
                });
            }
        }
    }
    Ok(caches)
}

fn level(tree: &Tree<'_>, directory: &str) -> Result<Option<u8>, ReadError> {
    let file = format!("{directory}/level");
    match tree.number(&file)? {
        Some(0) => Err(tree.wrong(&file, "0", "levels count from 1")),
        level => Ok(level),
    }
}

fn kind(tree: &Tree<'_>, directory: &str) -> Result<Option<CacheKind>, ReadError> {
    let file = format!("{directory}/type");
    let Some(text) = tree.text(&file)? else {
        return Ok(None);
    };
    match text.trim() {
        "Data" => Ok(Some(CacheKind::Data)),
        "Instruction" => Ok(Some(CacheKind::Instruction)),
        "Unified" => Ok(Some(CacheKind::Unified)),
        _ => Err(tree.wrong(&file, &text, "a cache is Data, Instruction or Unified")),
    }
}

fn shared_by(tree: &Tree<'_>, directory: &str, cpu: CpuId) -> Result<CpuSet, ReadError> {
    let file = format!("{directory}/shared_cpu_list");
    match tree.list::<CpuId>(&file)? {
        None => Ok([cpu].into_iter().collect()),
        Some(cpus) if cpus.contains(cpu) => Ok(cpus),
        Some(cpus) => {
            let why = format!("CPU {cpu} does not share its own cache");
            Err(tree.wrong(&file, &cpus.to_string(), why))
        }
    }
}

/// A size such as `32K`, as the kernel prints it, or with M or G.
fn size(tree: &Tree<'_>, file: &str) -> Result<Option<u64>, ReadError> {
    let Some(text) = tree.text(file)? else {
        return Ok(None);
    };
    match parse_bytes(&text, 1) {
        Ok(0) => Err(tree.wrong(file, &text, "a cache cannot be empty")),
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) => Err(tree.wrong(file, &text, "it is not a size such as 32K")),
    }
}
