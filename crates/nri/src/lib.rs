//! Plugins of the Node Resource Interface (NRI), which containerd and CRI-O offer: a plugin sees every pod and
//! container of a machine as they come and go. NRI lets plugins adjust containers; plugins written with this crate only
//! watch.
//!
//! | layer | module | what it does |
//! |---|---|---|
//! | multiplexer | [`mux`] | carries two connections over one unix socket |
//! | ttrpc | [`ttrpc`] | carries requests and their answers over one connection |
//! | messages | [`api`] | pods, containers, and what happens to them |
//! | session | [`Session`] | registers a [`Plugin`] with the runtime and hands it the runtime's requests |
//!
//! The plugin connects. It is the client of the runtime's service (it registers) and the server of the runtime's requests.
//! A runtime waits 2 s for an answer by default and starts no pod meanwhile, so a plugin should answer at once and work
//! afterwards.
//!
//! ```no_run
//! use nri::api::{ConfigureRequest, Container, Event, PodSandbox, StateChangeEvent};
//! use nri::{Events, Plugin, Refusal, Registration, Session};
//!
//! struct Watcher;
//!
//! impl Plugin for Watcher {
//!     fn configure(&mut self, runtime: ConfigureRequest) -> Result<Events, Refusal> {
//!         println!("{} {}", runtime.runtime_name, runtime.runtime_version);
//!         Ok(Events::of(&[Event::RunPodSandbox]))
//!     }
//!
//!     fn state_changed(&mut self, event: StateChangeEvent) -> Result<(), Refusal> {
//!         println!("{:?}: {}", event.event(), event.pod.unwrap_or_default().name);
//!         Ok(())
//!     }
//! }
//!
//! let socket = std::os::unix::net::UnixStream::connect(nri::SOCKET)?;
//! let mut session = Session::register(socket, &Registration::new("watcher", 10), &mut Watcher)?;
//! session.serve(&mut Watcher)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The peer is not trusted: whatever it sends is an [`Error`] at worst. Memory is allocated only as bytes arrive, never
//! because a length announces them, and the amount kept is bounded ([`ttrpc::MOST_DATA`], [`MOST_LISTED`]).
//!
//! Sources: `pkg/api/api.proto` (fields and their numbers as of NRI 0.8, which containerd 1.7.24 has; what is not read, and what
//! later versions added, is skipped) and `pkg/net/multiplex` of github.com/containerd/nri; `PROTOCOL.md` of github.com/containerd/ttrpc.
//!
//! Not here: plugins that the runtime itself starts with an open socket, and NRI before 0.2 (containerd 1.6), which
//! was another protocol.

pub mod api;
mod error;
pub mod mux;
mod plugin;
mod receiver;
mod service;
mod session;
pub mod ttrpc;

pub use error::Error;
pub use plugin::{Events, Plugin, Refusal};
pub use receiver::{Incoming, Receiver};
pub use service::MOST_LISTED;
pub use session::{Registration, Session, Trunk};

/// Where runtimes listen for plugins unless they are configured otherwise.
pub const SOCKET: &str = "/var/run/nri/nri.sock";
