//! Messages between a daemon and its keeper.

use pagemesh_wire::{ClientId, MappingId, SegmentId};
use serde::{Deserialize, Serialize};

/// The newest version that is spoken; a keeper is older than its daemon after an upgrade, and newer
/// if a program was put back.
pub(crate) const VERSION: u32 = 4;

/// The oldest. A daemon says in which version it speaks; a keeper that does not speak it refuses,
/// and the daemon tries an older one.
pub(crate) const OLDEST_VERSION: u32 = 4;

/// Names a thing that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Tag {
    /// The journal's memory.
    Journal,
    /// The stash.
    Stash,
    /// The last datagram.
    Datagram,
    /// The socket to other daemons.
    Network,
    /// The private key, if datagrams are sealed.
    Identity,
    /// Where processes connect.
    Listener,
    /// The connection to a process.
    Session(ClientId),
    /// The memory of a segment.
    Memory(SegmentId),
    /// Its lock words.
    Locks(SegmentId),
    /// The userfaultfd of a mapping; its note is a [`Whole`].
    Mapping(MappingId),
    /// Twins and diffs.
    Twins,
    /// The request slot of a process.
    RequestSlot(ClientId),
    /// The secret by which lent pages are sealed.
    PageSecret,
    /// The file behind a private segment.
    Backing(SegmentId),
}

/// Messages of a daemon. `Put` carries a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// First on every connection: give me everything, I go on.
    Adopt {
        /// See [`VERSION`].
        version: u32,
    },
    /// Keep this, in place of an item with the same name.
    Put {
        /// Its name.
        tag: Tag,
        /// Its note.
        note: Vec<u8>,
    },
    /// Keep it no more.
    Drop {
        /// Its name.
        tag: Tag,
    },
    /// Taken over: if I end, the grace begins anew.
    Settled,
    /// No daemon will go on: processes that are left get errors.
    End,
    /// First on a connection, and last: end at once, with all items.
    Dismiss,
}

/// Messages of a keeper. `Item` carries a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// First, to the daemon that started me: others find me now.
    Ready,
    /// The daemon lives.
    Busy,
    /// I speak another version.
    Foreign,
    /// A kept item.
    Item {
        /// Its name.
        tag: Tag,
        /// Its note.
        note: Vec<u8>,
    },
    /// That was all.
    All,
}

/// The facts about a mapping. The keeper needs to know where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Whole {
    /// In which process.
    pub(crate) client: ClientId,
    /// Its first byte.
    pub(crate) address: u64,
    /// Its bytes.
    pub(crate) length: u64,
    /// Of which segment.
    pub(crate) segment: SegmentId,
    /// From which byte of it.
    pub(crate) offset: u64,
    /// Shared and writable.
    pub(crate) write: bool,
}

impl Whole {
    /// As it goes with its descriptor.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }
}

/// Largest packet: a note, with its name and encoding.
pub(crate) const PACKET: usize = 1024;

pub(crate) fn encode(words: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(words).expect("words have no unencodable part")
}

pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((words, [])) => Some(words),
        _ => None,
    }
}
