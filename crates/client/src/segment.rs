//! A segment that this process has open.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use pagemesh_os::area::LockArea;
use pagemesh_os::kept::{Mark, kept};
use pagemesh_wire::local::{Advice, Label, Request, View};
use pagemesh_wire::peer::{Kind, Merge, Policy, Reduction, SegmentInfo};
use pagemesh_wire::{ByteOffset, PAGE_SIZE, PageCount, PageIndex, SegmentId, SyncKey};

use crate::fork::Guarded;
use crate::lock::LockState;
use crate::mapping::INCONSISTENT;
use crate::views::{publish, purge};
use crate::watch::wait_change;
use crate::{Barrier, Condition, Error, Lock, Mapping, Mesh, Result, Views, WriteLock};

/// The access for which a process opens a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Load only. The daemon lends a descriptor that does not permit stores.
    ReadOnly,
    /// Load and store.
    Writable,
}

/// Options that the creator of a segment chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Permission bits for owner, group and others, as of a file.
    pub mode: u16,
    /// The rules by which the segment's pages are kept coherent.
    pub policy: Policy,
    /// Fail if the name is taken, instead of opening the existing segment.
    pub exclusive: bool,
    /// Other nodes that have what was published (`views`), or what others have seen (`sequential`) or heard
    /// of (`release`), so that it outlives the node that has the pages: 0 or 1. `private` has none.
    pub replicas: u8,
}

impl Default for Options {
    /// Mode 0600, policy `sequential`, no replicas, and an existing segment is opened.
    fn default() -> Self {
        Self {
            mode: 0o600,
            policy: Policy::default(),
            exclusive: false,
            replicas: 0,
        }
    }
}

/// An open segment. Clones are the same opening; when the last one, with its
/// mappings and locks, is dropped, the segment is closed. That never removes
/// it: see [`Mesh::remove`].
#[derive(Clone)]
pub struct Segment(Arc<Inner>);

struct Inner {
    mesh: Mesh,
    info: SegmentInfo,
    memory: (Mark, OwnedFd),
    access: Access,
    shared: Arc<Shared>,
}

/// State that all openings of one segment by this process share.
#[derive(Debug)]
pub struct Shared {
    area: LockArea,
    locks: Guarded<HashMap<u64, Arc<LockState>>>,
}

impl Shared {
    pub fn new(area: LockArea) -> Self {
        Self {
            area,
            locks: Guarded::default(),
        }
    }
}

impl Segment {
    pub(crate) fn new(
        mesh: Mesh,
        info: SegmentInfo,
        memory: OwnedFd,
        access: Access,
        shared: Arc<Shared>,
    ) -> Self {
        Self(Arc::new(Inner {
            mesh,
            info,
            memory: kept(memory),
            access,
            shared,
        }))
    }

    /// Maps the whole segment, with the access it was opened for, at an address the kernel chooses.
    ///
    /// # Errors
    /// As [`Segment::map_at`].
    pub fn map(&self) -> Result<Mapping> {
        let write = self.0.access == Access::Writable;
        self.map_at(None, 0, self.size(), write)
    }

    /// Maps `length` bytes from byte `offset` on (F4, F6). `offset` and the requested `address` are
    /// multiples of the page size. Pointers inside the segment are valid in all processes if all of
    /// them request the same address.
    ///
    /// # Errors
    /// [`Error::AddressTaken`] if the address range is in use (an existing mapping is never
    /// replaced); [`Error::Invalid`] for a range outside of the segment or stores to a segment
    /// opened read-only; [`Error::NoUserfaultfd`]; [`Error::Map`].
    pub fn map_at(
        &self,
        address: Option<usize>,
        offset: u64,
        length: u64,
        write: bool,
    ) -> Result<Mapping> {
        if write && self.0.access == Access::ReadOnly {
            return Err(Error::Invalid("the segment was opened read-only"));
        }
        let view = self.has_views().then_some(View {
            consistent: write,
            ..INCONSISTENT
        });
        Mapping::new(self, address, offset, length, (write, view))
    }

    /// Maps the whole segment of policy `views` once for each view that this opening permits, so
    /// that a bit of an address chooses the view (E10).
    ///
    /// # Errors
    /// As [`Segment::map_at`]; [`Error::Invalid`] for a segment of another policy.
    pub fn map_views(&self) -> Result<Views> {
        Views::new(self)
    }

    /// Maps the whole segment with one view.
    ///
    /// # Errors
    /// As [`Segment::map_views`].
    pub fn map_view(&self, view: View) -> Result<Mapping> {
        if !self.has_views() || !view.is_possible() {
            let why = "only segments of policy views have views, and consistent ones are not \
                       data-driven";
            return Err(Error::Invalid(why));
        }
        if view.consistent && self.0.access == Access::ReadOnly {
            return Err(Error::Invalid("the segment was opened read-only"));
        }
        let how = (view.consistent, Some(view));
        Mapping::new(self, None, 0, self.size(), how)
    }

    /// As [`Views::purge`].
    ///
    /// # Errors
    /// As there.
    pub fn purge(&self, view: View, bytes: Range<u64>) -> Result<()> {
        purge(self, view, &bytes)
    }

    /// As [`Views::publish`].
    ///
    /// # Errors
    /// As there.
    pub fn publish(&self, short: bool, bytes: Range<u64>) -> Result<()> {
        publish(self, short, &bytes)
    }

    /// As [`Views::page_out`].
    ///
    /// # Errors
    /// As there.
    pub fn page_out(&self, view: View, bytes: Range<u64>) -> Result<()> {
        let advice = match view.short {
            true => Advice::DontNeedShort,
            false => Advice::DontNeed,
        };
        self.advise(bytes, advice)
    }

    /// As [`Views::lock`].
    ///
    /// # Errors
    /// As there.
    pub fn lock_view(&self, view: View, bytes: Range<u64>) -> Result<WriteLock> {
        if !view.consistent {
            return Err(Error::Invalid("an inconsistent view is not locked"));
        }
        WriteLock::new(self, bytes, view.short)
    }

    /// True if the segment is a [`Board`](crate::Board).
    #[must_use]
    pub fn is_board(&self) -> bool {
        crate::Board::of(self).is_some()
    }

    pub(crate) fn has_views(&self) -> bool {
        matches!(self.info().spec.policy, Policy::Views { .. })
    }

    /// The lock with this number. Each number is a separate lock, free at first.
    #[must_use]
    pub fn lock(&self, number: u64) -> Lock {
        let mut locks = self.0.shared.locks.lock();
        let state = Arc::clone(locks.entry(number).or_default());
        drop(locks);
        Lock::new(self.clone(), number, state)
    }

    /// The condition variable with this number. Each number is a separate one.
    #[must_use]
    pub fn condition(&self, number: u64) -> Condition {
        Condition::new(self.clone(), number)
    }

    /// The barrier with this number, for `parties` processes in the whole cluster; a process with
    /// several waiting threads counts once for each of them.
    #[must_use]
    pub fn barrier(&self, number: u64, parties: u32) -> Barrier {
        Barrier::new(self.clone(), number, parties)
    }

    /// Sleeps while the byte at `offset` is `expected`, without any traffic. The thread wakes when
    /// any process gets the right to write the page, compares the byte, and sleeps on if it is the
    /// same (F7). Returns the byte's new value.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after `timeout`, [`Error::Interrupted`],
    /// [`Error::Invalid`] for an offset outside of the segment; [`Error::Refused`], whatever
    /// the byte is, for a segment of policy `release`.
    pub fn wait_change(&self, offset: u64, expected: u8, timeout: Option<Duration>) -> Result<u8> {
        wait_change(self, offset, expected, timeout)
    }

    /// Keeps the pages of these bytes on this node, writable, during a series of stores (M14):
    /// other nodes wait until the guard is dropped, for one second at most. It prevents the pages
    /// from leaving between two stores. It is not a lock: other processes of this host may store to
    /// the pages, too.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range outside of the segment, or a segment
    /// opened read-only; [`Error::Refused`] beyond 4096 pages.
    pub fn write_lock(&self, bytes: Range<u64>) -> Result<WriteLock> {
        WriteLock::new(self, bytes, false)
    }

    /// Announces how this process will use these bytes. Advice changes how soon loads return, and
    /// not what they return; only [`Advice::Renew`] lets lost pages of policy `views` begin anew. [`Advice::WillNeed`] and [`Advice::DontNeed`] apply to the pages
    /// of the range; the others apply to the whole segment. A willneed range is fetched for
    /// reading, and its pages appear in the process's first mapping of the segment; this call does
    /// not wait for them.
    ///
    /// Under policy `release` pages are fetched ahead only if [`Advice::WillNeed`] or
    /// [`Advice::Sequential`] announced them, and [`Advice::DontNeed`] does nothing, because unused
    /// pages cause no cost.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty range, or one outside of the segment.
    pub fn advise(&self, bytes: Range<u64>, advice: Advice) -> Result<()> {
        let (first, count) = self.pages_of(&bytes)?;
        self.mesh().done(Request::Advise {
            segment: self.id(),
            first,
            count,
            advice,
        })
    }

    /// Announces which bytes this process will touch, wherever they lie: as
    /// [`Segment::advise`] with [`Advice::WillNeed`] for each of the ranges, with few requests.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a range is empty or does not lie in the segment; if the daemon is of an
    /// older release, or does not answer.
    pub fn will_need(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<()> {
        let pages = ranges.into_iter().map(|bytes| self.pages_of(&bytes));
        let mut pages = pages.collect::<Result<Vec<_>>>()?;
        pages.dedup();
        for ranges in pages.chunks(Request::RANGES) {
            self.mesh().done(Request::WillNeed {
                segment: self.id(),
                ranges: ranges.to_vec(),
            })?;
        }
        Ok(())
    }

    /// The first page of a range of bytes, and the number of its pages.
    fn pages_of(&self, bytes: &Range<u64>) -> Result<(PageIndex, PageCount)> {
        let outside = Error::Invalid("these bytes do not lie in the segment");
        if !self.contains(bytes) {
            return Err(outside);
        }
        let page = |byte| ByteOffset(byte).page();
        let (Some(first), Some(last)) = (page(bytes.start), page(bytes.end - 1)) else {
            return Err(outside);
        };
        Ok((first, PageCount(last.0 - first.0 + 1)))
    }

    /// Gives parts of the segment the names that the program uses, for reports of races
    /// (`--check-races`). Of two labels that begin at the same byte the later one counts. A node
    /// remembers 4096 labels, of at most 80 bytes each.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn label(&self, labels: &[Label]) -> Result<()> {
        for labels in labels.chunks(Label::AT_ONCE) {
            self.mesh().done(Request::Label {
                segment: self.id(),
                labels: labels.to_vec(),
            })?;
        }
        Ok(())
    }

    /// Declares that nodes accumulate in these bytes of a segment of policy `release` without a
    /// lock, by atomic operations on the mapping: the changes of all nodes to an element are
    /// combined as `merge` says, and after the next barrier all nodes see the same result. Outside
    /// of reductions the last store counts, byte by byte.
    ///
    /// Returns when every node knows the declaration. Declare before any process stores there, and
    /// let a barrier follow. A declaration lasts as long as the segment. Repeating the same
    /// declaration changes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a segment opened read-only; [`Error::Refused`] for an empty
    /// range or one outside of the segment, one that cuts an element in two or shares
    /// bytes with another, a segment of another policy, and beyond 64 ranges.
    pub fn reduce(&self, bytes: Range<u64>, merge: Merge, kind: Kind) -> Result<()> {
        if self.0.access == Access::ReadOnly {
            return Err(Error::Invalid("the segment was opened read-only"));
        }
        let reduction = Reduction {
            offset: bytes.start,
            length: bytes.end.saturating_sub(bytes.start),
            merge,
            kind,
        };
        self.mesh().done(Request::Reduce {
            segment: self.id(),
            reduction,
        })
    }

    /// Closes this opening now and waits until the daemon has noted it; this must be the last
    /// clone. Dropping closes it without waiting.
    ///
    /// # Errors
    /// [`Error::Invalid`] if clones, mappings or locks of the segment still exist, because they
    /// keep it open.
    pub fn close(self) -> Result<()> {
        let mesh = self.0.mesh.clone();
        let last = Arc::try_unwrap(self.0);
        last.map_err(|_| Error::Invalid("mappings, locks or clones keep the segment open"))?;
        // The daemon handles requests in order: its answer to this one follows the close.
        mesh.status().map(|_| ())
    }

    /// The segment's description as of when it was opened.
    #[must_use]
    pub fn info(&self) -> &SegmentInfo {
        &self.0.info
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.info.name
    }

    /// Its size in bytes, as its creator gave it.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.info.spec.size.0
    }

    /// The access it was opened for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.0.access
    }

    pub(crate) fn id(&self) -> SegmentId {
        self.0.info.id
    }

    /// True if both are openings of the same segment, or clones of one opening, over the same
    /// connection.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.shared, &other.0.shared)
    }

    pub(crate) fn key(&self, number: u64) -> SyncKey {
        SyncKey {
            segment: self.id(),
            number,
        }
    }

    pub(crate) fn mesh(&self) -> &Mesh {
        &self.0.mesh
    }

    pub(crate) fn memory(&self) -> BorrowedFd<'_> {
        self.0.memory.1.as_fd()
    }

    pub(crate) fn area(&self) -> &LockArea {
        &self.0.shared.area
    }

    /// True if these bytes lie in the segment. The unused rest of its last page belongs to it.
    pub(crate) fn contains(&self, bytes: &Range<u64>) -> bool {
        let size = self.size().next_multiple_of(PAGE_SIZE as u64);
        bytes.start < bytes.end && bytes.end <= size
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("info", &self.0.info)
            .field("access", &self.0.access)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let segment = self.info.id;
        self.mesh.connection().tell(Request::Close { segment });
    }
}
