//! Contents of pages of policy `release`, as twins and diffs are made of them and go into them.

use crate::counters::Counters;
use crate::pages::Pages;
use crate::payload::Payload;
use pagemesh_core::{At, Mappings, Source};
use pagemesh_os::memfd::{PAGE, PageBytes};
use pagemesh_twins::{DiffKey, Error, Keep};
use pagemesh_wire::SegmentId;
use pagemesh_wire::peer::{DiffName, Rule};

impl Pages {
    /// Copies contents.
    pub(crate) fn twin_of(
        &mut self,
        at: At,
        source: Source,
        payload: Payload<'_>,
    ) -> Result<(), Error> {
        let page = self.copy(at, source, payload)?;
        self.changes.twin(at, &*page)
    }

    fn copy(&self, at: At, source: Source, payload: Payload<'_>) -> Result<Box<PageBytes>, Error> {
        let mut page = Box::new([0; PAGE]);
        match self.contents(at, source, payload) {
            Some(bytes) => *page = *bytes,
            None if source == Source::Frame => self.look(at, &mut page)?,
            None => return Err(Error::NoContents(at)),
        }
        Ok(page)
    }

    /// Writes down what changed since the twin. How many bytes.
    pub(crate) fn capture(&mut self, key: DiffKey, how: (Keep, &[Rule])) -> Result<usize, Error> {
        let mut page = [0; PAGE];
        self.look(key.at(), &mut page)?;
        pagemesh_reduce::capture(&mut self.changes, key, &page, how)
    }

    /// Contents with diffs applied.
    pub(crate) fn merge(
        &mut self,
        at: At,
        source: Source,
        (names, rules): (&[DiffName], &[Rule]),
        payload: Payload<'_>,
    ) -> Result<Box<PageBytes>, Error> {
        let mut page = self.copy(at, source, payload)?;
        let keys = names.iter().map(|name| key(at.0, *name));
        pagemesh_reduce::merge(&mut self.changes, keys, rules, &mut page)?;
        Ok(page)
    }

    /// Reads what is, or should be, in a page's frame.
    pub(crate) fn look(&self, at: At, page: &mut PageBytes) -> Result<(), Error> {
        if let Some(bytes) = self.waiting.get(at) {
            *page = *bytes;
            return Ok(());
        }
        let segment = self.segments.get(at.0).ok_or(Error::NoContents(at))?;
        segment.read(at.1, page).map_err(|_| Error::NoContents(at))
    }

    /// The contents of the page cannot be known: accesses fail in all mappings.
    pub(crate) fn lose(&self, at: At) {
        let mut counters = Counters::default();
        self.protect(Mappings::All, at.into(), &mut counters);
        for id in self.ids_of(at.0) {
            self.poison(*id, at);
        }
    }
}

pub(crate) fn key(segment: SegmentId, name: DiffName) -> DiffKey {
    DiffKey {
        segment,
        page: name.page,
        node: name.node,
        interval: name.interval,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff_store::{Changes, DiffStore};
    use crate::stash::Stash;
    use pagemesh_wire::peer::{Kind, Merge};
    use pagemesh_wire::{NodeId, PageIndex};

    const AT: At = (SegmentId(1 << 48), PageIndex(2));

    fn pages(contents: &PageBytes) -> Pages {
        let stash = Stash::create().unwrap();
        let changes = Changes::new(DiffStore::create().unwrap());
        let mut pages = Pages::new(stash, changes);
        pages.put(AT, contents);
        pages
    }

    fn name(node: u16, interval: u64) -> DiffName {
        DiffName {
            page: AT.1,
            node: NodeId(node),
            interval,
        }
    }

    fn frame(pages: &Pages) -> PageBytes {
        let mut page = [0; PAGE];
        pages.look(AT, &mut page).unwrap();
        page
    }

    /// A diff of another node.
    fn learn(pages: &mut Pages, name: DiffName, changes: &[(usize, u8)]) {
        let mut now = [0; PAGE];
        for (offset, byte) in changes {
            now[*offset] = *byte;
        }
        let mut encoded = Vec::new();
        pagemesh_diff::encode(&[0; PAGE], &now, &mut encoded);
        pages.changes.insert(key(AT.0, name), &encoded).unwrap();
    }

    #[test]
    fn stores_of_this_node_and_of_others_meet_in_the_frame() {
        let mut pages = pages(&[1; PAGE]);
        pages.twin_of(AT, Source::Frame, Payload::NONE).unwrap();
        let segment = pages.segments.get(AT.0).unwrap();
        segment.write_some(AT.1, 10, &[5, 5]).unwrap();
        let around = [(9, 7), (12, 7), (13, 8), (4095, 9)];
        learn(&mut pages, name(2, 1), &around);
        let mut counters = Counters::default();
        pages
            .update(AT, (&[name(2, 1)], &[]), &mut counters)
            .unwrap();
        let mut expected = [1; PAGE];
        expected[9..14].copy_from_slice(&[7, 5, 5, 7, 8]);
        expected[4095] = 9;
        assert_eq!(frame(&pages), expected);
        assert_eq!(
            pages.capture(key(AT.0, name(1, 1)), (Keep::Twin, &[])),
            Ok(2)
        );
        assert_eq!(
            pages.capture(key(AT.0, name(1, 2)), (Keep::Nothing, &[])),
            Ok(0)
        );
    }

    #[test]
    fn contents_get_what_changed_since() {
        let mut pages = pages(&[1; PAGE]);
        learn(&mut pages, name(2, 1), &[(0, 2), (1, 2)]);
        learn(&mut pages, name(3, 1), &[(1, 3)]);
        let names = [name(2, 1), name(3, 1)];
        for (source, last) in [(Source::Frame, 1), (Source::Zero, 0)] {
            let page = pages
                .merge(AT, source, (&names, &[]), Payload::NONE)
                .unwrap();
            assert_eq!((page[0], page[1], page[4095]), (2, 3, last));
        }
        let missing = pages.merge(AT, Source::Frame, (&[name(4, 1)], &[]), Payload::NONE);
        assert_eq!(missing.unwrap_err(), Error::NoDiff(key(AT.0, name(4, 1))));
        let nothing = pages.merge(AT, Source::Stash, (&[], &[]), Payload::NONE);
        assert_eq!(nothing.unwrap_err(), Error::NoContents(AT));
    }

    /// Of the number at 8.
    const A_SUM: Rule = Rule {
        start: 8,
        end: 16,
        merge: Merge::Sum,
        kind: Kind::U64,
    };

    #[test]
    fn numbers_in_declared_ranges_are_added_up() {
        let rules = [A_SUM];
        let mut pages = pages(&[0; PAGE]);
        let add = |pages: &mut Pages, number: u64, name: DiffName| {
            pages.twin_of(AT, Source::Frame, Payload::NONE).unwrap();
            let sum = u64::from_le_bytes(frame(pages)[8..16].try_into().unwrap()) + number;
            let segment = pages.segments.get(AT.0).unwrap();
            segment.write_some(AT.1, 8, &sum.to_le_bytes()).unwrap();
            pages
                .capture(key(AT.0, name), (Keep::Nothing, &rules))
                .unwrap();
        };
        add(&mut pages, 300, name(1, 1));
        add(&mut pages, 5, name(1, 2));
        assert!(pages.changes.twin_of(AT).is_none());
        let names = [name(1, 1), name(1, 2)];
        let twice = pages.merge(AT, Source::Frame, (&names, &rules), Payload::NONE);
        assert_eq!(twice.unwrap()[8..16], 610_u64.to_le_bytes());
        assert!(
            pages
                .capture(key(AT.0, name(1, 3)), (Keep::Nothing, &rules))
                .is_err()
        );
    }

    #[test]
    fn numbers_that_threads_add_to_take_what_others_added() {
        let rules = [A_SUM];
        let mut pages = pages(&[0; PAGE]);
        let number = |page: &PageBytes| u64::from_le_bytes(page[8..16].try_into().unwrap());
        let store = |pages: &Pages, number: u64| {
            let segment = pages.segments.get(AT.0).unwrap();
            segment.write_some(AT.1, 8, &number.to_le_bytes()).unwrap();
        };
        let mut counters = Counters::default();
        pages.twin_of(AT, Source::Frame, Payload::NONE).unwrap();
        store(&pages, 40);
        // Another node's 300, beside a byte that is no number.
        let mut theirs = [0; PAGE];
        theirs[0] = 7;
        theirs[8..10].copy_from_slice(&300_u16.to_le_bytes());
        let mut encoded = Vec::new();
        pagemesh_reduce::encode_with(&rules, &[0; PAGE], &theirs, &mut encoded);
        let other = key(AT.0, name(2, 1));
        pages.changes.insert(other, &encoded).unwrap();
        pages
            .update(AT, (&[name(2, 1)], &rules), &mut counters)
            .unwrap();
        assert_eq!((frame(&pages)[0], number(&frame(&pages))), (7, 340));
        // This node's own additions are 40 still, and then its later additions.
        for (interval, sum) in [(1, 340), (2, 345), (3, 345)] {
            store(&pages, sum);
            let own = key(AT.0, name(1, interval));
            pages.capture_stopped(own, &rules, &mut counters).unwrap();
        }
        let mut elsewhere = [0; PAGE];
        for (interval, sum) in [(1, 40), (2, 45), (3, 45)] {
            let own = key(AT.0, name(1, interval));
            pagemesh_reduce::merge(
                &mut pages.changes,
                [own].into_iter(),
                &rules,
                &mut elsewhere,
            )
            .unwrap();
            assert_eq!((elsewhere[0], number(&elsewhere)), (0, sum));
        }
        // Made by the daemon before: what was stored since is still to be written down.
        store(&pages, 349);
        let again = key(AT.0, name(1, 4));
        let mut four = Vec::new();
        let mut grown = [0; PAGE];
        grown[8] = 4;
        pagemesh_reduce::encode_with(&rules, &[0; PAGE], &grown, &mut four);
        pages.changes.insert(again, &four).unwrap();
        store(&pages, 350);
        pages.capture_stopped(again, &rules, &mut counters).unwrap();
        let last = key(AT.0, name(1, 5));
        pages.capture_stopped(last, &rules, &mut counters).unwrap();
        let mut rest = [0; PAGE];
        pagemesh_reduce::merge(&mut pages.changes, [last].into_iter(), &rules, &mut rest).unwrap();
        assert_eq!(number(&rest), 1);
    }

    #[test]
    fn a_page_that_waits_for_memory_takes_changes_all_the_same() {
        let mut pages = pages(&[0; PAGE]);
        pages.waiting.enter(AT, &[4; PAGE]);
        pages.twin_of(AT, Source::Frame, Payload::NONE).unwrap();
        learn(&mut pages, name(2, 1), &[(3, 9)]);
        let mut counters = Counters::default();
        pages
            .update(AT, (&[name(2, 1)], &[]), &mut counters)
            .unwrap();
        let page = frame(&pages);
        assert_eq!((page[2], page[3]), (4, 9));
        assert_eq!(
            pages.capture(key(AT.0, name(1, 1)), (Keep::Nothing, &[])),
            Ok(0)
        );
    }
}
