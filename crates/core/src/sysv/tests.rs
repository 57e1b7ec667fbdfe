//! The promises of the manual pages, checked directly on one home.

use super::*;
use pagemesh_wire::sysv::{
    Change, IPC_CREAT, IPC_EXCL, IPC_NOWAIT, Id, Kind, MSG_NOERROR, SEM_UNDO, SEMVMX, SemBuf,
    SemRead,
};
use pagemesh_wire::{CallId, PAGE_SIZE};

const HOME: NodeId = NodeId::FIRST;
const NODE: NodeId = NodeId(2);

/// One home, called by processes of two nodes.
#[derive(Default)]
struct Bench {
    room: Sysv,
    calls: u64,
    wall: u64,
    limits: Option<Limits>,
}

/// A process: node, client number, user.
type User = (NodeId, u32, u32);
const ROOT: User = (NODE, 1, 0);

impl Bench {
    fn ask(&mut self, user: User, op: Op) -> (Caller, Answers) {
        self.calls += 1;
        self.wall += 1;
        let (mut node, client, uid) = user;
        if getting::name_of(&op).is_some() {
            // A node makes an object only for its own processes.
            node = HOME;
        }
        let caller = Caller {
            node,
            call: CallId(self.calls),
        };
        let credentials = Credentials {
            uid,
            gid: uid,
            groups: vec![],
        };
        let who = pagemesh_wire::sysv::Who {
            client: ClientId(client),
            pid: client as i32,
            credentials,
        };
        let ask = Ask {
            who,
            wall: self.wall,
            limits: self.limits.unwrap_or_default(),
            op,
        };
        let answers = self.room.serve(Time(0), HOME, caller, &ask);
        (caller, answers)
    }

    /// The outcome for the caller itself, which is answered first.
    fn outcome(&mut self, user: User, op: Op) -> Outcome {
        let (caller, answers) = self.ask(user, op);
        match &answers.replies[..] {
            [(to, Reply::Sysv(outcome)), ..] if *to == caller => outcome.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn number(&mut self, user: User, op: Op) -> std::result::Result<i32, Errno> {
        match self.outcome(user, op) {
            Outcome::Number(number) => Ok(number),
            Outcome::Failed(errno) => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    /// Makes a call that waits, and returns its caller.
    fn sleeper(&mut self, user: User, op: Op) -> Caller {
        let (caller, answers) = self.ask(user, op);
        assert_eq!(answers.replies, [(caller, Reply::Waiting)]);
        caller
    }

    /// The other callers that are answered by this call.
    fn wakes(&mut self, user: User, op: Op) -> Vec<Caller> {
        let (caller, answers) = self.ask(user, op);
        let others = answers.replies.iter().filter(|(to, _)| *to != caller);
        others.map(|(to, _)| *to).collect()
    }

    fn set(&mut self, count: i32) -> Id {
        let get = Op::SemGet {
            key: 0,
            count,
            flags: 0o600,
        };
        Id(self.number(ROOT, get).unwrap())
    }

    fn queue(&mut self) -> Id {
        Id(self
            .number(
                ROOT,
                Op::MsgGet {
                    key: 0,
                    flags: 0o600,
                },
            )
            .unwrap())
    }

    fn value(&mut self, id: Id, what: SemRead) -> i32 {
        let read = Op::SemGetOne {
            id,
            number: 0,
            what,
        };
        self.number(ROOT, read).unwrap()
    }

    fn exit(&mut self, user: User) -> Answers {
        let from = Caller {
            node: user.0,
            call: CallId(9999),
        };
        let news = News::Exit {
            client: ClientId(user.1),
            pid: user.1 as i32,
        };
        self.room.told(Time(0), from, news)
    }
}

fn op(number: u16, op: i16, flags: i16) -> SemBuf {
    SemBuf { number, op, flags }
}

fn semop(id: Id, ops: &[SemBuf]) -> Op {
    Op::SemOp {
        id,
        ops: ops.to_vec(),
    }
}

fn send(id: Id, kind: i64, text: &[u8], flags: i32) -> Op {
    Op::MsgSend {
        id,
        kind: Kind(kind),
        text: text.to_vec(),
        flags,
    }
}

fn receive(id: Id, room: u64, kind: i64, flags: i32) -> Op {
    Op::MsgReceive {
        id,
        room,
        kind: Kind(kind),
        flags,
    }
}

#[test]
fn gets_find_make_and_refuse_by_key() {
    let mut bench = Bench::default();
    let get = |key, flags| Op::MsgGet { key, flags };
    assert_eq!(bench.number(ROOT, get(7, 0)), Err(Errno::ENOENT));
    let id = bench.number(ROOT, get(7, IPC_CREAT | 0o600)).unwrap();
    assert_eq!(bench.number(ROOT, get(7, 0)), Ok(id));
    let again = get(7, IPC_CREAT | IPC_EXCL | 0o600);
    assert_eq!(bench.number(ROOT, again), Err(Errno::EEXIST));
    let user = (NODE, 2, 1000);
    assert_eq!(bench.number(user, get(7, 0o600)), Err(Errno::EACCES));
    assert_eq!(
        bench.number(user, get(7, 0)),
        Ok(id),
        "nothing was asked for"
    );
    let remove = Op::Remove {
        family: Family::Msg,
        id: Id(id),
    };
    assert_eq!(bench.number(user, remove.clone()), Err(Errno::EPERM));
    assert_eq!(bench.number(ROOT, remove.clone()), Ok(0));
    assert_eq!(bench.number(ROOT, remove), Err(Errno::EINVAL));
    let next = bench.number(ROOT, get(7, IPC_CREAT)).unwrap();
    assert_ne!(next, id, "numbers come again late");
}

/// Walks as `ipcs` and `SHM_STAT` do: each object has one index, also at the first node, whose
/// private objects are in one table with all others.
#[test]
fn a_walk_by_index_finds_each_object_once() {
    let mut bench = Bench::default();
    let mut made: Vec<_> = (0..3).map(|_| bench.queue()).collect();
    made.sort();
    let family = Family::Msg;
    let Outcome::Usage(usage) = bench.outcome(ROOT, Op::Info { family }) else {
        panic!("no usage");
    };
    let found = (0..=usage.highest).filter_map(|index| {
        let pick = Pick::Index(index);
        match bench.outcome(ROOT, Op::Stat { family, pick }) {
            Outcome::Msg(stat) => Some(stat.id),
            other => {
                assert_eq!(other, Outcome::Failed(Errno::EINVAL));
                None
            }
        }
    });
    assert_eq!(found.collect::<Vec<_>>(), made);
}

#[test]
fn limits_are_those_of_the_moment() {
    let mut bench = Bench::default();
    let mut limits = Limits {
        shmmni: 1,
        shmall: 2,
        semmsl: 3,
        semopm: 1,
        msgmax: 4,
        ..Limits::default()
    };
    bench.limits = Some(limits);
    let get = |size| Op::ShmGet {
        key: 0,
        size,
        flags: 0o600,
    };
    let page = PAGE_SIZE as u64;
    assert_eq!(bench.number(ROOT, get(0)), Err(Errno::EINVAL));
    assert_eq!(bench.number(ROOT, get(2 * page + 1)), Err(Errno::ENOSPC));
    assert!(bench.number(ROOT, get(page)).is_ok());
    assert_eq!(bench.number(ROOT, get(page)), Err(Errno::ENOSPC));
    limits.shmmni = 2;
    bench.limits = Some(limits);
    assert!(bench.number(ROOT, get(page)).is_ok());
    let sems = |count| Op::SemGet {
        key: 0,
        count,
        flags: 0o600,
    };
    for bad in [-1, 0, 4] {
        assert_eq!(bench.number(ROOT, sems(bad)), Err(Errno::EINVAL), "{bad}");
    }
    let set = bench.set(3);
    let two = semop(set, &[op(0, 1, 0), op(1, 1, 0)]);
    assert_eq!(bench.number(ROOT, two), Err(Errno::E2BIG));
    let queue = bench.queue();
    assert_eq!(
        bench.number(ROOT, send(queue, 1, b"12345", 0)),
        Err(Errno::EINVAL)
    );
    assert_eq!(
        bench.number(ROOT, send(queue, 0, b"1234", 0)),
        Err(Errno::EINVAL)
    );
    assert_eq!(bench.number(ROOT, send(queue, 1, b"1234", 0)), Ok(0));
}

#[test]
fn all_operations_happen_or_none_in_the_order_of_arrival() {
    let mut bench = Bench::default();
    let id = bench.set(2);
    let both = semop(id, &[op(0, -1, 0), op(1, -1, 0)]);
    let first = bench.sleeper(ROOT, both);
    let second = bench.sleeper(ROOT, semop(id, &[op(0, -1, 0)]));
    assert_eq!(bench.value(id, SemRead::Rising), 2);
    assert_eq!(bench.wakes(ROOT, semop(id, &[op(1, 1, 0)])), []);
    // Both could go on now; the first to come goes first.
    assert_eq!(bench.wakes(ROOT, semop(id, &[op(0, 1, 0)])), [first]);
    assert_eq!(bench.wakes(ROOT, semop(id, &[op(0, 1, 0)])), [second]);
    assert_eq!(bench.value(id, SemRead::Value), 0);
    let zero = bench.sleeper(ROOT, semop(id, &[op(0, 2, 0), op(0, 0, 0)]));
    bench.room.cancel(zero);
    assert_eq!(bench.value(id, SemRead::Zero), 0);
    let nowait = IPC_NOWAIT as i16;
    let no = semop(id, &[op(0, 1, 0), op(1, -1, nowait)]);
    assert_eq!(bench.number(ROOT, no), Err(Errno::EAGAIN));
    assert_eq!(bench.value(id, SemRead::Value), 0, "none happened");
    assert_eq!(
        bench.number(ROOT, semop(id, &[op(2, 1, 0)])),
        Err(Errno::EFBIG)
    );
    bench.number(ROOT, semop(id, &[op(0, 32767, 0)])).unwrap();
    assert_eq!(
        bench.number(ROOT, semop(id, &[op(0, 1, 0)])),
        Err(Errno::ERANGE)
    );
}

#[test]
fn what_is_to_be_undone_is_undone_at_the_end() {
    let mut bench = Bench::default();
    let id = bench.set(1);
    let user = (NODE, 5, 0);
    let set = Op::SemSetOne {
        id,
        number: 0,
        value: 3,
    };
    bench.number(ROOT, set.clone()).unwrap();
    bench
        .number(user, semop(id, &[op(0, -2, SEM_UNDO)]))
        .unwrap();
    let waiter = bench.sleeper(ROOT, semop(id, &[op(0, -3, 0)]));
    let answers = bench.exit(user);
    assert_eq!(answers.replies, [(waiter, Reply::Sysv(Outcome::Number(0)))]);
    assert_eq!(bench.value(id, SemRead::Value), 0);
    // SETVAL drops what was to be undone.
    bench
        .number(user, semop(id, &[op(0, 5, SEM_UNDO)]))
        .unwrap();
    bench.number(ROOT, set).unwrap();
    bench.exit(user);
    assert_eq!(bench.value(id, SemRead::Value), 3);
    // The same happens when a node is gone.
    bench
        .number(user, semop(id, &[op(0, -3, SEM_UNDO)]))
        .unwrap();
    let lost = bench.sleeper(user, semop(id, &[op(0, -1, 0)]));
    let answers = bench.room.processes_gone(Time(0), NODE);
    assert!(answers.replies.iter().all(|(to, _)| *to != lost));
    assert_eq!(bench.value(id, SemRead::Value), 3);
}

#[test]
fn sleepers_learn_that_their_set_is_removed() {
    let mut bench = Bench::default();
    let id = bench.set(1);
    let sleeper = bench.sleeper(ROOT, semop(id, &[op(0, -1, 0)]));
    let family = Family::Sem;
    let (_, answers) = bench.ask(ROOT, Op::Remove { family, id });
    let failed = Reply::Sysv(Outcome::Failed(Errno::EIDRM));
    assert!(answers.replies.contains(&(sleeper, failed)));
    let after = semop(id, &[op(0, -1, 0)]);
    assert_eq!(bench.number(ROOT, after), Err(Errno::EINVAL));
}

#[test]
fn semaphores_are_set_and_read() {
    let mut bench = Bench::default();
    let id = bench.set(2);
    let set = |number, value| Op::SemSetOne { id, number, value };
    assert_eq!(bench.number(ROOT, set(0, -1)), Err(Errno::ERANGE));
    assert_eq!(bench.number(ROOT, set(0, SEMVMX + 1)), Err(Errno::ERANGE));
    assert_eq!(bench.number(ROOT, set(2, 0)), Err(Errno::EINVAL));
    let waits = bench.sleeper(ROOT, semop(id, &[op(1, -300, 0)]));
    let values = vec![7, 0, 0x2c, 1];
    assert_eq!(bench.wakes(ROOT, Op::SemSetAll { id, values }), [waits]);
    let all = bench.outcome(ROOT, Op::SemGetAll { id });
    assert_eq!(all, Outcome::Values(vec![7, 0, 0, 0]));
    let short = Op::SemSetAll {
        id,
        values: vec![0; 3],
    };
    assert_eq!(bench.number(ROOT, short), Err(Errno::EINVAL));
    let large = Op::SemSetAll {
        id,
        values: vec![0xff; 4],
    };
    assert_eq!(bench.number(ROOT, large), Err(Errno::ERANGE));
}

#[test]
fn messages_are_taken_by_type() {
    let mut bench = Bench::default();
    let id = bench.queue();
    for (kind, text) in [(3, b"c"), (1, b"a"), (2, b"b"), (1, b"d")] {
        bench.number(ROOT, send(id, kind, text, 0)).unwrap();
    }
    let mut take = |kind, flags| match bench.outcome(ROOT, receive(id, 10, kind, flags)) {
        Outcome::Message { text, .. } => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(take(2, 0), b"b");
    assert_eq!(take(-2, 0), b"a", "the lowest type");
    assert_eq!(take(1, pagemesh_wire::sysv::MSG_EXCEPT), b"c");
    let copy = IPC_NOWAIT | pagemesh_wire::sysv::MSG_COPY;
    assert_eq!(take(0, copy), b"d");
    assert_eq!(take(0, 0), b"d");
    let none = receive(id, 10, 0, IPC_NOWAIT);
    assert_eq!(bench.number(ROOT, none), Err(Errno::ENOMSG));
}

#[test]
fn senders_wait_for_room_and_receivers_for_messages() {
    let limits = Limits {
        msgmnb: 4,
        ..Limits::default()
    };
    let mut bench = Bench {
        limits: Some(limits),
        ..Bench::default()
    };
    let id = bench.queue();
    let small = bench.sleeper(ROOT, receive(id, 1, 1, 0));
    let large = bench.sleeper(ROOT, receive(id, 2, 0, 0));
    let (_, answers) = bench.ask(ROOT, send(id, 1, b"xy", 0));
    let too_big = (small, Reply::Sysv(Outcome::Failed(Errno::E2BIG)));
    assert!(answers.replies.contains(&too_big), "{answers:?}");
    assert!(answers.replies.iter().any(|(to, _)| *to == large));
    bench.number(ROOT, send(id, 1, b"1234", 0)).unwrap();
    assert_eq!(
        bench.number(ROOT, send(id, 1, b"5", IPC_NOWAIT)),
        Err(Errno::EAGAIN)
    );
    let sender = bench.sleeper(ROOT, send(id, 2, b"56", 0));
    assert_eq!(bench.number(ROOT, receive(id, 3, 0, 0)), Err(Errno::E2BIG));
    assert_eq!(bench.wakes(ROOT, receive(id, 3, 0, MSG_NOERROR)), [sender]);
    let change = Change {
        uid: 0,
        gid: 0,
        mode: 0o600,
        qbytes: 5,
    };
    let family = Family::Msg;
    let user = (NODE, 9, 7);
    assert_eq!(
        bench.number(user, Op::Set { family, id, change }),
        Err(Errno::EPERM)
    );
    assert_eq!(bench.number(ROOT, Op::Set { family, id, change }), Ok(0));
}

#[test]
fn a_segment_goes_with_its_last_attachment() {
    let mut bench = Bench::default();
    let get = Op::ShmGet {
        key: 5,
        size: 5000,
        flags: IPC_CREAT | 0o640,
    };
    let id = Id(bench.number(ROOT, get.clone()).unwrap());
    let attach = Op::ShmAttach {
        id,
        write: true,
        exec: false,
    };
    let (caller, answers) = bench.ask(ROOT, attach.clone());
    let [(_, Reply::Segment(info))] = &answers.replies[..] else {
        panic!("{answers:?}");
    };
    assert_eq!((info.id.home(), info.spec.size.0), (HOME, 5000));
    let user = (NodeId(3), 2, 1000);
    assert_eq!(bench.number(user, attach.clone()), Err(Errno::EACCES));
    let family = Family::Shm;
    let (_, answers) = bench.ask(ROOT, Op::Remove { family, id });
    assert!(answers.unused.is_empty(), "attached");
    assert_eq!(
        bench.number(
            ROOT,
            Op::ShmGet {
                key: 5,
                size: 0,
                flags: 0
            }
        ),
        Err(Errno::ENOENT)
    );
    // Linux lets a process attach a segment that is marked for removal.
    let (again, answers) = bench.ask(ROOT, attach);
    assert!(matches!(answers.replies[..], [(_, Reply::Segment(_))]));
    let mut told = |call: CallId, count| {
        let from = Caller { node: NODE, call };
        let news = News::Attached {
            id,
            count,
            pid: 1,
            detached: true,
        };
        bench.room.told(Time(0), from, news).unused.len()
    };
    // News sent before the second attachment, but received after it.
    let between = CallId(caller.call.0 + 1);
    assert!(between < again.call);
    assert_eq!(told(between, 0), 0, "the second attachment is there");
    let after = CallId(again.call.0 + 1);
    assert_eq!(told(after, 1), 0);
    assert_eq!(told(between, 0), 0, "overtaken");
    assert_eq!(told(CallId(after.0 + 1), 0), 1);
    assert_eq!(bench.room.shm.info(id), None);
}
