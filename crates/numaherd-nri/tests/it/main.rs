//! The plugin with runtimes over real sockets, and its packaging for Kubernetes.

mod chart;
mod runtimes;
