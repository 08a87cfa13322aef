//! A pinned map of hints: `bpf(2)`, as far as it opens one and reads and writes its elements.
//!
//! The map is of the kind that keeps a value for each task (`BPF_MAP_TYPE_TASK_STORAGE`). Its key is a pidfd; a task's
//! value ends with the task, and no task inherits it. Numbers and layouts are from include/uapi/linux/bpf.h. A process
//! that has the map open needs no capability to write to it.
#![expect(unsafe_code, reason = "the system call takes pointers")]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

use super::last_errno;

const LOOK_UP: libc::c_int = 1;
const UPDATE: libc::c_int = 2;
const OPEN: libc::c_int = 7;
const ABOUT: libc::c_int = 15;

const TASK_STORAGE: u32 = 29;

/// What scx_layered keeps for a task: the hint, and room for later.
type Value = [u64; 4];

#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct Object {
    path: u64,
    descriptor: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct About {
    descriptor: u32,
    length: u32,
    info: u64,
}

/// How the information on a map begins.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    kind: u32,
    id: u32,
    key_bytes: u32,
    value_bytes: u32,
}

/// An open map of hints.
#[derive(Debug)]
pub struct HintMap(OwnedFd);

impl HintMap {
    /// Opens the map pinned at `path`; `EINVAL` if that is no map of hints.
    pub(crate) fn open(path: &CStr) -> Result<Self, Errno> {
        let object = Object {
            path: path.as_ptr().addr() as u64,
            ..Object::default()
        };
        // SAFETY: the kernel reads the path, which ends with a zero and outlives the call.
        let descriptor = unsafe { bpf(OPEN, &object) }?;
        // SAFETY: the kernel has just given this descriptor to us alone.
        let map = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let mut info = MapInfo::default();
        let about = About {
            descriptor: number(map.as_raw_fd()),
            length: size_of::<MapInfo>() as u32,
            info: (&raw mut info).addr() as u64,
        };
        // SAFETY: `info` is valid for writes of the length given, and the kernel writes no more.
        unsafe { bpf(ABOUT, &about) }?;
        let is_of_hints = info.kind == TASK_STORAGE
            && info.key_bytes as usize == size_of::<RawFd>()
            && info.value_bytes as usize == size_of::<Value>();
        is_of_hints.then_some(Self(map)).ok_or(Errno::INVAL)
    }

    /// Gives a task a hint.
    pub(crate) fn set(&self, task: BorrowedFd<'_>, hint: u64) -> Result<(), Errno> {
        let mut value: Value = [hint, 0, 0, 0];
        self.element(UPDATE, task, &mut value)
    }

    /// The hint of a task; `None` when it has none.
    pub(crate) fn get(&self, task: BorrowedFd<'_>) -> Result<Option<u64>, Errno> {
        let mut value = Value::default();
        match self.element(LOOK_UP, task, &mut value) {
            Ok(()) => Ok(Some(value[0])),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn element(
        &self,
        what: libc::c_int,
        task: BorrowedFd<'_>,
        value: &mut Value,
    ) -> Result<(), Errno> {
        let key = task.as_raw_fd();
        let element = Element {
            map: number(self.0.as_raw_fd()),
            key: (&raw const key).addr() as u64,
            value: value.as_mut_ptr().addr() as u64,
            ..Element::default()
        };
        // SAFETY: `open` has checked that a key of this map has the size of `key`, and a value that of `value`; both outlive
        // the call, and the kernel reads and writes no more.
        unsafe { bpf(what, &element) }.map(drop)
    }

    /// Not a real map, for fake kernels.
    #[cfg(test)]
    pub(crate) fn made_up(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

fn number(descriptor: RawFd) -> u32 {
    u32::try_from(descriptor).expect("an open descriptor is not negative")
}

/// # Safety
/// What the attribute of this call points to is valid for what the call reads and writes there.
unsafe fn bpf<T>(what: libc::c_int, attribute: &T) -> Result<RawFd, Errno> {
    // SAFETY: the kernel reads as many bytes of the attribute as it has; what it points to is the caller's promise.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            what,
            std::ptr::from_ref(attribute),
            size_of::<T>(),
        )
    };
    match answer {
        0.. => RawFd::try_from(answer).map_err(|_| Errno::INVAL),
        _ => Err(last_errno()),
    }
}
