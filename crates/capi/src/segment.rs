//! Segments and their mappings.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd as _, OwnedFd};
use std::ptr::null_mut;

use pagemesh::{
    Access, Advice, ByteLen, Capability, Guarded, Kind, Lock, LockGuard, Manager, Mapping, Merge,
    Mesh, Options, Policy, Segment, Window, WriteLock,
};

use crate::error::{Failure, Outcome, call};
use crate::handle::{borrow, entries, give, take, text};

const RDONLY: c_int = 0;
const RDWR: c_int = 1;

/// `pagemesh_segment_t`: a segment, and the locks that C refers to by number.
#[derive(Debug)]
pub struct Handle {
    pub segment: Segment,
    /// Locks that were used through this handle.
    pub locks: Guarded<HashMap<u64, Held>>,
    /// Write locks by offset and length.
    pub pins: Guarded<HashMap<(u64, u64), Vec<WriteLock>>>,
}

/// A lock, and its guard while it is held through the handle.
#[derive(Debug)]
pub struct Held {
    pub lock: Lock,
    pub guard: Option<LockGuard>,
}

/// `pagemesh_options_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct COptions {
    pub mode: u32,
    pub exclusive: u32,
    pub policy: u32,
    pub manager: u32,
    pub window_ns: i64,
    pub local: u64,
    pub prefix: u64,
    pub replicas: u64,
    pub reserved: [u64; 1],
}

/// Mappings by address; C identifies a mapping by its address.
static MAPPINGS: Guarded<Option<HashMap<usize, Mapping>>> = Guarded::new(None);

impl Handle {
    /// A handle without locks.
    pub fn new(segment: Segment) -> Self {
        Self {
            segment,
            locks: Guarded::default(),
            pins: Guarded::default(),
        }
    }
}

impl COptions {
    pub fn read(self) -> Outcome<Options> {
        let mode = u16::try_from(self.mode).ok().filter(|mode| *mode <= 0o777);
        let mode = mode.ok_or_else(|| Failure::invalid("mode has bits beyond 0777"))?;
        if self.reserved != [0; 1] {
            return Err(Failure::invalid("a reserved option is not 0"));
        }
        let manager = match self.manager {
            0 => Manager::Dynamic,
            1 => Manager::Fixed,
            _ => return Err(Failure::invalid("there is no such manager")),
        };
        let window = match u64::try_from(self.window_ns) {
            Ok(nanos) => Window::Nanos(nanos),
            Err(_) => Window::Auto,
        };
        let policy = match self.policy {
            0 => Policy::Sequential { manager, window },
            number => named(number)?,
        };
        let policy = match self.local {
            0 => policy,
            local => policy.with_local(ByteLen(local)).map_err(|_| {
                Failure::invalid("local is for PAGEMESH_PRIVATE, and 65536 at least")
            })?,
        };
        let policy = match self.prefix {
            0 => policy,
            prefix => with_prefix(policy, prefix)?,
        };
        Ok(Options {
            mode,
            policy,
            exclusive: self.exclusive != 0,
            replicas: u8::try_from(self.replicas)
                .map_err(|_| Failure::invalid("a segment has 0 or 1 replicas"))?,
        })
    }
}

/// The same policy with short pages of so many bytes; the daemon says which are possible.
fn with_prefix(policy: Policy, bytes: u64) -> Outcome<Policy> {
    match (policy, u16::try_from(bytes)) {
        (Policy::Views { .. }, Ok(prefix)) => Ok(Policy::Views { prefix }),
        _ => Err(Failure::invalid(
            "prefix is for PAGEMESH_VIEWS, and 4096 at most",
        )),
    }
}

/// A policy without a manager and a window, by its number in the header.
fn named(number: u32) -> Outcome<Policy> {
    let name = match number {
        1 => "release",
        2 => "eager",
        3 => "hybrid",
        4 => "views",
        5 => "private",
        6 => "private-copies",
        _ => return Err(Failure::invalid("there is no such policy")),
    };
    name.parse()
        .map_err(|_| Failure::invalid("there is no such policy"))
}

/// The value for a number of the header, which is an index into `all`.
fn numbered<T: Copy>(all: &[T], number: c_int, unknown: &'static str) -> Outcome<T> {
    let place = usize::try_from(number).ok();
    let found = place.and_then(|place| all.get(place)).copied();
    found.ok_or_else(|| Failure::invalid(unknown))
}

fn access(number: c_int) -> Outcome<Access> {
    match number {
        RDONLY => Ok(Access::ReadOnly),
        RDWR => Ok(Access::Writable),
        _ => Err(Failure::invalid(
            "access is PAGEMESH_RDONLY or PAGEMESH_RDWR",
        )),
    }
}

/// Creates or opens a segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_create(
    mesh: *mut Mesh,
    name: *const c_char,
    size: u64,
    options: *const COptions,
) -> *mut Handle {
    call(null_mut(), || {
        // SAFETY: the header asks for a handle, a string, and options or NULL.
        let (mesh, name, options) = unsafe { (borrow(mesh)?, text(name)?, options.as_ref()) };
        let options = options.map_or_else(|| Ok(Options::default()), |given| given.read())?;
        let segment = mesh.create(name, size, options)?;
        Ok(give(Handle::new(segment)))
    })
}

/// Opens a segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_open(
    mesh: *mut Mesh,
    name: *const c_char,
    how: c_int,
) -> *mut Handle {
    call(null_mut(), || {
        // SAFETY: the header asks for a handle and a string.
        let (mesh, name) = unsafe { (borrow(mesh)?, text(name)?) };
        let segment = mesh.open(name, access(how)?)?;
        Ok(give(Handle::new(segment)))
    })
}

/// A descriptor with which others may open the segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_capability(segment: *mut Handle, how: c_int) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let Handle { segment, .. } = unsafe { borrow(segment)? };
        let capability = segment.capability(access(how)?)?;
        Ok(OwnedFd::from(capability).into_raw_fd())
    })
}

/// Opens the segment of a capability.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_redeem(mesh: *mut Mesh, capability: c_int) -> *mut Handle {
    call(null_mut(), || {
        // SAFETY: the header asks for a handle.
        let mesh = unsafe { borrow(mesh)? };
        let closed = || Failure::invalid("the capability is no open descriptor");
        if capability < 0 {
            return Err(closed());
        }
        // SAFETY: it is not -1; the kernel says whether it is open.
        let fd = unsafe { BorrowedFd::borrow_raw(capability) };
        let fd = fd.try_clone_to_owned().map_err(|_| closed())?;
        let segment = mesh.redeem(&Capability::from(fd))?;
        Ok(give(Handle::new(segment)))
    })
}

/// Closes a segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_close(segment: *mut Handle) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle that is not used any more.
        let handle = unsafe { take(segment) };
        let Handle {
            segment,
            locks,
            pins,
        } = handle.ok_or_else(|| Failure::invalid("the segment is NULL"))?;
        drop((locks, pins, segment));
        Ok(0)
    })
}

/// The size of a segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_size(segment: *const Handle) -> u64 {
    call(0, || {
        // SAFETY: the header asks for a handle.
        let handle = unsafe { borrow(segment)? };
        Ok(handle.segment.size())
    })
}

/// Maps a segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_map(
    segment: *mut Handle,
    address: *mut c_void,
    offset: u64,
    length: usize,
    how: c_int,
) -> *mut c_void {
    call(null_mut(), || {
        // SAFETY: the header asks for a handle.
        let Handle { segment, .. } = unsafe { borrow(segment)? };
        let wish = (!address.is_null()).then_some(address as usize);
        let length = match length {
            0 => segment.size().saturating_sub(offset),
            length => length as u64,
        };
        let write = access(how)? == Access::Writable;
        let mapping = segment.map_at(wish, offset, length, write)?;
        let address = mapping.as_ptr();
        MAPPINGS
            .lock()
            .get_or_insert_default()
            .insert(address as usize, mapping);
        Ok(address.cast())
    })
}

/// Unmaps the mapping at an address.
#[unsafe(no_mangle)]
pub extern "C" fn pagemesh_unmap(address: *mut c_void) -> c_int {
    call(-1, || {
        let mut mappings = MAPPINGS.lock();
        let mapping = mappings
            .as_mut()
            .and_then(|known| known.remove(&(address as usize)));
        drop(mappings);
        let mapping =
            mapping.ok_or_else(|| Failure::invalid("no segment is mapped at that address"))?;
        drop(mapping);
        Ok(0)
    })
}

/// Declares a range in which nodes accumulate (a reduction).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_reduce(
    segment: *mut Handle,
    offset: u64,
    length: u64,
    merge: c_int,
    kind: c_int,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let Handle { segment, .. } = unsafe { borrow(segment)? };
        let merge = numbered(&Merge::ALL, merge, "numbers are not combined in such a way")?;
        let kind = numbered(&Kind::ALL, kind, "there are no such numbers")?;
        segment.reduce(offset..offset.saturating_add(length), merge, kind)?;
        Ok(0)
    })
}

/// Announces how this process will use bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_advise(
    segment: *mut Handle,
    offset: u64,
    length: u64,
    advice: c_int,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let Handle { segment, .. } = unsafe { borrow(segment)? };
        let advice = numbered(&Advice::ALL, advice, "there is no such advice")?;
        let length = match length {
            0 => segment.size().saturating_sub(offset),
            length => length,
        };
        segment.advise(offset..offset.saturating_add(length), advice)?;
        Ok(0)
    })
}

/// Announces the bytes that this process will touch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_will_need(
    segment: *mut Handle,
    offsets: *const u64,
    count: usize,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle, and for so many offsets.
        let (Handle { segment, .. }, offsets) =
            unsafe { (borrow(segment)?, entries(offsets, count, "the offsets")?) };
        let bytes = offsets
            .iter()
            .map(|offset| *offset..offset.saturating_add(1));
        segment.will_need(bytes)?;
        Ok(0)
    })
}

/// Removes a segment's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_remove(mesh: *mut Mesh, name: *const c_char) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle and a string.
        let (mesh, name) = unsafe { (borrow(mesh)?, text(name)?) };
        mesh.remove(name)?;
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the header's `#define`s number the table's entries.
    fn defined<T: std::fmt::Debug>(prefix: &str, all: &[T]) {
        let header = include_str!("../include/pagemesh.h");
        for (number, item) in all.iter().enumerate() {
            let name = match format!("{item:?}").to_uppercase().as_str() {
                "F32" => "FLOAT".to_owned(),
                "F64" => "DOUBLE".to_owned(),
                "DONTNEEDSHORT" => "DONTNEED_SHORT".to_owned(),
                other => other.to_owned(),
            };
            let (name, number) = (format!("PAGEMESH_{prefix}{name}"), number.to_string());
            let mut lines = header.lines().map(|line| line.split_whitespace());
            let line = lines.find(|words| words.clone().nth(1) == Some(&name));
            let found = line.and_then(|mut words| words.nth(2));
            assert_eq!(found, Some(number.as_str()), "{name}");
        }
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        defined("", &Merge::ALL);
        defined("", &Kind::ALL);
        defined("ADVICE_", &Advice::ALL);
        assert_eq!(numbered(&Merge::ALL, 3, "").ok(), Some(Merge::Or));
        for outside in [-1, 5, c_int::MAX, c_int::MIN] {
            assert!(numbered(&Merge::ALL, outside, "").is_err());
        }
    }
}
