//! How a machine samples memory accesses: the lab's PMU, Intel's load latency (PEBS), AMD's
//! instruction sampling (IBS), in the form that this program may open.

use std::os::fd::{AsFd, OwnedFd};

use numaherd_topology::CpuId;

use crate::files::Root;
use crate::kernel::{Attribute, Errno, Kernel, flag};
use crate::options::SampleOptions;
use crate::perf_errors::{Reasons, Refusal};
use crate::pmu::Pmu;
use crate::records::Layout;

/// How this machine samples.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    /// By what, for people.
    pub(crate) source: String,
    pub(crate) caveat: Option<String>,
    /// An event that must lead the group (Sapphire Rapids), if any.
    leader: Option<Attribute>,
    attribute: Attribute,
    pub(super) layout: Layout,
    /// Whether there is a ring per CPU, not per thread.
    pub(super) per_cpu: bool,
}

/// Finds how this machine samples, and tries it.
///
/// # Errors
/// Why it cannot.
pub(crate) fn choose(
    kernel: &dyn Kernel,
    root: &Root,
    options: &SampleOptions,
    reasons: &Reasons,
    a_cpu: CpuId,
) -> Result<Recipe, Refusal> {
    if !options.enabled {
        return Err(Refusal::new("sampling is switched off", "switch it on"));
    }
    let recipe = describe(root, options)?;
    let mut last = Errno::NOENT;
    for per_cpu in [true, false] {
        for physical in [true, false] {
            for weight_parts in [true, false] {
                let recipe = Recipe {
                    per_cpu,
                    layout: Layout {
                        weight_parts,
                        physical,
                    },
                    ..recipe.clone()
                };
                let (tid, cpu) = match per_cpu {
                    true => (None, Some(a_cpu.0)),
                    false => (Some(0), None),
                };
                match recipe.open(kernel, tid, cpu) {
                    Ok(_) => return Ok(recipe.explained()),
                    Err(errno) => last = errno,
                }
            }
        }
    }
    Err(reasons.counters(&recipe.source, last))
}

/// What this machine's PMUs offer.
fn describe(root: &Root, options: &SampleOptions) -> Result<Recipe, Refusal> {
    let recipe = |source: &str, attribute| Recipe::new(source, attribute, options);
    let lab = Pmu::find(root, "lab").and_then(|pmu| pmu.event("llc_miss"));
    if let Some(attribute) = lab {
        return Ok(recipe("lab/llc_miss/", attribute));
    }
    for name in ["cpu", "cpu_core"] {
        let Some(pmu) = Pmu::find(root, name) else {
            continue;
        };
        if let Some(mut attribute) = pmu.event("mem-loads") {
            pmu.set(&mut attribute, "ldlat", options.least_latency);
            attribute.flags |= flag::PRECISE_2 | flag::EXCLUDE_GUEST;
            let label = format!("{name}/mem-loads,ldlat={}/", options.least_latency);
            return Ok(Recipe {
                caveat: Some("loads only: no stores".to_owned()),
                leader: pmu.event("mem-loads-aux"),
                ..recipe(&label, attribute)
            });
        }
    }
    if let Some(pmu) = Pmu::find(root, "ibs_op") {
        let mut attribute = Attribute {
            kind: pmu.kind,
            ..Attribute::default()
        };
        // Count operations, not cycles, so that samples follow the work; and, if the processor can
        // filter (Zen 4), only those that missed the last-level cache.
        pmu.set(&mut attribute, "cnt_ctl", 1);
        let only_misses = pmu.set(&mut attribute, "l3missonly", 1).is_some();
        let label = match only_misses {
            true => "ibs_op/cnt_ctl,l3missonly/",
            false => "ibs_op/cnt_ctl/",
        };
        let mut recipe = recipe(label, attribute);
        // The hardware counts in steps of 16.
        recipe.attribute.sample_period = options.period.next_multiple_of(16);
        return Ok(recipe);
    }
    let names = Pmu::names(root);
    if names.iter().any(|name| name.starts_with("arm_spe")) {
        return Err(Refusal::new(
            "this processor samples with Arm SPE, which this version does not decode",
            "use kernel hint faults (a policy that needs no samples), or another machine",
        ));
    }
    let names = match names.is_empty() {
        true => "it has none".to_owned(),
        false => names.join(", "),
    };
    Err(Refusal::new(
        format!("none of the machine's PMUs can sample memory accesses ({names})"),
        "needs Intel PEBS (mem-loads) or AMD IBS, which virtual machines seldom have; or the lab",
    ))
}

impl Recipe {
    pub(super) fn new(source: &str, attribute: Attribute, options: &SampleOptions) -> Self {
        Self {
            source: source.to_owned(),
            caveat: None,
            leader: None,
            attribute: Attribute {
                sample_period: options.period,
                ..attribute
            },
            layout: Layout {
                weight_parts: true,
                physical: true,
            },
            per_cpu: true,
        }
    }

    /// The attribute with all fields set.
    fn complete(&self) -> Attribute {
        const CLOCK_MONOTONIC: i32 = 1;
        Attribute {
            sample_type: self.layout.sample_type(),
            clock_id: CLOCK_MONOTONIC,
            flags: self.attribute.flags | flag::USE_CLOCK_ID,
            ..self.attribute
        }
    }

    /// Adds to the caveat what this machine's permissions rule out.
    fn explained(mut self) -> Self {
        let mut caveats: Vec<&str> = self.caveat.as_deref().into_iter().collect();
        if !self.per_cpu {
            caveats.push(
                "one ring per thread, because sampling whole CPUs is not permitted (CAP_PERFMON); \
                 with many threads, the rings take turns",
            );
        }
        if !self.layout.physical {
            caveats.push("without physical addresses, so the page's node is seldom known");
        }
        self.caveat = (!caveats.is_empty()).then(|| caveats.join("; "));
        self
    }

    /// Opens the event, after the leader that must stay open if it needs one.
    pub(super) fn open(
        &self,
        kernel: &dyn Kernel,
        tid: Option<u32>,
        cpu: Option<u32>,
    ) -> Result<(Option<OwnedFd>, OwnedFd), Errno> {
        let leader = self.leader.as_ref();
        let leader = leader.map(|attribute| kernel.open(attribute, tid, cpu, None));
        let leader = leader.transpose()?;
        let event = kernel.open(&self.complete(), tid, cpu, leader.as_ref().map(AsFd::as_fd))?;
        Ok((leader, event))
    }
}
