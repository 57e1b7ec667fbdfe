//! Tests against the real kernel.

use super::*;
use crate::memfd::{Memfd, PAGE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LEN: u64 = PAGE as u64;

/// A memfd, mapped shared, whose faults a descriptor serves.
struct Bench {
    memory: Memfd,
    uffd: Uffd,
    base: *mut std::ffi::c_void,
    pages: usize,
}

// SAFETY: the mapping is shared memory, accessed only through atomics.
unsafe impl Send for Bench {}
// SAFETY: as above.
unsafe impl Sync for Bench {}

impl Drop for Bench {
    fn drop(&mut self) {
        // SAFETY: mapped in `bench`, and every thread using it was joined.
        let _ = unsafe { munmap(self.base, self.pages * PAGE) };
    }
}

fn bench(pages: usize) -> Option<Bench> {
    bench_registered(pages, Uffd::register)
}

fn bench_registered(
    pages: usize,
    register: fn(&Uffd, u64, u64) -> io::Result<()>,
) -> Option<Bench> {
    let Ok((uffd, kind)) = Uffd::create(None) else {
        eprintln!("skipped: userfaultfd is not permitted here (run as root)");
        return None;
    };
    if kind == Kind::UserModeOnly {
        eprintln!("note: unprivileged, faults in the kernel are not served");
    }
    let memory = Memfd::create("bench", (pages * PAGE) as u64).unwrap();
    let fd = memory.writable().unwrap();
    // SAFETY: a new mapping at a place the kernel chooses.
    let base = unsafe {
        mmap(
            std::ptr::null_mut(),
            pages * PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &fd,
            0,
        )
    }
    .unwrap();
    uffd.handshake().unwrap();
    register(&uffd, base as u64, (pages * PAGE) as u64).unwrap();
    Some(Bench {
        memory,
        uffd,
        base,
        pages,
    })
}

impl Bench {
    fn address(&self, page: usize) -> u64 {
        self.base as u64 + (page * PAGE) as u64
    }

    fn word(&self, page: usize, word: usize) -> &AtomicU64 {
        assert!(page < self.pages && word < PAGE / 8);
        // SAFETY: inside the mapping, aligned, and only ever used atomically.
        unsafe { AtomicU64::from_ptr((self.address(page) as *mut u64).add(word)) }
    }

    fn fault(&self) -> Fault {
        let mut buffer = FaultBuffer::default();
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            self.wait();
            self.uffd.read(&mut buffer).unwrap();
            if let Some(fault) = buffer.get(0) {
                assert_eq!(buffer.len(), 1);
                return fault;
            }
        }
        panic!("no fault came");
    }

    fn wait(&self) {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: 2_000_000,
        };
        let mut fds = [PollFd::new(&self.uffd, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&timeout));
    }
}

#[test]
fn a_page_is_placed_upgraded_revoked_and_poisoned() {
    let Some(bench) = bench(2) else { return };
    let bench = Arc::new(bench);
    thread::scope(|scope| {
        let access = scope.spawn(|| {
            let before = bench.word(1, 0).load(Ordering::SeqCst);
            bench.word(1, 0).store(5, Ordering::SeqCst);
            before
        });
        let fault = bench.fault();
        assert_eq!(fault.address, bench.address(1));
        assert_eq!((fault.kind, fault.write), (FaultKind::Missing, false));
        assert_ne!(fault.thread, 0);
        let bytes = [3; PAGE];
        assert_eq!(bench.uffd.copy(fault.address, &bytes, false), Outcome::Done);
        let upgrade = bench.fault();
        assert_eq!(upgrade.kind, FaultKind::WriteProtect);
        assert!(upgrade.write);
        assert_eq!(bench.uffd.unprotect(fault.address, LEN), Outcome::Done);
        assert_eq!(access.join().unwrap(), 0x0303_0303_0303_0303);
    });
    let at = bench.address(1);
    assert_eq!(bench.uffd.copy(at, &[0; PAGE], true), Outcome::AlreadyThere);
    assert_eq!(bench.uffd.map(at, LEN, false), Outcome::AlreadyThere);
    assert_eq!(bench.uffd.protect(at, LEN), Outcome::Done);
    bench.memory.punch(LEN, LEN).unwrap();
    assert_eq!(bench.uffd.wake(at, LEN), Outcome::Done);
    assert_eq!(bench.uffd.map(at, LEN, false), Outcome::NotThere);
    assert_eq!(
        bench.uffd.copy(0x1000, &[0; PAGE], true),
        Outcome::Unregistered
    );
    // The mark left by `protect` must be removed before the page can be poisoned.
    assert_eq!(bench.uffd.poison(at, LEN), Outcome::AlreadyThere);
    assert_eq!(bench.uffd.unprotect(at, LEN), Outcome::Done);
    assert_eq!(bench.uffd.poison(at, LEN), Outcome::Done);
    assert_eq!(bench.uffd.copy(at, &[1; PAGE], true), Outcome::Done);
    assert_eq!(
        bench.word(1, 0).load(Ordering::SeqCst),
        0x0101_0101_0101_0101
    );
    assert_eq!(bench.uffd.zeropage(bench.address(0), LEN), Outcome::Done);
    assert_eq!(bench.word(0, 9).load(Ordering::SeqCst), 0);
}

#[test]
fn neighbours_are_placed_up_to_what_is_in_the_way() {
    let Some(bench) = bench(6) else { return };
    let pages: Vec<[u8; PAGE]> = (1..=6).map(|byte| [byte; PAGE]).collect();
    let first = bench.address(0);
    assert_eq!(bench.uffd.copy_run(first, &pages[..2], true), 2);
    // Another writer has put a page there.
    bench.memory.write(4 * LEN, &[9; PAGE]).unwrap();
    assert_eq!(bench.uffd.copy_run(first, &pages, true), 0);
    assert_eq!(bench.uffd.copy_run(bench.address(2), &pages[2..], true), 2);
    assert_eq!(bench.uffd.copy_run(bench.address(5), &pages[5..], true), 1);
    assert_eq!(bench.uffd.copy_run(0x1000, &pages, true), 0);
    assert_eq!(bench.uffd.map(bench.address(4), LEN, true), Outcome::Done);
    for (page, byte) in [1, 2, 3, 4, 9, 6].into_iter().enumerate() {
        let word = u64::from_ne_bytes([byte; 8]);
        assert_eq!(bench.word(page, 511).load(Ordering::SeqCst), word, "{page}");
    }
}

#[test]
fn only_a_userfaultfd_is_adopted() {
    let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    assert!(Uffd::adopt(file).is_err());
    let Ok((uffd, _)) = Uffd::create(None) else {
        eprintln!("skipped: userfaultfd is not permitted here (run as root)");
        return;
    };
    let adopted = Uffd::adopt(OwnedFd::from(uffd)).unwrap();
    assert!(adopted.handshake().unwrap().sufficient());
    assert!(adopted.handshake().is_err(), "once per descriptor");
}

#[test]
fn reading_never_waits_whatever_the_owner_does() {
    let Ok((uffd, _)) = Uffd::create(None) else {
        eprintln!("skipped: userfaultfd is not permitted here (run as root)");
        return;
    };
    uffd.handshake().unwrap();
    fcntl_setfl(&uffd, OFlags::empty()).unwrap();
    let mut buffer = FaultBuffer::default();
    let mut nothing = [0; 32];
    let mut parts = [IoSliceMut::new(&mut nothing)];
    if preadv2(&uffd, &mut parts, CURRENT, ReadWriteFlags::NOWAIT) == Err(Errno::OPNOTSUPP) {
        eprintln!("skipped: this kernel cannot (before 6.10)");
        return;
    }
    uffd.read(&mut buffer).unwrap();
    assert!(buffer.is_empty());
}

const THREADS: usize = 4;
const PAGES: usize = 4;
const REVOKES: usize = 1000;
const WORDS_APART: usize = 8;

/// Every thread increments its own word on every page and checks that none of its stores is lost.
fn hammer(bench: &Bench, thread: usize, stop: &AtomicBool) -> u64 {
    let mut mine = [0u64; PAGES];
    let mut steps = 0;
    while !stop.load(Ordering::Relaxed) {
        for (page, mine) in mine.iter_mut().enumerate() {
            let word = bench.word(page, thread * WORDS_APART);
            let found = word.load(Ordering::Relaxed);
            assert_eq!(found, *mine, "a store was lost on page {page}");
            *mine += 1;
            word.store(*mine, Ordering::Relaxed);
        }
        steps += 1;
    }
    steps
}

/// Serves faults by the daemon's rules: the stash decides what a page contains.
fn serve(bench: &Bench, stash: &mut [Option<Box<[u8; PAGE]>>; PAGES]) {
    let mut buffer = FaultBuffer::default();
    bench.uffd.read(&mut buffer).unwrap();
    for fault in (0..buffer.len()).filter_map(|index| buffer.get(index)) {
        let page = ((fault.address - bench.address(0)) / LEN) as usize;
        let outcome = match stash[page].take() {
            Some(bytes) => bench.uffd.copy(fault.address, &bytes, fault.write),
            None if fault.kind == FaultKind::WriteProtect => {
                bench.uffd.unprotect(fault.address, LEN)
            }
            None => match bench.uffd.map(fault.address, LEN, fault.write) {
                Outcome::AlreadyThere if fault.write => bench.uffd.unprotect(fault.address, LEN),
                other => other,
            },
        };
        if outcome != Outcome::Done {
            bench.uffd.wake(fault.address, LEN);
        }
    }
}

fn revoke(bench: &Bench, page: usize, stash: &mut [Option<Box<[u8; PAGE]>>; PAGES]) {
    if stash[page].is_some() {
        return;
    }
    let mut bytes = Box::new([0; PAGE]);
    bench.uffd.protect(bench.address(page), LEN);
    bench.memory.read(page as u64 * LEN, &mut bytes).unwrap();
    bench.memory.punch(page as u64 * LEN, LEN).unwrap();
    stash[page] = Some(bytes);
    bench.uffd.wake(bench.address(page), LEN);
}

#[test]
fn revoking_loses_no_store() {
    let Some(bench) = bench(PAGES) else { return };
    let stop = AtomicBool::new(false);
    let mut stash: [_; PAGES] = std::array::from_fn(|_| Some(Box::new([0; PAGE])));
    let (mut revokes, mut steps) = (0, 0);
    thread::scope(|scope| {
        let hammers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let (bench, stop) = (&bench, &stop);
                    move || hammer(bench, thread, stop)
                })
            })
            .collect();
        // On a busy machine this thread is seldom scheduled.
        let end = Instant::now() + Duration::from_secs(20);
        while revokes < REVOKES && Instant::now() < end {
            // Hold a page for a while, because otherwise no thread makes progress.
            let hold = Instant::now() + Duration::from_micros(60);
            while Instant::now() < hold {
                serve(&bench, &mut stash);
                std::hint::spin_loop();
            }
            revoke(&bench, revokes % PAGES, &mut stash);
            revokes += 1;
        }
        stop.store(true, Ordering::Relaxed);
        while hammers.iter().any(|hammer| !hammer.is_finished()) {
            serve(&bench, &mut stash);
        }
        for hammer in hammers {
            steps += hammer.join().unwrap();
        }
    });
    eprintln!("{revokes} revocations under {steps} rounds of {THREADS} threads");
    assert!(revokes == REVOKES && steps > 100);
}

#[test]
fn an_orphan_is_told_from_the_uffd_of_a_process_that_lives() {
    let Ok((uffd, _)) = Uffd::create(None) else {
        eprintln!("skipped: userfaultfd is not permitted here");
        return;
    };
    uffd.handshake().unwrap();
    assert!(!uffd.is_orphan());
    let (ours, theirs) = crate::seqpacket::Socket::pair().unwrap();
    // SAFETY: the child makes system calls only, and exits without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        if let Ok((uffd, _)) = Uffd::create(None) {
            let _ = uffd.handshake();
            let _ = theirs.send(b"x", &[uffd.as_fd()]);
        }
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    drop(theirs);
    let mut packet = ours.recv(&mut [0; 8]).unwrap().unwrap();
    let uffd = Uffd::adopt(packet.fds.pop().unwrap()).unwrap();
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(uffd.is_orphan());
}

#[test]
fn accesses_are_reported_after_a_range_was_registered_again() {
    let Some(bench) = bench_registered(3, Uffd::register_untrapped) else {
        return;
    };
    bench.word(0, 0).store(5, Ordering::SeqCst);
    assert_eq!(bench.word(1, 0).load(Ordering::SeqCst), 0);
    let whole = (bench.address(0), 3 * LEN);
    assert_eq!(bench.uffd.parts(whole.0, whole.1), [whole]);
    bench.uffd.register(whole.0, whole.1).unwrap();
    assert_eq!(bench.memory.extents().unwrap(), [(0, 2 * LEN)]);
    bench.word(0, 0).store(6, Ordering::SeqCst);
    thread::scope(|scope| {
        let access = scope.spawn(|| bench.word(2, 0).load(Ordering::SeqCst));
        let fault = bench.fault();
        assert_eq!(
            (fault.address, fault.kind),
            (bench.address(2), FaultKind::Missing)
        );
        assert_eq!(
            bench.uffd.copy(fault.address, &[1; PAGE], true),
            Outcome::Done
        );
        assert_eq!(access.join().unwrap(), 0x0101_0101_0101_0101);
    });
}

#[test]
fn what_was_mapped_over_a_range_is_no_part_of_it() {
    let Some(bench) = bench_registered(9, Uffd::register_untrapped) else {
        return;
    };
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let over = |page: usize, count: usize| {
        let (at, flags) = (bench.address(page), MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: pages of this test's mapping, which no code refers to.
        unsafe { mmap_anonymous(at as *mut _, count * PAGE, rights, flags) }.unwrap();
    };
    over(2, 1);
    over(5, 3);
    let run = |first: usize, count: u64| (bench.address(first), count * LEN);
    let parts = bench.uffd.parts(bench.address(0), 9 * LEN);
    assert_eq!(parts, [run(0, 2), run(3, 2), run(8, 1)]);
    for (address, length) in parts {
        bench.uffd.register(address, length).unwrap();
    }
    for page in [2, 5, 7] {
        bench.word(page, 0).store(1, Ordering::SeqCst);
    }
}

#[test]
fn extents_are_runs_of_pages() {
    let memory = Memfd::create("extents", 6 * LEN).unwrap();
    assert_eq!(memory.extents().unwrap(), []);
    for page in [1, 2, 5] {
        memory.write(page * LEN, &[1; PAGE]).unwrap();
    }
    assert_eq!(memory.extents().unwrap(), [(LEN, 2 * LEN), (5 * LEN, LEN)]);
}
