//! Donors that leave the cluster: what only donors have goes to others before they are gone.

use super::Private;
use super::memory::Memory;
use super::page::{Donors, Place};
use crate::shell::Cx;
use pagemesh_wire::peer::{Backing, Global, Message};
use pagemesh_wire::{NodeId, PageIndex, Version};

impl Private {
    /// A donor that leaves names pages that it keeps. Those that are nowhere on this node are
    /// fetched, to be sent to others; until they are here the donor has to wait. It may drop all
    /// the others at once.
    pub(super) fn donor_leaves(
        &mut self,
        cx: &mut Cx<'_>,
        donor: NodeId,
        pages: &[(PageIndex, Version)],
    ) {
        let mut dropped = Vec::new();
        for (page, version) in pages.iter().copied() {
            let known = self.memory.pages.get_mut(&page);
            let known = known.filter(|known| known.donors.all().contains(donor));
            match known {
                Some(known) if known.place == Place::Out && !known.on_disk => {
                    self.outgoing.repair.insert(page);
                }
                Some(known) => {
                    known.donors.remove(donor);
                    dropped.push((page, version.max(known.version)));
                }
                None => dropped.push((page, version)),
            }
        }
        if !dropped.is_empty() {
            let segment = self.memory.rules.segment;
            let pages = dropped;
            cx.send(donor, Message::Global(Global::Drop { segment, pages }));
        }
        self.outgoing_due(cx);
    }
}

impl Memory {
    /// The contents of a page are on this node: donors that leave need not keep it any more.
    pub(super) fn release_leavers(&mut self, cx: &mut Cx<'_>, page: PageIndex) {
        let Some(known) = self.pages.get_mut(&page) else {
            return;
        };
        if self.rules.backing == Backing::File {
            return;
        }
        let mut leavers = Donors::NONE;
        for node in known.donors.all().iter() {
            if cx.shell.memory.is_leaving(node) {
                leavers.add(node, true);
            }
        }
        for node in leavers.all().iter() {
            known.donors.remove(node);
        }
        let version = known.version;
        self.release(cx, page, version, leavers);
    }
}
