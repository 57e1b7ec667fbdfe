//! Results that come after their thread has stopped waiting are given back.

use super::tests::{key, pair, probe};
use super::*;
use crate::bell::after;
use pagemesh_wire::local::Refusal;
use pagemesh_wire::sysv::{Id, Op, Outcome, SemBuf};
use std::thread;
use std::time::Duration;

/// A request that takes `what`, and the one that gives it back.
fn taken(what: i16) -> [Request; 2] {
    let buf = |op| SemBuf {
        number: 0,
        op,
        flags: 0,
    };
    let [take, back] = [-what, what].map(|op| vec![buf(op)]);
    [take, back].map(|ops| Request::Sysv(Op::SemOp { id: Id(1), ops }))
}

#[test]
fn what_comes_for_nobody_is_given_back() {
    let (connection, peer) = pair();
    let [take, undo] = taken(1);
    let call = connection.start(take, &[], Some(undo.clone())).unwrap();
    drop(call);
    let request = peer.request().unwrap();
    let cancel = peer.request().unwrap().request;
    let number = request.number;
    assert_eq!(cancel, Request::Cancel { number });
    let done = Reply::Sysv(Outcome::Number(0));
    peer.reply(request.number, done);
    let daemon = thread::spawn(move || {
        let probe = peer.request().unwrap();
        let undone = peer.request().unwrap();
        peer.reply(probe.number, Reply::Done);
        undone.request
    });
    connection.ask(probe(1), None).unwrap();
    assert_eq!(daemon.join().unwrap(), undo);
}

/// The process may never read that it was granted.
#[test]
fn a_lock_that_may_be_granted_late_is_released_at_once() {
    let (connection, peer) = pair();
    let undo = Request::Unlock { key: key(1) };
    let lock = Request::Lock { key: key(1) };
    let call = connection.start(lock, &[], Some(undo.clone())).unwrap();
    let late = call.surely(true).finish(after(Duration::from_millis(5)));
    assert!(matches!(late, Err(Error::TimedOut)));
    let number = peer.request().unwrap().number;
    let then = [(); 2].map(|()| peer.request().unwrap().request);
    assert_eq!(then, [Request::Cancel { number }, undo]);
    // A lock that was refused is not released.
    let [lock, undo] = [
        Request::Lock { key: key(2) },
        Request::Unlock { key: key(2) },
    ];
    let daemon = thread::spawn(move || {
        let number = peer.request().unwrap().number;
        peer.request().unwrap();
        peer.reply(number, Reply::Refused(Refusal::Cancelled));
        peer.request().unwrap().request
    });
    let call = connection.start(lock, &[], Some(undo)).unwrap();
    assert!(call.finish(after(Duration::from_millis(5))).is_err());
    connection.tell(probe(1));
    assert_eq!(daemon.join().unwrap(), probe(1));
}

/// A deadline holds although the daemon is silent; its late result is given back.
#[test]
fn what_a_silent_daemon_gives_late_is_given_back() {
    let (connection, peer) = pair();
    let [take, undo] = taken(1);
    let daemon = thread::spawn(move || {
        let taken = peer.request().unwrap().number;
        let cancel = peer.request().unwrap();
        assert_eq!(cancel.request, Request::Cancel { number: taken });
        let next = peer.request().unwrap().number;
        peer.reply(taken, Reply::Sysv(Outcome::Number(0)));
        peer.reply(next, Reply::Done);
        peer.request().unwrap().request
    });
    let call = connection.start(take, &[], Some(undo.clone())).unwrap();
    let late = call.surely(true).finish(after(Duration::from_millis(5)));
    assert!(matches!(late, Err(Error::TimedOut)));
    let answer = connection.ask(probe(1), None).unwrap();
    assert_eq!(answer.reply, Reply::Done);
    assert_eq!(daemon.join().unwrap(), undo);
}
