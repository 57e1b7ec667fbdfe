//! One host: its node, its kernel and its clock. What it does depends on nothing
//! else, so that every reaction is computed once.

use super::setting::Op;
use super::timeless::Timeless;
use crate::canary::Canary;
use crate::check::{Check, ensure};
use crate::golden::Words;
use crate::kernel::{Kernel, PageKey, Reclaimed, ThreadId, append_page};
use crate::network::{is_sign_of_life, kind};
use crate::run::without_panic;
use pagemesh_core::{
    Afterwards, Config, DiffWork, Effect, Effects, Event, Input, Node, Reply, Request, Rights,
    Source, Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{Access, Diffs, Message};
use pagemesh_wire::{
    ClientId, MappingId, NodeId, PageCount, PageIndex, PublicKey, SegmentId, SyncKey, Ticket,
    Version,
};
use std::collections::VecDeque;
use std::hash::Hash;
use std::net::SocketAddr;
use std::time::Duration;

/// How far a clock runs at once: the slowest repetition of an exploration is due
/// then, and a page that nobody used may leave after two of them.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// The silence after which the coordinator gives a host up.
pub(super) const SILENCE: Duration = Duration::from_secs(1000);

/// A host at one moment.
#[derive(Clone)]
pub(crate) struct Site {
    pub(super) node: Node,
    kernel: Kernel,
    clock: Time,
    canary: Option<Canary>,
}

/// A datagram on its way.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Packet {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) message: Message,
}

/// What a thread of the host is, to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seat {
    pub(super) thread: ThreadId,
    pub(super) client: ClientId,
    pub(super) mapping: MappingId,
    /// It was stopped at this page, and runs again.
    pub(super) stopped_at: Option<PageKey>,
}

/// What can happen to a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stimulus<'a> {
    /// A datagram arrives.
    Datagram(SocketAddr, &'a [u8]),
    /// A process or the kernel tells the daemon something.
    Local(&'a Input<'static>),
    /// A thread takes a step; what it would store.
    Thread(Seat, Op, u64, SegmentId),
    /// The clock runs.
    Tick,
    /// The clock runs so far that all others, heard just now, live, but this one
    /// is given up.
    GiveUp(NodeId),
}

/// What the rest of the cluster, or its observer, sees of it.
#[derive(Clone, Debug)]
pub(crate) enum Outcome<P> {
    /// A datagram left.
    Sent(P),
    /// Something else.
    Seen(Sight),
}

/// What an observer sees.
#[derive(Clone, Debug)]
pub(crate) enum Sight {
    /// A mapping got rights to a page with these contents.
    Mapped(PageKey, Words, Rights),
    /// Contents of a page were dropped.
    Dropped(PageKey),
    /// Ownership of a page left for a node.
    Passed(NodeId, PageKey),
    /// Ownership of a page arrived.
    Owned(PageKey, Version),
    /// These threads can never have the page.
    Failed(PageKey, Vec<ThreadId>, String),
    /// A request was answered.
    Replied(Ticket, Reply),
    /// A lock was lent to a client.
    Lent(ClientId),
    /// A lock that comes back anyway is asked for.
    Awaited(SyncKey),
    /// A stopped thread may run.
    Woken(ThreadId),
    /// A grant was made.
    Given(Event),
    /// Somebody else is no member any more.
    Gone(NodeId),
    /// The node is no member any more.
    Expelled,
    /// Locks came back from a dead client.
    Recovered(Vec<SyncKey>),
    /// The thread loaded this word.
    Loaded(PageKey, u8, u64),
    /// The thread stored this word.
    Stored(PageKey, u8, u64),
    /// The thread is stopped at a page.
    Stopped(PageKey, Input<'static>),
    /// The thread took a lock by itself.
    Took(SyncKey),
    /// The thread asks the daemon.
    Asks(Request),
    /// The thread gave a lock back; whether it must tell the daemon.
    Released(SyncKey, bool),
}

impl<P> Outcome<P> {
    /// The same with another way to name datagrams.
    pub(super) fn map<Q>(self, keep: impl FnOnce(P) -> Q) -> Outcome<Q> {
        match self {
            Self::Sent(packet) => Outcome::Sent(keep(packet)),
            Self::Seen(sight) => Outcome::Seen(sight),
        }
    }
}

/// One reaction under way.
struct Turn<'a> {
    site: &'a mut Site,
    me: usize,
    outcomes: Vec<Outcome<Packet>>,
    answers: VecDeque<Input<'static>>,
    /// The diffs that are being heard.
    letter: Option<Diffs>,
}

impl Site {
    /// A host whose daemon is about to start.
    pub(super) fn new(config: Config, canary: Option<Canary>) -> Self {
        Self {
            node: Node::new(config),
            kernel: Kernel::new(canary),
            clock: Time(1_000_000_000),
            canary,
        }
    }

    /// Stands for everything about the host but when it is.
    pub(crate) fn digest(&self) -> u128 {
        let mut hasher = Timeless::at(self.clock);
        self.node.hash(&mut hasher);
        self.kernel.hash(&mut hasher);
        hasher.digest()
    }

    pub(super) fn rights(&self, key: PageKey) -> Rights {
        self.kernel.rights(key)
    }

    pub(super) fn holds(&self, key: PageKey, words: &Words) -> bool {
        self.kernel.holds(key, words)
    }

    pub(super) fn shows(&self, key: PageKey, words: &Words) -> bool {
        self.kernel.shows(key, words)
    }

    /// Lets something happen. The host at `me` becomes what is returned.
    pub(crate) fn react(
        &self,
        me: usize,
        stimulus: &Stimulus<'_>,
    ) -> Check<(Self, Vec<Outcome<Packet>>)> {
        let mut site = self.clone();
        let mut outcomes = without_panic(|| {
            let mut turn = Turn {
                site: &mut site,
                me,
                outcomes: Vec::new(),
                answers: VecDeque::new(),
                letter: None,
            };
            turn.take(stimulus)?;
            Ok(turn.outcomes)
        })?;
        let woken = std::mem::take(&mut site.kernel.woken);
        let woken = woken
            .into_iter()
            .map(|thread| Outcome::Seen(Sight::Woken(thread)));
        outcomes.extend(woken);
        Ok((site, outcomes))
    }
}

impl Turn<'_> {
    fn see(&mut self, sight: Sight) {
        self.outcomes.push(Outcome::Seen(sight));
    }

    fn take(&mut self, stimulus: &Stimulus<'_>) -> Check {
        match stimulus {
            Stimulus::Datagram(source, bytes) => self.datagram(*source, bytes),
            Stimulus::Local(input) => self.local(input),
            Stimulus::Thread(seat, op, value, segment) => self.thread(*seat, *op, *value, *segment),
            Stimulus::Tick => {
                self.site.clock = self.site.clock + TICK;
                self.deadlines()
            }
            Stimulus::GiveUp(node) => self.give_up(*node),
        }
    }

    fn datagram(&mut self, source: SocketAddr, bytes: &[u8]) -> Check {
        let decoded = Message::decode(bytes).ok();
        let page = decoded.as_ref().map(|(_, _, page)| *page);
        let payload = page.filter(|page| !page.is_empty());
        let key = PublicKey::NONE;
        if let Some((_, Message::Diffs(letter), _)) = decoded {
            self.letter = Some(letter);
        }
        self.handle(Input::Datagram { source, key, bytes }, payload)
    }

    fn local(&mut self, input: &Input<'static>) -> Check {
        if let Input::Mapped {
            mapping,
            segment,
            client,
        } = input
        {
            self.site.kernel.mapped(*mapping, *segment, *client);
        }
        self.handle(input.clone(), None)?;
        if let Input::Unmapped { mapping } = input {
            self.site.kernel.unmapped(*mapping);
        }
        if let Input::ClientGone { client } = input {
            self.site.kernel.client_gone(*client);
            let locks = self.site.kernel.recover_locks(*client);
            self.see(Sight::Recovered(locks));
        }
        Ok(())
    }

    fn deadlines(&mut self) -> Check {
        for _ in 0..100 {
            let due = self.site.node.next_deadline();
            if due.is_none_or(|due| due > self.site.clock) {
                return Ok(());
            }
            self.handle(Input::Deadline, None)?;
        }
        ensure!(
            false,
            DeadlineMoves,
            "h{} has a deadline that does not move",
            self.me + 1
        );
        Ok(())
    }

    fn give_up(&mut self, node: NodeId) -> Check {
        let site = &mut *self.site;
        let me = site.node.id().unwrap_or_default();
        let members = site.node.view().members.clone();
        let nearly = SILENCE.saturating_sub(Duration::from_nanos(1));
        site.clock = site.clock + nearly;
        for member in members
            .iter()
            .filter(|member| member.id != me && member.id != node)
        {
            let mut bytes = Vec::new();
            let header = Header {
                from: member.id,
                to: me,
                incarnation: member.incarnation,
                ..self.header()
            };
            Message::Heartbeat { epoch: 0 }.encode(header, &mut bytes);
            self.datagram(member.address, &bytes)?;
        }
        self.site.clock = self.site.clock + (SILENCE - nearly);
        self.deadlines()
    }

    /// A header of this cluster.
    fn header(&self) -> Header {
        Header {
            cluster: super::lab::CLUSTER,
            from: NodeId::NONE,
            to: NodeId::NONE,
            incarnation: pagemesh_wire::Incarnation(0),
            body: 0,
        }
    }

    /// Handles one input, carries out what follows, and what follows from that.
    fn handle(&mut self, input: Input<'_>, payload: Option<&[u8]>) -> Check {
        let mut effects = Effects::default();
        self.site.node.handle(self.site.clock, input, &mut effects);
        for effect in effects.drain() {
            self.carry_out(effect, payload)?;
        }
        while let Some(answer) = self.answers.pop_front() {
            self.handle(answer, None)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, effect: Effect, payload: Option<&[u8]>) -> Check {
        let now = self.site.clock;
        let kernel = &mut self.site.kernel;
        let key = |segment, page| PageKey { segment, page };
        match effect {
            Effect::Send {
                address,
                header,
                message,
                page,
            } => return self.send(address, header, *message, page, payload),
            Effect::Fill {
                segment,
                page,
                source,
            } => {
                ensure!(source != Source::Frame, Law, "{page} fills itself");
                let words = kernel.contents(key(segment, page), source, payload)?;
                kernel.fill(key(segment, page), words)?;
            }
            Effect::Map {
                mapping,
                segment,
                page,
                rights,
            } => {
                let words = kernel.map(now, mapping, key(segment, page), rights)?;
                let mapped = Sight::Mapped(key(segment, page), words, rights);
                self.see(mapped);
            }
            Effect::Protect { segment, page } => kernel.protect(key(segment, page)),
            Effect::Evict {
                segment,
                page,
                keep,
            } => {
                kernel.evict(now, key(segment, page), keep)?;
                self.see(Sight::Dropped(key(segment, page)));
            }
            Effect::DropStash { segment, page } => {
                kernel.drop_stash(key(segment, page));
                self.see(Sight::Dropped(key(segment, page)));
            }
            Effect::Fail {
                mapping,
                segment,
                page,
                why,
            } => {
                let threads = kernel.sleepers(mapping, key(segment, page));
                let failed = Sight::Failed(key(segment, page), threads, why.to_string());
                self.see(failed);
            }
            Effect::ConfirmUse { segment, page } => {
                let used = kernel.used(key(segment, page));
                self.answers.push_back(Input::UseConfirmed {
                    segment,
                    page,
                    used,
                });
            }
            Effect::Forget { segment } => kernel.forget(segment)?,
            Effect::LendLock {
                key,
                client,
                wanted,
            } => {
                kernel.lend(key, client, wanted)?;
                self.see(Sight::Lent(client));
            }
            Effect::ReclaimLock { key } => match kernel.reclaim(key) {
                Reclaimed::Back => self.answers.push_back(Input::LockReturned {
                    key,
                    recovered: false,
                }),
                Reclaimed::Marked => {}
                Reclaimed::UnderWay => self.see(Sight::Awaited(key)),
            },
            Effect::Reply { ticket, reply } => {
                self.see(Sight::Replied(ticket, *reply));
            }
            // Said to strangers, of whom there are none here.
            Effect::SendNotice { .. } => {}
            Effect::Diffs(work) => self.diff_work(work, payload)?,
            Effect::Emit(event) => self.event(event),
        }
        Ok(())
    }

    /// Twins and diffs.
    fn diff_work(&mut self, work: DiffWork, payload: Option<&[u8]>) -> Check {
        let key = |segment, page| PageKey { segment, page };
        let kernel = &mut self.site.kernel;
        match work {
            DiffWork::Twin { segment, page } => kernel.twin(key(segment, page)),
            DiffWork::DropTwin { segment, page } => kernel.drop_twin(key(segment, page)),
            DiffWork::Diff {
                segment,
                name,
                then,
                ..
            } => {
                let page = name.page;
                if kernel.diff(segment, name, then)? && then == Afterwards::Refresh {
                    self.answers.push_back(Input::Unchanged { segment, page });
                }
                Ok(())
            }
            DiffWork::Keep { names, .. } => {
                let Some(letter) = &self.letter else {
                    ensure!(false, Law, "{names:?} are kept, but none came");
                    unreachable!()
                };
                kernel.keep(letter, payload.unwrap_or_default(), &names)
            }
            DiffWork::Merge {
                segment,
                page,
                source,
                names,
                ..
            } => kernel.merge(key(segment, page), (source, payload), &names),
            DiffWork::Update {
                segment,
                page,
                names,
                ..
            } => kernel.update(key(segment, page), &names),
            DiffWork::Forget { segment, upto } => {
                kernel.forget_changes(segment, &upto);
                Ok(())
            }
            DiffWork::Send {
                address,
                header,
                segment,
                request,
                names,
                at_most,
            } => {
                let letter = Diffs {
                    segment,
                    request,
                    diffs: Vec::new(),
                };
                let (letter, tail) = kernel.pack(letter, &names, at_most)?;
                if !letter.diffs.is_empty() {
                    self.emit(address, header, Message::Diffs(letter), &tail);
                }
                Ok(())
            }
            // Nobody checks for races here.
            DiffWork::Compare { .. } => Ok(()),
        }
    }

    fn event(&mut self, event: Event) {
        let sight = match event {
            Event::Owned {
                segment,
                page,
                version,
            } => Some(Sight::Owned(PageKey { segment, page }, version)),
            Event::OwnershipGiven { .. } | Event::TokenGiven { .. } => Some(Sight::Given(event)),
            Event::Left { node } | Event::Died { node } => Some(Sight::Gone(node)),
            Event::Expelled {} => Some(Sight::Expelled),
            _ => None,
        };
        self.outcomes.extend(sight.map(Outcome::Seen));
    }

    fn send(
        &mut self,
        address: SocketAddr,
        header: Header,
        mut message: Message,
        page: Option<(SegmentId, PageIndex, Source)>,
        payload: Option<&[u8]>,
    ) -> Check {
        if is_sign_of_life(kind(&message)) {
            return Ok(());
        }
        if let Some(canary) = self.site.canary {
            canary.tamper(&mut message);
        }
        if let Some(granted) = PageKey::granted_by(&message) {
            let rights = self.site.kernel.rights(granted);
            ensure!(
                rights < Rights::Write,
                ProtectBeforeGrant,
                "h{} grants {granted} while it may still be stored to: {message:?}",
                self.me + 1
            );
            if matches!(message, Message::Pass(_)) {
                self.see(Sight::Passed(header.to, granted));
            }
        }
        let mut behind = Vec::new();
        if let Some((segment, page, source)) = page {
            let key = PageKey { segment, page };
            let words = self.site.kernel.contents(key, source, payload)?;
            append_page(&words, &mut behind);
        }
        self.emit(address, header, message, &behind);
        Ok(())
    }

    fn emit(&mut self, address: SocketAddr, header: Header, message: Message, behind: &[u8]) {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        bytes.extend_from_slice(behind);
        self.outcomes.push(Outcome::Sent(Packet {
            from: self.me,
            to: super::lab::host_at(address),
            bytes,
            message,
        }));
    }

    fn thread(&mut self, seat: Seat, op: Op, value: u64, segment: SegmentId) -> Check {
        let kernel = &mut self.site.kernel;
        let page = |page| PageKey {
            segment,
            page: PageIndex(page),
        };
        let lock = |number| SyncKey { segment, number };
        let stop = |kernel: &mut Kernel, key: PageKey, access| {
            kernel.sleep(seat.mapping, key, seat.thread);
            let fault = Input::Fault {
                mapping: seat.mapping,
                page: key.page,
                access,
            };
            Sight::Stopped(key, fault)
        };
        let outcome = match op {
            Op::Read(at, word) => match kernel.load(seat.mapping, page(at), word.into()) {
                Some(value) => Sight::Loaded(page(at), word, value),
                None => stop(kernel, page(at), Access::Read),
            },
            Op::Write(at, word) => {
                if kernel.store(seat.mapping, page(at), word.into(), value) {
                    Sight::Stored(page(at), word, value)
                } else {
                    stop(kernel, page(at), Access::Write)
                }
            }
            Op::Lock(number) if kernel.try_lock(lock(number), seat.client) => {
                Sight::Took(lock(number))
            }
            Op::Lock(number) => Sight::Asks(Request::Lock { key: lock(number) }),
            Op::Unlock(number) => {
                let tell = kernel.release(lock(number), seat.client)?;
                Sight::Released(lock(number), tell)
            }
            Op::Watch(at) => Sight::Asks(Request::Watch {
                segment,
                page: PageIndex(at),
            }),
            Op::Need(pages) => Sight::Asks(Request::Advise {
                segment,
                first: PageIndex(0),
                count: PageCount(pages),
                advice: Advice::WillNeed,
            }),
            Op::Leave => Sight::Asks(Request::Leave),
            Op::Die => unreachable!("who dies does nothing more"),
        };
        self.outcomes.push(Outcome::Seen(outcome));
        if let Some(key) = seat.stopped_at {
            // It has run, and if it stopped there again, it sleeps there now.
            kernel.ran(seat.thread, key);
        }
        Ok(())
    }
}
