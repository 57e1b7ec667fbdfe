//! Messages of a process to the daemon of its node, over a Unix socket.
//!
//! The socket is of type `SOCK_SEQPACKET`: one message a packet, in postcard
//! encoding, at most [`MAX_PACKET`] bytes, with at most [`MAX_FDS`] descriptors.
//! Requests carry a number that the reply repeats, so the threads of a process
//! share one socket; replies come in any order. A process that asks often gets a *request slot*
//! (`pagemesh_os::request_slot`): brief requests and their replies then go through shared memory,
//! as the same packets. A request that was sent through the socket and answered was handled
//! earlier; one that is sent there afterwards is handled later.

mod advice;
mod file_frames;
mod reply;
mod report;
mod request;
mod trouble;
mod view;

use crate::peer::Credentials;
use serde::{Deserialize, Serialize};

pub use crate::peer::Refusal;
pub use advice::Advice;
pub use file_frames::FileFrames;
pub use reply::Reply;
pub use report::{
    ControlStatus, DiskState, Label, NodeStatus, PageLine, PageReport, PageState, PathInfo,
    RaceLine, RaceReport, SharingLine, SharingReport, Stamp, StampKind, WrittenRange,
};
pub use request::Request;
pub use trouble::Trouble;
pub use view::View;

/// Largest packet in either direction.
pub const MAX_PACKET: usize = 64 * 1024;

/// Most descriptors one packet carries.
pub const MAX_FDS: usize = 4;

/// The newest version that is spoken on the Unix socket.
pub const LOCAL_VERSION: u32 = 9;

/// The oldest. A process says in its hello which one it speaks; where daemon and process are of
/// different releases, it is one of the older release. Variants are only ever appended: a reply that
/// changes becomes a new one, which processes of older versions do not get ([`Reply::in_version`]).
pub const OLDEST_LOCAL_VERSION: u32 = 6;

/// One packet from a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequestPacket {
    /// Chosen by the client, unique among its open requests.
    pub number: u64,
    /// The request.
    pub request: Request,
}

/// One packet to a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplyPacket {
    /// The request this answers.
    pub number: u64,
    /// The answer.
    pub reply: Reply,
}

/// The process at the other end of a socket, as the kernel names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// Process number.
    pub pid: i32,
    /// User and groups.
    pub credentials: Credentials,
}

/// A packet that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed packet on the daemon's socket; client and daemon are of different versions?")]
pub struct PacketError;

macro_rules! packet {
    ($name:ident) => {
        impl $name {
            /// The packet's bytes.
            ///
            /// # Panics
            /// Never: packets have no unencodable part.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                postcard::to_extend(self, Vec::new()).expect("packets have no unencodable part")
            }

            /// The packet in these bytes.
            ///
            /// # Errors
            /// If they are not exactly one packet.
            pub fn decode(bytes: &[u8]) -> Result<Self, PacketError> {
                match postcard::take_from_bytes(bytes) {
                    Ok((packet, [])) => Ok(packet),
                    _ => Err(PacketError),
                }
            }
        }
    };
}

packet!(RequestPacket);
packet!(ReplyPacket);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn packets_round_trip_and_reject_leftovers() {
        let packet = RequestPacket {
            number: 7,
            request: Request::Probe { node: NodeId(2) },
        };
        let mut bytes = packet.encode();
        assert_eq!(RequestPacket::decode(&bytes), Ok(packet));
        bytes.push(0);
        assert_eq!(RequestPacket::decode(&bytes), Err(PacketError));
        assert_eq!(RequestPacket::decode(&[]), Err(PacketError));
        let reply = ReplyPacket {
            number: 7,
            reply: Reply::Woken(3),
        };
        assert_eq!(ReplyPacket::decode(&reply.encode()), Ok(reply));
    }
}
