//! Reads something over HTTP: one GET, bounded in time and in size.
//!
//! Only plain `http://`: the program has no TLS. A server behind TLS is read through a tunnel or a proxy.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The address of a server, and a path there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// As it was written.
    pub url: String,
    /// Host and port.
    pub host: String,
    /// The path with all that follows it; may be empty.
    pub path: String,
}

/// The limits of one request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time for everything, from the name's look-up to the answer's end.
    pub time: Duration,
    /// Bytes of an answer.
    pub bytes: usize,
}

/// A complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// The body.
    pub body: Vec<u8>,
}

impl Address {
    /// Reads `http://HOST[:PORT][/PATH]`.
    ///
    /// # Errors
    /// The text is not such an address.
    pub fn parse(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("http://");
        let rest = rest.with_context(|| format!("{url:?} is no http:// address"))?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        ensure!(!host.is_empty(), "{url:?} names no host");
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = match has_port {
            true => host.to_owned(),
            false => format!("{host}:80"),
        };
        Ok(Self {
            url: url.to_owned(),
            host,
            path: path.to_owned(),
        })
    }

    /// Reads `path` from this server.
    ///
    /// # Errors
    /// It cannot be read: the message says which address, and why.
    pub fn get(&self, path: &str, limits: Limits) -> Result<Answer> {
        let answer = self.answer(path, limits);
        answer.with_context(|| format!("cannot read {}", self.url))
    }

    fn answer(&self, path: &str, limits: Limits) -> Result<Answer> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build()?;
        let exchange = async { timeout(limits.time, self.exchange(path, limits.bytes)).await };
        let exchanged = runtime.block_on(exchange);
        // Does not wait for a pending name look-up.
        runtime.shutdown_background();
        exchanged.unwrap_or_else(|_| bail!("no answer within {} s", limits.time.as_secs()))
    }

    async fn exchange(&self, path: &str, most: usize) -> Result<Answer> {
        let stream = TcpStream::connect(&self.host).await;
        let stream = stream.map_err(|error| match error.kind() {
            ErrorKind::ConnectionRefused => anyhow!("nothing listens there"),
            _ => error.into(),
        })?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(not_http)?;
        let served = tokio::spawn(connection);
        let request = Request::get(path)
            .header(HOST, &self.host)
            .header(ACCEPT, "*/*")
            .header(CONNECTION, "close")
            .body(String::new())?;
        let response = sender.send_request(request).await.map_err(not_http)?;
        let status = response.status();
        let body = whole(response.into_body(), most).await?;
        served.abort();
        Ok(Answer { status, body })
    }
}

/// Reads a body to its end, if it has at most `most` bytes.
async fn whole(mut body: Incoming, most: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| anyhow!("the answer ends midway ({error})"))?;
        if let Some(data) = frame.data_ref() {
            bytes.extend_from_slice(data);
        }
        let mib = most >> 20;
        ensure!(bytes.len() <= most, "the answer has more than {mib} MiB");
    }
    Ok(bytes)
}

fn not_http(error: hyper::Error) -> anyhow::Error {
    match error.is_incomplete_message() {
        true => anyhow!("it closed the connection without an answer"),
        false => anyhow!("the answer is not HTTP ({error})"),
    }
}

/// Encodes a text for a query: all but letters, digits and `-._~` as bytes in hexadecimal (RFC 3986, 2.1).
pub fn encoded(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    const LIMITS: Limits = Limits {
        time: Duration::from_secs(10),
        bytes: 1 << 20,
    };

    /// Reads from a server that answers each request with this, and then closes.
    fn read(answer: &'static [u8]) -> Result<Answer> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
                    head.push(byte[0]);
                }
                // A reader that has seen enough may be gone.
                let _ = stream.write_all(answer);
            });
            Address::parse(&url).unwrap().get("/", LIMITS)
        })
    }

    fn refused(answer: &'static [u8]) -> String {
        format!("{:#}", read(answer).unwrap_err())
    }

    #[test]
    fn an_answer_is_read_in_whole() {
        let read = |answer| read(answer).unwrap();
        let expected = |status, body: &str| Answer {
            status,
            body: body.into(),
        };
        let old = read(b"HTTP/1.0 200 OK\r\n\r\nto the end");
        assert_eq!(old, expected(StatusCode::OK, "to the end"));
        let pieces = read(b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        assert_eq!(pieces, expected(StatusCode::BAD_REQUEST, "abcde"));
    }

    #[test]
    fn whatever_a_server_does_there_is_one_sentence() {
        let starts = |told: &str| told.starts_with("cannot read http://127.0.0.1:");
        for (answer, why) in [
            (&b"SSH-2.0-OpenSSH_9.2\r\n"[..], "the answer is not HTTP"),
            (b"", "closed the connection without an answer"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
                "the answer ends midway",
            ),
        ] {
            let told = refused(answer);
            assert!(starts(&told) && told.contains(why), "{told}");
        }
        let huge = [b"HTTP/1.0 200 OK\r\n\r\n".as_slice(), &[b'x'; 2 << 20]].concat();
        let told = refused(huge.leak());
        assert!(told.ends_with("the answer has more than 1 MiB"), "{told}");
    }

    #[test]
    fn a_server_that_is_silent_or_not_there_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address =
            Address::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let short = Limits {
            time: Duration::from_millis(20),
            ..LIMITS
        };
        let told = format!("{:#}", address.get("/", short).unwrap_err());
        assert!(told.contains("no answer within"), "{told}");
        drop(listener);
        let told = format!("{:#}", address.get("/", LIMITS).unwrap_err());
        assert!(told.ends_with("nothing listens there"), "{told}");
    }

    #[test]
    fn an_address_has_a_host_and_the_usual_port() {
        let of = |url| {
            let address = Address::parse(url).ok()?;
            Some((address.host, address.path))
        };
        let expected = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(of("http://[::1]:9090"), expected("[::1]:9090", ""));
        assert_eq!(
            of("http://a.example/m?x=1"),
            expected("a.example:80", "/m?x=1")
        );
        for wrong in ["https://a/", "localhost:9100", "http:///metrics"] {
            assert!(of(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_query_is_encoded() {
        assert_eq!(
            encoded("sum by (a) (b[5m])~ü"),
            "sum%20by%20%28a%29%20%28b%5B5m%5D%29~%C3%BC"
        );
    }
}
