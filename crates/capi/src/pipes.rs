//! Pipes, and groups of processes that send each other messages.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use pagemesh::{End, Group, GroupOptions, Mesh, Peer, Pipe, PipeOptions};

use crate::error::{Failure, Outcome, call};
use crate::handle::{borrow, entries, give, limit, put, take, text};

/// `pagemesh_received_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CReceived {
    pub kind: i64,
    pub length: u64,
    pub from: u32,
    pub reserved: u32,
}

fn end(number: c_int) -> Outcome<End> {
    match number {
        0 => Ok(End::Free),
        1 => Ok(End::First),
        2 => Ok(End::Second),
        _ => Err(Failure::invalid("there is no such end of a pipe")),
    }
}

fn mode(bits: u32) -> Outcome<u16> {
    let mode = u16::try_from(bits).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| Failure::invalid("mode has bits beyond 0777"))
}

/// Refuses a message that does not fit.
fn check_room(place: *mut c_void, length: usize, capacity: usize) -> Outcome<()> {
    if length > capacity {
        let why =
            format!("the message has {length} bytes, and there is room for {capacity}; it stays");
        return Err(Failure::invalid(&why));
    }
    if place.is_null() && length > 0 {
        return Err(Failure::invalid("the place for the message is NULL"));
    }
    Ok(())
}

/// Copies a message to C.
///
/// # Safety
/// Room for it.
unsafe fn copy(bytes: &[u8], place: *mut c_void) -> isize {
    if !bytes.is_empty() {
        // SAFETY: the caller's promise.
        unsafe {
            bytes
                .as_ptr()
                .copy_to_nonoverlapping(place.cast(), bytes.len())
        };
    }
    isize::try_from(bytes.len()).unwrap_or(isize::MAX)
}

/// Creates or opens a pipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_pipe_create(
    mesh: *mut Mesh,
    name: *const c_char,
    size: usize,
    which: c_int,
    bits: u32,
) -> *mut Pipe {
    call(null_mut(), || {
        // SAFETY: the header asks for a handle and a string.
        let (mesh, name) = unsafe { (borrow(mesh)?, text(name)?) };
        let options = PipeOptions {
            mode: mode(bits)?,
            size,
            end: end(which)?,
        };
        Ok(give(Pipe::create(mesh, name, options)?))
    })
}

/// Opens a pipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_pipe_open(
    mesh: *mut Mesh,
    name: *const c_char,
    which: c_int,
) -> *mut Pipe {
    call(null_mut(), || {
        // SAFETY: the header asks for a handle and a string.
        let (mesh, name) = unsafe { (borrow(mesh)?, text(name)?) };
        Ok(give(Pipe::open(mesh, name, end(which)?)?))
    })
}

/// Closes an end of a pipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_pipe_close(pipe: *mut Pipe) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle that is not used any more.
        let pipe = unsafe { take(pipe) };
        pipe.ok_or_else(|| Failure::invalid("the pipe is NULL"))?;
        Ok(0)
    })
}

/// Bytes of the longest message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_pipe_size(pipe: *const Pipe) -> usize {
    // SAFETY: the header asks for a handle.
    call(0, || Ok(unsafe { borrow(pipe)? }.size()))
}

/// What is known of the other end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_pipe_peer(pipe: *const Pipe) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        Ok(match unsafe { borrow(pipe)? }.peer()? {
            Peer::Absent => 0,
            Peer::Open => 1,
            Peer::Closed => 2,
            Peer::Dead => 3,
        })
    })
}

/// Sends a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_pipe_send(
    pipe: *const Pipe,
    bytes: *const c_void,
    length: usize,
    timeout_ns: i64,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle and so many bytes.
        let (pipe, message) = unsafe {
            (
                borrow(pipe)?,
                entries(bytes.cast::<u8>(), length, "the bytes of the message")?,
            )
        };
        pipe.send(message, limit(timeout_ns))?;
        Ok(0)
    })
}

/// Receives a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_pipe_receive(
    pipe: *const Pipe,
    place: *mut c_void,
    capacity: usize,
    timeout_ns: i64,
) -> isize {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let pipe = unsafe { borrow(pipe)? };
        let room = if place.is_null() { 0 } else { capacity };
        let message = match pipe.receive_within(room, limit(timeout_ns))? {
            Ok(message) => message,
            Err(length) => {
                check_room(place, length, capacity)?;
                return Err(Failure::invalid("the place for the message is NULL"));
            }
        };
        // SAFETY: the header asks for room for `capacity` bytes.
        Ok(unsafe { copy(&message, place) })
    })
}

/// The read and the write pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_pipe_pointers(
    pipe: *const Pipe,
    read: *mut *const c_void,
    write: *mut *mut c_void,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let (from, to) = unsafe { borrow(pipe)? }.pointers();
        // SAFETY: the header asks for places for the results.
        unsafe { (put(read, from.cast())?, put(write, to.cast())?) };
        Ok(0)
    })
}

/// Waits until a message can be stored at the write pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_pipe_wait_writable(pipe: *const Pipe, timeout_ns: i64) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        unsafe { borrow(pipe)? }.wait_writable(limit(timeout_ns))?;
        Ok(0)
    })
}

/// Sends what was stored at the write pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_pipe_write_done(pipe: *const Pipe, length: usize) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        unsafe { borrow(pipe)? }.write_done(length)?;
        Ok(0)
    })
}

/// Waits until there is a message at the read pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_pipe_wait_readable(pipe: *const Pipe, timeout_ns: i64) -> isize {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let length = unsafe { borrow(pipe)? }.wait_readable(limit(timeout_ns))?;
        Ok(isize::try_from(length).unwrap_or(isize::MAX))
    })
}

/// The message at the read pointer has been read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_pipe_read_done(pipe: *const Pipe) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        unsafe { borrow(pipe)? }.read_done()?;
        Ok(0)
    })
}

/// Joins a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_group_join(
    mesh: *mut Mesh,
    name: *const c_char,
    number: u32,
    count: u32,
    size: usize,
    bits: u32,
) -> *mut Group {
    call(null_mut(), || {
        // SAFETY: the header asks for a handle.
        let mesh = unsafe { borrow(mesh)? };
        let options = GroupOptions {
            mode: mode(bits)?,
            size,
        };
        if name.is_null() {
            return Ok(give(Group::of_job(mesh, options)?));
        }
        // SAFETY: the header asks for a string.
        let name = unsafe { text(name)? };
        Ok(give(Group::join(mesh, name, (number, count), options)?))
    })
}

/// Leaves a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_group_leave(group: *mut Group) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle that is not used any more.
        let group = unsafe { take(group) };
        group.ok_or_else(|| Failure::invalid("the group is NULL"))?;
        Ok(0)
    })
}

/// Removes the names of a group's pipes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_group_remove(group: *const Group) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        unsafe { borrow(group)? }.remove()?;
        Ok(0)
    })
}

/// The number of this process in the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_group_number(group: *const Group) -> u32 {
    // SAFETY: the header asks for a handle.
    call(0, || Ok(unsafe { borrow(group)? }.number()))
}

/// How many processes the group has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_group_count(group: *const Group) -> u32 {
    // SAFETY: the header asks for a handle.
    call(0, || Ok(unsafe { borrow(group)? }.count()))
}

/// Sends a message to a process of the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_csend(
    group: *const Group,
    kind: i64,
    bytes: *const c_void,
    length: usize,
    to: u32,
    timeout_ns: i64,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle and so many bytes.
        let (group, message) = unsafe {
            (
                borrow(group)?,
                entries(bytes.cast::<u8>(), length, "the bytes of the message")?,
            )
        };
        group.csend(kind, message, to, limit(timeout_ns))?;
        Ok(0)
    })
}

/// Receives a message from processes of the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_crecv(
    group: *const Group,
    kind: i64,
    from: i64,
    place: *mut c_void,
    capacity: usize,
    received: *mut CReceived,
    timeout_ns: i64,
) -> isize {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let group = unsafe { borrow(group)? };
        let kind = (kind >= 0).then_some(kind);
        let from = match from {
            ..0 => None,
            from => Some(u32::try_from(from).map_err(|_| Failure::invalid("no such process"))?),
        };
        let message = group.crecv(kind, from, limit(timeout_ns))?;
        if let Err(failure) = check_room(place, message.bytes.len(), capacity) {
            group.put_back(message);
            return Err(failure);
        }
        // SAFETY: the header asks for a place, or NULL.
        if let Some(received) = unsafe { received.as_mut() } {
            *received = CReceived {
                kind: message.kind,
                length: message.bytes.len() as u64,
                from: message.from,
                reserved: 0,
            };
        }
        // SAFETY: the header asks for room for `capacity` bytes.
        Ok(unsafe { copy(&message.bytes, place) })
    })
}
