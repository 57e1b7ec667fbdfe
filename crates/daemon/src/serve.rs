//! Requests of local processes.

use crate::counters::Count;
use crate::driver::Driver;
use crate::keeper::Tag;
use pagemesh_core::{Input, Request as Ask};
use pagemesh_os::clock;
use pagemesh_os::seqpacket::Sender;
use pagemesh_recorder::schema;
use pagemesh_recorder::{Kind, Note, Pending};
use pagemesh_wire::local::{Reply, Request, RequestPacket};
use pagemesh_wire::peer::{Call, FilePart, Refusal};
use pagemesh_wire::{ClientId, NodeId};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, OwnedFd};

mod capabilities;
mod knowledge;
mod memory;
mod pages;

/// Requests a process may have open at once.
const OPEN_REQUESTS: usize = 16_384;

/// Requests that all processes may have open at once. The answering node remembers 65,536 calls of
/// a node and would not answer calls beyond that: one process, or a few, would keep all others of
/// its node waiting.
const ALL_REQUESTS: usize = 49_152;

/// Longest program name remembered, in characters.
const PROGRAM: usize = 64;

/// Descriptors and sender of a packet.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    /// Those that arrived.
    pub(crate) fds: Vec<OwnedFd>,
    /// Others did not: this daemon had no number left for them.
    pub(crate) lost: bool,
    /// The sender, as the kernel says.
    pub(crate) sender: Option<Sender>,
}

/// A request of a process, being served.
pub(crate) struct Service<'a> {
    pub(crate) driver: &'a mut Driver,
    /// The process that asked.
    pub(crate) client: ClientId,
    /// The number that it gave its request.
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

    /// A process asked through its request slot.
    pub(crate) fn through_request_slot(&mut self, client: ClientId, bytes: &[u8]) {
        let packet = RequestPacket::decode(bytes).ok();
        if packet
            .as_ref()
            .is_some_and(|packet| !packet.request.is_brief())
        {
            return self
                .refuse_session(client, "a request that does not go through a request slot");
        }
        self.executor.count(Count::RequestsByRequestSlot, 1);
        self.serve(client, packet, Descriptors::default());
    }

    fn serve(&mut self, client: ClientId, packet: Option<RequestPacket>, fds: Descriptors) {
        let Descriptors { fds, lost, sender } = fds;
        self.executor.count(Count::Requests, 1);
        self.executor.write_down();
        let Some(packet) = packet else {
            return self.refuse_session(client, "a malformed packet");
        };
        let brings = matches!(
            packet.request,
            Request::Map { .. } | Request::MapView { .. } | Request::Fork | Request::Redeem
        );
        let expected = usize::from(brings);
        if fds.len() < expected && lost {
            let reply = Reply::Refused(crate::listener::no_descriptor());
            return self.service(client, packet.number).reply(reply);
        }
        if fds.len() != expected {
            return self.refuse_session(client, "descriptors that do not belong to the request");
        }
        let Some(session) = self.executor.sessions.get(client) else {
            return;
        };
        if !session.greeted && !matches!(packet.request, Request::Hello { .. }) {
            return self.refuse_session(client, "a request before hello");
        }
        self.service(client, packet.number)
            .serve(packet.request, (fds, sender));
    }

    /// To serve a request of a process.
    fn service(&mut self, client: ClientId, number: u64) -> Service<'_> {
        Service {
            driver: self,
            client,
            number,
        }
    }

    /// Cuts a process off that does not speak the protocol.
    pub(crate) fn refuse_session(&mut self, client: ClientId, why: &str) {
        self.executor.count(Count::SessionsRefused, 1);
        let now = clock::monotonic();
        if self.executor.may_log(client, now)
            && let Some(session) = self.executor.sessions.get(client)
        {
            let (process, program) = (session.caller.pid, &session.program);
            tracing::warn!(%client, process, %program, "cut off: {why}");
        }
        self.executor.sessions.doom(client);
    }
}

impl Service<'_> {
    fn serve(mut self, request: Request, (fds, sender): (Vec<OwnedFd>, Option<Sender>)) {
        let answer = match request {
            Request::Hello { version, program } => return self.hello(version, program),
            Request::Dump => self.dump(),
            Request::Sysv(op) => match self.sysv(sender, op) {
                Ok(Some((ask, kind))) => self.ask(ask, kind),
                Ok(None) => Ok(Some(Reply::Unproven)),
                Err(why) => Err(why),
            },
            request => self.request(request, fds),
        };
        match answer {
            Ok(None) => {}
            Ok(Some(reply)) => self.reply(reply),
            Err(why) => self.reply(Reply::Refused(why)),
        }
    }

    fn reply(&mut self, reply: Reply) {
        self.reply_with(reply, Vec::new());
    }

    /// Answers, and hands descriptors over.
    fn reply_with(&mut self, reply: Reply, fds: Vec<OwnedFd>) {
        let executor = &mut self.driver.executor;
        executor.reply(self.client, self.number, reply, fds);
    }

    fn hello(&mut self, version: u32, program: String) {
        let client = self.client;
        let speaks = &self.driver.about.edition.local;
        if !speaks.contains(&version) {
            let why = format!(
                "this daemon speaks versions {} to {} on its socket, the program version {version}: \
                 install a release of both that has one in common",
                speaks.start(),
                speaks.end()
            );
            return self.reply(Reply::Refused(Refusal::Invalid(why)));
        }
        if let Some(session) = self.driver.executor.sessions.get_mut(client) {
            session.greeted = true;
            session.version = version;
            session.program = program.chars().take(PROGRAM).collect();
            let program = session.program.clone();
            self.driver.executor.note(&Note::Greeted {
                client,
                program,
                child: false,
                version,
            });
            self.driver.executor.recorder.publish();
        }
        let device = self.driver.about.device.as_ref();
        let fds: Vec<_> = device
            .and_then(|fd| fd.try_clone().ok())
            .into_iter()
            .collect();
        let reply = Reply::Welcome {
            client,
            node: self.driver.node.id().unwrap_or(NodeId::NONE),
            device: !fds.is_empty(),
        };
        self.reply_with(reply, fds);
    }

    fn open_request_slot(&mut self) -> Answer {
        let client = self.client;
        let limit = |why: String| Refusal::Limit(why);
        let opened = self.driver.executor.sessions.request_slots.open(client);
        let opened =
            opened.map_err(|error| limit(format!("no memory for a request slot: {error}")))?;
        let fd = opened.ok_or_else(|| limit("too many processes have a request slot".into()))?;
        // Kept before it is lent: what is put there must not be lost.
        self.driver
            .executor
            .keeper
            .put(Tag::RequestSlot(client), Vec::new(), fd.as_fd());
        self.reply_with(Reply::RequestSlot, vec![fd]);
        Ok(None)
    }

    fn request(&mut self, request: Request, fds: Vec<OwnedFd>) -> Answer {
        let client = self.client;
        match request {
            Request::Map {
                segment,
                address,
                length,
                offset,
                write,
            } => {
                let range = (address, length, offset);
                self.map((segment, None), range, write, fds)
            }
            Request::MapView {
                segment,
                address,
                length,
                offset,
                view,
            } => {
                if !view.is_possible() {
                    let why = "a data-driven view is not consistent";
                    return Err(Refusal::Invalid(why.into()));
                }
                let range = (address, length, offset);
                self.map((segment, Some(view)), range, view.consistent, fds)
            }
            Request::Fork => {
                for socket in fds {
                    // The child finds its end closed, and says what that means.
                    if let Err(error) = self.forked(socket)
                        && self.driver.executor.may_log(client, clock::monotonic())
                    {
                        tracing::warn!(%client, %error, "a child cannot be served");
                    }
                }
                Ok(None)
            }
            Request::Capability { segment, write } => self.capability(segment, write),
            Request::Redeem => self.redeem(fds),
            Request::Unmap { mapping } => self.unmap(mapping),
            Request::Close { segment } => self.close(segment),
            Request::RequestSlot => self.open_request_slot(),
            // The code that reads this has polled the slots before.
            Request::Knock => Ok(None),
            Request::LockSlot { key } => self.lock_slot(key),
            Request::Unlock { key } => self.unlock(key),
            about_state @ (Request::Inspect { .. }
            | Request::States { .. }
            | Request::Members
            | Request::Status
            | Request::Paths
            | Request::Counters
            | Request::Stamp { .. }
            | Request::Stamps { .. }
            | Request::WatchSharing { .. }
            | Request::Sharing { .. }
            | Request::Races { .. }
            | Request::Label { .. }) => self.tell(about_state),
            Request::LockMemory { on } => self.lock_memory(on),
            Request::Handover { oldest, newest } => self.hand_over(oldest..=newest),
            Request::Cancel { number } => {
                if let Some(ticket) = self.driver.executor.tickets.find(client, number) {
                    self.driver.feed(Input::Cancel { ticket });
                }
                Ok(None)
            }
            other => {
                let (ask, kind) = self.translate(other)?;
                self.ask(ask, kind)
            }
        }
    }

    /// The request in the core's terms, if the core has to answer it.
    fn translate(&mut self, request: Request) -> Result<(Ask, Kind), Refusal> {
        let (client, sessions) = (self.client, &self.driver.executor.sessions);
        let anybody = |call| Ask::Call { to: None, call };
        let node = |node, call| Ask::Call {
            to: Some(node),
            call,
        };
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
                    credentials: sessions.credentials(client)?,
                };
                return Ok((ask, Kind::Open { write }));
            }
            Request::Remove { name } => anybody(Call::Remove {
                name,
                credentials: sessions.credentials(client)?,
            }),
            Request::Name {
                segment,
                name,
                replace,
            } => {
                sessions.opening(client, segment)?;
                anybody(Call::Name {
                    segment,
                    name,
                    replace,
                    credentials: sessions.credentials(client)?,
                })
            }
            Request::Stat { name } => anybody(Call::Stat { name }),
            Request::List { after } => anybody(Call::List { after }),
            Request::Lock { key } => {
                self.slot_of(key)?;
                Ask::Lock { key }
            }
            Request::CondWait { cond } => anybody(Call::CondWait { key: cond }),
            Request::CondSignal { cond, all } => anybody(Call::CondSignal { key: cond, all }),
            Request::Barrier { key, parties } => anybody(Call::barrier(key, parties)),
            Request::Reduce { segment, reduction } => {
                let opening = sessions.opening(client, segment)?;
                if !opening.write {
                    return Err(Refusal::Permission);
                }
                anybody(Call::Declare { segment, reduction })
            }
            about_pages @ (Request::Watch { .. }
            | Request::Pin { .. }
            | Request::PinShort { .. }
            | Request::Unpin { .. }
            | Request::Advise { .. }
            | Request::WillNeed { .. }
            | Request::Purge { .. }
            | Request::WatchRange { .. }
            | Request::Publish { .. }
            | Request::Hold { .. }
            | Request::EndHold { .. }) => pages::translate(sessions, client, &about_pages)?,
            Request::FilePages { segment, part } => Ask::FilePages {
                segment,
                part: self.of_user(part)?,
            },
            Request::FilePagesDone {
                segment,
                part,
                filled,
                frames,
            } => Ask::FilePagesDone {
                segment,
                part: self.of_user(part)?,
                filled,
                frames,
            },
            Request::Memory { node: to } => node(to, Call::Memory),
            Request::Probe { node: to } => node(to, Call::Probe),
            Request::Revoke { .. } | Request::ForgetMember { .. } => {
                sessions.check_master(client)?;
                about_member(&request, self.driver.node.view().term.coordinator())?
            }
            Request::Promote => {
                sessions.check_master(client)?;
                Ask::Promote
            }
            Request::Leave => {
                sessions.check_master(client)?;
                return Ok((Ask::Leave, Kind::Leave));
            }
            _ => return Err(Refusal::Invalid("not a request of this kind".into())),
        };
        Ok((ask, Kind::Plain))
    }

    /// Pages of files are shared among the mounts of one user.
    fn of_user(&self, mut part: FilePart) -> Result<FilePart, Refusal> {
        part.file.user = self.driver.executor.sessions.credentials(self.client)?.uid;
        Ok(part)
    }

    /// Passes a request on to the core, which answers in its own time.
    fn ask(&mut self, request: Ask, kind: Kind) -> Answer {
        let (client, number) = (self.client, self.number);
        if self.driver.executor.tickets.find(client, number).is_some() {
            let why = "the number of the request belongs to another one that still waits";
            return Err(Refusal::Invalid(why.into()));
        }
        let waiting = self
            .driver
            .executor
            .sessions
            .get(client)
            .map_or(0, |s| s.waiting);
        if waiting >= OPEN_REQUESTS {
            let why = "too many requests of one process at once";
            return Err(Refusal::Limit(why.into()));
        }
        if self.driver.executor.tickets.len() >= ALL_REQUESTS && kind != Kind::Leave {
            let why = "too many requests of this node's processes at once";
            return Err(Refusal::Limit(why.into()));
        }
        if let Ask::Call {
            call: Call::Barrier { key, .. },
            ..
        } = &request
        {
            self.driver.look_at_kept_writable(key.segment);
        }
        self.driver.executor.sessions.count_waiting(client, 1);
        let pending = Pending {
            client: Some(client),
            number,
            kind,
        };
        let ticket = self.driver.executor.tickets.issue(pending);
        if matches!(request, Ask::WatchRange { .. }) {
            self.driver.executor.tickets.watches(ticket);
            self.driver.executor.sessions.count_watching(client, 1);
        }
        if let Some(session) = self.driver.executor.sessions.get_mut(client) {
            session.handled = Some((number, None));
        }
        // It goes with the next input, which must be the request: a successor takes it for asked.
        self.driver.executor.note(&Note::Asked { ticket, pending });
        let publishes = matches!(request, Ask::Publish { .. });
        self.driver.feed(Input::Request {
            ticket,
            client,
            request,
        });
        if publishes {
            self.driver.executor.changed = Some(clock::monotonic());
        }
        Ok(None)
    }

    /// The request is acted upon, by the input that follows.
    pub(crate) fn handled(&mut self, reply: &Reply) {
        let (client, number) = (self.client, self.number);
        let reply = Some(reply.clone());
        if let Some(session) = self.driver.executor.sessions.get_mut(client) {
            session.handled = Some((number, reply.clone()));
        }
        self.driver.executor.note(&Note::Handled {
            client,
            number,
            reply,
        });
    }

    /// Keeps this daemon's memory out of swap space, because it serves a swap device.
    fn lock_memory(&mut self, on: bool) -> Answer {
        self.driver.executor.sessions.check_master(self.client)?;
        let residency = &mut self.driver.executor.residency;
        let done = if on {
            residency.lock()
        } else {
            residency.unlock()
        };
        done.map_err(|error| Refusal::Invalid(format!("the daemon: {error}")))?;
        Ok(Some(Reply::Done))
    }

    /// Makes room for another daemon, which goes on with the journal's node. An older program is put
    /// back only when the cluster speaks no version that it does not speak.
    fn hand_over(&mut self, reads: RangeInclusive<u64>) -> Answer {
        self.driver.executor.sessions.check_master(self.client)?;
        let cannot = |why: &str| Err(Refusal::Invalid(why.into()));
        let here = self.driver.about.edition.schema;
        let schema = here.min(*reads.end());
        if !reads.contains(&schema) || schema < schema::OLDEST_WRITTEN {
            return Err(Refusal::Invalid(format!(
                "this daemon hands over its state in schema {} to {here}, the other release reads {} \
                 to {}: install a release between the two first, or let this node leave (pagemesh leave)",
                schema::OLDEST_WRITTEN,
                reads.start(),
                reads.end()
            )));
        }
        if self.driver.executor.keeper.process().is_none() {
            return cannot("this daemon has no keeper");
        }
        if self.driver.executor.recorder.memory().is_none() {
            return cannot("this daemon has no journal (--recorder off), so it cannot be replaced");
        }
        if schema < here {
            let speaks = schema::protocols(schema);
            return self.ask(Ask::MakeRoom { speaks }, Kind::HandOver { schema });
        }
        self.driver.executor.life.handed_over = Some(schema);
        Ok(Some(Reply::Done))
    }
}

/// The request to the coordinator about a member.
fn about_member(request: &Request, coordinator: NodeId) -> Result<Ask, Refusal> {
    let call = match *request {
        Request::Revoke { node } => Call::Revoke { node },
        Request::ForgetMember { node } => Call::ForgetMember { node },
        _ => return Err(Refusal::Invalid("not about a member".into())),
    };
    let to = Some(coordinator);
    Ok(Ask::Call { to, call })
}
