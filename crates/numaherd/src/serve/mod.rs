//! `numaherd serve`: a herd that others can watch and control.
//!
//! Three threads: the loop, as in `run`; one that takes its lines in ([`feed`]); one that serves sockets ([`http`],
//! [`control`]). The last two run at low priority and never hold the loop up. No request over HTTP changes anything.

mod allowed;
mod control;
mod feed;
mod http;
mod listen;
pub mod protocol;

use std::future::poll_fn;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use anyhow::{Context, Result};
use numaherd_herd::Control;
use rustix::thread::CapabilitySet;
use tokio::sync::oneshot;

use crate::cli::Serve;
use crate::exit::ended;
use crate::print;
use crate::priority;
use crate::privileges;
use crate::release::usual_journal;
use crate::run::{self, Attached, Reload};
use allowed::Token;
use control::Desk;
use feed::Feed;
use http::{Transport, Web};
use listen::{Address, SocketFile};

/// The default control socket: beside the default journal.
pub fn usual_socket() -> PathBuf {
    usual_journal().with_file_name("control.sock")
}

/// Herds, and serves while it does.
///
/// # Errors
/// As [`run::herd`]; or it cannot listen at an address, the token is invalid, or the group does not exist. Nothing
/// has been changed then.
pub fn serve(options: &Serve) -> Result<ExitCode> {
    let sockets = Sockets::open(options)?;
    let (mut feeder, fed, feed) = feed::feed();
    let (control, requests) = numaherd_herd::control::pair();
    let reload = Reload::default();
    let folding = std::thread::Builder::new()
        .name("numaherd-fold".to_owned())
        .spawn(move || {
            priority::lower();
            privileges::keep(CapabilitySet::empty());
            fed.take_in();
        })
        .context("cannot start the thread that processes the loop's records")?;
    let (stop, stopped) = oneshot::channel::<()>();
    let (asking, reloading) = (control.clone(), reload.clone());
    let serving = std::thread::Builder::new()
        .name("numaherd-serve".to_owned())
        .spawn(move || {
            priority::lower();
            privileges::keep(privileges::SERVING);
            sockets.serve(feed, asking, reloading, stopped)
        })
        .context("cannot start a thread that serves")?;
    let attached = Attached {
        watchers: vec![Box::new(move |line| feeder.put(line))],
        control: Some((control, requests)),
        reload,
        ..Attached::default()
    };
    let came = run::herd(&options.run, attached);
    // The loop's end of the queue is gone: what waits is taken in, then the watchers are stopped.
    let _ = folding.join();
    let _ = stop.send(());
    match serving.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => print::say(format!("it could not be served: {error:#}")),
        Err(_) => print::say("the thread that serves has ended by a fault"),
    }
    came
}

/// All sockets, bound before anything else happens.
struct Sockets {
    tcp: Vec<TcpListener>,
    unix: Vec<UnixListener>,
    control: UnixListener,
    token: Option<Token>,
    /// Whether a group may use the control socket.
    has_group: bool,
    files: Vec<SocketFile>,
}

impl Sockets {
    fn open(options: &Serve) -> Result<Self> {
        let token = options.token_file.as_deref().map(Token::read).transpose()?;
        let group = options.control_group.as_deref().map(group).transpose()?;
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        let mut files = Vec::new();
        let mut at = |path: PathBuf| {
            let listener = listen::unix(&path, mode, group)?;
            files.push(SocketFile(path));
            anyhow::Ok(listener)
        };
        let control = at(options.control.clone().unwrap_or_else(usual_socket))?;
        let (mut tcp, mut unix) = (Vec::new(), Vec::new());
        for mut address in listen::addresses(&options.listen, options.allow_remote)? {
            match &mut address {
                Address::Tcp(asked) => {
                    let listener = listen::tcp(*asked)?;
                    // Port 0 is any that is free.
                    *asked = listener.local_addr().unwrap_or(*asked);
                    tcp.push(listener);
                }
                Address::Unix(path) => unix.push(at(path.clone())?),
            }
            print::say(format!("serving at {address}"));
        }
        Ok(Self {
            tcp,
            unix,
            control,
            token,
            has_group: group.is_some(),
            files,
        })
    }

    /// Serves until told to stop, all in this thread except for requests that wait for the loop.
    fn serve(
        self,
        feed: Arc<Feed>,
        control: Control,
        reload: Reload,
        stopped: oneshot::Receiver<()>,
    ) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(2)
            .build()
            .context("cannot begin to wait for sockets")?;
        let web = Web::new(feed.clone(), self.token);
        let desk = Desk::new(feed, web.clone(), control, reload, self.has_group);
        let _files = self.files;
        runtime.block_on(async move {
            for listener in self.tcp {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let web = web.clone();
                tokio::spawn(accept(
                    move |cx| listener.poll_accept(cx),
                    move |(stream, _)| web.connected(stream, Transport::Tcp),
                ));
            }
            for listener in self.unix {
                let listener = tokio::net::UnixListener::from_std(listener)?;
                let web = web.clone();
                tokio::spawn(accept(
                    move |cx| listener.poll_accept(cx),
                    move |(stream, _)| web.connected(stream, Transport::Unix),
                ));
            }
            let listener = tokio::net::UnixListener::from_std(self.control)?;
            tokio::spawn(accept(
                move |cx| listener.poll_accept(cx),
                move |(stream, _)| desk.connected(stream),
            ));
            // It also ends if the sender has been dropped.
            let _ = stopped.await;
            // Watchers get the last lines.
            tokio::time::sleep(LAST_LINES).await;
            Ok(())
        })
    }
}

/// Hands over every new connection, for ever.
async fn accept<S>(
    mut next: impl FnMut(&mut task::Context<'_>) -> Poll<io::Result<S>>,
    connected: impl Fn(S),
) {
    loop {
        match poll_fn(&mut next).await {
            Ok(connection) => connected(connection),
            // Too many files are open: a moment without trying.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// How long watchers have for the last lines.
const LAST_LINES: Duration = Duration::from_millis(200);

/// How long to wait after a connection that could not be taken.
const PAUSE: Duration = Duration::from_millis(50);

/// The number of a group, by its name or as it is.
fn group(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let path = Path::new("/etc/group");
    let text = std::fs::read_to_string(path).context("cannot read /etc/group")?;
    group_in(&text, name).ok_or_else(|| {
        ended!(
            Usage,
            "there is no group {name} in /etc/group; create it with `groupadd --system {name}`"
        )
    })
}

/// The number of a group in a text like `/etc/group`: `name:password:number:members`.
fn group_in(text: &str, name: &str) -> Option<u32> {
    let mut lines = text.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        (fields.next()? == name).then_some(())?;
        fields.nth(1)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_numbers() {
        let text = "root:x:0:\n# no group\nherders:x:990:ann,bob\n\nodd\n";
        assert_eq!(group_in(text, "herders"), Some(990));
        assert_eq!(group_in(text, "root"), Some(0));
        assert_eq!(group_in(text, "odd"), None);
        assert_eq!(group_in(text, "ann"), None);
        assert_eq!(group("77").unwrap(), 77);
    }
}
