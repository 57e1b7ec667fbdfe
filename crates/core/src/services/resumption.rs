//! A coordinator goes on from its disk, and both that and its standby write there.
//!
//! What a daemon knew beyond its disk is gone with it: pages, locks, barriers. So its former life
//! counts as dead, and it goes on as a node of a new number: a takeover like that of a standby, by
//! a node that the members do not know yet.

use super::Services;
use crate::config::{Life, Start};
use crate::control::{Asking, Resumption};
use crate::event::Event;
use crate::link::Sender;
use crate::membership::{Standing, taken};
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::NodeSet;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Decision, Refusal, Resumed};

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
        let resumption = Resumption {
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
        };
        cx.shell.cluster = cluster;
        resumption.ask(cx);
        self.resumption = Some(Box::new(resumption));
        self.go_on_if_known(cx);
    }

    /// Asks again, or gives up those who do not answer.
    pub(super) fn resumption_due(&mut self, cx: &mut Cx<'_>) {
        let resumption = self.resumption.as_mut();
        if resumption.is_some_and(|resumption| resumption.due(cx)) {
            self.go_on_if_known(cx);
        }
    }

    /// A member has promised to believe no coordinator before this node.
    pub(crate) fn promised_to_resume(
        &mut self,
        cx: &mut Cx<'_>,
        (_, key): Sender,
        header: &Header,
        resumed: Resumed,
    ) {
        let asked = resumed.incarnation == cx.shell.config.incarnation;
        let Some(resumption) = self.resumption.as_mut().filter(|_| asked) else {
            return cx.emit(Event::Stale {});
        };
        if resumption.promised(cx, key, header, resumed) {
            self.go_on_if_known(cx);
        }
    }

    /// Takes over if all members have answered, or count as dead.
    fn go_on_if_known(&mut self, cx: &mut Cx<'_>) {
        let known = |resumption: &mut Box<Resumption>| resumption.is_known(cx);
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
        self.membership.admit_self(cx, node, view);
        let view = cx.shell.view.clone();
        self.take_over(cx, view, term, silent);
        self.keep_anew(cx);
        cx.emit(Event::Resumed {});
    }

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
