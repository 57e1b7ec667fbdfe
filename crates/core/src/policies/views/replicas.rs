//! Replicas: what this node holds, one other node has, too, the *backup*, as it was published; when
//! this node dies, the census finds it there.
//!
//! - A holder has chosen one backup for the segment, and keeps to it while that lives. It names each
//!   publication to the backup (`Keep`) until that has it (`Kept`).
//! - A copy that is kept ([`kept`](super::kept)) stays in its frame when programs purge it: it is *veiled* from their views.
//! - A holder that gives the consistent copy away keeps what it gave, until the new holder's backup has
//!   it; and its own backup does so until the copy has arrived. In a segment without replicas the giver
//!   keeps it until then, too: if the receiver is gone first, nobody else may have it.
//! - Pages that never moved are zeros until they are published. Their home asks its backup to answer
//!   for them (`Zeros`) when all else is kept; a node that answers for a home that is gone looks for
//!   a backup of its own. So a page that is found nowhere, and that nobody has seen move, is zeros, not lost.
//!
//! INV-published-survives: what was acknowledged as kept is on two living nodes, or on one whose
//! `unreplicated` is not zero; the next holder has it, or something newer.

use super::messages::{Body, Run};
use super::orphans::Orphans;
use super::page::Page;
use super::publications::Publications;
use super::say;
use crate::backoff::Backoff;
use crate::continuation::Continuation;
use crate::effect::Reply;
use crate::event::Event;
use crate::policies::backup;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::time::Duration;
use pagemesh_sorted::LongMap;
use pagemesh_wire::header::OLDEST_VERSION;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, NodeId, NodeSet, PageIndex, SegmentId, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Publications that are named to the backup at a time, pages without a holder that are asked for at
/// a time, and pages that a backup asks for at a time.
pub(super) const FLIGHT: usize = 64;

/// A node that is alone looks so often whether there is a backup.
const ALONE: Duration = Duration::from_millis(500);

/// The pages that this node keeps for others, and others for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Replicas {
    /// The segment has them.
    pub(super) on: bool,
    backup: Option<NodeId>,
    /// Publications that the backup does not have, by their first pages: not named to it yet, and
    /// named.
    pending: BTreeSet<PageIndex>,
    asked: BTreeSet<PageIndex>,
    backoff: Option<Backoff>,
    pub(super) zeros: Zeros,
    /// Requests that wait until these pages are kept.
    waiting: Vec<(Ticket, ClientId, PageIndex, u32)>,
    /// Also in a segment without replicas.
    pub(super) orphans: Orphans,
    /// Nodes that leave: they keep nothing more.
    leavers: NodeSet,
    /// This node leaves, and asks those for whom it keeps pages to find another one.
    pub(super) leaving: Option<Backoff>,
}

/// The answer for the pages that never moved: which node gives it, and which one when that is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Zeros {
    /// This node answers for them when that one is gone.
    pub(super) of: Option<NodeId>,
    /// It is gone.
    pub(super) inherited: bool,
    /// The backup was asked to answer for them, and does.
    asked: bool,
    kept: bool,
    /// The backup before, which leaves when another one answers for them.
    leaver: Option<NodeId>,
}

/// What there is to keep.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    pub(super) segment: SegmentId,
    /// Pages of the segment.
    pub(super) size: u32,
    pub(super) published: &'a Publications,
    pub(super) pages: &'a LongMap<PageIndex, Page>,
    pub(super) listeners: &'a NodeSet,
}

impl Held<'_> {
    /// Names a publication of which all pages are here.
    fn name(self, cx: &mut Cx<'_>, backup: NodeId, first: PageIndex) -> bool {
        let Some(run) = self.published.at(first) else {
            return false;
        };
        let holds = |page: PageIndex| self.pages.get(&page).is_some_and(|page| page.holds);
        let all = run.pages().all(holds);
        if all {
            say(cx, self.segment, backup, &Body::Keep { run });
        }
        all
    }
}

impl Replicas {
    /// The backup, if there is one.
    pub(super) fn backup(&self) -> Option<NodeId> {
        self.backup
    }

    pub(super) fn client_gone(&mut self, client: ClientId) {
        self.waiting.retain(|(_, owner, ..)| *owner != client);
    }

    pub(super) fn cancel(&mut self, ticket: Ticket) -> bool {
        let over = |waiting: &mut (Ticket, ClientId, PageIndex, u32)| waiting.0 == ticket;
        self.waiting.extract_if(.., over).next().is_some()
    }

    /// Whether this node answers for the pages that never moved.
    fn answers_for_zeros(&self, me: NodeId, segment: SegmentId) -> bool {
        segment.home() == me || self.zeros.inherited
    }

    /// A publication is not the newest of its pages any more. True if the backup did not have it.
    pub(super) fn superseded(&mut self, first: PageIndex, same_first: bool) -> bool {
        let unkept = self.is_unkept(&first);
        if !same_first {
            self.pending.remove(&first);
            self.asked.remove(&first);
        }
        unkept
    }

    /// Whether the backup does not have the publication that begins at this page.
    fn is_unkept(&self, first: &PageIndex) -> bool {
        self.pending.contains(first) || self.asked.contains(first)
    }

    /// Publications that the backup does not have.
    fn unkept(&self, published: &Publications) -> impl Iterator<Item = Run> {
        let firsts = self.pending.iter().chain(&self.asked);
        firsts.filter_map(|first| published.at(*first))
    }

    /// Whether the page is in a publication that the backup does not have.
    fn lacks_page(&self, published: &Publications, page: PageIndex) -> bool {
        let known = published.with(page);
        known.is_some_and(|run| self.is_unkept(&run.first))
    }

    /// Pages that are on no second node yet, as far as this node must see to that.
    pub(super) fn unreplicated(
        &self,
        me: NodeId,
        (segment, size): (SegmentId, u32),
        published: &Publications,
    ) -> u64 {
        if !self.on {
            return 0;
        }
        if self.answers_for_zeros(me, segment) && !self.zeros.kept {
            return size.into();
        }
        let unkept = self.unkept(published);
        let pages: u64 = unkept.map(|run| u64::from(run.count)).sum();
        pages + self.orphans.len() as u64
    }

    /// The backup does not have this publication.
    pub(super) fn lacks(&mut self, first: PageIndex) {
        if self.on && !self.asked.contains(&first) {
            self.pending.insert(first);
        }
    }

    /// A request waits until the backup has these pages; at once, if there is nobody to keep them.
    pub(super) fn wait(
        &mut self,
        cx: &mut Cx<'_>,
        held: Held<'_>,
        (ticket, client): (Ticket, ClientId),
        (first, count): (PageIndex, u32),
    ) {
        self.waiting.push((ticket, client, first, count));
        self.settle(cx, held);
    }

    /// Ends the requests whose pages are kept.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_>, held: Held<'_>) {
        if self.waiting.is_empty() {
            return;
        }
        let unkept: Vec<Run> = self.unkept(held.published).collect();
        let alone = self.backup.is_none();
        let is_over = |first: PageIndex, count: u32| {
            let meets =
                |run: &Run| run.first.0 < first.0 + count && first.0 < run.first.0 + run.count;
            let mut moving = held.pages.range(first..PageIndex(first.0 + count));
            alone || !(unkept.iter().any(meets) || moving.any(|(_, page)| page.passing.is_some()))
        };
        let waiting = &mut self.waiting;
        let over = waiting.extract_if(.., |(.., first, count)| is_over(*first, *count));
        for (ticket, ..) in over {
            cx.reply(ticket, Reply::Done);
        }
    }

    /// Chooses a backup if there is none, and names what it lacks. Returns when to look again, if
    /// this node is alone.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>, held: Held<'_>) -> Option<Time> {
        let answers = self.answers_for_zeros(cx.me(), held.segment);
        if self.backup.is_none() && (!self.pending.is_empty() || answers) {
            self.backup = self.choose(cx, held);
        }
        let mut again = None;
        if let Some(backup) = self.backup {
            self.name_to(cx, held, backup);
        } else if self.unreplicated(cx.me(), (held.segment, held.size), held.published) > 0 {
            again = Some(cx.now + ALONE);
        }
        let waits = !self.asked.is_empty() || (self.zeros.asked && !self.zeros.kept);
        let timer = Timer::Segment(held.segment);
        match (waits, self.backoff.take()) {
            (true, None) => self.backoff = Some(cx.backoff(timer)),
            (false, Some(backoff)) => cx.end(&backoff, timer),
            (_, backoff) => self.backoff = backoff,
        }
        self.settle(cx, held);
        again
    }

    fn choose(&self, cx: &Cx<'_>, held: Held<'_>) -> Option<NodeId> {
        let users = held.listeners.iter();
        backup::choose(cx, users, &self.leavers, OLDEST_VERSION)
    }

    fn name_to(&mut self, cx: &mut Cx<'_>, held: Held<'_>, backup: NodeId) {
        while self.asked.len() < FLIGHT {
            let Some(first) = self.pending.pop_first() else {
                break;
            };
            if held.name(cx, backup, first) {
                self.asked.insert(first);
            }
        }
        let answers = self.answers_for_zeros(cx.me(), held.segment);
        let all_else = self.pending.is_empty() && self.asked.is_empty() && self.orphans.is_empty();
        if all_else && answers && !self.zeros.asked {
            self.zeros.asked = true;
            say(cx, held.segment, backup, &Body::Zeros);
        }
    }

    /// Names again what the backup has not acknowledged, if it is time.
    pub(super) fn due(&mut self, cx: &mut Cx<'_>, held: Held<'_>) {
        let Some(mut backoff) = self.backoff.take() else {
            return;
        };
        let due = cx.fire(&mut backoff, Timer::Segment(held.segment));
        self.backoff = Some(backoff);
        if due && let Some(backup) = self.backup {
            self.asked.retain(|first| held.name(cx, backup, *first));
            if self.zeros.asked && !self.zeros.kept {
                say(cx, held.segment, backup, &Body::Zeros);
            }
        }
    }

    /// The node that is to keep pages does not know the segment: it is told.
    pub(super) fn backup_knows_nothing(&self, cx: &mut Cx<'_>, segment: SegmentId, backup: NodeId) {
        if self.backup != Some(backup) {
            return cx.emit(Event::Stale {});
        }
        let to = backup;
        cx.ready(Continuation::Introduce { to, segment });
    }

    /// The backup has a publication. If there is a newer one of these pages, it is named next.
    /// Returns whether the news was expected.
    pub(super) fn kept(&mut self, from: NodeId, run: Run, newest: Option<Run>) -> bool {
        let expected = self.backup == Some(from) && self.asked.remove(&run.first);
        if expected && newest.is_some_and(|newest| newest != run) {
            self.lacks(run.first);
        }
        expected
    }

    /// The backup answers for pages that never moved. Returns whether it was asked to.
    pub(super) fn zeros_kept(&mut self, cx: &mut Cx<'_>, segment: SegmentId, from: NodeId) -> bool {
        let expected = self.backup == Some(from) && self.zeros.asked;
        if expected {
            self.zeros.kept = true;
            if let Some(leaver) = self.zeros.leaver.take() {
                say(cx, segment, leaver, &Body::ReleaseZeros);
            }
        }
        expected
    }

    /// An answer has come, or will not: what is still missing is named after the usual time.
    pub(super) fn restart(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        if let Some(backoff) = self.backoff.take() {
            cx.end(&backoff, Timer::Segment(segment));
        }
    }

    /// A node that keeps pages of this one leaves, and asks for these of them. Returns those that must
    /// be on another one first, if there is any.
    pub(super) fn leaves(
        &mut self,
        cx: &Cx<'_>,
        held: Held<'_>,
        from: NodeId,
        pages: &[PageIndex],
    ) -> Vec<PageIndex> {
        self.leavers.insert(from);
        if self.backup == Some(from) {
            self.without_backup(held.published);
        }
        if self.choose(cx, held).is_none() {
            return Vec::new();
        }
        // The message is repeated with what is left, as far as it has room.
        let unkept = pages.iter().copied();
        unkept
            .filter(|page| self.lacks_page(held.published, *page))
            .collect()
    }

    /// A node that answers for pages that never moved leaves. Another one must do so first, if there
    /// is any.
    pub(super) fn zeros_leave(&mut self, cx: &mut Cx<'_>, held: Held<'_>, from: NodeId) {
        let answers = self.answers_for_zeros(cx.me(), held.segment);
        if answers && !self.zeros.kept && self.choose(cx, held).is_some() {
            self.zeros.leaver = Some(from);
        } else {
            say(cx, held.segment, from, &Body::ReleaseZeros);
        }
    }

    /// A member is gone: its backup's work is another's from now on.
    pub(super) fn member_gone(&mut self, published: &Publications, node: NodeId) {
        if self.zeros.of == Some(node) {
            self.zeros.inherited = true;
        }
        self.zeros.leaver = self.zeros.leaver.filter(|leaver| *leaver != node);
        if self.backup == Some(node) {
            self.without_backup(published);
        }
    }

    /// Another backup must have everything.
    fn without_backup(&mut self, published: &Publications) {
        self.backup = None;
        self.asked.clear();
        self.pending = published.firsts().collect();
        (self.zeros.asked, self.zeros.kept) = (false, false);
    }

    /// This node is no member any more.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_>, segment: SegmentId) {
        let on = self.on;
        let mut old = core::mem::take(self);
        self.on = on;
        old.restart(cx, segment);
        for (ticket, ..) in old.waiting {
            cx.refuse(ticket, Refusal::NotMember);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::Stamp;
    use super::*;
    use crate::effect::{Effect, Effects};
    use crate::shell::Shell;
    use pagemesh_wire::peer::Message;

    const HOME: NodeId = NodeId(1);
    /// The member after this node, n2, which it chooses.
    const BACKUP: NodeId = NodeId(3);

    /// A node that is not the home.
    struct Node {
        shell: Shell,
        replicas: Replicas,
        published: Publications,
        pages: LongMap<PageIndex, Page>,
    }

    fn run(page: u32, number: u64) -> Run {
        Run {
            first: PageIndex(page),
            count: 1,
            stamp: Stamp { version: 1, number },
        }
    }

    impl Node {
        /// It holds so many pages, and has published each.
        fn new(pages: u32) -> Self {
            let mut node = Self {
                shell: Shell::of_four(NodeId(2)),
                replicas: Replicas::default(),
                published: Publications::default(),
                pages: LongMap::new(),
            };
            node.replicas.on = true;
            for page in 0..pages {
                node.pages.insert(PageIndex(page), Page::new(HOME, true));
                node.publish(page, 1);
            }
            node
        }

        fn publish(&mut self, page: u32, number: u64) {
            self.published.add(run(page, number), 4096);
            self.replicas.lacks(PageIndex(page));
        }

        /// Does a step. Returns its result, the messages to other nodes, and the number of replies.
        fn step<T>(
            &mut self,
            work: impl FnOnce(&mut Replicas, &mut Cx<'_>, Held<'_>) -> T,
        ) -> (T, Vec<(NodeId, Body)>, usize) {
            let mut effects = Effects::default();
            let mut cx = Cx {
                now: Time(0),
                shell: &mut self.shell,
                effects: &mut effects,
            };
            let held = Held {
                segment: SegmentId::new(HOME, 1),
                size: 1000,
                published: &self.published,
                pages: &self.pages,
                listeners: &NodeSet::EMPTY,
            };
            let result = work(&mut self.replicas, &mut cx, held);
            let (mut told, mut replies) = (Vec::new(), 0);
            for effect in effects.drain() {
                match effect {
                    Effect::Send {
                        header, message, ..
                    } => match *message {
                        Message::Policy(said) => told.push((header.to, said.body.read().unwrap())),
                        other => panic!("{other:?}"),
                    },
                    Effect::Reply { .. } => replies += 1,
                    _ => {}
                }
            }
            (result, told, replies)
        }

        /// The pages that are named to a node now.
        fn named(&mut self, to: NodeId) -> Vec<u32> {
            let (_, told, _) = self.step(|of, cx, held| of.pump(cx, held));
            let named = told.into_iter().map(|(node, body)| match body {
                Body::Keep { run } if node == to => run.first.0,
                other => panic!("{node}: {other:?}"),
            });
            named.collect()
        }

        fn unreplicated(&mut self) -> u64 {
            let size = |held: Held<'_>| (held.segment, held.size);
            self.step(|of, cx, held| of.unreplicated(cx.me(), size(held), held.published))
                .0
        }
    }

    #[test]
    fn publications_are_named_until_they_are_kept_some_at_a_time() {
        let mut node = Node::new(FLIGHT as u32 + 1);
        assert_eq!(node.named(BACKUP).len(), FLIGHT);
        assert_eq!(node.named(BACKUP), []);
        assert_eq!(node.unreplicated(), FLIGHT as u64 + 1);
        let newest = Some(run(0, 1));
        assert!(!node.replicas.kept(NodeId(4), run(0, 1), newest));
        assert!(node.replicas.kept(BACKUP, run(0, 1), newest));
        assert!(!node.replicas.kept(BACKUP, run(0, 1), newest), "once");
        assert_eq!(node.named(BACKUP), [FLIGHT as u32]);
        assert_eq!(node.unreplicated(), FLIGHT as u64);
    }

    #[test]
    fn a_publication_that_became_old_on_its_way_is_named_anew() {
        let mut node = Node::new(1);
        assert_eq!(node.named(BACKUP), [0]);
        node.publish(0, 2);
        assert_eq!(node.named(BACKUP), [], "one of these pages is under way");
        assert!(node.replicas.kept(BACKUP, run(0, 1), Some(run(0, 2))));
        assert_eq!(node.named(BACKUP), [0]);
        assert!(node.replicas.kept(BACKUP, run(0, 2), Some(run(0, 2))));
        assert_eq!((node.named(BACKUP), node.unreplicated()), (vec![], 0));
    }

    #[test]
    fn another_backup_must_have_everything() {
        let mut node = Node::new(2);
        node.named(BACKUP);
        for page in [0, 1] {
            node.replicas.kept(BACKUP, run(page, 1), Some(run(page, 1)));
        }
        assert_eq!(node.unreplicated(), 0);
        let mut view = node.shell.view.clone();
        view.members[2].health = pagemesh_wire::peer::Health::Dead;
        node.shell.set_view(view);
        node.step(|of, _, held| of.member_gone(held.published, BACKUP));
        assert_eq!(node.unreplicated(), 2);
        assert_eq!(node.named(NodeId(4)), [0, 1]);
    }

    #[test]
    fn a_request_waits_for_its_pages_alone() {
        let mut node = Node::new(2);
        node.named(BACKUP);
        let wait = |ticket, page| {
            move |of: &mut Replicas, cx: &mut Cx<'_>, held: Held<'_>| {
                let who = (Ticket(ticket), ClientId(1));
                of.wait(cx, held, who, (PageIndex(page), 1));
            }
        };
        assert_eq!(node.step(wait(1, 0)).2, 0);
        assert_eq!(node.step(wait(2, 1)).2, 0);
        node.replicas.kept(BACKUP, run(1, 1), Some(run(1, 1)));
        assert_eq!(node.step(|of, cx, held| of.settle(cx, held)).2, 1);
        assert!(node.replicas.cancel(Ticket(1)));
        assert!(!node.replicas.cancel(Ticket(2)), "it is answered");
    }

    #[test]
    fn the_home_asks_for_zeros_when_all_else_is_kept() {
        let mut node = Node::new(1);
        node.replicas.zeros.inherited = true;
        assert_eq!(node.unreplicated(), 1000);
        assert_eq!(node.named(BACKUP), [0]);
        node.replicas.kept(BACKUP, run(0, 1), Some(run(0, 1)));
        let (_, told, _) = node.step(|of, cx, held| of.pump(cx, held));
        assert_eq!(told, [(BACKUP, Body::Zeros)]);
        let kept = |from| {
            move |of: &mut Replicas, cx: &mut Cx<'_>, held: Held<'_>| {
                of.zeros_kept(cx, held.segment, from)
            }
        };
        assert!(!node.step(kept(NodeId(4))).0);
        assert!(node.step(kept(BACKUP)).0);
        assert_eq!(node.unreplicated(), 0);
    }

    #[test]
    fn what_only_a_leaving_backup_has_goes_to_another_one_first() {
        let mut node = Node::new(2);
        node.named(BACKUP);
        let leaves = |of: &mut Replicas, cx: &mut Cx<'_>, held: Held<'_>| {
            of.leaves(cx, held, BACKUP, &[PageIndex(0), PageIndex(5)])
        };
        assert_eq!(node.step(leaves).0, [PageIndex(0)]);
        assert_eq!(node.named(NodeId(4)), [0, 1]);
        for other in [1, 4] {
            node.replicas.leavers.insert(NodeId(other));
        }
        assert_eq!(node.step(leaves).0, [], "there is nobody else");
    }
}
