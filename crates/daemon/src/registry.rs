//! The registry: what the daemon has beside its node, for its journal and from it.

use crate::counters::Count;
use crate::executor::DaemonExecutor;
use crate::keeper::Tag;
use crate::session::Session;
use pagemesh_core::Node;
use pagemesh_recorder::schema;
use pagemesh_recorder::{Note, Opening};
use pagemesh_wire::local::Reply;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, MappingId, SegmentId};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

impl DaemonExecutor {
    /// Remembers a change, together with what comes next.
    pub(crate) fn note(&mut self, note: &Note) {
        self.recorder.note(note);
    }

    /// Nothing is left to do for now.
    pub(crate) fn settle(&mut self, node: &Node) {
        if self.recorder.is_due() {
            let registry = self.registry();
            self.recorder.settle(node, &registry);
        }
    }

    /// Answers a process.
    pub(crate) fn reply(&mut self, client: ClientId, number: u64, reply: Reply, fds: Vec<OwnedFd>) {
        if matches!(&reply, Reply::Refused(why) if *why != Refusal::Cancelled) {
            self.count(Count::RequestsRefused, 1);
        }
        if let Some(note) = self.sessions.reply(client, number, reply, fds, &self.poll) {
            self.note(&note);
            self.recorder.publish();
        }
    }

    /// There is room in the socket of a process.
    pub(crate) fn flush(&mut self, client: ClientId) {
        if let Some(note) = self.sessions.flush(client, &self.poll) {
            self.note(&note);
            self.recorder.publish();
        }
    }

    /// A process has a segment open so and not otherwise.
    pub(crate) fn set_opening(&mut self, client: ClientId, segment: SegmentId, opening: Opening) {
        self.with(client, |session| session.set_opening(segment, opening));
        self.note(&Note::Opened {
            client,
            segment,
            opening,
        });
    }

    /// Whether contents are where the next daemon will not find them: it must
    /// know, lest it takes their pages for zeros.
    pub(crate) fn note_waiting(&mut self) {
        if let Some(pages) = self.pages.waiting.news() {
            self.note(&Note::Waiting { pages });
        }
    }

    /// Keeps a new mapping for the next daemon.
    pub(crate) fn keep_mapping(&self, id: MappingId) {
        if let Some(mapping) = self.pages.mappings.get(id) {
            let whole = mapping.whole().encode();
            self.keeper
                .put(Tag::Mapping(id), whole, mapping.uffd.as_fd());
        }
    }

    /// Keeps new segments for the next daemon.
    pub(crate) fn keep_segments(&mut self) {
        while let Some(id) = self.pages.segments.take_fresh() {
            if let Some(segment) = self.pages.segments.get(id) {
                let keeper = &self.keeper;
                keeper.put(Tag::Memory(id), Vec::new(), segment.memory.as_fd());
                if let Some(area) = segment.locks.area() {
                    keeper.put(Tag::Locks(id), Vec::new(), area);
                }
            }
        }
    }

    /// Keeps new files of private segments for the next daemon.
    pub(crate) fn keep_files(&mut self) {
        while let Some((id, file)) = self.lending.take_fresh() {
            self.keeper.put(Tag::Backing(id), Vec::new(), file);
        }
    }

    /// All items, for a new keeper.
    pub(crate) fn keep_everything(&self) {
        let keeper = &self.keeper;
        let put = |tag, fd: BorrowedFd<'_>| keeper.put(tag, Vec::new(), fd);
        put(Tag::Network, self.network.udp().as_fd());
        if let Some(sealing) = &self.network.sealing {
            put(Tag::Identity, sealing.kept());
        }
        put(Tag::Stash, self.pages.stash.as_fd());
        put(Tag::Twins, self.pages.changes.slots().as_fd());
        put(Tag::PageSecret, self.lending.secret());
        for (id, file) in self.lending.files() {
            put(Tag::Backing(id), file);
        }
        for (client, session) in self.sessions.iter() {
            put(Tag::Session(client), session.socket.as_fd());
        }
        for (client, request_slot) in self.sessions.request_slots.iter() {
            put(Tag::RequestSlot(client), request_slot);
        }
        for (id, segment) in self.pages.segments.iter() {
            put(Tag::Memory(id), segment.memory.as_fd());
            if let Some(area) = segment.locks.area() {
                put(Tag::Locks(id), area);
            }
        }
        for (id, _) in self.pages.mappings.iter() {
            self.keep_mapping(id);
        }
        // Last: without it nothing can be taken over.
        if let Some(journal) = self.recorder.memory() {
            put(Tag::Journal, journal);
        }
    }

    /// Applies a change that the daemon before remembered. Of a process whose
    /// connection is not kept, nothing needs to be known.
    pub(crate) fn apply(&mut self, note: Note) {
        match note {
            Note::Greeted {
                client,
                program,
                child,
                version,
            } => {
                self.sessions.skip_to(client.0);
                self.with(client, |session| {
                    session.restore_hello(program, child, version);
                });
            }
            Note::Asked { ticket, pending } => {
                self.tickets.restore(ticket, pending);
                if let Some(client) = pending.client {
                    self.with(client, |session| {
                        session.waiting += 1;
                        session.handled = Some((pending.number, None));
                    });
                }
            }
            Note::Answered { ticket } => {
                let pending = self.tickets.get(ticket);
                self.tickets.close(ticket);
                if let Some(client) = pending.and_then(|pending| pending.client) {
                    self.sessions.count_waiting(client, -1);
                }
            }
            Note::Handled {
                client,
                number,
                reply,
            } => self.with(client, |session| session.handled = Some((number, reply))),
            Note::Opened {
                client,
                segment,
                opening,
            } => self.with(client, |session| session.set_opening(segment, opening)),
            Note::Mapped { mapping, client } => self.pages.mappings.confirm(mapping, client),
            Note::Unmapped { mapping } => self.pages.mappings.forget(mapping),
            Note::Gone { client } => {
                // If its number were given again, the next daemon would apply this note to the new
                // process with that number.
                self.sessions.skip_to(client.0);
                if let Some(session) = self.sessions.remove(client) {
                    let _ = self.poll.remove(&session.socket);
                }
                self.tickets.forget(client);
                self.pages.mappings.forget_all(client);
            }
            Note::Slot { key, slot, uid } => {
                if let Some(segment) = self.pages.segments.get_mut(key.segment) {
                    segment.locks.restore(key.number, slot, uid);
                }
            }
            Note::GivenBack { segment } => {
                // Its user since, if there is one, got another area.
                if let Some(segment) = self.pages.segments.get_mut(segment) {
                    segment.locks.forget_slots();
                }
            }
            Note::Queued { client, packet } => {
                self.with(client, |session| session.restore_packet(packet));
            }
            Note::Flushed { client, count } => self.with(client, |session| session.flushed(count)),
            Note::Waiting { pages } => self.pages.waiting.was_noted(pages),
            Note::TakenOver { times } => self.life.takeovers = times,
            Note::Numbers {
                client,
                mapping,
                ticket,
            } => {
                self.sessions.skip_to(client);
                self.pages.mappings.skip_to(mapping);
                self.tickets.skip_to(ticket);
            }
        }
    }

    fn with(&mut self, client: ClientId, act: impl FnOnce(&mut Session)) {
        if let Some(session) = self.sessions.get_mut(client) {
            act(session);
        }
    }

    /// All there is to know, for a snapshot: applied to nothing, these notes give
    /// what is here now.
    pub(crate) fn registry(&self) -> Vec<u8> {
        Note::write_all(&self.notes())
    }

    /// The same, for a program that reads no newer schema than this one.
    pub(crate) fn registry_in(&self, schema: u64) -> Vec<u8> {
        let mut notes = self.notes();
        if schema < schema::SCHEMA {
            notes.iter_mut().for_each(Note::put_back);
        }
        Note::write_all(&notes)
    }

    fn notes(&self) -> Vec<Note> {
        let mut notes = vec![Note::Numbers {
            client: self.sessions.last(),
            mapping: self.pages.mappings.last(),
            ticket: self.tickets.last(),
        }];
        let times = self.life.takeovers;
        notes.push(Note::TakenOver { times });
        let pages = self.pages.waiting.noted();
        notes.push(Note::Waiting { pages });
        let asked = |(ticket, pending)| Note::Asked { ticket, pending };
        notes.extend(self.tickets.iter().map(asked));
        for (client, session) in self.sessions.iter() {
            notes.extend(session.notes(client));
        }
        let mappings = self.pages.mappings.iter();
        notes.extend(mappings.map(|(mapping, of)| Note::Mapped {
            mapping,
            client: of.client,
        }));
        for (id, segment) in self.pages.segments.iter() {
            notes.extend(segment.locks.notes(id));
        }
        notes
    }
}
