//! Requests, one after the other, until the client is done.

use crate::{Command, ErrorNumber, Export, Fault, Request, Store};
use std::io::{self, Read, Write};

/// The bytes of a connection's buffer.
pub const PIECE: usize = 256 << 10;

const SIMPLE_REPLY: u32 = 0x6744_6698;
const STRUCTURED_REPLY: u32 = 0x668e_33ef;

/// A flag: the last piece of a structured reply.
const DONE: u16 = 1;
const OFFSET_DATA: u16 = 1;
const ERROR: u16 = (1 << 15) + 1;

/// Bytes before the data of the longest reply.
const HEAD: usize = 28;

/// Carries out the requests of a client until it disconnects or goes away between two requests.
///
/// # Errors
/// If the connection breaks within a request, the client sends bytes that are no request, or a read
/// fails when a part of it has been sent.
pub fn transmit(
    stream: impl Read + Write,
    export: &Export,
    structured: bool,
    store: &impl Store,
) -> Result<(), Fault> {
    let mut service = Service {
        stream,
        export,
        structured,
        store,
        buffer: vec![0; HEAD + PIECE],
    };
    while let Some(request) = service.request()? {
        if request.command == Command::Disconnect {
            break;
        }
        service.serve(&request)?;
    }
    Ok(())
}

/// Reads bytes that nobody wants.
pub(crate) fn skip(stream: &mut impl Read, length: u64) -> Result<(), Fault> {
    let skipped = io::copy(&mut stream.take(length), &mut io::sink())?;
    if skipped < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(())
}

struct Service<'e, S, M> {
    stream: S,
    export: &'e Export,
    structured: bool,
    store: &'e M,
    /// Room for the head of a reply, then for a piece of the data.
    buffer: Vec<u8>,
}

impl<S: Read + Write, M: Store> Service<'_, S, M> {
    /// The next request; none if the client is gone.
    fn request(&mut self) -> Result<Option<Request>, Fault> {
        let mut header = [0; Request::SIZE];
        let mut filled = 0;
        while filled < header.len() {
            match self.stream.read(&mut header[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Request::decode(&header).map(Some)
    }

    fn serve(&mut self, request: &Request) -> Result<(), Fault> {
        if let Err(error) = request.check(self.export) {
            if request.command == Command::Write {
                skip(&mut self.stream, request.length.into())?;
            }
            return self.refuse(request, error);
        }
        if request.command == Command::Read {
            return self.read(request);
        }
        let done = match request.command {
            Command::Write => self.write(request)?,
            Command::WriteZeroes => self.zero(request),
            Command::Trim => self.store.trim(request.offset, request.length.into()),
            _ => self.store.flush(),
        };
        let safe = done.and_then(|()| {
            if request.is_forced() {
                self.store.flush()
            } else {
                Ok(())
            }
        });
        match safe {
            Ok(()) => self.simple(request, 0),
            Err(_) => self.refuse(request, ErrorNumber::Io),
        }
    }

    fn read(&mut self, request: &Request) -> Result<(), Fault> {
        let mut sent = 0;
        while sent < request.length as usize {
            let length = (request.length as usize - sent).min(PIECE);
            let piece = &mut self.buffer[HEAD..HEAD + length];
            match self.store.read(request.offset + sent as u64, piece) {
                Ok(()) => {}
                // What follows the head of a reply is data and nothing else.
                Err(error) if sent > 0 => return Err(Fault::Store(error)),
                Err(_) => return self.refuse(request, ErrorNumber::Io),
            }
            let head = if sent > 0 {
                Vec::new()
            } else if self.structured {
                let mut head = chunk(request, OFFSET_DATA, 8 + request.length);
                head.extend(request.offset.to_be_bytes());
                head
            } else {
                simple_head(request, 0)
            };
            // One call for both.
            let start = HEAD - head.len();
            self.buffer[start..HEAD].copy_from_slice(&head);
            self.stream.write_all(&self.buffer[start..HEAD + length])?;
            sent += length;
        }
        Ok(())
    }

    /// The outer result is the connection's, the inner one the store's.
    fn write(&mut self, request: &Request) -> Result<io::Result<()>, Fault> {
        let mut stored = 0;
        while stored < request.length as usize {
            let length = (request.length as usize - stored).min(PIECE);
            let piece = &mut self.buffer[..length];
            self.stream.read_exact(piece)?;
            let done = self.store.write(request.offset + stored as u64, piece);
            stored += length;
            if done.is_err() {
                skip(&mut self.stream, u64::from(request.length) - stored as u64)?;
                return Ok(done);
            }
        }
        Ok(Ok(()))
    }

    fn zero(&mut self, request: &Request) -> io::Result<()> {
        let end = request.offset + u64::from(request.length);
        let zeros = &mut self.buffer[..PIECE];
        zeros.fill(0);
        let mut at = request.offset;
        while at < end {
            let length = (end - at).min(PIECE as u64);
            self.store.write(at, &zeros[..length as usize])?;
            at += length;
        }
        Ok(())
    }

    fn refuse(&mut self, request: &Request, error: ErrorNumber) -> Result<(), Fault> {
        let number = error as u32;
        if !self.structured || request.command != Command::Read {
            return self.simple(request, number);
        }
        let mut reply = chunk(request, ERROR, 6);
        reply.extend(number.to_be_bytes());
        // No message.
        reply.extend([0; 2]);
        Ok(self.stream.write_all(&reply)?)
    }

    fn simple(&mut self, request: &Request, error: u32) -> Result<(), Fault> {
        Ok(self.stream.write_all(&simple_head(request, error))?)
    }
}

fn simple_head(request: &Request, error: u32) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD);
    head.extend(SIMPLE_REPLY.to_be_bytes());
    head.extend(error.to_be_bytes());
    head.extend(request.cookie.to_be_bytes());
    head
}

/// The head of the only chunk of a structured reply.
fn chunk(request: &Request, kind: u16, length: u32) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD);
    head.extend(STRUCTURED_REPLY.to_be_bytes());
    head.extend(DONE.to_be_bytes());
    head.extend(kind.to_be_bytes());
    head.extend(request.cookie.to_be_bytes());
    head.extend(length.to_be_bytes());
    head
}
