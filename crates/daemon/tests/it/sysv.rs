//! System V calls that no library would make, to a real daemon: each is answered or
//! ends its own session, limits are errors, and what others have stays as it was.

use crate::common::{Client, Daemon};
use pagemesh_os::seqpacket::Socket;
use pagemesh_sim::Chance;
use pagemesh_wire::local::{Reply, Request, RequestPacket};
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::sysv::{
    Errno, Family, IPC_NOWAIT, IPC_PRIVATE, Id, Kind, MESSAGE, OBJECTS, OPERATIONS, Op, Outcome,
    SEMAPHORES, SemBuf,
};

/// A call of a process, with the credentials from the kernel.
fn call(client: &mut Client, op: Op) -> Reply {
    client.ask(Request::Sysv(op))
}

fn outcome(client: &mut Client, op: Op) -> Outcome {
    match call(client, op) {
        Reply::Sysv(outcome) => outcome,
        other => panic!("{other:?}"),
    }
}

fn make(client: &mut Client, op: Op) -> Id {
    match outcome(client, op) {
        Outcome::Number(id) => Id(id),
        other => panic!("{other:?}"),
    }
}

fn failed(client: &mut Client, op: Op, why: Errno) {
    assert_eq!(outcome(client, op), Outcome::Failed(why));
}

const MODE: i32 = 0o600;

fn set(count: i32) -> Op {
    Op::SemGet {
        key: IPC_PRIVATE,
        count,
        flags: MODE,
    }
}

const QUEUE: Op = Op::MsgGet {
    key: IPC_PRIVATE,
    flags: MODE,
};

fn send(id: Id, bytes: usize) -> Op {
    Op::MsgSend {
        id,
        kind: Kind(1),
        text: vec![7; bytes],
        flags: IPC_NOWAIT,
    }
}

/// The resources of a process that does nothing wrong.
struct Bystander {
    client: Client,
    set: Id,
    queue: Id,
}

impl Bystander {
    fn of(daemon: &Daemon) -> Self {
        let mut client = daemon.client();
        let (set, queue) = (make(&mut client, set(3)), make(&mut client, QUEUE));
        let values = [5_u16, 6, 7].iter().flat_map(|value| value.to_le_bytes());
        let all = Op::SemSetAll {
            id: set,
            values: values.collect(),
        };
        assert_eq!(outcome(&mut client, all), Outcome::Number(0));
        assert_eq!(outcome(&mut client, send(queue, 9)), Outcome::Number(0));
        Self { client, set, queue }
    }

    fn owns(&self, id: Id) -> bool {
        id == self.set || id == self.queue
    }

    /// All is as it was.
    fn check(mut self) {
        let values = [5_u16, 6, 7].iter().flat_map(|value| value.to_le_bytes());
        let all = Op::SemGetAll { id: self.set };
        let values = Outcome::Values(values.collect());
        assert_eq!(outcome(&mut self.client, all), values);
        let receive = Op::MsgReceive {
            id: self.queue,
            room: 100,
            kind: Kind(0),
            flags: IPC_NOWAIT,
        };
        let message = Outcome::Message {
            kind: Kind(1),
            text: vec![7; 9],
        };
        assert_eq!(outcome(&mut self.client, receive), message);
        assert!(self.client.status().node.is_valid());
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.throw() % limit as u64) as usize
    }
}

impl Chance for Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.below(limit)
    }
}

/// The same nonsense as for the simulator's nodes; here no call waits for ever.
fn nonsense(dice: &mut Dice) -> Op {
    pagemesh_sim::nonsense(dice, &[], IPC_NOWAIT)
}

/// The object that an operation names, whatever its family.
fn named(op: &Op) -> Option<Id> {
    match op {
        Op::Remove { id, .. } | Op::SemSetAll { id, .. } | Op::SemSetOne { id, .. } => Some(*id),
        _ => None,
    }
}

#[test]
fn nonsense_of_system_v_is_answered_and_harms_nobody() {
    let daemon = Daemon::start(|_| {});
    let bystander = Bystander::of(&daemon);
    let mut client = daemon.client();
    let mut dice = Dice(11);
    for _ in 0..3000 {
        let op = nonsense(&mut dice);
        if named(&op).is_some_and(|id| bystander.owns(id)) {
            continue;
        }
        // An answer of some kind, and the session goes on.
        let reply = call(&mut client, op.clone());
        let fits = matches!(
            reply,
            Reply::Sysv(_) | Reply::Opened { .. } | Reply::Refused(_)
        );
        assert!(fits, "{op:?}: {reply:?}");
    }
    assert!(client.status().node.is_valid());
    bystander.check();
    drop(client);
    daemon.end().unwrap();
}

#[test]
fn malformed_calls_of_system_v_end_their_session_and_no_other() {
    let daemon = Daemon::start(|_| {});
    let bystander = Bystander::of(&daemon);
    let mut dice = Dice(12);
    let mut refused = 0;
    for _ in 0..400 {
        let op = nonsense(&mut dice);
        let request = Request::Sysv(op);
        let mut bytes = RequestPacket { number: 7, request }.encode();
        bytes.truncate(4096);
        // An empty packet would be an orderly end.
        let place = 1 + dice.below(bytes.len() - 1);
        match dice.below(3) {
            0 => bytes.truncate(place),
            1 => bytes.push(dice.throw() as u8),
            _ => bytes[0] ^= 0x80,
        }
        let client = Client::hello(Socket::connect(&daemon.socket).unwrap());
        client.socket.send(&bytes, &[]).unwrap();
        let mut buffer = vec![0; pagemesh_wire::local::MAX_PACKET];
        // Cut off, or answered if what is left happens to be a request.
        refused += usize::from(matches!(client.socket.recv(&mut buffer), Ok(None) | Err(_)));
    }
    assert!(refused > 200, "{refused} of 400");
    let mut client = daemon.client();
    assert!(client.counter("sessions_refused") >= refused as u64);
    bystander.check();
    drop(client);
    daemon.end().unwrap();
}

#[test]
fn limits_of_system_v_are_errors() {
    let daemon = Daemon::start(|_| {});
    let bystander = Bystander::of(&daemon);
    let mut client = daemon.client();
    // A set that does not fit into a datagram.
    failed(&mut client, set(SEMAPHORES as i32 + 1), Errno::EINVAL);
    let id = make(&mut client, set(2));
    let buf = SemBuf {
        number: 0,
        op: 1,
        flags: 0,
    };
    let ops = vec![buf; OPERATIONS as usize + 1];
    failed(&mut client, Op::SemOp { id, ops }, Errno::E2BIG);
    let values = vec![0; 2 * SEMAPHORES as usize + 2];
    failed(&mut client, Op::SemSetAll { id, values }, Errno::EINVAL);
    let far = SemBuf { number: 2, ..buf };
    failed(&mut client, Op::SemOp { id, ops: vec![far] }, Errno::EFBIG);
    let full = SemBuf {
        op: i16::MAX,
        ..buf
    };
    let filled = Op::SemOp {
        id,
        ops: vec![full],
    };
    assert_eq!(outcome(&mut client, filled), Outcome::Number(0));
    failed(&mut client, Op::SemOp { id, ops: vec![buf] }, Errno::ERANGE);
    // A queue that is full.
    let queue = make(&mut client, QUEUE);
    failed(
        &mut client,
        send(queue, MESSAGE as usize + 1),
        Errno::EINVAL,
    );
    let fits = (0..100)
        .take_while(|_| outcome(&mut client, send(queue, 1000)) == Outcome::Number(0))
        .count();
    assert!(fits > 1 && fits < 100, "{fits}");
    failed(&mut client, send(queue, 1000), Errno::EAGAIN);
    // All the sets that there may be.
    let made: Vec<Id> = std::iter::from_fn(|| match outcome(&mut client, set(1)) {
        Outcome::Number(id) => Some(Id(id)),
        Outcome::Failed(why) => {
            assert_eq!(why, Errno::ENOSPC);
            None
        }
        other => panic!("{other:?}"),
    })
    .collect();
    assert!(made.len() <= OBJECTS as usize, "{}", made.len());
    let family = Family::Sem;
    for id in made {
        let gone = outcome(&mut client, Op::Remove { family, id });
        assert_eq!(gone, Outcome::Number(0));
    }
    make(&mut client, set(1));
    bystander.check();
    drop(client);
    daemon.end().unwrap();
}

/// As many requests that wait, without an answer to any of them.
fn wait_in_vain(client: &mut Client, id: Id, count: usize) {
    let down = SemBuf {
        number: 0,
        op: -1,
        flags: 0,
    };
    for _ in 0..count {
        let ops = vec![down];
        client.send(Request::Sysv(Op::SemOp { id, ops }), &[]);
    }
}

/// The next request is refused: nothing before it was answered.
fn is_told(client: &mut Client, id: Id) {
    let patience = std::time::Duration::from_secs(20);
    client.socket.set_receive_timeout(patience).unwrap();
    wait_in_vain(client, id, 1);
    match client.receive().expect("the daemon answers").reply {
        Reply::Refused(Refusal::Limit(why)) => {
            assert!(why.contains("too many requests"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

/// One process may have many requests open, and several may have more; then they are refused, and
/// every request gets an answer.
#[test]
fn who_asks_too_much_at_once_is_told() {
    let daemon = Daemon::start(|_| {});
    let bystander = Bystander::of(&daemon);
    let mut clients: Vec<Client> = (0..4).map(|_| daemon.client()).collect();
    let id = make(&mut clients[0], set(1));
    for client in &mut clients[..3] {
        wait_in_vain(client, id, 16_384);
        is_told(client, id);
    }
    // Many processes together may not have more either.
    is_told(&mut clients[3], id);
    drop(clients.pop());
    drop(clients.pop());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    // The requests of the dead process are withdrawn, and those of others are accepted again.
    let mut late = daemon.client();
    while matches!(call(&mut late, set(1)), Reply::Refused(_)) {
        assert!(std::time::Instant::now() < end, "never again");
    }
    bystander.check();
    drop((clients, late));
    daemon.end().unwrap();
}
