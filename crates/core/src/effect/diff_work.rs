//! Work of a driver on twins and diffs.
//!
//! The driver keeps, for each page of a segment whose policy wants it, at most one *twin*, and a
//! store of *diffs* by name. The core says which; it never sees their bytes.
//!
//! - *INV-twin-before-write*: [`DiffWork::Twin`] stands before the first
//!   [`Effect::Map`](crate::Effect::Map) of a page with `Rights::Write`.
//! - *INV-diff-is-final*: the diff of a name never changes. Stores to the page after a diff was
//!   made belong to a later diff.
//! - *INV-diff-before-send*: [`DiffWork::Send`] and [`DiffWork::Merge`] name only diffs that
//!   [`DiffWork::Diff`] or [`DiffWork::Keep`] put into the store, and that no [`DiffWork::Forget`]
//!   has taken out.

use core::net::SocketAddr;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{DiffName, Rule};
use pagemesh_wire::{PageIndex, RequestId, SegmentId, VectorTime};

use super::{PageRange, Source};

/// Treatment of the twin after its page was compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Afterwards {
    /// The twin is dropped. No mapping may store to the page
    /// ([`Effect::Protect`](crate::Effect::Protect) came before).
    Drop,
    /// The twin becomes a copy of exactly the bytes that were compared. Mappings may go on storing
    /// meanwhile, except where there are rules, because half of a number must not travel. If
    /// nothing had changed, [`Input::Unchanged`](crate::Input::Unchanged) follows at once.
    Refresh,
}

/// A step concerning twins and diffs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffWork {
    /// Make the twins of pages: copies of their frames. No mapping may store to the pages now. An
    /// older twin is replaced.
    Twin {
        /// The pages.
        pages: PageRange,
        /// [`Source::Frame`], or [`Source::Zero`] if the frames hold zeros: then nothing has to be
        /// copied.
        source: Source,
    },
    /// Make a diff of twin and frame, and keep it under this name even if it is empty.
    Diff {
        /// The segment.
        segment: SegmentId,
        /// The name of the diff; its node is this one.
        name: DiffName,
        /// Treatment of the twin.
        then: Afterwards,
        /// Ranges in which the diff holds operations on numbers, not bytes.
        rules: Vec<Rule>,
    },
    /// Drop the twin of a page. No mapping may store to the page.
    DropTwin {
        /// The segment.
        segment: SegmentId,
        /// The page.
        page: PageIndex,
    },
    /// Keep diffs that came with the datagram that is being handled, a
    /// [`Diffs`](pagemesh_wire::peer::Diffs) message. A diff that the store has already stays as it
    /// is. The driver checks encodings before it hands the datagram to the node, and drops a
    /// datagram with a malformed one.
    Keep {
        /// The segment.
        segment: SegmentId,
        /// The names of the diffs to keep.
        names: Vec<DiffName>,
    },
    /// Fill the page as [`Effect::Fill`](crate::Effect::Fill) does, and then apply diffs of the
    /// store in this order. No mapping has rights to the page now.
    Merge {
        /// The segment.
        segment: SegmentId,
        /// The page.
        page: PageIndex,
        /// The source of the base copy: payload, zeros, stash or frame.
        source: Source,
        /// The diffs; later ones overwrite earlier ones.
        names: Vec<DiffName>,
        /// Ranges in which diffs hold operations on numbers; all of these diffs were made under the
        /// same rules.
        rules: Vec<Rule>,
    },
    /// Apply diffs to a page whose frame is filled, while mappings go on reading it and writing
    /// other bytes of it; also to its twin, if there is one. Where there are rules, no mapping may
    /// store meanwhile, because an addition would get lost.
    Update {
        /// The segment.
        segment: SegmentId,
        /// The page.
        page: PageIndex,
        /// The diffs; later ones overwrite earlier ones.
        names: Vec<DiffName>,
        /// As for [`DiffWork::Merge`].
        rules: Vec<Rule>,
    },
    /// Send diffs in as many datagrams as they need, each a [`Diffs`](pagemesh_wire::peer::Diffs)
    /// message. Any of them may get lost.
    Send {
        /// The destination.
        address: SocketAddr,
        /// The header of each datagram; the driver sets `body` when it encodes.
        header: Header,
        /// The segment.
        segment: SegmentId,
        /// The request that the diffs answer; zero if they are pushed.
        request: RequestId,
        /// The names of the diffs, at most [`Diffs::LIMIT`](pagemesh_wire::peer::Diffs::LIMIT).
        names: Vec<DiffName>,
        /// Diffs with more bytes than this are left out.
        at_most: u16,
    },
    /// Compare pairs of diffs of a page, each pair of two nodes without a lock or barrier between
    /// them: bytes that both diffs change were written in a race. All of the diffs are in the
    /// store.
    Compare {
        /// The segment.
        segment: SegmentId,
        /// The pairs, each of two diffs of the same page.
        pairs: Vec<(DiffName, DiffName)>,
    },
    /// Drop every diff of an interval that this vector time covers.
    Forget {
        /// The segment.
        segment: SegmentId,
        /// The vector time.
        upto: VectorTime,
    },
}
