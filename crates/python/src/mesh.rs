//! The interpreter's way into the cluster.

use std::path::PathBuf;
use std::time::Duration;

use pagemesh::{
    Access, Backing, BoardOptions, ByteLen, Capability, Health, Manager, Options, Policy,
    SegmentInfo, Spread, Window,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::board::Board;
use crate::error::{raise, raise_about};
use crate::job::Job;
use crate::memory::duplicate;
use crate::pipe::{Group, Pipe};
use crate::segment::Segment;

/// A connection to the daemon of this host.
#[pyclass(frozen, module = "pagemesh._pagemesh")]
#[derive(Debug)]
pub struct Mesh(pagemesh::Mesh);

#[pymethods]
impl Mesh {
    /// Connects to the daemon at `path`, or where one is usually found.
    #[new]
    #[pyo3(signature = (path=None))]
    fn new(py: Python<'_>, path: Option<PathBuf>) -> PyResult<Self> {
        let connected = py.detach(|| match path {
            Some(path) => pagemesh::Mesh::connect_to(path),
            None => pagemesh::Mesh::connect(),
        });
        connected.map(Self).map_err(|error| raise(&error))
    }

    /// Creates a segment of `size` bytes; opens it if it exists, unless `exclusive`.
    #[pyo3(signature = (name, size, *, mode=0o600, exclusive=true, policy="sequential", manager="dynamic", window=None, local=None, prefix=None, replicas=0))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn create(
        &self,
        py: Python<'_>,
        name: &str,
        size: u64,
        mode: u16,
        exclusive: bool,
        policy: &str,
        manager: &str,
        window: Option<f64>,
        local: Option<u64>,
        prefix: Option<u16>,
        replicas: u8,
    ) -> PyResult<Segment> {
        let mut chosen = parse(policy, manager, window)?;
        if let (Policy::Views { .. }, Some(prefix)) = (chosen, prefix) {
            chosen = Policy::Views { prefix };
        }
        if let Some(bytes) = local {
            chosen = chosen
                .with_local(ByteLen(bytes))
                .map_err(PyValueError::new_err)?;
        }
        let options = Options {
            mode,
            policy: chosen,
            exclusive,
            replicas,
        };
        let opened = py.detach(|| self.0.create(name, size, options));
        opened
            .map(|segment| Segment::new(segment, self.node()))
            .map_err(|error| raise_about(&error, Some(name)))
    }

    /// Opens a segment.
    #[pyo3(signature = (name, *, write=true))]
    fn open(&self, py: Python<'_>, name: &str, write: bool) -> PyResult<Segment> {
        let access = if write {
            Access::Writable
        } else {
            Access::ReadOnly
        };
        let opened = py.detach(|| self.0.open(name, access));
        opened
            .map(|segment| Segment::new(segment, self.node()))
            .map_err(|error| raise_about(&error, Some(name)))
    }

    /// Opens the segment of a capability.
    fn redeem(&self, py: Python<'_>, fd: i32) -> PyResult<Segment> {
        let capability = Capability::from(duplicate(fd)?);
        py.detach(|| self.0.redeem(&capability))
            .map(|segment| Segment::new(segment, self.node()))
            .map_err(|error| raise(&error))
    }

    /// Creates a board, or opens the one of this name.
    #[pyo3(signature = (name, size, *, mode=0o600, history=1, replicas=0))]
    fn create_board(
        &self,
        py: Python<'_>,
        name: &str,
        size: usize,
        mode: u16,
        history: u32,
        replicas: u8,
    ) -> PyResult<Board> {
        let options = BoardOptions {
            mode,
            history,
            replicas,
        };
        Board::create(py, &self.0, name, size, options)
    }

    /// Opens a board.
    #[pyo3(signature = (name, *, write=true))]
    fn open_board(&self, py: Python<'_>, name: &str, write: bool) -> PyResult<Board> {
        Board::open(py, &self.0, name, write)
    }

    /// Opens an end of a pipe, which is created if `size` is given and it does not exist.
    #[pyo3(signature = (name, size, *, mode=0o600, end="free"))]
    fn open_pipe(
        &self,
        py: Python<'_>,
        name: &str,
        size: Option<usize>,
        mode: u16,
        end: &str,
    ) -> PyResult<Pipe> {
        Pipe::open(py, &self.0, name, (size, mode, end))
    }

    /// Joins a group.
    #[pyo3(signature = (name, number, count, *, size, mode=0o600))]
    fn join_group(
        &self,
        name: &str,
        number: u32,
        count: u32,
        size: usize,
        mode: u16,
    ) -> PyResult<Group> {
        Group::join(&self.0, name, (number, count), (size, mode))
    }

    /// Removes a segment's name.
    fn remove(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let removed = py.detach(|| self.0.remove(name));
        removed.map_err(|error| raise_about(&error, Some(name)))
    }

    /// The facts about a segment.
    fn stat<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let info = py.detach(|| self.0.stat(name));
        describe(py, &info.map_err(|error| raise_about(&error, Some(name)))?)
    }

    /// All segments of the cluster.
    fn list<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let all = py.detach(|| self.0.list()).map_err(|error| raise(&error))?;
        all.iter().map(|info| describe(py, info)).collect()
    }

    /// The numbers of the living nodes.
    fn alive(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        let members = py
            .detach(|| self.0.members())
            .map_err(|error| raise(&error))?;
        let alive = members.members.iter().filter(|m| m.health == Health::Alive);
        Ok(alive.map(|member| u32::from(member.id.0)).collect())
    }

    /// Which node is probably the owner of a page, as far as this one knows.
    fn owner(&self, py: Python<'_>, name: &str, page: u32) -> PyResult<Option<u32>> {
        let report = py.detach(|| self.0.inspect(name, page, 1));
        let report = report.map_err(|error| raise_about(&error, Some(name)))?;
        let line = report.pages.first().filter(|line| line.page.0 == page);
        Ok(line.map(|line| u32::from(line.hint.0)))
    }

    /// All counters of this node.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = py
            .detach(|| self.0.counters())
            .map_err(|error| raise(&error))?;
        let all = PyDict::new(py);
        for (name, value) in counters {
            all.set_item(name, value)?;
        }
        Ok(all)
    }

    /// The job that the environment describes.
    fn job(&self, py: Python<'_>) -> PyResult<Job> {
        let joined = py.detach(|| pagemesh::Job::from_env(&self.0));
        joined
            .map(|job| Job::new(job, self.node()))
            .map_err(|error| raise(&error))
    }

    /// This node's number.
    #[getter]
    fn node(&self) -> u32 {
        u32::from(self.0.node().0)
    }
}

/// Parses the policy of a new segment.
fn parse(policy: &str, manager: &str, window: Option<f64>) -> PyResult<Policy> {
    match policy.parse().map_err(PyValueError::new_err)? {
        Policy::Sequential { .. } => {}
        other => return Ok(other),
    }
    let manager = match manager {
        "dynamic" => Manager::Dynamic,
        "fixed" => Manager::Fixed,
        other => {
            let why = format!("unknown manager {other:?}; there are \"dynamic\" and \"fixed\"");
            return Err(PyValueError::new_err(why));
        }
    };
    let window = match window {
        None => Window::Auto,
        Some(seconds) => {
            let window = Duration::try_from_secs_f64(seconds)
                .map_err(|_| PyValueError::new_err("a window has from 0 to 10 seconds"))?;
            Window::Nanos(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX))
        }
    };
    Ok(Policy::Sequential { manager, window })
}

/// The policy of a segment, in the words that `create` accepts.
fn policy(py: Python<'_>, policy: Policy) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    match policy {
        Policy::Sequential { manager, window } => {
            all.set_item("policy", "sequential")?;
            all.set_item(
                "manager",
                if manager == Manager::Fixed {
                    "fixed"
                } else {
                    "dynamic"
                },
            )?;
            let seconds = match window {
                Window::Auto => None,
                Window::Nanos(nanos) => Some(Duration::from_nanos(nanos).as_secs_f64()),
            };
            all.set_item("window", seconds)?;
        }
        Policy::Release { spread } => {
            let name = match spread {
                Spread::Lazy => "release",
                other => other.name(),
            };
            all.set_item("policy", name)?;
        }
        Policy::Views { prefix } => {
            all.set_item("policy", "views")?;
            all.set_item("prefix", prefix)?;
        }
        Policy::Private { local, backing } => {
            all.set_item("policy", "private")?;
            let bytes = (local.0 > 0).then_some(local.bytes().0);
            all.set_item("local", bytes)?;
            all.set_item("copies", if backing == Backing::Copies { 2 } else { 0 })?;
        }
        Policy::Files => all.set_item("policy", "files")?,
        Policy::Numbered(number) => all.set_item("policy", format!("policy {number}"))?,
    }
    Ok(all)
}

fn describe<'py>(py: Python<'py>, info: &SegmentInfo) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("name", &info.name)?;
    all.set_item("size", info.spec.size.0)?;
    all.set_item("mode", info.spec.mode)?;
    let policy = policy(py, info.spec.policy)?;
    policy.set_item("replicas", info.spec.replicas)?;
    all.set_item("policy", policy)?;
    all.set_item("home", u32::from(info.id.home().0))?;
    all.set_item("owner", info.owner)?;
    all.set_item("attached", info.attached.len())?;
    Ok(all)
}
