//! `libpagemesh_borrow.so`: stands in for the allocator of the C library, so that the large
//! allocations of an unmodified program lie in memory of the cluster.
//!
//! Loaded before a program by `pagemesh borrow`. Small allocations go to the C library's own
//! allocator, by the names under which it exports it for such libraries; large ones are ranges of
//! whole pages of one segment, which is this process's alone. Where a range lies is noted outside
//! of the segment, so finding one touches no page of it.
//!
//! The library connects to the daemon when the first large allocation is made: a process that makes
//! none costs the daemon nothing.
//!
//! A child of `fork` gets a copy of the large allocations, in a segment of its own, at the same
//! addresses; or the fork is refused. A child made by a bare system call has none of this memory
//! mapped, and its accesses fault.

#[cfg(not(test))]
mod calls;
#[cfg(not(test))]
mod fork;
#[cfg(not(test))]
mod pool;
mod ranges;
#[cfg(not(test))]
mod settings;
