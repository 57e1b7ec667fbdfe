//! All views of a segment, at addresses that differ in some bits only.

use pagemesh::{Guarded, View, WriteLock};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::raise;
use crate::memory::Memory;

/// The windows of a segment of policy `views`, one for each view. A view is the number that its bits
/// make: 1 short, 2 data-driven, 4 inconsistent.
#[pyclass(frozen, module = "pagemesh._pagemesh")]
#[derive(Debug)]
pub struct Windows {
    views: pagemesh::Views,
    node: u32,
}

impl Windows {
    /// Of a segment, on this node.
    pub fn new(views: pagemesh::Views, node: u32) -> Self {
        Self { views, node }
    }
}

/// The view with these bits.
fn view(bits: u8) -> PyResult<View> {
    if bits > 7 {
        return Err(PyValueError::new_err("a view has three bits"));
    }
    Ok(View {
        short: bits & 1 != 0,
        data_driven: bits & 2 != 0,
        consistent: bits & 4 == 0,
    })
}

#[pymethods]
impl Windows {
    /// The address of the first window; the one of a view is its bits times the stride away.
    #[getter]
    fn base(&self) -> usize {
        self.views.base().addr()
    }

    /// Bytes from one window to the next, a power of two.
    #[getter]
    fn stride(&self) -> usize {
        self.views.stride()
    }

    /// The window of a view.
    fn memory(&self, bits: u8) -> PyResult<Memory> {
        let window = self
            .views
            .view(view(bits)?)
            .map_err(|error| raise(&error))?;
        Ok(Memory::new(window.clone(), self.node))
    }

    /// Drops copies of these bytes, of an inconsistent view; publishes them, of a consistent one.
    fn purge(&self, py: Python<'_>, bits: u8, start: u64, end: u64) -> PyResult<()> {
        let view = view(bits)?;
        py.detach(|| self.views.segment().purge(view, start..end))
            .map_err(|error| raise(&error))
    }

    /// Drops copies of these bytes from this node's memory; of prefixes only, of a short view.
    fn page_out(&self, py: Python<'_>, bits: u8, start: u64, end: u64) -> PyResult<()> {
        let view = view(bits)?;
        py.detach(|| self.views.page_out(view, start..end))
            .map_err(|error| raise(&error))
    }

    /// Locks the pages of these bytes into this node.
    fn lock(&self, py: Python<'_>, bits: u8, start: u64, end: u64) -> PyResult<PageLock> {
        let view = view(bits)?;
        let lock = py
            .detach(|| self.views.lock(view, start..end))
            .map_err(|error| raise(&error))?;
        Ok(PageLock(Guarded::new(Some(lock))))
    }
}

/// Pages that stay on this node until it is released, for one second at most.
#[pyclass(frozen, module = "pagemesh._pagemesh")]
#[derive(Debug)]
pub struct PageLock(Guarded<Option<WriteLock>>);

#[pymethods]
impl PageLock {
    /// Lets the pages go; once more does nothing.
    fn release(&self, py: Python<'_>) {
        py.detach(|| drop(self.0.lock().take()));
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) {
        self.release(py);
    }
}
