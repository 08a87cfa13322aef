//! Where a trace's bytes come from. Any number of readers may read from any place at once.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::error::Error;

#[derive(Debug)]
pub(super) enum Source {
    File { file: File, length: u64 },
    Bytes(Vec<u8>),
}

impl Source {
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::File { length, .. } => *length,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Fills `buffer` from byte `at` on. Returns false when the trace ends before the buffer is full.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn read(&self, at: u64, buffer: &mut [u8]) -> Result<bool, Error> {
        let end = at.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.length()) {
            return Ok(false);
        }
        match self {
            Self::File { file, .. } => match file.read_exact_at(buffer, at) {
                Ok(()) => Ok(true),
                Err(why) if why.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
                Err(why) => Err(Error::Read { at, why }),
            },
            Self::Bytes(bytes) => {
                // The check above has shown that both fit.
                let at = at as usize;
                buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
                Ok(true)
            }
        }
    }
}
