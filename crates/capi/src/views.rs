//! Views of segments of policy `views`, and boards.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use pagemesh::{Access, Board, BoardOptions, Guarded, Mesh, View, Views};

use crate::error::{Failure, Outcome, call};
use crate::handle::{borrow, entries, give, limit, put, take, text};
use crate::segment::Handle;

/// Bits of a view, as the header has them.
const SHORT: c_int = 1;
const DATA: c_int = 2;
const INCONSISTENT: c_int = 4;

const REPLICAS: &str = "a board has 0 or 1 replicas";

/// Views by the address of their first window.
static VIEWS: Guarded<Option<HashMap<usize, Views>>> = Guarded::new(None);

/// `pagemesh_board_t`. Its calls exclude each other.
#[derive(Debug)]
pub struct BoardHandle(Guarded<Board>);

/// `pagemesh_state_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CState {
    number: u64,
    age_ns: u64,
    missed: u64,
    length: u64,
    writer: u32,
    went_back: u32,
}

fn view(bits: c_int) -> Outcome<View> {
    let view = View {
        short: bits & SHORT != 0,
        data_driven: bits & DATA != 0,
        consistent: bits & INCONSISTENT == 0,
    };
    if bits & !(SHORT | DATA | INCONSISTENT) != 0 || !view.is_possible() {
        return Err(Failure::invalid("there is no such view"));
    }
    Ok(view)
}

/// Maps all views of a segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_map_views(
    segment: *mut Handle,
    stride: *mut usize,
) -> *mut c_void {
    call(null_mut(), || {
        // SAFETY: the header asks for a handle.
        let Handle { segment, .. } = unsafe { borrow(segment)? };
        let views = segment.map_views()?;
        // SAFETY: the header asks for a place for the result.
        unsafe { put(stride, views.stride())? };
        let base = views.base();
        VIEWS
            .lock()
            .get_or_insert_default()
            .insert(base as usize, views);
        Ok(base.cast())
    })
}

/// Unmaps all views of a segment.
#[unsafe(no_mangle)]
pub extern "C" fn pagemesh_unmap_views(base: *mut c_void) -> c_int {
    call(-1, || {
        let mut all = VIEWS.lock();
        let views = all.as_mut().and_then(|all| all.remove(&(base as usize)));
        drop(all);
        views.ok_or_else(|| Failure::invalid("no views are mapped at that address"))?;
        Ok(0)
    })
}

/// Does something with a kind of view of a segment.
///
/// # Safety
/// The segment is a handle.
unsafe fn on_view(
    segment: *mut Handle,
    bits: c_int,
    work: impl FnOnce(&Handle, View) -> Result<(), Failure>,
) -> c_int {
    call(-1, || {
        // SAFETY: the caller promises it.
        work(unsafe { borrow(segment)? }, view(bits)?)?;
        Ok(0)
    })
}

/// Drops copies, or publishes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_purge(
    segment: *mut Handle,
    bits: c_int,
    offset: u64,
    length: u64,
) -> c_int {
    let bytes = offset..offset.saturating_add(length);
    // SAFETY: the header asks for a handle.
    unsafe {
        on_view(segment, bits, |of, view| {
            Ok(of.segment.purge(view, bytes)?)
        })
    }
}

/// Drops copies from memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_page_out(
    segment: *mut Handle,
    bits: c_int,
    offset: u64,
    length: u64,
) -> c_int {
    let bytes = offset..offset.saturating_add(length);
    // SAFETY: the header asks for a handle.
    unsafe {
        on_view(segment, bits, |of, view| {
            Ok(of.segment.page_out(view, bytes)?)
        })
    }
}

/// Locks pages into this node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_lock_view(
    segment: *mut Handle,
    bits: c_int,
    offset: u64,
    length: u64,
) -> c_int {
    let bytes = offset..offset.saturating_add(length);
    let lock = |of: &Handle, view| {
        let pin = of.segment.lock_view(view, bytes)?;
        of.pins
            .lock()
            .entry((offset, length))
            .or_default()
            .push(pin);
        Ok(())
    };
    // SAFETY: the header asks for a handle.
    unsafe { on_view(segment, bits, lock) }
}

/// Creates or opens a board.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_board_create(
    mesh: *mut Mesh,
    name: *const c_char,
    size: usize,
    history: u32,
    mode: u32,
) -> *mut BoardHandle {
    // SAFETY: the header asks for the same.
    unsafe { pagemesh_board_create_replicated(mesh, name, size, history, mode, 0) }
}

/// Creates a board whose states are on other nodes, too, or opens the one of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_board_create_replicated(
    mesh: *mut Mesh,
    name: *const c_char,
    size: usize,
    history: u32,
    mode: u32,
    replicas: u32,
) -> *mut BoardHandle {
    call(null_mut(), || {
        // SAFETY: the header asks for a handle and a string.
        let (mesh, name) = unsafe { (borrow(mesh)?, text(name)?) };
        let mode = u16::try_from(mode).ok().filter(|mode| *mode <= 0o777);
        let mode = mode.ok_or_else(|| Failure::invalid("mode has bits beyond 0777"))?;
        let replicas = u8::try_from(replicas).map_err(|_| Failure::invalid(REPLICAS))?;
        let options = BoardOptions {
            mode,
            history,
            replicas,
        };
        let board = Board::create(mesh, name, size, options)?;
        Ok(give(BoardHandle(Guarded::new(board))))
    })
}

/// Opens a board.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_board_open(
    mesh: *mut Mesh,
    name: *const c_char,
    how: c_int,
) -> *mut BoardHandle {
    call(null_mut(), || {
        // SAFETY: the header asks for a handle and a string.
        let (mesh, name) = unsafe { (borrow(mesh)?, text(name)?) };
        let access = match how {
            0 => Access::ReadOnly,
            _ => Access::Writable,
        };
        let board = Board::open(mesh, name, access)?;
        Ok(give(BoardHandle(Guarded::new(board))))
    })
}

/// Closes a board.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_board_close(board: *mut BoardHandle) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle that is not used any more.
        let board = unsafe { take(board) };
        board.ok_or_else(|| Failure::invalid("the board is NULL"))?;
        Ok(0)
    })
}

/// Bytes of the largest state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_board_size(board: *const BoardHandle) -> usize {
    call(0, || {
        // SAFETY: the header asks for a handle.
        Ok(unsafe { borrow(board)? }.0.lock().size())
    })
}

/// Publishes a state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_board_publish(
    board: *mut BoardHandle,
    state: *const c_void,
    length: usize,
) -> i64 {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let (board, bytes) = unsafe {
            let bytes = entries(state.cast::<u8>(), length, "the bytes of the state")?;
            (borrow(board)?, bytes)
        };
        let number = board.0.lock().publish(bytes)?;
        Ok(i64::try_from(number).unwrap_or(i64::MAX))
    })
}

/// Reads the newest state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_board_read(
    board: *mut BoardHandle,
    bytes: *mut c_void,
    capacity: usize,
    state: *mut CState,
) -> isize {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let board = unsafe { borrow(board)? };
        let Some(found) = board.0.lock().read()? else {
            // SAFETY: the header asks for a place, or NULL.
            if let Some(state) = unsafe { state.as_mut() } {
                *state = CState::default();
            }
            return Ok(0);
        };
        if bytes.is_null() && capacity > 0 {
            return Err(Failure::invalid("the place for the state is NULL"));
        }
        let copied = found.bytes.len().min(capacity);
        if copied > 0 {
            // SAFETY: the header asks for room for `capacity` bytes.
            unsafe {
                found
                    .bytes
                    .as_ptr()
                    .copy_to_nonoverlapping(bytes.cast(), copied)
            };
        }
        // SAFETY: the header asks for a place, or NULL.
        if let Some(state) = unsafe { state.as_mut() } {
            *state = CState {
                number: found.number,
                age_ns: u64::try_from(found.age().as_nanos()).unwrap_or(u64::MAX),
                missed: found.missed,
                length: found.bytes.len() as u64,
                writer: found.writer.0.into(),
                went_back: found.went_back.into(),
            };
        }
        Ok(isize::try_from(found.bytes.len()).unwrap_or(isize::MAX))
    })
}

/// Whether the process that published the state that was read last is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_board_writer_is_gone(board: *mut BoardHandle) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let board = unsafe { borrow(board)? };
        Ok(board.0.lock().last_writer_is_gone()?.into())
    })
}

/// Sleeps until there is a newer state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_board_wait(
    board: *mut BoardHandle,
    newer_than: u64,
    timeout_ns: i64,
) -> i64 {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let board = unsafe { borrow(board)? };
        let number = board.0.lock().wait(newer_than, limit(timeout_ns))?;
        Ok(i64::try_from(number).unwrap_or(i64::MAX))
    })
}
