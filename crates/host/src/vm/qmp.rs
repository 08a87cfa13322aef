//! Talking to a QEMU monitor (QMP): JSON objects each way over a socket, one conversation at a time.
//!
//! The other side may be busy, broken or hostile. So a whole conversation has a limit in time, however
//! slowly bytes come; each message, and all together, have limits in bytes; nothing is said before the
//! other side has greeted as a monitor does; and an answer must belong to the last question. A message
//! ends where its JSON object ends, not at the end of a line: a pretty-printing monitor breaks lines
//! within it (docs/interop/qmp-spec.rst of QEMU).

use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Two ends of a socket, and a clock.
pub trait Wire {
    /// Now, on a clock that does not jump.
    fn now(&self) -> Duration;

    /// Waits for bytes, at most so long; 0 for the end.
    ///
    /// # Errors
    /// `WouldBlock` or `TimedOut` when none came; as `read(2)`.
    fn read(&mut self, buffer: &mut [u8], within: Duration) -> io::Result<usize>;

    /// Writes bytes, waiting at most so long; returns how many.
    ///
    /// # Errors
    /// As [`Wire::read`], as `write(2)`.
    fn write(&mut self, bytes: &[u8], within: Duration) -> io::Result<usize>;
}

/// What a conversation may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The whole time, from the greeting to the last answer.
    pub time: Duration,
    /// Bytes of one message.
    pub message_bytes: usize,
    /// Bytes of all messages.
    pub bytes: usize,
}

/// Why a monitor's answer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// It could not be connected to.
    #[error("{0}")]
    Unreachable(String),
    #[error(
        "it did not answer within {} ms: it is serving another program, or the virtual machine hangs",
        .0.as_millis()
    )]
    Silent(Duration),
    #[error("it closed the connection instead")]
    Closed,
    #[error("received more than {0} bytes, too much for an answer")]
    TooLong(usize),
    #[error("received something that is not QMP ({why}): {begin:?}")]
    NotQmp { why: String, begin: String },
    #[error("it refused: {0}")]
    Refused(String),
    #[error("{0}")]
    Io(io::Error),
    /// Its answer is false or makes no sense.
    #[error("{0}")]
    Impossible(String),
}

/// One message of the monitor.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message {
    #[serde(rename = "QMP")]
    greeting: Option<IgnoredAny>,
    event: Option<IgnoredAny>,
    id: Option<u64>,
    #[serde(rename = "return")]
    answer: Option<Value>,
    error: Option<Refusal>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    desc: String,
}

/// A conversation with a monitor that has greeted.
#[derive(Debug)]
pub struct Conversation<W> {
    incoming: BufReader<Incoming<W>>,
    /// The beginning of the message last read.
    begin: String,
    /// The number of the last question.
    asked: u64,
}

impl<W: Wire> Conversation<W> {
    /// Waits for the greeting and negotiates capabilities.
    ///
    /// # Errors
    /// [`NoAnswer`]; if the greeting did not come, nothing has been said.
    pub fn begin(wire: W, limits: Limits) -> Result<Self, NoAnswer> {
        let ends = wire.now().saturating_add(limits.time);
        let incoming = BufReader::new(Incoming {
            wire,
            limits,
            ends,
            bytes: 0,
        });
        let mut conversation = Self {
            incoming,
            begin: String::new(),
            asked: 0,
        };
        if conversation.message()?.greeting.is_none() {
            return Err(conversation.not_qmp("it did not greet"));
        }
        conversation.ask("qmp_capabilities")?;
        Ok(conversation)
    }

    /// Asks one question and waits for its answer.
    ///
    /// # Errors
    /// [`NoAnswer`]; after one other than [`NoAnswer::Refused`] nothing more can be asked.
    pub fn ask(&mut self, question: &str) -> Result<Value, NoAnswer> {
        self.asked += 1;
        let text = format!("{{\"execute\":\"{question}\",\"id\":{}}}\n", self.asked);
        self.incoming.get_mut().say(text.as_bytes())?;
        loop {
            let message = self.message()?;
            if message.event.is_some() {
                continue;
            }
            // Only what the monitor could not even read is refused without its number.
            match (message.id, message.error, message.answer) {
                (None, Some(refusal), None) => return Err(NoAnswer::Refused(refusal.desc)),
                (Some(id), _, _) if id != self.asked => {
                    return Err(self.not_qmp("the answer belongs to another query"));
                }
                (Some(_), Some(refusal), None) => return Err(NoAnswer::Refused(refusal.desc)),
                (Some(_), None, Some(answer)) => return Ok(answer),
                _ => return Err(self.not_qmp("neither event nor answer")),
            }
        }
    }

    fn message(&mut self) -> Result<Message, NoAnswer> {
        self.begin.clear();
        while self.begin.is_empty() {
            let bytes = self.incoming.fill_buf().map_err(no_answer)?;
            let text = bytes.trim_ascii_start();
            let begin = &text[..text.len().min(60)];
            self.begin = String::from_utf8_lossy(begin).into_owned();
            let blank = bytes.len() - text.len();
            self.incoming.consume(blank);
        }
        // A list of the fields' values would also be taken for the object.
        if !self.begin.starts_with('{') {
            return Err(self.not_qmp("no JSON object"));
        }
        let most = self.incoming.get_ref().limits.message_bytes;
        let mut rest = (&mut self.incoming).take(most as u64);
        let message = Message::deserialize(&mut serde_json::Deserializer::from_reader(&mut rest));
        let is_cut = rest.limit() == 0;
        message.map_err(|error| match error.is_io() {
            _ if is_cut => NoAnswer::TooLong(most),
            true => no_answer(error.into()),
            false => self.not_qmp(&error.to_string()),
        })
    }

    fn not_qmp(&self, why: &str) -> NoAnswer {
        NoAnswer::NotQmp {
            why: why.to_owned(),
            begin: self.begin.clone(),
        }
    }
}

/// The bytes that come over a wire, within a conversation's limits; an error in reading them holds a
/// [`NoAnswer`].
#[derive(Debug)]
struct Incoming<W> {
    wire: W,
    limits: Limits,
    /// When the conversation ends, on the wire's clock.
    ends: Duration,
    /// All bytes so far.
    bytes: usize,
}

impl<W: Wire> Incoming<W> {
    /// Time that is left.
    fn left(&self) -> Result<Duration, NoAnswer> {
        let left = self.ends.saturating_sub(self.wire.now());
        if left.is_zero() {
            return Err(NoAnswer::Silent(self.limits.time));
        }
        Ok(left)
    }

    fn say(&mut self, mut bytes: &[u8]) -> Result<(), NoAnswer> {
        while !bytes.is_empty() {
            let left = self.left()?;
            match self.wire.write(bytes, left) {
                Ok(0) => return Err(NoAnswer::Closed),
                Ok(taken) => bytes = &bytes[taken..],
                Err(error) => again(error)?,
            }
        }
        Ok(())
    }

    fn listen(&mut self, buffer: &mut [u8]) -> Result<usize, NoAnswer> {
        loop {
            let left = self.left()?;
            match self.wire.read(buffer, left) {
                Ok(0) => return Err(NoAnswer::Closed),
                Ok(length) => {
                    self.bytes += length;
                    if self.bytes > self.limits.bytes {
                        return Err(NoAnswer::TooLong(self.limits.bytes));
                    }
                    return Ok(length);
                }
                Err(error) => again(error)?,
            }
        }
    }
}

impl<W: Wire> Read for Incoming<W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.listen(buffer).map_err(io::Error::other)
    }
}

/// The error of reading [`Incoming`] bytes.
fn no_answer(error: io::Error) -> NoAnswer {
    error.downcast().unwrap_or_else(NoAnswer::Io)
}

/// Whether to try a failed call again: the time that is left says for how long.
fn again(error: io::Error) -> Result<(), NoAnswer> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Err(NoAnswer::Closed),
        _ => Err(NoAnswer::Io(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        time: Duration::from_secs(1),
        message_bytes: 1000,
        bytes: 5000,
    };
    const GREETING: &str = r#"{"QMP": {"version": {}, "capabilities": ["oob"]}}"#;

    /// What the other side does next.
    enum Does {
        Say(Vec<u8>),
        /// These bytes, so many milliseconds later.
        Later(u64, Vec<u8>),
        Close,
    }

    /// The other side, by a script, with its own clock: waiting returns at once, and puts the clock
    /// forward. A script that has ended is silence.
    #[derive(Default)]
    struct Script {
        does: std::collections::VecDeque<Does>,
        now: Duration,
        heard: String,
    }

    impl Wire for &mut Script {
        fn now(&self) -> Duration {
            self.now
        }

        fn read(&mut self, buffer: &mut [u8], within: Duration) -> io::Result<usize> {
            let mut give = |bytes: Vec<u8>, does: &mut std::collections::VecDeque<Does>| {
                let length = bytes.len().min(buffer.len());
                buffer[..length].copy_from_slice(&bytes[..length]);
                if length < bytes.len() {
                    does.push_front(Does::Say(bytes[length..].to_vec()));
                }
                Ok(length)
            };
            match self.does.pop_front() {
                Some(Does::Say(bytes)) => give(bytes, &mut self.does),
                Some(Does::Later(ms, bytes)) if Duration::from_millis(ms) < within => {
                    self.now += Duration::from_millis(ms);
                    give(bytes, &mut self.does)
                }
                Some(Does::Close) => Ok(0),
                Some(Does::Later(..)) | None => {
                    self.now += within;
                    Err(io::ErrorKind::WouldBlock.into())
                }
            }
        }

        fn write(&mut self, bytes: &[u8], _: Duration) -> io::Result<usize> {
            self.heard += std::str::from_utf8(bytes).expect("questions are text");
            Ok(bytes.len())
        }
    }

    fn script(does: impl IntoIterator<Item = Does>) -> Script {
        Script {
            does: does.into_iter().collect(),
            ..Script::default()
        }
    }

    fn say(text: &str) -> Does {
        Does::Say(text.as_bytes().to_vec())
    }

    /// Begins and asks for the status.
    fn ask(script: &mut Script) -> Result<Value, NoAnswer> {
        Conversation::begin(script, LIMITS)?.ask("query-status")
    }

    #[test]
    fn a_question_and_its_answer() {
        let mut script = script([
            say(GREETING),
            say("\r\n{\"return\": {}, \"id\": 1}\r\n"),
            say(r#"{"event": "RESUME", "timestamp": {}} {"return": {"status": "}{"}, "id": 2}"#),
        ]);
        let answer = ask(&mut script).unwrap();
        assert_eq!(answer, serde_json::json!({"status": "}{"}));
        assert_eq!(
            script.heard,
            "{\"execute\":\"qmp_capabilities\",\"id\":1}\n{\"execute\":\"query-status\",\"id\":2}\n"
        );
    }

    #[test]
    fn a_monitor_that_prints_prettily_and_in_pieces() {
        let text = format!(
            "{GREETING}\n{{\n  \"return\": {{\n  }},\n  \"id\": 1\n}}\n{{\"return\":\n7, \"id\": \
             2}}"
        );
        let pieces = text.bytes().map(|byte| Does::Say(vec![byte]));
        assert_eq!(ask(&mut script(pieces)).unwrap(), 7);
    }

    #[test]
    fn silence_ends_with_the_time_and_not_later() {
        for greets in [false, true] {
            let mut script = script(greets.then(|| say(GREETING)));
            let error = ask(&mut script).unwrap_err();
            assert!(matches!(error, NoAnswer::Silent(_)), "{error}");
            assert_eq!(script.now, LIMITS.time);
            assert_eq!(
                script.heard.is_empty(),
                !greets,
                "nothing is said before a greeting"
            );
        }
    }

    #[test]
    fn bytes_that_trickle_do_not_stretch_the_time() {
        let trickle = GREETING.bytes().map(|byte| Does::Later(90, vec![byte]));
        let mut script = script(trickle);
        let error = ask(&mut script).unwrap_err();
        assert!(matches!(error, NoAnswer::Silent(_)), "{error}");
        assert_eq!(script.now, LIMITS.time);
    }

    #[test]
    fn events_without_end_come_to_an_end() {
        let event = r#"{"event": "STOP", "data": {}}"#;
        let begin = [say(GREETING), say(r#"{"return": {}, "id": 1}"#)];
        let slow = (0..1000).map(|_| Does::Later(1, event.into()));
        let mut slowly = script(begin.into_iter().chain(slow));
        assert!(matches!(ask(&mut slowly), Err(NoAnswer::TooLong(5000))));
        assert!(slowly.now < LIMITS.time);
    }

    #[test]
    fn a_message_has_an_end() {
        let endless = std::iter::repeat_n(b"\"x\",".to_vec(), 10_000).map(Does::Say);
        let mut script = script([say("{\"QMP\": [")].into_iter().chain(endless));
        assert!(matches!(ask(&mut script), Err(NoAnswer::TooLong(1000))));
    }

    #[test]
    fn a_connection_that_closes_is_told_from_silence() {
        for does in [
            vec![Does::Close],
            vec![say("{\"QMP\""), Does::Close],
            vec![say(GREETING), Does::Close],
        ] {
            assert!(matches!(ask(&mut script(does)), Err(NoAnswer::Closed)));
        }
    }

    #[test]
    fn what_is_not_qmp_is_not_taken_for_it() {
        let ready = format!("{GREETING}{{\"return\": {{}}, \"id\": 1}}");
        for said in [
            "HTTP/1.1 400 Bad Request\r\n",
            "{}",
            r#"{"event": "STOP"}"#,
            "{\"QMP\": 1, \"QMP\": 2}",
            &format!("{ready}{{\"return\": {{}}, \"id\": 1}}"),
            &format!("{ready}{{\"return\": {{}}, \"id\": \"2\"}}"),
            &format!("{ready}{{\"return\": {{}}}}"),
            &format!("{ready}{{\"id\": 2}}"),
            &format!("{ready}{{\"return\": 1, \"error\": {{\"desc\": \"x\"}}, \"id\": 2}}"),
            &format!(
                "{ready}{{\"return\": {}{}, \"id\": 2}}",
                "[".repeat(200),
                "]".repeat(200)
            ),
        ] {
            let error = ask(&mut script([say(said)])).unwrap_err();
            assert!(matches!(error, NoAnswer::NotQmp { .. }), "{said}: {error}");
        }
    }

    #[test]
    fn a_refusal_leaves_the_conversation_as_it_is() {
        let mut script = script([
            say(GREETING),
            say(r#"{"return": {}, "id": 1}"#),
            say(r#"{"id": 2, "error": {"class": "CommandNotFound", "desc": "no such command"}}"#),
            say(r#"{"return": 7, "id": 3}"#),
        ]);
        let mut conversation = Conversation::begin(&mut script, LIMITS).unwrap();
        let refusal = conversation.ask("query-memdev").unwrap_err();
        assert_eq!(refusal.to_string(), "it refused: no such command");
        assert_eq!(conversation.ask("query-status").unwrap(), 7);
    }

    proptest! {
        #[test]
        fn whatever_comes_ends_in_time_and_without_panic(
            pieces in proptest::collection::vec(
                (0_u64..300, proptest::collection::vec(any::<u8>(), 0..80)), 0..20
            ),
            greets: bool,
        ) {
            let greeting = greets.then(|| say(GREETING));
            let pieces = pieces.into_iter().map(|(ms, bytes)| Does::Later(ms, bytes));
            let mut script = script(greeting.into_iter().chain(pieces));
            let _ = ask(&mut script);
            prop_assert!(script.now <= LIMITS.time);
        }
    }
}
