//! The exception for an access that cannot be served, raised at the next
//! instruction of the Python frame that made the access.
//!
//! An asynchronous exception (`PyThreadState_SetAsyncExc`) is raised in the code that runs next, a
//! `__del__` perhaps, which loses it. Here the signal handler notes the frame instead and sets a
//! trace function for its thread. The interpreter calls that before the next instruction of the
//! frame, and before any other Python code of the thread; both times it raises the exception. It
//! stays set until the interpreter has reported the exception in that frame, so that no code in
//! between can lose it.
//!
//! Where an exception would not take the way it takes from the access itself,
//! there is none: [`arm`] and the trace function say why, and the process ends.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int, c_void};
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::others::{Others, at_rest, others};
use crate::rescue;
use crate::signal_stack;

/// The function that the interpreter calls before instructions.
type TraceFunction =
    extern "C" fn(*mut PyObject, *mut ffi::PyFrameObject, c_int, *mut PyObject) -> c_int;
type SetTrace = unsafe extern "C" fn(Option<TraceFunction>, *mut PyObject);

/// Events, as `cpython/pystate.h` numbers them.
const CALL: c_int = 0;
const EXCEPTION: c_int = 1;
const LINE: c_int = 2;
const RETURN: c_int = 3;
const OPCODE: c_int = 7;

/// Objects of the interpreter, kept for ever.
struct Interpreter {
    set_trace: SetTrace,
    /// `sys._getframe`, `sys.gettrace`, `sys.settrace`.
    frame: Object,
    trace: Object,
    retrace: Object,
    /// A Python function that does nothing.
    probe: Object,
    /// The exception classes, for lost pages and for closed segments.
    classes: [Object; 2],
}

struct Object(*mut PyObject);

// SAFETY: used by threads that hold the interpreter's lock only.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

static INTERPRETER: OnceLock<Interpreter> = OnceLock::new();

/// A frame that waits for its exception.
struct Frame {
    frame: Object,
    /// The instruction that made the access.
    at: usize,
    /// True if another tracer traced its instructions before.
    traced: bool,
}

#[derive(Default)]
struct Pending {
    /// The outermost first.
    frames: Vec<Frame>,
    /// The exception, once it has been made.
    exception: Option<Object>,
    /// The result of `sys.gettrace` before.
    before: Option<Object>,
    closed: bool,
    /// The state of the other threads when the first page was mapped.
    others: Option<Others>,
}

thread_local! {
    // Not dropped with the thread, which then does not hold the interpreter's lock.
    static PENDING: ManuallyDrop<RefCell<Pending>> = ManuallyDrop::default();
    static PROBED: Cell<bool> = const { Cell::new(false) };
}

fn look<T>(at: impl FnOnce(&Pending) -> T) -> T {
    PENDING.with(|pending| at(&pending.borrow()))
}

fn change<T>(how: impl FnOnce(&mut Pending) -> T) -> T {
    PENDING.with(|pending| how(&mut pending.borrow_mut()))
}

/// Keeps the objects needed for raising. `probe` is a Python function that does nothing.
pub fn prepare(
    lost: Bound<'_, PyAny>,
    closed: Bound<'_, PyAny>,
    probe: Bound<'_, PyAny>,
) -> PyResult<()> {
    // SAFETY: a name that ends with zero. The function is no part of the stable
    // interface, so it is looked for.
    let set_trace = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyEval_SetTrace".as_ptr()) };
    if set_trace.is_null() {
        return Ok(()); // every such access ends the process
    }
    let sys = probe.py().import("sys")?;
    let keep = |object: Bound<'_, PyAny>| Object(object.into_ptr());
    let interpreter = Interpreter {
        // SAFETY: its type since Python 2.
        set_trace: unsafe { mem::transmute::<*mut c_void, SetTrace>(set_trace) },
        frame: keep(sys.getattr("_getframe")?),
        trace: keep(sys.getattr("gettrace")?),
        retrace: keep(sys.getattr("settrace")?),
        probe: keep(probe),
        classes: [keep(lost), keep(closed)],
    };
    signal_stack::make_room();
    let _ = INTERPRETER.set(interpreter);
    Ok(())
}

/// Whether exceptions are raised at all.
pub fn prepared() -> bool {
    INTERPRETER.get().is_some()
}

/// Sees to it that this thread, which holds the interpreter's lock and executes
/// an instruction of a Python frame, gets an exception right after it. The other
/// threads are at rest when this returns.
///
/// # Errors
///
/// Why there can be none.
pub fn arm(closed: bool) -> Result<(), &'static str> {
    let Some(interpreter) = INTERPRETER.get() else {
        return Err("this Python cannot trace instructions");
    };
    if signal_stack::is_small() {
        return Err("its signal stack is too small for an exception");
    }
    // SAFETY: the lock is held. An error that is on its way is put back.
    unsafe {
        let (mut kind, mut value, mut trace) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut trace);
        let armed = interpreter.arm(closed);
        ffi::PyErr_Clear();
        ffi::PyErr_Restore(kind, value, trace);
        armed?;
    }
    // Last, so that they have little time to wake up.
    let resting = at_rest().ok_or("another thread runs, and could read what is in its place")?;
    change(|pending| {
        pending.others.get_or_insert(resting);
    });
    Ok(())
}

impl Interpreter {
    /// # Safety
    ///
    /// The interpreter's lock is held.
    unsafe fn arm(&self, closed: bool) -> Result<(), &'static str> {
        // SAFETY: as promised; all objects are alive.
        unsafe {
            let frame = call(&self.frame);
            let Some(frame) = frame else {
                return Err("no Python code runs in it that could get an exception");
            };
            let idle = look(|pending| pending.frames.is_empty());
            if idle {
                let before = call(&self.trace).filter(|it| it.0 != ffi::Py_None());
                if !self.is_traced() {
                    self.restore(before.as_ref());
                    return Err("a trace function or a profiler made the access");
                }
                change(|pending| {
                    *pending = Pending {
                        before,
                        closed,
                        ..Pending::default()
                    };
                });
            }
            let known = look(|pending| {
                let last = pending.frames.last();
                last.is_some_and(|last| last.frame.0 == frame.0)
            });
            if !known {
                let at = number(frame.0, c"f_lasti").unwrap_or(0);
                let traced = attribute(frame.0, c"f_trace_opcodes");
                let traced = traced.is_some_and(|it| it.0 == ffi::Py_True());
                set(frame.0, c"f_trace_opcodes", ffi::Py_True());
                let one = Frame { frame, at, traced };
                change(|pending| pending.frames.push(one));
            }
            (self.set_trace)(Some(trace), ptr::null_mut());
            Ok(())
        }
    }

    /// Whether the interpreter calls trace functions now: it does not while one
    /// runs.
    unsafe fn is_traced(&self) -> bool {
        PROBED.set(false);
        // SAFETY: the lock is held.
        unsafe {
            (self.set_trace)(Some(note), ptr::null_mut());
            let _ = call(&self.probe);
        }
        PROBED.get()
    }

    /// Sets the trace function that was there before.
    unsafe fn restore(&self, before: Option<&Object>) {
        // SAFETY: the lock is held.
        unsafe {
            (self.set_trace)(None, ptr::null_mut());
            if let Some(before) = before {
                let none = ffi::PyObject_CallFunctionObjArgs(
                    self.retrace.0,
                    before.0,
                    ptr::null_mut::<PyObject>(),
                );
                ffi::Py_XDECREF(none);
            }
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: owned, and dropped by threads that hold the interpreter's lock.
        unsafe { ffi::Py_XDECREF(self.0) };
    }
}

/// The trace function of the probe.
extern "C" fn note(
    _: *mut PyObject,
    _: *mut ffi::PyFrameObject,
    event: c_int,
    _: *mut PyObject,
) -> c_int {
    if event == CALL {
        PROBED.set(true);
    }
    0
}

/// Raises the pending exception of this thread.
extern "C" fn trace(
    _: *mut PyObject,
    frame: *mut ffi::PyFrameObject,
    event: c_int,
    argument: *mut PyObject,
) -> c_int {
    let (frame, Some(interpreter)) = (frame.cast::<PyObject>(), INTERPRETER.get()) else {
        return 0;
    };
    let place = look(|pending| {
        let frames = &mut pending.frames.iter();
        frames.position(|waiting| waiting.frame.0 == frame)
    });
    // SAFETY: the interpreter holds its lock, frame and argument are alive.
    unsafe {
        if event == EXCEPTION && is_raised(argument) {
            if let Some(place) = place {
                confirm(interpreter, place);
            }
            return 0;
        }
        match (event, place) {
            (OPCODE | LINE, Some(place)) => {
                if leaves_block(frame, place) {
                    let why = format!(
                        "a `try` or `with` block ends with the access {}, and an exception raised \
                         after it would miss the handlers of the block",
                        location(frame)
                    );
                    rescue::end(&rescue::touched(), &why);
                }
                raise(interpreter)
            }
            (EXCEPTION | RETURN, Some(_)) => raise(interpreter),
            // Python code that native code calls before it returns to the frame.
            (CALL, None) if !in_finalizer(frame) => raise(interpreter),
            _ => 0,
        }
    }
}

/// Whether the exception that the interpreter reports is this thread's.
unsafe fn is_raised(reported: *mut PyObject) -> bool {
    // SAFETY: a tuple of class, value and traceback, as documented.
    let class = unsafe { ffi::PyTuple_GetItem(reported, 0) };
    look(|pending| {
        let raised = pending.exception.as_ref();
        // SAFETY: alive.
        raised.is_some_and(|it| unsafe { ffi::Py_TYPE(it.0) }.cast() == class)
    })
}

/// The frame has got the exception; those that it called are gone.
unsafe fn confirm(interpreter: &Interpreter, place: usize) {
    let (gone, last) = change(|pending| {
        let gone = pending.frames.split_off(place);
        let last = pending.frames.is_empty().then(|| mem::take(pending));
        (gone, last)
    });
    // SAFETY: the lock is held. Dropped here, where nothing is borrowed.
    unsafe {
        for waiting in gone.iter().filter(|waiting| !waiting.traced) {
            set(waiting.frame.0, c"f_trace_opcodes", ffi::Py_False());
        }
        if let Some(last) = last {
            interpreter.restore(last.before.as_ref());
        }
    }
}

/// Sets the thread's exception, which is made the first time.
unsafe fn raise(interpreter: &Interpreter) -> c_int {
    let (made, closed) = look(|pending| {
        let made = pending.exception.as_ref().map(|it| it.0);
        (made, pending.closed)
    });
    // SAFETY: the lock is held, and the pending exception keeps its reference.
    unsafe {
        let exception = match made {
            Some(exception) if !rescue::has_faults() => exception,
            _ => {
                let touched = rescue::touched();
                // This takes the pages out of reach again.
                let Some(new) = call(&interpreter.classes[usize::from(closed)]) else {
                    return -1;
                };
                let exception = new.0;
                let (seen, old) =
                    change(|pending| (pending.others.take(), pending.exception.replace(new)));
                drop(old);
                if seen.is_some_and(|seen| others() != Some(seen)) {
                    rescue::end(
                        &touched,
                        "another thread ran while the page was within reach, and may have read it",
                    );
                }
                exception
            }
        };
        ffi::PyErr_SetObject(ffi::Py_TYPE(exception).cast(), exception);
    }
    -1
}

/// Whether the next instruction is in another `try` or `with` block than the one
/// that made the access.
unsafe fn leaves_block(frame: *mut PyObject, place: usize) -> bool {
    let at = look(|pending| pending.frames[place].at);
    // SAFETY: the lock is held, the frame is alive.
    unsafe {
        let Some(code) = attribute(frame, c"f_code") else {
            return true;
        };
        let table = attribute(code.0, c"co_exceptiontable");
        let (Some(table), Some(now)) = (table, number(frame, c"f_lasti")) else {
            return true;
        };
        let length = ffi::PyBytes_Size(table.0);
        let start = ffi::PyBytes_AsString(table.0).cast::<u8>();
        let Ok(length) = usize::try_from(length) else {
            return true;
        };
        let table = std::slice::from_raw_parts(start, length);
        handler(table, at / 2) != handler(table, now / 2)
    }
}

/// Where the instruction of that number goes when it fails: the handler and the
/// depth of its stack, from a table as CPython's `exception_handling_notes.txt`
/// describes it.
fn handler(table: &[u8], instruction: usize) -> Option<(usize, usize)> {
    let mut bytes = table.iter().copied();
    let mut next = || {
        let mut byte = bytes.next()?;
        let mut value = usize::from(byte & 63);
        while byte & 64 != 0 {
            byte = bytes.next()?;
            value = value << 6 | usize::from(byte & 63);
        }
        Some(value)
    };
    loop {
        let (start, length, target, depth) = (next()?, next()?, next()?, next()?);
        if (start..start + length).contains(&instruction) {
            return Some((target, depth));
        }
    }
}

/// Whether a finalizer runs, which shall run to its end: it got nothing from the
/// access, and the frame below gets the exception.
unsafe fn in_finalizer(frame: *mut PyObject) -> bool {
    // SAFETY: the lock is held, the frame is alive.
    unsafe {
        ffi::Py_INCREF(frame);
        let mut frame = Some(Object(frame));
        while let Some(this) = frame {
            let waits = |pending: &Pending| pending.frames.iter().any(|it| it.frame.0 == this.0);
            if look(waits) {
                return false;
            }
            let code = attribute(this.0, c"f_code");
            let name = code.and_then(|code| text(code.0, c"co_name"));
            if name.as_deref() == Some("__del__") {
                return true;
            }
            frame = attribute(this.0, c"f_back").filter(|it| it.0 != ffi::Py_None());
        }
    }
    false
}

/// The line of a frame, for a message.
unsafe fn location(frame: *mut PyObject) -> String {
    // SAFETY: the lock is held, the frame is alive.
    unsafe {
        let code = attribute(frame, c"f_code");
        let file = code.and_then(|code| text(code.0, c"co_filename"));
        let line = number(frame, c"f_lineno").unwrap_or(0);
        format!("in {}, line {line}", file.unwrap_or_default())
    }
}

unsafe fn call(function: &Object) -> Option<Object> {
    // SAFETY: alive, and the lock is held.
    let result = unsafe { ffi::PyObject_CallObject(function.0, ptr::null_mut()) };
    (!result.is_null()).then_some(Object(result))
}

unsafe fn attribute(object: *mut PyObject, name: &CStr) -> Option<Object> {
    // SAFETY: alive, and the lock is held.
    let found = unsafe { ffi::PyObject_GetAttrString(object, name.as_ptr()) };
    if found.is_null() {
        // SAFETY: as above.
        unsafe { ffi::PyErr_Clear() };
    }
    (!found.is_null()).then_some(Object(found))
}

unsafe fn set(object: *mut PyObject, name: &CStr, value: *mut PyObject) {
    // SAFETY: alive, and the lock is held.
    if unsafe { ffi::PyObject_SetAttrString(object, name.as_ptr(), value) } != 0 {
        // SAFETY: as above.
        unsafe { ffi::PyErr_Clear() };
    }
}

unsafe fn number(object: *mut PyObject, name: &CStr) -> Option<usize> {
    // SAFETY: as above.
    let value = unsafe { ffi::PyLong_AsLong(attribute(object, name)?.0) };
    usize::try_from(value).ok()
}

unsafe fn text(object: *mut PyObject, name: &CStr) -> Option<String> {
    // SAFETY: as above; the text belongs to an object that is alive.
    unsafe {
        let found = attribute(object, name)?;
        let text = ffi::PyUnicode_AsUTF8AndSize(found.0, ptr::null_mut());
        if text.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Some(CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}
