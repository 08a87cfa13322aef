//! The form of a scenario's file: its tables and keys. [`read`](super::read) checks them.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Table;

use super::in_lab::{Better, Command};
use super::{Count, Limits};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub name: Option<String>,
    pub about: Option<String>,
    pub machine: Option<String>,
    pub measured_are: Option<String>,
    pub policies: Option<Policies>,
    pub repeat: Option<u32>,
    pub until: Option<UntilTable>,
    pub count: Option<Count>,
    #[serde(default)]
    pub governor: Limits,
    #[serde(default)]
    pub kernel_accesses: bool,
    #[serde(default)]
    pub settings: Table,
    #[serde(default)]
    pub herd: Table,
    #[serde(default)]
    pub model: Table,
    #[serde(default)]
    pub trace: Table,
    #[serde(default)]
    pub profiles: Vec<PathBuf>,
    #[serde(default, rename = "program")]
    pub programs: Vec<ProgramTable>,
}

/// The value of `policies`: names or, in a file with only a trace's settings, the policies' settings.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a list of policies")]
pub(super) enum Policies {
    Names(Vec<String>),
    Settings(Table),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UntilTable {
    pub completions: Option<u32>,
    pub seconds: Option<f64>,
    pub hours: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramTable {
    pub name: Option<String>,
    pub command: Option<Command>,
    pub setup: Option<Command>,
    pub user: Option<String>,
    pub waits: Option<bool>,
    pub ready: Option<ReadyTable>,
    pub measure: Option<MeasureTable>,
    pub profile: Option<String>,
    #[serde(default = "whole")]
    pub work: f64,
    #[serde(default = "once")]
    pub copies: u32,
    pub memory: Option<MemoryKey>,
    pub start_on: Option<String>,
    pub cpus: Option<String>,
    pub pinned: Option<String>,
    pub best_on: Option<String>,
    #[serde(default)]
    pub start_after_s: f64,
    pub measured: Option<bool>,
    #[serde(default)]
    pub gang: bool,
    #[serde(default)]
    pub stagger: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadyTable {
    pub port: Option<u16>,
    pub file: Option<String>,
    pub line: Option<String>,
    pub seconds: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MeasureTable {
    pub output: Option<String>,
    pub counter: Option<Command>,
    pub unit: Option<String>,
    pub better: Option<Better>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "give a node's number, \"first-touch\" or \"interleave\""
)]
pub(super) enum MemoryKey {
    Node(u32),
    Word(MemoryWord),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MemoryWord {
    FirstTouch,
    Interleave,
}

fn once() -> u32 {
    1
}

fn whole() -> f64 {
    1.0
}
