//! Shared memory between ordinary processes on several hosts, by plain loads
//! and stores.
//!
//! A process talks to the PageMesh daemon of its host over a Unix socket. It
//! creates or opens a *segment* by name, maps it, and from then on uses memory:
//! the daemon fetches a page when a thread touches one that is elsewhere.
//! Locks, condition variables and barriers come with every segment.
//!
//! ```no_run
//! use pagemesh::{Mesh, Options};
//! use std::sync::atomic::Ordering;
//!
//! # fn main() -> pagemesh::Result<()> {
//! let mesh = Mesh::connect()?;
//! let segment = mesh.create("counters", 4096, Options::default())?;
//! let memory = segment.map()?;
//!
//! let lock = segment.lock(0);
//! let guard = lock.lock()?;
//! memory.atomic_u64(0)?.fetch_add(1, Ordering::Relaxed);
//! drop(guard);
//!
//! segment.barrier(0, 2).wait()?; // until the program on the other host is here too
//! println!("{}", memory.load_u64(0)?);
//! # Ok(())
//! # }
//! ```
//!
//! # What to expect
//! Under the default policy every load sees the latest store made anywhere. A
//! page that moves costs tens of microseconds, so touch it more than once.
//! Access to memory that can never be served again (its node died) raises
//! SIGBUS at that address; it never hangs.
//!
//! # Signals
//! A wait without time limit ends with [`Error::Interrupted`] if a signal handler installed without
//! `SA_RESTART` ran in the waiting thread, a wait with time limit after any handler. The request is
//! withdrawn first, so trying again is safe. Calls that wait for no other process go on in spite of
//! signals, unless the daemon does not answer within two seconds. A signal that comes in the instant
//! before the thread sleeps interrupts nothing: [`signals::look_while_waiting`] is for runtimes that
//! must not miss it.
//!
//! # Threads and fork
//! Everything here may be used from all threads at once. After `fork` the child keeps all segments
//! and mappings of its parent, at the same addresses, as a client of its own; the locks that its
//! parent holds stay the parent's. If the daemon cannot be asked, the child writes this to its
//! error output; then its accesses to segments end in SIGSEGV and its calls fail with
//! [`Error::Forked`] until it connects anew. The same holds, without a message, for children made
//! by bare system calls, which call no fork handlers.

#![deny(unsafe_code)]

mod barrier;
mod bell;
mod board;
mod capability;
mod condition;
mod connection;
mod error;
mod file_frames;
mod fork;
mod group;
mod heap;
mod job;
mod lock;
mod mapping;
mod mesh;
mod path;
mod pipe;
mod ranges;
mod segment;
pub mod signals;
pub mod snapshot;
mod sysv;
#[cfg(test)]
mod tests;
#[cfg(feature = "typed")]
mod typed_board;
mod views;
mod watch;
mod write_lock;

pub use barrier::Barrier;
pub use board::{Board, BoardOptions, State};
pub use capability::Capability;
pub use condition::Condition;
pub use error::{Error, Result};
#[doc(hidden)]
pub use file_frames::FilePool;
#[doc(hidden)]
pub use fork::Guarded;
#[doc(hidden)]
pub use fork::watch_forks;
pub use group::{Group, GroupOptions, Received};
pub use heap::{Heap, HeapError, HeapOptions};
pub use job::Job;
pub use lock::{Lock, LockGuard};
pub use mapping::Mapping;
pub use mesh::{Members, Mesh};
pub use path::{SOCKET_VARIABLE, socket_paths};
pub use pipe::{End, Peer, Pipe, PipeOptions};
#[doc(hidden)]
pub use ranges::mapped_within;
pub use segment::{Access, Options, Segment};
#[doc(hidden)]
pub use signals::undisturbed;
#[doc(hidden)]
pub use sysv::Attached;
#[cfg(feature = "typed")]
pub use typed_board::TypedBoard;
pub use views::{Views, view_pointer};
pub use write_lock::WriteLock;

pub use pagemesh_wire::local::{
    Advice, Label, NodeStatus, PageLine, PageReport, Refusal, Stamp, StampKind, View,
};
pub use pagemesh_wire::peer::{
    Backing, Health, Kind, Manager, Member, Merge, Policy, SegmentInfo, SegmentSpec, Spread, Window,
};
pub use pagemesh_wire::{ByteLen, NodeId, NodeSet, PAGE_SIZE, SegmentId};
