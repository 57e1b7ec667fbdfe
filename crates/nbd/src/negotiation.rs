//! The negotiation before the first request: fixed newstyle.

use crate::{Export, Fault, MAX_REQUEST};
use std::io::{Read, Write};

const HELLO: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const REPLY: u64 = 0x0003_e889_0455_65a9;

/// Flags of both sides: options may be refused one by one; no zeros after `EXPORT_NAME`.
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 1 << 1;

/// Longer options are skipped and refused: names have 4096 bytes at most.
const LONGEST_OPTION: u32 = 16 << 10;

/// A client that negotiates longer than this is not one.
const MOST_OPTIONS: usize = 128;

/// The size in which clients best ask.
const PREFERRED: u32 = 4096;

mod option {
    pub(super) const EXPORT_NAME: u32 = 1;
    pub(super) const ABORT: u32 = 2;
    pub(super) const LIST: u32 = 3;
    pub(super) const INFO: u32 = 6;
    pub(super) const GO: u32 = 7;
    pub(super) const STRUCTURED_REPLY: u32 = 8;
}

mod reply {
    pub(super) const ACK: u32 = 1;
    pub(super) const SERVER: u32 = 2;
    pub(super) const INFO: u32 = 3;
    pub(super) const UNSUPPORTED: u32 = (1 << 31) + 1;
    pub(super) const INVALID: u32 = (1 << 31) + 3;
    pub(super) const UNKNOWN: u32 = (1 << 31) + 6;
    pub(super) const TOO_BIG: u32 = (1 << 31) + 9;
}

mod info {
    pub(super) const EXPORT: u16 = 0;
    pub(super) const NAME: u16 = 1;
    pub(super) const BLOCK_SIZE: u16 = 3;
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreed {
    /// Requests follow.
    Transmission {
        /// Whether reads get structured replies.
        structured: bool,
    },
    /// The client has learned what it wanted, and is gone.
    Nothing,
}

/// Negotiates with a client that has just connected.
///
/// # Errors
/// If the connection breaks, or the client does not speak the protocol.
pub fn negotiate(mut stream: impl Read + Write, export: &Export) -> Result<Agreed, Fault> {
    let mut hello = Vec::new();
    hello.extend(HELLO.to_be_bytes());
    hello.extend(OPTION.to_be_bytes());
    hello.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    stream.write_all(&hello)?;
    let flags = u32::from_be_bytes(fixed(&mut stream)?);
    let known = u32::from(FIXED_NEWSTYLE | NO_ZEROES);
    if flags & !known != 0 || flags & u32::from(FIXED_NEWSTYLE) == 0 {
        return Err(Fault::Foreign("it lacks the fixed newstyle negotiation"));
    }
    let mut talk = Talk {
        stream,
        export,
        structured: false,
        zeroes: flags & u32::from(NO_ZEROES) == 0,
    };
    for _ in 0..MOST_OPTIONS {
        if let Some(agreed) = talk.option()? {
            return Ok(agreed);
        }
    }
    Err(Fault::Foreign("it sends one option after the other"))
}

struct Talk<'e, S> {
    stream: S,
    export: &'e Export,
    structured: bool,
    zeroes: bool,
}

impl<S: Read + Write> Talk<'_, S> {
    /// Reads an option and answers it. Returns something once the negotiation is over.
    fn option(&mut self) -> Result<Option<Agreed>, Fault> {
        if u64::from_be_bytes(fixed(&mut self.stream)?) != OPTION {
            return Err(Fault::Foreign("an option does not begin with its number"));
        }
        let number = u32::from_be_bytes(fixed(&mut self.stream)?);
        let length = u32::from_be_bytes(fixed(&mut self.stream)?);
        if length > LONGEST_OPTION {
            if number == option::EXPORT_NAME {
                return Err(Fault::UnknownExport);
            }
            crate::transmission::skip(&mut self.stream, length.into())?;
            self.reply(number, reply::TOO_BIG, &[])?;
            return Ok(None);
        }
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        match number {
            option::EXPORT_NAME => return self.export_name(&data).map(Some),
            option::ABORT => {
                // The client may be gone before it reads this.
                let _ = self.reply(number, reply::ACK, &[]);
                return Ok(Some(Agreed::Nothing));
            }
            option::LIST if data.is_empty() => {
                let name = self.export.name.as_bytes();
                let mut entry = length_of(name).to_be_bytes().to_vec();
                entry.extend(name);
                self.reply(number, reply::SERVER, &entry)?;
                self.reply(number, reply::ACK, &[])?;
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                self.reply(number, reply::ACK, &[])?;
            }
            option::LIST | option::STRUCTURED_REPLY => self.reply(number, reply::INVALID, &[])?,
            option::INFO | option::GO => return self.info(number, &data),
            _ => self.reply(number, reply::UNSUPPORTED, &[])?,
        }
        Ok(None)
    }

    /// The oldest way to begin, which has no answer for an unknown name.
    fn export_name(&mut self, name: &[u8]) -> Result<Agreed, Fault> {
        if !self.is_ours(name) {
            return Err(Fault::UnknownExport);
        }
        let mut answer = self.export.size.to_be_bytes().to_vec();
        answer.extend(self.flags().to_be_bytes());
        if self.zeroes {
            answer.extend([0; 124]);
        }
        self.stream.write_all(&answer)?;
        Ok(self.agreed())
    }

    fn info(&mut self, number: u32, data: &[u8]) -> Result<Option<Agreed>, Fault> {
        let Some((name, wishes)) = name_and_wishes(data) else {
            self.reply(number, reply::INVALID, &[])?;
            return Ok(None);
        };
        if !self.is_ours(name) {
            self.reply(number, reply::UNKNOWN, b"no export of this name")?;
            return Ok(None);
        }
        let mut about = info::EXPORT.to_be_bytes().to_vec();
        about.extend(self.export.size.to_be_bytes());
        about.extend(self.flags().to_be_bytes());
        self.reply(number, reply::INFO, &about)?;
        if wishes.contains(&info::NAME) {
            let mut about = info::NAME.to_be_bytes().to_vec();
            about.extend(self.export.name.as_bytes());
            self.reply(number, reply::INFO, &about)?;
        }
        if wishes.contains(&info::BLOCK_SIZE) {
            let mut about = info::BLOCK_SIZE.to_be_bytes().to_vec();
            for size in [1, PREFERRED, MAX_REQUEST] {
                about.extend(size.to_be_bytes());
            }
            self.reply(number, reply::INFO, &about)?;
        }
        self.reply(number, reply::ACK, &[])?;
        Ok((number == option::GO).then(|| self.agreed()))
    }

    fn is_ours(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.name.as_bytes()
    }

    fn agreed(&self) -> Agreed {
        Agreed::Transmission {
            structured: self.structured,
        }
    }

    /// The flags of the export.
    fn flags(&self) -> u16 {
        const HAS_FLAGS: u16 = 1;
        const READ_ONLY: u16 = 1 << 1;
        const FLUSH: u16 = 1 << 2;
        const FUA: u16 = 1 << 3;
        const TRIM: u16 = 1 << 5;
        const WRITE_ZEROES: u16 = 1 << 6;
        const DONT_FRAGMENT: u16 = 1 << 7;
        const CAN_MULTI_CONN: u16 = 1 << 8;
        let access = if self.export.read_only {
            READ_ONLY
        } else {
            FUA | TRIM | WRITE_ZEROES
        };
        let one_piece = if self.structured { DONT_FRAGMENT } else { 0 };
        HAS_FLAGS | FLUSH | CAN_MULTI_CONN | access | one_piece
    }

    fn reply(&mut self, number: u32, kind: u32, data: &[u8]) -> Result<(), Fault> {
        let mut bytes = REPLY.to_be_bytes().to_vec();
        for field in [number, kind, length_of(data)] {
            bytes.extend(field.to_be_bytes());
        }
        bytes.extend(data);
        Ok(self.stream.write_all(&bytes)?)
    }
}

/// The parts of `INFO` and `GO`; none if they contradict each other.
fn name_and_wishes(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let (length, rest) = data.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (count, rest) = rest.split_first_chunk()?;
    let (wishes, odd) = rest.as_chunks();
    let fits = odd.is_empty() && wishes.len() == usize::from(u16::from_be_bytes(*count));
    let wishes = wishes.iter().map(|wish| u16::from_be_bytes(*wish));
    fits.then(|| (name, wishes.collect()))
}

fn length_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("replies are short")
}

fn fixed<const N: usize>(stream: &mut impl Read) -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
