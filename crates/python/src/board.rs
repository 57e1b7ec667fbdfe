//! Boards.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pagemesh::{Access, BoardOptions, State};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{raise, raise_about};
use crate::wait::{limit, patiently};

/// An open board.
#[pyclass(frozen, module = "pagemesh._pagemesh")]
#[derive(Debug)]
pub struct Board(Mutex<pagemesh::Board>);

/// Number, bytes, age in seconds, missed, writer, went back.
type Told<'py> = (u64, Bound<'py, PyBytes>, f64, u64, u32, bool);

fn tell<'py>(py: Python<'py>, state: &State) -> Told<'py> {
    let bytes = PyBytes::new(py, &state.bytes);
    let writer = u32::from(state.writer.0);
    (
        state.number,
        bytes,
        state.age().as_secs_f64(),
        state.missed,
        writer,
        state.went_back,
    )
}

impl Board {
    /// Creates a board, or opens it.
    pub fn create(
        py: Python<'_>,
        mesh: &pagemesh::Mesh,
        name: &str,
        size: usize,
        options: BoardOptions,
    ) -> PyResult<Self> {
        let board = py.detach(|| pagemesh::Board::create(mesh, name, size, options));
        let board = board.map_err(|error| raise_about(&error, Some(name)))?;
        Ok(Self(Mutex::new(board)))
    }

    /// Opens a board.
    pub fn open(py: Python<'_>, mesh: &pagemesh::Mesh, name: &str, write: bool) -> PyResult<Self> {
        let access = if write {
            Access::Writable
        } else {
            Access::ReadOnly
        };
        let board = py.detach(|| pagemesh::Board::open(mesh, name, access));
        let board = board.map_err(|error| raise_about(&error, Some(name)))?;
        Ok(Self(Mutex::new(board)))
    }

    fn lock(&self) -> MutexGuard<'_, pagemesh::Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Board {
    /// Bytes of the largest state.
    #[getter]
    fn size(&self) -> usize {
        self.lock().size()
    }

    /// Publishes a state; returns its number.
    fn publish(&self, py: Python<'_>, state: &[u8]) -> PyResult<u64> {
        let number = py.detach(|| self.lock().publish(state));
        number.map_err(|error| raise(&error))
    }

    /// The newest state, if there is one.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Option<Told<'py>>> {
        let state = py.detach(|| self.lock().read());
        let state = state.map_err(|error| raise(&error))?;
        Ok(state.map(|state| tell(py, &state)))
    }

    /// The last states.
    fn history<'py>(&self, py: Python<'py>) -> PyResult<Vec<Told<'py>>> {
        let states = py.detach(|| self.lock().history());
        let states = states.map_err(|error| raise(&error))?;
        Ok(states.iter().map(|state| tell(py, state)).collect())
    }

    /// Whether the process that published the state that was read last is gone.
    fn writer_is_gone(&self, py: Python<'_>) -> PyResult<bool> {
        let gone = py.detach(|| self.lock().last_writer_is_gone());
        gone.map_err(|error| raise(&error))
    }

    /// The number of the newest state, when there is one newer than that; none if `timeout` passes.
    #[pyo3(signature = (newer_than, timeout=None))]
    fn wait(&self, py: Python<'_>, newer_than: u64, timeout: Option<f64>) -> PyResult<Option<u64>> {
        patiently(py, limit(timeout)?, |left| {
            self.lock().wait(newer_than, left)
        })
    }
}
