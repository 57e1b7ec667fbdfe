//! The costs of operations under policy `release`.

use core::time::Duration;

/// Costs that were measured elsewhere, or fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReleaseCosts {
    /// A short datagram, one way; half is its sender's, half its receiver's.
    pub short: Duration,
    /// Each byte of it.
    pub byte_nanos: f64,
    /// From a thread's access until its daemon knows.
    pub trap: Duration,
    /// From a request of a program until its daemon knows; the same for the answer.
    pub call: Duration,
    /// A daemon decides about anything.
    pub decide: Duration,
    /// A page is put in place and mapped, or its rights change.
    pub place: Duration,
    /// A page is taken out of sight.
    pub evict: Duration,
    /// A page is copied or compared.
    pub copy: Duration,
    /// Until a thread that was woken runs.
    pub wake: Duration,
    /// The time that a daemon waits for its processor while a program uses it.
    pub preempt: Duration,
}

impl ReleaseCosts {
    /// From a round trip of short datagrams, a lock that comes from the other node, and a
    /// fault that brings a page from it, all with nothing else to do.
    ///
    /// A lock is two datagrams, a request and its answer, and three decisions; the rest of its time
    /// is divided evenly. A fault is two datagrams, a trap, three decisions, a page's bytes, a
    /// placing and a waking.
    #[must_use]
    pub fn of(round_trip: Duration, lock: Duration, fault: Duration) -> Self {
        let short = round_trip / 2;
        let part = lock.saturating_sub(round_trip) / 5;
        let rest = fault.saturating_sub(round_trip + 3 * part) / 4;
        Self {
            short,
            byte_nanos: rest.as_nanos() as f64 / 4096.0,
            trap: rest,
            call: part,
            decide: part,
            place: rest,
            evict: 2 * rest,
            copy: Duration::from_micros(1),
            wake: rest,
            preempt: part,
        }
    }

    /// The same where all of it takes so many times as long: a program that sweeps through
    /// more memory than the caches hold has the kernel and the daemon start cold each time.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        let more = |time: Duration| time.mul_f64(factor);
        Self {
            short: more(self.short),
            byte_nanos: self.byte_nanos * factor,
            trap: more(self.trap),
            call: more(self.call),
            decide: more(self.decide),
            place: more(self.place),
            evict: more(self.evict),
            copy: more(self.copy),
            wake: more(self.wake),
            preempt: more(self.preempt),
        }
    }

    /// The sender's half of a datagram, or the receiver's.
    pub(crate) fn half(&self, bytes: usize) -> Duration {
        let bytes = (self.byte_nanos * bytes as f64 / 2.0) as u64;
        self.short / 2 + Duration::from_nanos(bytes)
    }
}
