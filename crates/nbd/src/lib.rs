//! The protocol of network block devices, as a server speaks it: fixed newstyle negotiation, simple
//! and structured replies.
//!
//! No socket and no memory: a connection is anything that can be read and written, the bytes of the
//! device are behind [`Store`]. What a client sends is hostile until it is checked: a request that
//! makes no sense gets an error, bytes that are no request end the connection, and however long a
//! request is, its bytes go through one buffer of [`PIECE`] bytes.
//!
//! The specification is the document of the protocol in the repository of the NBD project.

#![forbid(unsafe_code)]

mod negotiation;
mod request;
#[cfg(test)]
mod tests;
mod transmission;

pub use negotiation::{Agreed, negotiate};
pub use request::{Command, ErrorNumber, Request};
pub use transmission::{PIECE, transmit};

use std::io;

/// The most bytes that one request may read or write; larger ones are refused.
pub const MAX_REQUEST: u32 = 32 << 20;

/// The device that is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name by which clients ask for it; the empty name means it, too.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Whether stores are refused.
    pub read_only: bool,
}

/// The bytes of a device. Ranges are checked before: they lie in the device.
pub trait Store {
    /// Copies bytes out.
    ///
    /// # Errors
    /// If they cannot be had; the client gets EIO.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Copies bytes in.
    ///
    /// # Errors
    /// If they cannot be stored; the client gets EIO.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// The client needs these bytes no more; what they are afterwards does not matter.
    ///
    /// # Errors
    /// If that cannot be noted; the client gets EIO.
    fn trim(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Returns when all stores that are done are as safe as they will ever be.
    ///
    /// # Errors
    /// If that cannot be; the client gets EIO.
    fn flush(&self) -> io::Result<()>;
}

/// Why a connection ended, other than by the client's wish.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The connection broke, or the client was silent for too long.
    #[error("the connection broke: {0}")]
    Connection(#[from] io::Error),
    /// The client does not speak the protocol.
    #[error("the client does not speak the NBD protocol: {0}")]
    Foreign(&'static str),
    /// The client asked for an export that is not here, by the option that allows no answer.
    #[error("the client asked for an export of another name")]
    UnknownExport,
    /// A read failed when a part of its bytes was on its way.
    #[error("bytes could not be read: {0}")]
    Store(#[source] io::Error),
}
