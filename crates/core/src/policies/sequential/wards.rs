//! A node as the backup of others, its *wards*: it keeps their commits, each as a whole or not at all.
//!
//! What has come of a commit is staged in the stash. When everything is there, all of it takes the place
//! of what was kept of these pages before. If the ward is gone before that, the commit never happened:
//! nobody was shown anything that depends on it.

use super::book::Replica;
use super::messages::{Body, Keep, KeepPage, Kept, PAGES};
use super::replicas::{Replicas, SegmentContext};
use crate::effect::Effect;
use crate::event::Event;
use pagemesh_wire::{NodeId, PageIndex, Version};
use serde::{Deserialize, Serialize};

/// What a ward has sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Ward {
    /// Its last commit that counts.
    done: u64,
    /// The commit that is under way.
    staged: Option<Staged>,
    /// This node has, or others have, all that was ever seen of its pages.
    whole: bool,
}

impl Default for Ward {
    fn default() -> Self {
        Self {
            done: 0,
            staged: None,
            whole: true,
        }
    }
}

/// A commit of which not everything is here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Staged {
    commit: u64,
    /// The part that is under way, and which of its places have come.
    part: u32,
    got: u64,
    /// All of that part has come.
    complete: bool,
    /// The pages that have come: their versions, and where they are; nowhere if they are zeros.
    pages: Vec<(PageIndex, Version, Option<PageIndex>)>,
}

impl Ward {
    /// Where in the stash things are that do not count yet.
    pub(super) fn places(&self) -> impl Iterator<Item = PageIndex> + '_ {
        let staged = self.staged.iter().flat_map(|staged| &staged.pages);
        staged.filter_map(|(_, _, place)| *place)
    }

    /// The staged commit, if this part of it is, or can be, under way.
    fn staged(&mut self, part: u32) -> Option<&mut Staged> {
        let staged = self.staged.as_mut()?;
        if staged.complete && part == staged.part + 1 {
            (staged.part, staged.got, staged.complete) = (part, 0, false);
        }
        (staged.part == part).then_some(staged)
    }
}

/// Bits for the first places of a part.
fn first(count: u8) -> u64 {
    match usize::from(count) {
        PAGES.. => u64::MAX,
        count => (1 << count) - 1,
    }
}

impl Replicas {
    /// Makes room for a commit of a ward. False if it is over.
    fn stage(&mut self, segment: &mut SegmentContext<'_, '_>, from: NodeId, commit: u64) -> bool {
        let ward = self.wards.entry(from).or_default();
        if commit <= ward.done {
            return false;
        }
        let known = ward.staged.as_ref().map_or(0, |staged| staged.commit);
        if known >= commit {
            return known == commit;
        }
        let dropped: Vec<_> = ward.places().collect();
        ward.staged = Some(Staged {
            commit,
            ..Staged::default()
        });
        for place in dropped {
            self.book.vacate(segment.cx, segment.rules.segment, place);
        }
        true
    }

    /// A page of a commit has come, with its contents or as zeros.
    pub(super) fn keep_page(
        &mut self,
        segment: &mut SegmentContext<'_, '_>,
        from: NodeId,
        page: KeepPage,
        zeros: bool,
    ) {
        let sane = usize::from(page.place) < PAGES && page.page.0 < self.size;
        if !sane || page.commit == u64::MAX {
            return segment.cx.emit(Event::Malformed {});
        }
        if !self.stage(segment, from, page.commit) {
            return segment.cx.emit(Event::Stale {});
        }
        let Some(ward) = self.wards.get_mut(&from) else {
            return;
        };
        let bit = 1 << page.place;
        let staged = ward.staged(page.part);
        let Some(staged) = staged.filter(|staged| staged.got & bit == 0) else {
            return segment.cx.emit(Event::Stale {});
        };
        staged.got |= bit;
        let place = (!zeros).then(|| self.book.place());
        staged.pages.push((page.page, page.version, place));
        if let Some(place) = place {
            segment.cx.push(Effect::Stow {
                segment: segment.id(),
                page: place,
            });
        }
    }

    /// A ward asks what is here of a part of a commit.
    pub(super) fn keep(&mut self, segment: &mut SegmentContext<'_, '_>, from: NodeId, keep: Keep) {
        if usize::from(keep.count) > PAGES || keep.count == 0 || keep.commit == u64::MAX {
            return segment.cx.emit(Event::Malformed {});
        }
        if self.farewell.is_some() {
            segment.say(from, &Body::Leaving);
        }
        let lacks = self.lacks(segment, from, keep);
        let kept = Kept {
            commit: keep.commit,
            part: keep.part,
            lacks,
        };
        segment.say(from, &Body::Kept(kept));
    }

    fn lacks(&mut self, segment: &mut SegmentContext<'_, '_>, from: NodeId, keep: Keep) -> u64 {
        if !self.stage(segment, from, keep.commit) {
            return 0;
        }
        let Some(ward) = self.wards.get_mut(&from) else {
            return 0;
        };
        // As soon as something may be on one node only, no guess is made about its pages.
        ward.whole &= keep.whole;
        let past = |staged: &Staged| keep.part < staged.part;
        if ward.staged.as_ref().is_some_and(past) {
            return 0;
        }
        let all = first(keep.count);
        let Some(staged) = ward.staged(keep.part) else {
            return all;
        };
        let lacks = all & !staged.got;
        if lacks == 0 {
            staged.complete = true;
            if keep.last {
                self.count(segment, from, keep.whole);
            }
        }
        lacks
    }

    /// Keeps contents, if none as new are kept.
    fn put_replica(
        &mut self,
        segment: &mut SegmentContext<'_, '_>,
        page: PageIndex,
        replica: Replica,
    ) {
        let at = (segment.id(), page);
        let passing = segment.is_passing(page);
        let book = &mut self.book;
        let known = book.replicas.get(&page);
        if known.is_none_or(|known| known.version < replica.version) {
            book.drop_replica(segment.cx, at, passing);
            book.replicas.insert(page, replica);
        } else if let Some(place) = replica.place {
            book.vacate(segment.cx, at.0, place);
        }
    }

    /// All of a commit is here: it counts.
    fn count(&mut self, segment: &mut SegmentContext<'_, '_>, from: NodeId, whole: bool) {
        let Some(ward) = self.wards.get_mut(&from) else {
            return;
        };
        let Some(staged) = ward.staged.take() else {
            return;
        };
        (ward.done, ward.whole) = (staged.commit, whole);
        for (page, version, place) in staged.pages {
            let of = from;
            self.put_replica(segment, page, Replica { version, place, of });
        }
    }

    /// A ward is gone: what did not count never happened.
    pub(super) fn forget_ward(&mut self, segment: &mut SegmentContext<'_, '_>, ward: Option<Ward>) {
        let Some(ward) = ward else { return };
        self.book.unsure |= !ward.whole;
        for place in ward.places().collect::<Vec<_>>() {
            self.book.vacate(segment.cx, segment.rules.segment, place);
        }
    }

    /// Pages that this node gave away are on a second node there.
    pub(super) fn released(
        &mut self,
        segment: &mut SegmentContext<'_, '_>,
        from: NodeId,
        pages: &[(PageIndex, Version)],
    ) {
        if pages.len() > PAGES {
            return segment.cx.emit(Event::Malformed {});
        }
        let book = &mut self.book;
        for (page, version) in pages {
            let over = |(to, since): &mut (NodeId, Version)| *to == from && *since <= *version;
            if let Some(given) = book.given.get_mut(page)
                && over(given)
            {
                book.given.remove(page);
            }
        }
        self.drop_older(segment, pages);
        if let Some(backup) = self.book.backup
            && backup != from
        {
            segment.say(backup, &Body::Drop(pages.to_vec()));
        }
    }

    /// Replicas of these pages that are older than these versions are needed no more.
    pub(super) fn drop_older(
        &mut self,
        segment: &mut SegmentContext<'_, '_>,
        pages: &[(PageIndex, Version)],
    ) {
        if pages.len() > PAGES {
            return segment.cx.emit(Event::Malformed {});
        }
        for (page, version) in pages {
            let at = (segment.id(), *page);
            let passing = segment.is_passing(*page);
            let book = &mut self.book;
            let known = book.replicas.get(page);
            if known.is_some_and(|known| known.version < *version) {
                book.drop_replica(segment.cx, at, passing);
            }
        }
    }

    /// A ward needs this node, which leaves, no more.
    pub(super) fn freed(&mut self, segment: &mut SegmentContext<'_, '_>, from: NodeId) {
        let ward = self.wards.remove(&from);
        for place in ward.iter().flat_map(Ward::places).collect::<Vec<_>>() {
            self.book.vacate(segment.cx, segment.rules.segment, place);
        }
    }

    /// This node leaves: its wards are to choose another backup. Returns how many have not, and how
    /// many pages without an owner are to be found before it goes.
    pub(super) fn leave_wards(&mut self, segment: &mut SegmentContext<'_, '_>) -> usize {
        let left = self.wards.len();
        if left > 0 && self.farewell.is_none() {
            let timer = segment.timer();
            self.farewell = Some(segment.cx.backoff(timer));
            self.tell_wards(segment);
        }
        let book = &self.book;
        left + book.orphans.len() + book.requested.len()
    }

    fn tell_wards(&self, segment: &mut SegmentContext<'_, '_>) {
        for ward in self.wards.keys() {
            segment.say(*ward, &Body::Leaving);
        }
    }

    /// Tells the wards again, if that is due.
    pub(super) fn say_farewell(&mut self, segment: &mut SegmentContext<'_, '_>) {
        let timer = segment.timer();
        if self.wards.is_empty() {
            return;
        }
        if let Some(backoff) = &mut self.farewell
            && segment.cx.fire(backoff, timer)
        {
            self.tell_wards(segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{rules::Rules, table::Table};
    use super::*;
    use crate::effect::Effects;
    use crate::shell::{Cx, Shell};
    use crate::time::Time;
    use pagemesh_wire::SegmentId;
    use pagemesh_wire::peer::{Manager, Window};

    const WARD: NodeId = NodeId(2);

    /// A node that is the backup of another one for eight pages.
    struct Backup {
        shell: Shell,
        replicas: Replicas,
    }

    impl Backup {
        fn new() -> Self {
            Self {
                shell: Shell::of_four(NodeId(1)),
                replicas: Replicas::of(8),
            }
        }

        fn step<T>(
            &mut self,
            work: impl FnOnce(&mut Replicas, &mut SegmentContext<'_, '_>) -> T,
        ) -> T {
            let cx = &mut Cx {
                now: Time(0),
                shell: &mut self.shell,
                effects: &mut Effects::default(),
            };
            let rules = Rules {
                segment: SegmentId::new(WARD, 1),
                manager: Manager::Dynamic,
                window: Window::Nanos(0),
            };
            let pages = &Table::default();
            work(&mut self.replicas, &mut SegmentContext { cx, rules, pages })
        }

        fn page(&mut self, commit: u64, place: u8) {
            let page = KeepPage {
                commit,
                part: 0,
                place,
                page: PageIndex(place.into()),
                version: Version(commit),
            };
            self.step(|of, segment| of.keep_page(segment, WARD, page, false));
        }

        /// Which places of a commit of two pages are missing.
        fn lacks(&mut self, commit: u64) -> u64 {
            let keep = Keep {
                commit,
                part: 0,
                count: 2,
                last: true,
                whole: true,
            };
            self.step(|of, segment| of.lacks(segment, WARD, keep))
        }

        fn versions(&self) -> Vec<u64> {
            let replicas = self.replicas.book.replicas.values();
            replicas.map(|replica| replica.version.0).collect()
        }
    }

    #[test]
    fn a_commit_counts_when_all_of_it_has_come() {
        let mut backup = Backup::new();
        backup.page(1, 0);
        assert_eq!(backup.lacks(1), 0b10);
        assert_eq!(backup.versions(), []);
        backup.page(1, 1);
        assert_eq!(backup.lacks(1), 0);
        assert_eq!(backup.versions(), [1, 1]);
    }

    #[test]
    fn what_did_not_count_is_dropped_with_its_ward() {
        let mut backup = Backup::new();
        backup.page(1, 0);
        backup.page(1, 1);
        backup.lacks(1);
        backup.page(2, 0);
        backup.step(|of, segment| {
            let ward = of.wards.remove(&WARD);
            of.forget_ward(segment, ward);
        });
        assert_eq!(backup.versions(), [1, 1]);
        assert!(!backup.replicas.book.unsure, "all that was seen is here");
    }

    #[test]
    fn a_replica_stays_until_a_newer_version_is_on_a_second_node() {
        let mut backup = Backup::new();
        backup.page(3, 0);
        backup.page(3, 1);
        backup.lacks(3);
        let older = [(PageIndex(0), Version(3))];
        backup.step(|of, segment| of.drop_older(segment, &older));
        assert_eq!(backup.versions(), [3, 3]);
        let newer = [(PageIndex(0), Version(4))];
        backup.step(|of, segment| of.drop_older(segment, &newer));
        assert_eq!(backup.versions(), [3]);
    }
}
