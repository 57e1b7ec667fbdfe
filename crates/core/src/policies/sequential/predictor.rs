//! The read-modify-write predictor of one node, where Δ is `auto`: it learns that a load of a page
//! is followed by a store to it. Then the node requests the right to store with the page. That
//! saves the second fault and its round trip, and keeps threads from loading from a copy that is
//! about to be invalidated, which would take the processor from the daemon that must fetch the next
//! one.
//!
//! For pages that many nodes load from, that prediction is wrong. So it takes [`PROVEN`]
//! consecutive stays in which a store followed the load that brought the page, and it is checked
//! every [`CHECKED`] stays: the page comes with the right to store, but is mapped for loads only. A
//! fault that needs no datagram then shows whether a store follows.

use super::page::Page;
use super::rules::Rules;
use crate::effect::Rights;
use pagemesh_wire::peer::Access;
use serde::{Deserialize, Serialize};

/// Consecutive stays in which a store followed a load, after which a store is predicted.
const PROVEN: u8 = 3;

/// Stays from one check of the prediction to the next.
const CHECKED: u8 = 16;

/// What is known of the present stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    /// Nothing can be learned from it.
    Plain,
    /// A load brought the page, and no store has followed yet.
    Loaded,
    /// A load brought the page with the right to store. The store causes no fault, unless the page
    /// leaves before it: then the store faults on an absent page.
    Trusted,
    /// A load brought the page with the right to store, but it is mapped for loads only, and no
    /// store has followed yet.
    Checked,
}

/// The predictor of one page: a single byte, because there are millions of pages.
///
/// Bits 0 and 1: consecutive stays in which a store followed a load, at most [`PROVEN`]. Bits 2 and
/// 3: the present [`Stay`]. Bits 4 to 7: stays until the next check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct RmwPredictor(u8);

impl RmwPredictor {
    pub(super) fn of(bits: u8) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u8 {
        self.0
    }

    fn run(self) -> u8 {
        self.0 & 3
    }

    fn stay(self) -> Stay {
        match self.0 >> 2 & 3 {
            0 => Stay::Plain,
            1 => Stay::Loaded,
            2 => Stay::Trusted,
            _ => Stay::Checked,
        }
    }

    fn left(self) -> u8 {
        self.0 >> 4
    }

    fn put(&mut self, run: u8, stay: Stay, left: u8) {
        self.0 = run.min(PROVEN) | (stay as u8) << 2 | left.min(CHECKED - 1) << 4;
    }

    /// Whether a load is predicted to be followed by a store.
    pub(super) fn stores(self) -> bool {
        self.run() == PROVEN
    }

    /// Whether the present stay, or the last one, is [`Stay::Trusted`].
    pub(super) fn trusts(self) -> bool {
        self.stay() == Stay::Trusted
    }

    /// A load brought the page with the right to load only.
    fn loaded(&mut self) {
        self.put(self.run(), Stay::Loaded, self.left());
    }

    /// A load brought the page with the right to store. Returns the rights of the mapping that
    /// loaded.
    fn hoped(&mut self) -> Rights {
        match self.left() {
            0 => {
                self.put(self.run(), Stay::Checked, CHECKED - 1);
                Rights::Read
            }
            left => {
                self.put(self.run(), Stay::Trusted, left - 1);
                Rights::Write
            }
        }
    }

    /// A thread is about to store to the page, which is readable here.
    fn stored(&mut self) {
        match self.stay() {
            Stay::Loaded if self.run() + 1 == PROVEN => {
                self.put(PROVEN, Stay::Plain, CHECKED - 1);
            }
            Stay::Loaded => self.put(self.run() + 1, Stay::Plain, self.left()),
            Stay::Checked => self.put(self.run(), Stay::Plain, self.left()),
            Stay::Plain | Stay::Trusted => {}
        }
    }

    /// A thread is about to store to the page, which is not readable here.
    fn missed(&mut self) {
        if self.stay() == Stay::Trusted {
            self.put(0, Stay::Plain, 0);
        }
    }

    /// The right to store is gone, or the page.
    fn ends(&mut self) {
        if matches!(self.stay(), Stay::Loaded | Stay::Checked) {
            self.put(0, Stay::Plain, 0);
        }
    }
}

impl Page {
    /// The access to request for a load: a store, if one is predicted to follow.
    pub(super) fn expected(&self, rules: &Rules) -> Access {
        if rules.learns() && self.predictor().stores() {
            Access::Write
        } else {
            Access::Read
        }
    }

    /// A thread is about to store.
    pub(super) fn note_store(&mut self, rules: &Rules) {
        let here = self.rights > Rights::None;
        let lesson = match here {
            true => RmwPredictor::stored,
            false => RmwPredictor::missed,
        };
        self.teach(rules, lesson);
    }

    /// The rights of the page fell.
    pub(super) fn note_end(&mut self, rules: &Rules) {
        self.teach(rules, RmwPredictor::ends);
    }

    /// A request of threads that only load is served. Returns the rights of their mappings.
    pub(super) fn note_load(&mut self, rules: &Rules) -> Rights {
        let mut shown = self.rights;
        self.teach(rules, |predictor| {
            if shown == Rights::Write && predictor.stores() {
                shown = predictor.hoped();
            } else {
                predictor.loaded();
            }
        });
        shown
    }

    fn teach(&mut self, rules: &Rules, lesson: impl FnOnce(&mut RmwPredictor)) {
        if rules.learns() {
            let mut predictor = self.predictor();
            lesson(&mut predictor);
            self.set_predictor(predictor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stay that a load began; whether a store followed.
    fn stay(predictor: &mut RmwPredictor, stores: bool) {
        predictor.loaded();
        if stores {
            predictor.stored();
        }
        predictor.ends();
    }

    #[test]
    fn a_store_after_the_load_is_a_predictor_after_some_stays() {
        let mut predictor = RmwPredictor::default();
        for _ in 1..PROVEN {
            stay(&mut predictor, true);
            assert!(!predictor.stores());
        }
        stay(&mut predictor, false);
        for _ in 0..PROVEN {
            assert!(!predictor.stores());
            stay(&mut predictor, true);
        }
        assert!(predictor.stores());
    }

    #[test]
    fn now_and_then_it_is_looked_into() {
        let mut predictor = RmwPredictor::default();
        (0..PROVEN).for_each(|_| stay(&mut predictor, true));
        for _ in 0..3 {
            for _ in 1..CHECKED {
                assert_eq!(predictor.hoped(), Rights::Write);
                predictor.ends();
            }
            assert_eq!(predictor.hoped(), Rights::Read);
            predictor.stored();
            predictor.ends();
            assert!(predictor.stores());
        }
        for _ in 1..CHECKED {
            assert_eq!(predictor.hoped(), Rights::Write);
            predictor.ends();
        }
        // No store follows any more.
        assert_eq!(predictor.hoped(), Rights::Read);
        predictor.ends();
        assert!(!predictor.stores());
    }

    #[test]
    fn a_page_that_leaves_before_the_store_is_asked_for_as_before() {
        let mut predictor = RmwPredictor::default();
        (0..PROVEN).for_each(|_| stay(&mut predictor, true));
        predictor.hoped();
        predictor.ends();
        assert!(predictor.stores() && predictor.trusts());
        predictor.missed();
        assert!(!predictor.stores() && !predictor.trusts());
        // Once a store has followed as usual, a store to an absent page is no miss.
        (0..PROVEN).for_each(|_| stay(&mut predictor, true));
        predictor.missed();
        assert!(predictor.stores());
    }

    #[test]
    fn any_byte_is_a_predictor() {
        for bits in 0..=u8::MAX {
            for lesson in [
                RmwPredictor::loaded,
                RmwPredictor::stored,
                RmwPredictor::missed,
                RmwPredictor::ends,
            ] {
                let mut predictor = RmwPredictor::of(bits);
                lesson(&mut predictor);
                predictor.hoped();
                assert!(predictor.run() <= PROVEN && predictor.left() < CHECKED);
            }
        }
    }
}
