//! A request slot between a process and its daemon: one short request at a time, and its answer, go
//! through memory that both have mapped.
//!
//! On a socket each side and the kernel handle every packet twice. Here the process stores its
//! request and sleeps, and a daemon that is awake finds it there, stores the answer and wakes the
//! process. A daemon polls the slot only while it says so ([`RequestSlot::looks`]).
//!
//! Threads of the process also sleep here until states change that other nodes publish
//! ([`RequestSlot::watch`]): a watch by a request would wake the daemon once for each state.
//!
//! The process can store anything at any moment: the daemon copies a request before it decodes it,
//! and a process that stores garbage harms only itself.

use crate::region::{Region, Shape};
use rustix::io::Errno;
use rustix::thread::ClockId;
use rustix::thread::futex::{self, Flags, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Maximum length of a request or an answer, in bytes.
pub const ROOM: usize = ROOM_WORDS * WORD;

const WORD: usize = size_of::<u64>();
const ROOM_WORDS: usize = 24;

/// One page of the host; words that different sides store lie on separate cache lines.
const SHAPE: Shape = Shape {
    words: 512,
    bytes: 0,
};

/// Nonzero while the daemon polls the slot.
const LOOKS: usize = 0;
/// Nonzero while the daemon counts changes of states.
const TELLS: usize = 1;
/// The number of the request in the slot; zero for none.
const POSTED: usize = 8;
const REQUEST_LENGTH: usize = 9;
const REQUEST: usize = 16;
/// The number of the request whose answer is to come here, and the state of that answer.
const AWAITED: usize = 64;
const ANSWER_LENGTH: usize = 65;
/// How often the process was woken.
const BELL: usize = 66;
/// Nonzero while the process sleeps, or is about to.
const SLEEPS: usize = 67;
const ANSWER: usize = 72;
/// How many changes of states there were.
const CHANGES: usize = 104;
/// How many threads of the process sleep until the next one, or are about to.
const WATCHERS: usize = 112;

/// Width of the answer's state, which is in the low bits of its word, below the number.
const BITS: u32 = 2;
const WAITED_FOR: u64 = 1;
const BEING_WRITTEN: u64 = 2;
const WRITTEN: u64 = 3;

/// No answer is to come here.
const IDLE: u64 = 0;

/// A request slot; see the module.
#[derive(Debug)]
pub struct RequestSlot(Region);

/// Where an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The answer is here.
    Here(Vec<u8>),
    /// The answer is to come here.
    ToCome,
    /// The answer comes through the socket.
    Elsewhere,
}

impl RequestSlot {
    /// A new slot, which no process can resize.
    ///
    /// # Errors
    /// As memfd_create(2), ftruncate(2) and mmap(2).
    pub fn create() -> io::Result<Self> {
        Region::create("pagemesh-request slot", SHAPE).map(Self)
    }

    /// Maps a slot that the other side, or the previous daemon, has made.
    ///
    /// # Errors
    /// `InvalidData` if it is not a request slot; else as mmap(2).
    pub fn map(fd: OwnedFd) -> io::Result<Self> {
        Region::map(fd, SHAPE).map(Self)
    }

    /// Excludes the slot from children forked from now on, because its requests are made in the
    /// name of one process.
    ///
    /// # Errors
    /// As madvise(2).
    pub fn hide_from_children(&self) -> io::Result<()> {
        self.0.hide_from_children()
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        self.0.word(index)
    }

    fn store_bytes(&self, at: usize, bytes: &[u8]) {
        for (index, chunk) in bytes.chunks(WORD).enumerate() {
            let mut word = [0; WORD];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(at + index)
                .store(u64::from_ne_bytes(word), Relaxed);
        }
    }

    fn load_bytes(&self, at: usize, bytes: &mut [u8]) {
        for (index, chunk) in bytes.chunks_mut(WORD).enumerate() {
            let word = self.word(at + index).load(Relaxed).to_ne_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// The process's side.
impl RequestSlot {
    /// True if the daemon polls the slot; otherwise it has to be told through the socket. If this
    /// is true after [`RequestSlot::post`], the request will be found: a daemon that stops polling checks
    /// once more.
    #[must_use]
    pub fn looks(&self) -> bool {
        self.word(LOOKS).load(SeqCst) != 0
    }

    /// True if the last request and its answer have been taken out.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.word(POSTED).load(Acquire) == 0 && self.word(AWAITED).load(Acquire) == IDLE
    }

    /// Announces that the answer to this request is to come here. Only while the slot is free.
    pub fn expect(&self, number: u64) {
        self.word(AWAITED)
            .store(number << BITS | WAITED_FOR, SeqCst);
    }

    /// Stores a request in the slot; false if it is too long.
    #[must_use]
    pub fn post(&self, number: u64, request: &[u8]) -> bool {
        if request.len() > ROOM {
            return false;
        }
        self.store_bytes(REQUEST, request);
        self.word(REQUEST_LENGTH)
            .store(request.len() as u64, Relaxed);
        self.word(POSTED).store(number, SeqCst);
        true
    }

    /// True if the daemon has not answered this request yet, and may still answer it here.
    #[must_use]
    #[inline]
    pub fn is_to_come(&self, number: u64) -> bool {
        let seen = self.word(AWAITED).load(Acquire);
        seen >> BITS == number && seen != number << BITS | WRITTEN
    }

    /// Takes out the answer to this request, if it is here.
    #[must_use]
    pub fn take(&self, number: u64) -> Answer {
        let seen = self.word(AWAITED).load(Acquire);
        if seen >> BITS != number || seen == IDLE {
            return Answer::Elsewhere;
        }
        if seen != number << BITS | WRITTEN {
            return Answer::ToCome;
        }
        let length = self.word(ANSWER_LENGTH).load(Relaxed);
        let mut bytes = vec![0; usize::try_from(length).map_or(ROOM, |length| length.min(ROOM))];
        self.load_bytes(ANSWER, &mut bytes);
        self.word(AWAITED).store(IDLE, SeqCst);
        Answer::Here(bytes)
    }

    /// Cancels the answer to this request in the slot; false if it is here already.
    #[must_use]
    pub fn give_up(&self, number: u64) -> bool {
        let word = self.word(AWAITED);
        let given_up = word.fetch_update(SeqCst, SeqCst, |seen| {
            let ours = seen >> BITS == number && seen != number << BITS | WRITTEN;
            ours.then_some(IDLE)
        });
        given_up.is_ok() || word.load(Acquire) >> BITS != number
    }

    /// Announces that this side is about to sleep, and returns how often it was woken so far. To be
    /// called before checking for an answer: an answer that comes later wakes.
    #[must_use]
    pub fn rings(&self) -> u32 {
        self.word(SLEEPS).store(1, SeqCst);
        self.bell().load(SeqCst)
    }

    /// This side is awake again, and need not be woken.
    pub fn is_awake(&self) {
        self.word(SLEEPS).store(0, Relaxed);
    }

    /// Sleeps until woken more than `rings` times, at most until `until` (on the monotonic clock);
    /// may wake spuriously. With `goes_on`, signal handlers with `SA_RESTART` do not end the sleep.
    ///
    /// # Errors
    /// `TIMEDOUT`; `INTR` after a signal's handler; `NOSYS` before Linux 5.16.
    pub fn sleep(&self, rings: u32, until: Timespec, goes_on: bool) -> Result<(), Errno> {
        sleep(self.bell(), rings, until, goes_on)
    }

    /// Announces that a thread is about to sleep until states change, and returns how many changes
    /// there were so far: those that come later wake it. To be called before looking for a change,
    /// and followed by [`RequestSlot::end_watch`]. `None` if the daemon does not count changes.
    #[must_use]
    pub fn watch(&self) -> Option<u32> {
        if self.word(TELLS).load(Acquire) == 0 {
            return None;
        }
        self.word(WATCHERS).fetch_add(1, SeqCst);
        Some(self.changes().load(SeqCst))
    }

    /// As [`RequestSlot::sleep`], until there are more than `seen` changes.
    ///
    /// # Errors
    /// As there.
    pub fn sleep_until_changed(
        &self,
        seen: u32,
        until: Timespec,
        goes_on: bool,
    ) -> Result<(), Errno> {
        sleep(self.changes(), seen, until, goes_on)
    }

    /// The thread is awake again.
    pub fn end_watch(&self) {
        self.word(WATCHERS).fetch_sub(1, SeqCst);
    }

    fn bell(&self) -> &AtomicU32 {
        self.half(BELL)
    }

    fn changes(&self) -> &AtomicU32 {
        self.half(CHANGES)
    }

    /// The low half of a word that threads sleep on.
    fn half(&self, index: usize) -> &AtomicU32 {
        let low = usize::from(cfg!(target_endian = "big"));
        // SAFETY: half of an atomic word, which is not reached in any other way; it lives as long
        // as `self`, and is aligned as its half needs.
        unsafe {
            let word = std::ptr::from_ref(self.word(index)).cast::<AtomicU32>();
            &*word.add(low)
        }
    }
}

/// Sleeps while the word is `seen`; see [`RequestSlot::sleep`].
fn sleep(word: &AtomicU32, seen: u32, until: Timespec, goes_on: bool) -> Result<(), Errno> {
    let slept = if goes_on {
        let mut wait = Wait::new();
        wait.val = seen.into();
        wait.uaddr = WaitPtr::new(std::ptr::from_ref(word).cast_mut().cast());
        wait.flags = WaitFlags::SIZE_U32;
        let clock = ClockId::Monotonic;
        futex::waitv(&[wait], WaitvFlags::empty(), Some(&until), clock).map(drop)
    } else {
        let all = std::num::NonZeroU32::MAX;
        futex::wait_bitset(word, Flags::empty(), seen, Some(&until), all)
    };
    match slept {
        Err(Errno::AGAIN) => Ok(()),
        other => other,
    }
}

/// The daemon's side.
impl RequestSlot {
    /// Notes whether the daemon polls the slot. When it stops polling, it has to check once more.
    pub fn look(&self, looks: bool) {
        self.word(LOOKS).store(looks.into(), SeqCst);
    }

    /// True if there is a request.
    #[must_use]
    #[inline]
    pub fn has_post(&self) -> bool {
        self.word(POSTED).load(SeqCst) != 0
    }

    /// Copies the request in the slot and returns its length. It stays until [`RequestSlot::clear`], so
    /// that it is not lost if the daemon ends before it has handled it.
    ///
    /// # Panics
    /// If `into` is shorter than [`ROOM`].
    #[must_use]
    pub fn posted(&self, into: &mut [u8]) -> Option<usize> {
        if self.word(POSTED).load(Acquire) == 0 {
            return None;
        }
        let length = self.word(REQUEST_LENGTH).load(Relaxed);
        let length = usize::try_from(length).map_or(ROOM, |length| length.min(ROOM));
        self.load_bytes(REQUEST, &mut into[..length]);
        Some(length)
    }

    /// Removes the request, which was handled.
    pub fn clear(&self) {
        self.word(POSTED).store(0, SeqCst);
    }

    /// True if this answer is to come here.
    #[must_use]
    pub fn is_awaited(&self, number: u64) -> bool {
        self.word(AWAITED).load(Acquire) == number << BITS | WAITED_FOR
    }

    /// Stores the answer and wakes the process; false if it has to go through the socket, where the
    /// process then waits for it.
    #[must_use]
    pub fn answer(&self, number: u64, answer: &[u8]) -> bool {
        let [waited_for, being_written, written] =
            [WAITED_FOR, BEING_WRITTEN, WRITTEN].map(|state| number << BITS | state);
        let fits = answer.len() <= ROOM;
        let next = if fits { being_written } else { IDLE };
        let word = self.word(AWAITED);
        if word
            .compare_exchange(waited_for, next, SeqCst, SeqCst)
            .is_err()
        {
            return false;
        }
        let mut given = fits;
        if fits {
            self.store_bytes(ANSWER, answer);
            self.word(ANSWER_LENGTH).store(answer.len() as u64, Relaxed);
            // The waiting process may have given up meanwhile.
            let last = word.compare_exchange(being_written, written, SeqCst, SeqCst);
            given = last.is_ok();
        }
        if self.word(SLEEPS).load(SeqCst) != 0 {
            self.wake();
        }
        given
    }

    /// Resets an answer that the previous daemon may have been writing when it ended: this one
    /// writes it again.
    pub fn restore(&self) {
        let word = self.word(AWAITED);
        let seen = word.load(Acquire);
        if seen & ((1 << BITS) - 1) == BEING_WRITTEN {
            let waited_for = seen >> BITS << BITS | WAITED_FOR;
            let _ = word.compare_exchange(seen, waited_for, SeqCst, SeqCst);
        }
    }

    /// From now on counts changes, or does so no more; threads that sleep until one comes look
    /// again.
    pub fn tell_changes(&self, tells: bool) {
        self.word(TELLS).store(tells.into(), SeqCst);
        self.changed();
    }

    /// True if a thread sleeps until states change.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.word(WATCHERS).load(SeqCst) != 0
    }

    /// Counts a change of states, whose contents are in place, and wakes the threads that sleep
    /// until there is one.
    pub fn changed(&self) {
        self.changes().fetch_add(1, SeqCst);
        if self.is_watched() {
            // As in `wake`.
            let _ = futex::wake(self.changes(), Flags::empty(), i32::MAX as u32);
        }
    }

    /// Ends the use of the slot: no more answers come here, and the process waits on its socket.
    pub fn close(&self) {
        self.look(false);
        self.tell_changes(false);
        self.word(AWAITED).store(IDLE, SeqCst);
        self.wake();
    }

    fn wake(&self) {
        self.bell().fetch_add(1, SeqCst);
        // `FUTEX_WAKE` fails only for an unmapped word; a reference is mapped.
        let _ = futex::wake(self.bell(), Flags::empty(), 1);
    }
}

impl AsFd for RequestSlot {
    /// The descriptor that the daemon lends, and keeps for its successor.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use std::time::Duration;

    fn both() -> (RequestSlot, RequestSlot) {
        let daemon = RequestSlot::create().unwrap();
        let process = RequestSlot::map(daemon.as_fd().try_clone_to_owned().unwrap()).unwrap();
        (daemon, process)
    }

    fn soon(millis: u64) -> Timespec {
        Duration::from_nanos(clock::monotonic() + millis * 1_000_000)
            .try_into()
            .unwrap()
    }

    fn posted(daemon: &RequestSlot) -> Option<Vec<u8>> {
        let mut bytes = [0; ROOM];
        daemon
            .posted(&mut bytes)
            .map(|length| bytes[..length].to_vec())
    }

    #[test]
    fn a_request_goes_through_and_its_answer_comes_back() {
        let (daemon, process) = both();
        assert!(!process.looks() && process.is_free() && posted(&daemon).is_none());
        daemon.look(true);
        assert!(process.looks());
        for number in 1..5 {
            let request = vec![number as u8; 7 * number as usize];
            process.expect(number);
            assert!(process.post(number, &request));
            assert!(!process.is_free() && daemon.has_post());
            assert_eq!(posted(&daemon), Some(request.clone()));
            assert_eq!(posted(&daemon), Some(request), "until it is handled");
            assert_eq!(process.take(number), Answer::ToCome);
            assert!(daemon.is_awaited(number) && daemon.answer(number, &[9; 13]));
            assert!(!daemon.answer(number, &[9; 13]), "once");
            daemon.clear();
            assert_eq!(process.take(number), Answer::Here(vec![9; 13]));
            assert!(process.is_free());
        }
    }

    #[test]
    fn what_is_given_up_comes_through_the_socket() {
        let (daemon, process) = both();
        process.expect(5);
        assert!(process.give_up(5));
        assert!(!daemon.is_awaited(5) && !daemon.answer(5, &[1]));
        assert_eq!(process.take(5), Answer::Elsewhere);
        process.expect(6);
        assert!(daemon.answer(6, &[1]));
        assert!(!process.give_up(6), "it is here");
        assert_eq!(process.take(6), Answer::Here(vec![1]));
        process.expect(7);
        assert!(!daemon.answer(7, &[1; ROOM + 1]), "too long");
        assert_eq!(process.take(7), Answer::Elsewhere);
        process.expect(8);
        daemon.close();
        assert_eq!(process.take(8), Answer::Elsewhere);
        assert!(process.give_up(8) && process.is_free());
        assert!(!process.post(9, &[0; ROOM + 1]) && process.is_free());
    }

    #[test]
    fn a_change_wakes_all_that_announced_themselves_before_it() {
        let (daemon, process) = both();
        assert_eq!(process.watch(), None, "the daemon does not say when");
        daemon.tell_changes(true);
        let seen = process.watch().unwrap();
        assert!(daemon.is_watched());
        daemon.changed();
        process
            .sleep_until_changed(seen, soon(10_000), true)
            .unwrap();
        let seen = process.watch().unwrap();
        let slept = process.sleep_until_changed(seen, soon(20), false);
        assert_eq!(slept, Err(Errno::TIMEDOUT));
        std::thread::scope(|scope| {
            let sleeper = || process.sleep_until_changed(seen, soon(10_000), false);
            let sleepers = [scope.spawn(sleeper), scope.spawn(sleeper)];
            daemon.changed();
            for sleeper in sleepers {
                sleeper.join().unwrap().unwrap();
            }
        });
        process.end_watch();
        process.end_watch();
        assert!(!daemon.is_watched());
        let seen = process.watch().unwrap();
        daemon.close();
        process
            .sleep_until_changed(seen, soon(10_000), true)
            .unwrap();
        assert_eq!(process.watch(), None, "and it wakes who slept");
    }

    #[test]
    fn an_answer_written_by_half_is_written_again() {
        let (daemon, process) = both();
        process.expect(3);
        daemon
            .word(AWAITED)
            .store(3 << BITS | BEING_WRITTEN, SeqCst);
        assert_eq!(process.take(3), Answer::ToCome);
        daemon.restore();
        assert!(daemon.answer(3, &[4]));
        daemon.restore();
        assert_eq!(process.take(3), Answer::Here(vec![4]));
        process.expect(4);
        daemon
            .word(AWAITED)
            .store(4 << BITS | BEING_WRITTEN, SeqCst);
        assert!(process.give_up(4), "whoever writes it sees that at the end");
        assert_eq!(process.take(4), Answer::Elsewhere);
    }

    #[test]
    fn nonsense_is_cut_to_what_there_is_room_for() {
        let (daemon, process) = both();
        process.word(POSTED).store(u64::MAX, SeqCst);
        process.word(REQUEST_LENGTH).store(u64::MAX, SeqCst);
        assert_eq!(posted(&daemon).map(|bytes| bytes.len()), Some(ROOM));
        daemon.word(ANSWER_LENGTH).store(1 << 40, SeqCst);
        daemon.word(AWAITED).store(1 << BITS | WRITTEN, SeqCst);
        assert_eq!(process.take(1), Answer::Here(vec![0; ROOM]));
    }

    #[test]
    fn who_sleeps_is_woken_or_has_slept_enough() {
        let (daemon, process) = both();
        for goes_on in [false, true] {
            process.expect(2);
            let rings = process.rings();
            assert_eq!(process.sleep(rings, soon(5), goes_on), Err(Errno::TIMEDOUT));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(5));
                    assert!(daemon.answer(2, &[1]));
                });
                loop {
                    let rings = process.rings();
                    if process.take(2) != Answer::ToCome {
                        break;
                    }
                    process.sleep(rings, soon(10_000), goes_on).unwrap();
                }
            });
            assert_eq!(
                process.sleep(rings, soon(10_000), goes_on),
                Ok(()),
                "rung before"
            );
        }
    }

    #[test]
    fn only_who_sleeps_is_woken() {
        let (daemon, process) = both();
        for (number, asleep) in [(1, false), (2, true), (3, false)] {
            process.expect(number);
            let rings = process.rings();
            if !asleep {
                process.is_awake();
            }
            assert!(daemon.answer(number, &[1]));
            assert_eq!(process.rings() != rings, asleep);
            assert_eq!(process.take(number), Answer::Here(vec![1]));
        }
    }

    #[test]
    fn signals_end_a_sleep_or_not_as_their_handlers_say() {
        extern "C" fn nothing(_: libc::c_int) {}
        let (_daemon, process) = both();
        let handle = |flags| {
            // SAFETY: a handler that does nothing, for a signal that no other test uses.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
                action.sa_flags = flags;
                assert_eq!(
                    libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()),
                    0
                );
            }
        };
        let slept = |goes_on| {
            std::thread::scope(|scope| {
                // SAFETY: names this thread, which outlives the scope.
                let sleeper = unsafe { libc::pthread_self() };
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(20));
                    // SAFETY: that thread sleeps below.
                    unsafe { libc::pthread_kill(sleeper, libc::SIGUSR2) };
                });
                process.sleep(process.rings(), soon(100), goes_on)
            })
        };
        handle(libc::SA_RESTART);
        assert_eq!(slept(true), Err(Errno::TIMEDOUT), "goes on");
        assert_eq!(slept(false), Err(Errno::INTR));
        handle(0);
        assert_eq!(slept(true), Err(Errno::INTR));
        assert_eq!(slept(false), Err(Errno::INTR));
    }
}
