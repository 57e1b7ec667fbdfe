//! What programs and the person ask, and what they may be told.

use super::{COORDINATOR, HOSTS, Life, Mode, PROMOTE, SILENCE, STANDBY, World};
use crate::small::Check;
use crate::takeover::names::Answer;
use crate::takeover::setting::Op;
use pagemesh_core::{Effect, Effects, Input, Reply, Request};
use pagemesh_wire::peer::{Call, Credentials, Policy, Refusal, SegmentInfo, SegmentSpec};
use pagemesh_wire::{ByteLen, ClientId, PAGE_SIZE, Ticket};
use std::rc::Rc;
use std::time::Duration;

const NAME: &str = "a";
const MODE: u16 = 0o640;

/// The request of an observer.
const PROBE: Ticket = Ticket(9001);

/// Users of the threads, whose segments are told apart by that.
const FIRST_USER: u32 = 100;

impl World {
    pub(super) fn step(&mut self, thread: usize) -> Check {
        let (host, op) = self.op(thread);
        if op == Op::Join {
            self.threads[thread].mode = Mode::Joins;
            self.lives[host] = Life::Up;
            return self.tick(host);
        }
        self.threads[thread].mode = Mode::Asks;
        self.names.begun(thread as u8, op);
        self.solid.begun(thread as u8, op);
        let ticket = Ticket(thread as u64);
        self.ask(host, ticket, request(thread, op))
    }

    pub(super) fn op(&self, thread: usize) -> (usize, Op) {
        let (host, ops) = &self.programs[thread];
        (*host, ops[self.threads[thread].at])
    }

    fn ask(&mut self, host: usize, ticket: Ticket, request: Request) -> Check {
        let client = ClientId(1 + ticket.0 as u32);
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        self.input(host, input)
    }

    /// The coordinator has been silent to this host, whose person promotes it.
    pub(super) fn promote(&mut self, host: usize) -> Check {
        self.asked = true;
        let now = self.hosts[host].clock + SILENCE + Duration::from_nanos(1);
        self.host(host).clock = now;
        self.ask(host, PROMOTE, Request::Promote)?;
        self.deadlines(host)
    }

    pub(super) fn admitted(&mut self, host: usize) {
        for ((at, _), thread) in self.programs.iter().zip(&mut self.threads) {
            if *at == host && thread.mode == Mode::Joins {
                thread.at += 1;
                thread.mode = Mode::Runs;
            }
        }
    }

    pub(super) fn replied(&mut self, host: usize, ticket: Ticket, reply: &Reply) -> Check {
        if ticket == PROMOTE {
            self.asked = false;
            return match reply {
                Reply::Done | Reply::Refused(_) => Ok(()),
                other => Err(format!(
                    "INV-sensible-reply: who promotes is told {other:?}"
                )),
            };
        }
        let thread = ticket.0 as usize;
        if self.threads[thread].mode != Mode::Asks {
            return Err(format!("INV-one-reply: t{} asks nothing", thread + 1));
        }
        let (_, op) = self.op(thread);
        self.threads[thread].mode = Mode::Runs;
        self.threads[thread].at += 1;
        let who = thread as u8;
        let Some(answer) = self.answer(op, reply)? else {
            self.names.unanswered(who);
            self.solid.unanswered(who);
            return Ok(());
        };
        self.names.answered(who, answer)?;
        let solid = self.hosts[host].counts_as_alive(STANDBY);
        if solid {
            return self.solid.answered(who, answer);
        }
        self.solid.unanswered(who);
        Ok(())
    }

    /// What a reply says; nothing if the call may have been executed or not.
    fn answer(&mut self, op: Op, reply: &Reply) -> Check<Option<Answer>> {
        Ok(Some(match (op, reply) {
            (Op::Create | Op::Stat, Reply::Segment(info)) => Answer::Of(self.maker(info)?),
            (Op::Create, Reply::Refused(Refusal::Exists)) => Answer::Exists,
            (Op::Stat | Op::Remove, Reply::Refused(Refusal::NotFound)) => Answer::Missing,
            (Op::Remove, Reply::Done) => Answer::Removed,
            (
                _,
                Reply::Refused(
                    Refusal::NodeGone(_) | Refusal::NotMember | Refusal::Superseded { .. },
                ),
            ) => return Ok(None),
            (_, other) => {
                let why = format!("who wants to {op:?} is told {other:?}");
                return Err(format!("INV-sensible-reply: {why}"));
            }
        }))
    }

    /// The thread that made a segment. Owner, mode and number never change.
    fn maker(&mut self, info: &SegmentInfo) -> Check<u8> {
        let maker = info.owner.0.wrapping_sub(FIRST_USER) as u8;
        let known = *self.made.entry(maker).or_insert(info.id);
        let wanted = (info.owner.0, info.spec.mode, info.id);
        let right = (info.owner.1 + FIRST_USER, MODE, known);
        if usize::from(maker) >= self.threads.len() || wanted != right {
            return Err(format!("INV-standby-knows: the segment is {info:?}"));
        }
        Ok(maker)
    }

    /// A node has taken over: it knows all names and members that anybody was told of.
    pub(super) fn check_heir(&mut self, heir: usize) -> Check {
        let host = Rc::clone(&self.hosts[heir]);
        // The half that put the heir out went on without it: what only that half was told is lost.
        let split = !self.hosts[COORDINATOR].counts_as_alive(heir);
        if split {
            self.names = self.solid.clone();
        }
        for other in (0..HOSTS).filter(|_| !split) {
            let admitted = self.hosts[other].node.id();
            if admitted.is_some_and(|id| host.node.view().member(id).is_none()) {
                let why = format!("h{} does not know member h{}", heir + 1, other + 1);
                return Err(format!("INV-standby-knows: {why}"));
            }
        }
        let made = match look(&host.node, host.clock)? {
            Some(info) => Some(self.maker(&info)?),
            None => None,
        };
        self.names.seen(made)?;
        self.solid.seen(made)
    }
}

/// What a coordinator would answer now.
fn look(node: &pagemesh_core::Node, now: pagemesh_core::Time) -> Check<Option<SegmentInfo>> {
    let mut node = node.clone();
    let mut effects = Effects::default();
    let input = Input::Request {
        ticket: PROBE,
        client: ClientId(PROBE.0 as u32),
        request: request(0, Op::Stat),
    };
    node.handle(now, input, &mut effects);
    let answer = effects.as_slice().iter().find_map(|effect| match effect {
        Effect::Reply {
            ticket: PROBE,
            reply,
            ..
        } => Some(&**reply),
        _ => None,
    });
    match answer {
        Some(Reply::Segment(info)) => Ok(Some(info.clone())),
        Some(Reply::Refused(Refusal::NotFound)) => Ok(None),
        other => Err(format!("INV-sensible-reply: an observer is told {other:?}")),
    }
}

fn request(thread: usize, op: Op) -> Request {
    let uid = FIRST_USER + thread as u32;
    let name = NAME.to_owned();
    let credentials = Credentials {
        uid,
        gid: thread as u32,
        groups: Vec::new(),
    };
    match op {
        Op::Create => Request::Open {
            name,
            create: Some(SegmentSpec {
                size: ByteLen(PAGE_SIZE as u64),
                mode: MODE,
                policy: Policy::default(),
                replicas: 0,
            }),
            exclusive: true,
            write: true,
            credentials,
        },
        Op::Stat => about(Call::Stat { name }),
        Op::Remove => about(Call::Remove {
            name,
            credentials: Credentials::root(),
        }),
        Op::Join => unreachable!("a host joins, and no program asks for it"),
    }
}

fn about(call: Call) -> Request {
    Request::Call { to: None, call }
}
