//! Numbers of a machine's parts, as distinct types, so that a core is never mistaken for a CPU.
//!
//! CPU, node and package numbers are the kernel's own (they may be sparse). Core and domain numbers
//! are dense indices that [`crate::Topology`] assigns in the order of each part's lowest CPU.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<u32> for $name {
            fn from(number: u32) -> Self {
                Self(number)
            }
        }

        impl From<$name> for u32 {
            fn from(id: $name) -> u32 {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id!(
    /// A logical CPU, as the kernel numbers it.
    CpuId
);
id!(
    /// A physical core: the CPUs that are SMT siblings. Dense, given out by [`crate::Topology`].
    CoreId
);
id!(
    /// A memory node, as the kernel numbers it; may be sparse.
    NodeId
);
id!(
    /// A memory domain. Dense, given out by [`crate::Topology`].
    DomainId
);
id!(
    /// A processor package (socket), as the kernel numbers it.
    PackageId
);
