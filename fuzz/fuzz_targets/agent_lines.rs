//! What the agent in a guest sends to the host.
//!
//! Holds: no bytes make the host panic; what it believes goes beyond neither the machine's vCPUs nor
//! the guest's own word; where the stream is cut makes no difference; a line that was believed can be
//! written, and reads back the same.
//!
//! Reader: crates/host/src/agent/hearing.rs crates/host/src/agent/protocol.rs
#![cfg_attr(feature = "fuzz", no_main)]

use std::time::Duration;

use numaherd_host::agent::protocol;
use numaherd_world::Agent;

use numaherd_host::agent::hearing::Hearing;

numaherd_fuzz::target!(|input: (u8, u8, &[u8])| {
    let (vcpus, cut, stream) = input;
    let known = u32::from(vcpus);
    let now = Duration::from_secs(1);
    let new = || {
        let mut hearing = Hearing::default();
        hearing.set_vcpus(known);
        hearing.connected();
        hearing
    };
    let (mut whole, mut pieces) = (new(), new());
    let all = whole.hear(stream, now);
    let one_by_one = stream
        .chunks(usize::from(cut).max(1))
        .try_for_each(|piece| pieces.hear(piece, now));
    assert_eq!(all, one_by_one);
    assert_eq!(whole.state(now), pieces.state(now));

    let (agent, told) = whole.state(now);
    assert_eq!(agent == Agent::Distrusted, all.is_err());
    assert_eq!(agent == Agent::Telling, told.is_some());
    if let Some(told) = told {
        assert!(told.vcpus <= known);
        assert!(told.tagged.iter().all(|&index| index < told.vcpus));
        let framed = protocol::write(7, told);
        let read = protocol::read(framed.trim_ascii(), known, Some(6));
        assert_eq!(read, Ok((7, told.clone())));
    }
});
