//! Waiting without the interpreter's lock, until Ctrl-C.

use std::time::{Duration, Instant};

use pagemesh::Error;
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
