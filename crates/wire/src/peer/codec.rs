//! Datagrams: a header, a message, and what the message announces.

use super::{Message, version_4};
use crate::header::{HEADER_SIZE, Header, HeaderError, MAX_DATAGRAM};

/// Why a datagram's body was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DecodeError {
    /// The header is no good.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The body is no message, or has bytes left over.
    #[error("malformed message")]
    Malformed,
    /// The page or the diffs announced are missing, short or long, or unannounced.
    #[error("page contents do not fit the message")]
    Page,
}

impl Message {
    /// Appends header and message to `datagram`, encoded in the header's version; contents, if any,
    /// are to be appended after them.
    ///
    /// # Panics
    /// If the message is larger than a datagram: every list in it is bounded.
    pub fn encode(&self, mut header: Header, datagram: &mut Vec<u8>) {
        let start = datagram.len();
        datagram.extend_from_slice(&[0; HEADER_SIZE]);
        let datagram_so_far = core::mem::take(datagram);
        let whole = match header.version {
            version_4::VERSION => version_4::encode(self, datagram_so_far),
            _ => postcard::to_extend(self, datagram_so_far),
        };
        let whole = whole.expect("messages have no unencodable part");
        let body = whole.len() - start - HEADER_SIZE;
        assert!(
            body + self.tail() <= MAX_DATAGRAM - HEADER_SIZE,
            "lists in messages are bounded"
        );
        header.body = body as u16;
        *datagram = whole;
        datagram[start..start + HEADER_SIZE].copy_from_slice(&header.encode());
    }

    /// Takes a datagram apart: header, message and contents ([`Message::tail`]).
    ///
    /// # Errors
    /// If any part of it is not as the version of the protocol says that its header names.
    pub fn decode(datagram: &[u8]) -> Result<(Header, Self, &[u8]), DecodeError> {
        let (header, body, page) = Header::split(datagram)?;
        let decoded = match header.version {
            version_4::VERSION => version_4::decode(body),
            _ => postcard::take_from_bytes(body),
        };
        let (message, rest): (Self, _) = decoded.map_err(|_| DecodeError::Malformed)?;
        if !rest.is_empty() {
            return Err(DecodeError::Malformed);
        }
        if page.len() != message.tail() {
            return Err(DecodeError::Page);
        }
        Ok((header, message, page))
    }
}
