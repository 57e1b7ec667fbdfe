//! A coordinator whose daemon was ended goes on from its disk, as a node of a new number and in a
//! new term. Nothing else is left of its former life, which counts as dead; so this is a takeover
//! like a [`Promotion`](super::Promotion), by a node that the members do not know yet.

use super::{Asking, Kept};
use crate::backoff::Backoff;
use crate::effect::Effect;
use crate::event::Event;
use crate::shell::Cx;
use crate::timers::Timer;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Member, Message, Resume, Resumed};
use pagemesh_wire::{NodeId, NodeSet, PublicKey};
use serde::{Deserialize, Serialize};

/// A coordinator is about to go on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Resumption {
    /// What its disk has.
    pub(crate) kept: Kept,
    /// Its number from now on.
    pub(crate) node: NodeId,
    /// The members are being asked to believe no older coordinator.
    pub(crate) asking: Asking,
    /// Members that are asked when those asked first are silent. A standby asks the coordinator
    /// alone at first: if that is alive, no other member must promise anything.
    pub(crate) later: NodeSet,
    pub(crate) backoff: Backoff,
}

impl Resumption {
    /// Asks members that have not answered.
    pub(crate) fn ask(&self, cx: &mut Cx<'_>) {
        let Asking { term, missing, .. } = &self.asking;
        let term = *term;
        if cx.shell.config.elected {
            cx.push(Effect::Renew { term });
        }
        let mut tried = self.kept.lives().to_vec();
        tried.retain(|other| *other != term);
        let known = self.kept.view().term;
        for node in missing.iter() {
            let view = self.kept.view();
            let Some(address) = view.member(node).map(|member| member.address) else {
                continue;
            };
            let message = Message::Resume(Resume {
                term,
                known,
                tried: tried.clone(),
            });
            let mut header = cx.header_of(node, &message);
            (header.from, header.term) = (self.node, term);
            cx.push(Effect::Send {
                address,
                header,
                message: Box::new(message),
                page: None,
            });
        }
    }

    /// If it is time: asks again, or gives up those who do not answer.
    pub(crate) fn due(&mut self, cx: &mut Cx<'_>) -> bool {
        let due = cx.fire(&mut self.backoff, Timer::Join);
        if due {
            if cx.now - self.asking.since > cx.pace().dead_after {
                self.asking.give_up();
            }
            self.ask(cx);
        }
        due
    }

    /// A node has promised to believe no coordinator of a term before this node's. Returns whether that
    /// node is a member that was asked.
    pub(crate) fn promised(
        &mut self,
        cx: &mut Cx<'_>,
        key: PublicKey,
        header: &Header,
        resumed: Resumed,
    ) -> bool {
        let from = (header.from, header.incarnation, key);
        let known = |member: &Member| (member.id, member.incarnation, member.key) == from;
        let is_member = self.kept.view().living().any(known);
        let fits = resumed.term == self.asking.term && header.cluster == cx.shell.cluster;
        if is_member && fits {
            self.asking.answered(header.from, resumed.view);
        } else {
            cx.emit(Event::Stranger {});
        }
        is_member && fits
    }

    /// Whether all members have answered, or count as dead. If only those have that are asked first,
    /// asks the others.
    pub(crate) fn is_known(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.asking.missing.is_empty() {
            return false;
        }
        let is_known = self.later.is_empty();
        if !is_known {
            self.asking.missing = core::mem::take(&mut self.later);
            self.asking.since = cx.now;
            self.ask(cx);
        }
        is_known
    }
}
