//! Why a file is no snapshot, or not a whole one.

use crate::VERSION;
use std::io;

/// A file that cannot be read as a snapshot.
#[derive(Debug, thiserror::Error)]
#[error("at byte {offset}: {flaw}")]
pub struct Error {
    /// The place in the file: the beginning of the part that is wrong.
    pub offset: u64,
    /// What is wrong.
    pub flaw: Flaw,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// It does not begin as a snapshot does.
    #[error("this is no snapshot; name a file that `pagemesh segment save` wrote")]
    Foreign,
    /// Another release wrote it.
    #[error(
        "this snapshot has format version {0}, and this release reads version {VERSION}: load it \
         with the release that wrote it"
    )]
    Version(u32),
    /// The file is shorter than what was written.
    #[error("the file ends here: it is truncated; copy it again, or load an older snapshot")]
    Truncated,
    /// Bytes changed, or a part is missing.
    #[error("the file is damaged ({0}); copy it again, or load an older snapshot")]
    Damaged(&'static str),
    /// The hosts of this cluster have other pages.
    #[error("its pages have {0} bytes, and those of this host 4096: load it on such a host")]
    PageSize(u32),
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[source] io::Error),
}
