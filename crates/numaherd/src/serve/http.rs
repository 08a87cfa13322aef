//! Metrics, page and state over HTTP: read-only, and bounded in everything.
//!
//! | bound | what happens beyond it |
//! |---|---|
//! | [`MOST_CONNECTIONS`] at once | 503 and closed |
//! | [`MOST_HEADER`] bytes and [`MOST_HEADERS`] lines of a request's head | 431 and closed |
//! | no body | 413 and closed |
//! | [`HEAD_TIME`] until the head is there | closed |
//! | [`WHOLE_TIME`] for a connection, its answer taken in | closed |
//!
//! A connection is for one request. What is drawn is kept for [`KEPT`], so that frequent requests
//! cost no more.

use std::convert::Infallible;
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HOST, HeaderValue, REFERRER_POLICY, TRANSFER_ENCODING, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use numaherd_show::metrics::{self, Serving, View};
use numaherd_show::page;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::allowed::{Token, is_local_name};
use super::feed::Feed;
use crate::lock;

/// Most connections at once, of all addresses together.
pub const MOST_CONNECTIONS: usize = 256;

/// Most bytes of a request's head.
const MOST_HEADER: usize = 16 << 10;

/// Most header lines of a request.
const MOST_HEADERS: usize = 64;

/// How long a request's head may take.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// How long a connection may take in all.
const WHOLE_TIME: Duration = Duration::from_secs(15);

/// How long a drawing is reused.
const KEPT: Duration = Duration::from_millis(250);

/// How long the loop may be silent, beyond three of its intervals, before `/healthz` says so.
const SILENCE: Duration = Duration::from_secs(5);

/// What all connections share.
pub struct Web {
    feed: Arc<Feed>,
    token: Option<Token>,
    room: Arc<Semaphore>,
    refused_connections: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    kept: Mutex<[Option<(Instant, String)>; 3]>,
}

/// How a request arrives, which determines what is required of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By TCP: a token where there is one, else a local name.
    Tcp,
    /// By a UNIX socket, whose file's permissions decide.
    Unix,
}

/// What is drawn.
#[derive(Clone, Copy)]
enum Drawing {
    Page,
    Metrics,
    Status,
}

impl Web {
    /// A server of what comes from a feed.
    pub fn new(feed: Arc<Feed>, token: Option<Token>) -> Arc<Self> {
        Arc::new(Self {
            feed,
            token,
            room: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            refused_connections: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            kept: Mutex::default(),
        })
    }

    /// What the server knows of itself.
    pub fn serving(&self) -> Serving {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Serving {
            connections: (MOST_CONNECTIONS - self.room.available_permits()) as u64,
            connections_refused: load(&self.refused_connections),
            answered: load(&self.answered),
            refused: load(&self.refused),
            watchers: self.feed.watchers() as u64,
            watchers_dropped: load(&self.feed.watchers_dropped),
        }
    }

    /// Counts a request, of any socket.
    pub fn count(&self, is_answered: bool) {
        let number = if is_answered {
            &self.answered
        } else {
            &self.refused
        };
        number.fetch_add(1, Ordering::Relaxed);
    }

    /// Serves a connection in a task of its own, or refuses it.
    pub fn connected<S>(self: &Arc<Self>, mut stream: S, transport: Transport)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(place) = self.room.clone().try_acquire_owned() else {
            self.refused_connections.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                // It fits into any socket's buffer; a client that does not take it gets no answer.
                let said = timeout(HEAD_TIME / 10, stream.write_all(FULL)).await;
                drop(said);
            });
            return;
        };
        let web = self.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                ready(Ok::<_, Infallible>(web.answer(transport, &request)))
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .keep_alive(false)
                .max_buf_size(MOST_HEADER)
                .max_headers(MOST_HEADERS)
                .serve_connection(TokioIo::new(stream), service);
            // A request that cannot be read is answered by hyper itself, or not at all.
            if !matches!(timeout(WHOLE_TIME, connection).await, Ok(Ok(()))) {
                web.count(false);
            }
            drop(place);
        });
    }

    /// A recent drawing, or a new one.
    fn drawn(&self, drawing: Drawing) -> String {
        let mut kept = lock(&self.kept);
        let place = &mut kept[drawing as usize];
        if let Some((at, text)) = place
            && at.elapsed() < KEPT
        {
            return text.clone();
        }
        let serving = self.serving();
        let text = self.feed.look(|run, heard| {
            let view = View {
                run,
                serving: Some(&serving),
            };
            match drawing {
                Drawing::Page => page::page(view, heard.map(|at| at.elapsed())),
                Drawing::Metrics => metrics::text(view),
                Drawing::Status => {
                    serde_json::json!({"serving": serving, "status": run}).to_string()
                }
            }
        });
        *place = Some((Instant::now(), text.clone()));
        text
    }

    /// Answers a request, at once: nothing in it waits.
    fn answer(&self, transport: Transport, request: &Request<Incoming>) -> Response<String> {
        let refused = self.objection(transport, request);
        let mut response = refused.unwrap_or_else(|| self.shown(request.uri().path()));
        self.count(response.status().is_success());
        let headers = response.headers_mut();
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, page::POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-store"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    /// The endpoints.
    fn shown(&self, path: &str) -> Response<String> {
        let (kind, text) = match path {
            "/" => ("text/html; charset=utf-8", self.drawn(Drawing::Page)),
            "/metrics" => (metrics::CONTENT_TYPE, self.drawn(Drawing::Metrics)),
            "/status" => ("application/json", self.drawn(Drawing::Status)),
            "/style.css" => ("text/css; charset=utf-8", page::STYLE.to_owned()),
            "/healthz" => {
                let (code, told) = self.health();
                return plain(code, told);
            }
            _ => {
                return plain(
                    StatusCode::NOT_FOUND,
                    "there is /, /metrics, /status, /healthz\n",
                );
            }
        };
        response(StatusCode::OK, kind, text)
    }

    /// Why a request is not answered, if it is not.
    fn objection(
        &self,
        transport: Transport,
        request: &Request<Incoming>,
    ) -> Option<Response<String>> {
        let headers = request.headers();
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let why = "nothing can be changed here; ask with GET\n";
            let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, why);
            let allowed = HeaderValue::from_static("GET, HEAD");
            refused.headers_mut().insert(ALLOW, allowed);
            return Some(refused);
        }
        let length = headers.get(CONTENT_LENGTH);
        if headers.contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length != "0") {
            let why = "requests have no body here\n";
            return Some(plain(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        if transport == Transport::Unix {
            return None;
        }
        if let Some(token) = &self.token {
            let mut given = headers.get_all(AUTHORIZATION).iter();
            let first = given.next();
            let is_known = first.is_some_and(|given| token.is_in(given.as_bytes()));
            if is_known && given.next().is_none() {
                return None;
            }
            let mut refused = plain(StatusCode::UNAUTHORIZED, "a token is needed here\n");
            let scheme = HeaderValue::from_static("Bearer");
            refused.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            return Some(refused);
        }
        let mut names = headers.get_all(HOST).iter();
        let named = names.next().and_then(|name| name.to_str().ok());
        let is_local = named.is_some_and(is_local_name) && names.next().is_none();
        let why = "this is localhost, by no other name\n";
        (!is_local).then(|| plain(StatusCode::MISDIRECTED_REQUEST, why))
    }

    /// Whether the loop has recorded lines as often as it should, and the answer's text.
    fn health(&self) -> (StatusCode, String) {
        let trouble = self.feed.look(|run, heard| {
            let cadence = Duration::from_nanos(run.cadence_ns.unwrap_or(1_000_000_000));
            let Some(heard) = heard else {
                return Some("it has not begun\n".to_owned());
            };
            let silent = heard.elapsed();
            if run.ended.is_some() {
                return Some("it has ended\n".to_owned());
            }
            (silent > cadence * 3 + SILENCE)
                .then(|| format!("nothing was heard of the loop for {} s\n", silent.as_secs()))
        });
        match trouble {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(trouble) => (StatusCode::SERVICE_UNAVAILABLE, trouble),
        }
    }
}

/// The answer to a connection beyond the limit.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
                      content-type: text/plain\r\ncontent-length: 42\r\n\r\n\
                      too many connections are open; try again.\n";

fn plain(code: StatusCode, text: impl Into<String>) -> Response<String> {
    response(code, "text/plain; charset=utf-8", text.into())
}

fn response(code: StatusCode, kind: &'static str, text: String) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = code;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
