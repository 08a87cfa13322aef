//! A QEMU monitor's side of a conversation, which may be anyone's: bytes that come in pieces.
//!
//! Holds: no bytes make the reader of messages or those of answers panic; no conversation takes more
//! time than it has, or takes in more than it may; nothing is said before a greeting came; vCPUs that
//! are read are in order, each once.
//!
//! Reader: crates/host/src/vm/qmp.rs crates/host/src/vm/answers.rs
#![cfg_attr(feature = "fuzz", no_main)]

use std::io;
use std::time::Duration;

use numaherd_host::vm::answers::{self, Backend, Name, Status};

use numaherd_host::vm::qmp::{Conversation, Limits, NoAnswer, Wire};

const LIMITS: Limits = Limits {
    time: Duration::from_secs(1),
    message_bytes: 2048,
    bytes: 8192,
};

/// The other side: its bytes, a piece and a few milliseconds at a time.
struct Side<'a> {
    bytes: &'a [u8],
    /// Milliseconds before and bytes of each piece in turn.
    pieces: &'a [(u8, u8)],
    turn: usize,
    now: Duration,
    said: usize,
    taken: usize,
}

impl Wire for &mut Side<'_> {
    fn now(&self) -> Duration {
        self.now
    }

    fn read(&mut self, buffer: &mut [u8], within: Duration) -> io::Result<usize> {
        assert!(!within.is_zero());
        let (ms, length) = match self.pieces {
            [] => (0, 255),
            pieces => pieces[self.turn % pieces.len()],
        };
        self.turn += 1;
        let wait = Duration::from_millis(ms.into());
        if wait >= within {
            self.now += within;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.now += wait;
        let length = usize::from(length)
            .max(1)
            .min(self.bytes.len())
            .min(buffer.len());
        buffer[..length].copy_from_slice(&self.bytes[..length]);
        self.bytes = &self.bytes[length..];
        self.taken += length;
        Ok(length)
    }

    fn write(&mut self, bytes: &[u8], _: Duration) -> io::Result<usize> {
        self.said += bytes.len();
        Ok(bytes.len())
    }
}

numaherd_fuzz::target!(|input: (Vec<(u8, u8)>, &[u8])| {
    let (pieces, bytes) = input;
    let mut side = Side {
        bytes,
        pieces: &pieces,
        turn: 0,
        now: Duration::ZERO,
        said: 0,
        taken: 0,
    };
    let heard = converse(&mut side);
    assert!(side.now <= LIMITS.time);
    assert!(side.taken <= LIMITS.bytes + 255);
    if !heard {
        assert_eq!(side.said, 0);
    }
});

/// Asks everything; whether there was a greeting.
fn converse(side: &mut Side<'_>) -> bool {
    let Ok(mut talk) = Conversation::begin(&mut *side, LIMITS) else {
        return side.said > 0;
    };
    let mut ask = |question: &str| match talk.ask(question) {
        Ok(answer) => Some(answer),
        Err(NoAnswer::Refused(_)) => Some(serde_json::Value::Null),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    };
    let mut answers = || {
        let cpus = answers::cpus(ask("query-cpus-fast")?);
        if let Ok(cpus) = cpus {
            assert!(!cpus.is_empty());
            assert!(cpus.windows(2).all(|two| two[0].index < two[1].index));
        }
        let bytes = answers::memory_bytes(ask("query-memory-size-summary")?);
        assert!(!matches!(bytes, Ok(0)));
        let _ = answers::plugged_bytes(ask("query-memory-devices")?);
        if let Ok(backends) = answers::read::<Vec<Backend>>(ask("query-memdev")?) {
            for backend in backends {
                let _ = (backend.id, backend.size, backend.share);
                let _ = (backend.host_nodes, backend.policy);
            }
        }
        let _ = answers::read::<Name>(ask("query-name")?);
        answers::read::<Status>(ask("query-status")?).ok()
    };
    let _ = answers();
    true
}
