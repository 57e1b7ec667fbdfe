//! What a daemon and `pagemesh-etcd`, the program that speaks to etcd for it, say to each other over
//! a pipe: frames of a length, a number and a message.

use crate::{NodeId, NodeSet, Term};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, Read, Write};
use std::path::PathBuf;

/// The first thing that the program is told.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of these messages.
    pub version: u32,
    /// The members of etcd, as URLs.
    pub endpoints: Vec<String>,
    /// The beginning of all keys of this cluster.
    pub prefix: String,
    /// Name and password of the user. Without, etcd takes the name in this host's certificate.
    pub user: Option<(String, Password)>,
    /// How connections are encrypted, if they are.
    pub tls: Option<Tls>,
}

/// The password of etcd's user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Password {
    /// This one.
    Is(String),
    /// The first line of a file, which is read for each connection: it may be changed.
    In(PathBuf),
}

/// Files of certificates, which are read for each connection: they are renewed now and then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// Certificates of those who certify the members of etcd; those that this host trusts, if none.
    pub authority: Option<PathBuf>,
    /// This host's certificate, and the key of that.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Password {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(_) => f.write_str("Is"),
            Self::In(path) => f.debug_tuple("In").field(path).finish(),
        }
    }
}

impl fmt::Debug for Hello {
    /// In one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        write!(f, "{:?}, {:?}, user {user:?}", self.endpoints, self.prefix)
    }
}

/// The version of these messages.
pub const VERSION: u32 = 2;

/// What the program is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// What etcd has.
    Look,
    /// To found the cluster: the claim of the first term, if there is no cluster.
    Found,
    /// The claim to coordinate, for this node, if nobody has renewed it for so many seconds.
    Claim {
        /// The node.
        node: NodeId,
        /// The term has to be newer than this one.
        fence: Term,
        /// The seconds.
        after: u8,
    },
    /// Which nodes have asked for the claim since it was taken in this term.
    Asked {
        /// The term.
        term: Term,
    },
    /// To renew the claim in this term.
    Renew {
        /// The term.
        term: Term,
    },
    /// To put a record into etcd, if no newer term has been claimed.
    Keep {
        /// The term of the writer.
        term: Term,
        /// Counts the times that the writer wrote everything anew.
        generation: u32,
        /// Counts the records since. Record 0 takes the place of all that was there.
        record: u32,
        /// The record.
        bytes: Vec<u8>,
    },
}

/// What etcd has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The newest term that was claimed; none if there is no cluster.
    pub term: Term,
    /// For how many seconds nobody has renewed the claim; none if it has run out.
    pub silent: Option<u8>,
    /// The records, one behind the other.
    pub records: Vec<u8>,
}

/// What the program answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// What etcd has.
    Seen(Seen),
    /// The claim is the asker's, in this term.
    Claimed(Seen),
    /// The claim is another node's; etcd knows now that this one has asked for it.
    Held,
    /// These nodes have asked for the claim.
    Asked(NodeSet),
    /// It is done.
    Done,
    /// A newer term has been claimed, this one.
    Fenced(Term),
    /// No member of etcd has done it, for want of a quorum, perhaps.
    Failed(String),
    /// Etcd does not let this host do it, or this host does not trust etcd: why, and the cure.
    Refused(String),
}

/// No frame is longer.
const LONGEST: usize = 1 << 28;

/// Writes a frame.
///
/// # Errors
/// Those of the pipe.
pub fn write_frame(to: &mut impl Write, id: u64, message: &impl Serialize) -> io::Result<()> {
    let body = postcard::to_allocvec(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend_from_slice(&id.to_le_bytes());
    frame.extend_from_slice(&body);
    to.write_all(&frame)?;
    to.flush()
}

/// Reads a frame; none at the end of the pipe.
///
/// # Errors
/// Those of the pipe; also if it is no frame, or ends in the middle of one.
pub fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<(u64, T)>> {
    let mut head = [0; 12];
    if from.read(&mut head[..1])? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[1..])?;
    let (length, id) = head.split_at(4);
    let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
    let id = u64::from_le_bytes(id.try_into().expect("eight bytes"));
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = Vec::new();
    from.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let message = postcard::from_bytes(&body).map_err(io::Error::other)?;
    Ok(Some((id, message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_whole_or_not_at_all() {
        let request = Request::Keep {
            term: Term::FIRST,
            generation: 1,
            record: 2,
            bytes: vec![7; 300],
        };
        let mut pipe = Vec::new();
        write_frame(&mut pipe, 9, &request).unwrap();
        assert_eq!(read_frame(&mut &pipe[..]).unwrap(), Some((9, request)));
        assert_eq!(read_frame::<Request>(&mut &pipe[..0]).unwrap(), None);
        for cut in 1..pipe.len() {
            let torn = read_frame::<Request>(&mut &pipe[..cut]);
            assert!(torn.is_err(), "{cut} bytes of {}", pipe.len());
        }
        let mut endless = pipe.clone();
        endless[3] = 0xff;
        assert!(read_frame::<Request>(&mut &endless[..]).is_err());
    }
}
