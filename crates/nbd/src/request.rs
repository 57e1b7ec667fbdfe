//! Requests of the transmission phase, and the check whether they make sense.

use crate::{Export, Fault, MAX_REQUEST};

const MAGIC: u32 = 0x2560_9513;

/// A flag of a request: the store is safe when the reply is sent.
const FUA: u16 = 1;
/// Zeros shall take up room. They always do.
const NO_HOLE: u16 = 1 << 1;
/// The reply shall be one piece. It always is.
const DONT_FRAGMENT: u16 = 1 << 2;

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bytes of the device.
    Read,
    /// The bytes that follow shall be stored.
    Write,
    /// The client is done.
    Disconnect,
    /// All stores that are done shall be safe.
    Flush,
    /// Bytes are needed no more.
    Trim,
    /// Zeros shall be stored.
    WriteZeroes,
    /// Unknown to this server.
    Other(u16),
}

impl Command {
    fn of(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            6 => Self::WriteZeroes,
            other => Self::Other(other),
        }
    }

    /// The flags that it may have.
    fn flags(self) -> u16 {
        match self {
            Self::Read => DONT_FRAGMENT | FUA,
            Self::WriteZeroes => FUA | NO_HOLE,
            // Clients may set FUA on every command, once it is offered.
            _ => FUA,
        }
    }
}

/// The errors that the protocol has numbers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorNumber {
    /// A store to what is read-only.
    NotPermitted = 1,
    /// The bytes cannot be had.
    Io = 5,
    /// The request makes no sense.
    Invalid = 22,
    /// A store behind the end.
    NoSpace = 28,
    /// More bytes than one request may have.
    Overflow = 75,
}

/// A request, as its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it wants.
    pub command: Command,
    /// The client's number for it, which its reply has.
    pub cookie: u64,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u32,
    flags: u16,
}

impl Request {
    /// Bytes of a header.
    pub const SIZE: usize = 28;

    /// Reads a header.
    ///
    /// # Errors
    /// [`Fault::Foreign`] if it does not begin as one; the connection is out of step then.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<Self, Fault> {
        let (magic, rest) = take(bytes);
        let (flags, rest) = take(rest);
        let (command, rest) = take(rest);
        let (cookie, rest) = take(rest);
        let (offset, rest) = take(rest);
        let (length, _) = take(rest);
        if u32::from_be_bytes(magic) != MAGIC {
            return Err(Fault::Foreign("a request does not begin with its number"));
        }
        Ok(Self {
            command: Command::of(u16::from_be_bytes(command)),
            cookie: u64::from_be_bytes(cookie),
            offset: u64::from_be_bytes(offset),
            length: u32::from_be_bytes(length),
            flags: u16::from_be_bytes(flags),
        })
    }

    /// Whether the store shall be safe when the reply is sent.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        self.flags & FUA != 0
    }

    /// Whether the request can be carried out on this export.
    ///
    /// # Errors
    /// The error that its reply has.
    pub fn check(&self, export: &Export) -> Result<(), ErrorNumber> {
        if self.flags & !self.command.flags() != 0 {
            return Err(ErrorNumber::Invalid);
        }
        let stores = match self.command {
            Command::Read => false,
            Command::Write | Command::Trim | Command::WriteZeroes => true,
            Command::Flush | Command::Disconnect => return Ok(()),
            Command::Other(_) => return Err(ErrorNumber::Invalid),
        };
        if stores && export.read_only {
            return Err(ErrorNumber::NotPermitted);
        }
        if self.length == 0 {
            return Err(ErrorNumber::Invalid);
        }
        let end = self.offset.checked_add(self.length.into());
        if end.is_none_or(|end| end > export.size) {
            let beyond = [ErrorNumber::Invalid, ErrorNumber::NoSpace];
            return Err(beyond[usize::from(stores)]);
        }
        let carries = matches!(self.command, Command::Read | Command::Write);
        if carries && self.length > MAX_REQUEST {
            return Err(ErrorNumber::Overflow);
        }
        Ok(())
    }
}

/// The first bytes, and the others. The caller knows that they are there.
fn take<const N: usize>(bytes: &[u8]) -> ([u8; N], &[u8]) {
    let (first, rest) = bytes.split_first_chunk().expect("the length is fixed");
    (*first, rest)
}
