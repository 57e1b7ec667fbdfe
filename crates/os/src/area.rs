//! The lock area of a segment, mapped: the lock words, which say where lock tokens are.
//!
//! [`pagemesh_wire::lockword`] explains the values of the words. The daemon makes the area and
//! lends its descriptor to each process that opens the segment. Processes can write any word at any
//! moment; therefore the daemon trusts a word only where a wrong value harms only users of the same
//! segment.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use pagemesh_wire::lockword::{LockWord, SLOT_LIMIT, SLOT_SIZE};
use rustix::fs::{
    MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of an area; it is sparse, so only touched slots take memory.
const AREA_SIZE: usize = SLOT_SIZE * SLOT_LIMIT as usize;

/// How many times an operation on a word is retried before the word counts as corrupt. A process
/// that takes and releases a lock changes the word, but an honest one not this often.
const PATIENCE: u32 = 1000;

/// A mapped lock area.
#[derive(Debug)]
pub struct LockArea {
    base: NonNull<u8>,
    fd: OwnedFd,
}

// SAFETY: the mapping lives as long as the value and is only reached through atomic words, from any
// thread.
unsafe impl Send for LockArea {}
// SAFETY: as above.
unsafe impl Sync for LockArea {}

impl LockArea {
    /// A new area, all words [`LockWord::Absent`], which no process can resize.
    ///
    /// # Errors
    /// As memfd_create(2), ftruncate(2) and mmap(2).
    pub fn create() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("pagemesh-locks", flags)?;
        // Otherwise any user could open it again through /proc.
        fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&fd, AREA_SIZE as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::map(fd)
    }

    /// Maps an area that the daemon lent.
    ///
    /// # Errors
    /// `InvalidData` if the descriptor is no lock area; else as mmap(2).
    pub fn map(fd: OwnedFd) -> io::Result<Self> {
        // An area that could shrink would end this process with SIGBUS.
        let whole = fstat(&fd)?.st_size == AREA_SIZE as i64;
        if !whole || !fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no lock area"));
        }
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses a free address, so no memory in use changes.
        let base = unsafe { mmap(null_mut(), AREA_SIZE, rights, flags, &fd, 0)? };
        let base = NonNull::new(base.cast()).expect("mmap never gives the null page");
        Ok(Self { base, fd })
    }

    /// The word of a slot; `None` beyond the area.
    #[must_use]
    #[inline]
    pub fn word(&self, slot: u32) -> Option<&Word> {
        if slot >= SLOT_LIMIT {
            return None;
        }
        // SAFETY: the slot lies in the mapping, which lives as long as `self`;
        // it is aligned to a cache line, and `Word` is a transparent `AtomicU32`.
        Some(unsafe {
            self.base
                .add(slot as usize * SLOT_SIZE)
                .cast::<Word>()
                .as_ref()
        })
    }
}

impl AsFd for LockArea {
    /// The descriptor that the daemon lends to the processes of its node.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for LockArea {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; words borrow from `self`.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), AREA_SIZE) };
        debug_assert!(unmapped.is_ok());
    }
}

/// One lock word, shared with other processes. All operations are sequentially consistent: the
/// process that takes a lock sees everything stored before its release.
#[derive(Debug)]
#[repr(transparent)]
pub struct Word(AtomicU32);

impl Word {
    /// A lock word of this process only, for tests.
    #[must_use]
    pub fn new(value: LockWord) -> Self {
        Self(AtomicU32::new(value.encode()))
    }

    /// The current value.
    #[must_use]
    #[inline]
    pub fn load(&self) -> LockWord {
        LockWord::decode(self.0.load(Ordering::SeqCst))
    }

    /// Replaces `current` by `new` and returns the previous value.
    ///
    /// # Errors
    /// The value found instead of `current`; the word is unchanged. A word with garbage bits may
    /// decode like `current` and yet fail.
    #[inline]
    pub fn compare_exchange(&self, current: LockWord, new: LockWord) -> Result<LockWord, LockWord> {
        self.0
            .compare_exchange(
                current.encode(),
                new.encode(),
                Ordering::SeqCst,
                Ordering::SeqCst,
            )
            .map(LockWord::decode)
            .map_err(LockWord::decode)
    }

    /// Stores `new` and returns the previous value.
    #[inline]
    pub fn swap(&self, new: LockWord) -> LockWord {
        LockWord::decode(self.0.swap(new.encode(), Ordering::SeqCst))
    }

    /// Sets bits and returns the previous value. For the daemon's mark on a word that it knows to
    /// be held; use [`Word::reclaim`] when it does not know.
    pub fn fetch_or(&self, bits: u32) -> LockWord {
        LockWord::decode(self.0.fetch_or(bits, Ordering::SeqCst))
    }

    /// Recalls the token and returns the previous value: a free word becomes absent (the token is
    /// back), a held one is marked as wanted (its holder will tell the daemon), an absent one stays
    /// absent.
    pub fn reclaim(&self) -> LockWord {
        for _ in 0..PATIENCE {
            let was = self.load();
            let new = match was {
                LockWord::Absent | LockWord::Held { wanted: true, .. } => return was,
                LockWord::Free => LockWord::Absent,
                LockWord::Held { by, .. } => LockWord::Held { by, wanted: true },
            };
            if self.compare_exchange(was, new).is_ok() {
                return was;
            }
        }
        // Only a word with garbage fails this often; the process that wrote it forfeits the token.
        self.swap(LockWord::Absent);
        LockWord::Free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::ClientId;

    const HELD: LockWord = LockWord::Held {
        by: ClientId(7),
        wanted: false,
    };

    #[test]
    fn two_mappings_of_one_area_share_words() {
        let daemon = LockArea::create().unwrap();
        let client = LockArea::map(daemon.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let last = SLOT_LIMIT - 1;
        assert_eq!(client.word(last).unwrap().load(), LockWord::Absent);
        daemon.word(last).unwrap().swap(LockWord::Free);
        let word = client.word(last).unwrap();
        assert_eq!(
            word.compare_exchange(LockWord::Free, HELD),
            Ok(LockWord::Free)
        );
        assert_eq!(daemon.word(last).unwrap().load(), HELD);
        assert!(client.word(SLOT_LIMIT).is_none());
    }

    #[test]
    fn an_area_cannot_be_resized_or_faked() {
        let area = LockArea::create().unwrap();
        assert!(ftruncate(&area.fd, 0).is_err());
        let fake = memfd_create("fake", MemfdFlags::CLOEXEC).unwrap();
        assert!(LockArea::map(fake).is_err());
    }

    #[test]
    fn reclaiming_takes_the_free_and_marks_the_held() {
        let word = Word::new(LockWord::Free);
        assert_eq!(word.reclaim(), LockWord::Free);
        assert_eq!(word.load(), LockWord::Absent);
        assert_eq!(word.reclaim(), LockWord::Absent);
        word.swap(HELD);
        assert_eq!(word.reclaim(), HELD);
        let wanted = LockWord::Held {
            by: ClientId(7),
            wanted: true,
        };
        assert_eq!(word.load(), wanted);
        assert_eq!(word.reclaim(), wanted);
    }

    #[test]
    fn nonsense_in_a_word_is_no_obstacle() {
        let word = Word(AtomicU32::new(1 | LockWord::WANTED_BIT));
        assert_eq!(word.reclaim(), LockWord::Free);
        assert_eq!(word.load(), LockWord::Absent);
    }
}
