//! Decides whether a wait begins with polling: only while polling has found something of late.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// After this many consecutive polls in vain a wait begins without one,
const DISAPPOINTED: u32 = 4;

/// and with one again after this many waits.
const RESIGNED: u32 = 64;

/// Whether polling is worth its time; see the module.
#[derive(Debug, Default)]
pub struct Polling {
    /// Number of waits since polling last found something.
    vain: AtomicU32,
}

impl Polling {
    /// Counts a wait. True if it should begin with polling.
    #[must_use]
    pub fn is_worth_it(&self) -> bool {
        let vain = self.vain.load(Relaxed);
        let skips = (DISAPPOINTED..RESIGNED).contains(&vain);
        if skips {
            self.vain.store(vain + 1, Relaxed);
        }
        !skips
    }

    /// Notes whether polling has found something.
    pub fn ended(&self, found: bool) {
        let vain = self.vain.load(Relaxed);
        let next = match vain {
            _ if found => 0,
            RESIGNED.. => DISAPPOINTED,
            _ => vain + 1,
        };
        self.vain.store(next, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_tried_again_now_and_then() {
        let polling = Polling::default();
        let polled = |found| {
            let so = polling.is_worth_it();
            if so {
                polling.ended(found);
            }
            so
        };
        let tries = (0..DISAPPOINTED + 2 * RESIGNED).filter(|_| polled(false));
        assert_eq!(tries.count() as u32, DISAPPOINTED + 2);
        while !polled(true) {}
        assert!(
            (0..100).all(|_| polled(true)),
            "as long as it finds something"
        );
        assert!(polled(false) && polled(false) && polled(true));
    }
}
