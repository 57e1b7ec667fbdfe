//! Messages of both sides: frames of a length and a postcard message.

use pagemesh_wire::peer::Credentials;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

/// Both daemons must speak the same.
pub(super) const VERSION: u32 = 1;

/// Largest frame: a program with all its arguments and environment.
const LIMIT: usize = 1 << 20;

/// A program to run, in the bytes of the operating system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<Vec<u8>>,
    /// Its whole environment; `PAGEMESH_SOCKET` is set by the node that runs it.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where it starts.
    pub directory: Vec<u8>,
}

/// First on the Unix socket: run this there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Where the member's daemon listens.
    pub member: SocketAddr,
    /// The program to run.
    pub program: Program,
}

/// First on TCP: run this for that user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start {
    /// Must be [`VERSION`].
    pub(super) version: u32,
    /// The user, as the kernel of the origin says.
    pub(super) credentials: Credentials,
    /// The program.
    pub(super) program: Program,
}

/// From the origin, after the first frame: pass this signal on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// A signal for the program and all it started.
    Signal(i32),
}

/// From the node that runs the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// It runs.
    Started {
        /// Its process number there.
        pid: u32,
    },
    /// Some of its standard output.
    Out(Vec<u8>),
    /// Some of its standard error.
    Err(Vec<u8>),
    /// It is over.
    Ended {
        /// Its exit code; 128 and the signal if it was killed.
        code: u8,
        /// The reason, if it was not an ordinary end.
        why: Option<String>,
    },
    /// It does not run, and why.
    Refused(String),
}

/// Writes one frame.
///
/// # Errors
/// As the stream; `InvalidInput` if the message is too large.
pub fn write_frame<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let mut frame = vec![0; 4];
    frame = postcard::to_extend(message, frame).map_err(io::Error::other)?;
    let length = frame.len() - 4;
    if length > LIMIT {
        let why = format!("{length} bytes of command and environment; at most {LIMIT} can be sent");
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    stream.write_all(&frame)
}

/// Reads one frame; `None` if the other end has closed.
///
/// # Errors
/// As the stream; `InvalidData` if the frame is too large or not understood.
pub fn read_frame<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match stream.read(&mut length[..1])? {
        0 => return Ok(None),
        _ => stream.read_exact(&mut length[1..])?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > LIMIT {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "the frame is too large",
        ));
    }
    // Grows with the bytes that arrive, not with the announced length.
    let mut body = Vec::new();
    stream.by_ref().take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    match postcard::take_from_bytes(&body) {
        Ok((message, [])) => Ok(Some(message)),
        _ => Err(io::Error::new(
            ErrorKind::InvalidData,
            "a frame that is not understood; are all nodes of one version?",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip_and_broken_ones_are_refused() {
        let said = Said::Ended {
            code: 137,
            why: Some("killed".to_owned()),
        };
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &said).unwrap();
        assert_eq!(read_frame(&mut &bytes[..]).unwrap(), Some(said));
        assert_eq!(read_frame::<Said>(&mut &b""[..]).unwrap(), None);
        assert!(read_frame::<Said>(&mut &bytes[..bytes.len() - 1]).is_err());
        assert!(read_frame::<Said>(&mut &bytes[..2]).is_err());
        assert!(read_frame::<Said>(&mut &[255; 64][..]).is_err());
        assert!(write_frame(&mut Vec::new(), &Said::Out(vec![0; LIMIT])).is_err());
    }
}
