//! Pipes and groups.

use std::sync::{Arc, Mutex, PoisonError};

use pagemesh::{End, GroupOptions, Peer, PipeOptions};
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{raise, raise_about};
use crate::wait::{limit, patiently};

/// Something that is open until it is closed. A thread that uses it meanwhile keeps it open.
#[derive(Debug)]
struct Open<T>(Mutex<Option<Arc<T>>>);

impl<T> Open<T> {
    fn new(opened: T) -> Self {
        Self(Mutex::new(Some(Arc::new(opened))))
    }

    fn get(&self) -> PyResult<Arc<T>> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open.as_ref().map(Arc::clone);
        open.ok_or_else(|| PyValueError::new_err("it is closed"))
    }

    fn close(&self) {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(open);
    }
}

/// What a wait has brought; raises `TimeoutError` if it has brought nothing in time.
fn in_time<T>(came: Option<T>) -> PyResult<T> {
    came.ok_or_else(|| PyTimeoutError::new_err("timed out"))
}

/// One end of a pipe.
#[pyclass(frozen, module = "pagemesh._pagemesh")]
#[derive(Debug)]
pub struct Pipe(Open<pagemesh::Pipe>);

impl Pipe {
    /// Creates a pipe, or opens the one of this name; without `size` only opens it.
    pub fn open(
        py: Python<'_>,
        mesh: &pagemesh::Mesh,
        name: &str,
        (size, mode, end): (Option<usize>, u16, &str),
    ) -> PyResult<Self> {
        let end = match end {
            "free" => End::Free,
            "first" => End::First,
            "second" => End::Second,
            _ => {
                return Err(PyValueError::new_err(
                    "an end is \"free\", \"first\" or \"second\"",
                ));
            }
        };
        let opened = py.detach(|| match size {
            Some(size) => pagemesh::Pipe::create(mesh, name, PipeOptions { mode, size, end }),
            None => pagemesh::Pipe::open(mesh, name, end),
        });
        let pipe = opened.map_err(|error| raise_about(&error, Some(name)))?;
        Ok(Self(Open::new(pipe)))
    }
}

#[pymethods]
impl Pipe {
    /// Bytes of the longest message.
    #[getter]
    fn size(&self) -> PyResult<usize> {
        Ok(self.0.get()?.size())
    }

    /// The state of the other end, as this end knows it.
    #[getter]
    fn peer(&self, py: Python<'_>) -> PyResult<&'static str> {
        let pipe = self.0.get()?;
        let peer = py.detach(|| pipe.peer()).map_err(|error| raise(&error))?;
        Ok(match peer {
            Peer::Absent => "absent",
            Peer::Open => "open",
            Peer::Closed => "closed",
            Peer::Dead => "dead",
        })
    }

    /// Sends a message.
    #[pyo3(signature = (message, timeout=None))]
    fn send(&self, py: Python<'_>, message: &[u8], timeout: Option<f64>) -> PyResult<()> {
        let pipe = self.0.get()?;
        in_time(patiently(py, limit(timeout)?, |left| {
            pipe.send(message, left)
        })?)
    }

    /// Receives the next message.
    #[pyo3(signature = (timeout=None))]
    fn receive<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyBytes>> {
        let pipe = self.0.get()?;
        let message = patiently(py, limit(timeout)?, |left| pipe.receive(left))?;
        Ok(PyBytes::new(py, &in_time(message)?))
    }

    /// Closes this end.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

/// This process in a group.
#[pyclass(frozen, module = "pagemesh._pagemesh")]
#[derive(Debug)]
pub struct Group(Open<pagemesh::Group>);

impl Group {
    /// Joins a group.
    pub fn join(
        mesh: &pagemesh::Mesh,
        name: &str,
        place: (u32, u32),
        (size, mode): (usize, u16),
    ) -> PyResult<Self> {
        let options = GroupOptions { mode, size };
        let group = pagemesh::Group::join(mesh, name, place, options);
        Ok(Self(Open::new(group.map_err(|error| raise(&error))?)))
    }
}

/// Kind, sender, bytes.
type Came<'py> = (i64, u32, Bound<'py, PyBytes>);

#[pymethods]
impl Group {
    /// Sends a message of a kind to a process.
    #[pyo3(signature = (kind, message, to, timeout=None))]
    fn csend(
        &self,
        py: Python<'_>,
        kind: i64,
        message: &[u8],
        to: u32,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let group = self.0.get()?;
        in_time(patiently(py, limit(timeout)?, |left| {
            group.csend(kind, message, to, left)
        })?)
    }

    /// Receives the next message of a kind from a process.
    #[pyo3(signature = (kind=None, sender=None, timeout=None))]
    fn crecv<'py>(
        &self,
        py: Python<'py>,
        kind: Option<i64>,
        sender: Option<u32>,
        timeout: Option<f64>,
    ) -> PyResult<Came<'py>> {
        let group = self.0.get()?;
        let came = patiently(py, limit(timeout)?, |left| group.crecv(kind, sender, left))?;
        let came = in_time(came)?;
        Ok((came.kind, came.from, PyBytes::new(py, &came.bytes)))
    }

    /// Removes the names of the pipes.
    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        let group = self.0.get()?;
        py.detach(|| group.remove()).map_err(|error| raise(&error))
    }

    /// Closes the pipes.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}
