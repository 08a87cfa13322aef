//! The control socket: who may use it, and how requests are answered. The words are in
//! [`protocol`](super::protocol).
//!
//! Root and the herd's own user may ask; if a group was given, the socket's file lets its members in as well. At most
//! [`MOST_CONNECTIONS`] clients are connected at once. A client that is silent for [`IDLE`], or does not take an
//! answer within [`ANSWER_TIME`], is cut off. Requests reach the loop one at a time, and wait in threads of their
//! own, so that no watcher and no scraper waits with them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use numaherd_herd::{Control, ControlError, Request as Asked};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::UCred;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;

use super::feed::{Feed, MOST_WATCHERS};
use super::http::Web;
use super::protocol::{MOST_REQUEST, Request, parse, refused};
use crate::ledger::PROGRAM;
use crate::run::Reload;

/// Most connections at once.
const MOST_CONNECTIONS: usize = 32;

/// How long a client may be silent.
const IDLE: Duration = Duration::from_secs(60);

/// How long a client may take to receive an answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// How long the loop may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Handles all requests to the herd.
pub struct Desk {
    feed: Arc<Feed>,
    web: Arc<Web>,
    control: Control,
    reload: Reload,
    /// Held while the loop is asked: one request at a time.
    turn: Mutex<()>,
    room: Arc<Semaphore>,
    /// Whether the socket's file lets a group in.
    has_group: bool,
}

impl Desk {
    /// A desk for a herd.
    pub fn new(
        feed: Arc<Feed>,
        web: Arc<Web>,
        control: Control,
        reload: Reload,
        has_group: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            feed,
            web,
            control,
            reload,
            turn: Mutex::new(()),
            room: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            has_group,
        })
    }

    /// Asks the loop, and waits for the outcome: a sentence for people, or an error.
    fn ask(&self, request: Request, by: &str) -> Result<String> {
        let ask = |asked, done: &str| match self.control.named(by).ask(asked, PATIENCE) {
            Ok(()) => Ok(done.to_owned()),
            // It will be done when its turn comes.
            Err(late @ ControlError::NoAnswer { .. }) => Ok(late.to_string()),
            Err(error) => Err(error.into()),
        };
        match request {
            Request::Pause { give_back } => {
                let done = match give_back {
                    true => "paused; threads have the affinities back that they were found with",
                    false => "paused; threads stay where they are",
                };
                ask(Asked::Pause { give_back }, done)
            }
            Request::Resume => ask(Asked::Resume, "resumed"),
            Request::Policy { name } => self.reload.policy(&name, by),
            Request::Reload => {
                let reloaded = self.reload.now(by);
                let reloaded = reloaded.context("the configuration stays as it was")?;
                Ok(reloaded.to_string())
            }
            Request::Status | Request::Watch | Request::Version => {
                bail!("this is not the loop's affair")
            }
        }
    }

    /// Serves a connection in a task of its own, or refuses it.
    pub fn connected(self: &Arc<Self>, stream: UnixStream) {
        let place = self.room.clone().try_acquire_owned();
        let peer = stream.peer_cred();
        let mut stream = BufReader::new(stream);
        let desk = self.clone();
        tokio::spawn(async move {
            let _place = match (place, peer) {
                (Ok(place), Ok(peer)) if desk.may_ask(&peer) => {
                    desk.speak(&mut stream, peer.uid()).await;
                    place
                }
                (Ok(_), peer) => {
                    let who = peer.map_or_else(|e| e.to_string(), |p| format!("uid {}", p.uid()));
                    desk.refuse(&mut stream, &format!("{who} may not ask this herd"))
                        .await;
                    return;
                }
                (Err(_), _) => {
                    let why = "this herd has too many connections; try again";
                    desk.refuse(&mut stream, why).await;
                    return;
                }
            };
        });
    }

    fn may_ask(&self, peer: &UCred) -> bool {
        let own = rustix::process::geteuid().as_raw();
        // With a group, the permissions of the socket's file decide.
        self.has_group || peer.uid() == 0 || peer.uid() == own
    }

    async fn refuse(&self, stream: &mut BufReader<UnixStream>, why: &str) {
        self.web.count(false);
        send(stream, refused(why).as_bytes()).await;
    }

    /// Answers line by line until the other side has gone, or is cut off.
    async fn speak(self: &Arc<Self>, stream: &mut BufReader<UnixStream>, uid: u32) {
        loop {
            let Some(line) = next_line(stream).await else {
                return;
            };
            let line = match line {
                Ok(line) => line,
                Err(why) => return self.refuse(stream, &why).await,
            };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let answer = match parse(&line) {
                Ok(Request::Watch) => return self.watch(stream).await,
                Ok(request) => {
                    let answer = self.answer(request, uid).await;
                    answer.map_err(|error| format!("{error:#}"))
                }
                Err(why) => Err(why),
            };
            self.web.count(answer.is_ok());
            let answer = match answer {
                Ok(answer) => format!("{answer}\n"),
                Err(why) => refused(&why),
            };
            if !send(stream, answer.as_bytes()).await {
                return;
            }
        }
    }

    async fn answer(self: &Arc<Self>, request: Request, uid: u32) -> Result<Value> {
        match request {
            Request::Status => {
                let serving = self.web.serving();
                Ok(self.feed.look(|run, heard| {
                    json!({
                        "ok": true,
                        "text": numaherd_show::status::text(run, heard.map(|at| at.elapsed())),
                        "serving": serving,
                        "status": run,
                    })
                }))
            }
            Request::Version => Ok(json!({
                "ok": true,
                "program": PROGRAM,
            })),
            request => {
                let _turn = self.turn.lock().await;
                let desk = self.clone();
                let by = format!("control socket (uid {uid})");
                let asked = tokio::task::spawn_blocking(move || desk.ask(request, &by));
                let done = asked.await??;
                Ok(json!({"ok": true, "done": done}))
            }
        }
    }

    /// Streams the ledger's lines until one side ends.
    async fn watch(&self, stream: &mut BufReader<UnixStream>) {
        let Some(mut watching) = self.feed.watch() else {
            let why = format!(
                "the herd has not begun, or {MOST_WATCHERS} watch it already, which is the most"
            );
            return self.refuse(stream, &why).await;
        };
        self.web.count(true);
        for first in std::mem::take(&mut watching.first) {
            if !send(stream, &first).await {
                return;
            }
        }
        let mut byte = [0];
        loop {
            tokio::select! {
                line = watching.lines.recv() => match line {
                    Some(line) => if !send(stream, &line).await {
                        return;
                    },
                    None => break,
                },
                // The only event expected here is the end.
                read = stream.read(&mut byte) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                },
            }
        }
        let is_over = self.feed.look(|run, _| run.ended.is_some());
        if !is_over {
            let why = refused("this watcher reads too slowly and is disconnected");
            send(stream, why.as_bytes()).await;
        }
    }
}

/// The next line without its line feed, even if it comes in pieces; `None` if the other side has gone or is silent.
async fn next_line(stream: &mut BufReader<UnixStream>) -> Option<Result<Vec<u8>, String>> {
    let mut line = Vec::new();
    let mut bounded = stream.take(MOST_REQUEST as u64);
    let read = bounded.read_until(b'\n', &mut line);
    timeout(IDLE, read).await.ok()?.ok()?;
    match line.pop() {
        Some(b'\n') => Some(Ok(line)),
        Some(_) if line.len() + 1 >= MOST_REQUEST => {
            Some(Err(format!("a request has at most {MOST_REQUEST} bytes")))
        }
        _ => None,
    }
}

/// Sends; says whether the other side took it in time.
async fn send(stream: &mut BufReader<UnixStream>, bytes: &[u8]) -> bool {
    matches!(
        timeout(ANSWER_TIME, stream.write_all(bytes)).await,
        Ok(Ok(()))
    )
}
