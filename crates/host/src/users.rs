//! Users by name.

use std::path::Path;

use crate::error::HostError;

/// The number of a user by name, from `/etc/passwd` under a root; a number is taken as it is.
///
/// # Errors
/// When the file cannot be read or does not name the user.
pub fn user_number(root: &Path, name: &str) -> Result<u32, HostError> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let path = root.join("etc/passwd");
    let text = std::fs::read_to_string(&path).map_err(|source| HostError::Read {
        path: path.clone(),
        source,
        remedy: "give the user's number instead",
    })?;
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
        })
        .next()
        .ok_or_else(|| HostError::NoSuchUser {
            name: name.to_owned(),
            path,
        })
}
