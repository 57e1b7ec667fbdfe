//! Figures of the paper: Pentium PCs at 75 and 100 MHz under FreeBSD 2.1, Ethernet at 100 Mbit/s,
//! pages of 4 KiB. Milliseconds.

/// Table 1: read and write, the least and the mean of 100,000.
pub(super) const READ_LEAST: f64 = 2.7;
pub(super) const READ: f64 = 2.9;
pub(super) const WRITE_LEAST: f64 = 2.0;
pub(super) const WRITE: f64 = 2.2;

/// Table 2: from the pager to the server, and in the server with the network behind it.
pub(super) const READ_IPC: f64 = 0.58;
pub(super) const READ_SERVER: f64 = 2.1;
pub(super) const WRITE_IPC: f64 = 0.57;
pub(super) const WRITE_SERVER: f64 = 1.4;

/// An ICMP echo.
pub(super) const PING: f64 = 0.44;

/// To take copies back: a constant, and for each copy.
pub(super) const TAKE_BACK: f64 = 1.3;
pub(super) const EACH_COPY: f64 = 0.4;

/// Datagrams of a read.
pub(super) const READ_DATAGRAMS: f64 = 2.0;

/// Datagrams of a write: so many members beside the writer, of which so many have a copy.
pub(super) fn write_datagrams(members: usize, copies: usize) -> f64 {
    (members + copies + 1) as f64
}

/// The same where one multicast reaches all members.
pub(super) fn multicast_datagrams(copies: usize) -> f64 {
    (1 + copies + 1) as f64
}
