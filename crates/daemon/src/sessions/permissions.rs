//! What a process may do.

use super::Sessions;
use crate::quota::is_master;
use pagemesh_recorder::Opening;
use pagemesh_wire::peer::{Credentials, Refusal};
use pagemesh_wire::{ByteLen, ByteOffset, ClientId, PageCount, PageIndex, SegmentId};

impl Sessions {
    /// The user of a process.
    pub(crate) fn credentials(&self, client: ClientId) -> Result<Credentials, Refusal> {
        let session = self.get(client);
        session
            .map(|session| session.caller.credentials.clone())
            .ok_or(Refusal::Cancelled)
    }

    /// Only root and the daemon's own user may end it.
    pub(crate) fn check_master(&self, client: ClientId) -> Result<(), Refusal> {
        match is_master(self.credentials(client)?.uid) {
            true => Ok(()),
            false => Err(Refusal::Permission),
        }
    }

    /// How a process has a segment open.
    pub(crate) fn opening(&self, client: ClientId, segment: SegmentId) -> Result<Opening, Refusal> {
        let session = self.get(client);
        session
            .and_then(|session| session.open.get(&segment).copied())
            .ok_or_else(|| Refusal::Invalid("the process has not opened the segment".into()))
    }

    /// Whether a process may make a request about these pages.
    pub(crate) fn check_pages(
        &self,
        client: ClientId,
        segment: SegmentId,
        first: PageIndex,
        count: PageCount,
        write: bool,
    ) -> Result<(), Refusal> {
        let opening = self.opening(client, segment)?;
        if write && !opening.write {
            return Err(Refusal::Permission);
        }
        let ByteOffset(start) = first.offset();
        let ByteLen(length) = count.bytes();
        if start + length > opening.size.0 || length == 0 {
            return Err(Refusal::Invalid("pages outside the segment".into()));
        }
        Ok(())
    }
}
