//! Capabilities: descriptors of a segment's memory, which processes hand to each other (E19).
//!
//! A descriptor is all there is: the kernel says of which memory it is and what it permits, nobody
//! can make one, and it ends with its last copy. The daemon keeps nothing about it.

use super::{Answer, Service};
use crate::listener::{is_full, no_descriptor};
use pagemesh_core::Request as Ask;
use pagemesh_os::capability::permits_stores;
use pagemesh_recorder::Kind;
use pagemesh_wire::SegmentId;
use pagemesh_wire::local::Reply;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::sysv;
use std::os::fd::OwnedFd;

/// Why a descriptor opens nothing.
const NONE: &str = "this descriptor is no capability for a segment that is open on this node; on \
                    another node open the segment by its name";

impl Service<'_> {
    /// A process wants a capability for a segment that it has open.
    pub(super) fn capability(&mut self, id: SegmentId, write: bool) -> Answer {
        let opening = self.driver.executor.sessions.opening(self.client, id)?;
        if write && !opening.write {
            return Err(Refusal::Permission);
        }
        if sysv::keeper(id).is_some() {
            let why = "segments of System V are attached by their number";
            return Err(Refusal::Invalid(why.into()));
        }
        let segment = self.driver.executor.pages.segments.get(id);
        let segment = segment.ok_or(Refusal::NotFound)?;
        let fd = segment.capability(write).map_err(|error| {
            if is_full(&error) {
                return no_descriptor();
            }
            Refusal::Invalid(format!("no descriptor of the segment's memory: {error}"))
        })?;
        let reply = Reply::Capability { segment: id, write };
        self.reply_with(reply, vec![fd]);
        Ok(None)
    }

    /// A process shows a capability, and opens its segment.
    pub(super) fn redeem(&mut self, fds: Vec<OwnedFd>) -> Answer {
        let invalid = || Refusal::Invalid(NONE.into());
        let fd = fds.into_iter().next().ok_or_else(invalid)?;
        let permitted = permits_stores(&fd).ok().flatten();
        let write = permitted.ok_or_else(invalid)?;
        let found = {
            let mut segments = self.driver.executor.pages.segments.iter();
            let found = segments.find(|(_, segment)| segment.is_behind(&fd));
            found.map(|(id, _)| id)
        };
        let segment = found.ok_or_else(invalid)?;
        let ask = Ask::Redeem { segment };
        self.ask(ask, Kind::Open { write })
    }
}
