//! System V shared memory, semaphores and message queues (M2, M3).
//!
//! An object has a *home*, which answers for it: the coordinator for all that
//! have a key, and the node of their creator for private ones, so that what
//! never leaves a node sends no datagram (M4). The number of an object says
//! which. The pages of a segment are those of an ordinary segment created where
//! its creator runs (M7); this room only knows who may attach it and how many do.
//!
//! Private objects go with their node. Everything here is decided from the
//! requests alone: credentials, limits and the time of day come with them.

mod desk;
mod msg;
mod sem;
mod shm;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use desk::Why;

use crate::calls::Caller;
use crate::time::Time;
use msg::{Queues, Wish};
use pagemesh_wire::peer::{Credentials, Reply, SegmentInfo};
use pagemesh_wire::sysv::{
    Ask, Errno, Family, IPC_PRIVATE, Limits, News, Op, Outcome, Pick, Usage,
};
use pagemesh_wire::{ClientId, NodeId, NodeSet, SegmentId, Ticket};
use sem::Sems;
use serde::{Deserialize, Serialize};
use shm::{Attaching, Found, Shms, Told};
use std::collections::{BTreeMap, BTreeSet};

/// A process of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
struct Process {
    node: NodeId,
    client: ClientId,
}

/// Objects that are at home here, and what this node's processes left elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Sysv {
    shm: Shms,
    sem: Sems,
    msg: Queues,
    wall: Wall,
    here: BTreeMap<ClientId, Here>,
    /// Calls whose home does not know yet what happened before them.
    held: Vec<Held>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Held {
    ticket: Ticket,
    client: ClientId,
    ask: Box<Ask>,
}

/// A process of this node that has asked for something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Here {
    pid: i32,
    /// Homes that have something to undo when it ends.
    undo: BTreeSet<NodeId>,
}

/// The time of day, as a request told it last.
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

/// Who asks, and in what circumstances.
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

impl Asker<'_> {
    /// Home and site of what it creates.
    fn place(&self) -> (NodeId, NodeId) {
        (self.me, self.caller.node)
    }
}

/// Whom to answer what, now that something has happened.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    replies: Vec<(Caller, Reply)>,
    /// Segments that nobody can use any more.
    unused: Vec<Unused>,
}

/// A segment that nobody can use any more.
#[derive(Clone, Copy, Debug)]
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

/// The highest place that is taken; objects, their parts, and bytes.
type Count = (i32, u32, u64, u64);

type Result<T> = std::result::Result<T, Errno>;

impl Sysv {
    /// A process of the cluster asks this home for something.
    pub(crate) fn serve(&mut self, now: Time, me: NodeId, caller: Caller, ask: &Ask) -> Answers {
        self.wall = Wall {
            at: now,
            seconds: ask.wall,
        };
        let asker = Asker {
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
        };
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
                let wish = Wish {
                    room: *room,
                    kind: *kind,
                    flags: *flags,
                };
                self.msg.receive(&asker, *id, wish, &mut answers);
            }
            Op::ShmGet { key, size, flags } => {
                let reply = match self.shm_get(&asker, (*key, *size, *flags)) {
                    Ok(Found::There(id)) => Reply::Sysv(Outcome::Number(id.0)),
                    Ok(Found::Made(info)) => Reply::Segment(info),
                    Err(errno) => Reply::Sysv(Outcome::Failed(errno)),
                };
                answers.replies.push((caller, reply));
            }
            Op::ShmAttach { id, write, exec } => {
                let wish = Attaching {
                    id: *id,
                    write: *write,
                    exec: *exec,
                };
                let reply = match self.shm.attach(&asker, &wish) {
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

    fn shm_get(&mut self, asker: &Asker<'_>, wish: (i32, u64, i32)) -> Result<Found> {
        if !is_home(asker, wish.0) {
            return Err(Errno::EINVAL);
        }
        self.shm.find_or_make(asker, wish)
    }

    /// Calls that never wait.
    fn at_once(&mut self, asker: &Asker<'_>, op: &Op, answers: &mut Answers) -> Result<Outcome> {
        let number = |()| Outcome::Number(0);
        match *op {
            Op::SemGet { key, .. } | Op::MsgGet { key, .. } if !is_home(asker, key) => {
                Err(Errno::EINVAL)
            }
            Op::SemGet { key, count, flags } => {
                let id = self.sem.find_or_make(asker, (key, count, flags));
                id.map(|id| Outcome::Number(id.0))
            }
            Op::MsgGet { key, flags } => {
                let id = self.msg.find_or_make(asker, (key, flags));
                id.map(|id| Outcome::Number(id.0))
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
                match family {
                    Family::Shm => answers.unused.extend(self.shm.remove(asker, id)?),
                    Family::Sem => self.sem.remove(asker, id, answers)?,
                    Family::Msg => self.msg.remove(asker, id, answers)?,
                }
                Ok(Outcome::Number(0))
            }
            Op::Info { family } => Ok(Outcome::Usage(self.usage(asker, family))),
            Op::ShmGet { .. }
            | Op::SemOp { .. }
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

    fn count(&self, family: Family) -> Count {
        match family {
            Family::Shm => self.shm.count(),
            Family::Sem => self.sem.count(),
            Family::Msg => self.msg.count(),
        }
    }

    fn usage(&self, asker: &Asker<'_>, family: Family) -> Usage {
        let (highest, objects, parts, bytes) = self.count(family);
        Usage {
            family,
            highest,
            objects,
            parts,
            bytes,
            limits: *asker.limits,
        }
    }

    /// What the coordinator has, with what is private here.
    pub(crate) fn with_private(&self, mut usage: Usage) -> Usage {
        let (highest, objects, parts, bytes) = self.count(usage.family);
        usage.highest = usage.highest.max(highest);
        usage.objects = usage.objects.saturating_add(objects);
        usage.parts = usage.parts.saturating_add(parts);
        usage.bytes = usage.bytes.saturating_add(bytes);
        usage
    }

    /// A node tells of its processes.
    pub(crate) fn told(&mut self, now: Time, from: Caller, news: News) -> Answers {
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

    /// A caller waits no more.
    pub(crate) fn cancel(&mut self, caller: Caller) {
        self.sem.cancel(caller);
        self.msg.cancel(caller);
    }

    /// A process wants no answer any more. True if it was to get one.
    pub(crate) fn withdraw(&mut self, ticket: Ticket) -> bool {
        let before = self.held.len();
        self.held.retain(|held| held.ticket != ticket);
        self.held.len() < before
    }

    /// A node is gone, with all its processes.
    pub(crate) fn member_gone(&mut self, now: Time, node: NodeId) -> Answers {
        let mut answers = Answers::default();
        self.msg.member_gone(node);
        self.sem.member_gone(node, self.wall.at(now), &mut answers);
        answers.unused = self.shm.member_gone(node);
        answers
    }

    /// What is known of a segment, where it is kept.
    pub(crate) fn segment(&self, segment: SegmentId) -> Option<SegmentInfo> {
        self.shm.info(segment)
    }

    /// Notes what a process of this node is about to do at `home`.
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

    /// The number of a process of this node that may have something to undo.
    pub(crate) fn to_undo(&self, client: ClientId) -> Option<i32> {
        let here = self.here.get(&client)?;
        (!here.undo.is_empty()).then_some(here.pid)
    }

    fn pid_of(&self, client: ClientId) -> i32 {
        self.here.get(&client).map_or(0, |here| here.pid)
    }
}

/// Objects with keys are made by the coordinator, private ones by their node.
fn is_home(asker: &Asker<'_>, key: i32) -> bool {
    asker.me == NodeId::COORDINATOR || (key == IPC_PRIVATE && asker.caller.node == asker.me)
}
