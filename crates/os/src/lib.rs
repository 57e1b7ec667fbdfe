//! The kernel's edge: userfaultfd, memfd, sockets, polling, clocks.
//!
//! Everything unsafe of the daemon and of the client library lives here, behind
//! types that cannot be misused. No policy: what to do with a fault or a
//! datagram is decided in `pagemesh-core`.

pub mod area;
pub mod clock;
pub mod cpu;
pub mod descriptor;
pub mod hatch;
pub mod impair;
pub mod kept;
pub mod latency;
pub mod memfd;
pub mod netns;
pub mod pagemap;
pub mod poll;
pub mod process;
pub mod region;
pub mod seqpacket;
pub mod signals;
pub mod threadstat;
pub mod udp;
pub mod uffd;
pub mod vma;
pub mod wiped;
