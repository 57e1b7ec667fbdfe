//! Access to the kernel: userfaultfd, memfd, sockets, polling, clocks.
//!
//! All unsafe code of the daemon and of the client library is here, behind types that cannot be
//! misused. This crate contains no policy: `pagemesh-core` decides what to do with a fault or a
//! datagram.

pub mod area;
pub mod capability;
pub mod clock;
pub mod cpu;
pub mod descriptor;
pub mod frames;
pub mod impair;
pub mod kept;
pub mod latency;
pub mod memfd;
pub mod netns;
pub mod pagemap;
pub mod poll;
pub mod polling;
pub mod process;
pub mod procstat;
pub mod region;
pub mod request_slot;
pub mod residency;
pub mod seqpacket;
pub mod signals;
pub mod threadstat;
pub mod udp;
pub mod uffd;
pub mod vma;
pub mod wiped;
