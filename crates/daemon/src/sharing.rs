//! Records which nodes write which bytes of a page between its travels (MB5).
//!
//! Only segments that were asked about are watched. Of their pages the contents are kept as they
//! last came or left; when a page comes, the changes were written elsewhere, by the owner that the
//! message names, by the sender if it names none, or by earlier holders; when it leaves, the changes
//! were written here. A store of the value that was there is not seen, nor are loads.

use pagemesh_core::At;
use pagemesh_core::Source;
use pagemesh_os::memfd::{PAGE, PageBytes};
use pagemesh_sorted::LongMap;
use pagemesh_wire::header::HEADER_SIZE;
use pagemesh_wire::local::{SharingLine, SharingReport, WrittenRange};
use pagemesh_wire::peer::Message;
use pagemesh_wire::{NodeId, PageIndex, SegmentId};

/// All segments that are watched.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    segments: LongMap<SegmentId, LongMap<PageIndex, Watched>>,
    /// The sender of the datagram that is being handled.
    sender: NodeId,
    /// Owners of copies that another reader sent, until the copies are in place.
    owners: LongMap<At, NodeId>,
}

/// A page, as far as is known.
#[derive(Debug)]
struct Watched {
    last: Box<PageBytes>,
    writers: LongMap<NodeId, Writer>,
    /// The last writer, and its bytes.
    latest: Option<(NodeId, Bytes)>,
    /// How often the writer changed, and how often a writer's bytes overlapped those of the writer
    /// before.
    turns: u32,
    met: u32,
}

/// The bytes that one node has written so far.
#[derive(Clone, Debug, Default)]
struct Writer {
    written: Bytes,
    times: u32,
}

/// A set of a page's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bytes([u64; PAGE / 64]);

/// Pages that are watched at most: each takes some 6 KiB.
const PAGES: usize = 4096;

/// Lines in one report, except those of the last page, and ranges of a line: as many as surely fit
/// in a packet.
const TOLD: usize = 64;
const RANGES: usize = 8;

/// Ranges so close together are told as one.
const CLOSE: usize = 16;

impl Default for Bytes {
    fn default() -> Self {
        Self([0; PAGE / 64])
    }
}

impl Bytes {
    /// The bytes in which two pages differ.
    fn changed(old: &PageBytes, new: &PageBytes) -> Self {
        let mut set = Self::default();
        let (old, _) = old.as_chunks::<64>();
        let (new, _) = new.as_chunks::<64>();
        for ((word, old), new) in set.0.iter_mut().zip(old).zip(new) {
            if old == new {
                continue;
            }
            for (bit, (old, new)) in old.iter().zip(new).enumerate() {
                *word |= u64::from(old != new) << bit;
            }
        }
        set
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn meets(&self, other: &Self) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .any(|(one, other)| one & other != 0)
    }

    fn add(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The fewest ranges that contain the bytes; the last may contain the rest for which there was
    /// no room.
    fn ranges(&self) -> Vec<WrittenRange> {
        let mut ranges: Vec<WrittenRange> = Vec::new();
        for at in (0..PAGE).filter(|at| self.has(*at)) {
            let end = at as u16 + 1;
            match ranges.last_mut() {
                Some(last) if at < usize::from(last.end) + CLOSE => last.end = end,
                _ => ranges.push(WrittenRange {
                    begin: at as u16,
                    end,
                }),
            }
        }
        if ranges.len() > RANGES {
            let end = ranges.last().map_or(0, |last| last.end);
            ranges.truncate(RANGES);
            if let Some(last) = ranges.last_mut() {
                last.end = end;
            }
        }
        ranges
    }
}

impl Sharing {
    /// Starts or stops watching a segment; earlier records are dropped.
    pub(crate) fn watch(&mut self, segment: SegmentId, on: bool) {
        self.segments.remove(&segment);
        self.owners.retain(|(other, _), _| *other != segment);
        if on {
            self.segments.insert(segment, LongMap::new());
        }
    }

    /// Whether anything is watched.
    pub(crate) fn is_on(&self) -> bool {
        !self.segments.is_empty()
    }

    /// A datagram of this daemon's peers is handled next.
    pub(crate) fn comes_from(&mut self, datagram: &[u8]) {
        if !self.is_on() || datagram.len() < HEADER_SIZE {
            return;
        }
        self.sender = NodeId(u16::from_le_bytes([datagram[4], datagram[5]]));
        // A reader that sends what it received has written nothing.
        if let Ok((_, Message::Data(data), _)) = Message::decode(datagram)
            && data.owner != self.sender
            && self.owners.len() < PAGES
        {
            self.owners.insert((data.segment, data.page), data.owner);
        }
    }

    /// A page comes: behind the datagram that is being handled, or zero and without
    /// bytes.
    pub(crate) fn came(&mut self, at: At, source: Source, payload: Option<&PageBytes>) {
        let writer = self.owners.remove(&at).unwrap_or(self.sender);
        match (source, payload) {
            (Source::Payload, Some(bytes)) => self.seen(at, bytes, writer),
            (Source::Zero, _) => self.seen(at, &[0; PAGE], writer),
            _ => {}
        }
    }

    /// A page leaves `here`, at the end of this datagram.
    pub(crate) fn left(&mut self, at: At, datagram: &[u8], here: NodeId) {
        if let Some((_, bytes)) = datagram.split_last_chunk::<PAGE>() {
            self.seen(at, bytes, here);
        }
    }

    fn seen(&mut self, (segment, page): At, bytes: &PageBytes, writer: NodeId) {
        let known: usize = self.segments.values().map(LongMap::len).sum();
        let Some(pages) = self.segments.get_mut(&segment) else {
            return;
        };
        match pages.get_mut(&page) {
            Some(watched) => watched.seen(bytes, writer),
            None if known < PAGES => {
                pages.insert(page, Watched::new(bytes));
            }
            None => {}
        }
    }

    /// The pages of a segment from `first` on that more than one node wrote; none if the segment is
    /// not watched.
    pub(crate) fn report(&self, segment: SegmentId, first: PageIndex) -> Option<SharingReport> {
        let pages = self.segments.get(&segment)?;
        let written = pages
            .range(first..)
            .filter(|(_, page)| !page.writers.is_empty());
        let mut lines = Vec::new();
        for (page, watched) in written {
            lines.extend(watched.lines(*page));
            if lines.len() >= TOLD {
                break;
            }
        }
        Some(SharingReport {
            watched: pages.len() as u32,
            lines,
        })
    }
}

impl Watched {
    fn new(bytes: &PageBytes) -> Self {
        Self {
            last: Box::new(*bytes),
            writers: LongMap::new(),
            latest: None,
            turns: 0,
            met: 0,
        }
    }

    fn seen(&mut self, bytes: &PageBytes, writer: NodeId) {
        let changed = Bytes::changed(&self.last, bytes);
        if changed.is_empty() {
            return;
        }
        *self.last = *bytes;
        let known = self.writers.entry(writer).or_default();
        known.written.add(&changed);
        known.times += 1;
        match &mut self.latest {
            // The same node wrote in several goes, while others read in between.
            Some((before, written)) if *before == writer => written.add(&changed),
            latest => {
                if let Some((_, written)) = latest {
                    self.turns += 1;
                    self.met += u32::from(written.meets(&changed));
                }
                *latest = Some((writer, changed));
            }
        }
    }

    /// A line for each writer.
    fn lines(&self, page: PageIndex) -> impl Iterator<Item = SharingLine> {
        self.writers.iter().map(move |(node, writer)| SharingLine {
            page,
            node: *node,
            times: writer.times,
            bytes: writer.written.count() as u16,
            ranges: writer.written.ranges(),
            turns: self.turns,
            met: self.met,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::header::{Header, PROTOCOL_VERSION};
    use pagemesh_wire::peer::{Contents, Data};
    use pagemesh_wire::{ClusterId, Incarnation, RequestId, Term, Version};

    const AT: (SegmentId, PageIndex) = (SegmentId(7), PageIndex(3));
    const HERE: NodeId = NodeId(1);
    const THERE: NodeId = NodeId(2);

    /// A page that goes to and fro, and the stores to it on the way.
    struct Travels {
        sharing: Sharing,
        page: PageBytes,
    }

    impl Travels {
        fn begin() -> Self {
            let mut sharing = Sharing::default();
            sharing.watch(AT.0, true);
            let mut datagram = [0; HEADER_SIZE];
            datagram[4] = THERE.0 as u8;
            sharing.comes_from(&datagram);
            let page = [0; PAGE];
            sharing.came(AT, Source::Zero, None);
            Self { sharing, page }
        }

        fn write(&mut self, node: NodeId, bytes: impl IntoIterator<Item = usize>) {
            for at in bytes {
                self.page[at] = self.page[at].wrapping_add(1);
            }
            if node == HERE {
                self.sharing.left(AT, &self.page, HERE);
            } else {
                self.sharing.came(AT, Source::Payload, Some(&self.page));
            }
        }

        fn lines(&self) -> Vec<SharingLine> {
            self.sharing.report(AT.0, PageIndex(0)).unwrap().lines
        }
    }

    fn range(begin: u16, end: u16) -> WrittenRange {
        WrittenRange { begin, end }
    }

    #[test]
    fn bytes_apart_never_meet() {
        let mut travels = Travels::begin();
        for _ in 0..5 {
            travels.write(HERE, 0..100);
            travels.write(THERE, 2000..2004);
        }
        let lines = travels.lines();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (lines[0].node, lines[0].bytes, lines[0].times),
            (HERE, 100, 5)
        );
        assert_eq!(lines[0].ranges, [range(0, 100)]);
        assert_eq!(lines[1].ranges, [range(2000, 2004)]);
        assert_eq!((lines[0].turns, lines[0].met), (9, 0));
    }

    #[test]
    fn a_byte_that_both_write_meets_every_time() {
        let mut travels = Travels::begin();
        for _ in 0..3 {
            travels.write(HERE, [5, 4095]);
            travels.write(THERE, [5]);
        }
        let lines = travels.lines();
        assert_eq!((lines[0].turns, lines[0].met), (5, 5));
        assert_eq!(lines[0].ranges, [range(5, 6), range(4095, 4096)]);
    }

    #[test]
    fn whoever_writes_alone_takes_no_turns() {
        let mut travels = Travels::begin();
        travels.write(HERE, [1]);
        travels.write(HERE, [9]);
        travels.write(HERE, []);
        let lines = travels.lines();
        assert_eq!((lines.len(), lines[0].times, lines[0].turns), (1, 2, 0));
        assert_eq!(lines[0].ranges, [range(1, 10)], "close together is one");
    }

    /// A copy that `from` sends of a version that `owner` has.
    fn copy(from: NodeId, owner: NodeId) -> Vec<u8> {
        let header = Header {
            version: PROTOCOL_VERSION,
            cluster: ClusterId(1),
            from,
            to: HERE,
            incarnation: Incarnation(1),
            body: 0,
            term: Term(1),
            generation: 0,
        };
        let data = Data {
            segment: AT.0,
            page: AT.1,
            request: RequestId(1),
            version: Version(2),
            owner,
            contents: Contents::Bytes,
        };
        let mut datagram = Vec::new();
        Message::Data(data).encode(header, &mut datagram);
        datagram.extend_from_slice(&[0; PAGE]);
        datagram
    }

    #[test]
    fn a_reader_that_sends_its_copy_on_wrote_nothing() {
        const READER: NodeId = NodeId(3);
        let mut travels = Travels::begin();
        travels.sharing.comes_from(&copy(READER, THERE));
        travels.write(THERE, [1]);
        travels.sharing.comes_from(&copy(READER, READER));
        travels.write(READER, [2]);
        let lines = travels.lines();
        let told: Vec<_> = lines.iter().map(|line| (line.node, line.times)).collect();
        assert_eq!(told, [(THERE, 1), (READER, 1)]);
    }

    #[test]
    fn many_ranges_are_told_as_few() {
        let mut travels = Travels::begin();
        travels.write(HERE, (0..PAGE).step_by(100));
        let ranges = &travels.lines()[0].ranges;
        assert_eq!((ranges.len(), ranges[RANGES - 1].end), (RANGES, 4001));
    }

    #[test]
    fn what_is_not_watched_is_not_known() {
        let mut travels = Travels::begin();
        assert!(travels.sharing.is_on());
        travels.sharing.watch(AT.0, false);
        travels.write(HERE, [1]);
        assert_eq!(travels.sharing.report(AT.0, PageIndex(0)), None);
        assert!(!travels.sharing.is_on());
    }
}
