//! Effects of a node: everything it can make happen.
//!
//! # The driver's law
//! Effects of one call are carried out **in order and completely** before the next input. A driver
//! may hand several received datagrams to the node in a row as long as every effect may wait
//! ([`Effect::may_wait`]); then it carries out the effects of all of them like those of one call,
//! where each [`Source::Payload`] means the page of its own datagram. The order makes three
//! invariants of the protocol hold:
//!
//! - *INV-protect-before-grant*: [`Effect::Protect`] and [`Effect::Evict`] stand before the
//!   [`Effect::Send`] that gives the page away, so that no local store happens in between.
//! - *INV-fill-before-map*: [`Effect::Fill`] stands before the first [`Effect::Map`] of a page.
//! - *INV-stash-before-send*: contents that only a datagram carries stay in the stash until the
//!   receiver has acknowledged them.
//!
//! Two more are about speed. *INV-send-before-reply*: an [`Effect::Reply`] stands behind every
//! [`Effect::Send`] of its call that another node waits for. The answered program may take the
//! processor at once and compute, and other nodes would wait for the datagrams still to be sent.
//! Acknowledgements, which no node waits for, are sent after the replies, because sending takes as
//! long as replying. Replies to a watch keep their place: the watching program must be told before
//! any program may store.
//!
//! *INV-depart-first*: the [`Effect::Send`] by which another node leaves a barrier stands before
//! all that the last arrival changes about pages here, because no other node waits for that;
//! datagrams keep their order.

use core::net::SocketAddr;
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{self, Message, Refusal, SegmentInfo};
use pagemesh_wire::{ClientId, MappingId, NodeId, PageIndex, SegmentId, SyncKey, Term, Ticket};

use crate::control::KeptEntry;
use crate::event::Event;
use serde::{Deserialize, Serialize};

mod diff_work;
mod range;

pub use diff_work::{Afterwards, DiffWork};
use range::Open;
pub use range::{Mappings, PageRange};

/// The rights of a mapping to a page.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Rights {
    /// No rights: the next access faults.
    #[default]
    None,
    /// Loads.
    Read,
    /// Loads and stores.
    Write,
}

/// The source of a page's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The page behind the message of the datagram that is being handled.
    Payload,
    /// Zeros.
    Zero,
    /// The frame: the page's memory on this node.
    Frame,
    /// The stash: contents that [`Effect::Evict`] kept.
    Stash,
    /// The twin that [`DiffWork::Twin`] made, as the last diff left it.
    Twin,
    /// So many bytes from the start of a page: in a datagram, those of the frame, and zeros behind
    /// them; in a frame, those of the payload, and the other bytes stay as they are. Mappings may
    /// have rights to the frame meanwhile.
    Prefix(u16),
    /// The file behind a segment of policy `private`; only to fill frames.
    Disk,
    /// The stash of this page of [`SegmentId::KEPT_FILES`]; only to fill frames.
    Kept(PageIndex),
    /// The stash of this place of the same segment, where this node has kept what another one had;
    /// only to fill frames.
    Replica(PageIndex),
}

/// A step that the driver carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a datagram. It may get lost; the core resends what matters.
    Send {
        /// The destination.
        address: SocketAddr,
        /// The header; the driver sets `body` when it encodes the datagram.
        header: Header,
        /// The message. It is boxed, because effects are moved often and most are small.
        message: Box<Message>,
        /// The page behind the message; present exactly if [`Message::carries_page`].
        page: Option<(SegmentId, PageIndex, Source)>,
    },
    /// Tell a host that wants to join that it speaks another version. The notice may get lost; the
    /// host asks again.
    SendNotice {
        /// The destination.
        address: SocketAddr,
        /// The notice.
        notice: Notice,
    },
    /// Put contents into frames. No mapping has rights to the pages now.
    Fill {
        /// The pages.
        pages: PageRange,
        /// The source of the contents: payload, zeros or stash. Payloads of several pages came with
        /// as many datagrams, one after the other.
        source: Source,
    },
    /// Give mappings rights to pages, and wake their threads. The frames have their contents.
    /// Rights of other mappings do not change.
    Map {
        /// The mappings.
        mappings: Mappings,
        /// The pages.
        pages: PageRange,
        /// The rights: read or write.
        rights: Rights,
    },
    /// Take away the right to store in mappings. Loads go on.
    Protect {
        /// The pages.
        pages: PageRange,
        /// The mappings.
        mappings: Mappings,
    },
    /// Empty frames, which takes away all rights in all mappings. No store gets lost: the driver
    /// first stops stores, then copies the frames if `keep`, then empties them, then wakes threads.
    Evict {
        /// The pages.
        pages: PageRange,
        /// Whether to put the contents into the stash first.
        keep: bool,
    },
    /// Put the page behind the message of the datagram that is being handled into the stash.
    Stow {
        /// The segment.
        segment: SegmentId,
        /// The page.
        page: PageIndex,
    },
    /// Drop the stash of a page.
    DropStash {
        /// The segment.
        segment: SegmentId,
        /// The page.
        page: PageIndex,
    },
    /// The access that waits in this mapping can never be served: raise SIGBUS there and say why.
    Fail {
        /// The mapping.
        mapping: MappingId,
        /// The segment.
        segment: SegmentId,
        /// The page.
        page: PageIndex,
        /// The reason.
        why: Refusal,
    },
    /// Find out whether the threads that waited for this page have run since it was mapped, and
    /// report it by `Input::UseConfirmed` (M12).
    ConfirmUse {
        /// The segment.
        segment: SegmentId,
        /// The page.
        page: PageIndex,
    },
    /// Drop all memory of a segment that is not used any more.
    Forget {
        /// The segment.
        segment: SegmentId,
    },
    /// Write a lock word: `client` holds the lock. The mark for waiters is set if `wanted`.
    LendLock {
        /// The lock.
        key: SyncKey,
        /// The client that holds it now.
        client: ClientId,
        /// Whether others wait already.
        wanted: bool,
    },
    /// Get a lent token back. If the lock word is free, swap it to absent and report
    /// `Input::LockReturned` at once; otherwise mark it as wanted, so that `LockReturned` follows
    /// when its holder releases or dies.
    ReclaimLock {
        /// The lock.
        key: SyncKey,
    },
    /// Answer a request.
    Reply {
        /// The ticket of the request.
        ticket: Ticket,
        /// The answer.
        reply: Box<Reply>,
    },
    /// Work on twins and diffs of a segment of policy `release`.
    Diffs(DiffWork),
    /// Write the stashed contents of pages to the file behind their segment, and report by
    /// [`Input::Stored`](crate::Input::Stored) whether that worked. Contents that the file has are
    /// not lost if this daemon dies, or is replaced.
    Store {
        /// The pages.
        pages: PageRange,
    },
    /// Append a batch of entries to the file of the coordinator or standby, and have the disk write
    /// it. The driver does not wait for the disk: it reports by [`Input::Kept`](crate::Input::Kept)
    /// what the disk has for sure. Batches are numbered from one, without gaps.
    Keep {
        /// The number of the batch.
        batch: u64,
        /// Its entries, which count together or not at all.
        entries: Vec<KeptEntry>,
    },
    /// Renew this node's claim to coordinate in this term, in the store that all nodes share. It
    /// comes with each heartbeat; a claim that was not renewed for [`CLAIM`](crate::limits::CLAIM)
    /// heartbeats may be taken.
    Renew {
        /// The term.
        term: Term,
    },
    /// The coordinator is silent. If nobody has renewed the claim in the store for
    /// [`CLAIM`](crate::limits::CLAIM) heartbeats, take it, in a term that is newer than this one and
    /// than that of the claim, and report by [`Input::Elected`](crate::Input::Elected). It comes
    /// again as long as the coordinator is silent.
    Elect {
        /// This node.
        node: NodeId,
        /// The newest term that this node knows.
        fence: Term,
    },
    /// This node is about to coordinate in this term, and members do not answer it. Report by
    /// [`Input::Asking`](crate::Input::Asking) which nodes have asked the store for the claim since
    /// it was taken in this term: those live, and cannot be reached from here. It comes again until
    /// all have answered or are given up.
    ListAsking {
        /// The term.
        term: Term,
    },
    /// The daemon that this host asks for admission does not answer. If the store has another
    /// coordinator, report it by [`Input::Coordinates`](crate::Input::Coordinates). It comes again
    /// until this host is admitted.
    Seek,
    /// Report the faults of all mappings of a segment from now on, and by
    /// [`Input::Trapped`](crate::Input::Trapped) which of its pages have frames. It comes only if the
    /// node [traps late](crate::Config::traps_late); until it comes, the kernel serves the accesses of
    /// an [untrapped](crate::Node::is_trapped) segment. It may come again.
    Trap {
        /// The segment.
        segment: SegmentId,
    },
    /// Record an event for the counters, the log and the dashboard.
    Emit(Event),
}

impl Effect {
    /// Whether the node may be given more datagrams before this effect is carried out: the effect
    /// causes no input and answers no program.
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
                | Self::Stow { .. }
                | Self::Keep { .. }
                | Self::Renew { .. }
                | Self::Elect { .. }
                | Self::ListAsking { .. }
                | Self::Seek
                | Self::Emit(_)
        )
    }

    /// Whether this is a datagram by which another node leaves a barrier.
    fn is_departure(&self) -> bool {
        let Self::Send { message, .. } = self else {
            return false;
        };
        let depart = |body: &peer::Reply| matches!(body, peer::Reply::Depart(_));
        matches!(&**message, Message::Reply { body, .. } if depart(body))
    }

    /// The destination, if this sends a datagram of the protocol.
    #[must_use]
    pub const fn destination(&self) -> Option<SocketAddr> {
        match self {
            Self::Send { address, .. } | Self::Diffs(DiffWork::Send { address, .. }) => {
                Some(*address)
            }
            _ => None,
        }
    }

    /// Whether this sends a datagram.
    const fn sends(&self) -> bool {
        self.destination().is_some()
    }

    /// Whether this lets a program go on.
    fn is_answer(&self) -> bool {
        match self {
            Self::Reply { reply, .. } => !matches!(**reply, Reply::Waiting | Reply::Changed),
            _ => false,
        }
    }

    /// Whether this is a datagram that no node waits for.
    fn is_receipt(&self) -> bool {
        matches!(self, Self::Send { message, .. } if message.is_receipt())
    }
}

/// An answer to a request of a local process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The request has succeeded.
    Done,
    /// A segment was opened or described.
    Segment(SegmentInfo),
    /// Segments in order of their names.
    Segments(Vec<SegmentInfo>),
    /// The number of processes that were woken.
    Woken(u32),
    /// The client has the lock; an [`Effect::LendLock`] stands before this reply.
    Locked {
        /// True if the last holder died holding it.
        recovered: bool,
    },
    /// First of two replies, to a watch or to a wait for a signal: nothing that happens from now on
    /// is missed.
    Waiting,
    /// Last reply to a watch: the page may change from now on.
    Changed,
    /// The request was refused, with the reason.
    Refused(Refusal),
    /// The outcome of a System V call.
    Sysv(pagemesh_wire::sysv::Outcome),
    /// Frames for pages of a file.
    FilePages(pagemesh_wire::local::FileFrames),
    /// The memory of a node.
    Memory(pagemesh_wire::peer::MemoryReport),
}

/// The effects of one call, in order. Drivers reuse it, to save allocations.
#[derive(Debug, Default)]
pub struct Effects {
    all: Vec<Effect>,
    /// The number of inputs that were handled since the effects were last drained.
    inputs: u32,
    /// The effects that the next one may join.
    open: Option<Open>,
}

impl Effects {
    /// Appends an event.
    pub fn emit(&mut self, event: Event) {
        self.all.push(Effect::Emit(event));
    }

    /// Takes out all effects in order and keeps the allocated memory.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Effect> {
        (self.inputs, self.open) = (0, None);
        self.all.drain(..)
    }

    /// Takes out all effects, and returns the messages that are sent, and to which nodes.
    #[cfg(test)]
    pub(crate) fn drain_sent(&mut self) -> Vec<(NodeId, Message)> {
        let sent = self.drain().filter_map(|effect| match effect {
            Effect::Send {
                header, message, ..
            } => Some((header.to, *message)),
            _ => None,
        });
        sent.collect()
    }

    /// The effects from now on are those of the next input.
    pub(crate) fn next_input(&mut self) {
        self.inputs += 1;
    }

    /// The effects appended so far.
    #[must_use]
    pub fn as_slice(&self) -> &[Effect] {
        &self.all
    }

    /// The number of effects appended so far.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The effect at this index.
    pub(crate) fn at(&mut self, index: usize) -> &mut Effect {
        &mut self.all[index]
    }

    /// Reorders effects from `start` on: replies to programs stand behind all datagrams that
    /// another node waits for, and acknowledgements behind the replies.
    pub(crate) fn answer_last(&mut self, start: usize) {
        let Some(first) = self.all[start..].iter().position(Effect::is_answer) else {
            return;
        };
        let sends = |effect: &Effect| matches!(effect, Effect::Send { .. });
        if !self.all[start..].iter().any(sends) {
            return;
        }
        self.open = None;
        let answers: Vec<_> = self
            .all
            .extract_if(start + first.., |effect| effect.is_answer())
            .collect();
        let receipts: Vec<_> = self
            .all
            .extract_if(start.., |effect| effect.is_receipt())
            .collect();
        self.all.extend(answers);
        self.all.extend(receipts);
    }

    /// Reorders effects from `start` on: departures from barriers stand before all effects that are
    /// no datagrams.
    pub(crate) fn depart_first(&mut self, start: usize) {
        let mut left = start;
        for index in start..self.all.len() {
            if self.all[index].is_departure() {
                self.open = None;
                self.all[left..=index].rotate_right(1);
                left += 1;
            } else if self.all[index].sends() {
                left = index + 1;
            }
        }
    }

    /// Takes out the effects from `start` on. Effects before them may still be joined.
    pub(crate) fn split_off(&mut self, start: usize) -> Vec<Effect> {
        self.open.take_if(|open| !open.stands_before(start));
        self.all.split_off(start)
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_small() {
        // Some thirty effects are moved for each fault.
        let size = size_of::<Effect>();
        assert!(
            size <= 112,
            "{size} bytes: what is large and rare goes into a box"
        );
    }
}
