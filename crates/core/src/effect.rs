//! The one way out: everything a node can make happen.
//!
//! # The driver's law
//! Effects of one call are carried out **in order and completely** before the
//! next input. Datagrams that came together may be handled first, all of them, as long
//! as every effect may wait ([`Effect::may_wait`]); then the effects of all are carried
//! out like those of one call, each [`Source::Payload`] meaning the page of its own
//! datagram. That makes three promises of the protocol hold:
//!
//! - *INV-protect-before-grant*: [`Effect::Protect`] and [`Effect::Evict`] stand
//!   before the [`Effect::Send`] that gives the page away, so no local store can
//!   slip in between.
//! - *INV-fill-before-map*: [`Effect::Fill`] stands before the first
//!   [`Effect::Map`] of a page.
//! - *INV-stash-before-send*: contents that only a datagram would carry rest in
//!   the stash until the receiver has acknowledged them.
//!
//! One more is about speed: *INV-send-before-reply*: an [`Effect::Reply`] stands behind
//! every [`Effect::Send`] of its call that anybody waits for. Whoever is answered may take the
//! processor at once and compute, and all other nodes would wait for what was still to be
//! sent. Receipts, for which nobody waits, are sent afterwards: sending takes as long as
//! answering. Answers to a watch stay where they are: it must know before anybody may store.
//!
//! And another: *INV-depart-first*: the [`Effect::Send`] by which another node leaves a
//! barrier stands before all that the last arrival makes of pages here, for which nobody
//! elsewhere waits; datagrams keep their order.

use core::net::SocketAddr;
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{self, Message, Refusal, SegmentInfo};
use pagemesh_wire::{ClientId, MappingId, PageIndex, SegmentId, SyncKey, Ticket};

use crate::event::Event;
use serde::{Deserialize, Serialize};

mod diff_work;

pub use diff_work::{Afterwards, DiffWork};

/// What the mappings of a page may do with it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Rights {
    /// Nothing: the next access faults.
    #[default]
    None,
    /// Load.
    Read,
    /// Load and store.
    Write,
}

/// Where the bytes of a page come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The page behind the message of the datagram being handled.
    Payload,
    /// Zeros.
    Zero,
    /// The frame: the segment's memory on this node.
    Frame,
    /// The stash: what [`Effect::Evict`] kept.
    Stash,
    /// The twin: what [`DiffWork::Twin`] kept, as the last diff left it.
    Twin,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a datagram. May get lost; the core repeats what matters.
    Send {
        /// Where to.
        address: SocketAddr,
        /// Its header; the driver sets `body` when it encodes.
        header: Header,
        /// Its message; apart, since effects are moved often and most are small.
        message: Box<Message>,
        /// The page behind it, exactly if [`Message::carries_page`].
        page: Option<(SegmentId, PageIndex, Source)>,
    },
    /// Tell a host that wants to join that it speaks another version. May get
    /// lost; the host asks again.
    SendNotice {
        /// Where to.
        address: SocketAddr,
        /// What.
        notice: Notice,
    },
    /// Put contents into a page's frame. No mapping has rights to it now.
    Fill {
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
        /// From where: payload, zeros or stash.
        source: Source,
    },
    /// Let one mapping have the page, and wake its threads. The frame has its
    /// contents. Rights of other mappings do not change.
    Map {
        /// Which mapping.
        mapping: MappingId,
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
        /// Read or write.
        rights: Rights,
    },
    /// Take away the right to store, in all mappings. Loads go on.
    Protect {
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
    },
    /// Take away all rights in all mappings and empty the frame. Never loses a
    /// store: first stop stores, then copy if `keep`, then empty, then wake.
    Evict {
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
        /// Put the contents into the stash first.
        keep: bool,
    },
    /// The stash of this page is not needed any more.
    DropStash {
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
    },
    /// The access waiting in this mapping can never be served: raise SIGBUS
    /// there and say why.
    Fail {
        /// In which mapping.
        mapping: MappingId,
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
        /// Why.
        why: Refusal,
    },
    /// Find out whether the threads that waited for this page have run since it
    /// was mapped, and answer with `Input::UseConfirmed` (M12).
    ConfirmUse {
        /// Of which segment.
        segment: SegmentId,
        /// Which page.
        page: PageIndex,
    },
    /// Drop all memory of a segment: nobody uses it.
    Forget {
        /// Which.
        segment: SegmentId,
    },
    /// Write a lock's shared word: held by `client`. Its mark for waiters is
    /// set if `wanted`.
    LendLock {
        /// Which lock.
        key: SyncKey,
        /// Who holds it now.
        client: ClientId,
        /// Others wait already.
        wanted: bool,
    },
    /// Get a lent token back: swap a free word to absent and answer at once with
    /// `Input::LockReturned`, or mark the held word as wanted, so that
    /// `LockReturned` follows when its holder releases or dies.
    ReclaimLock {
        /// Which lock.
        key: SyncKey,
    },
    /// Answer a request.
    Reply {
        /// Which.
        ticket: Ticket,
        /// With what.
        reply: Box<Reply>,
    },
    /// Something about twins and diffs of a segment of policy `release`.
    Diffs(DiffWork),
    /// For the counters, the log and the dashboard.
    Emit(Event),
}

impl Effect {
    /// Whether the node may hear more datagrams before this is carried out: it gives
    /// rise to no input, and no program is answered by it.
    #[must_use]
    pub const fn may_wait(&self) -> bool {
        matches!(
            self,
            Self::Send { .. }
                | Self::Fill { .. }
                | Self::Map { .. }
                | Self::Protect { .. }
                | Self::Evict { .. }
                | Self::DropStash { .. }
                | Self::Emit(_)
        )
    }

    /// Whether somebody elsewhere leaves a barrier by it.
    fn is_departure(&self) -> bool {
        let Self::Send { message, .. } = self else {
            return false;
        };
        let depart = |body: &peer::Reply| matches!(body, peer::Reply::Depart(_));
        matches!(&**message, Message::Reply { body, .. } if depart(body))
    }

    /// Where a datagram of the protocol goes to that leaves by it.
    #[must_use]
    pub const fn destination(&self) -> Option<SocketAddr> {
        match self {
            Self::Send { address, .. } | Self::Diffs(DiffWork::Send { address, .. }) => {
                Some(*address)
            }
            _ => None,
        }
    }

    /// Whether a datagram leaves by it.
    const fn sends(&self) -> bool {
        self.destination().is_some()
    }

    /// Whether it lets a program go on.
    fn is_answer(&self) -> bool {
        match self {
            Self::Reply { reply, .. } => !matches!(**reply, Reply::Waiting | Reply::Changed),
            _ => false,
        }
    }

    /// Whether it is a datagram that nobody waits for.
    fn is_receipt(&self) -> bool {
        matches!(self, Self::Send { message, .. } if message.is_receipt())
    }
}

/// An answer to a local request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done.
    Done,
    /// A segment was opened or described.
    Segment(SegmentInfo),
    /// Segments in order of their names.
    Segments(Vec<SegmentInfo>),
    /// So many were woken.
    Woken(u32),
    /// The lock is the client's; an [`Effect::LendLock`] stands before this.
    Locked {
        /// Its last holder died holding it.
        recovered: bool,
    },
    /// First of two replies, to a watch or a wait for a signal: nothing that
    /// happens from now on is missed.
    Waiting,
    /// Last reply to a watch: the page may change from now on.
    Changed,
    /// No, and why.
    Refused(Refusal),
    /// What became of a System V call.
    Sysv(pagemesh_wire::sysv::Outcome),
}

/// The effects of one call, in order. Reused from call to call.
#[derive(Debug, Default)]
pub struct Effects(Vec<Effect>);

impl Effects {
    /// Appends an effect.
    pub fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    /// Appends an event.
    pub fn emit(&mut self, event: Event) {
        self.0.push(Effect::Emit(event));
    }

    /// Takes the effects out, in order, keeping the memory.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Effect> {
        self.0.drain(..)
    }

    /// The effects so far.
    #[must_use]
    pub fn as_slice(&self) -> &[Effect] {
        &self.0
    }

    /// How many there are so far.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The effect with that number.
    pub(crate) fn at(&mut self, index: usize) -> &mut Effect {
        &mut self.0[index]
    }

    /// Of those from `start` on, puts the answers to programs behind all datagrams that
    /// anybody waits for, and receipts behind the answers.
    pub(crate) fn answer_last(&mut self, start: usize) {
        let Some(first) = self.0[start..].iter().position(Effect::is_answer) else {
            return;
        };
        let sends = |effect: &Effect| matches!(effect, Effect::Send { .. });
        if !self.0[start..].iter().any(sends) {
            return;
        }
        let answers: Vec<_> = self
            .0
            .extract_if(start + first.., |effect| effect.is_answer())
            .collect();
        let receipts: Vec<_> = self
            .0
            .extract_if(start.., |effect| effect.is_receipt())
            .collect();
        self.0.extend(answers);
        self.0.extend(receipts);
    }

    /// Of those from `start` on, puts departures from barriers before all that is no datagram.
    pub(crate) fn depart_first(&mut self, start: usize) {
        let mut left = start;
        for index in start..self.0.len() {
            if self.0[index].is_departure() {
                self.0[left..=index].rotate_right(1);
                left += 1;
            } else if self.0[index].sends() {
                left = index + 1;
            }
        }
    }

    /// Takes out those from `start` on.
    pub(crate) fn split_off(&mut self, start: usize) -> Vec<Effect> {
        self.0.split_off(start)
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_small() {
        // Some thirty of them are moved for each fault.
        let size = size_of::<Effect>();
        assert!(
            size <= 112,
            "{size} bytes: what is large and rare goes into a box"
        );
    }
}
