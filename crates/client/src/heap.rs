//! A heap that all processes of a job share, at the same address in each.

mod error;
mod tree;

pub use error::HeapError;

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use pagemesh_wire::PAGE_SIZE;
use pagemesh_wire::peer::Policy;

use crate::{
    Access, Error, Job, Lock, LockGuard, Mapping, Mesh, Options, Result, Segment, undisturbed,
};
use tree::{Bytes, Place, Tree};

/// Candidate addresses of heaps: the first one that is free in all processes is used. They are away
/// from where Linux puts programs, libraries and stacks, and from the ranges that sanitizers
/// reserve.
const ADDRESSES: [u64; 4] = [
    0x2000_0000_0000,
    0x2800_0000_0000,
    0x3000_0000_0000,
    0x1800_0000_0000,
];

/// The largest and smallest heaps, in bytes.
const LARGEST: u64 = 1 << 42;
const SMALLEST: u64 = 1 << 16;

const PAGE: u64 = PAGE_SIZE as u64;

/// First number of the heap's own locks and barriers, beyond those of programs.
const OWN: u64 = 1 << 63;
/// Numbers of the heap's own barrier, and of its own lock.
const MEETING: u64 = OWN;
const BOOKS: u64 = OWN + 1;

/// Byte offsets in the heap's administration pages: the number of processes without room at each
/// address, and the part of the tree that is being changed.
const REFUSALS: usize = 0;
const CHANGING: usize = 64;
/// Offset of the roots: a page of their own, because they are read far more often than blocks are
/// allocated.
const ROOTS: usize = PAGE_SIZE;
const TREE: u64 = 2 * PAGE;

/// Options of a heap. All processes of the job must pass the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeapOptions {
    /// Bytes of address space, rounded up to a power of two; 64 KiB to 4 TiB. Memory that no
    /// process touches costs nothing.
    pub reserve: u64,
    /// The consistency policy of its memory.
    pub policy: Policy,
    /// Other nodes that keep what a node stored before another could see it: 0 or 1.
    pub replicas: u8,
}

impl Default for HeapOptions {
    /// 256 GiB, policy `sequential`, no replicas.
    fn default() -> Self {
        Self {
            reserve: 256 << 30,
            policy: Policy::default(),
            replicas: 0,
        }
    }
}

/// A heap that all processes of a [`Job`] share: memory has the same address in
/// all of them, so pointers into it may be stored in it. It ends with the last
/// process, or when all have dropped it.
///
/// Blocks have 16 bytes and more, in powers of two, and are aligned to their size. Fresh memory is
/// zero; a freed block that is allocated again is not. The same calls in the same order give the
/// same addresses in every run.
///
/// ```no_run
/// # fn main() -> pagemesh::Result<()> {
/// use pagemesh::{Heap, HeapOptions, Job, Mesh};
/// let mesh = Mesh::connect()?;
/// let job = Job::from_env(&mesh)?;
/// let heap = Heap::open(&mesh, &job, HeapOptions::default())?;
/// if job.rank() == 0 {
///     heap.set_root(0, heap.allocate(1 << 20)?.as_ptr() as u64)?;
/// }
/// heap.barrier(0).wait()?;
/// let grid = heap.root(0)? as *mut f64; // the same memory everywhere
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Heap(Arc<Inner>);

struct Inner {
    memory: Mapping,
    /// The administration pages; each process maps them at an address of its own.
    books: Mapping,
    lock: Lock,
    height: u32,
    parties: u32,
}

/// Number of roots: words that all processes of the job find without further agreement.
pub const ROOT_COUNT: usize = 64;

impl Heap {
    /// Creates the heap of a job together with all its other processes, and waits for them. A job
    /// has one heap at a time.
    ///
    /// # Errors
    /// [`Error::Heap`] if the processes disagree or have no common address; else
    /// as [`Mesh::create`], [`Segment::map_at`] and [`Barrier::wait`].
    ///
    /// [`Barrier::wait`]: crate::Barrier::wait
    pub fn open(mesh: &Mesh, job: &Job, options: HeapOptions) -> Result<Self> {
        let reserve = options.reserve.clamp(SMALLEST, LARGEST);
        if options.reserve > LARGEST {
            return Err(Error::Invalid("a shared heap has at most 4 TiB"));
        }
        let height = tree::order_of(reserve);
        let segment = create(mesh, job, height, options)?;
        let books_at = tree::GRAIN << height;
        let books = segment.map_at(None, books_at, segment.size() - books_at, true)?;
        let memory = place(&segment, &books, books_at, job.size())?;
        if job.rank() == 0 {
            // All processes have it open: from now on it ends with its users.
            mesh.remove(segment.name())?;
        }
        Ok(Self(Arc::new(Inner {
            lock: segment.lock(BOOKS),
            memory,
            books,
            height,
            parties: job.size(),
        })))
    }

    /// Allocates a block of at least `bytes` bytes, and at least one.
    ///
    /// # Errors
    /// [`HeapError::Full`], with everything as before; else as [`Lock::lock`].
    pub fn allocate(&self, bytes: u64) -> Result<NonNull<u8>> {
        let _guard = self.keep_books()?;
        let tree = self.tree();
        if bytes > tree::GRAIN << self.0.height {
            return Err(HeapError::Full(bytes).into());
        }
        let order = tree::order_of(bytes);
        let taken = tree.take(order, |place| self.note(place))?;
        self.done()?;
        let block = taken.ok_or(HeapError::Full(bytes))?;
        let address = self.address() + block.offset() as usize;
        Ok(NonNull::new(self.0.memory.as_ptr().with_addr(address)).expect("the heap is not at 0"))
    }

    /// Frees a block, whichever process allocated it.
    ///
    /// # Errors
    /// [`HeapError::NotTaken`] if the address is not that of an allocated block.
    pub fn free(&self, block: *const u8) -> Result<()> {
        let _guard = self.keep_books()?;
        let tree = self.tree();
        let place = tree.find(self.offset_of(block)?)?;
        self.note(place)?;
        tree.give_back(place)?;
        self.done()
    }

    /// The real size of a block in bytes.
    ///
    /// # Errors
    /// As [`Heap::free`].
    pub fn size_of(&self, block: *const u8) -> Result<u64> {
        let _guard = self.keep_books()?;
        Ok(self.tree().find(self.offset_of(block)?)?.length())
    }

    /// The start and size in bytes of the block that contains an address; `None` if that memory is
    /// not allocated.
    ///
    /// # Errors
    /// As [`Heap::free`], for an address outside of the heap.
    pub fn block_of(&self, address: *const u8) -> Result<Option<(NonNull<u8>, u64)>> {
        let _guard = self.keep_books()?;
        let Some(place) = self.tree().holding(self.offset_of(address)?)? else {
            return Ok(None);
        };
        let start = self.address() + place.offset() as usize;
        let start = NonNull::new(self.0.memory.as_ptr().with_addr(start));
        Ok(start.map(|start| (start, place.length())))
    }

    /// Root `slot` of the 64 words that all processes share, 0 at first; used to publish first
    /// addresses. The consistency rules of the shared memory apply.
    ///
    /// # Errors
    /// [`Error::Invalid`] beyond slot 63.
    pub fn root(&self, slot: usize) -> Result<u64> {
        self.0.books.load_u64(root_at(slot)?)
    }

    /// Sets a root.
    ///
    /// # Errors
    /// [`Error::Invalid`] beyond slot 63.
    pub fn set_root(&self, slot: usize, value: u64) -> Result<()> {
        let word = self.0.books.atomic_u64(root_at(slot)?)?;
        word.store(value, Ordering::Release);
        Ok(())
    }

    /// The heap's lock with this number, below 2^63.
    #[must_use]
    pub fn lock(&self, number: u64) -> Lock {
        self.segment().lock(number & !OWN)
    }

    /// The heap's condition variable with this number.
    #[must_use]
    pub fn condition(&self, number: u64) -> crate::Condition {
        self.segment().condition(number)
    }

    /// The heap's barrier with this number, for all processes of the job.
    #[must_use]
    pub fn barrier(&self, number: u64) -> crate::Barrier {
        self.segment().barrier(number & !OWN, self.0.parties)
    }

    /// The heap's barrier with this number, for so many processes of the job: a subset, which uses
    /// a number of its own.
    #[must_use]
    pub fn barrier_of(&self, number: u64, parties: u32) -> crate::Barrier {
        self.segment().barrier(number & !OWN, parties)
    }

    /// The heap's memory.
    #[must_use]
    pub fn memory(&self) -> &Mapping {
        &self.0.memory
    }

    /// The segment of the heap, which no longer has a name.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        self.0.memory.segment()
    }

    fn address(&self) -> usize {
        self.0.memory.as_ptr() as usize
    }

    fn offset_of(&self, block: *const u8) -> Result<u64> {
        let offset = (block as usize).checked_sub(self.address());
        Ok(offset.ok_or(HeapError::NotTaken)? as u64)
    }

    /// Locks the administration pages, and repairs them if the last holder of the lock died.
    fn keep_books(&self) -> Result<LockGuard> {
        let guard = self.0.lock.lock_surely(None)?;
        if guard.recovered() {
            let noted = self.0.books.load_u64(CHANGING)?;
            if let Some(place) = Place::from_word(noted) {
                self.tree().mend(place)?;
                self.done()?;
            }
        }
        Ok(guard)
    }

    /// Notes which part is about to be changed, for the process that finds this one dead.
    fn note(&self, place: Place) -> std::result::Result<(), HeapError> {
        let word = self.0.books.atomic_u64(CHANGING);
        let word = word.map_err(|_| HeapError::Damaged)?;
        word.store(place.to_word(), Ordering::Release);
        Ok(())
    }

    fn done(&self) -> Result<()> {
        let word = self.0.books.atomic_u64(CHANGING)?;
        word.store(0, Ordering::Release);
        Ok(())
    }

    fn tree(&self) -> Tree<&Mapping> {
        Tree::new(&self.0.books, self.0.height)
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap")
            .field("memory", &self.0.memory)
            .finish_non_exhaustive()
    }
}

impl Place {
    /// Encodes the place as one number, which is not 0.
    fn to_word(self) -> u64 {
        self.index << 8 | u64::from(self.order + 1)
    }

    fn from_word(word: u64) -> Option<Self> {
        let order = (word as u8).checked_sub(1)?;
        Some(Self {
            order: order.into(),
            index: word >> 8,
        })
    }
}

/// The buddy tree in the heap's administration pages.
impl Bytes for &Mapping {
    fn load(&self, at: u64) -> std::result::Result<u8, HeapError> {
        Ok(tree_byte(self, at)?.load(Ordering::Relaxed))
    }

    fn store(&self, at: u64, byte: u8) -> std::result::Result<(), HeapError> {
        let place = tree_byte(self, at)?;
        // Skip the store if the value is the same: the page need not be fetched for writing.
        if place.load(Ordering::Relaxed) != byte {
            place.store(byte, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn tree_byte(books: &Mapping, at: u64) -> std::result::Result<&AtomicU8, HeapError> {
    let at = usize::try_from(TREE + at).map_err(|_| HeapError::Damaged)?;
    books.atomic_u8(at).map_err(|_| HeapError::Damaged)
}

fn root_at(slot: usize) -> Result<usize> {
    if slot < ROOT_COUNT {
        Ok(ROOTS + slot * size_of::<u64>())
    } else {
        Err(Error::Invalid("a heap has 64 roots"))
    }
}

/// Opens the segment of the heap; rank 0 creates it, and its node is the home.
fn create(mesh: &Mesh, job: &Job, height: u32, heap: HeapOptions) -> Result<Segment> {
    let job_name = job.segment().name();
    let name = format!("heap.{}", job_name.strip_prefix("job.").unwrap_or(job_name));
    let size = (tree::GRAIN << height) + TREE + tree::size(height);
    let meeting = job.barrier(MEETING);
    if job.rank() == 0 {
        let options = Options {
            policy: heap.policy,
            replicas: heap.replicas,
            exclusive: true,
            ..Options::default()
        };
        let segment = mesh.create(&name, size, options)?;
        undisturbed(|| meeting.wait())?;
        return Ok(segment);
    }
    undisturbed(|| meeting.wait())?;
    let segment = mesh.open(&name, Access::Writable)?;
    let spec = &segment.info().spec;
    if segment.size() != size || (spec.policy, spec.replicas) != (heap.policy, heap.replicas) {
        return Err(HeapError::Disagree.into());
    }
    Ok(segment)
}

/// Maps the memory at an address that is free in all processes. They try the same addresses in
/// turn, and count the processes without room.
fn place(segment: &Segment, books: &Mapping, length: u64, parties: u32) -> Result<Mapping> {
    let lock = segment.lock(BOOKS);
    let meeting = segment.barrier(MEETING, parties);
    for (which, address) in ADDRESSES.into_iter().enumerate() {
        let at = REFUSALS + which * size_of::<u64>();
        let mapped = match usize::try_from(address) {
            Ok(address) => segment.map_at(Some(address), 0, length, true),
            Err(_) => return Err(HeapError::NoAddress.into()),
        };
        let refused = match &mapped {
            Err(Error::AddressTaken(_)) => true,
            Err(_) => return mapped,
            Ok(_) => false,
        };
        if refused {
            let guard = lock.lock_surely(None)?;
            let refusals = books.atomic_u64(at)?;
            refusals.store(refusals.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            guard.unlock();
        }
        undisturbed(|| meeting.wait())?;
        if books.load_u64(at)? == 0 {
            return mapped;
        }
    }
    Err(HeapError::NoAddress.into())
}
