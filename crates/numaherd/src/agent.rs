//! `numaherd agent`: tells the host, from inside a virtual machine, which vCPUs run threads that are
//! bound to some of them.

use anyhow::{Context, Result};
use numaherd_host::{AgentNews, AgentOptions, GuestAgent, GuestTags, Stop};
use numaherd_topology::CpuSet;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::Agent;
use crate::exit::coded;
use crate::run::service;
use crate::{print, privileges};

/// Reports to the host once, or until a signal ends it.
///
/// # Errors
/// There is no port to the host, or it cannot be opened; the message says how to give the machine one. With `--once`,
/// the host does not listen.
pub fn agent(options: &Agent) -> Result<()> {
    let mut agent_options = AgentOptions::default();
    agent_options.root.clone_from(&options.root);
    agent_options.port.clone_from(&options.port);
    if let Some(interval) = options.interval {
        agent_options.interval = interval;
    }
    let mut agent = GuestAgent::new(agent_options).map_err(coded)?;
    if options.once {
        let told = agent.once().map_err(coded)?;
        return print::out(&once_text(&told));
    }
    privileges::keep(privileges::LOOKING);
    stop_on_signals(agent.stop())?;
    // systemd or a script may be waiting for it.
    service::send(&[NotifyState::Ready]);
    agent.run(|news| print::say(news_text(news))).map_err(coded)
}

fn once_text(told: &GuestTags) -> String {
    let tagged: CpuSet = told.tagged.iter().map(|&cpu| cpu.into()).collect();
    let all = told.vcpus;
    if tagged.is_empty() {
        format!("Reported to the host: none of the {all} vCPUs runs bound threads.\n")
    } else {
        format!(
            "Told the host: of {all} vCPUs, {tagged} run threads that are bound to some of them.\n"
        )
    }
}

fn news_text(news: &AgentNews) -> String {
    match news {
        AgentNews::Heard => {
            "connected to the host; reporting which vCPUs run bound threads".to_owned()
        }
        AgentNews::NotHeard => {
            "nothing on the host listens (is `numaherd run` running there?); retrying every second"
                .to_owned()
        }
        AgentNews::PortLost { port, reason } => {
            format!(
                "lost the port {}: {reason}; trying each second",
                port.display()
            )
        }
    }
}

/// Has SIGINT and SIGTERM end the agent.
fn stop_on_signals(stop: Stop) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            stop.ask();
        }
    });
    Ok(())
}
