//! The C interface: `include/pagemesh.h` describes every function, and
//! `include/Tmk.h` those that TreadMarks programs use.
//!
//! Two promises hold for all of them. Nothing unwinds into C: a panic is
//! reported as `PAGEMESH_E_INTERNAL`. And no pointer is followed but those the
//! header asks for: handles that these functions made and that are not closed,
//! strings that end, arrays as long as said. NULL where it makes no sense is
//! `EINVAL`.

mod error;
mod guard;
mod handle;
mod heap;
mod job;
#[cfg(test)]
mod layout;
mod mesh;
mod report;
mod segment;
mod sync;
mod tmk;
