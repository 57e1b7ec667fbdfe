//! The daemon's state beside its node, as changes that its journal remembers: the next daemon
//! applies them in order and has the same state.
//!
//! State with a descriptor is not noted; the keeper has it. But only the journal says whether the
//! node was told of a mapping.

use crate::schema::Form;
use crate::schema::reader::{self, Misfit};
use crate::schema::writer;
use pagemesh_wire::local::{OLDEST_LOCAL_VERSION, Reply};
use pagemesh_wire::{ByteLen, ClientId, MappingId, SegmentId, SyncKey, Ticket};
use serde::{Deserialize, Serialize};

/// One change. Each says what is so from now on, so that it may be applied again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Note {
    /// A process said hello.
    Greeted {
        /// Which.
        client: ClientId,
        /// Its program.
        program: String,
        /// Its parent did that for it, so its number is not that of its socket.
        child: bool,
        /// The version in which it speaks; a daemon that knew only one did not note it.
        #[serde(default = "oldest")]
        version: u32,
    },
    /// A request waits for the node. It was the last one of its process.
    Asked {
        /// Under which ticket.
        ticket: Ticket,
        /// The request behind it.
        pending: Pending,
    },
    /// It waits no more.
    Answered {
        /// Which.
        ticket: Ticket,
    },
    /// The last request of a process that was executed. Until it is taken out of the socket, it is
    /// not known whether its reply was sent.
    Handled {
        /// Which process.
        client: ClientId,
        /// The number of its request.
        number: u64,
        /// The reply; none if the node gives it.
        reply: Option<Reply>,
    },
    /// How a process has a segment open; not at all if its count is zero.
    Opened {
        /// Which process.
        client: ClientId,
        /// Which segment.
        segment: SegmentId,
        /// How.
        opening: Opening,
    },
    /// The node knows a mapping.
    Mapped {
        /// Which.
        mapping: MappingId,
        /// In which process.
        client: ClientId,
    },
    /// The node knows it no more.
    Unmapped {
        /// Which.
        mapping: MappingId,
    },
    /// A process is gone.
    Gone {
        /// Which.
        client: ClientId,
    },
    /// A lock has a slot.
    Slot {
        /// Which lock.
        key: SyncKey,
        /// Which slot.
        slot: u32,
        /// The user that asked for it.
        uid: u32,
    },
    /// The locks of a segment have no slots any more: no process here has it open.
    GivenBack {
        /// Which.
        segment: SegmentId,
    },
    /// A packet waits until its process reads.
    Queued {
        /// Which process.
        client: ClientId,
        /// The packet.
        packet: Vec<u8>,
    },
    /// Number of them that were sent.
    Flushed {
        /// Which process.
        client: ClientId,
        /// How many.
        count: usize,
    },
    /// Number of pages that wait for memory, in memory that does not outlive the daemon.
    Waiting {
        /// How many.
        pages: usize,
    },
    /// Times that a daemon has gone on in the place of another.
    TakenOver {
        /// How often.
        times: u32,
    },
    /// Numbers never to be given again, up to these.
    Numbers {
        /// Of processes.
        client: u32,
        /// Of mappings.
        mapping: u64,
        /// Of tickets.
        ticket: u64,
    },
}

/// A request that waits for an answer of the core: the process that asked, and the meaning of the
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Which process; none if the daemon itself asked.
    pub client: Option<ClientId>,
    /// The number the process gave its request.
    pub number: u64,
    /// The meaning of the answer.
    pub kind: Kind,
}

/// The consequence of an answer in the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Nothing.
    Plain,
    /// A described segment is now open.
    Open {
        /// For writing.
        write: bool,
    },
    /// When done, the daemon ends.
    Leave,
    /// When done, the daemon ends, and another one that reads this schema goes on.
    HandOver {
        /// The schema.
        schema: u64,
    },
}

/// How a process has a segment open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// How often.
    pub count: u32,
    /// It may write.
    pub write: bool,
    /// Length of the segment.
    pub size: ByteLen,
}

fn oldest() -> u32 {
    OLDEST_LOCAL_VERSION
}

impl Note {
    /// As the journal keeps it.
    pub fn encode(&self) -> Vec<u8> {
        writer::append(self, Form::Positional, Vec::new())
    }

    /// Says nothing that the former edition does not know.
    pub fn put_back(&mut self) {
        match self {
            Self::Greeted { version, .. } => *version = OLDEST_LOCAL_VERSION,
            Self::Handled {
                reply: Some(reply), ..
            } => *reply = reply.clone().in_version(OLDEST_LOCAL_VERSION),
            _ => {}
        }
    }

    /// All notes of a snapshot, with the names of their fields: a daemon of another version may
    /// read them.
    pub fn write_all(notes: &[Self]) -> Vec<u8> {
        writer::append(notes, Form::Named, Vec::new())
    }

    /// The notes of a snapshot.
    ///
    /// # Errors
    /// If they are no notes, or cut off.
    pub fn read_all(mut bytes: &[u8]) -> Result<Vec<Self>, Misfit> {
        reader::read(&mut bytes, Form::Named)
    }

    /// The note in the journal's bytes; none if they are no note.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let note = reader::read(&mut bytes, Form::Positional).ok()?;
        bytes.is_empty().then_some(note)
    }
}
