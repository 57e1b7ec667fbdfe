//! System V shared memory, semaphores and message queues (M2, M3).
//!
//! An object has a *home*, which answers for it: the node of its creator, so that an object used on
//! one node only causes no datagrams (M4). The number of an object names its home. The pages of a
//! segment are those of an ordinary segment created there (M7); this service only knows which
//! processes may attach it and how many attachments there are. The coordinator, or the node that it
//! lent the key to, knows which object has which key ([`register`], [`getting`]).
//!
//! Objects are lost with their home. Every decision depends on the requests alone: credentials,
//! limits and the time of day come with them.

pub(crate) mod get;
mod getting;
mod msg;
mod register;
mod sem;
mod service;
mod shm;
mod survey;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use service::{Others, Why, is_sysv};

use crate::caller::Caller;
use crate::shell::Cx;
use crate::steps::Step;
use crate::time::Time;
use getting::Keys;
use msg::{PendingReceive, Queues};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{Credentials, Reply};
use pagemesh_wire::sysv::keys::Name;
use pagemesh_wire::sysv::{
    Ask, Errno, Family, IPC_CREAT, IPC_PRIVATE, Id, Limits, News, Op, Outcome, Pick, Usage,
};
use pagemesh_wire::{ClientId, NodeId, NodeSet, SegmentId, Ticket};
use register::Register;
use sem::Sems;
use serde::{Deserialize, Serialize};
use shm::{Attaching, Shms, Told};
use std::collections::BTreeSet;
use survey::Survey;
use table::Keyed;

/// A process of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
struct Process {
    node: NodeId,
    client: ClientId,
}

/// The objects whose home is this node, and what its processes did at other homes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Sysv {
    shm: Shms,
    sem: Sems,
    msg: Queues,
    wall: Wall,
    here: SortedMap<ClientId, Here>,
    /// Calls that are held back until their home has acknowledged earlier news.
    held: Vec<Held>,
    keys: Keys,
    /// Empty except at the coordinator.
    pub(crate) register: Register,
    surveys: SortedMap<Ticket, Survey>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Held {
    ticket: Ticket,
    client: ClientId,
    ask: Box<Ask>,
}

/// A process of this node that has made a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Here {
    pid: i32,
    /// Homes that have something to undo when the process ends.
    undo: BTreeSet<NodeId>,
}

/// The time of day, as the last request told it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Wall {
    at: Time,
    seconds: u64,
}

impl Wall {
    fn at(self, now: Time) -> u64 {
        let since = now.0.saturating_sub(self.at.0) / 1_000_000_000;
        self.seconds.saturating_add(since)
    }
}

/// The caller of a request, with its credentials, limits and time.
struct Asker<'a> {
    me: NodeId,
    caller: Caller,
    process: Process,
    pid: i32,
    who: &'a Credentials,
    limits: &'a Limits,
    /// Seconds since 1970.
    now: u64,
}

impl<'a> Asker<'a> {
    fn new(me: NodeId, caller: Caller, ask: &'a Ask) -> Self {
        Self {
            me,
            caller,
            process: Process {
                node: caller.node,
                client: ask.who.client,
            },
            pid: ask.who.pid,
            who: &ask.who.credentials,
            limits: &ask.limits,
            now: ask.wall,
        }
    }
}

/// The replies and other consequences of a call or news.
#[derive(Debug, Default)]
struct Answers {
    replies: Vec<(Caller, Reply)>,
    /// Segments that no process can use any more.
    unused: Vec<Unused>,
    /// New segments of this home.
    made: Vec<Id>,
    /// Keys that objects here have lost.
    struck: Vec<(Name, Id)>,
}

/// A segment that no process can use any more.
#[derive(Clone, Debug)]
struct Unused {
    segment: SegmentId,
    /// Nodes that ever attached it.
    there: NodeSet,
}

impl Answers {
    fn give(&mut self, caller: Caller, outcome: Outcome) {
        self.replies.push((caller, Reply::Sysv(outcome)));
    }

    fn fail(&mut self, caller: Caller, errno: Errno) {
        self.give(caller, Outcome::Failed(errno));
    }

    fn wait(&mut self, caller: Caller) {
        self.replies.push((caller, Reply::Waiting));
    }
}

/// The highest slot in use; the number of objects, of their parts, and of bytes.
type Count = (i32, u32, u64, u64);

type Result<T> = std::result::Result<T, Errno>;

impl Sysv {
    /// A process of the cluster makes a call to this home.
    fn serve(&mut self, now: Time, me: NodeId, caller: Caller, ask: &Ask) -> Answers {
        self.wall = Wall {
            at: now,
            seconds: ask.wall,
        };
        let asker = Asker::new(me, caller, ask);
        let mut answers = Answers::default();
        match &ask.op {
            Op::SemOp { id, ops } => self.sem.operate(&asker, *id, ops, &mut answers),
            Op::MsgSend {
                id,
                kind,
                text,
                flags,
            } => {
                self.msg
                    .send(&asker, *id, (*kind, text, *flags), &mut answers);
            }
            Op::MsgReceive {
                id,
                room,
                kind,
                flags,
            } => {
                let request = PendingReceive {
                    room: *room,
                    kind: *kind,
                    flags: *flags,
                };
                self.msg.receive(&asker, *id, request, &mut answers);
            }
            Op::ShmAttach { id, write, exec } => {
                let request = Attaching {
                    id: *id,
                    write: *write,
                    exec: *exec,
                };
                let reply = match self.shm.attach(&asker, &request) {
                    Ok(info) => Reply::Segment(info),
                    Err(errno) => Reply::Sysv(Outcome::Failed(errno)),
                };
                answers.replies.push((caller, reply));
            }
            op => {
                let outcome = self.at_once(&asker, op, &mut answers);
                let outcome = outcome.unwrap_or_else(Outcome::Failed);
                answers.give(caller, outcome);
            }
        }
        answers
    }

    /// The object of a key, or a new one. A get of this node comes here only if an object that is
    /// not here is nowhere else.
    fn get(&mut self, asker: &Asker<'_>, op: &Op, answers: &mut Answers) -> Result<Outcome> {
        let (name, flags, found) = match *op {
            Op::ShmGet { key, size, flags } => {
                let found = self.shm.find(asker, (key, size, flags));
                ((Family::Shm, key), flags, found)
            }
            Op::SemGet { key, count, flags } => {
                let found = self.sem.find(asker, (key, count, flags));
                ((Family::Sem, key), flags, found)
            }
            Op::MsgGet { key, flags } => (
                (Family::Msg, key),
                flags,
                self.msg.find(asker, (key, flags)),
            ),
            _ => return Err(Errno::EINVAL),
        };
        if let Some(id) = found? {
            return Ok(Outcome::Number(id.0));
        }
        if asker.caller.node != asker.me {
            return Ok(getting::NOT_HERE);
        }
        if name.1 != IPC_PRIVATE && flags & IPC_CREAT == 0 {
            return Err(Errno::ENOENT);
        }
        let id = self.make(asker, op)?;
        self.table_mut(name.0).show(id);
        if name.0 == Family::Shm {
            answers.made.push(id);
        }
        Ok(Outcome::Number(id.0))
    }

    /// Makes a new object that is not published.
    fn make(&mut self, asker: &Asker<'_>, op: &Op) -> Result<Id> {
        match *op {
            Op::ShmGet { key, size, flags } => self.shm.offer(asker, (key, size, flags)),
            Op::SemGet { key, count, flags } => self.sem.offer(asker, (key, count, flags)),
            Op::MsgGet { key, flags } => self.msg.offer(asker, (key, flags)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The object that a get offers to the register; or the error of the get if no object has the
    /// key.
    fn offer(&mut self, me: NodeId, ask: &Ask) -> Result<Id> {
        let (Op::ShmGet { flags, .. } | Op::SemGet { flags, .. } | Op::MsgGet { flags, .. }) =
            ask.op
        else {
            return Err(Errno::EINVAL);
        };
        let call = pagemesh_wire::CallId(0);
        let asker = Asker::new(me, Caller { node: me, call }, ask);
        if let Op::SemGet { count, .. } = ask.op {
            // The kernel checks the count before it looks for the key.
            sem::wanted(&asker, count)?;
        }
        if flags & IPC_CREAT == 0 {
            return Err(Errno::ENOENT);
        }
        self.make(&asker, &ask.op)
    }

    fn table(&self, family: Family) -> &dyn Keyed {
        match family {
            Family::Shm => self.shm.table(),
            Family::Sem => self.sem.table(),
            Family::Msg => self.msg.table(),
        }
    }

    fn table_mut(&mut self, family: Family) -> &mut dyn Keyed {
        match family {
            Family::Shm => self.shm.table_mut(),
            Family::Sem => self.sem.table_mut(),
            Family::Msg => self.msg.table_mut(),
        }
    }

    /// Calls that never wait.
    fn at_once(&mut self, asker: &Asker<'_>, op: &Op, answers: &mut Answers) -> Result<Outcome> {
        let number = |()| Outcome::Number(0);
        match *op {
            Op::ShmGet { .. } | Op::SemGet { .. } | Op::MsgGet { .. } => {
                self.get(asker, op, answers)
            }
            Op::ShmLock { id, lock } => self.shm.lock(asker, id, lock).map(number),
            Op::SemGetOne { id, number, what } => {
                let value = self.sem.read_one(asker, id, number, what);
                value.map(Outcome::Number)
            }
            Op::SemGetAll { id } => self.sem.read_all(asker, id).map(Outcome::Values),
            Op::SemSetOne {
                id,
                number: at,
                value,
            } => {
                let set = self.sem.set_one(asker, id, (at, value), answers);
                set.map(number)
            }
            Op::SemSetAll { id, ref values } => {
                self.sem.set_all(asker, id, values, answers).map(number)
            }
            Op::Stat { family, pick } => self.stat(asker, family, pick),
            Op::Set {
                family,
                id,
                ref change,
            } => match family {
                Family::Shm => self.shm.change(asker, id, change).map(number),
                Family::Sem => self.sem.change(asker, id, change).map(number),
                Family::Msg => self.msg.change(asker, id, change, answers).map(number),
            },
            Op::Remove { family, id } => {
                let key = self.table(family).key_of(id);
                match family {
                    Family::Shm => answers.unused.extend(self.shm.remove(asker, id)?),
                    Family::Sem => self.sem.remove(asker, id, answers)?,
                    Family::Msg => self.msg.remove(asker, id, answers)?,
                }
                if key != IPC_PRIVATE {
                    answers.struck.push(((family, key), id));
                }
                Ok(Outcome::Number(0))
            }
            Op::Info { family } | Op::InfoHere { family } => {
                Ok(Outcome::Usage(self.usage(asker, family)))
            }
            Op::SemOp { .. }
            | Op::MsgSend { .. }
            | Op::MsgReceive { .. }
            | Op::ShmAttach { .. } => Err(Errno::EINVAL),
        }
    }

    fn stat(&self, asker: &Asker<'_>, family: Family, pick: Pick) -> Result<Outcome> {
        match family {
            Family::Shm => self.shm.stat(asker, pick).map(Outcome::Shm),
            Family::Sem => self.sem.stat(asker, pick).map(Outcome::Sem),
            Family::Msg => self.msg.stat(asker, pick).map(Outcome::Msg),
        }
    }

    /// The totals of this home.
    fn usage(&self, asker: &Asker<'_>, family: Family) -> Usage {
        let (highest, objects, parts, bytes) = match family {
            Family::Shm => self.shm.count(),
            Family::Sem => self.sem.count(),
            Family::Msg => self.msg.count(),
        };
        Usage {
            family,
            highest,
            objects,
            parts,
            bytes,
            limits: *asker.limits,
        }
    }

    /// A node sends news of its processes.
    fn told(&mut self, now: Time, from: Caller, news: News) -> Answers {
        let mut answers = Answers::default();
        let seconds = self.wall.at(now);
        match news {
            News::Attached {
                id,
                count,
                pid,
                detached,
            } => {
                let told = Told {
                    node: from.node,
                    call: from.call,
                    id,
                    count,
                    pid,
                    detached,
                };
                answers.unused.extend(self.shm.told(&told, seconds));
            }
            News::Exit { client, pid } => {
                let process = Process {
                    node: from.node,
                    client,
                };
                self.msg.exit(process);
                self.sem.exit(process, pid, seconds, &mut answers);
            }
        }
        answers
    }

    /// A caller has withdrawn its call.
    pub(crate) fn cancel(&mut self, caller: Caller) {
        self.sem.cancel(caller);
        self.msg.cancel(caller);
        self.keys.cancel(caller);
        self.register.cancel(caller);
    }

    /// A process withdraws a request. Returns true if the request waited here.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) -> bool {
        let count = |room: &Self| room.held.len() + room.keys.len() + room.surveys.len();
        let before = count(self);
        self.held.retain(|held| held.ticket != ticket);
        self.keys.withdraw(ticket);
        self.end_survey(ticket);
        count(self) < before
    }

    /// A node is gone, with all its processes.
    pub(crate) fn member_gone(&mut self, cx: &Cx<'_>, node: NodeId) -> Vec<Step> {
        let answers = self.processes_gone(cx.now, node);
        self.settle(cx, answers)
    }

    fn processes_gone(&mut self, now: Time, node: NodeId) -> Answers {
        let mut answers = Answers::default();
        self.keys.member_gone(node);
        self.msg.member_gone(node);
        self.sem.member_gone(node, self.wall.at(now), &mut answers);
        answers.unused = self.shm.member_gone(node);
        answers
    }

    /// Lives are over, and their numbers are to be forgotten: what processes of this node had to undo
    /// there is gone with the objects.
    pub(crate) fn forget_names(&mut self, over: &NodeSet) {
        for process in self.here.values_mut() {
            process.undo.retain(|home| !over.contains(*home));
        }
    }

    /// Notes the call that a process of this node makes to `home`.
    fn begins(&mut self, home: NodeId, ask: &Ask) {
        let here = self.here.entry(ask.who.client).or_default();
        here.pid = ask.who.pid;
        if let Op::SemOp { ops, .. } = &ask.op
            && ops
                .iter()
                .any(|op| op.flags & pagemesh_wire::sysv::SEM_UNDO != 0)
        {
            here.undo.insert(home);
        }
    }

    /// The process number of a client that may have something to undo.
    pub(crate) fn to_undo(&self, client: ClientId) -> Option<i32> {
        let here = self.here.get(&client)?;
        (!here.undo.is_empty()).then_some(here.pid)
    }

    fn pid_of(&self, client: ClientId) -> i32 {
        self.here.get(&client).map_or(0, |here| here.pid)
    }
}
