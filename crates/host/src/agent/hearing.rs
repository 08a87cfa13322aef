//! How far an agent is believed: a state machine of bytes and times, without I/O.
//!
//! | the agent | is | and its tags |
//! |---|---|---|
//! | told something true in the last [`SILENCE`] | telling | hold |
//! | did not | silent | are forgotten |
//! | told what cannot be ([`Rubbish`]) | distrusted for [`CUT_OFF`]: not even listened to | are forgotten |
//!
//! Times are since any fixed moment, the same for all calls.

use std::time::Duration;

use numaherd_world::Agent;

use super::protocol::{self, GuestTags, Rubbish, longest_line};

/// Without a true line for so long an agent is silent: three of its heartbeats.
pub const SILENCE: Duration = Duration::from_secs(3);

/// How long an agent that told rubbish is ignored.
pub const CUT_OFF: Duration = Duration::from_secs(30);

/// An agent that tells rubbish after this long with nothing but the truth is reported again.
const REDEEMED: Duration = Duration::from_secs(60);

/// The most lines per second that are believed: twice as many as an agent sends when each look, every 10
/// ms, finds a change.
const MOST_LINES: u64 = 200;

/// What one agent has told, and how far it is believed.
#[derive(Debug, Default)]
pub struct Hearing {
    /// vCPUs that the machine has, as the host knows.
    vcpus: u32,
    /// The line being received.
    line: Vec<u8>,
    /// Whether a line feed has come since the connection began: before that, a line may lack its beginning.
    begun: bool,
    sequence: Option<u64>,
    /// The last true line, and when it came.
    told: Option<(Duration, GuestTags)>,
    second: Second,
    distrusted_until: Option<Duration>,
    /// Since when it has told only the truth.
    true_since: Option<Duration>,
    reported: bool,
}

/// What has come in the present second.
#[derive(Debug, Default)]
struct Second {
    began: Duration,
    lines: u64,
    bytes: u64,
}

impl Hearing {
    /// Sets how many vCPUs the machine has: one more than the highest index.
    pub fn set_vcpus(&mut self, vcpus: u32) {
        self.vcpus = vcpus;
    }

    /// Notes a new connection: its input may begin in the middle of a line.
    pub fn connected(&mut self) {
        self.line.clear();
        self.begun = false;
    }

    /// Notes a connection's end: its tags are void.
    pub fn disconnected(&mut self) {
        self.line = Vec::new();
        self.sequence = None;
        self.told = None;
        self.true_since = None;
    }

    /// Takes what came. After rubbish the agent is distrusted, and the connection is to be closed.
    pub fn hear(&mut self, bytes: &[u8], now: Duration) -> Result<(), Rubbish> {
        let heard = self.take(bytes, now);
        if heard.is_err() {
            self.distrusted_until = Some(now + CUT_OFF);
            let redeemed = self.true_since.is_some_and(|since| now >= since + REDEEMED);
            self.reported &= !redeemed;
            self.disconnected();
        }
        heard
    }

    /// Whether rubbish just received is news to people: true once, and again only after the agent has told
    /// the truth for a minute.
    pub fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.reported, true)
    }

    fn take(&mut self, bytes: &[u8], now: Duration) -> Result<(), Rubbish> {
        self.meter(0, bytes.len() as u64, now)?;
        let longest = longest_line(self.vcpus);
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = rest.iter().position(|&byte| byte == b'\n');
            let piece = &rest[..end.unwrap_or(rest.len())];
            if self.begun {
                if self.line.len() + piece.len() > longest {
                    return Err(Rubbish::TooLong { longest });
                }
                self.line.extend_from_slice(piece);
            }
            let Some(end) = end else {
                break;
            };
            rest = &rest[end + 1..];
            self.begun = true;
            if !self.line.is_empty() {
                self.meter(1, 0, now)?;
                let (sequence, told) = protocol::read(&self.line, self.vcpus, self.sequence)?;
                self.line.clear();
                self.sequence = Some(sequence);
                self.told = Some((now, told));
                self.true_since.get_or_insert(now);
            }
        }
        Ok(())
    }

    fn meter(&mut self, lines: u64, bytes: u64, now: Duration) -> Result<(), Rubbish> {
        if now >= self.second.began + Duration::from_secs(1) {
            self.second = Second {
                began: now,
                ..Second::default()
            };
        }
        self.second.lines += lines;
        self.second.bytes += bytes;
        // A framed line also has two line feeds.
        let most_bytes = MOST_LINES * (longest_line(self.vcpus) as u64 + 2);
        let flood = |what, most| Err(Rubbish::Flood { what, most });
        match &self.second {
            second if second.lines > MOST_LINES => flood("lines", MOST_LINES),
            second if second.bytes > most_bytes => flood("bytes", most_bytes),
            _ => Ok(()),
        }
    }

    /// Until when the agent is to be ignored.
    pub fn distrusted_until(&self, now: Duration) -> Option<Duration> {
        self.distrusted_until.filter(|&until| now < until)
    }

    /// The agent's state, and what it tells if it is to be believed.
    pub fn state(&self, now: Duration) -> (Agent, Option<&GuestTags>) {
        if self.distrusted_until(now).is_some() {
            return (Agent::Distrusted, None);
        }
        match &self.told {
            Some((at, told)) if now < *at + SILENCE => (Agent::Telling, Some(told)),
            _ => (Agent::Silent, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn of(vcpus: u32) -> Hearing {
        let mut hearing = Hearing::default();
        hearing.set_vcpus(vcpus);
        hearing.connected();
        hearing
    }

    fn line(sequence: u64, tagged: &[u32]) -> Vec<u8> {
        let told = GuestTags {
            vcpus: 4,
            tagged: tagged.to_vec(),
        };
        protocol::write(sequence, &told)
    }

    fn tagged(hearing: &Hearing, now: Duration) -> Option<Vec<u32>> {
        hearing.state(now).1.map(|told| told.tagged.clone())
    }

    #[test]
    fn tags_hold_while_the_heart_beats() {
        let mut agent = of(4);
        assert_eq!(agent.state(at(0.0)), (Agent::Silent, None));
        agent.hear(&line(0, &[0, 3]), at(1.0)).unwrap();
        assert_eq!(agent.state(at(3.9)).0, Agent::Telling);
        assert_eq!(tagged(&agent, at(3.9)), Some(vec![0, 3]));
        assert_eq!(agent.state(at(4.0)), (Agent::Silent, None));
        agent.hear(&line(1, &[3]), at(9.0)).unwrap();
        assert_eq!(tagged(&agent, at(9.0)), Some(vec![3]));
    }

    #[test]
    fn who_begins_to_listen_in_the_middle_of_a_line_loses_only_that_line() {
        let mut agent = of(4);
        agent.hear(b"tagged\":[1]}\n", at(0.0)).unwrap();
        assert_eq!(agent.state(at(0.0)).0, Agent::Silent);
        agent.hear(&line(8, &[2]), at(0.0)).unwrap();
        assert_eq!(tagged(&agent, at(0.0)), Some(vec![2]));
    }

    #[test]
    fn an_agent_that_begins_anew_is_believed_and_one_that_goes_back_is_not() {
        let mut agent = of(4);
        agent.hear(&line(7, &[]), at(0.0)).unwrap();
        agent.hear(&line(0, &[1]), at(0.5)).unwrap();
        assert_eq!(tagged(&agent, at(0.5)), Some(vec![1]));
        agent.hear(&line(1, &[]), at(1.0)).unwrap();
        let back = agent.hear(&line(1, &[1]), at(1.5)).unwrap_err();
        let sequence = 1;
        assert_eq!(back, Rubbish::OutOfOrder { sequence, last: 1 });
    }

    #[test]
    fn rubbish_cuts_off_for_a_while_and_is_reported_once() {
        let mut agent = of(4);
        agent.hear(&line(0, &[1]), at(0.0)).unwrap();
        agent.hear(b"rubbish\n", at(1.0)).unwrap_err();
        assert_eq!(agent.state(at(1.0)), (Agent::Distrusted, None));
        assert!(agent.is_news());
        assert_eq!(agent.state(at(30.9)).0, Agent::Distrusted);
        assert_eq!(agent.state(at(31.0)), (Agent::Silent, None));

        agent.connected();
        agent.hear(&line(0, &[1]), at(31.0)).unwrap();
        assert_eq!(agent.state(at(31.0)).0, Agent::Telling);
        agent.hear(b"rubbish\n", at(32.0)).unwrap_err();
        assert!(!agent.is_news(), "the same agent, a minute not yet over");

        agent.connected();
        for beat in 0..=60 {
            let now = at(70.0 + beat as f64);
            agent.hear(&line(beat, &[]), now).unwrap();
        }
        agent.hear(b"rubbish\n", at(131.0)).unwrap_err();
        assert!(agent.is_news(), "it had told the truth for a minute");
    }

    #[test]
    fn a_line_without_end_is_cut_at_the_longest_and_kept_no_longer() {
        let mut agent = of(4);
        agent.hear(b"\n", at(0.0)).unwrap();
        let longest = longest_line(4);
        agent.hear(&vec![b'x'; longest], at(0.0)).unwrap();
        assert_eq!(agent.line.len(), longest);
        let error = agent.hear(b"x", at(2.0)).unwrap_err();
        assert_eq!(error, Rubbish::TooLong { longest });
        assert_eq!(agent.line.capacity(), 0);
    }

    #[test]
    fn floods_are_cut_off_in_lines_and_in_bytes() {
        let mut agent = of(4);
        for sequence in 0..MOST_LINES {
            agent.hear(&line(sequence, &[]), at(0.9)).unwrap();
        }
        let error = agent.hear(&line(MOST_LINES, &[]), at(0.95)).unwrap_err();
        let (what, most) = ("lines", MOST_LINES);
        assert_eq!(error, Rubbish::Flood { what, most });

        // Nothing but line feeds, or a first line that never ends.
        for byte in [b'\n', b'x'] {
            let mut agent = of(4);
            let most = MOST_LINES * (longest_line(4) as u64 + 2);
            let flood = vec![byte; usize::try_from(most).unwrap()];
            agent.hear(&flood, at(0.0)).unwrap();
            let what = "bytes";
            let error = agent.hear(&[byte], at(0.9)).unwrap_err();
            assert_eq!(error, Rubbish::Flood { what, most });
        }
    }

    #[test]
    fn an_agent_that_hung_up_tells_nothing() {
        let mut agent = of(4);
        agent.hear(&line(5, &[1]), at(0.0)).unwrap();
        agent.disconnected();
        assert_eq!(agent.state(at(0.0)), (Agent::Silent, None));
        agent.connected();
        agent.hear(&line(5, &[1]), at(0.1)).unwrap();
        assert_eq!(agent.state(at(0.1)).0, Agent::Telling);
    }

    proptest! {
        #[test]
        fn where_the_stream_is_cut_makes_no_difference(
            lists in proptest::collection::vec(
                proptest::collection::btree_set(0u32..4, 0..4), 1..9),
            damage in proptest::option::of((0usize..400, any::<u8>())),
            cut in 1usize..40,
        ) {
            let mut stream: Vec<u8> = lists
                .iter()
                .zip(0..)
                .flat_map(|(tags, sequence)| {
                    line(sequence, &tags.iter().copied().collect::<Vec<_>>())
                })
                .collect();
            if let Some((at, byte)) = damage {
                let at = at % stream.len();
                stream[at] = byte;
            }
            let (mut whole, mut pieces) = (of(4), of(4));
            let all = whole.hear(&stream, at(0.0));
            let one_by_one = stream.chunks(cut).try_for_each(|piece| pieces.hear(piece, at(0.0)));
            prop_assert_eq!(all, one_by_one);
            prop_assert_eq!(whole.state(at(0.0)), pieces.state(at(0.0)));
        }
    }
}
