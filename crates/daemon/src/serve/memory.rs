//! Requests about memory: mappings, and the locks that lie beside it.

use super::{Answer, Service};
use crate::keeper::Tag;
use crate::listener::{is_full, no_descriptor};
use crate::mapping::{Mapping, Place};
use pagemesh_core::Input;
use pagemesh_os::uffd::Uffd;
use pagemesh_recorder::{Note, Opening};
use pagemesh_wire::local::{Reply, View};
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ByteLen, ByteOffset, MappingId, SegmentId, SyncKey};
use std::os::fd::OwnedFd;

impl Service<'_> {
    pub(super) fn map(
        &mut self,
        (segment, view): (SegmentId, Option<View>),
        (address, length, offset): (u64, ByteLen, ByteOffset),
        write: bool,
        fds: Vec<OwnedFd>,
    ) -> Answer {
        let opening = self
            .driver
            .executor
            .sessions
            .opening(self.client, segment)?;
        let place = Place::new(address, length, offset, opening.size)
            .map_err(|why| Refusal::Invalid(why.into()))?;
        if write && !opening.write {
            return Err(Refusal::Permission);
        }
        let cannot = |what: &str, error: std::io::Error| {
            if is_full(&error) {
                return no_descriptor();
            }
            Refusal::Invalid(format!("the daemon cannot {what} the mapping: {error}"))
        };
        self.driver.executor.check_descriptors(
            self.driver.executor.sessions.credentials(self.client)?.uid,
            1,
        )?;
        let Some(fd) = fds.into_iter().next() else {
            return Err(Refusal::Invalid(
                "a mapping comes with a userfaultfd".into(),
            ));
        };
        let client = self.client;
        let uffd = Uffd::adopt(fd).map_err(|error| cannot("serve", error))?;
        let shaken = uffd.handshake();
        let (address, length) = place.range();
        let registered = if self.driver.node.is_trapped(segment) {
            uffd.register(address, length)
        } else {
            uffd.register_untrapped(address, length)
        };
        // Perhaps the previous daemon got that far, unrecorded.
        let again = self.driver.executor.pages.again && registered.is_ok();
        // Without a handshake the kernel registers nothing: then that failed first.
        let ready = if again {
            Ok(())
        } else {
            shaken.and(registered)
        };
        ready.map_err(|error| cannot("register", error))?;
        let mapping = Mapping {
            uffd,
            segment,
            client,
            write,
            place,
        };
        let id = self.driver.executor.pages.mappings.insert(mapping);
        if let Err(error) = self.driver.poll_mapping(id) {
            self.driver.executor.pages.mappings.remove(id);
            return Err(cannot("poll", error));
        }
        if let Some(segment) = self.driver.executor.pages.segments.get_mut(segment) {
            segment.mappings.push(id);
        }
        if let Some(session) = self.driver.executor.sessions.get_mut(client) {
            session.mappings.push(id);
        }
        self.driver.executor.keep_mapping(id);
        let reply = Reply::Mapped { mapping: id };
        let mapping = id;
        self.driver.executor.note(&Note::Mapped { mapping, client });
        self.handled(&reply);
        self.driver.feed(match view {
            None => Input::Mapped {
                mapping,
                segment,
                client,
            },
            Some(view) => Input::MappedView {
                mapping,
                segment,
                client,
                view,
            },
        });
        Ok(Some(reply))
    }

    pub(super) fn unmap(&mut self, mapping: MappingId) -> Answer {
        let client = self.client;
        let session = self.driver.executor.sessions.get_mut(client);
        let place = session.and_then(|session| {
            let place = session.mappings.iter().position(|id| *id == mapping)?;
            Some(session.mappings.swap_remove(place))
        });
        if place.is_none() {
            return Err(Refusal::Invalid("no such mapping in this process".into()));
        }
        self.driver.executor.unmap(mapping);
        self.driver.executor.note(&Note::Unmapped { mapping });
        self.handled(&Reply::Done);
        self.driver.feed(Input::Unmapped { mapping });
        self.driver.executor.keeper.drop(Tag::Mapping(mapping));
        Ok(Some(Reply::Done))
    }

    pub(super) fn close(&mut self, segment: SegmentId) -> Answer {
        let client = self.client;
        let opening = self.driver.executor.sessions.opening(client, segment)?;
        let mapped = self.driver.executor.pages.ids_of(segment).iter().any(|id| {
            let mapping = self.driver.executor.pages.mappings.get(*id);
            mapping.is_some_and(|mapping| mapping.client == client)
        });
        if opening.count == 1 && mapped {
            let why = "the process still maps the segment; unmap it first";
            return Err(Refusal::Invalid(why.into()));
        }
        let opening = Opening {
            count: opening.count - 1,
            ..opening
        };
        self.driver.executor.set_opening(client, segment, opening);
        self.handled(&Reply::Done);
        self.driver.feed(Input::Closed { segment, client });
        self.driver.closed(segment);
        Ok(Some(Reply::Done))
    }

    pub(super) fn lock_slot(&mut self, key: SyncKey) -> Answer {
        let index = self.slot_of(key)?;
        self.driver.executor.recorder.publish();
        Ok(Some(Reply::Slot { index }))
    }

    /// The slot of a lock; it counts for the user that asks for it first.
    pub(super) fn slot_of(&mut self, key: SyncKey) -> Result<u32, Refusal> {
        self.driver
            .executor
            .sessions
            .opening(self.client, key.segment)?;
        let uid = self.driver.executor.sessions.credentials(self.client)?.uid;
        let segment = self.driver.executor.pages.segments.get(key.segment);
        let known = segment.and_then(|segment| segment.locks.known(key.number));
        if let Some(index) = known {
            return Ok(index);
        }
        self.driver.executor.check_locks(uid)?;
        let slot = self.driver.executor.slot(key, uid);
        slot.ok_or_else(|| Refusal::Limit("locks of one segment".into()))
    }

    pub(super) fn unlock(&mut self, key: SyncKey) -> Answer {
        let segment = self.driver.executor.pages.segments.get(key.segment);
        if !segment.is_some_and(|segment| segment.locks.holds(key.number, self.client)) {
            let why = "the process does not hold the lock";
            return Err(Refusal::Invalid(why.into()));
        }
        self.handled(&Reply::Done);
        self.driver.feed(Input::LockReturned {
            key,
            recovered: false,
        });
        Ok(Some(Reply::Done))
    }
}
