//! Mapped memory, as a buffer.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagemesh::{Advice, Kind, Mapping, Merge, PAGE_SIZE, View};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::accumulate::{Layout, accumulate};
use crate::error::raise;
use crate::rescue;
use crate::wait::{limit, patiently};

/// A mapping of a segment. It cannot be closed while there is a buffer of it.
#[pyclass(frozen, module = "pagemesh._pagemesh")]
#[derive(Debug)]
pub struct Memory {
    mapping: Mutex<Option<Mapping>>,
    length: usize,
    write: bool,
    exports: AtomicUsize,
}

impl Memory {
    /// Of a segment, on this node.
    pub fn new(mapping: Mapping, node: u32) -> Self {
        rescue::enter(&mapping, node);
        Self {
            length: mapping.len(),
            write: mapping.is_writable(),
            mapping: Mutex::new(Some(mapping)),
            exports: AtomicUsize::new(0),
        }
    }

    fn place(&self) -> MutexGuard<'_, Option<Mapping>> {
        self.mapping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mapping, for words that are loaded or stored without the
    /// interpreter's lock. The clone keeps the memory while that lasts.
    fn mapping(&self) -> PyResult<Mapping> {
        let place = self.place();
        place.clone().ok_or_else(|| PyValueError::new_err(CLOSED))
    }
}

/// The operation on numbers and their type, by name.
fn numbers(merge: &str, kind: &str) -> PyResult<(Merge, Kind)> {
    let merge = merge.parse().map_err(PyValueError::new_err)?;
    let kind = kind.parse().map_err(PyValueError::new_err)?;
    Ok((merge, kind))
}

/// Numbers of eight bytes each, in this host's order.
fn numbers_of(bytes: &[u8]) -> PyResult<Vec<u64>> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        let why = format!("{} bytes are no numbers of eight bytes", bytes.len());
        return Err(PyValueError::new_err(why));
    }
    Ok(numbers
        .iter()
        .map(|bytes| u64::from_ne_bytes(*bytes))
        .collect())
}

/// The bytes of these pages of a segment of so many bytes, as ranges. Pages that follow one another
/// are one range.
fn ranges(pages: &[u64], length: u64) -> Vec<Range<u64>> {
    let follow = |one: &u64, next: &u64| one.checked_add(1) == Some(*next);
    let byte = |page: u64| page.saturating_mul(PAGE_SIZE as u64);
    let end = |page: u64| byte(page.saturating_add(1)).min(length);
    let runs = pages.chunk_by(follow);
    runs.map(|run| byte(run[0])..end(run[run.len() - 1]))
        .collect()
}

/// For each of these pages of the mapping whether it has a frame, as a byte. Pages that are spread
/// widely are looked at one by one, others with all that lie between them.
fn frames(mapping: &Mapping, pages: &[u64]) -> pagemesh::Result<Vec<u8>> {
    let at =
        |page: u64| usize::try_from(page.saturating_mul(PAGE_SIZE as u64)).unwrap_or(usize::MAX);
    let end = |page: u64| at(page.saturating_add(1)).min(mapping.len());
    let look = |first, last| mapping.frames(at(first)..end(last));
    let (Some(&first), Some(&last)) = (pages.iter().min(), pages.iter().max()) else {
        return Ok(Vec::new());
    };
    if last - first > (pages.len() * BETWEEN) as u64 {
        let found = pages
            .iter()
            .map(|page| Ok(u8::from(look(*page, *page)?[0])));
        return found.collect();
    }
    let found = look(first, last)?;
    Ok(pages
        .iter()
        .map(|page| u8::from(found[(page - first) as usize]))
        .collect())
}

/// For each page so many that lie between may be looked at with it; else each has a call of its own.
const BETWEEN: usize = 16;

/// The message of `mmap`, on which the standard library's segments are built.
const CLOSED: &str = "mmap closed or invalid";

#[pymethods]
impl Memory {
    fn __len__(&self) -> usize {
        self.length
    }

    /// Unmaps it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.exports.load(Ordering::Acquire) > 0 {
            let why = "cannot close exported pointers exist";
            return Err(PyBufferError::new_err(why));
        }
        let mapping = self.place().take();
        py.detach(|| mapping.map(rescue::leave));
        Ok(())
    }

    /// Whether it has been.
    #[getter]
    fn closed(&self) -> bool {
        self.place().is_none()
    }

    /// Whether system calls may be given this memory while it is elsewhere.
    #[getter]
    fn serves_system_calls(&self) -> PyResult<bool> {
        Ok(self.mapping()?.serves_system_calls())
    }

    /// Eight bytes, in this host's order.
    fn load(&self, py: Python<'_>, at: usize) -> PyResult<u64> {
        let mapping = self.mapping()?;
        py.detach(|| mapping.load_u64(at))
            .map_err(|error| raise(&error))
    }

    /// Stores eight bytes.
    fn store(&self, py: Python<'_>, at: usize, value: u64) -> PyResult<()> {
        let mapping = self.mapping()?;
        let stored = py.detach(|| {
            let place = mapping.atomic_u64(at)?;
            place.store(value, Ordering::SeqCst);
            Ok(())
        });
        stored.map_err(|error| raise(&error))
    }

    /// Adds to eight bytes, atomically in the whole cluster; returns the former value.
    fn add(&self, py: Python<'_>, at: usize, value: u64) -> PyResult<u64> {
        let mapping = self.mapping()?;
        py.detach(|| Ok(mapping.atomic_u64(at)?.fetch_add(value, Ordering::SeqCst)))
            .map_err(|error| raise(&error))
    }

    /// Sleeps while a byte is as expected: its new value, or `None` when the time
    /// is up.
    #[pyo3(signature = (at, expected, timeout=None))]
    fn wait_change(
        &self,
        py: Python<'_>,
        at: usize,
        expected: u8,
        timeout: Option<f64>,
    ) -> PyResult<Option<u8>> {
        let mapping = self.mapping()?;
        patiently(py, limit(timeout)?, |left| {
            mapping.wait_change(at, expected, left)
        })
    }

    /// Announces the use of these bytes of the segment.
    fn advise(&self, py: Python<'_>, start: u64, end: u64, advice: &str) -> PyResult<()> {
        let advice: Advice = advice.parse().map_err(PyValueError::new_err)?;
        let mapping = self.mapping()?;
        py.detach(|| mapping.segment().advise(start..end, advice))
            .map_err(|error| raise(&error))
    }

    /// Announces that these pages will be touched. They come as numbers of eight bytes each, from the
    /// least to the greatest.
    fn will_need(&self, py: Python<'_>, pages: &[u8]) -> PyResult<()> {
        let mapping = self.mapping()?;
        let ranges = ranges(&numbers_of(pages)?, mapping.len() as u64);
        py.detach(|| mapping.segment().will_need(ranges))
            .map_err(|error| raise(&error))
    }

    /// For each of these pages, which come as numbers of eight bytes each, whether this host has a
    /// frame for it: bytes that are 0 or 1.
    fn frames<'py>(&self, py: Python<'py>, pages: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let (mapping, pages) = (self.mapping()?, numbers_of(pages)?);
        let found = py.detach(|| frames(&mapping, &pages));
        Ok(PyBytes::new(py, &found.map_err(|error| raise(&error))?))
    }

    /// Sends copies of the pages of these bytes to all nodes that map the segment.
    fn publish(&self, py: Python<'_>, start: u64, end: u64) -> PyResult<()> {
        let mapping = self.mapping()?;
        py.detach(|| mapping.segment().publish(false, start..end))
            .map_err(|error| raise(&error))
    }

    /// Drops this node's old copies of the pages of these bytes.
    fn purge(&self, py: Python<'_>, start: u64, end: u64) -> PyResult<()> {
        let old = View {
            consistent: false,
            short: false,
            data_driven: false,
        };
        let mapping = self.mapping()?;
        py.detach(|| mapping.segment().purge(old, start..end))
            .map_err(|error| raise(&error))
    }

    /// Declares that nodes accumulate numbers in these bytes of the segment.
    fn reduce(
        &self,
        py: Python<'_>,
        start: u64,
        end: u64,
        merge: &str,
        kind: &str,
    ) -> PyResult<()> {
        let (merge, kind) = numbers(merge, kind)?;
        let mapping = self.mapping()?;
        py.detach(|| mapping.segment().reduce(start..end, merge, kind))
            .map_err(|error| raise(&error))
    }

    /// Combines numbers with operands, by an atomic operation each. The first one
    /// lies at `start`; an axis is how many there are and bytes from one to the next.
    fn accumulate(
        &self,
        py: Python<'_>,
        start: usize,
        axes: Vec<(usize, isize)>,
        merge: &str,
        kind: &str,
        operands: PyBackedBytes,
    ) -> PyResult<()> {
        let (merge, kind) = numbers(merge, kind)?;
        let layout = Layout { start, axes, kind };
        let mapping = self.mapping()?;
        py.detach(|| accumulate(&mapping, &layout, merge, &operands))
            .map_err(|error| raise(&error))
    }

    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        // Counted first: from here on no thread unmaps it.
        this.exports.fetch_add(1, Ordering::AcqRel);
        let address = this.place().as_ref().map(Mapping::as_ptr);
        let filled = match address {
            None => Err(PyValueError::new_err(CLOSED)),
            Some(address) => {
                let length = this.length as ffi::Py_ssize_t;
                let read_only = c_int::from(!this.write);
                // SAFETY: the interpreter's own room for a view; the memory stays
                // mapped while exports are counted, and the view holds `slf`.
                let status = unsafe {
                    ffi::PyBuffer_FillInfo(
                        view,
                        slf.as_ptr(),
                        address.cast(),
                        length,
                        read_only,
                        flags,
                    )
                };
                if status == 0 {
                    Ok(())
                } else {
                    Err(PyErr::fetch(slf.py()))
                }
            }
        };
        if filled.is_err() {
            this.exports.fetch_sub(1, Ordering::AcqRel);
        }
        filled
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.exports.fetch_sub(1, Ordering::AcqRel);
    }

    fn __repr__(&self) -> String {
        let name = self.place().as_ref().map(|m| m.segment().name().to_owned());
        match name {
            Some(name) => format!("<Memory of {name:?}, {} bytes>", self.length),
            None => "<closed Memory>".to_owned(),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(mapping) = self.place().take() {
            rescue::leave(mapping);
        }
    }
}

/// A descriptor of the interpreter's, once more.
pub fn duplicate(fd: i32) -> PyResult<OwnedFd> {
    if fd < 0 {
        return Err(PyValueError::new_err("no descriptor has a negative number"));
    }
    // SAFETY: it is not -1; the kernel says whether it is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(borrowed.try_clone_to_owned()?)
}
