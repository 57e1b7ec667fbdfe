//! userfaultfd: the faults of one mapping, and the operations that serve them.
//!
//! The descriptor must be created by the process whose memory it serves; the daemon adopts it, does
//! the handshake and registers the range itself, so that every mapping has the same features. While
//! any process holds a duplicate, an access to an absent page blocks even if the daemon is dead.

mod fault;

pub use fault::{Fault, FaultBuffer, FaultKind};

use crate::descriptor::supplant;
use crate::memfd::{self, PageBytes};
use linux_raw_sys::general::{
    UFFD_API, UFFD_FEATURE_MINOR_SHMEM, UFFD_FEATURE_MISSING_SHMEM, UFFD_FEATURE_PAGEFAULT_FLAG_WP,
    UFFD_FEATURE_POISON, UFFD_FEATURE_THREAD_ID, UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
    UFFD_USER_MODE_ONLY, UFFDIO, UFFDIO_COPY_MODE_WP, UFFDIO_REGISTER_MODE_MINOR,
    UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP, uffdio_api, uffdio_continue,
    uffdio_copy, uffdio_poison, uffdio_range, uffdio_register, uffdio_writeprotect,
    uffdio_zeropage,
};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open, readlink};
use rustix::io::{Errno, ReadWriteFlags, preadv2, read};
use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// The path of the device that makes descriptors.
pub const DEVICE: &str = "/dev/userfaultfd";

/// A descriptor that serves the faults of some memory.
#[derive(Debug)]
pub struct Uffd(OwnedFd);

/// How a descriptor was obtained, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// From `/dev/userfaultfd`: serves faults of user and kernel mode.
    Device,
    /// From the system call: serves faults of user and kernel mode.
    SystemCall,
    /// From the system call without privilege: an access by the kernel, as in
    /// `read(2)` into an absent page, fails with `EFAULT`.
    UserModeOnly,
}

/// The features that the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(u64);

/// The result of an attempt to place a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done; waiting threads were woken.
    Done,
    /// A page or a mark is present already. No thread was woken.
    AlreadyThere,
    /// The shared memory has no page there. No thread was woken.
    NotThere,
    /// The range is not (or no longer) registered here. No thread was woken.
    Unregistered,
    /// The process is changing its mappings; try again. No thread was woken.
    Retry,
    /// The process has exited.
    Gone,
    /// The host has no memory for the page. No thread was woken.
    NoMemory,
    /// An unexpected error.
    Failed(Errno),
}

const REQUIRED: u64 = (UFFD_FEATURE_PAGEFAULT_FLAG_WP
    | UFFD_FEATURE_MISSING_SHMEM
    | UFFD_FEATURE_MINOR_SHMEM
    | UFFD_FEATURE_WP_HUGETLBFS_SHMEM
    | UFFD_FEATURE_THREAD_ID) as u64;
const WELCOME: u64 = UFFD_FEATURE_POISON as u64;

const WP_UNPOPULATED: u64 = 1 << 13;
const WP_ASYNC: u64 = 1 << 15;

// The headers of Debian 12 lack these, and linux-raw-sys lacks some.
const NEW: Opcode = opcode::none(UFFDIO as u8, 0x00);
const REGISTER: Opcode = opcode::read_write::<uffdio_register>(UFFDIO as u8, 0x00);
const UNREGISTER: Opcode = opcode::read::<uffdio_range>(UFFDIO as u8, 0x01);
const WAKE: Opcode = opcode::read::<uffdio_range>(UFFDIO as u8, 0x02);
const COPY: Opcode = opcode::read_write::<uffdio_copy>(UFFDIO as u8, 0x03);
const ZEROPAGE: Opcode = opcode::read_write::<uffdio_zeropage>(UFFDIO as u8, 0x04);
const WRITEPROTECT: Opcode = opcode::read_write::<uffdio_writeprotect>(UFFDIO as u8, 0x06);
const CONTINUE: Opcode = opcode::read_write::<uffdio_continue>(UFFDIO as u8, 0x07);
const POISON: Opcode = opcode::read_write::<uffdio_poison>(UFFDIO as u8, 0x08);
const API: Opcode = opcode::read_write::<uffdio_api>(UFFDIO as u8, 0x3f);

const CONTINUE_MODE_WP: u64 = 1 << 1;
const WRITEPROTECT_MODE_WP: u64 = 1 << 0;

const TRAPPED: u32 =
    UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP;

const PAGE: u64 = memfd::PAGE as u64;

/// The last page below the end of a process's memory, above every stack.
const LAST_PAGE: u64 = (1 << 47) - 2 * 4096;

impl Uffd {
    /// A descriptor for this process's own memory, from `device` if one was lent, otherwise by the
    /// best method that this user is permitted.
    ///
    /// # Errors
    /// If no method works; the error is that of the system call.
    pub fn create(device: Option<BorrowedFd<'_>>) -> io::Result<(Self, Kind)> {
        if let Some(uffd) = device.and_then(|device| Self::from_device(device).ok()) {
            return Ok((uffd, Kind::Device));
        }
        if let Ok(uffd) = open_device().and_then(|device| Self::from_device(device.as_fd())) {
            return Ok((uffd, Kind::Device));
        }
        if let Ok(uffd) = Self::from_system_call(0) {
            return Ok((uffd, Kind::SystemCall));
        }
        let uffd = Self::from_system_call(UFFD_USER_MODE_ONLY)?;
        Ok((uffd, Kind::UserModeOnly))
    }

    fn from_device(device: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: USERFAULTFD_IOC_NEW takes flags by value and returns a new
        // descriptor; on any other file it is an unknown request.
        let fd = unsafe {
            libc::ioctl(
                device.as_raw_fd(),
                libc::c_ulong::from(NEW),
                libc::O_CLOEXEC | libc::O_NONBLOCK,
            )
        };
        Self::own(i64::from(fd))
    }

    fn from_system_call(flags: u32) -> io::Result<Self> {
        let flags = flags as i32 | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: userfaultfd takes flags by value and returns a new descriptor.
        Self::own(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })
    }

    fn own(fd: i64) -> io::Result<Self> {
        match i32::try_from(fd) {
            // SAFETY: the kernel just made this descriptor; it has no other owner.
            Ok(fd) if fd >= 0 => Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Adopts a descriptor that came from another process, and makes it non-blocking, because
    /// otherwise it could not be polled.
    ///
    /// # Errors
    /// If it is not a userfaultfd.
    pub fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let link = readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?;
        if link.as_bytes() != b"anon_inode:[userfaultfd]" {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the descriptor is no userfaultfd",
            ));
        }
        let uffd = Self(fd);
        uffd.never_block()?;
        Ok(uffd)
    }

    /// Replaces what this descriptor number stands for by `by`, and closes the old descriptor.
    ///
    /// # Errors
    /// As dup3(2); then the descriptor is unchanged.
    pub fn supplant(&self, by: impl AsFd) -> io::Result<()> {
        supplant(self, by)
    }

    /// Makes reading non-blocking (again): the process that made the descriptor shares the flag.
    ///
    /// # Errors
    /// If the descriptor is broken.
    pub fn never_block(&self) -> io::Result<()> {
        let flags = fcntl_getfl(&self.0)?;
        Ok(fcntl_setfl(&self.0, flags | OFlags::NONBLOCK)?)
    }

    /// Negotiates the features used here with the kernel. Once per descriptor.
    ///
    /// # Errors
    /// If the kernel is older than 6.4, or the handshake was done before.
    pub fn handshake(&self) -> io::Result<Features> {
        // A failed handshake makes a descriptor unusable, so query on a temporary one.
        let offered = Features::offered()?;
        if offered.0 & REQUIRED != REQUIRED {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's userfaultfd is too old; Linux 6.4 or later is needed",
            ));
        }
        self.api(REQUIRED | (offered.0 & WELCOME))
    }

    /// As [`Uffd::handshake`], but a store to a protected page lifts the protection without a fault
    /// message; [`Pagemap`](crate::pagemap::Pagemap) finds it.
    ///
    /// # Errors
    /// If the kernel is older than 6.7, or the handshake was done before.
    pub fn handshake_async(&self) -> io::Result<()> {
        self.api(REQUIRED | WP_ASYNC | WP_UNPOPULATED).map(|_| ())
    }

    fn api(&self, features: u64) -> io::Result<Features> {
        let mut api = uffdio_api {
            api: u64::from(UFFD_API),
            features,
            ioctls: 0,
        };
        // SAFETY: UFFDIO_API reads and writes one uffdio_api.
        unsafe { ioctl(&self.0, Updater::<API, _>::new(&mut api)) }?;
        Ok(Features(api.features))
    }

    /// Registers a range: faults on absent, unmapped and protected pages are served from now on.
    ///
    /// # Errors
    /// If the range is not one mapping of shared memory that can be registered.
    pub fn register(&self, address: u64, length: u64) -> io::Result<()> {
        self.register_in(address, length, TRAPPED)
    }

    /// Registers a range without any fault: the kernel serves absent and unmapped pages, and no page
    /// is protected. [`Uffd::register`] may follow, and [`Uffd::parts`] finds what is still mapped.
    ///
    /// # Errors
    /// As for [`Uffd::register`].
    pub fn register_untrapped(&self, address: u64, length: u64) -> io::Result<()> {
        self.register_in(address, length, UFFDIO_REGISTER_MODE_WP)
    }

    fn register_in(&self, address: u64, length: u64, modes: u32) -> io::Result<()> {
        let mut register = uffdio_register {
            range: range(address, length),
            mode: u64::from(modes),
            ioctls: 0,
        };
        // SAFETY: UFFDIO_REGISTER reads and writes one uffdio_register.
        unsafe { ioctl(&self.0, Updater::<REGISTER, _>::new(&mut register)) }?;
        Ok(())
    }

    /// Unregisters the range; the threads waiting in it are woken.
    ///
    /// # Errors
    /// If the range is not registered.
    pub fn unregister(&self, address: u64, length: u64) -> io::Result<()> {
        let range = range(address, length);
        // SAFETY: UFFDIO_UNREGISTER reads one uffdio_range.
        unsafe { ioctl(&self.0, Setter::<UNREGISTER, _>::new(range)) }?;
        Ok(())
    }

    /// Places a new page with these bytes at `address`, and in the shared memory. Only for shared
    /// mappings: a private one would get a page that cannot be revoked. Without `write` the first
    /// store will fault.
    pub fn copy(&self, address: u64, bytes: &PageBytes, write: bool) -> Outcome {
        let mut copy = copying(address, bytes, write);
        // SAFETY: UFFDIO_COPY reads and writes one uffdio_copy, reads `len`
        // bytes at `src`, which live, and writes only to registered memory.
        outcome(unsafe { ioctl(&self.0, Updater::<COPY, _>::new(&mut copy)) })
    }

    /// As [`Uffd::copy`], for neighbouring pages in one call: the threads waiting for them wake
    /// together. Returns how many pages were placed: fewer than all if the next one could not be.
    pub fn copy_run(&self, address: u64, pages: &[PageBytes], write: bool) -> usize {
        let bytes = pages.as_flattened();
        let mut copy = copying(address, bytes, write);
        // SAFETY: as in `copy`.
        let result = unsafe { ioctl(&self.0, Updater::<COPY, _>::new(&mut copy)) };
        match result {
            Ok(()) => pages.len(),
            // Either the number of bytes copied, or an error.
            Err(_) => {
                usize::try_from(copy.copy).unwrap_or(0).min(bytes.len()) / size_of::<PageBytes>()
            }
        }
    }

    /// Places a new writable page of zeros at `address`, and in the shared memory.
    pub fn zeropage(&self, address: u64, length: u64) -> Outcome {
        let mut zero = uffdio_zeropage {
            range: range(address, length),
            mode: 0,
            zeropage: 0,
        };
        // SAFETY: UFFDIO_ZEROPAGE reads and writes one uffdio_zeropage.
        outcome(unsafe { ioctl(&self.0, Updater::<ZEROPAGE, _>::new(&mut zero)) })
    }

    /// Maps the existing page of the shared memory at `address`.
    pub fn map(&self, address: u64, length: u64, write: bool) -> Outcome {
        let mut request = uffdio_continue {
            range: range(address, length),
            mode: if write { 0 } else { CONTINUE_MODE_WP },
            mapped: 0,
        };
        // SAFETY: UFFDIO_CONTINUE reads and writes one uffdio_continue.
        outcome(unsafe { ioctl(&self.0, Updater::<CONTINUE, _>::new(&mut request)) })
    }

    /// Protects the range from stores. Use it only for present pages: on absent pages it leaves
    /// marks that take memory.
    pub fn protect(&self, address: u64, length: u64) -> Outcome {
        self.write_protect(address, length, WRITEPROTECT_MODE_WP)
    }

    /// Removes the protection, drops marks, and wakes the threads waiting in the range.
    pub fn unprotect(&self, address: u64, length: u64) -> Outcome {
        self.write_protect(address, length, 0)
    }

    fn write_protect(&self, address: u64, length: u64, mode: u64) -> Outcome {
        let mut request = uffdio_writeprotect {
            range: range(address, length),
            mode,
        };
        // SAFETY: UFFDIO_WRITEPROTECT reads one uffdio_writeprotect.
        outcome(unsafe { ioctl(&self.0, Updater::<WRITEPROTECT, _>::new(&mut request)) })
    }

    /// The parts of a registered range that are registered still, as addresses and lengths: the
    /// process may have mapped something else over others. Protection is removed from them.
    #[must_use]
    pub fn parts(&self, address: u64, length: u64) -> Vec<(u64, u64)> {
        match self.unprotect(address, length) {
            Outcome::Done => vec![(address, length)],
            Outcome::Unregistered if length > PAGE => {
                let half = (length / PAGE / 2) * PAGE;
                let mut parts = self.parts(address, half);
                for (next, more) in self.parts(address + half, length - half) {
                    match parts.last_mut() {
                        Some((first, had)) if *first + *had == next => *had += more,
                        _ => parts.push((next, more)),
                    }
                }
                parts
            }
            _ => Vec::new(),
        }
    }

    /// Wakes the threads waiting in the range; they repeat their access.
    pub fn wake(&self, address: u64, length: u64) -> Outcome {
        let range = range(address, length);
        // SAFETY: UFFDIO_WAKE reads one uffdio_range.
        outcome(unsafe { ioctl(&self.0, Setter::<WAKE, _>::new(range)) })
    }

    /// True if the process whose memory this serves has exited. The call wakes an address where no
    /// memory is ever served: the kernel looks for the process first, so the result tells, and
    /// nothing changes. At an address that *was* served there may be other memory by now, which the
    /// kernel would take for ours.
    #[must_use]
    pub fn is_orphan(&self) -> bool {
        self.unprotect(LAST_PAGE, 4096) == Outcome::Gone
    }

    /// From now on an access to the page raises SIGBUS (or fails with `EFAULT` in the kernel),
    /// until a page is placed there again.
    pub fn poison(&self, address: u64, length: u64) -> Outcome {
        let mut request = uffdio_poison {
            range: range(address, length),
            mode: 0,
            updated: 0,
        };
        // SAFETY: UFFDIO_POISON reads and writes one uffdio_poison.
        outcome(unsafe { ioctl(&self.0, Updater::<POISON, _>::new(&mut request)) })
    }

    /// Reads faults without blocking. There may be none although the descriptor was ready, because
    /// a thread interrupted by a signal withdraws its fault.
    ///
    /// # Errors
    /// If the descriptor is broken.
    pub fn read(&self, buffer: &mut FaultBuffer) -> io::Result<()> {
        buffer.clear();
        match read_now(self.0.as_fd(), buffer.space()) {
            Ok(length) => {
                buffer.filled(length);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Reads with a no-wait flag: the process that made the descriptor shares its flags and could make
/// it blocking just before the call. Kernels before 6.10 do not support that; there only the
/// descriptor's flag protects.
fn read_now(fd: BorrowedFd<'_>, space: &mut [u8]) -> rustix::io::Result<usize> {
    let mut parts = [IoSliceMut::new(space)];
    match preadv2(fd, &mut parts, CURRENT, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP) => read(fd, space),
        done => done,
    }
}

/// The offset -1, for a descriptor without positions.
const CURRENT: u64 = u64::MAX;

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Uffd> for OwnedFd {
    fn from(uffd: Uffd) -> Self {
        uffd.0
    }
}

impl Features {
    /// All features that this kernel has, whether used here or not. The kernel is asked once.
    ///
    /// # Errors
    /// If this process cannot make a descriptor to ask with.
    pub fn offered() -> io::Result<Self> {
        static OFFERED: OnceLock<Features> = OnceLock::new();
        if let Some(offered) = OFFERED.get() {
            return Ok(*offered);
        }
        let offered = Uffd::create(None)?.0.api(0)?;
        Ok(*OFFERED.get_or_init(|| offered))
    }

    /// True if a lost page can raise SIGBUS.
    #[must_use]
    pub fn poison(self) -> bool {
        self.0 & u64::from(UFFD_FEATURE_POISON) != 0
    }

    /// True if all features that PageMesh requires are present.
    #[must_use]
    pub fn sufficient(self) -> bool {
        self.0 & REQUIRED == REQUIRED
    }
}

/// Opens `/dev/userfaultfd`, to use it or to lend it.
///
/// # Errors
/// If it is missing (before Linux 6.1) or not accessible to this user.
pub fn open_device() -> io::Result<OwnedFd> {
    Ok(open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

fn range(address: u64, length: u64) -> uffdio_range {
    uffdio_range {
        start: address,
        len: length,
    }
}

fn copying(address: u64, bytes: &[u8], write: bool) -> uffdio_copy {
    uffdio_copy {
        dst: address,
        src: bytes.as_ptr() as u64,
        len: bytes.len() as u64,
        mode: if write {
            0
        } else {
            u64::from(UFFDIO_COPY_MODE_WP)
        },
        copy: 0,
    }
}

fn outcome(result: rustix::io::Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(Errno::EXIST) => Outcome::AlreadyThere,
        Err(Errno::FAULT) => Outcome::NotThere,
        Err(Errno::NOENT | Errno::INVAL) => Outcome::Unregistered,
        Err(Errno::AGAIN) => Outcome::Retry,
        Err(Errno::SRCH) => Outcome::Gone,
        Err(Errno::NOMEM | Errno::NOSPC) => Outcome::NoMemory,
        Err(errno) => Outcome::Failed(errno),
    }
}

#[cfg(test)]
mod tests;
