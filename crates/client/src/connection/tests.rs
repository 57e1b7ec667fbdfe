//! Tests against a peer that speaks the protocol but is no daemon.

use super::*;
use crate::bell::after;
use crate::signals::look_while_waiting;
use pagemesh_wire::local::Refusal;
use pagemesh_wire::{ClientId, NodeId, SegmentId, SyncKey};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// The daemon's end.
pub(super) struct Peer(pub(super) Socket);

impl Peer {
    pub(super) fn request(&self) -> Option<RequestPacket> {
        let mut buffer = vec![0; MAX_PACKET];
        let received = self.0.recv(&mut buffer).ok()??;
        Some(RequestPacket::decode(&buffer[..received.len]).unwrap())
    }

    pub(super) fn reply(&self, number: u64, reply: Reply) {
        let packet = ReplyPacket { number, reply };
        self.0.send(&packet.encode(), &[]).unwrap();
    }
}

pub(super) fn pair() -> (Connection, Peer) {
    let (ours, theirs) = Socket::pair().unwrap();
    (Connection::new(ours), Peer(theirs))
}

pub(super) fn probe(node: u16) -> Request {
    Request::Probe { node: NodeId(node) }
}

pub(super) fn key(number: u64) -> SyncKey {
    SyncKey {
        segment: SegmentId::new(NodeId(1), 1),
        number,
    }
}

#[test]
fn replies_find_their_threads_in_any_order() {
    const THREADS: u64 = 8;
    const ROUNDS: u32 = 200;
    let (connection, peer) = pair();
    let daemon = thread::spawn(move || {
        // Collects a request of every thread, then answers the last one first.
        for _ in 0..ROUNDS {
            let requests: Vec<_> = (0..THREADS).map(|_| peer.request().unwrap()).collect();
            for packet in requests.iter().rev() {
                let Request::Stamp { tag } = packet.request else {
                    panic!("only stamps are asked for")
                };
                peer.reply(packet.number, Reply::Woken(tag as u32));
            }
        }
    });
    thread::scope(|scope| {
        for tag in 0..THREADS {
            let connection = &connection;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let answer = connection.ask(Request::Stamp { tag }, None).unwrap();
                    assert_eq!(answer.reply, Reply::Woken(tag as u32));
                }
            });
        }
    });
    daemon.join().unwrap();
}

#[test]
fn what_a_daemon_said_before_it_went_is_heard() {
    let (connection, peer) = pair();
    let why = Refusal::Limit("too many".into());
    peer.reply(connection.number() + 1, Reply::Refused(why.clone()));
    drop(peer);
    let answer = connection.ask(probe(1), None);
    assert!(
        matches!(&answer, Err(Error::Refused(heard)) if *heard == why),
        "{answer:?}"
    );
    assert!(matches!(
        connection.ask(probe(1), None),
        Err(Error::DaemonGone)
    ));
}

#[test]
fn a_timeout_withdraws_and_lets_another_thread_read() {
    let (connection, peer) = pair();
    let daemon = thread::spawn(move || {
        // On a busy host the second may come behind the withdrawal of the first.
        let asked: Vec<_> = (0..3).map(|_| peer.request().unwrap()).collect();
        let number_of = |wanted| {
            let found = asked.iter().find(|asked| asked.request == wanted);
            found.expect("it came").number
        };
        let number = number_of(probe(1));
        number_of(Request::Cancel { number });
        peer.reply(number, Reply::Refused(Refusal::Cancelled));
        thread::sleep(Duration::from_millis(20));
        peer.reply(number_of(probe(2)), Reply::Done);
    });
    thread::scope(|scope| {
        let reader = scope.spawn(|| connection.ask(probe(1), after(Duration::from_millis(60))));
        thread::sleep(Duration::from_millis(20));
        // This thread sleeps at first, since the other thread reads; it reads when that one gives
        // up.
        let follower = scope.spawn(|| connection.ask(probe(2), None));
        assert!(matches!(reader.join().unwrap(), Err(Error::TimedOut)));
        assert_eq!(follower.join().unwrap().unwrap().reply, Reply::Done);
    });
    daemon.join().unwrap();
}

#[test]
fn a_reply_faster_than_the_withdrawal_counts() {
    let (connection, peer) = pair();
    let daemon = thread::spawn(move || {
        let request = peer.request().unwrap();
        let cancel = peer.request().unwrap();
        assert!(matches!(cancel.request, Request::Cancel { .. }));
        peer.reply(request.number, Reply::Locked { recovered: true });
    });
    let request = Request::Lock { key: key(1) };
    let answer = connection.ask(request, after(Duration::from_millis(5)));
    assert_eq!(answer.unwrap().reply, Reply::Locked { recovered: true });
    daemon.join().unwrap();
}

#[test]
fn two_replies_to_one_request() {
    let (connection, peer) = pair();
    let request = Request::CondWait { cond: key(1) };
    let mut call = connection.start(request, &[], None).unwrap();
    let number = peer.request().unwrap().number;
    peer.reply(number, Reply::Waiting);
    assert!(call.begin(None).unwrap().is_none());
    peer.reply(number, Reply::Done);
    assert_eq!(call.finish(None).unwrap().reply, Reply::Done);

    // The withdrawal crosses the first reply.
    let request = Request::CondWait { cond: key(1) };
    let mut call = connection.start(request, &[], None).unwrap();
    let number = peer.request().unwrap().number;
    let daemon = thread::spawn(move || {
        assert_eq!(peer.request().unwrap().request, Request::Cancel { number });
        peer.reply(number, Reply::Waiting);
        peer.reply(number, Reply::Refused(Refusal::Cancelled));
    });
    let stopped = call.begin(after(Duration::from_millis(5)));
    assert!(matches!(stopped, Err(Error::TimedOut)));
    daemon.join().unwrap();
}

#[test]
fn the_end_of_the_daemon_wakes_everybody() {
    let (connection, peer) = pair();
    thread::scope(|scope| {
        let waits: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| connection.ask(probe(1), None)))
            .collect();
        for _ in 0..4 {
            peer.request().unwrap();
        }
        drop(peer);
        for wait in waits {
            assert!(matches!(wait.join().unwrap(), Err(Error::DaemonGone)));
        }
    });
    assert!(matches!(
        connection.ask(probe(1), None),
        Err(Error::DaemonGone)
    ));
}

#[test]
fn nonsense_ends_the_connection_with_a_reason() {
    let (connection, peer) = pair();
    peer.0.send(&[0xff; 7], &[]).unwrap();
    assert!(matches!(
        connection.ask(probe(1), None),
        Err(Error::Malformed(_))
    ));
}

#[test]
fn replies_nobody_awaits_do_not_fill_the_socket() {
    let (connection, peer) = pair();
    let daemon = thread::spawn(move || {
        while let Some(packet) = peer.request() {
            // Fails if the socket is full: a daemon does not wait for a client.
            let reply = ReplyPacket {
                number: packet.number,
                reply: Reply::Done,
            };
            peer.0.send_now(&reply.encode(), &[]).unwrap();
        }
    });
    for _ in 0..10_000 {
        connection.tell(Request::Unlock { key: key(1) });
    }
    connection.ask(probe(1), None).unwrap();
    drop(connection);
    daemon.join().unwrap();
}

mod signals {
    #![allow(unsafe_code)]
    use super::*;

    extern "C" fn nothing(_: libc::c_int) {}

    fn handle(flags: libc::c_int, signal: libc::c_int) {
        // SAFETY: a zeroed sigaction is valid, and the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = flags;
            assert_eq!(
                libc::sigaction(signal, &raw const action, std::ptr::null_mut()),
                0
            );
        }
    }

    /// Sends its thread number, then a request.
    fn asker(
        connection: &Connection,
        who: &Sender<libc::pthread_t>,
        until: Option<Instant>,
    ) -> Result<Answer> {
        // SAFETY: no preconditions.
        who.send(unsafe { libc::pthread_self() }).unwrap();
        connection.ask(probe(1), until)
    }

    fn interrupt(thread: libc::pthread_t, signal: libc::c_int) {
        thread::sleep(Duration::from_millis(30));
        // SAFETY: the thread is in a call that only this signal ends.
        assert_eq!(unsafe { libc::pthread_kill(thread, signal) }, 0);
    }

    /// Answers every withdrawal.
    fn obedient(peer: &Peer) {
        while let Some(packet) = peer.request() {
            if let Request::Cancel { number } = packet.request {
                peer.reply(number, Reply::Refused(Refusal::Cancelled));
            }
        }
    }

    #[test]
    fn reader_and_follower_are_interrupted_alike() {
        handle(0, libc::SIGUSR1);
        let (connection, peer) = pair();
        let daemon = thread::spawn(move || obedient(&peer));
        thread::scope(|scope| {
            let (who, threads) = channel();
            let late = after(Duration::from_secs(60));
            for until in [None, late] {
                let reader = scope.spawn({
                    let (connection, who) = (&connection, who.clone());
                    move || asker(connection, &who, until)
                });
                let reading = threads.recv().unwrap();
                thread::sleep(Duration::from_millis(30));
                let follower = scope.spawn({
                    let (connection, who) = (&connection, who.clone());
                    move || asker(connection, &who, until)
                });
                interrupt(threads.recv().unwrap(), libc::SIGUSR1);
                let result = follower.join().unwrap();
                assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
                interrupt(reading, libc::SIGUSR1);
                let result = reader.join().unwrap();
                assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
            }
        });
        drop(connection);
        daemon.join().unwrap();
    }

    #[test]
    fn a_short_call_ends_with_its_answer_in_spite_of_signals() {
        handle(0, libc::SIGUSR1);
        let (connection, peer) = pair();
        thread::scope(|scope| {
            for (until, answers) in [
                (None, true),
                (after(Duration::from_secs(60)), true),
                (None, false),
            ] {
                let (who, threads) = channel();
                let connection = &connection;
                let asker = scope.spawn(move || {
                    // SAFETY: names this thread.
                    who.send(unsafe { libc::pthread_self() }).unwrap();
                    connection.ask_surely(probe(1), until)
                });
                let (asking, asked) = (threads.recv().unwrap(), peer.request().unwrap());
                interrupt(asking, libc::SIGUSR1);
                interrupt(asking, libc::SIGUSR1);
                if answers {
                    peer.reply(asked.number, Reply::Done);
                    assert_eq!(asker.join().unwrap().unwrap().reply, Reply::Done);
                    continue;
                }
                let number = asked.number;
                assert_eq!(peer.request().unwrap().request, Request::Cancel { number });
                peer.reply(number, Reply::Refused(Refusal::Cancelled));
                let result = asker.join().unwrap();
                assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
            }
        });
    }

    thread_local! {
        /// How often this thread has looked for signals.
        static LOOKS: Cell<u32> = const { Cell::new(0) };
    }

    /// Says at the third look that the wait is to end.
    fn third_time() -> bool {
        LOOKS.set(LOOKS.get() + 1);
        LOOKS.get() >= 3
    }

    #[test]
    fn a_wait_ends_when_a_look_finds_a_signal() {
        let (connection, peer) = pair();
        let daemon = thread::spawn(move || obedient(&peer));
        let late = after(Duration::from_secs(60));
        thread::scope(|scope| {
            // One of each two reads for both.
            for until in [None, None, late, late] {
                let connection = &connection;
                scope.spawn(move || {
                    look_while_waiting(Some(third_time));
                    let result = connection.ask(probe(1), until);
                    assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
                });
            }
        });
        drop(connection);
        daemon.join().unwrap();
    }

    /// Set while a thread looks.
    static STUCK: AtomicBool = AtomicBool::new(false);

    fn stuck() -> bool {
        STUCK.store(true, Ordering::SeqCst);
        while STUCK.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        false
    }

    #[test]
    fn a_thread_that_looks_holds_up_no_other() {
        let (connection, peer) = pair();
        thread::scope(|scope| {
            let connection = &connection;
            let looks = scope.spawn(move || {
                look_while_waiting(Some(stuck));
                connection.ask(probe(1), None)
            });
            let first = peer.request().unwrap();
            let other = scope.spawn(move || connection.ask(probe(2), None));
            let second = peer.request().unwrap();
            while !STUCK.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            peer.reply(second.number, Reply::Done);
            assert_eq!(other.join().unwrap().unwrap().reply, Reply::Done);
            peer.reply(first.number, Reply::Done);
            while !looks.is_finished() {
                STUCK.store(false, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(looks.join().unwrap().unwrap().reply, Reply::Done);
        });
    }

    #[test]
    fn a_restarting_handler_does_not_end_an_unlimited_wait() {
        handle(libc::SA_RESTART, libc::SIGUSR2);
        let (connection, peer) = pair();
        thread::scope(|scope| {
            let (who, threads) = channel();
            let reader = scope.spawn({
                let (connection, who) = (&connection, who.clone());
                move || asker(connection, &who, None)
            });
            let reading = threads.recv().unwrap();
            let first = peer.request().unwrap();
            let follower = scope.spawn({
                let (connection, who) = (&connection, who.clone());
                move || asker(connection, &who, None)
            });
            let following = threads.recv().unwrap();
            let second = peer.request().unwrap();
            interrupt(reading, libc::SIGUSR2);
            interrupt(following, libc::SIGUSR2);
            thread::sleep(Duration::from_millis(30));
            peer.reply(second.number, Reply::Done);
            peer.reply(first.number, Reply::Done);
            assert!(reader.join().unwrap().is_ok());
            assert!(follower.join().unwrap().is_ok());
        });
    }

    /// The socket is full, so that the request waits in the system call that the signal ends.
    #[test]
    fn a_signal_does_not_lose_a_release() {
        handle(0, libc::SIGUSR1);
        let (connection, peer) = pair();
        let stamp = |tag| RequestPacket {
            number: connection.number(),
            request: Request::Stamp { tag },
        };
        let mut sent = 0;
        while connection
            .socket
            .send_now(&stamp(sent).encode(), &[])
            .is_ok()
        {
            sent += 1;
        }
        let unlock = || Request::Unlock { key: key(1) };
        thread::scope(|scope| {
            let (who, threads) = channel();
            let connection = &connection;
            let release = scope.spawn(move || {
                // SAFETY: no preconditions.
                who.send(unsafe { libc::pthread_self() }).unwrap();
                connection
                    .start_surely(unlock(), &[], None)
                    .unwrap()
                    .finish(None)
            });
            interrupt(threads.recv().unwrap(), libc::SIGUSR1);
            for _ in 0..sent {
                peer.request().unwrap();
            }
            let packet = peer.request().unwrap();
            assert_eq!(packet.request, unlock());
            peer.reply(packet.number, Reply::Done);
            assert_eq!(release.join().unwrap().unwrap().reply, Reply::Done);
        });
    }

    #[test]
    fn a_forked_child_is_refused_and_tells_nobody() {
        let (connection, peer) = pair();
        let call = connection.start(probe(1), &[], None).unwrap();
        peer.request().unwrap();
        // SAFETY: the child touches only this connection, allocates nothing that
        // another thread may have locked, and exits without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = matches!(connection.ask(probe(1), None), Err(Error::Forked));
            drop(call);
            connection.tell(probe(2));
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child just made.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        let silence = peer.0.recv_now(&mut [0; 64]).unwrap_err();
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
        drop(call);
        assert!(matches!(
            peer.request().unwrap().request,
            Request::Cancel { .. }
        ));
    }
}

#[test]
fn the_first_packet_introduces() {
    let (connection, peer) = pair();
    let daemon = thread::spawn(move || {
        let hello = peer.request().unwrap();
        assert!(matches!(hello.request, Request::Hello { .. }));
        let welcome = Reply::Welcome {
            client: ClientId(5),
            node: NodeId(3),
            device: false,
        };
        peer.reply(hello.number, welcome);
    });
    let mesh = crate::Mesh::over(connection).unwrap();
    assert_eq!((mesh.client(), mesh.node()), (ClientId(5), NodeId(3)));
    daemon.join().unwrap();
}

#[test]
fn a_daemon_that_stands_still_is_not_waited_for_for_ever() {
    let (connection, _peer) = pair();
    let silent = crate::Mesh::over_within(connection, Duration::from_millis(20)).unwrap_err();
    assert!(matches!(silent, Error::DaemonSilent), "{silent}");
}

/// A call whose result cannot be given back waits until it is known whether it happened.
#[test]
fn what_cannot_be_given_back_is_waited_for() {
    let (connection, peer) = pair();
    let daemon = thread::spawn(move || {
        let first = peer.request().unwrap().number;
        let cancel = peer.request().unwrap();
        assert_eq!(cancel.request, Request::Cancel { number: first });
        thread::sleep(Duration::from_millis(300));
        peer.reply(first, Reply::Done);
    });
    let call = connection.start(probe(1), &[], None).unwrap();
    let answer = call.surely(false).finish(after(Duration::from_millis(5)));
    assert_eq!(answer.unwrap().reply, Reply::Done);
    daemon.join().unwrap();
}
