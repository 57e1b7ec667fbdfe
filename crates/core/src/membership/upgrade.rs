//! What a node says of its program, and of the one that is to take its place.

use super::Membership;
use crate::shell::Cx;
use pagemesh_wire::{Program, Ticket, Versions};
use serde::{Deserialize, Serialize};

/// What a node says of its program, and of the one that is to take its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Upgrade {
    /// The version in which this node asks for admission, if its newest was not understood.
    pub(crate) asks_in: Option<u8>,
    /// A program that speaks these versions, and not all that this one speaks, is to take its place.
    pub(crate) room: Option<Versions>,
    /// It waits for the answer to this request.
    pub(crate) wants_room: Option<Ticket>,
    /// The epoch of the view in which the coordinator was told of this node's program, and how many
    /// heartbeats ago first.
    told: (u64, u32),
}

/// A coordinator of version 4 never hears which program a member runs, so it is told ever less
/// often; but once in so many heartbeats, because a datagram may get lost.
const SELDOM: u32 = 64;

/// A coordinator that has not changed the view so many heartbeats after it was told of a program,
/// four times at least, does not know that members have programs.
const UNHEARD: u32 = 8;

impl Membership {
    /// The program that this node says it is: the next one, once it makes room for that.
    pub(crate) fn program(&self, cx: &Cx<'_>) -> Program {
        match self.upgrade.room {
            Some(speaks) => Program::of(speaks),
            None => cx.shell.config.program,
        }
    }

    /// The version in which this node asks for admission.
    pub(super) fn asks_in(&self, cx: &Cx<'_>) -> u8 {
        let newest = cx.shell.config.program.speaks.newest;
        self.upgrade.asks_in.unwrap_or(newest)
    }

    /// Whether what this node has said of its program may still be under way: in the next view it is
    /// no news.
    pub(crate) fn may_be_misheard(&self, epoch: u64) -> bool {
        self.upgrade.told.0 == epoch
    }

    /// Whether the coordinator of this view takes no notice of what it is told of a program.
    pub(crate) fn is_unheard(&self, epoch: u64) -> bool {
        self.upgrade.told.0 == epoch && self.upgrade.told.1 >= UNHEARD
    }

    /// Whether it is time to say again which program this node is, which the view of this epoch does
    /// not know: at once, and then ever less often.
    pub(crate) fn may_tell_program(&mut self, epoch: u64) -> bool {
        let times = self.tells_program(epoch);
        times.is_power_of_two() || times.is_multiple_of(SELDOM)
    }

    /// The coordinator of this view is told of this node's program; how many heartbeats ago first.
    pub(crate) fn tells_program(&mut self, epoch: u64) -> u32 {
        let (of, times) = &mut self.upgrade.told;
        if *of != epoch {
            (*of, *times) = (epoch, 0);
        }
        *times = times.saturating_add(1);
        *times
    }
}
