//! Waiting without the interpreter's lock, until Ctrl-C.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use pagemesh::Error;
use pagemesh::signals::{Look, look_while_waiting};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::error::raise;

/// Waits for at most `timeout`: `None` if that has passed. A signal whose
/// handler raises nothing does not end the wait.
pub fn patiently<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut wait: impl FnMut(Option<Duration>) -> pagemesh::Result<T> + Send,
) -> PyResult<Option<T>> {
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let _looking = Looking::begin();
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match py.detach(|| wait(left)) {
            Ok(value) => return Ok(Some(value)),
            Err(Error::TimedOut) => return Ok(None),
            Err(Error::Interrupted) => py.check_signals()?,
            Err(error) => return Err(raise(&error)),
        }
    }
}

/// Has the thread look for Ctrl-C as long as it waits, if the interpreter runs handlers in it: a
/// signal that comes just before the thread sleeps does not end its sleep.
struct Looking(Option<Look>);

impl Looking {
    fn begin() -> Self {
        let is_main = rustix::thread::gettid() == rustix::process::getpid();
        Self(look_while_waiting(
            is_main.then_some(was_interrupted as Look),
        ))
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        look_while_waiting(self.0);
    }
}

/// Whether Ctrl-C was pressed and its handler has not run. It is not run here, in the midst of a
/// wait: it may use what the wait uses.
fn was_interrupted() -> bool {
    let interrupted = Python::try_attach(|_| {
        // SAFETY: the thread is attached to the interpreter.
        let interrupted = unsafe { pyo3::ffi::PyOS_InterruptOccurred() } != 0;
        if interrupted {
            // The look has taken the mark away.
            // SAFETY: as above.
            unsafe { pyo3::ffi::PyErr_SetInterrupt() };
        }
        interrupted
    });
    interrupted.unwrap_or(false)
}

/// A time limit in seconds, as Python gives it.
pub fn limit(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else {
        return Ok(None);
    };
    if seconds.is_nan() {
        return Err(PyValueError::new_err("a time limit is not a number"));
    }
    let limit = Duration::try_from_secs_f64(seconds.max(0.0));
    limit
        .map(Some)
        .map_err(|_| PyOverflowError::new_err("timeout value is too large"))
}
