//! Figures of the paper: DEC 3000/700 under OSF/1, ATM at 155 Mbit/s, pages of 8 KiB.

/// A raw exchange of a page by UDP, in microseconds.
pub(super) const RAW: f64 = 1640.0;

/// Table 1: getpage of a page that only one node uses: a hit.
pub(super) const HIT: f64 = 1440.0;

/// Table 1: a page that several nodes may use: a hit, a miss.
pub(super) const SHARED_HIT: f64 = 1558.0;
pub(super) const SHARED_MISS: f64 = 340.0;

/// Table 1: a page that only one node uses: a miss.
pub(super) const MISS: f64 = 15.0;

/// Table 2: a putpage: what the sender works, and the target; of a page of one node, of a shared one.
pub(super) const PUTPAGE: [(f64, f64); 2] = [(65.0, 178.0), (102.0, 181.0)];

/// Table 3: reads with GMS, of the disk in order, of the disk at random, in microseconds.
pub(super) const READ: f64 = 2100.0;
pub(super) const DISK_NEXT: f64 = 3600.0;
pub(super) const DISK_RANDOM: f64 = 14_300.0;

/// Table 4: shared reads: of the last copy, of a duplicate.
pub(super) const SINGLE: f64 = 2100.0;
pub(super) const DUPLICATE: f64 = 1700.0;

/// Processor time of the idle node for an operation, in microseconds.
pub(super) const OPERATION: f64 = 194.0;

/// Table 5: the bytes of an epoch with n nodes: request and summary of each, weights to each.
pub(super) fn epoch_bytes(n: f64) -> f64 {
    2.0 * (25.0 * n + 154.0 * n + (108.0 + 2.0 * n) * n)
}
