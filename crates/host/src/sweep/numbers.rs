//! Numbers that threads have been given of late, for the price of one small file.
//!
//! The kernel hands out the numbers of threads in ascending order, and `/proc/loadavg` ends with the latest one. So those
//! that were started since a number was the latest have the numbers after it. One that nobody has may be of a thread
//! that is just being started, so it is asked for once more the next time. Where numbers have begun again from the lowest,
//! or more than [`MOST`] were handed out, none of them is asked for.

use crate::files::Root;
use crate::kernel::Errno;
use crate::proc::{decimal, words};

/// Numbers that are asked for in one look (chosen here).
const MOST: u32 = 4096;

/// Which numbers are new.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The latest one, if known.
    latest: Option<u32>,
    /// Those that nobody had when they were new.
    unseen: Vec<u32>,
}

impl Numbers {
    /// Numbers handed out from now on are new.
    pub(super) fn begin(&mut self, root: &Root) {
        self.latest = latest(root);
        self.unseen.clear();
    }

    /// Asks for each new number and for those that nobody had the last time. Returns those that somebody has, ascending.
    pub(super) fn take(
        &mut self,
        root: &Root,
        mut ask: impl FnMut(u32) -> Result<(), Errno>,
    ) -> Vec<u32> {
        let latest = latest(root);
        let before = std::mem::replace(&mut self.latest, latest);
        let mut numbers = std::mem::take(&mut self.unseen);
        numbers.retain(|&number| ask(number).is_ok());
        if let (Some(before), Some(latest)) = (before, latest)
            && latest.saturating_sub(before) <= MOST
        {
            for number in (before..latest).map(|number| number + 1) {
                match ask(number) {
                    Ok(()) => numbers.push(number),
                    Err(_) => self.unseen.push(number),
                }
            }
        }
        numbers
    }
}

/// The latest number that was handed out.
fn latest(root: &Root) -> Option<u32> {
    let text = root.read("proc/loadavg").ok()?;
    let last = words(text.trim_ascii_end()).last()?;
    decimal(last)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fake;

    #[test]
    fn a_number_is_asked_for_when_it_is_new_and_once_more_if_nobody_had_it() {
        let (folder, root) = fake::root();
        fs::create_dir_all(folder.path().join("proc")).unwrap();
        let mut numbers = Numbers::default();
        let mut take = |latest: &str, there: &[u32]| {
            let text = format!("0.52 0.58 0.59 2/345 {latest}\n");
            fs::write(folder.path().join("proc/loadavg"), text).unwrap();
            let mut asked = Vec::new();
            let found = numbers.take(&root, |number| {
                asked.push(number);
                match there.contains(&number) {
                    true => Ok(()),
                    false => Err(Errno::SRCH),
                }
            });
            (asked, found)
        };
        assert_eq!(take("10", &[10]), (vec![], vec![]));
        assert_eq!(take("13", &[11, 13]), (vec![11, 12, 13], vec![11, 13]));
        assert_eq!(take("14", &[11, 13]), (vec![12, 14], vec![]));
        assert_eq!(take("14", &[12, 14]), (vec![14], vec![14]));
        assert_eq!(take("14", &[14]), (vec![], vec![]));
        // They have begun again; then too many are new; then the file is nonsense.
        assert_eq!(take("3", &[]), (vec![], vec![]));
        assert_eq!(take("5", &[4]), (vec![4, 5], vec![4]));
        assert_eq!(take("100000", &[]), (vec![5], vec![]));
        assert_eq!(take("x", &[]), (vec![], vec![]));
        assert_eq!(take("100002", &[]), (vec![], vec![]));
        fs::remove_file(folder.path().join("proc/loadavg")).unwrap();
        assert_eq!(numbers.take(&root, |_| Ok(())), [0; 0]);
    }
}
