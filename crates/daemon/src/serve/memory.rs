//! Requests about memory: mappings, and the locks that lie beside it.

use super::{Answer, Asked};
use crate::driver::Driver;
use crate::keeper::Tag;
use crate::listener::{is_full, no_descriptor};
use crate::mapping::{Mapping, Place};
use pagemesh_core::Input;
use pagemesh_os::uffd::Uffd;
use pagemesh_recorder::{Note, Opening};
use pagemesh_wire::local::{Reply, View};
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ByteLen, ByteOffset, ClientId, MappingId, SegmentId, SyncKey};
use std::os::fd::OwnedFd;

impl Driver {
    pub(super) fn map(
        &mut self,
        asked: Asked,
        (segment, view): (SegmentId, Option<View>),
        (address, length, offset): (u64, ByteLen, ByteOffset),
        write: bool,
        fds: Vec<OwnedFd>,
    ) -> Answer {
        let opening = self.executor.sessions.opening(asked.client, segment)?;
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
        self.executor
            .check_descriptors(self.executor.sessions.credentials(asked.client)?.uid, 1)?;
        let Some(fd) = fds.into_iter().next() else {
            return Err(Refusal::Invalid(
                "a mapping comes with a userfaultfd".into(),
            ));
        };
        let client = asked.client;
        let uffd = Uffd::adopt(fd).map_err(|error| cannot("serve", error))?;
        let shaken = uffd.handshake();
        let (address, length) = place.range();
        let registered = if self.node.is_trapped(segment) {
            uffd.register(address, length)
        } else {
            uffd.register_untrapped(address, length)
        };
        // Perhaps the previous daemon got that far, unrecorded.
        let again = self.executor.pages.again && registered.is_ok();
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
        let id = self.executor.pages.mappings.insert(mapping);
        if let Err(error) = self.poll_mapping(id) {
            self.executor.pages.mappings.remove(id);
            return Err(cannot("poll", error));
        }
        if let Some(segment) = self.executor.pages.segments.get_mut(segment) {
            segment.mappings.push(id);
        }
        if let Some(session) = self.executor.sessions.get_mut(client) {
            session.mappings.push(id);
        }
        self.executor.keep_mapping(id);
        let reply = Reply::Mapped { mapping: id };
        let mapping = id;
        self.executor.note(&Note::Mapped { mapping, client });
        self.handled(asked, &reply);
        self.feed(match view {
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

    pub(super) fn unmap(&mut self, asked: Asked, mapping: MappingId) -> Answer {
        let client = asked.client;
        let session = self.executor.sessions.get_mut(client);
        let place = session.and_then(|session| {
            let place = session.mappings.iter().position(|id| *id == mapping)?;
            Some(session.mappings.swap_remove(place))
        });
        if place.is_none() {
            return Err(Refusal::Invalid("no such mapping in this process".into()));
        }
        self.executor.unmap(mapping);
        self.executor.note(&Note::Unmapped { mapping });
        self.handled(asked, &Reply::Done);
        self.feed(Input::Unmapped { mapping });
        self.executor.keeper.drop(Tag::Mapping(mapping));
        Ok(Some(Reply::Done))
    }

    pub(super) fn close(&mut self, asked: Asked, segment: SegmentId) -> Answer {
        let client = asked.client;
        let opening = self.executor.sessions.opening(client, segment)?;
        let mapped = self.executor.pages.ids_of(segment).iter().any(|id| {
            let mapping = self.executor.pages.mappings.get(*id);
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
        self.executor.set_opening(client, segment, opening);
        self.handled(asked, &Reply::Done);
        self.feed(Input::Closed { segment, client });
        self.closed(segment);
        Ok(Some(Reply::Done))
    }

    pub(super) fn lock_slot(&mut self, client: ClientId, key: SyncKey) -> Answer {
        let index = self.slot_of(client, key)?;
        self.executor.recorder.publish();
        Ok(Some(Reply::Slot { index }))
    }

    /// The slot of a lock; it counts for the user that asks for it first.
    pub(super) fn slot_of(&mut self, client: ClientId, key: SyncKey) -> Result<u32, Refusal> {
        self.executor.sessions.opening(client, key.segment)?;
        let uid = self.executor.sessions.credentials(client)?.uid;
        let segment = self.executor.pages.segments.get(key.segment);
        let known = segment.and_then(|segment| segment.locks.known(key.number));
        if let Some(index) = known {
            return Ok(index);
        }
        self.executor.check_locks(uid)?;
        let slot = self.executor.slot(key, uid);
        slot.ok_or_else(|| Refusal::Limit("locks of one segment".into()))
    }

    pub(super) fn unlock(&mut self, asked: Asked, key: SyncKey) -> Answer {
        let segment = self.executor.pages.segments.get(key.segment);
        if !segment.is_some_and(|segment| segment.locks.holds(key.number, asked.client)) {
            let why = "the process does not hold the lock";
            return Err(Refusal::Invalid(why.into()));
        }
        self.handled(asked, &Reply::Done);
        self.feed(Input::LockReturned {
            key,
            recovered: false,
        });
        Ok(Some(Reply::Done))
    }
}
