//! `move_pages(2)`, as a move and as a question.
#![expect(unsafe_code, reason = "the system call takes three parallel arrays")]

use rustix::io::Errno;

use super::last_errno;

/// Which pages are moved, by who maps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// Only pages that the process alone maps (`MPOL_MF_MOVE`).
    Alone = 1 << 1,
    /// Pages that others map too (`MPOL_MF_MOVE_ALL`); needs `CAP_SYS_NICE`.
    ByOthersToo = 1 << 2,
}

/// Asks on which node each page is: `status[i]` becomes a node number or a negative errno.
///
/// # Panics
/// When the slices differ in length.
pub(crate) fn query(pid: u32, addresses: &[u64], status: &mut [i32]) -> Result<(), Errno> {
    call(pid, addresses, None, status, Mapped::Alone).map(drop)
}

/// Moves each page to the node of the same index; returns the number of pages that the kernel could
/// not move or did not reach.
///
/// # Panics
/// When the slices differ in length.
pub(crate) fn order(
    pid: u32,
    addresses: &[u64],
    nodes: &[i32],
    status: &mut [i32],
    which: Mapped,
) -> Result<u64, Errno> {
    call(pid, addresses, Some(nodes), status, which)
}

fn call(
    pid: u32,
    addresses: &[u64],
    nodes: Option<&[i32]>,
    status: &mut [i32],
    which: Mapped,
) -> Result<u64, Errno> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
    assert_eq!(addresses.len(), status.len(), "one status per page");
    assert!(
        nodes.is_none_or(|nodes| nodes.len() == addresses.len()),
        "one node per page"
    );
    // SAFETY: the kernel reads `addresses.len()` words (the addresses are values to it, never
    // dereferenced here) and as many nodes, and writes as many statuses; the asserts above say
    // that all three have that length. A null `nodes` is the documented way to ask only.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            addresses.len(),
            addresses.as_ptr(),
            nodes.map_or(std::ptr::null(), <[i32]>::as_ptr),
            status.as_mut_ptr(),
            which as libc::c_int,
        )
    };
    u64::try_from(answer).map_err(|_| last_errno())
}
