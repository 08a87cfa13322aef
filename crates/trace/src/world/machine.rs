//! The machine that a trace is played on.

use std::sync::Arc;

use numaherd_hardware::{Config, Memory, Span};
use numaherd_topology::{Machine, Topology};

use crate::Error;

/// A machine: the part that policies see, and the part that is modelled.
///
/// Core `n` of the model is CPU number `n` in the order of [`Topology::cpus`]: each SMT sibling is a
/// core of its own. Nodes are known by their place in [`Topology::nodes`]. Figures of `config` may be
/// changed before use (TLB entries, page size...), its cores, domains and nodes may not.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// The part that policies see.
    pub topology: Arc<Topology>,
    /// The part that is modelled. A page of the page table has the size of a TLB's page, or 4 KiB without TLBs.
    pub config: Config,
}

impl Hardware {
    /// The machine of a machine file.
    ///
    /// # Errors
    /// [`Error::Hardware`] names what the file lacks; [`Error::Topology`] says how the topology contradicts itself.
    pub fn of(machine: &Machine) -> Result<Self, Error> {
        let mut config = Config::of(machine)?;
        let topology = machine.topology().map_err(|why| Error::Topology {
            machine: machine.name.clone(),
            why,
        })?;
        // The kernel may number SMT siblings far apart; the model numbers them next to each other.
        if let Some(smt) = &mut config.smt {
            let cpus = topology.cpus().iter();
            smt.core_of_thread = cpus.map(|cpu| cpu.core.index()).collect();
        }
        config.domain_of_core = topology
            .cpus()
            .iter()
            .map(|cpu| cpu.domain.index())
            .collect();
        let place = |node| topology.node_index(node).unwrap_or_default();
        config.node_of_domain = topology
            .domains()
            .iter()
            .map(|domain| place(domain.node))
            .collect();
        Ok(Self {
            topology: Arc::new(topology),
            config,
        })
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u64 {
        self.config.tlb.map_or(4096, |tlb| tlb.page_bytes)
    }

    /// Where each node's memory begins and ends, one node after the other.
    pub(super) fn spans(&self) -> Vec<Span> {
        let mut start = 0;
        let page = self.page_bytes();
        let span = |(node, part): (usize, &numaherd_topology::Node)| {
            let end = start + part.memory_bytes / page * page;
            let span = Span { start, end, node };
            // The next node begins on a page of any size.
            start = end.next_multiple_of(1 << 30);
            span
        };
        self.topology.nodes().iter().enumerate().map(span).collect()
    }

    /// The machine itself.
    pub(super) fn build(&self) -> Result<numaherd_hardware::Machine, Error> {
        let machine = || self.topology.name().to_owned();
        let model = (self.config.cores(), self.config.nodes());
        let topology = (self.topology.cpus().len(), self.topology.nodes().len());
        if model != topology {
            return Err(Error::Shape {
                machine: machine(),
                model,
                topology,
            });
        }
        let built = Memory::new(self.spans())
            .and_then(|memory| numaherd_hardware::Machine::new(self.config.clone(), memory));
        built.map_err(|why| Error::Machine {
            machine: machine(),
            why,
        })
    }
}
