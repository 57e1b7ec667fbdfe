//! Sealed streams between members over TCP.
//!
//! The caller sends the short name of its key and the first message of `KK`; the other end sends
//! the second message. Then both send records: two bytes of length, and that many sealed bytes. An
//! attacker on the path can cut the connection, but cannot change, repeat or read what it carries.

use crate::dice::Dice;
use crate::frame::TAG;
use crate::identity::Identity;
use crate::members::{self, Short};
use crate::noise::{self, Handshake, Side};
use crate::session;
use pagemesh_wire::PublicKey;
use ring::aead::{Aad, LessSafeKey, Nonce};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

const PROLOGUE: &[u8] = b"pagemesh stream 1";

/// Length of either handshake message in bytes: an ephemeral key and a tag.
const MESSAGE: usize = 48;

/// Maximum length of a record in bytes.
const RECORD: usize = 1 << 14;

/// The keys of an established stream.
#[derive(Debug)]
pub struct Talk {
    /// The member at the other end.
    pub other: PublicKey,
    /// Seals what is written.
    pub out: Half,
    /// Opens what is read.
    pub back: Half,
}

/// The key and counter of one direction.
#[derive(Debug)]
pub struct Half {
    key: LessSafeKey,
    count: u64,
}

/// Connects to a member as the caller.
///
/// # Errors
/// As the stream; `PermissionDenied` if the other end is not that member.
pub fn call(
    me: &Identity,
    other: &PublicKey,
    dice: &Arc<dyn Dice>,
    stream: &mut (impl Read + Write),
) -> io::Result<Talk> {
    let initiator = Side::Initiator;
    let mut state = noise::member(me, other, PROLOGUE, dice, initiator).map_err(denied)?;
    let mut message = [0; MESSAGE];
    state.write_message(&[], &mut message).map_err(denied)?;
    let greeting = [&members::short(&me.public())[..], &message].concat();
    stream.write_all(&greeting)?;
    stream.read_exact(&mut message)?;
    state.read_message(&message, &mut []).map_err(denied)?;
    Ok(talk(state, initiator, *other))
}

/// Answers a member's call. The members are asked for only when a hello has arrived.
///
/// # Errors
/// As the stream; `PermissionDenied` if the caller is not a member.
pub fn answer(
    me: &Identity,
    members: impl FnOnce() -> io::Result<Vec<PublicKey>>,
    dice: &Arc<dyn Dice>,
    stream: &mut (impl Read + Write),
) -> io::Result<Talk> {
    let mut name: Short = [0; 8];
    let mut message = [0; MESSAGE];
    stream.read_exact(&mut name)?;
    stream.read_exact(&mut message)?;
    let members = members()?;
    let caller = members.iter().find(|key| members::short(key) == name);
    let caller = caller.ok_or_else(|| denied(snow::Error::Input))?;
    let responder = Side::Responder;
    let mut state = noise::member(me, caller, PROLOGUE, dice, responder).map_err(denied)?;
    state.read_message(&message, &mut []).map_err(denied)?;
    state.write_message(&[], &mut message).map_err(denied)?;
    stream.write_all(&message)?;
    Ok(talk(state, responder, *caller))
}

fn talk(mut state: Handshake, side: Side, other: PublicKey) -> Talk {
    let (initiator, responder) = state.dangerously_get_raw_split();
    let half = |bytes: &[u8; 32]| Half {
        key: session::key(bytes),
        count: 0,
    };
    let (out, back) = match side {
        Side::Initiator => (initiator, responder),
        Side::Responder => (responder, initiator),
    };
    Talk {
        other,
        out: half(&out),
        back: half(&back),
    }
}

fn denied(_: snow::Error) -> io::Error {
    let why = "the other end is not the member it should be, or has another key";
    io::Error::new(ErrorKind::PermissionDenied, why)
}

impl Half {
    fn nonce(&mut self) -> Nonce {
        let nonce = session::nonce(self.count);
        self.count += 1;
        nonce
    }
}

/// Writes sealed records.
#[derive(Debug)]
pub struct SealedWriter<W> {
    inner: W,
    half: Half,
    record: Vec<u8>,
}

impl<W: Write> SealedWriter<W> {
    /// Seals the data written to `inner`.
    pub const fn new(inner: W, half: Half) -> Self {
        Self {
            inner,
            half,
            record: Vec::new(),
        }
    }

    /// The underlying stream.
    pub const fn inner(&self) -> &W {
        &self.inner
    }
}

impl<W: Write> Write for SealedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(RECORD)];
        let length = (bytes.len() + TAG) as u16;
        let aad = length.to_le_bytes();
        self.record.clear();
        self.record.extend_from_slice(&aad);
        self.record.extend_from_slice(bytes);
        let nonce = self.half.nonce();
        let tag = self
            .half
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(aad), &mut self.record[2..])
            .map_err(|_| ErrorKind::InvalidData)?;
        self.record.extend_from_slice(tag.as_ref());
        self.inner.write_all(&self.record)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Reads sealed records.
#[derive(Debug)]
pub struct SealedReader<R> {
    inner: R,
    half: Half,
    record: Vec<u8>,
    /// Bytes of the present record that were returned, and its length.
    given: usize,
    length: usize,
}

impl<R: Read> SealedReader<R> {
    /// Opens the data read from `inner`.
    pub const fn new(inner: R, half: Half) -> Self {
        Self {
            inner,
            half,
            record: Vec::new(),
            given: 0,
            length: 0,
        }
    }

    /// Reads the next record; false at the end of the stream.
    fn next(&mut self) -> io::Result<bool> {
        let mut aad = [0; 2];
        match self.inner.read(&mut aad[..1])? {
            0 => return Ok(false),
            _ => self.inner.read_exact(&mut aad[1..])?,
        }
        let sealed = usize::from(u16::from_le_bytes(aad));
        self.record.resize(sealed, 0);
        self.inner.read_exact(&mut self.record)?;
        let nonce = self.half.nonce();
        let opened = self
            .half
            .key
            .open_in_place(nonce, Aad::from(aad), &mut self.record)
            .map_err(|_| io::Error::new(ErrorKind::InvalidData, "a forged or damaged record"))?;
        (self.given, self.length) = (0, opened.len());
        Ok(true)
    }
}

impl<R: Read> Read for SealedReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.given == self.length && !bytes.is_empty() {
            if !self.next()? {
                return Ok(0);
            }
        }
        let rest = &self.record[self.given..self.length];
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::SystemDice;
    use std::os::unix::net::UnixStream;
    use std::thread;

    fn dice() -> Arc<dyn Dice> {
        Arc::new(SystemDice::default())
    }

    fn meet(known: bool) -> (io::Result<Talk>, io::Result<Talk>, UnixStream, UnixStream) {
        let (mut one, mut two) = UnixStream::pair().unwrap();
        let (caller, other) = (Identity::new(&*dice()), Identity::new(&*dice()));
        let members = if known { vec![caller.public()] } else { vec![] };
        let name = other.public();
        let answering = thread::spawn(move || {
            let talk = answer(&other, || Ok(members), &dice(), &mut two);
            if talk.is_err() {
                let _ = two.shutdown(std::net::Shutdown::Both);
            }
            (talk, two)
        });
        let called = call(&caller, &name, &dice(), &mut one);
        let (answered, two) = answering.join().unwrap();
        (called, answered, one, two)
    }

    #[test]
    fn members_talk() {
        let (called, answered, one, two) = meet(true);
        let (called, answered) = (called.unwrap(), answered.unwrap());
        let long: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        let sent = long.clone();
        let writing = thread::spawn(move || {
            SealedWriter::new(one, called.out).write_all(&sent).unwrap();
        });
        let mut heard = Vec::new();
        SealedReader::new(two, answered.back)
            .read_to_end(&mut heard)
            .unwrap();
        writing.join().unwrap();
        assert!(heard == long);
    }

    #[test]
    fn strangers_do_not() {
        let (called, answered, ..) = meet(false);
        assert!(called.is_err());
        assert_eq!(answered.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn records_cannot_be_changed_or_repeated() {
        let (called, answered, ..) = meet(true);
        let (called, answered) = (called.unwrap(), answered.unwrap());
        let mut wire = Vec::new();
        SealedWriter::new(&mut wire, called.out)
            .write_all(b"once")
            .unwrap();
        let twice = [&wire[..], &wire[..]].concat();
        let mut reader = SealedReader::new(&twice[..], answered.back);
        let mut heard = [0; 4];
        reader.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"once");
        assert!(reader.read(&mut heard).is_err());
    }
}
