//! The processes that one launcher started together.

use pyo3::prelude::*;

use crate::segment::Segment;

/// This process's place among them.
#[pyclass(frozen, module = "pagemesh._pagemesh")]
#[derive(Debug)]
pub struct Job {
    job: pagemesh::Job,
    node: u32,
}

impl Job {
    /// Joined on this node.
    pub fn new(job: pagemesh::Job, node: u32) -> Self {
        Self { job, node }
    }
}

#[pymethods]
impl Job {
    /// This process's number, from 0.
    #[getter]
    fn rank(&self) -> u32 {
        self.job.rank()
    }

    /// How many processes there are.
    #[getter]
    fn size(&self) -> u32 {
        self.job.size()
    }

    /// The segment that scopes its locks and barriers.
    #[getter]
    fn segment(&self) -> Segment {
        Segment::new(self.job.segment().clone(), self.node)
    }
}
