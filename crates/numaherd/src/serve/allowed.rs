//! Who may ask over HTTP: checks the name under which the server was asked, and the token.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Result;

use crate::exit::ended;

/// Fewest and most bytes of a token: fewer can be guessed, more is another file.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 16..=1024;

/// The secret that a client must know.
pub struct Token(Vec<u8>);

impl Token {
    /// Reads a token from a file that others cannot read; white space around it does not count.
    ///
    /// # Errors
    /// The file cannot be read, others may read it, or its content is not a token.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let wrong = |why: String| ended!(Usage, "the token file {shown}: {why}");
        let mut file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let meta = file.metadata().map_err(|error| wrong(error.to_string()))?;
        let own = rustix::process::geteuid().as_raw();
        if meta.mode() & 0o077 != 0 || (meta.uid() != own && meta.uid() != 0) {
            return Err(wrong(format!(
                "others may read it, or it belongs to someone else: chown {own} {shown} && \
                 chmod 600 {shown}"
            )));
        }
        let mut bytes = Vec::new();
        file.by_ref()
            .take(*TOKEN_BYTES.end() as u64 + 2)
            .read_to_end(&mut bytes)
            .map_err(|error| wrong(error.to_string()))?;
        let token = bytes.trim_ascii().to_vec();
        if !TOKEN_BYTES.contains(&token.len()) || !token.iter().all(u8::is_ascii_graphic) {
            return Err(wrong(
                "a token is 16 to 1024 visible ASCII characters, for instance of \
                 `openssl rand -hex 32`"
                    .to_owned(),
            ));
        }
        Ok(Self(token))
    }

    /// Whether this is the value of an `Authorization` header that has the token. The time that this takes depends
    /// only on the value's length.
    pub fn is_in(&self, authorization: &[u8]) -> bool {
        let Some((scheme, given)) = authorization.split_at_checked(b"Bearer ".len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"Bearer ") && same(given, &self.0)
    }
}

/// Whether two byte strings are equal. The time that this takes does not reveal where they differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differs = one
        .iter()
        .zip(other)
        .fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b)));
    one.len() == other.len() && differs == 0
}

/// Whether a `Host` header is a local name of this machine. A foreign page whose name was made to resolve to this
/// machine (DNS rebinding) has its own, foreign name.
pub fn is_local_name(host: &str) -> bool {
    let without_port = match host.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((address, port)) if is_port(port) => address,
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            Some(_) => return false,
            None => host,
        },
    };
    without_port.eq_ignore_ascii_case("localhost")
        || without_port
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':').unwrap_or(text);
    digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_names_of_this_machine_from_within_are_local() {
        for local in [
            "localhost",
            "LocalHost:9741",
            "127.0.0.1",
            "127.0.0.1:9741",
            "127.1.2.3:1",
            "[::1]:9741",
            "[::1]",
        ] {
            assert!(is_local_name(local), "{local}");
        }
        for other in [
            "",
            "evil.example",
            "evil.example:9741",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9741",
            "192.168.0.1",
            "0.0.0.0",
            "::1",
            "[::1].evil.example",
            "127.0.0.1:80:evil",
            "localhost:x",
        ] {
            assert!(!is_local_name(other), "{other}");
        }
    }

    #[test]
    fn a_token_is_known_whole_or_not_at_all() {
        let token = Token(b"0123456789abcdef".to_vec());
        assert!(token.is_in(b"Bearer 0123456789abcdef"));
        assert!(token.is_in(b"bearer 0123456789abcdef"));
        for wrong in [
            &b""[..],
            b"Bearer ",
            b"Bearer 0123456789abcde",
            b"Bearer 0123456789abcdef0",
            b"Bearer 0123456789abcdeF",
            b"Basic 0123456789abcdef",
            b"0123456789abcdef",
        ] {
            assert!(!token.is_in(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_token_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let with = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&path)
        };
        assert!(with("0123456789abcdef\n", 0o600).is_ok());
        let why = |read: Result<Token>| read.err().unwrap().to_string();
        assert!(why(with("0123456789abcdef\n", 0o640)).contains("chmod 600"));
        assert!(why(with("0123456789abcdef\n", 0o604)).contains("chmod 600"));
        assert!(why(with("short\n", 0o600)).contains("16 to 1024"));
        assert!(why(with("0123456789 abcdef\n", 0o600)).contains("16 to 1024"));
        assert!(why(with(&"a".repeat(2000), 0o600)).contains("16 to 1024"));
        assert!(why(Token::read(&directory.path().join("none"))).contains("No such file"));
    }
}
