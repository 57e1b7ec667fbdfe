//! What a driver does with twins and diffs.
//!
//! The driver keeps, for each page of a segment whose policy wants it, at most one
//! *twin*, and a store of *diffs* by name. The core says which; it never sees them.
//!
//! - *INV-twin-before-write*: [`DiffWork::Twin`] stands before the first
//!   [`Effect::Map`](crate::Effect::Map) of a page with `Rights::Write`.
//! - *INV-diff-is-final*: what a name stands for never changes. What is stored to
//!   the page after a diff was made belongs to a later one.
//! - *INV-diff-before-send*: [`DiffWork::Send`] and [`DiffWork::Merge`] name only what
//!   [`DiffWork::Diff`] or [`DiffWork::Keep`] put into the store, and no
//!   [`DiffWork::Forget`] has taken out.

use core::net::SocketAddr;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{DiffName, Rule};
use pagemesh_wire::{PageIndex, RequestId, SegmentId, VectorTime};

use super::Source;

/// What becomes of the twin when its page was compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Afterwards {
    /// It goes. Nobody may store to the page ([`Effect::Protect`](crate::Effect::Protect)
    /// came before).
    Drop,
    /// It becomes what was compared, to the byte; mappings may go on storing
    /// meanwhile, but where there are rules: half of a number must not travel. If nothing had changed,
    /// [`Input::Unchanged`](crate::Input::Unchanged) follows at once.
    Refresh,
}

/// Something to do about twins and diffs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffWork {
    /// Copy the frame of a page; the copy is its twin. Nobody may store to the
    /// page now. An older twin is replaced.
    Twin {
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
    },
    /// Write down what differs between twin and frame, and keep it under this
    /// name, though it may be nothing.
    Diff {
        /// Of which segment.
        segment: SegmentId,
        /// Its name; the node is this one.
        name: DiffName,
        /// What becomes of the twin.
        then: Afterwards,
        /// Ranges of which it says what was done to numbers, not to bytes.
        rules: Vec<Rule>,
    },
    /// The twin of a page is not needed any more. Nobody may store to the page.
    DropTwin {
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
    },
    /// Keep diffs that came with the datagram being handled, a
    /// [`Diffs`](pagemesh_wire::peer::Diffs) message. What is kept already stays as
    /// it is. The driver checks encodings before it hands the datagram to the
    /// node, and drops a datagram with a malformed one.
    Keep {
        /// Of which segment.
        segment: SegmentId,
        /// Which of them.
        names: Vec<DiffName>,
    },
    /// As [`Effect::Fill`](crate::Effect::Fill), and then apply diffs of the store
    /// in this order. No mapping has rights to the page now.
    Merge {
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
        /// What to start from: payload, zeros, stash or frame.
        source: Source,
        /// Later ones overwrite earlier ones.
        names: Vec<DiffName>,
        /// Ranges in which what they say is done to numbers; all of them were made
        /// under the same.
        rules: Vec<Rule>,
    },
    /// Apply diffs to a page whose frame is filled, while mappings go on reading
    /// it, and writing other bytes of it; to its twin, too, if there is one. Where there
    /// are rules nobody may be storing meanwhile: an addition would get lost.
    Update {
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
        /// Later ones overwrite earlier ones.
        names: Vec<DiffName>,
        /// As for [`DiffWork::Merge`].
        rules: Vec<Rule>,
    },
    /// Send diffs, as many datagrams as they need, each a
    /// [`Diffs`](pagemesh_wire::peer::Diffs) message. Any of them may get lost.
    Send {
        /// Where to.
        address: SocketAddr,
        /// Their header; the driver sets `body` when it encodes.
        header: Header,
        /// Of which segment.
        segment: SegmentId,
        /// The wish they answer; zero when nobody asked.
        request: RequestId,
        /// Which, at most [`Diffs::LIMIT`](pagemesh_wire::peer::Diffs::LIMIT).
        names: Vec<DiffName>,
        /// Leave out those that have more bytes than this.
        at_most: u16,
    },
    /// These diffs of a page are two by two of nodes that did not know of each other:
    /// bytes that both of a pair change were written in a race. All of them are in
    /// the store.
    Compare {
        /// Of which segment.
        segment: SegmentId,
        /// Both of the same page.
        pairs: Vec<(DiffName, DiffName)>,
    },
    /// Drop every diff of an interval in this time.
    Forget {
        /// Of which segment.
        segment: SegmentId,
        /// Up to where.
        upto: VectorTime,
    },
}
