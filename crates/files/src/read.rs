//! Reading a file up to a limit.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::FileError;

/// The text of a file.
///
/// # Errors
/// As [`bytes`]; [`FileError::NotUtf8`] for a file that is not text.
pub fn text(path: &Path, limit: u64) -> Result<String, FileError> {
    String::from_utf8(bytes(path, limit)?).map_err(|error| FileError::NotUtf8 {
        path: path.to_owned(),
        at: error.utf8_error().valid_up_to(),
    })
}

/// Whether opening this path waits for a writer: it is a named pipe, but not one that a shell passes under `/dev`.
pub fn is_named_pipe(path: &Path) -> bool {
    !path.starts_with("/dev") && fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// The bytes of a file. [Named pipes](is_named_pipe) are refused.
///
/// # Errors
/// [`FileError`] says whether the file is missing, is something else, is larger than `limit` bytes
/// or cannot be read.
pub fn bytes(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    let refused = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => FileError::Missing {
            path: path.to_owned(),
        },
        ErrorKind::PermissionDenied => FileError::Denied {
            path: path.to_owned(),
        },
        _ => FileError::Io {
            path: path.to_owned(),
            why: error.to_string(),
        },
    };
    let kind = fs::metadata(path).map_err(refused)?.file_type();
    let other = match () {
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_socket() => Some("a socket"),
        () if is_named_pipe(path) => Some("a named pipe"),
        () => None,
    };
    if let Some(kind) = other {
        return Err(FileError::NotAFile {
            path: path.to_owned(),
            kind,
        });
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
        .map_err(refused)?;
    if bytes.len() as u64 > limit {
        return Err(FileError::TooLarge {
            path: path.to_owned(),
            limit,
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_named_with_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        let told = |limit| text(&path, limit).map_err(|error| error.to_string());
        let cannot = format!("cannot read {}: ", path.display());
        assert_eq!(told(9), Err(format!("{cannot}there is no such file")));
        fs::create_dir(&path).unwrap();
        assert_eq!(
            told(9),
            Err(format!("{cannot}it is a directory, not a file"))
        );
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "a = 1\n").unwrap();
        assert_eq!(told(6), Ok("a = 1\n".to_owned()));
        let large = format!(
            "{} is larger than 5 bytes, which no such file is; nothing was read",
            path.display()
        );
        assert_eq!(told(5), Err(large));
        fs::write(&path, b"a = '\xff'").unwrap();
        assert_eq!(told(9), Err(format!("{cannot}byte 5 is not UTF-8 text")));
    }

    #[test]
    fn a_file_without_end_is_read_up_to_the_limit() {
        let zero = Path::new("/dev/zero");
        assert!(matches!(text(zero, 100), Err(FileError::TooLarge { .. })));
    }
}
