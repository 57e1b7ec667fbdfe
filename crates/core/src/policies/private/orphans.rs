//! Copies at donors that this node does not count on: see [`Donor::audit`](crate::global::Donor).
//!
//! A donor that was told to drop a version must not be sent the same version again: the message may
//! be late, and end the new copy. So the contents become another version before they are sent again.

use super::Private;
use super::memory::Memory;
use super::page::{Page, Place};
use crate::shell::Cx;
use pagemesh_wire::{NodeId, PageIndex, Version};

impl Page {
    /// The same contents are another version from now on, which no donor has.
    pub(super) fn renew(&mut self) {
        self.told = false;
        self.version.0 += 1;
        self.donors.outdate();
    }
}

impl Private {
    /// Whether a copy that a donor keeps is to stay there.
    pub(super) fn counts_on(
        &mut self,
        cx: &Cx<'_>,
        donor: NodeId,
        (page, version): (PageIndex, Version),
    ) -> bool {
        let Some(known) = self.memory.pages.get_mut(&page) else {
            return false;
        };
        if known.donors.all().contains(donor) {
            return true;
        }
        if known.version != version || known.on_disk {
            return false;
        }
        let is_second = known.donors.all().iter().count() == 1;
        match known.place {
            // It is as good as the one that is left of two.
            Place::Out if is_second && !cx.shell.memory.is_leaving(donor) => {
                known.donors.add(donor, true);
                self.outgoing.repair.remove(&page);
                true
            }
            Place::Out => {
                known.told = true;
                false
            }
            place if place.is_writable() => false,
            _ => {
                known.renew();
                false
            }
        }
    }
}

impl Memory {
    /// The contents have come from a donor.
    pub(super) fn renew_if_told(&mut self, page: PageIndex) {
        if let Some(known) = self.pages.get_mut(&page).filter(|known| known.told) {
            known.renew();
        }
    }
}
