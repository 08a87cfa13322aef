//! Where lines come from: a ledger, the herd that runs here, or a private herd that only observes.

mod herd;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::Result;
use numaherd_herd::ledger::{Follow, Next, Place};
use numaherd_herd::{HerdError, Line};
use numaherd_show::top::Top;

use crate::cli;
use crate::exit::{Exit, coded, ended};

/// Where a herd that serves listens.
const SOCKET: &str = "/run/numaherd/control.sock";

/// Where lines come from.
pub enum Source {
    /// A ledger.
    File(Box<File>),
    /// A herd.
    Herd(Heard),
}

/// A ledger, and where each of its lines is.
pub struct File {
    path: PathBuf,
    name: String,
    follow: Follow,
    is_followed: bool,
    places: Vec<Place>,
    over: bool,
    /// Why nothing more of it is read, if not because it ends.
    damage: Option<HerdError>,
}

/// What a herd says.
pub struct Heard {
    name: String,
    lines: Receiver<Said>,
    over: bool,
    /// Ends a private herd.
    _ending: Option<herd::Ending>,
}

/// What comes from a thread that listens to a herd.
pub enum Said {
    /// A line.
    Line(Arc<Line>),
    /// No more lines will come; and why, if that is not simply the end.
    Over(Option<String>),
}

/// Whether something came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// Nothing, for now or for good.
    Nothing,
    /// Something.
    Some,
    /// Something, and there is more.
    More,
}

impl Source {
    /// The source that the command line asks for.
    ///
    /// # Errors
    /// A ledger that cannot be read, a socket that was named and does not answer, or a machine that
    /// cannot be watched.
    pub fn of(options: &cli::Top) -> Result<Self> {
        if let Some(path) = &options.source {
            let is_frame = options.once || options.svg.is_some();
            return File::open(path, options.follow && !is_frame)
                .map(|file| Self::File(Box::new(file)));
        }
        if let Some(path) = &options.socket {
            return match herd::watch(path) {
                Ok(heard) => Ok(Self::Herd(heard)),
                Err(why) => Err(ended!(
                    Failure,
                    "cannot watch the herd at {}: {why:#}; is `numaherd serve` running there, and \
                         may you use its socket?",
                    path.display()
                )),
            };
        }
        if !options.here
            && let Ok(heard) = herd::watch(Path::new(SOCKET))
        {
            return Ok(Self::Herd(heard));
        }
        herd::of_ones_own().map(Self::Herd)
    }

    /// What it is, for people.
    pub fn name(&self) -> &str {
        match self {
            Self::File(file) => &file.name,
            Self::Herd(heard) => &heard.name,
        }
    }

    /// Whether its lines can be read again.
    pub fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Whether lines may still come after those that are there.
    pub fn grows(&self) -> bool {
        match self {
            Self::File(file) => file.is_followed,
            Self::Herd(_) => true,
        }
    }

    /// Passes available lines to `top`, for at most `time`.
    pub fn poll(&mut self, top: &mut Top, time: Duration) -> Polled {
        match self {
            Self::File(file) => file.poll(top, time),
            Self::Herd(heard) => heard.poll(top, time),
        }
    }

    /// Passes all available lines to `top`.
    pub fn take_all(&mut self, top: &mut Top) {
        while self.poll(top, Duration::from_secs(1)) != Polled::Nothing {}
    }

    /// Passes lines to `top` until there is a snapshot to show, and all that are available by then.
    ///
    /// # Errors
    /// When the herd ends before.
    pub fn take_a_snapshot(&mut self, top: &mut Top) -> Result<()> {
        let Self::Herd(heard) = self else {
            self.take_all(top);
            return Ok(());
        };
        let patience = Instant::now() + Duration::from_secs(30);
        while top.timeline().newest().snapshot().is_none() {
            let left = patience.saturating_duration_since(Instant::now());
            match heard.lines.recv_timeout(left) {
                Ok(Said::Line(line)) => top.take(&line),
                Ok(Said::Over(Some(error))) => return Err(ended(Exit::Failure, error)),
                Ok(Said::Over(None)) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(ended!(Failure, "the herd ended before its first snapshot"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(ended!(Failure, "the herd has sent nothing for 30 s"));
                }
            }
        }
        heard.poll(top, Duration::from_millis(50));
        Ok(())
    }

    /// Refuses a ledger that could not be read to its end, after its readable part was shown.
    ///
    /// # Errors
    /// The damage.
    pub fn whole(self) -> Result<()> {
        match self {
            Self::File(file) => file.damage.map_or(Ok(()), |damage| Err(coded(damage))),
            Self::Herd(_) => Ok(()),
        }
    }

    /// Reads a line again, by its place in the ledger.
    pub fn again(&self, place: u64) -> Option<Arc<Line>> {
        let Self::File(file) = self else {
            return None;
        };
        let place = file.places.get(usize::try_from(place).ok()?)?;
        place.read().map(Arc::new)
    }
}

impl File {
    fn open(path: &Path, is_followed: bool) -> Result<Self> {
        if !is_followed {
            // A missing file or ledger header is reported at once.
            numaherd_herd::ledger::Reader::open(path).map_err(coded)?;
        }
        Ok(Self {
            path: path.to_owned(),
            name: format!("the ledger {}", path.display()),
            follow: Follow::new(path),
            is_followed,
            places: Vec::new(),
            over: false,
            damage: None,
        })
    }

    fn poll(&mut self, top: &mut Top, time: Duration) -> Polled {
        if self.over {
            return Polled::Nothing;
        }
        let end = Instant::now() + time;
        let mut polled = Polled::Nothing;
        loop {
            match self.follow.next() {
                Ok(Next::Line(line, place)) => {
                    self.places.push(place);
                    top.take(&Arc::new(line));
                    polled = Polled::Some;
                }
                Ok(Next::Begins(_)) => {}
                Ok(Next::NothingYet) => {
                    let is_first = self.places.is_empty();
                    top.say(
                        (self.is_followed && is_first)
                            .then(|| format!("waiting for {} to be written", self.path.display())),
                    );
                    if !self.is_followed {
                        self.over = true;
                        self.damage = self.follow.cut();
                        top.ended(self.damage.as_ref().map(ToString::to_string));
                        return Polled::Some;
                    }
                    return polled;
                }
                Err(error) => {
                    self.over = true;
                    top.ended(Some(error.to_string()));
                    self.damage = Some(error);
                    return Polled::Some;
                }
            }
            if Instant::now() >= end {
                top.say(Some(format!("reading {} ...", self.name)));
                return Polled::More;
            }
        }
    }
}

impl Heard {
    fn poll(&mut self, top: &mut Top, time: Duration) -> Polled {
        if self.over {
            return Polled::Nothing;
        }
        let end = Instant::now() + time;
        let mut polled = Polled::Nothing;
        loop {
            let over = match self.lines.try_recv() {
                Ok(Said::Line(line)) => {
                    top.take(&line);
                    polled = Polled::Some;
                    if Instant::now() >= end {
                        return Polled::More;
                    }
                    continue;
                }
                Err(TryRecvError::Empty) => return polled,
                Ok(Said::Over(why)) => why,
                Err(TryRecvError::Disconnected) => None,
            };
            self.over = true;
            top.ended(over.or_else(|| Some("the herd has ended".to_owned())));
            return Polled::Some;
        }
    }
}
