//! Message queues.

use super::table::{self, Body, Keyed, READ, Table, WRITE, new_perm};
use super::{Answers, Asker, Count, Process};
use crate::caller::Caller;
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::Credentials;
use pagemesh_wire::sysv::{
    Change, Errno, IPC_NOWAIT, Id, Kind, MESSAGE, MSG_COPY, MSG_EXCEPT, MSG_NOERROR, MsgStat,
    Outcome, Pick,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// All queues whose home is this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Queues(Table<Queue>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Queue {
    messages: VecDeque<Message>,
    bytes: u64,
    room: u64,
    stime: u64,
    rtime: u64,
    ctime: u64,
    lspid: i32,
    lrpid: i32,
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Message {
    kind: Kind,
    text: Vec<u8>,
}

/// A process that waits for room to send.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Sender {
    caller: Caller,
    process: Process,
    pid: i32,
    who: Credentials,
    message: Message,
}

/// A process that waits for a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Receiver {
    caller: Caller,
    process: Process,
    pid: i32,
    who: Credentials,
    request: PendingReceive,
}

/// Which message a process wants to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct PendingReceive {
    pub(super) room: u64,
    pub(super) kind: Kind,
    pub(super) flags: i32,
}

impl PendingReceive {
    fn takes(&self, message: &Message) -> bool {
        if self.kind.0 == 0 {
            true
        } else if self.kind.0 < 0 {
            message.kind.0 <= self.kind.0.saturating_neg()
        } else if self.flags & MSG_EXCEPT != 0 {
            message.kind != self.kind
        } else {
            message.kind == self.kind
        }
    }

    fn is_too_small(&self, message: &Message) -> bool {
        self.flags & MSG_NOERROR == 0 && (message.text.len() as u64) > self.room
    }

    fn cut(&self, mut message: Message) -> Outcome {
        let room = usize::try_from(self.room).unwrap_or(usize::MAX);
        message.text.truncate(room);
        Outcome::Message {
            kind: message.kind,
            text: message.text,
        }
    }
}

impl Queues {
    /// The queue of this key, if it is here.
    pub(super) fn find(
        &self,
        asker: &Asker<'_>,
        (key, flags): (i32, i32),
    ) -> Result<Option<Id>, Errno> {
        self.0.find(key, flags, asker.who, |_| true)
    }

    /// Makes a queue that is not published.
    pub(super) fn offer(
        &mut self,
        asker: &Asker<'_>,
        (key, flags): (i32, i32),
    ) -> Result<Id, Errno> {
        let queue = Queue {
            messages: VecDeque::new(),
            bytes: 0,
            room: u64::from(asker.limits.msgmnb),
            stime: 0,
            rtime: 0,
            ctime: asker.now,
            lspid: 0,
            lrpid: 0,
            senders: Vec::new(),
            receivers: Vec::new(),
        };
        let perm = new_perm(key, flags, asker.who);
        self.0.offer(asker.me, perm, asker.limits.msgmni, |_| queue)
    }

    pub(super) fn table(&self) -> &dyn Keyed {
        &self.0
    }

    pub(super) fn table_mut(&mut self) -> &mut dyn Keyed {
        &mut self.0
    }

    pub(super) fn send(
        &mut self,
        asker: &Asker<'_>,
        id: Id,
        (kind, text, flags): (Kind, &[u8], i32),
        answers: &mut Answers,
    ) {
        let longest = asker.limits.msgmax.min(MESSAGE) as usize;
        if text.len() > longest || id.0 < 0 || kind.0 < 1 {
            return answers.fail(asker.caller, Errno::EINVAL);
        }
        let queue = match self.0.permitted(id, asker.who, WRITE) {
            Ok(object) => &mut object.body,
            Err(errno) => return answers.fail(asker.caller, errno),
        };
        let message = Message {
            kind,
            text: text.to_vec(),
        };
        if queue.has_room_for(&message) {
            answers.give(asker.caller, Outcome::Number(0));
            queue.take_in(message, asker.pid, asker.now, answers);
        } else if flags & IPC_NOWAIT != 0 {
            answers.fail(asker.caller, Errno::EAGAIN);
        } else {
            answers.wait(asker.caller);
            queue.senders.push(Sender {
                caller: asker.caller,
                process: asker.process,
                pid: asker.pid,
                who: asker.who.clone(),
                message,
            });
        }
    }

    pub(super) fn receive(
        &mut self,
        asker: &Asker<'_>,
        id: Id,
        request: PendingReceive,
        answers: &mut Answers,
    ) {
        let caller = asker.caller;
        let copies = request.flags & MSG_COPY != 0;
        let odd = copies && (request.flags & MSG_EXCEPT != 0 || request.flags & IPC_NOWAIT == 0);
        if id.0 < 0 || i64::try_from(request.room).is_err() || odd {
            return answers.fail(caller, Errno::EINVAL);
        }
        let queue = match self.0.permitted(id, asker.who, READ) {
            Ok(object) => &mut object.body,
            Err(errno) => return answers.fail(caller, errno),
        };
        let found = if copies {
            let at = usize::try_from(request.kind.0).ok();
            at.filter(|at| *at < queue.messages.len())
        } else {
            queue.first(request)
        };
        match found {
            Some(at) if request.is_too_small(&queue.messages[at]) => {
                answers.fail(caller, Errno::E2BIG);
            }
            Some(at) if copies => answers.give(caller, request.cut(queue.messages[at].clone())),
            Some(at) => {
                let message = queue.hand_out(at, asker.pid, asker.now);
                answers.give(caller, request.cut(message));
                queue.let_in(asker.now, answers);
            }
            None if request.flags & IPC_NOWAIT != 0 => answers.fail(caller, Errno::ENOMSG),
            None => {
                answers.wait(caller);
                queue.receivers.push(Receiver {
                    caller,
                    process: asker.process,
                    pid: asker.pid,
                    who: asker.who.clone(),
                    request,
                });
            }
        }
    }

    pub(super) fn stat(&self, asker: &Asker<'_>, pick: Pick) -> Result<MsgStat, Errno> {
        let object = self.0.pick(pick, asker.who)?;
        let queue = &object.body;
        Ok(MsgStat {
            id: object.id,
            perm: object.perm,
            stime: queue.stime,
            rtime: queue.rtime,
            ctime: queue.ctime,
            cbytes: queue.bytes,
            qnum: queue.messages.len() as u64,
            qbytes: queue.room,
            lspid: queue.lspid,
            lrpid: queue.lrpid,
            site: asker.me,
        })
    }

    pub(super) fn change(
        &mut self,
        asker: &Asker<'_>,
        id: Id,
        change: &Change,
        answers: &mut Answers,
    ) -> Result<(), Errno> {
        self.0.owned(id, asker.who)?;
        let most = u64::from(asker.limits.msgmnb);
        if change.qbytes > most && asker.who.uid != 0 {
            return Err(Errno::EPERM);
        }
        let object = self.0.change(id, asker, change)?;
        let (perm, queue) = (object.perm, &mut object.body);
        queue.room = change.qbytes;
        // Waiting callers are checked again under the new rights.
        queue.receivers.retain(|receiver| {
            let judged = table::check(&perm, &receiver.who, READ);
            judged
                .map_err(|errno| answers.fail(receiver.caller, errno))
                .is_ok()
        });
        queue.senders.retain(|sender| {
            let judged = table::check(&perm, &sender.who, WRITE);
            judged
                .map_err(|errno| answers.fail(sender.caller, errno))
                .is_ok()
        });
        queue.let_in(asker.now, answers);
        Ok(())
    }

    pub(super) fn remove(
        &mut self,
        asker: &Asker<'_>,
        id: Id,
        answers: &mut Answers,
    ) -> Result<(), Errno> {
        let queue = self.0.take(id, asker.who)?;
        let senders = queue.senders.iter().map(|sender| sender.caller);
        let receivers = queue.receivers.iter().map(|receiver| receiver.caller);
        for caller in senders.chain(receivers) {
            answers.fail(caller, Errno::EIDRM);
        }
        Ok(())
    }

    /// The highest slot in use, and the number of queues, messages and bytes.
    pub(super) fn count(&self) -> Count {
        let queues = || self.0.iter().map(|object| &object.body);
        let messages = queues().map(|queue| queue.messages.len() as u64).sum();
        let bytes = queues().map(|queue| queue.bytes).sum();
        (self.0.highest(), self.0.len(), messages, bytes)
    }

    /// A caller has withdrawn its wait.
    pub(super) fn cancel(&mut self, caller: Caller) {
        self.retain(|other, _| other != caller);
    }

    pub(super) fn exit(&mut self, process: Process) {
        self.retain(|_, other| other != process);
    }

    pub(super) fn member_gone(&mut self, node: NodeId) {
        self.retain(|caller, _| caller.node != node);
    }

    fn retain(&mut self, keep: impl Fn(Caller, Process) -> bool) {
        for object in self.0.iter_mut() {
            let queue = &mut object.body;
            queue
                .senders
                .retain(|sender| keep(sender.caller, sender.process));
            queue
                .receivers
                .retain(|receiver| keep(receiver.caller, receiver.process));
        }
    }
}

impl Body for Queue {
    fn ctime(&mut self) -> &mut u64 {
        &mut self.ctime
    }

    fn parts(&self) -> u64 {
        0
    }
}

impl Queue {
    fn has_room_for(&self, message: &Message) -> bool {
        let count = self.messages.len() as u64;
        message.text.len() as u64 + self.bytes <= self.room && count < self.room
    }

    /// The message that a receiver gets: the first that fits, or the first of the lowest type.
    fn first(&self, request: PendingReceive) -> Option<usize> {
        let mut fitting = (0..self.messages.len()).filter(|at| request.takes(&self.messages[*at]));
        if request.kind.0 < 0 {
            fitting.min_by_key(|at| self.messages[*at].kind)
        } else {
            fitting.next()
        }
    }

    fn hand_out(&mut self, at: usize, pid: i32, now: u64) -> Message {
        let message = self.messages.remove(at).expect("found just now");
        self.bytes -= message.text.len() as u64;
        self.lrpid = pid;
        self.rtime = now;
        message
    }

    /// Delivers a message to a waiting receiver, or puts it into the queue.
    fn take_in(&mut self, message: Message, pid: i32, now: u64, answers: &mut Answers) {
        self.lspid = pid;
        self.stime = now;
        while let Some(at) = self
            .receivers
            .iter()
            .position(|r| r.request.takes(&message))
        {
            let receiver = self.receivers.remove(at);
            if receiver.request.is_too_small(&message) {
                answers.fail(receiver.caller, Errno::E2BIG);
                continue;
            }
            self.lrpid = receiver.pid;
            self.rtime = now;
            return answers.give(receiver.caller, receiver.request.cut(message));
        }
        self.bytes += message.text.len() as u64;
        self.messages.push_back(message);
    }

    /// There may be room: lets waiting senders send, in the order of arrival.
    fn let_in(&mut self, now: u64, answers: &mut Answers) {
        while let Some(at) = self
            .senders
            .iter()
            .position(|s| self.has_room_for(&s.message))
        {
            let sender = self.senders.remove(at);
            answers.give(sender.caller, Outcome::Number(0));
            self.take_in(sender.message, sender.pid, now, answers);
        }
    }
}
