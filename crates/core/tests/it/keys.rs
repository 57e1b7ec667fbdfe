//! Keys of System V objects: what is said about them, and what is not.

use crate::common::{CLIENT, Cluster};
use core::time::Duration;
use pagemesh_core::{Reply, Request};
use pagemesh_wire::peer::{self, Call, Credentials, Message, Refusal};
use pagemesh_wire::sysv::{
    Ask, Errno, Family, IPC_CREAT, IPC_EXCL, IPC_PRIVATE, Id, Limits, Op, Outcome, SemBuf, Who,
};
use pagemesh_wire::{NodeId, Ticket};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);

pub fn call(cluster: &mut Cluster, node: NodeId, op: Op) -> Ticket {
    let credentials = Credentials::root();
    let ask = Ask {
        who: Who {
            client: CLIENT,
            pid: 1,
            credentials,
        },
        wall: 1,
        limits: Limits::default(),
        op,
    };
    cluster.ask(node, Request::Sysv(Box::new(ask)))
}

pub fn get(key: i32, flags: i32) -> Op {
    Op::SemGet {
        key,
        count: 1,
        flags: flags | 0o600,
    }
}

/// The result of the call, without loss.
pub fn ends(cluster: &mut Cluster, node: NodeId, op: Op) -> Result<i32, Errno> {
    let ticket = call(cluster, node, op);
    cluster.settle();
    match cluster.reply(ticket) {
        Some(Reply::Sysv(Outcome::Number(number))) => Ok(*number),
        Some(Reply::Sysv(Outcome::Failed(errno))) => Err(*errno),
        other => panic!("{other:?}"),
    }
}

fn remove(id: i32) -> Op {
    Op::Remove {
        family: Family::Sem,
        id: Id(id),
    }
}

fn semop(id: i32) -> Op {
    let op = SemBuf {
        number: 0,
        op: 1,
        flags: 0,
    };
    Op::SemOp {
        id: Id(id),
        ops: vec![op],
    }
}

/// Datagrams about System V since the last look.
fn said(cluster: &mut Cluster) -> usize {
    let about = |message: &Message| match message {
        Message::Call { body, .. } => matches!(
            body,
            Call::Sysv(_)
                | Call::SysvNews(_)
                | Call::SysvKey { .. }
                | Call::SysvLend { .. }
                | Call::SysvRecall { .. }
        ),
        _ => false,
    };
    let sent = &cluster.sent;
    let count = sent.iter().filter(|(_, _, message)| about(message)).count();
    cluster.forget();
    count
}

#[test]
fn a_node_that_is_alone_says_something_once() {
    let mut cluster = Cluster::new(3);
    said(&mut cluster);
    let set = ends(&mut cluster, N2, get(7, IPC_CREAT)).unwrap();
    assert_eq!(said(&mut cluster), 2, "it asks, and is lent everything");
    for key in [7, 8, 9, IPC_PRIVATE] {
        let again = ends(&mut cluster, N2, get(key, IPC_CREAT)).unwrap();
        assert_eq!(again == set, key == 7);
        ends(&mut cluster, N2, semop(again)).unwrap();
        assert_eq!(ends(&mut cluster, N2, remove(again)), Ok(0));
        let unknown = ends(&mut cluster, N2, get(key + 100, 0));
        assert_eq!(unknown, Err(Errno::ENOENT));
        let new = get(key + 200, IPC_CREAT | IPC_EXCL);
        let new = ends(&mut cluster, N2, new).unwrap();
        let exists = ends(&mut cluster, N2, get(key + 200, IPC_CREAT | IPC_EXCL));
        assert_eq!(exists, Err(Errno::EEXIST));
        ends(&mut cluster, N2, remove(new)).unwrap();
    }
    assert_eq!(said(&mut cluster), 0);
    // Another node asks for one of its keys: that bucket is recalled, the others stay.
    let mine = ends(&mut cluster, N2, get(7, IPC_CREAT)).unwrap();
    said(&mut cluster);
    assert_eq!(ends(&mut cluster, N3, get(7, 0)), Ok(mine));
    assert_eq!(said(&mut cluster), 3, "register, recall, home");
    assert_eq!(ends(&mut cluster, N2, get(7, 0)), Ok(mine));
    ends(&mut cluster, N2, get(8, IPC_CREAT)).unwrap();
    assert_eq!(said(&mut cluster), 0);
    assert_eq!(ends(&mut cluster, N2, remove(mine)), Ok(0));
    assert_eq!(said(&mut cluster), 1, "the key is free");
    let theirs = ends(&mut cluster, N3, get(7, IPC_CREAT | IPC_EXCL)).unwrap();
    assert_eq!(Id(theirs).home(), Some(N3));
    assert_eq!(said(&mut cluster), 2, "it asks, and is lent the bucket");
    assert_eq!(ends(&mut cluster, N3, remove(theirs)), Ok(0));
    assert_eq!(said(&mut cluster), 0);
}

/// A key whose removal the register does not know yet is free all the same.
#[test]
fn a_key_is_free_before_the_register_knows() {
    let mut cluster = Cluster::new(3);
    let mine = ends(&mut cluster, N2, get(7, IPC_CREAT)).unwrap();
    assert_eq!(ends(&mut cluster, N3, get(7, 0)), Ok(mine));
    let removal = call(&mut cluster, N2, remove(mine));
    let done = Reply::Sysv(Outcome::Number(0));
    assert_eq!(cluster.reply(removal), Some(&done), "at once");
    let strikes = |message: &Message| {
        let Message::Call { body, .. } = message else {
            return false;
        };
        matches!(body, Call::SysvKey { .. })
    };
    // The word of it is lost; the next asks the home, which knows better.
    cluster.deliver(|_, message| !strikes(message));
    let new = call(&mut cluster, N3, get(7, IPC_CREAT | IPC_EXCL));
    cluster.deliver(|_, _| true);
    assert_eq!(cluster.reply(new), None, "until the register knows");
    let old = call(&mut cluster, N2, get(7, 0));
    cluster.pass(Duration::from_secs(1));
    let Some(Reply::Sysv(Outcome::Number(id))) = cluster.reply(new) else {
        panic!("{:?}", cluster.reply(new));
    };
    assert_eq!(Id(*id).home(), Some(N3));
    let heard = cluster.reply(old).cloned();
    let none = Reply::Sysv(Outcome::Failed(Errno::ENOENT));
    let there = Reply::Sysv(Outcome::Number(*id));
    assert!(heard == Some(none) || heard == Some(there), "{heard:?}");
}

/// No call waits for ever for a silent register, neither a get that asked it nor one that waits for
/// the end of that; objects at home here go on, and so does everything else when the first node is
/// back.
#[test]
fn nobody_waits_for_ever_for_a_silent_register() {
    let mut cluster = Cluster::new(3);
    let mine = ends(&mut cluster, N2, get(7, IPC_CREAT)).unwrap();
    cluster.stop(N1);
    let waiting = [
        call(&mut cluster, N3, get(7, 0)),
        call(&mut cluster, N3, get(7, IPC_CREAT)),
    ];
    assert_eq!(ends(&mut cluster, N2, semop(mine)), Ok(0));
    assert!(ends(&mut cluster, N2, get(8, IPC_CREAT)).is_ok());
    cluster.pass(Duration::from_secs(20));
    let gone = Reply::Refused(Refusal::NodeGone(N1));
    for ticket in waiting {
        assert_eq!(cluster.reply(ticket), Some(&gone));
    }
    let later = call(&mut cluster, N3, get(7, 0));
    cluster.pass(Duration::from_secs(20));
    assert_eq!(cluster.reply(later), Some(&gone));
    cluster.go_on(N1);
    cluster.pass(Duration::from_secs(3));
    assert_eq!(ends(&mut cluster, N3, get(7, 0)), Ok(mine));
}

/// A node is lent a bucket before it hears that its object has the key: it does not take
/// it, since it could not say what is in it.
#[test]
fn nobody_takes_keys_of_which_one_is_under_way() {
    let mut cluster = Cluster::new(3);
    let mine = call(&mut cluster, N2, get(7, IPC_CREAT));
    let word = |message: &Message| {
        let Message::Reply { body, .. } = message else {
            return false;
        };
        matches!(body, peer::Reply::SysvKey(_))
    };
    cluster.deliver(|to, message| to != N2 || !word(message));
    assert_eq!(cluster.reply(mine), None);
    let new = call(&mut cluster, N3, get(7, IPC_CREAT | IPC_EXCL));
    cluster.deliver(|to, message| to != N2 || !word(message));
    let exists = Reply::Sysv(Outcome::Failed(Errno::EEXIST));
    assert_eq!(cluster.reply(new), None, "its home does not know yet");
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.reply(new), Some(&exists));
    let Some(Reply::Sysv(Outcome::Number(mine))) = cluster.reply(mine).cloned() else {
        panic!("{:?}", cluster.reply(mine));
    };
    assert_eq!(ends(&mut cluster, N3, get(7, 0)), Ok(mine));
}
