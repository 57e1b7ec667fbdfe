//! The C interface: `include/pagemesh.h` describes every function, and
//! `include/Tmk.h` those that TreadMarks programs use.
//!
//! Two guarantees hold for all functions. No panic unwinds into C: it is reported as
//! `PAGEMESH_E_INTERNAL`. And only those pointers are dereferenced that the header asks for:
//! handles that these functions made and that are not closed, terminated strings, arrays of the
//! given length. NULL where it is not permitted is `EINVAL`.

mod error;
mod guard;
mod handle;
mod heap;
mod job;
#[cfg(test)]
mod layout;
mod mesh;
mod pipes;
mod report;
mod segment;
mod sync;
mod tmk;
mod views;
