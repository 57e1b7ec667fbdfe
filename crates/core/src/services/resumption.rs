//! A coordinator goes on from its disk, and both that and its standby write there.
//!
//! What a daemon knew beyond its disk is gone with it: pages, locks, barriers. So its former life
//! counts as dead, and it goes on as a node of a new number: a takeover like that of a standby, by
//! a node that the members do not know yet.

use super::Services;
use crate::config::{Life, Start};
use crate::control::{Asking, Resumption};
use crate::effect::Effect;
use crate::event::Event;
use crate::link::Sender;
use crate::membership::Standing;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{
    Decision, Health, Member, MemberView, Message, Refusal, Resume, Resumed,
};
use pagemesh_wire::{NodeId, NodeSet, PublicKey};

impl Services {
    /// Starts the node, if it is to go on from its disk: asks all members.
    pub(super) fn start_from_disk(&mut self, cx: &mut Cx<'_>) {
        if self.membership.standing != Standing::Unborn {
            return;
        }
        let start = &mut cx.shell.config.start;
        let Start::Resume(life) = start else {
            return;
        };
        let cluster = life.kept.cluster();
        let Life { kept, node, term } = (**life).clone();
        // The node needs it no more.
        *start = Start::Found(cluster);
        let mine = kept.mine().without(&NodeSet::only(node));
        let view = kept.view().clone();
        let living: NodeSet = view.living().map(|member| member.id).collect();
        let (mut missing, mut later) = (living.without(&mine), NodeSet::EMPTY);
        let coordinator = view.term.coordinator();
        if !kept.has_coordinated() && missing.remove(coordinator) {
            later = core::mem::replace(&mut missing, NodeSet::only(coordinator));
        }
        self.membership.standing = Standing::Resuming;
        let backoff = cx.backoff(Timer::Join);
        self.resumption = Some(Box::new(Resumption {
            kept,
            node,
            asking: Asking {
                term,
                since: cx.now,
                missing,
                silent: mine,
                view,
            },
            later,
            backoff,
        }));
        cx.shell.cluster = cluster;
        self.ask_to_resume(cx);
        self.go_on_if_known(cx);
    }

    /// Asks members that have not answered.
    fn ask_to_resume(&self, cx: &mut Cx<'_>) {
        let Some(resumption) = &self.resumption else {
            return;
        };
        let Asking { term, missing, .. } = &resumption.asking;
        let term = *term;
        if cx.shell.config.elected {
            cx.push(Effect::Renew { term });
        }
        let mut tried = resumption.kept.lives().to_vec();
        tried.retain(|other| *other != term);
        let known = resumption.kept.view().term;
        for node in missing.iter() {
            let view = resumption.kept.view();
            let Some(address) = view.member(node).map(|member| member.address) else {
                continue;
            };
            let message = Message::Resume(Resume {
                term,
                known,
                tried: tried.clone(),
            });
            let mut header = cx.header_of(node, &message);
            (header.from, header.term) = (resumption.node, term);
            cx.push(Effect::Send {
                address,
                header,
                message: Box::new(message),
                page: None,
            });
        }
    }

    /// Asks again, or gives up those who do not answer.
    pub(super) fn resumption_due(&mut self, cx: &mut Cx<'_>) {
        let Some(resumption) = &mut self.resumption else {
            return;
        };
        if !cx.fire(&mut resumption.backoff, Timer::Join) {
            return;
        }
        if cx.now - resumption.asking.since > cx.pace().dead_after {
            resumption.asking.give_up();
        }
        self.ask_to_resume(cx);
        self.go_on_if_known(cx);
    }

    /// A coordinator that goes on from its disk asks this node to believe no older one.
    pub(crate) fn asked_to_resume(
        &mut self,
        cx: &mut Cx<'_>,
        (source, key): Sender,
        header: &Header,
        resume: &Resume,
    ) {
        let here = header.cluster == cx.shell.cluster && header.to == cx.me();
        if self.membership.standing != Standing::Member || !here {
            return cx.emit(Event::Stranger {});
        }
        let incarnation = header.incarnation;
        let term = resume.term;
        let message = match self.may_resume(cx, header, resume, key) {
            Ok(()) => {
                self.membership
                    .promise_resumer(cx, term, (incarnation, key));
                let view = cx.shell.view.clone();
                Message::Resumed(Resumed {
                    incarnation,
                    term,
                    view,
                })
            }
            Err(why) => Message::Unwelcome { incarnation, why },
        };
        let header = Header {
            version: header.version,
            ..cx.header(header.from)
        };
        cx.push(Effect::Send {
            address: source,
            header,
            message: Box::new(message),
            page: None,
        });
    }

    fn may_resume(
        &self,
        cx: &Cx<'_>,
        header: &Header,
        Resume { term, known, tried }: &Resume,
        key: PublicKey,
    ) -> Result<(), Refusal> {
        let by = cx.coordinator();
        if header.from != term.coordinator() || header.term != *term || !header.from.is_valid() {
            let why = "a coordinator that goes on names itself in its term";
            return Err(Refusal::Invalid(why.into()));
        }
        if cx.shell.view.member(header.from).is_some() {
            return Err(taken(header.from));
        }
        let again = self.membership.awaits(header, key);
        let fenced = *term <= self.membership.fence(cx) && !again;
        let here = cx.shell.view.term;
        let is_newest = here <= *known || tried.contains(&here);
        if self.coordinator.is_some() || fenced || !is_newest {
            return Err(Refusal::Superseded { by });
        }
        Ok(())
    }

    /// A member has promised to believe no coordinator before this node.
    pub(crate) fn promised_to_resume(
        &mut self,
        cx: &mut Cx<'_>,
        (_, key): Sender,
        header: &Header,
        Resumed {
            incarnation,
            term,
            view,
        }: Resumed,
    ) {
        let asked = incarnation == cx.shell.config.incarnation;
        let Some(resumption) = self.resumption.as_mut().filter(|_| asked) else {
            return cx.emit(Event::Stale {});
        };
        let from = (header.from, header.incarnation, key);
        let known = |member: &Member| (member.id, member.incarnation, member.key) == from;
        let is_member = resumption.kept.view().living().any(known);
        if !is_member || term != resumption.asking.term || header.cluster != cx.shell.cluster {
            return cx.emit(Event::Stranger {});
        }
        resumption.asking.answered(header.from, view);
        self.go_on_if_known(cx);
    }

    /// Takes over if all members have answered, or count as dead.
    fn go_on_if_known(&mut self, cx: &mut Cx<'_>) {
        if let Some(resumption) = &mut self.resumption
            && resumption.asking.missing.is_empty()
            && !resumption.later.is_empty()
        {
            resumption.asking.missing = core::mem::take(&mut resumption.later);
            resumption.asking.since = cx.now;
            return self.ask_to_resume(cx);
        }
        let known = |resumption: &mut Box<Resumption>| resumption.asking.missing.is_empty();
        let Some(resumption) = self.resumption.take_if(known) else {
            return;
        };
        let Resumption {
            kept,
            node,
            asking,
            backoff,
            ..
        } = *resumption;
        cx.end(&backoff, Timer::Join);
        let view = &asking.view;
        if !kept.has_coordinated() && !kept.is_standby_of(view) {
            let why = "another node is the standby by now, and this one's copy is out of date";
            return self.membership.out(cx, Refusal::Invalid(why.into()));
        }
        if view.member(node).is_some() {
            return self.membership.out(cx, taken(node));
        }
        let forgotten = kept.forgotten_in(view);
        self.copy = kept.copy_in(view);
        let Asking {
            term, silent, view, ..
        } = asking;
        // These are lives of which this node's disk knows nothing, and which were not asked.
        let silent = silent.without(&forgotten);
        self.admit_self(cx, node, view);
        let view = cx.shell.view.clone();
        self.take_over(cx, view, term, silent);
        self.keep_anew(cx);
        cx.emit(Event::Resumed {});
    }

    /// This node is a member from now on, as it believes alone.
    fn admit_self(&mut self, cx: &mut Cx<'_>, node: NodeId, mut view: MemberView) {
        let config = &cx.shell.config;
        view.members.push(Member {
            id: node,
            name: config.name.clone(),
            address: config.address,
            incarnation: config.incarnation,
            key: config.key,
            health: Health::Alive,
            program: config.program,
        });
        self.membership.standing = Standing::Member;
        self.membership.follow(cx.now);
        self.membership.begin_life(view.generation);
        cx.shell.me = node;
        cx.shell.set_view(view);
        cx.emit(Event::Admitted { node });
        cx.arm(cx.now, Timer::Heartbeat);
    }
}

impl Services {
    /// The disk has batches up to this one.
    pub(super) fn kept(&mut self, cx: &mut Cx<'_>, batch: u64) {
        self.disk.kept(batch);
        self.send_welcomes(cx);
    }

    /// Everything has to be written to the disk once more.
    pub(super) fn keep_anew(&mut self, cx: &Cx<'_>) {
        let decisions = match &self.coordinator {
            Some(coordinator) => {
                let mut copy = vec![Decision::Anew];
                copy.extend(coordinator.directory.copy());
                copy.extend(self.calls.answered_about_names());
                copy
            }
            None if cx.shell.view.standby == cx.me() => self.copy.decisions(),
            None => return,
        };
        self.disk.keep_anew(cx, decisions);
    }
}

fn taken(node: NodeId) -> Refusal {
    let why = format!(
        "{node}, the number of the coordinator that goes on from its disk, is taken: start the \
         daemon again, and it takes another one"
    );
    Refusal::Invalid(why)
}
