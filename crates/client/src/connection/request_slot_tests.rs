//! Requests through the request slot, against a peer that has one but is no daemon.

use super::request_slot::OFTEN;
use super::tests::{Peer, key, pair};
use super::*;
use crate::bell::after;
use pagemesh_os::request_slot::{ROOM, RequestSlot};
use pagemesh_wire::local::Refusal;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::Duration;

fn lock(number: u64) -> Request {
    Request::Lock { key: key(number) }
}

const LOCKED: Reply = Reply::Locked { recovered: false };

/// The daemon's side of a request slot.
struct Host {
    peer: Peer,
    request_slot: RequestSlot,
}

impl Host {
    /// Serves a process until it has asked for a request slot, which is then open.
    fn of(peer: Peer) -> Self {
        loop {
            let packet = peer.request().unwrap();
            if packet.request == Request::RequestSlot {
                let request_slot = RequestSlot::create().unwrap();
                request_slot.look(true);
                let reply = ReplyPacket {
                    number: packet.number,
                    reply: Reply::RequestSlot,
                };
                peer.0
                    .send(&reply.encode(), &[request_slot.as_fd()])
                    .unwrap();
                return Self { peer, request_slot };
            }
            peer.reply(packet.number, LOCKED);
        }
    }

    /// The request in the slot, if any.
    fn look(&self) -> Option<RequestPacket> {
        let mut room = [0; ROOM];
        let length = self.request_slot.posted(&mut room)?;
        Some(RequestPacket::decode(&room[..length]).unwrap())
    }

    /// Waits for the next request in the slot.
    fn request(&self) -> RequestPacket {
        loop {
            if let Some(packet) = self.look() {
                self.request_slot.clear();
                return packet;
            }
            thread::yield_now();
        }
    }

    /// Answers in the slot, or through the socket if a starved process has waited too long in the slot.
    fn answer_somewhere(&self, number: u64) {
        if !self.answer(number) {
            self.peer.reply(number, LOCKED);
        }
    }

    /// Answers in the slot, if the answer is awaited there.
    fn answer(&self, number: u64) -> bool {
        let reply = LOCKED;
        self.request_slot
            .answer(number, &ReplyPacket { number, reply }.encode())
    }
}

/// A connection with a request slot, and the daemon's side of it.
fn slotted() -> (Connection, Host) {
    let (connection, peer) = pair();
    let host = thread::spawn(|| {
        let host = Host::of(peer);
        // The request behind that for the slot does not wait for it.
        let number = host.peer.request().unwrap().number;
        host.peer.reply(number, LOCKED);
        host
    });
    for _ in 0..OFTEN {
        connection.ask(lock(0), None).unwrap();
    }
    (connection, host.join().unwrap())
}

#[test]
fn who_asks_often_gets_a_request_slot_and_his_brief_requests_go_through_it() {
    let (connection, host) = slotted();
    let daemon = thread::spawn(move || {
        for number in 1..1000 {
            let packet = host.request();
            assert_eq!(packet.request, lock(number));
            host.answer_somewhere(packet.number);
        }
        // A request that is not brief comes through the socket.
        let packet = host.peer.request().unwrap();
        assert!(matches!(packet.request, Request::Members) && host.look().is_none());
        host.peer.reply(packet.number, Reply::Done);
    });
    for number in 1..1000 {
        assert_eq!(connection.ask(lock(number), None).unwrap().reply, LOCKED);
    }
    connection.ask(Request::Members, None).unwrap();
    daemon.join().unwrap();
}

/// A stopped daemon does not answer. Requests are sent all the same meanwhile, and in time.
#[test]
fn a_request_does_not_wait_for_the_slot_asked_for_before_it() {
    let (connection, peer) = pair();
    let brief = |number| {
        let call = connection.start(lock(number), &[], None).unwrap();
        call.surely(true).finish(after(Duration::from_millis(1)))
    };
    for number in 1..=u64::from(OFTEN) {
        assert!(matches!(brief(number), Err(Error::TimedOut)), "{number}");
    }
    let mut asked = Vec::new();
    while asked.last() != Some(&lock(OFTEN.into())) {
        asked.push(peer.request().unwrap().request);
    }
    assert_eq!(
        asked
            .iter()
            .filter(|one| **one == Request::RequestSlot)
            .count(),
        1
    );
}

#[test]
fn nothing_overtakes_what_was_told() {
    let (connection, host) = slotted();
    connection.tell(Request::Unlock { key: key(1) });
    let daemon = thread::spawn(move || {
        let told = host.peer.request().unwrap();
        assert_eq!(told.request, Request::Unlock { key: key(1) });
        let behind = host.peer.request().unwrap();
        assert_eq!(behind.request, lock(1), "behind it, in the socket");
        assert!(host.look().is_none());
        host.answer_somewhere(behind.number);
        let next = host.request();
        assert_eq!(next.request, lock(2), "what was told has been heard");
        host.answer_somewhere(next.number);
    });
    connection.ask(lock(1), None).unwrap();
    connection.ask(lock(2), None).unwrap();
    daemon.join().unwrap();
}

#[test]
fn an_answer_that_is_long_in_coming_comes_through_the_socket() {
    let (connection, host) = slotted();
    let daemon = thread::spawn(move || {
        let number = host.request().number;
        while host.request_slot.is_awaited(number) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!host.answer(number));
        host.peer.reply(number, LOCKED);
        // The deadline is checked on the socket, too.
        let late = host.request();
        let cancel = host.peer.request().unwrap().request;
        let number = late.number;
        assert_eq!(cancel, Request::Cancel { number });
        host.peer.reply(number, Reply::Refused(Refusal::Cancelled));
    });
    assert_eq!(connection.ask(lock(1), None).unwrap().reply, LOCKED);
    let late = connection.ask(lock(2), after(Duration::from_millis(5)));
    assert!(matches!(late, Err(Error::TimedOut)));
    daemon.join().unwrap();
}

#[test]
fn who_waits_at_the_request_slot_hears_of_the_end_of_the_daemon() {
    let (connection, host) = slotted();
    let daemon = thread::spawn(move || drop(host.request()));
    assert!(matches!(
        connection.ask(lock(1), None),
        Err(Error::DaemonGone)
    ));
    daemon.join().unwrap();
    assert!(connection.ask(lock(1), None).is_err());
}

#[test]
fn what_comes_through_the_request_slot_for_nobody_is_given_back() {
    let (connection, host) = slotted();
    let undo = Request::Unlock { key: key(1) };
    let call = connection.start(lock(1), &[], Some(undo.clone())).unwrap();
    let number = host.request().number;
    assert!(host.answer(number));
    drop(call);
    let requests = [(); 2].map(|()| host.peer.request().unwrap().request);
    assert_eq!(requests, [Request::Cancel { number }, undo]);
    let call = connection.start(lock(1), &[], None).unwrap();
    assert!(host.look().is_none(), "not before that is heard");
    drop(call);
}

#[test]
fn nonsense_in_the_request_slot_ends_the_connection_with_a_reason() {
    let (connection, host) = slotted();
    let daemon = thread::spawn(move || {
        let number = host.request().number;
        assert!(host.request_slot.answer(number, &[255; 9]));
        host
    });
    assert!(matches!(
        connection.ask(lock(1), None),
        Err(Error::Malformed(_))
    ));
    daemon.join().unwrap();
}

/// The daemon falls asleep at any moment, and is told through the socket of requests that it cannot
/// have seen.
#[test]
fn nobody_is_left_waiting_by_a_daemon_that_falls_asleep() {
    const ROUNDS: u64 = 3000;
    let (connection, host) = slotted();
    let daemon = thread::spawn(move || {
        let mut served = 0;
        while served < ROUNDS {
            host.request_slot.look(true);
            for _ in 0..served % 50 {
                if host.look().is_some() {
                    served += 1;
                    host.answer_somewhere(host.request().number);
                }
            }
            host.request_slot.look(false);
            if host.look().is_some() {
                served += 1;
                host.answer_somewhere(host.request().number);
                continue;
            }
            if served == ROUNDS {
                break;
            }
            let packet = host.peer.request().unwrap();
            if packet.request == Request::Knock {
                // It may concern a request that was served meanwhile.
                continue;
            }
            served += 1;
            host.answer_somewhere(packet.number);
        }
        // Wait until the other side has received the last answer.
        host
    });
    for number in 0..ROUNDS {
        let answer = connection.ask(lock(number), after(Duration::from_secs(20)));
        assert_eq!(answer.unwrap().reply, LOCKED, "{number}");
    }
    drop(daemon.join().unwrap());
}
