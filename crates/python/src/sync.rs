//! Locks, condition variables and barriers.

use std::sync::{Mutex, PoisonError};

use pagemesh::LockGuard;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::error::raise;
use crate::wait::{limit, patiently};

/// A lock, and the right to it while this process has it through this object.
#[pyclass(frozen, module = "pagemesh._pagemesh")]
#[derive(Debug)]
pub struct Lock {
    lock: pagemesh::Lock,
    guard: Mutex<Option<LockGuard>>,
}

impl Lock {
    pub fn new(lock: pagemesh::Lock) -> Self {
        Self {
            lock,
            guard: Mutex::default(),
        }
    }

    /// Replaces the guard; returns the former one.
    fn replace(&self, guard: Option<LockGuard>) -> Option<LockGuard> {
        let mut place = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, guard)
    }
}

#[pymethods]
impl Lock {
    /// Takes the lock: whether that went well, and whether its last holder died.
    #[pyo3(signature = (blocking=true, timeout=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        blocking: bool,
        timeout: Option<f64>,
    ) -> PyResult<(bool, bool)> {
        let guard = if blocking {
            patiently(py, limit(timeout)?, |left| match left {
                Some(left) => self.lock.lock_timeout(left),
                None => self.lock.lock(),
            })?
        } else {
            patiently(py, None, |_| self.lock.try_lock())?.flatten()
        };
        let Some(guard) = guard else {
            return Ok((false, false));
        };
        let recovered = guard.recovered();
        self.replace(Some(guard));
        Ok((true, recovered))
    }

    /// Gives it back: whether this object had it.
    fn release(&self, py: Python<'_>) -> bool {
        let held = self.held();
        let guard = self.replace(None);
        py.detach(|| drop(guard));
        held
    }

    /// Whether this process holds the lock through this object.
    fn held(&self) -> bool {
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.as_ref().is_some_and(LockGuard::is_held)
    }
}

/// A condition variable.
#[pyclass(frozen, module = "pagemesh._pagemesh")]
#[derive(Debug)]
pub struct Condition(pagemesh::Condition);

impl Condition {
    pub fn new(condition: pagemesh::Condition) -> Self {
        Self(condition)
    }
}

#[pymethods]
impl Condition {
    /// Lets the lock go, waits, and takes it again: whether there was a signal.
    #[pyo3(signature = (lock, timeout=None))]
    fn wait(&self, py: Python<'_>, lock: &Lock, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = limit(timeout)?;
        let Some(mut guard) = lock.replace(None) else {
            return Err(PyRuntimeError::new_err("cannot wait on un-acquired lock"));
        };
        let woken = patiently(py, timeout, |left| match left {
            Some(left) => self.0.wait_timeout(&mut guard, left),
            None => self.0.wait(&mut guard),
        });
        if guard.is_held() {
            lock.replace(Some(guard));
        }
        Ok(woken?.is_some())
    }

    /// Wakes one waiter; how many were woken.
    fn signal(&self, py: Python<'_>) -> PyResult<u32> {
        py.detach(|| self.0.signal()).map_err(|error| raise(&error))
    }

    /// Wakes all waiters; how many were woken.
    fn broadcast(&self, py: Python<'_>) -> PyResult<u32> {
        py.detach(|| self.0.broadcast())
            .map_err(|error| raise(&error))
    }
}

/// A barrier.
#[pyclass(frozen, module = "pagemesh._pagemesh")]
#[derive(Debug)]
pub struct Barrier(pagemesh::Barrier);

impl Barrier {
    pub fn new(barrier: pagemesh::Barrier) -> Self {
        Self(barrier)
    }
}

#[pymethods]
impl Barrier {
    /// Waits for all parties: whether they came in time.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let all = patiently(py, limit(timeout)?, |left| match left {
            Some(left) => self.0.wait_timeout(left),
            None => self.0.wait(),
        })?;
        Ok(all.is_some())
    }
}
