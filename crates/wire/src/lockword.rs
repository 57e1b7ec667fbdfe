//! The shared word that lets a process take a lock without asking the daemon.
//!
//! Every segment has, on every node, one *lock area*: a memfd of
//! [`SLOT_SIZE`]-byte slots, mapped by the daemon and by each process that
//! opened the segment. The daemon assigns slots to lock numbers
//! ([`crate::local::Request::LockSlot`]); the word at the start of a slot says
//! where the token is. While the token is on this node the word belongs to the
//! clients, who take and release the lock with one compare-and-swap.

use crate::ClientId;

/// Bytes from one slot to the next: a cache line, so that locks do not share one.
pub const SLOT_SIZE: usize = 64;

/// Slots in a new lock area; the area is sparse, so unused slots cost nothing.
pub const SLOT_LIMIT: u32 = 1 << 22;

/// Times a process takes a lock by itself before it gives the token back to its daemon, which lends
/// it again at once if no other node waits. A daemon marks the word of a wanted lock as soon as it
/// gets the request, and the next release is the last; but processes that do nothing but take the
/// lock may keep the processor from their daemon for long. As many empty sections take some
/// milliseconds; compared with that the two requests are cheap.
pub const LOCAL_TURNS: u32 = 1 << 16;

/// A decoded lock word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWord {
    /// The token is not lent to this node's clients: ask the daemon.
    Absent,
    /// Lent and free: swap in [`LockWord::Held`] to take the lock.
    Free,
    /// Taken by a client of this node.
    Held {
        /// The process that holds the lock.
        by: ClientId,
        /// Another process or node waits: at release tell the daemon instead of swapping.
        wanted: bool,
    },
}

const FREE: u32 = 1;
const HELD: u32 = 2;
const WANTED: u32 = 4;
const CLIENT_SHIFT: u32 = 3;

impl LockWord {
    /// Largest client number that fits in a word.
    pub const MAX_CLIENT: u32 = (1 << (32 - CLIENT_SHIFT)) - 1;
    /// The bit that asks the holder to tell the daemon when it releases.
    pub const WANTED_BIT: u32 = WANTED;

    /// The word as stored.
    ///
    /// # Panics
    /// If the client's number is above [`LockWord::MAX_CLIENT`].
    #[must_use]
    pub fn encode(self) -> u32 {
        match self {
            Self::Absent => 0,
            Self::Free => FREE,
            Self::Held { by, wanted } => {
                assert!(
                    by.0 <= Self::MAX_CLIENT,
                    "client number fits in a lock word"
                );
                HELD | (u32::from(wanted) * WANTED) | (by.0 << CLIENT_SHIFT)
            }
        }
    }

    /// The meaning of a stored word; nonsense written by a client reads as absent.
    #[must_use]
    pub fn decode(word: u32) -> Self {
        match word & 3 {
            FREE => Self::Free,
            HELD => Self::Held {
                by: ClientId(word >> CLIENT_SHIFT),
                wanted: word & WANTED != 0,
            },
            _ => Self::Absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for word in [
            LockWord::Absent,
            LockWord::Free,
            LockWord::Held {
                by: ClientId(0),
                wanted: true,
            },
            LockWord::Held {
                by: ClientId(LockWord::MAX_CLIENT),
                wanted: false,
            },
        ] {
            assert_eq!(LockWord::decode(word.encode()), word);
        }
        assert_eq!(LockWord::decode(3), LockWord::Absent);
    }
}
