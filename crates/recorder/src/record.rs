//! One record of a log.

use pagemesh_core::{Input, Time};
use pagemesh_wire::header::{HEADER_SIZE, Header};
use serde::{Deserialize, Serialize};

/// Records of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record<'a> {
    /// A node is about to handle this.
    Input {
        /// When.
        now: Time,
        /// The input; of a datagram only its header and message.
        #[serde(borrow)]
        input: Input<'a>,
        /// Bytes of the datagram that were left out, mostly a page: the core
        /// never looks at more than how many there are.
        rest: u32,
        /// It came together with the input before: the effects of both are carried
        /// out after this one was handled.
        joined: bool,
    },
    /// An effect gave rise to this input; it waits in line.
    #[serde(borrow)]
    Follow(Input<'a>),
    /// A node is about to handle the input that is first in line.
    Next {
        /// When.
        now: Time,
    },
    /// A note of the writer.
    Note(#[serde(serialize_with = "crate::bytes::serialize")] &'a [u8]),
}

impl<'a> Record<'a> {
    /// The record of an input, without page contents.
    #[must_use]
    pub fn input(now: Time, input: Input<'a>) -> Self {
        Self::of(now, input, false)
    }

    /// The record of an input that came together with the one before.
    #[must_use]
    pub fn joined(now: Time, input: Input<'a>) -> Self {
        Self::of(now, input, true)
    }

    fn of(now: Time, input: Input<'a>, joined: bool) -> Self {
        match input {
            Input::Datagram { source, key, bytes } => {
                let (head, rest) = bytes.split_at(heard(bytes));
                Self::Input {
                    now,
                    input: Input::Datagram {
                        source,
                        key,
                        bytes: head,
                    },
                    rest: u32::try_from(rest.len()).unwrap_or(u32::MAX),
                    joined,
                }
            }
            input => Self::Input {
                now,
                input,
                rest: 0,
                joined,
            },
        }
    }
}

/// How much of a datagram a node looks at: header and message, or the header
/// alone if it is refused for it.
fn heard(bytes: &[u8]) -> usize {
    let body = match Header::split(bytes) {
        Ok((header, _, _)) => usize::from(header.body),
        Err(_) => 0,
    };
    bytes.len().min(HEADER_SIZE + body)
}
