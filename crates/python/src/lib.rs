//! The native half of the Python package `pagemesh`, the base of `python/pagemesh/`. Names, numbers
//! and errors here are for that code, not for users.

#![deny(unsafe_code)]

mod accumulate;
mod board;
mod error;
mod job;
mod memory;
mod mesh;
mod others;
mod pending;
mod pipe;
mod rescue;
mod segment;
mod signal_stack;
mod sync;
mod wait;
mod windows;

use pyo3::prelude::*;

/// The module `pagemesh._pagemesh`.
#[pymodule]
fn _pagemesh(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("PAGE_SIZE", pagemesh::PAGE_SIZE)?;
    module.add_class::<mesh::Mesh>()?;
    module.add_class::<segment::Segment>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<windows::Windows>()?;
    module.add_class::<windows::PageLock>()?;
    module.add_class::<sync::Lock>()?;
    module.add_class::<sync::Condition>()?;
    module.add_class::<sync::Barrier>()?;
    module.add_class::<board::Board>()?;
    module.add_class::<pipe::Pipe>()?;
    module.add_class::<pipe::Group>()?;
    module.add_class::<job::Job>()?;
    module.add_function(wrap_pyfunction!(rescue::raise_in_threads, module)?)?;
    module.add_function(wrap_pyfunction!(rescue::take_faults, module)?)?;
    Ok(())
}
