//! What this node has of a page, opened for the length of one input.

use super::page::Page;
use super::replicas::Notes;
use super::rules::Rules;
use crate::effect::{Effect, Mappings, Reply, Rights, Source};
use crate::event::Event;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use pagemesh_wire::peer::{Message, Refusal, Subject, Waiter};
use pagemesh_wire::{MappingId, NodeId, PageIndex, SegmentId, Ticket, Version};

/// The frame, the rights and the ownership that this node has of a page, with everything needed to use
/// them here and to give them away. Requests of this node are a matter of the
/// [`PageContext`](super::context::PageContext).
pub(super) struct PageHere<'a, 'b> {
    pub(super) cx: &'a mut Cx<'b>,
    pub(super) rules: &'a Rules,
    pub(super) index: PageIndex,
    pub(super) page: &'a mut Page,
    /// When the segment's hold ends.
    pub(super) held_until: Time,
    /// About its replicas.
    pub(super) notes: Notes<'a>,
}

impl PageHere<'_, '_> {
    pub(super) fn at(&self) -> (SegmentId, PageIndex) {
        (self.rules.segment, self.index)
    }

    pub(super) fn subject(&self) -> Subject {
        self.rules.subject(self.index)
    }

    pub(super) fn timer(&self) -> Timer {
        self.rules.timer(self.index)
    }

    pub(super) fn home(&self) -> NodeId {
        self.cx.home(self.rules.segment)
    }

    pub(super) fn is_owner(&self) -> bool {
        self.page.own.hint == self.cx.me()
    }

    /// A mapping may use the page.
    pub(super) fn map(&mut self, mapping: MappingId, rights: Rights) {
        self.cx.push(Effect::Map {
            mappings: Mappings::One(mapping),
            pages: self.at().into(),
            rights,
        });
    }

    /// The frame gets the page's contents.
    pub(super) fn fill(&mut self, source: Source) {
        let (segment, page) = self.at();
        if source == Source::Payload {
            self.cx.emit(Event::BytesArrived { segment, page });
        }
        self.cx.push(Effect::Fill {
            pages: (segment, page).into(),
            source,
        });
        self.page.filled = true;
    }

    /// An owner whose frame is empty owns zeros: all other pages it owned arrived with contents,
    /// which leave only with ownership.
    pub(super) fn fill_if_empty(&mut self) {
        if !self.page.filled {
            assert!(
                self.page.pristine,
                "INV-page-not-lost: {:?} has no contents",
                self.subject()
            );
            self.fill(Source::Zero);
        }
    }

    /// The frame gets what this node has kept of the page.
    pub(super) fn fill_from_replica(&mut self) {
        let place = self.notes.place();
        self.page.pristine = place.is_none();
        if let Some(place) = place {
            self.fill(Source::Replica(place));
        }
    }

    /// No mapping may store to the page any more.
    pub(super) fn protect(&mut self) {
        self.cx.push(Effect::Protect {
            pages: self.at().into(),
            mappings: Mappings::All,
        });
        self.page.rights = Rights::Read;
    }

    /// The writer here becomes a reader (M11).
    pub(super) fn downgrade(&mut self) {
        let (segment, page) = self.at();
        self.protect();
        self.page.note_end(self.rules);
        self.cx.emit(Event::Downgraded { segment, page });
    }

    /// Stops stores for a commit. Returns the version of the contents, and whether they are zeros; none
    /// if the page is about to become another one.
    pub(super) fn freeze(&mut self) -> Option<(Version, bool)> {
        let empty = !self.page.filled && !self.page.pristine;
        if !self.is_owner() || self.page.gathers() || empty {
            return None;
        }
        if self.page.rights == Rights::Write {
            self.protect();
        }
        Some((self.page.own.version, self.page.pristine))
    }

    /// Takes the page away from all mappings here.
    pub(super) fn evict(&mut self, keep: bool) {
        let (segment, page) = self.at();
        if self.page.filled {
            self.cx.push(Effect::Evict {
                pages: (segment, page).into(),
                keep,
            });
            self.notes.saw(self.page.own.version);
        }
        self.page.note_end(self.rules);
        self.page.filled = false;
        self.page.rights = Rights::None;
        self.page.unused = false;
        if let Some(more) = self.page.more_if_any() {
            more.seen_unused = false;
            more.wake_watchers(self.cx);
        }
    }

    pub(super) fn drop_stash(&mut self) {
        let (segment, page) = self.at();
        if !self.notes.keep_stash() {
            self.cx.push(Effect::DropStash { segment, page });
        }
    }

    /// Guarantees that the page does not change before the watcher is told.
    pub(super) fn watch(&mut self, ticket: Ticket) {
        if self.page.rights == Rights::None || !self.page.filled {
            self.cx.reply(ticket, Reply::Changed);
            return;
        }
        if self.page.rights == Rights::Write {
            self.downgrade();
        }
        self.page.more().watchers.push(ticket);
        self.cx.reply(ticket, Reply::Waiting);
    }

    /// Sends a request on to where the owner is expected. Returns false if no node is known.
    pub(super) fn forward(&mut self, waiter: Waiter, hops: u8, by_library: bool) -> bool {
        let subject = self.subject();
        self.page
            .own
            .forward(self.cx, subject, waiter, hops, by_library)
    }

    pub(super) fn send_contents(&mut self, to: NodeId, message: Message, source: Source) {
        let (segment, page) = self.at();
        let contents = message.carries_page().then_some((segment, page, source));
        if contents.is_some() {
            self.cx.emit(Event::BytesLeft { segment, page });
        }
        self.cx.send_page(to, message, contents);
    }

    pub(super) fn fail(&mut self, mapping: MappingId, with: NodeId) {
        self.cx.fail(mapping, self.at(), Refusal::NodeGone(with));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effects;
    use crate::shell::Shell;
    use pagemesh_wire::peer::{Manager, Window};

    const HOME: NodeId = NodeId(1);

    /// Works on a page of which nothing is known but its home. Returns how many effects that has.
    fn at(me: NodeId, page: &mut Page, work: impl FnOnce(&mut PageHere<'_, '_>)) -> usize {
        let segment = SegmentId::new(HOME, 1);
        let index = PageIndex(7);
        let mut effects = Effects::default();
        let mut cx = Cx {
            now: Time(0),
            shell: &mut Shell::of_four(me),
            effects: &mut effects,
        };
        work(&mut PageHere {
            cx: &mut cx,
            rules: &Rules {
                segment,
                manager: Manager::Dynamic,
                window: Window::Nanos(0),
            },
            index,
            page,
            held_until: Time::ZERO,
            notes: Notes {
                book: None,
                segment,
                page: index,
            },
        });
        effects.drain().count()
    }

    #[test]
    fn only_an_owner_fills_an_empty_frame_with_zeros_and_only_once() {
        let mut page = Page::new(HOME);
        at(HOME, &mut page, |here| assert!(here.is_owner()));
        at(NodeId(2), &mut page, |here| assert!(!here.is_owner()));
        let effects = at(HOME, &mut page, |here| {
            here.fill_if_empty();
            here.fill_if_empty();
        });
        assert!(page.filled);
        assert_eq!(effects, 1);
    }

    #[test]
    fn an_evicted_page_has_no_rights_and_wakes_its_watchers() {
        let mut page = Page::new(HOME);
        (page.filled, page.rights, page.unused) = (true, Rights::Write, true);
        at(HOME, &mut page, |here| here.watch(Ticket(1)));
        assert_eq!(page.rights, Rights::Read, "it must not change unseen");
        at(HOME, &mut page, |here| here.evict(false));
        assert_eq!((page.rights, page.filled), (Rights::None, false));
        assert!(!page.unused && page.more().watchers.is_empty());
    }

    #[test]
    fn a_page_without_contents_is_not_committed() {
        let mut page = Page::new(HOME);
        page.rights = Rights::Write;
        at(HOME, &mut page, |here| {
            assert_eq!(here.freeze(), Some((Version(0), true)));
        });
        assert_eq!(page.rights, Rights::Read);
        page.pristine = false;
        at(HOME, &mut page, |here| assert_eq!(here.freeze(), None));
    }
}
