//! Open segments.

use pagemesh::Access;
use pyo3::prelude::*;
use std::os::fd::{IntoRawFd as _, OwnedFd};

use crate::error::raise_about;
use crate::memory::Memory;
use crate::sync::{Barrier, Condition, Lock};
use crate::windows::Windows;

/// An open segment. It is closed with the last thing made from it.
#[pyclass(frozen, module = "pagemesh._pagemesh")]
#[derive(Debug)]
pub struct Segment {
    segment: pagemesh::Segment,
    node: u32,
}

impl Segment {
    /// Opened on this node.
    pub fn new(segment: pagemesh::Segment, node: u32) -> Self {
        Self { segment, node }
    }
}

#[pymethods]
impl Segment {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.segment.name()
    }

    /// Its size in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.segment.size()
    }

    /// Maps all of it.
    fn map(&self, py: Python<'_>) -> PyResult<Memory> {
        let mapped = py.detach(|| self.segment.map());
        mapped
            .map(|mapping| Memory::new(mapping, self.node))
            .map_err(|error| raise_about(&error, Some(self.segment.name())))
    }

    /// Maps all views of it (policy `views`).
    fn map_views(&self, py: Python<'_>) -> PyResult<Windows> {
        let mapped = py.detach(|| self.segment.map_views());
        mapped
            .map(|views| Windows::new(views, self.node))
            .map_err(|error| raise_about(&error, Some(self.segment.name())))
    }

    /// A descriptor with which another process of this host may open the segment.
    fn capability(&self, py: Python<'_>, write: bool) -> PyResult<i32> {
        let access = if write {
            Access::Writable
        } else {
            Access::ReadOnly
        };
        py.detach(|| self.segment.capability(access))
            .map(|capability| OwnedFd::from(capability).into_raw_fd())
            .map_err(|error| raise_about(&error, Some(self.segment.name())))
    }

    /// The lock of that number.
    fn lock(&self, number: u64) -> Lock {
        Lock::new(self.segment.lock(number))
    }

    /// The condition variable of that number.
    fn condition(&self, number: u64) -> Condition {
        Condition::new(self.segment.condition(number))
    }

    /// The barrier of that number.
    fn barrier(&self, number: u64, parties: u32) -> Barrier {
        Barrier::new(self.segment.barrier(number, parties))
    }
}
