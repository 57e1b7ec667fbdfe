//! The memory of a mapping: mapped, served by the daemon, inherited by children.

use std::os::fd::AsFd;
use std::ptr::{self, NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use pagemesh_os::kept::Mark;
use pagemesh_os::uffd::{Kind, Uffd};
use pagemesh_wire::local::{Reply, Request, RequestPacket};
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
    /// Bytes the caller asked for; the mapping goes on to the end of the page.
    pub(super) length: usize,
    pub(super) offset: u64,
    pub(super) write: bool,
    /// `None` until the daemon serves it.
    served: Option<Served>,
    _claim: Claim,
}

struct Served {
    _kept: Mark,
    /// A [`MappingId`]; another one in a forked child.
    number: AtomicU64,
    /// While it is open here, threads that touch absent pages wait for a new
    /// daemon if the old one dies, instead of reading zeros.
    uffd: Uffd,
    kind: Kind,
    /// What a forked child asks for, ready to be sent.
    again: Box<[u8]>,
}

// SAFETY: the pointer is to shared memory, which any thread may use; all fields
// else are Send and Sync.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps these bytes of the segment, and has the daemon serve them.
    pub(super) fn new(
        segment: &Segment,
        address: Option<usize>,
        offset: u64,
        length: usize,
        write: bool,
    ) -> Result<Self> {
        let base = map_memory(segment, address, offset, length, write)?;
        let start = base.as_ptr() as usize;
        let mut region = Self {
            segment: segment.clone(),
            base,
            length,
            offset,
            write,
            served: None,
            _claim: Claim::new(&(start..start + length.next_multiple_of(PAGE_SIZE))),
        };
        region.served = Some(region.attach()?);
        Ok(region)
    }

    /// Makes the daemon serve the faults of this memory.
    fn attach(&self) -> Result<Served> {
        let mesh = self.segment.mesh();
        let (uffd, kind) = Uffd::create(mesh.device()).map_err(Error::NoUserfaultfd)?;
        let request = Request::Map {
            segment: self.segment.id(),
            address: self.base.as_ptr() as u64,
            length: ByteLen(self.span() as u64),
            offset: ByteOffset(self.offset),
            write: self.write,
        };
        let number = mesh.connection().number();
        let again = RequestPacket {
            number,
            request: request.clone(),
        };
        let call = mesh.connection().start(request, &[uffd.as_fd()], None)?;
        match call.finish(None)?.reply {
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

    /// In a forked child, by system calls only: the same memory at the same
    /// address, served for this process.
    pub fn inherit(&self) -> std::result::Result<(), Orphan> {
        let Some(served) = &self.served else {
            return Ok(());
        };
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
        let mesh = segment.mesh();
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

    /// In a forked child that cannot have it: whoever touches it shall crash, and
    /// not find something else there.
    pub fn renounce(&self) {
        let base = self.base.as_ptr().cast();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: nothing is there but what the parent had, or what `inherit`
        // has just put there in vain.
        let barred = unsafe { mmap_anonymous(base, self.span(), ProtFlags::empty(), flags) };
        debug_assert!(barred.is_ok());
        if let Some(served) = &self.served {
            // Held here, it would keep the parent's memory alive.
            let _ = served.uffd.supplant(self.segment.memory());
        }
    }

    /// Whether system calls may be given this memory while it is elsewhere.
    pub(super) fn serves_system_calls(&self) -> bool {
        let served = self.served.as_ref();
        served.is_some_and(|served| served.kind != Kind::UserModeOnly)
    }

    /// Bytes mapped: whole pages.
    pub(super) fn span(&self) -> usize {
        self.length.next_multiple_of(PAGE_SIZE)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let connection = self.segment.mesh().connection();
        if !connection.is_ours() {
            // A child has no such mapping; what is there now is something else.
            return;
        }
        // First the memory, so that no thread finds it without a server.
        // SAFETY: exactly what was mapped; nothing that borrows from it is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.span()) };
        debug_assert!(unmapped.is_ok());
        if let Some(served) = &self.served {
            connection.tell(Request::Unmap {
                mapping: MappingId(served.number.load(Ordering::Relaxed)),
            });
        }
    }
}

/// Maps the memory, which nobody touches before it is served.
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
    // A child would see zeros: its copy would not be registered. It maps anew.
    // SAFETY: the advice concerns only what was just mapped.
    if let Err(error) = unsafe { madvise(base, span, Advice::LinuxDontFork) } {
        // SAFETY: as above; nobody knows the memory yet.
        let _ = unsafe { munmap(base, span) };
        return Err(Error::Map(error.into()));
    }
    Ok(NonNull::new(base.cast()).expect("mmap never gives the null page"))
}

/// What the system said when memory could not be mapped.
fn system(error: Error) -> std::io::Error {
    match error {
        Error::Map(error) => error,
        _ => Errno::EXIST.into(),
    }
}
