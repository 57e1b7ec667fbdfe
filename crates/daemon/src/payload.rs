//! The data behind the message of a datagram: a page, or diffs.

use pagemesh_diff::Diff;
use pagemesh_os::memfd::{PAGE, PageBytes};
use pagemesh_wire::header::HEADER_SIZE;
use pagemesh_wire::peer::{DiffName, Diffs, Message};

/// The datagram being handled, if one is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload<'a>(Behind<'a>);

/// The kind of that data.
#[derive(Clone, Copy, Debug)]
enum Behind<'a> {
    Nothing,
    Datagram(&'a [u8]),
    Page(&'a PageBytes),
}

impl<'a> Payload<'a> {
    /// No datagram.
    pub(crate) const NONE: Self = Self(Behind::Nothing);

    /// That of a datagram.
    pub(crate) fn of(datagram: &'a [u8]) -> Self {
        Self(Behind::Datagram(datagram))
    }

    /// That of a datagram of which only the page is left.
    pub(crate) fn of_page(page: &'a PageBytes) -> Self {
        Self(Behind::Page(page))
    }

    /// The datagram, if all of it is there.
    fn datagram(self) -> Option<&'a [u8]> {
        match self.0 {
            Behind::Datagram(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The page at its end. The core names it only if exactly one page is there.
    pub(crate) fn page(self) -> Option<&'a PageBytes> {
        if let Behind::Page(page) = self.0 {
            return Some(page);
        }
        let (head, page) = self.datagram()?.split_last_chunk::<PAGE>()?;
        (head.len() >= HEADER_SIZE).then_some(page)
    }

    /// The diffs it brought, if it is of that kind.
    pub(crate) fn diffs(self) -> Option<Vec<(DiffName, &'a [u8])>> {
        let (message, mut rest) = split(self.datagram()?)?;
        let mut diffs = Vec::with_capacity(message.diffs.len());
        for (name, length) in message.diffs {
            let (diff, behind) = rest.split_at_checked(length.into())?;
            diffs.push((name, diff));
            rest = behind;
        }
        Some(diffs)
    }

    /// Whether it brings diffs of which one is none: anybody can send anything, and the
    /// core, which never looks at one, would believe that it has them.
    pub(crate) fn is_malformed(self) -> bool {
        let Some(bytes) = self.datagram().filter(|bytes| may_bring_diffs(bytes)) else {
            return false;
        };
        // A datagram without a message is refused by the core.
        split(bytes).is_some()
            && self
                .diffs()
                .is_none_or(|diffs| diffs.iter().any(|(_, diff)| Diff::check(diff).is_err()))
    }
}

/// Whether the message can be of the kind that brings diffs: all others are spared
/// the decoding.
pub(crate) fn may_bring_diffs(datagram: &[u8]) -> bool {
    datagram.get(HEADER_SIZE) == Some(&Message::DIFFS)
}

/// The message, and the bytes behind it.
fn split(datagram: &[u8]) -> Option<(Diffs, &[u8])> {
    if !may_bring_diffs(datagram) {
        return None;
    }
    match Message::decode(datagram).ok()? {
        (_, Message::Diffs(diffs), rest) => Some((diffs, rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::header::Header;
    use pagemesh_wire::{ClusterId, Incarnation, NodeId, PageIndex, RequestId, SegmentId};

    fn datagram(diffs: &[&[u8]]) -> Vec<u8> {
        let name = |interval| DiffName {
            page: PageIndex(3),
            node: NodeId(2),
            interval,
        };
        let message = Message::Diffs(Diffs {
            segment: SegmentId(1 << 48),
            request: RequestId(1),
            diffs: (1..)
                .zip(diffs)
                .map(|(interval, diff)| (name(interval), diff.len() as u16))
                .collect(),
        });
        let mut datagram = Vec::new();
        message.encode(header(), &mut datagram);
        diffs
            .iter()
            .for_each(|diff| datagram.extend_from_slice(diff));
        datagram
    }

    fn header() -> Header {
        Header {
            version: pagemesh_wire::header::PROTOCOL_VERSION,
            cluster: ClusterId(1),
            from: NodeId(2),
            to: NodeId(1),
            incarnation: Incarnation(3),
            body: 0,
            term: pagemesh_wire::Term::NONE,
            generation: 0,
        }
    }

    #[test]
    fn diffs_are_cut_apart() {
        let (one, two) = ([0; 8], [1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 7]);
        let bytes = datagram(&[&one, &two]);
        let payload = Payload::of(&bytes);
        assert!(!payload.is_malformed());
        let diffs = payload.diffs().unwrap();
        let found: Vec<_> = diffs
            .iter()
            .map(|(name, diff)| (name.interval, *diff))
            .collect();
        assert_eq!(found, [(1, &one[..]), (2, &two[..])]);
    }

    #[test]
    fn a_datagram_with_a_bad_diff_is_known_as_such() {
        for bad in [&[][..], &[1; 8], &[0; 9]] {
            let bytes = datagram(&[&[0; 8], bad]);
            assert!(Payload::of(&bytes).is_malformed(), "{bad:?}");
        }
        let mut other = Vec::new();
        Message::Expelled.encode(header(), &mut other);
        assert!(!Payload::of(&other).is_malformed());
        assert!(!Payload::NONE.is_malformed() && Payload::NONE.diffs().is_none());
    }
}
