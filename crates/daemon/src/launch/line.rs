//! A connection between two daemons, sealed if they have keys.

use super::Service;
use super::lines::Listed;
use anyhow::{Context as _, Result};
use pagemesh_seal::stream::{self, SealedReader, SealedWriter, Talk};
use pagemesh_seal::{Dice, SystemDice};
use pagemesh_wire::PublicKey;
use pagemesh_wire::peer::Health;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Both directions, and the stream itself.
pub(super) struct Line {
    /// The receiving half.
    pub(super) ear: Ear,
    /// The sending half.
    pub(super) mouth: Mouth,
    /// To close it, and to limit its patience.
    pub(super) stream: TcpStream,
    /// Ended when the other is revoked; belongs to no member if nothing is sealed.
    pub(super) listed: Option<Listed>,
}

/// The receiving half of a line.
pub(super) enum Ear {
    Plain(TcpStream),
    Sealed(Box<SealedReader<TcpStream>>),
}

/// The sending half of a line.
pub(super) enum Mouth {
    Plain(TcpStream),
    Sealed(Box<SealedWriter<TcpStream>>),
}

impl Service {
    /// The caller's side, to the member of this key.
    pub(super) fn call(&self, mut stream: TcpStream, key: &PublicKey) -> Result<Line> {
        let talk = match &self.identity {
            None => None,
            Some(me) => {
                let talk = stream::call(me, key, &dice(), &mut stream);
                Some(talk.context("shaking hands with its daemon")?)
            }
        };
        self.line(stream, talk)
    }

    /// The other side: only members are answered.
    pub(super) fn answer(&self, mut stream: TcpStream) -> Result<Line> {
        let talk = match &self.identity {
            None => None,
            // Asked only when data has come: a silent connection costs the daemon nothing.
            Some(me) => Some(stream::answer(me, || self.keys(), &dice(), &mut stream)?),
        };
        self.line(stream, talk)
    }

    fn keys(&self) -> io::Result<Vec<PublicKey>> {
        let members = self.members().map_err(io::Error::other)?;
        let alive = members
            .iter()
            .filter(|member| member.health == Health::Alive);
        Ok(alive.map(|member| member.key).collect())
    }

    fn line(&self, stream: TcpStream, talk: Option<Talk>) -> Result<Line> {
        let key = talk.as_ref().map(|talk| talk.other);
        let listed = key.map(|key| self.lines.list(key, &stream)).transpose()?;
        Line::new(stream, talk, listed)
    }
}

fn dice() -> Arc<dyn Dice> {
    Arc::new(SystemDice::default())
}

impl Line {
    fn new(stream: TcpStream, talk: Option<Talk>, listed: Option<Listed>) -> Result<Self> {
        let (one, other) = (stream.try_clone()?, stream.try_clone()?);
        let (ear, mouth) = match talk {
            None => (Ear::Plain(one), Mouth::Plain(other)),
            Some(Talk { out, back, .. }) => (
                Ear::Sealed(Box::new(SealedReader::new(one, back))),
                Mouth::Sealed(Box::new(SealedWriter::new(other, out))),
            ),
        };
        Ok(Self {
            ear,
            mouth,
            stream,
            listed,
        })
    }
}

impl Read for Ear {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(bytes),
            Self::Sealed(stream) => stream.read(bytes),
        }
    }
}

impl Write for Mouth {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Sealed(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Sealed(stream) => stream.flush(),
        }
    }
}
