//! Requests of local processes.

use crate::driver::Driver;
use crate::keeper::Tag;
use crate::mapping::{Mapping, Place};
use crate::note::Note;
use crate::session::Opening;
use crate::tally::Count;
use crate::tickets::{Kind, Pending};
use pagemesh_core::{Input, Request as Ask, Time};
use pagemesh_os::clock;
use pagemesh_os::memfd;
use pagemesh_os::seqpacket::Sender;
use pagemesh_os::uffd::Uffd;
use pagemesh_wire::header::PROTOCOL_VERSION;
use pagemesh_wire::local::{
    LOCAL_VERSION, NodeStatus, PageReport, Reply, Request, RequestPacket, StampKind,
};
use pagemesh_wire::peer::{Call, Health, Refusal};
use pagemesh_wire::{
    ByteLen, ByteOffset, ClientId, MappingId, NodeId, PageCount, PageIndex, SegmentId, SyncKey,
};
use std::os::fd::OwnedFd;

/// Pages in one report: what surely fits in a packet.
const REPORTED: usize = 1000;

/// Requests a process may have open at once.
const OPEN_REQUESTS: usize = 16_384;

/// Requests all processes may have open at once. Who answers remembers 65,536 calls of
/// a node, and what came beyond would not be answered at all: one process, or a few,
/// would keep all others of its node waiting.
const ALL_REQUESTS: usize = 49_152;

/// Longest program name remembered, in characters.
const PROGRAM: usize = 64;

/// Silence of the coordinator worth telling.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(3);

/// What came with a packet.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    /// Those that arrived.
    pub(crate) fds: Vec<OwnedFd>,
    /// Others did not: this daemon had no number left for them.
    pub(crate) lost: bool,
    /// Who sent it, as the kernel says.
    pub(crate) sender: Option<Sender>,
}

/// Who asked, and under which number.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) client: ClientId,
    pub(crate) number: u64,
}

/// An answer at once, or none because the core will answer.
type Answer = Result<Option<Reply>, Refusal>;

impl Driver {
    /// A process sent a packet. True if the next one is to wait until those were
    /// heard who are gone: what they held is free then, as it is for the kernel.
    pub(crate) fn packet(&mut self, client: ClientId, bytes: &[u8], fds: Descriptors) -> bool {
        let packet = RequestPacket::decode(bytes).ok();
        let sysv = |packet: &RequestPacket| matches!(packet.request, Request::Sysv(_));
        let alone = packet.as_ref().is_some_and(sysv);
        self.serve(client, packet, fds);
        alone
    }

    fn serve(&mut self, client: ClientId, packet: Option<RequestPacket>, fds: Descriptors) {
        let Descriptors { fds, lost, sender } = fds;
        self.hands.count(Count::Requests, 1);
        self.hands.write_down();
        let Some(packet) = packet else {
            return self.refuse_session(client, "a malformed packet");
        };
        let brings = matches!(packet.request, Request::Map { .. } | Request::Fork);
        let expected = usize::from(brings);
        if fds.len() < expected && lost {
            let why = "the daemon's file descriptors (raise LimitNOFILE= of its unit)";
            let reply = Reply::Refused(Refusal::Limit(why.into()));
            return self.reply(client, packet.number, reply);
        }
        if fds.len() != expected {
            return self.refuse_session(client, "descriptors that do not belong to the request");
        }
        let Some(session) = self.hands.sessions.get(client) else {
            return;
        };
        if !session.greeted && !matches!(packet.request, Request::Hello { .. }) {
            return self.refuse_session(client, "a request before hello");
        }
        let number = packet.number;
        let answer = match packet.request {
            Request::Hello { version, program } => {
                return self.hello(client, number, version, program);
            }
            Request::Dump => self.dump(client, number),
            Request::Sysv(op) => self
                .sysv(client, sender, op)
                .and_then(|(ask, kind)| self.ask(client, number, ask, kind)),
            request => self.request(client, number, request, fds),
        };
        match answer {
            Ok(None) => {}
            Ok(Some(reply)) => self.reply(client, number, reply),
            Err(why) => self.reply(client, number, Reply::Refused(why)),
        }
    }

    /// Cuts a process off that does not speak the protocol.
    pub(crate) fn refuse_session(&mut self, client: ClientId, why: &str) {
        self.hands.count(Count::SessionsRefused, 1);
        if let Some(session) = self.hands.sessions.get(client) {
            let (process, program) = (session.caller.pid, &session.program);
            tracing::warn!(%client, process, %program, "cut off: {why}");
        }
        self.hands.sessions.doom(client);
    }

    fn reply(&mut self, client: ClientId, number: u64, reply: Reply) {
        self.hands.reply(client, number, reply, Vec::new());
    }

    fn hello(&mut self, client: ClientId, number: u64, version: u32, program: String) {
        if version != LOCAL_VERSION {
            let why = format!(
                "this daemon speaks version {LOCAL_VERSION} on its socket, the program version \
                 {version}: install the same release of both"
            );
            return self.reply(client, number, Reply::Refused(Refusal::Invalid(why)));
        }
        if let Some(session) = self.hands.sessions.get_mut(client) {
            session.greeted = true;
            session.program = program.chars().take(PROGRAM).collect();
            let program = session.program.clone();
            self.hands.note(&Note::Greeted {
                client,
                program,
                child: false,
            });
            self.hands.recorder.publish();
        }
        let device = self.about.device.as_ref();
        let fds: Vec<_> = device
            .and_then(|fd| fd.try_clone().ok())
            .into_iter()
            .collect();
        let reply = Reply::Welcome {
            client,
            node: self.node.id().unwrap_or(NodeId::NONE),
            device: !fds.is_empty(),
        };
        self.hands.reply(client, number, reply, fds);
    }

    fn request(
        &mut self,
        client: ClientId,
        number: u64,
        request: Request,
        fds: Vec<OwnedFd>,
    ) -> Answer {
        match request {
            Request::Map {
                segment,
                address,
                length,
                offset,
                write,
            } => {
                let opening = self.opening(client, segment)?;
                let place = Place::new(address, length, offset, opening.size)
                    .map_err(|why| Refusal::Invalid(why.into()))?;
                let asked = Asked { client, number };
                self.map(asked, segment, opening, place, write, fds)
            }
            Request::Fork => {
                for socket in fds {
                    // The child finds its end closed, and says what that means.
                    if let Err(error) = self.forked(Asked { client, number }, socket) {
                        tracing::warn!(%client, %error, "a child cannot be served");
                    }
                }
                Ok(None)
            }
            Request::Unmap { mapping } => self.unmap(Asked { client, number }, mapping),
            Request::Close { segment } => self.close(Asked { client, number }, segment),
            Request::Inspect { name, first, limit } => self.inspect(&name, first, limit),
            Request::Members => {
                let view = self.node.view();
                Ok(Some(Reply::Members {
                    epoch: view.epoch,
                    members: view.members.clone(),
                }))
            }
            Request::Status => Ok(Some(Reply::Status(self.status()))),
            Request::LockSlot { key } => self.lock_slot(client, key),
            Request::Unlock { key } => self.unlock(Asked { client, number }, key),
            Request::Counters => Ok(Some(Reply::Counters(self.counters()))),
            Request::Stamp { tag } => {
                self.hands.stamps.push(StampKind::Program, tag);
                Ok(Some(Reply::Done))
            }
            Request::Stamps { from } => Ok(Some(Reply::Stamps(self.hands.stamps.since(from)))),
            Request::WatchSharing { name, on } => {
                self.check_master(client)?;
                let info = self.node.segment_named(&name).ok_or(Refusal::NotFound)?;
                self.hands.sharing.watch(info.id, on);
                Ok(Some(Reply::Done))
            }
            Request::Sharing { name, first } => {
                let info = self.node.segment_named(&name).ok_or(Refusal::NotFound)?;
                let report = self.hands.sharing.report(info.id, first);
                let why = || Refusal::Invalid("nobody watches who writes to this segment".into());
                Ok(Some(Reply::Sharing(report.ok_or_else(why)?)))
            }
            Request::Races { first } => Ok(Some(Reply::Races(self.hands.races.report(first)))),
            Request::Handover { format } => self.hand_over(client, format),
            Request::Cancel { number } => {
                if let Some(ticket) = self.hands.tickets.find(client, number) {
                    self.feed(Input::Cancel { ticket });
                }
                Ok(None)
            }
            other => {
                let (ask, kind) = self.translate(client, other)?;
                self.ask(client, number, ask, kind)
            }
        }
    }

    /// What the core has to answer, in its words.
    fn translate(&self, client: ClientId, request: Request) -> Result<(Ask, Kind), Refusal> {
        let anybody = |call| Ask::Call { to: None, call };
        let ask = match request {
            Request::Open {
                name,
                create,
                exclusive,
                write,
            } => {
                let ask = Ask::Open {
                    name,
                    create,
                    exclusive,
                    write,
                    credentials: self.credentials(client)?,
                };
                return Ok((ask, Kind::Open { write }));
            }
            Request::Remove { name } => anybody(Call::Remove {
                name,
                credentials: self.credentials(client)?,
            }),
            Request::Stat { name } => anybody(Call::Stat { name }),
            Request::List { after } => anybody(Call::List { after }),
            Request::Lock { key } => {
                self.opening(client, key.segment)?;
                Ask::Lock { key }
            }
            Request::CondWait { cond } => anybody(Call::CondWait { key: cond }),
            Request::CondSignal { cond, all } => anybody(Call::CondSignal { key: cond, all }),
            Request::Barrier { key, parties } => anybody(Call::Barrier { key, parties }),
            Request::Reduce { segment, reduction } => {
                let opening = self.opening(client, segment)?;
                if !opening.write {
                    return Err(Refusal::Permission);
                }
                anybody(Call::Declare { segment, reduction })
            }
            Request::Watch { segment, page } => {
                self.check_pages(client, segment, page, PageCount(1), false)?;
                Ask::Watch { segment, page }
            }
            Request::Pin {
                segment,
                first,
                count,
            } => {
                self.check_pages(client, segment, first, count, true)?;
                Ask::Pin {
                    segment,
                    first,
                    count,
                }
            }
            Request::Advise {
                segment,
                first,
                count,
                advice,
            } => {
                self.check_pages(client, segment, first, count, false)?;
                Ask::Advise {
                    segment,
                    first,
                    count,
                    advice,
                }
            }
            Request::Unpin {
                segment,
                first,
                count,
            } => {
                self.check_pages(client, segment, first, count, true)?;
                Ask::Unpin {
                    segment,
                    first,
                    count,
                }
            }
            Request::Probe { node } => Ask::Call {
                to: Some(node),
                call: Call::Probe,
            },
            Request::Revoke { node } => {
                self.check_master(client)?;
                Ask::Call {
                    to: Some(NodeId::COORDINATOR),
                    call: Call::Revoke { node },
                }
            }
            Request::Leave => {
                self.check_master(client)?;
                return Ok((Ask::Leave, Kind::Leave));
            }
            _ => return Err(Refusal::Invalid("not a request of this kind".into())),
        };
        Ok((ask, Kind::Plain))
    }

    /// Passes a request on to the core, which answers in its own time.
    fn ask(&mut self, client: ClientId, number: u64, request: Ask, kind: Kind) -> Answer {
        if self.hands.tickets.find(client, number).is_some() {
            let why = "the number of the request belongs to another one that still waits";
            return Err(Refusal::Invalid(why.into()));
        }
        let waiting = self.hands.sessions.get(client).map_or(0, |s| s.waiting);
        if waiting >= OPEN_REQUESTS {
            let why = "too many requests of one process at once";
            return Err(Refusal::Limit(why.into()));
        }
        if self.hands.tickets.len() >= ALL_REQUESTS && kind != Kind::Leave {
            let why = "too many requests of this node's processes at once";
            return Err(Refusal::Limit(why.into()));
        }
        self.hands.sessions.count_waiting(client, 1);
        let pending = Pending {
            client: Some(client),
            number,
            kind,
        };
        let ticket = self.hands.tickets.issue(pending);
        if let Some(session) = self.hands.sessions.get_mut(client) {
            session.handled = Some((number, None));
        }
        self.hands.note(&Note::Asked { ticket, pending });
        self.feed(Input::Request {
            ticket,
            client,
            request,
        });
        Ok(None)
    }

    /// The request is acted upon, by the input that follows.
    pub(crate) fn handled(&mut self, asked: Asked, reply: &Reply) {
        let Asked { client, number } = asked;
        let reply = Some(reply.clone());
        if let Some(session) = self.hands.sessions.get_mut(client) {
            session.handled = Some((number, reply.clone()));
        }
        self.hands.note(&Note::Handled {
            client,
            number,
            reply,
        });
    }

    // ---- mappings ------------------------------------------------------------

    fn map(
        &mut self,
        asked: Asked,
        segment: SegmentId,
        opening: Opening,
        place: Place,
        write: bool,
        fds: Vec<OwnedFd>,
    ) -> Answer {
        if write && !opening.write {
            return Err(Refusal::Permission);
        }
        let cannot = |what: &str, error: std::io::Error| {
            Refusal::Invalid(format!("the daemon cannot {what} the mapping: {error}"))
        };
        let Some(fd) = fds.into_iter().next() else {
            return Err(Refusal::Invalid(
                "a mapping comes with a userfaultfd".into(),
            ));
        };
        let client = asked.client;
        let uffd = Uffd::adopt(fd).map_err(|error| cannot("serve", error))?;
        let shaken = uffd.handshake();
        let (address, length) = place.range();
        // Perhaps the daemon before got that far, and nobody knows of it.
        let ready = match uffd.register(address, length) {
            Ok(()) if shaken.is_err() && !self.hands.pages.again => shaken.map(drop),
            done => done,
        };
        ready.map_err(|error| cannot("register", error))?;
        let mapping = Mapping {
            uffd,
            segment,
            client,
            write,
            place,
        };
        let id = self.hands.pages.mappings.insert(mapping);
        if let Err(error) = self.poll_mapping(id) {
            self.hands.pages.mappings.remove(id);
            return Err(cannot("poll", error));
        }
        if let Some(segment) = self.hands.pages.segments.get_mut(segment) {
            segment.mappings.push(id);
        }
        if let Some(session) = self.hands.sessions.get_mut(client) {
            session.mappings.push(id);
        }
        self.hands.keep_mapping(id);
        let reply = Reply::Mapped { mapping: id };
        let mapping = id;
        self.hands.note(&Note::Mapped { mapping, client });
        self.handled(asked, &reply);
        self.feed(Input::Mapped {
            mapping: id,
            segment,
            client,
        });
        Ok(Some(reply))
    }

    fn unmap(&mut self, asked: Asked, mapping: MappingId) -> Answer {
        let client = asked.client;
        let session = self.hands.sessions.get_mut(client);
        let place = session.and_then(|session| {
            let place = session.mappings.iter().position(|id| *id == mapping)?;
            Some(session.mappings.swap_remove(place))
        });
        if place.is_none() {
            return Err(Refusal::Invalid("no such mapping in this process".into()));
        }
        self.hands.unmap(mapping);
        self.hands.note(&Note::Unmapped { mapping });
        self.handled(asked, &Reply::Done);
        self.feed(Input::Unmapped { mapping });
        self.hands.keeper.drop(Tag::Mapping(mapping));
        Ok(Some(Reply::Done))
    }

    fn close(&mut self, asked: Asked, segment: SegmentId) -> Answer {
        let client = asked.client;
        let opening = self.opening(client, segment)?;
        let mapped = self.hands.pages.ids_of(segment).iter().any(|id| {
            let mapping = self.hands.pages.mappings.get(*id);
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
        self.hands.set_opening(client, segment, opening);
        self.handled(asked, &Reply::Done);
        self.feed(Input::Closed { segment, client });
        Ok(Some(Reply::Done))
    }

    // ---- locks ---------------------------------------------------------------

    fn lock_slot(&mut self, client: ClientId, key: SyncKey) -> Answer {
        self.opening(client, key.segment)?;
        let slot = self.hands.slot(key);
        self.hands.recorder.publish();
        let index = slot.ok_or_else(|| Refusal::Limit("locks of one segment".into()))?;
        Ok(Some(Reply::Slot { index }))
    }

    fn unlock(&mut self, asked: Asked, key: SyncKey) -> Answer {
        let segment = self.hands.pages.segments.get(key.segment);
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

    // ---- who may what --------------------------------------------------------

    fn credentials(&self, client: ClientId) -> Result<pagemesh_wire::peer::Credentials, Refusal> {
        let session = self.hands.sessions.get(client);
        session
            .map(|session| session.caller.credentials.clone())
            .ok_or(Refusal::Cancelled)
    }

    fn opening(&self, client: ClientId, segment: SegmentId) -> Result<Opening, Refusal> {
        let session = self.hands.sessions.get(client);
        session
            .and_then(|session| session.open.get(&segment).copied())
            .ok_or_else(|| Refusal::Invalid("the process has not opened the segment".into()))
    }

    fn check_pages(
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

    /// Only root and the daemon's own user may end it.
    fn check_master(&self, client: ClientId) -> Result<(), Refusal> {
        let uid = self.credentials(client)?.uid;
        if uid == 0 || uid == rustix::process::geteuid().as_raw() {
            Ok(())
        } else {
            Err(Refusal::Permission)
        }
    }

    /// Makes room for another daemon, which goes on with the journal's node.
    fn hand_over(&mut self, client: ClientId, format: u64) -> Answer {
        self.check_master(client)?;
        let cannot = |why: &str| Err(Refusal::Invalid(why.into()));
        if format != pagemesh_recorder::FORMAT {
            return cannot(
                "the releases keep their journals in different formats: let this node leave \
                 (pagemesh leave), then start the other release",
            );
        }
        if self.hands.keeper.process().is_none() {
            return cannot("this daemon has no keeper");
        }
        // Nothing is left to do between two requests; an empty log can be read
        // by any build.
        let registry = self.hands.registry();
        if !self.hands.recorder.renew(&self.node, &registry) {
            return cannot("this daemon has no journal (--recorder off), so nobody can go on");
        }
        self.hands.handed_over = true;
        Ok(Some(Reply::Done))
    }

    // ---- what the daemon knows -----------------------------------------------

    /// Hands out the flight recorder, which tells of everybody's doings.
    fn dump(&mut self, client: ClientId, number: u64) -> Answer {
        self.check_master(client)?;
        let cannot = |why: String| Refusal::Invalid(format!("the flight recorder: {why}"));
        let recorder = &self.hands.recorder;
        let dump = recorder.dump(Some(&self.node), "asked for");
        let dump = dump.map_err(|error| cannot(error.to_string()))?;
        let file =
            memfd::file("pagemesh-dump", &dump).map_err(|error| cannot(error.to_string()))?;
        let length = ByteLen(dump.len() as u64);
        self.hands
            .reply(client, number, Reply::Dumped { length }, vec![file]);
        Ok(None)
    }

    fn inspect(&self, name: &str, first: PageIndex, limit: u32) -> Answer {
        let info = self.node.segment_named(name).ok_or(Refusal::NotFound)?;
        let limit = usize::try_from(limit).unwrap_or(REPORTED).min(REPORTED);
        let seen = self
            .node
            .inspect(info.id, first, limit)
            .ok_or(Refusal::NotFound)?;
        Ok(Some(Reply::Pages(PageReport {
            info: info.clone(),
            known: seen.known,
            readable: seen.readable,
            writable: seen.writable,
            owned: seen.owned,
            pages: seen.pages,
        })))
    }

    fn status(&self) -> NodeStatus {
        let count = |health: Health| {
            let members = self.node.view().members.iter();
            members.filter(|member| member.health == health).count() as u32
        };
        let now = clock::monotonic();
        let keeper = self.hands.keeper.process();
        let (fault_p50, fault_p99) = self.hands.tally.remote_faults();
        NodeStatus {
            node: self.node.id().unwrap_or(NodeId::NONE),
            name: self.about.name.clone(),
            address: self.about.address.to_string(),
            alive: count(Health::Alive),
            dead: count(Health::Dead),
            clients: self.hands.sessions.len() as u32,
            segments: self.hands.pages.segments.len() as u32,
            pages: self.pages_known(),
            uptime: now.saturating_sub(self.about.started) as f64 / 1e9,
            fault_p50,
            fault_p99,
            problems: self.problems(Time(now)),
            keeper: keeper.and_then(|id| u32::try_from(id).ok()).unwrap_or(0),
            takeovers: self.hands.takeovers,
        }
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let pages = &self.hands.pages;
        let mut counters = self.hands.tally.report();
        counters.push(("mappings".into(), pages.mappings.len() as u64));
        counters.push(("stash_pages".into(), pages.stash.len() as u64));
        let (twins, diffs) = pages.changes.counts();
        counters.push(("twins".into(), twins as u64));
        counters.push(("diffs".into(), diffs as u64));
        counters.push(("diff_bytes_held".into(), pages.changes.bytes()));
        counters
    }

    fn problems(&self, now: Time) -> Vec<String> {
        let mut problems = self.about.problems.clone();
        if let Some(why) = self.node.out() {
            problems.push(why.to_string());
        } else if self.node.id().is_none() {
            problems.push(self.about.not_admitted());
        } else {
            let silent = self.node.coordinator_silent(now);
            if silent > SILENCE {
                let seconds = silent.as_secs();
                problems.push(format!("the first node has been silent for {seconds} s"));
            }
        }
        for host in &self.hands.foreigners {
            problems.push(format!(
                "a daemon on {host} speaks another version of the protocol (this one speaks \
                 {PROTOCOL_VERSION}) and cannot take part: install the same release on all nodes"
            ));
        }
        problems
    }
}
