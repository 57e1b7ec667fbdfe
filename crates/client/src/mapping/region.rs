//! The memory of a mapping: mapped, served by the daemon, inherited by forked children.

use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use pagemesh_os::kept::Mark;
use pagemesh_os::uffd::{Kind, Uffd};
use pagemesh_os::vma::each_mapped;
use pagemesh_wire::local::{Reply, Request, RequestPacket, View};
use pagemesh_wire::peer::Policy;
use pagemesh_wire::{ByteLen, ByteOffset, MappingId, PAGE_SIZE};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::connection::{Orphan, unexpected};
use crate::ranges::Claim;
use crate::{Error, Result, Segment};

/// The memory of a mapping.
pub struct Region {
    pub(super) segment: Segment,
    pub(super) base: NonNull<u8>,
    /// Length that the caller asked for, in bytes; the mapping extends to the end of the page.
    pub(super) length: usize,
    pub(super) offset: u64,
    pub(super) write: bool,
    /// What it shows, under policy `views`.
    pub(super) view: Option<View>,
    /// `None` until the daemon serves it.
    served: Option<Served>,
    /// A [`Held`]: how much of it was mapped when this process last forked.
    held: AtomicU8,
    /// False if forked children are to find nothing here.
    inherited: AtomicBool,
    _claim: Claim,
}

/// How much of a region's memory still maps the segment. The program has unmapped the rest, or has
/// mapped something else over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Held {
    Whole,
    Partly,
    Nothing,
}

struct Served {
    _kept: Mark,
    /// The mapping's [`MappingId`]; a forked child gets another one.
    number: AtomicU64,
    /// While this descriptor is open, threads that touch absent pages wait for a new daemon if the
    /// old one dies, instead of reading zeros.
    uffd: Uffd,
    kind: Kind,
    /// The encoded request by which a forked child attaches the memory, ready to be sent.
    again: Box<[u8]>,
}

// SAFETY: the pointer is to shared memory, which any thread may use; all other fields are Send and
// Sync.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps these bytes of the segment, and lets the daemon serve them.
    pub(super) fn new(
        segment: &Segment,
        address: Option<usize>,
        offset: u64,
        length: usize,
        (write, view): (bool, Option<View>),
    ) -> Result<Self> {
        let base = map_memory(segment, address, offset, length, write)?;
        let start = base.as_ptr() as usize;
        let mut region = Self {
            segment: segment.clone(),
            base,
            length,
            offset,
            write,
            view,
            served: None,
            held: AtomicU8::new(Held::Whole as u8),
            inherited: AtomicBool::new(true),
            _claim: Claim::new(&(start..start + length.next_multiple_of(PAGE_SIZE))),
        };
        region.served = Some(region.attach()?);
        Ok(region)
    }

    /// Registers the memory and asks the daemon to serve its faults.
    fn attach(&self) -> Result<Served> {
        let mesh = self.segment.mesh();
        let (uffd, kind) = Uffd::create(mesh.device()).map_err(Error::NoUserfaultfd)?;
        let (segment, address) = (self.segment.id(), self.base.as_ptr() as u64);
        let (length, offset) = (ByteLen(self.span() as u64), ByteOffset(self.offset));
        let request = match self.view {
            None => Request::Map {
                segment,
                address,
                length,
                offset,
                write: self.write,
            },
            Some(view) => Request::MapView {
                segment,
                address,
                length,
                offset,
                view,
            },
        };
        let number = mesh.connection().number();
        let again = RequestPacket {
            number,
            request: request.clone(),
        };
        let fds = [uffd.as_fd()];
        let call = mesh.connection().start_surely(request, &fds, None)?;
        match call.finish_surely(None)?.reply {
            Reply::Mapped { mapping } => Ok(Served {
                _kept: Mark::of(&uffd),
                number: AtomicU64::new(mapping.0),
                uffd,
                kind,
                again: again.encode().into(),
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Runs before a fork: notes how much of the memory a child can inherit.
    pub fn survey(&self) {
        let mut bytes = 0;
        let asked = self.each_held(|part| bytes += part.len());
        let held = match bytes {
            // If the kernel does not tell, the child finds out when it maps the memory.
            _ if asked.is_err() => Held::Whole,
            0 => Held::Nothing,
            bytes if bytes == self.span() => Held::Whole,
            _ => Held::Partly,
        };
        self.held.store(held as u8, Ordering::Relaxed);
    }

    /// The parts that still map the segment.
    pub(super) fn held(&self) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        match self.each_held(|part| parts.push(part)) {
            Ok(()) => parts,
            Err(_) => vec![self.addresses()],
        }
    }

    fn each_held(&self, each: impl FnMut(Range<usize>)) -> std::io::Result<()> {
        each_mapped(self.segment.memory(), self.offset, &self.addresses(), each)
    }

    /// The name of the segment that it is of.
    pub fn name(&self) -> &str {
        self.segment.name()
    }

    fn addresses(&self) -> Range<usize> {
        let start = self.base.as_ptr() as usize;
        start..start + self.span()
    }

    /// In a forked child, by system calls only: maps the same memory at the same address, and lets
    /// the daemon serve it for this process.
    pub fn inherit(&self) -> std::result::Result<(), Orphan> {
        let Some(served) = &self.served else {
            return Ok(());
        };
        let held = self.held.load(Ordering::Relaxed);
        if held == Held::Nothing as u8 || !self.inherited.load(Ordering::Relaxed) {
            self.disown();
            return Ok(());
        }
        if held == Held::Partly as u8 {
            return Err(Orphan::Cut);
        }
        if let Policy::Private { .. } = self.segment.info().spec.policy {
            return Err(Orphan::Private);
        }
        let address = Some(self.base.as_ptr() as usize);
        let Self {
            segment,
            offset,
            length,
            write,
            ..
        } = self;
        map_memory(segment, address, *offset, *length, *write)
            .map_err(|error| Orphan::of("mmap", &system(error)))?;
        let served = self.serve_child(served);
        if served.is_err() {
            // SAFETY: exactly what was mapped just now; `renounce` makes the range inaccessible.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.span()) };
        }
        served
    }

    fn serve_child(&self, served: &Served) -> std::result::Result<(), Orphan> {
        let mesh = self.segment.mesh();
        let (uffd, _) =
            Uffd::create(mesh.device()).map_err(|error| Orphan::of("userfaultfd", &error))?;
        let reply = mesh.connection().exchange(&served.again, &[uffd.as_fd()])?;
        let Reply::Mapped { mapping } = reply else {
            return Err(Orphan::Refused);
        };
        served.number.store(mapping.0, Ordering::Relaxed);
        let supplanted = served.uffd.supplant(uffd);
        supplanted.map_err(|error| Orphan::of("dup3", &error))
    }

    /// Forked children are to find nothing here: the kernel does not copy the mapping to them, and
    /// they do not ask for one.
    pub(super) fn keep_from_children(&self) {
        self.inherited.store(false, Ordering::Relaxed);
    }

    /// In a forked child that cannot inherit the memory: makes the range inaccessible, so that
    /// accesses crash instead of finding an unrelated mapping. What is mapped there already stays.
    pub fn renounce(&self) {
        if self.held.load(Ordering::Relaxed) != Held::Nothing as u8 {
            bar(self.base.as_ptr() as usize, self.span(), BARRED_PARTS);
        }
        self.disown();
    }

    /// In a forked child: notes that nothing of the region is mapped here.
    fn disown(&self) {
        self.held.store(Held::Nothing as u8, Ordering::Relaxed);
        if let Some(served) = &self.served {
            served.number.store(NO_MAPPING, Ordering::Relaxed);
            // If this process kept the descriptor, it would keep the parent's memory alive.
            let _ = served.uffd.supplant(self.segment.memory());
        }
    }

    /// True if the kernel may access this memory in system calls while its pages are on other
    /// nodes.
    pub(super) fn serves_system_calls(&self) -> bool {
        let served = self.served.as_ref();
        served.is_some_and(|served| served.kind != Kind::UserModeOnly)
    }

    /// Length of the mapping in bytes: whole pages.
    pub(super) fn span(&self) -> usize {
        self.length.next_multiple_of(PAGE_SIZE)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let connection = self.segment.mesh().connection();
        if !connection.is_ours() {
            // A forked child has no such mapping; another mapping may be in its place.
            return;
        }
        // Unmap before the daemon stops serving, so that no thread finds memory without a server.
        // The program may have unmapped it already, and mapped something else there.
        for part in self.held() {
            let start = ptr::without_provenance_mut(part.start);
            // SAFETY: what was mapped here; no borrow of it is left.
            let unmapped = unsafe { munmap(start, part.len()) };
            debug_assert!(unmapped.is_ok());
        }
        if let Some(served) = &self.served {
            let number = served.number.load(Ordering::Relaxed);
            if number != NO_MAPPING {
                let mapping = MappingId(number);
                connection.tell(Request::Unmap { mapping });
            }
        }
    }
}

/// A mapping number that no mapping of any process has.
const NO_MAPPING: u64 = 0;

/// Limit for the splitting of a partly occupied range by `bar`: no part is smaller than the range
/// divided by this number.
const BARRED_PARTS: usize = 64;

/// Maps inaccessible memory over the free parts of a range, splitting it into at most `parts`
/// parts.
fn bar(start: usize, span: usize, parts: usize) {
    let place = ptr::without_provenance_mut(start);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: replaces nothing.
    let barred = unsafe { mmap_anonymous(place, span, ProtFlags::empty(), flags) };
    let half = (span / 2).next_multiple_of(PAGE_SIZE);
    if barred == Err(Errno::EXIST) && parts > 1 && half < span {
        bar(start, half, parts / 2);
        bar(start + half, span - half, parts / 2);
    }
}

/// A free range of addresses of this length, a power of two, at a multiple of it. Another thread
/// may take it before the caller does.
pub fn reserve(length: usize) -> Result<usize> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the kernel chooses the place, so nothing in use changes.
    let base = unsafe { mmap_anonymous(null_mut(), 2 * length, ProtFlags::empty(), flags) };
    let base = base.map_err(|error| Error::Map(error.into()))?;
    // SAFETY: exactly what was mapped just now.
    let _ = unsafe { munmap(base, 2 * length) };
    Ok(base.addr().next_multiple_of(length))
}

/// Maps the memory; no thread touches it before the daemon serves it.
fn map_memory(
    segment: &Segment,
    address: Option<usize>,
    offset: u64,
    length: usize,
    write: bool,
) -> Result<NonNull<u8>> {
    // A read-only descriptor can be registered with userfaultfd only if it is
    // mapped privately; a shared mapping lacks the right to become writable.
    let (rights, mut flags) = if write {
        (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
    } else {
        (ProtFlags::READ, MapFlags::PRIVATE)
    };
    flags |= MapFlags::NORESERVE;
    if address.is_some() {
        flags |= MapFlags::FIXED_NOREPLACE;
    }
    let wish = address.map_or(null_mut(), ptr::without_provenance_mut);
    let span = length.next_multiple_of(PAGE_SIZE);
    // SAFETY: without FIXED, or with FIXED_NOREPLACE, no memory in use changes.
    let mapped = unsafe { mmap(wish, span, rights, flags, segment.memory(), offset) };
    let base = match (mapped, address) {
        (Err(Errno::EXIST), Some(address)) => return Err(Error::AddressTaken(address)),
        (Err(error), _) => return Err(Error::Map(error.into())),
        (Ok(base), _) => base,
    };
    // A child would see zeros, because its copy would not be registered. It maps the memory again.
    // SAFETY: the advice concerns only what was just mapped.
    if let Err(error) = unsafe { madvise(base, span, Advice::LinuxDontFork) } {
        // SAFETY: as above; no other code knows the memory yet.
        let _ = unsafe { munmap(base, span) };
        return Err(Error::Map(error.into()));
    }
    Ok(NonNull::new(base.cast()).expect("mmap never gives the null page"))
}

/// The system's error from a failed mapping.
fn system(error: Error) -> std::io::Error {
    match error {
        Error::Map(error) => error,
        _ => Errno::EXIST.into(),
    }
}
