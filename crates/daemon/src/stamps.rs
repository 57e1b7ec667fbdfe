//! The last time stamps of this node (M22).

use pagemesh_core::Event;
use pagemesh_os::clock;
use pagemesh_wire::local::{Stamp, StampKind};
use std::collections::VecDeque;

/// A ring of time stamps.
#[derive(Debug)]
pub(crate) struct Stamps {
    ring: VecDeque<Stamp>,
    next: u64,
}

/// Stamps kept.
const KEPT: usize = 1 << 16;

/// Stamps in one report: as many as surely fit in a packet.
const TOLD: usize = 1024;

impl Default for Stamps {
    fn default() -> Self {
        Self {
            ring: VecDeque::with_capacity(KEPT),
            next: 0,
        }
    }
}

impl Stamps {
    /// Stamps an event of kind `what` that happens now.
    pub(crate) fn push(&mut self, what: StampKind, tag: u64) {
        self.stamp(what, tag, clock::monotonic());
    }

    fn stamp(&mut self, what: StampKind, tag: u64, nanos: u64) {
        if self.ring.len() == KEPT {
            self.ring.pop_front();
        }
        self.ring.push_back(Stamp {
            number: self.next,
            nanos,
            what,
            tag,
        });
        self.next += 1;
    }

    /// Stamps an event of that time, if it is one of a page's journey.
    pub(crate) fn event(&mut self, event: &Event, nanos: u64) {
        let (what, page) = match event {
            Event::ReadFault { page, .. }
            | Event::WriteFault { page, .. }
            | Event::Upgrade { page, .. }
            | Event::LocalFault { page, .. } => (StampKind::Fault, page),
            Event::Asked { page, .. } => (StampKind::Asked, page),
            Event::CopyArrived { page, .. } | Event::OwnershipArrived { page, .. } => {
                (StampKind::Arrived, page)
            }
            Event::Granted { page, .. } => (StampKind::Mapped, page),
            Event::CopyGiven { page, .. } | Event::OwnershipGiven { page, .. } => {
                (StampKind::Given, page)
            }
            Event::Invalidated { page, .. } => (StampKind::Invalidated, page),
            _ => return,
        };
        self.stamp(what, u64::from(page.0), nanos);
    }

    /// Stamps from number `from` on, as many as fit.
    pub(crate) fn since(&self, from: u64) -> Vec<Stamp> {
        let oldest = self.next - self.ring.len() as u64;
        let skip = usize::try_from(from.saturating_sub(oldest)).unwrap_or(usize::MAX);
        self.ring.iter().skip(skip).take(TOLD).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_latest_and_tells_them_in_parts() {
        let mut stamps = Stamps::default();
        for tag in 0..KEPT as u64 + 10 {
            stamps.push(StampKind::Program, tag);
        }
        let first = stamps.since(0);
        assert_eq!((first.len(), first[0].number, first[0].tag), (TOLD, 10, 10));
        let last = stamps.since(KEPT as u64 + 9);
        assert_eq!((last.len(), last[0].tag), (1, KEPT as u64 + 9));
        assert!(stamps.since(u64::MAX).is_empty());
        assert!(first.is_sorted_by_key(|stamp| stamp.nanos));
    }
}
