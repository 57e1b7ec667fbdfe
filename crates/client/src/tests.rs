//! Tests of the library against a simulated daemon with one segment.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pagemesh_os::area::LockArea;
use pagemesh_os::seqpacket::{Listener, Received, Socket};
use pagemesh_wire::local::{MAX_PACKET, Refusal, Reply, ReplyPacket, Request, RequestPacket};
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::{SegmentInfo, SegmentSpec};
use pagemesh_wire::{ByteLen, ClientId, MappingId, NodeId, NodeSet, SegmentId};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::connection::Connection;
use crate::{Access, Error, Mesh, Policy, Segment};

const ME: ClientId = ClientId(5);
const PAGES: u64 = 4;

/// The requests that the simulated daemon received, and its state.
struct Daemon {
    memory: OwnedFd,
    area: LockArea,
    asked: Mutex<Vec<Request>>,
    /// Requests that it does not answer until they are withdrawn.
    silent: fn(&Request) -> bool,
}

impl Daemon {
    fn serve(&self, socket: &Socket) {
        let mut buffer = vec![0; MAX_PACKET];
        loop {
            let received = match socket.recv(&mut buffer) {
                Ok(Some(received)) => received,
                Ok(None) | Err(_) => return,
            };
            let packet = RequestPacket::decode(&buffer[..received.len]).unwrap();
            if let Request::Fork = packet.request {
                turn_away_child(received);
                continue;
            }
            self.asked.lock().unwrap().push(packet.request.clone());
            for (number, reply) in self.replies(packet) {
                let fds = [self.memory.as_fd(), self.area.as_fd()];
                let lend = matches!(reply, Reply::Opened { .. });
                let bytes = ReplyPacket { number, reply }.encode();
                // The library may have ended without waiting for a reply.
                let _ = socket.send(&bytes, if lend { &fds } else { &[] });
            }
        }
    }

    fn replies(&self, packet: RequestPacket) -> Vec<(u64, Reply)> {
        let number = packet.number;
        if (self.silent)(&packet.request) {
            return Vec::new();
        }
        let reply = match packet.request {
            Request::Hello { .. } => Reply::Welcome {
                client: ME,
                node: NodeId(1),
                device: false,
            },
            Request::Open { name, .. } if name == "none" => Reply::Refused(Refusal::NotFound),
            Request::Open { .. } => Reply::Opened { info: info() },
            Request::Map { .. } => Reply::Mapped {
                mapping: MappingId(1),
            },
            Request::LockSlot { .. } => Reply::Slot { index: 3 },
            Request::Lock { .. } => {
                self.word(LockWord::Held {
                    by: ME,
                    wanted: false,
                });
                Reply::Locked { recovered: true }
            }
            Request::Unlock { .. } => {
                self.word(LockWord::Free);
                Reply::Done
            }
            Request::CondWait { .. } | Request::Watch { .. } => {
                return vec![(number, Reply::Waiting), (number, Reply::Done)];
            }
            Request::Cancel { number } => {
                return vec![(number, Reply::Refused(Refusal::Cancelled))];
            }
            Request::Status => Reply::Waiting,
            _ => Reply::Done,
        };
        vec![(number, reply)]
    }

    fn word(&self, word: LockWord) {
        self.area.word(3).unwrap().swap(word);
    }

    fn count(&self, which: fn(&Request) -> bool) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|request| which(request)).count()
    }
}

/// Answers a child on its own connection: if the child was made while this process had that end of
/// it, then the child has it, too, and its connection does not end. Any test may fork, and a fork
/// concerns the connections of all tests; so it is not recorded.
fn turn_away_child(received: Received) {
    let socket = Socket::adopt(received.fds.into_iter().next().unwrap()).unwrap();
    let reply = Reply::Refused(Refusal::NotFound);
    let _ = socket.send_now(&ReplyPacket { number: 0, reply }.encode(), &[]);
}

fn info() -> SegmentInfo {
    SegmentInfo {
        id: SegmentId::new(NodeId(1), 1),
        name: "s".into(),
        spec: SegmentSpec {
            size: ByteLen(PAGES * 4096 - 96),
            mode: 0o600,
            policy: Policy::default(),
            replicas: 0,
        },
        owner: (0, 0),
        removed: false,
        attached: NodeSet::default(),
    }
}

/// The daemon, its thread, and a segment of it.
fn start(silent: fn(&Request) -> bool) -> (Arc<Daemon>, JoinHandle<()>, Segment) {
    let memory = memfd_create("segment", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, PAGES * 4096).unwrap();
    let daemon = Arc::new(Daemon {
        memory,
        area: LockArea::create().unwrap(),
        asked: Mutex::default(),
        silent,
    });
    let (ours, theirs) = Socket::pair().unwrap();
    let serving = thread::spawn({
        let daemon = Arc::clone(&daemon);
        move || daemon.serve(&theirs)
    });
    let mesh = Mesh::over(Connection::new(ours)).unwrap();
    let segment = mesh.open("s", Access::Writable).unwrap();
    (daemon, serving, segment)
}

#[test]
fn a_daemon_that_dies_as_it_lets_a_process_in_is_followed_by_its_successor() {
    let path = std::env::temp_dir().join(format!("pagemesh-successor-{}", std::process::id()));
    let listener = Listener::bind(&path, 0o600).unwrap();
    let next = || loop {
        match listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            accepted => return accepted.unwrap(),
        }
    };
    let (daemon, serving, segment) = start(|_| false);
    thread::scope(|scope| {
        let program = scope.spawn(|| Mesh::connect_to(&path));
        drop(next());
        let second = next();
        second.set_nonblocking(false).unwrap();
        scope.spawn(move || daemon.serve(&second));
        assert_eq!(program.join().unwrap().unwrap().node(), NodeId(1));
        // Where each that comes dies, the program hears of it.
        let program = scope.spawn(|| Mesh::connect_to(&path));
        while !program.is_finished() {
            drop(listener.accept());
            thread::yield_now();
        }
        assert!(matches!(program.join().unwrap(), Err(Error::DaemonGone)));
    });
    drop(segment);
    serving.join().unwrap();
}

fn is_lock(request: &Request) -> bool {
    matches!(request, Request::Lock { .. })
}

fn is_unlock(request: &Request) -> bool {
    matches!(request, Request::Unlock { .. })
}

#[test]
fn a_lock_that_is_here_needs_no_daemon() {
    let (daemon, _, segment) = start(|_| false);
    let lock = segment.lock(9);
    // The token is on another node: the daemon fetches it.
    let guard = lock.lock().unwrap();
    assert!(guard.recovered());
    assert!(lock.try_lock().unwrap().is_none());
    drop(guard);
    let asked = daemon.asked.lock().unwrap().len();
    for _ in 0..100 {
        assert!(!segment.lock(9).lock().unwrap().recovered());
    }
    assert!(lock.try_lock().unwrap().is_some());
    assert_eq!(daemon.asked.lock().unwrap().len(), asked);
    assert_eq!((daemon.count(is_lock), daemon.count(is_unlock)), (1, 0));
}

#[test]
fn a_wanted_lock_goes_back_to_the_daemon() {
    let (daemon, serving, segment) = start(|_| false);
    let lock = segment.lock(9);
    let guard = lock.lock().unwrap();
    daemon.area.word(3).unwrap().reclaim();
    drop(guard);
    drop((lock, segment));
    serving.join().unwrap();
    assert_eq!(daemon.count(is_unlock), 1);
}

#[test]
fn threads_of_a_process_take_turns() {
    let (_, _, segment) = start(|_| false);
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let lock = segment.lock(9);
                for _ in 0..500 {
                    let _guard = lock.lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
}

#[test]
fn waits_for_a_lock_are_limited() {
    let (daemon, _, segment) = start(is_lock);
    let lock = segment.lock(9);
    assert!(lock.try_lock().unwrap().is_none());
    let late = lock.lock_timeout(Duration::from_millis(10));
    assert!(matches!(late, Err(Error::TimedOut)));
    // The gate is open again, and the lock can be taken once its token is here.
    daemon.word(LockWord::Free);
    let guard = lock.lock_timeout(Duration::from_millis(10)).unwrap();
    // Now another thread of this process holds the gate.
    let late = lock.lock_timeout(Duration::from_millis(10));
    assert!(matches!(late, Err(Error::TimedOut)));
    drop(guard);
}

#[test]
fn a_condition_releases_the_lock_only_once_signals_count() {
    let (daemon, _, segment) = start(|_| false);
    let mut guard = segment.lock(9).lock().unwrap();
    segment.condition(1).wait(&mut guard).unwrap();
    assert!(segment.lock(9).try_lock().unwrap().is_none());
    drop(guard);
    assert!(segment.lock(9).try_lock().unwrap().is_some());
    // After the wait the token was here and free.
    assert_eq!(daemon.count(is_lock), 1);
}

#[test]
fn an_endless_condition_times_out_with_the_lock_held() {
    let (_, _, segment) = start(|request| matches!(request, Request::CondWait { .. }));
    let mut guard = segment.lock(9).lock().unwrap();
    let limit = Duration::from_millis(10);
    let late = segment.condition(1).wait_timeout(&mut guard, limit);
    assert!(matches!(late, Err(Error::TimedOut)));
    assert!(segment.lock(9).try_lock().unwrap().is_none());
}

#[test]
fn a_mapping_shows_the_memory() {
    let (daemon, serving, segment) = start(|_| false);
    let memory = segment.map().unwrap();
    assert_eq!(memory.len() as u64, PAGES * 4096 - 96);
    memory.write(10, b"hello").unwrap();
    let mut bytes = [0; 5];
    rustix::io::pread(&daemon.memory, &mut bytes, 10).unwrap();
    assert_eq!(&bytes, b"hello");
    memory.atomic_u64(4096).unwrap().store(77, Ordering::SeqCst);

    let reader = segment.map_at(None, 4096, 4096, false).unwrap();
    assert_eq!(reader.load_u64(0).unwrap(), 77);
    assert!(reader.atomic_u64(0).is_err());
    assert!(reader.write(0, b"x").is_err());
    assert!(reader.read(4090, &mut [0; 7]).is_err());
    assert!(memory.load_u64(4).is_err());
    assert!(memory.load_u64(usize::MAX - 3).is_err());

    let same_place = segment.map_at(Some(memory.as_ptr() as usize), 0, 4096, true);
    assert!(matches!(same_place, Err(Error::AddressTaken(_))));
    let place = memory.as_ptr() as usize;
    drop(memory);
    let again = segment.map_at(Some(place), 0, 4096, true).unwrap();
    assert_eq!(again.as_ptr() as usize, place);
    drop((again, reader, segment));
    serving.join().unwrap();
    assert_eq!(daemon.count(|r| matches!(r, Request::Map { .. })), 3);
    assert_eq!(daemon.count(|r| matches!(r, Request::Unmap { .. })), 3);
    let close = Request::Close { segment: info().id };
    assert_eq!(daemon.asked.lock().unwrap().last(), Some(&close));
}

#[test]
fn impossible_ranges_are_refused_before_anybody_is_asked() {
    let (daemon, _, segment) = start(|_| false);
    let asked = daemon.asked.lock().unwrap().len();
    for (offset, length) in [(0, 0), (1, 4096), (0, PAGES * 4096 + 1), (4096, u64::MAX)] {
        assert!(segment.map_at(None, offset, length, true).is_err());
    }
    assert!(segment.map_at(Some(0), 0, 4096, true).is_err());
    assert!(segment.map_at(Some(12), 0, 4096, true).is_err());
    assert!(segment.write_lock(5..5).is_err());
    assert!(segment.write_lock(0..PAGES * 4096 + 1).is_err());
    assert!(segment.wait_change(PAGES * 4096, 0, None).is_err());
    assert_eq!(daemon.asked.lock().unwrap().len(), asked);
    let missing = segment.mesh().open("none", Access::ReadOnly).unwrap_err();
    assert!(missing.is_not_found());
}

#[test]
fn a_write_lock_names_whole_pages_and_lets_them_go() {
    let (daemon, serving, segment) = start(|_| false);
    let lock = segment.write_lock(4095..4097).unwrap();
    assert_eq!(lock.bytes(), 0..8192);
    drop((lock, segment));
    serving.join().unwrap();
    assert_eq!(daemon.count(|r| matches!(r, Request::Pin { .. })), 1);
    assert_eq!(daemon.count(|r| matches!(r, Request::Unpin { .. })), 1);
}

#[test]
fn a_watch_ends_when_the_byte_differs() {
    let (daemon, _, segment) = start(|_| false);
    let memory = segment.map().unwrap();
    memory.write(5000, &[1]).unwrap();
    // The byte differs already: no request is sent.
    assert_eq!(segment.wait_change(5000, 0, None).unwrap(), 1);
    assert_eq!(daemon.count(|r| matches!(r, Request::Watch { .. })), 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            memory.write(5000, &[2]).unwrap();
        });
        // This daemon ends every watch at once: the page may have changed.
        assert_eq!(memory.wait_change(5000, 1, None).unwrap(), 2);
    });
    assert!(daemon.count(|r| matches!(r, Request::Watch { .. })) > 0);
    // The existing mapping was used.
    assert_eq!(daemon.count(|r| matches!(r, Request::Map { .. })), 1);
}

#[test]
fn an_unchanging_byte_times_out() {
    let (_, _, segment) = start(|request| matches!(request, Request::Watch { .. }));
    let limit = Some(Duration::from_millis(10));
    let late = segment.wait_change(0, 0, limit);
    assert!(matches!(late, Err(Error::TimedOut)));
}

#[test]
fn a_watch_ends_at_its_deadline_though_the_daemon_is_silent() {
    let silent =
        |request: &Request| matches!(request, Request::Watch { .. } | Request::Cancel { .. });
    let (_, _, segment) = start(silent);
    let late = segment.wait_change(0, 0, Some(Duration::from_millis(10)));
    assert!(matches!(late, Err(Error::TimedOut)), "{late:?}");
}

#[test]
fn closing_waits_for_the_last_user() {
    let (_, _, segment) = start(|_| false);
    let lock = segment.lock(1);
    assert!(matches!(segment.close(), Err(Error::Invalid(_))));
    drop(lock);
}

/// Memory that the program has mapped over a mapping of a segment, without the library, is neither
/// unmapped with the mapping nor made inaccessible in a child.
#[test]
#[expect(unsafe_code, reason = "it maps memory as programs do")]
fn what_was_mapped_over_a_mapping_stays() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    use std::ptr::without_provenance_mut;

    const PAGE: usize = 4096;
    let (daemon, serving, segment) = start(|_| false);
    let size = segment.size();
    let [over, away] = [(); 2].map(|()| segment.map_at(None, 0, size, true).unwrap());
    let at = |start: usize, page: usize| without_provenance_mut(start + page * PAGE);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // Replaced at once: memory of another test could come into a gap.
    let [first, second] = [&over, &away].map(|mapping| mapping.as_ptr() as usize);
    // SAFETY: memory of these two mappings, which has no other user.
    unsafe {
        mmap_anonymous(at(first, 1), PAGE, rights, flags).unwrap();
        mmap_anonymous(at(second, 0), 4 * PAGE, rights, flags).unwrap();
    }
    let byte = |start: usize, page: usize| at(start, page).cast::<u8>();
    let mine = [byte(first, 1), byte(second, 0), byte(second, 3)];
    for place in mine {
        // SAFETY: memory that was just mapped.
        unsafe { place.write(7) };
    }
    assert_eq!(over.held().len(), 2);
    assert_eq!(away.held(), []);
    // SAFETY: the child looks at its memory by loads, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above; a child in which they are gone ends by a signal.
        let sevens = mine.map(|place| unsafe { place.read_volatile() });
        // SAFETY: ends the child without the destructors of its parent.
        unsafe { libc::_exit(i32::from(sevens != [7; 3])) };
    }
    let mut status = -1;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    drop((over, away));
    for place in mine {
        // SAFETY: still the memory of this test.
        assert_eq!(unsafe { place.read_volatile() }, 7);
    }
    drop(segment);
    serving.join().unwrap();
    let unmaps = daemon.count(|request| matches!(request, Request::Unmap { .. }));
    assert_eq!(unmaps, 2);
}
