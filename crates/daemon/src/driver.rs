//! Connects the node to the effect executor: inputs go in, effects are carried out.

mod deadlines;
mod faults;
mod processes;

use crate::budget::{Budget, MemoryOptions};
use crate::counters::Count;
use crate::edition::Edition;
use crate::etcd::Elections;
use crate::executor::DaemonExecutor;
use crate::ledger::Ledger;
use crate::payload::Payload;
use crate::receive_batch::{ReceiveBatch, TURN};
use crate::status::{Status, Troubles, WallClock};
use crate::token::Token;
use crate::turn::Payloads;
use deadlines::Deadlines;
use pagemesh_core::{Effect, Effects, Input, Node, Request, Time};
use pagemesh_os::clock;
use pagemesh_os::uffd::FaultBuffer;
use pagemesh_recorder::Heard;
use pagemesh_recorder::{Kind, Pending};
use pagemesh_wire::peer::Access;
use pagemesh_wire::{ClientId, MappingId, PageIndex, PublicKey};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The node with its effect executor.
#[derive(Debug)]
pub(crate) struct Driver {
    /// The state machine that decides.
    pub(crate) node: Node,
    /// Carries out the effects.
    pub(crate) executor: DaemonExecutor,
    /// Description of this daemon for `About` replies.
    pub(crate) about: About,
    /// The memory that the host gives.
    pub(crate) budget: Budget,
    /// The states that need a person, those of before included.
    pub(crate) troubles: Troubles,
    effects: Effects,
    pub(crate) deadlines: Deadlines,
    faults: FaultBuffer,
    /// Pages and accesses of the faults that were read together.
    stopped: Vec<(PageIndex, Access)>,
    /// Datagrams of this turn that the node has handled, and when the turn began.
    heard: Vec<Heard>,
    began: Time,
}

/// Description of this daemon.
#[derive(Debug)]
pub(crate) struct About {
    /// Name of the node.
    pub(crate) name: String,
    /// Address where it listens.
    pub(crate) address: SocketAddr,
    /// Start time in nanoseconds.
    pub(crate) started: u64,
    /// `/dev/userfaultfd`, lent to processes that may not open it.
    pub(crate) device: Option<OwnedFd>,
    /// The daemon to join; `None` in the daemon that founds the cluster.
    pub(crate) join: Option<SocketAddr>,
    /// Problems of this host, each with its cure.
    pub(crate) problems: Vec<String>,
    /// The wall clock when this daemon started.
    pub(crate) wall_clock: WallClock,
    /// What this program speaks, reads and writes.
    pub(crate) edition: Edition,
}

/// Effects of one turn after which they are carried out before more datagrams are handled.
const ENOUGH: usize = 4096;

impl Driver {
    /// Starts the node.
    pub(crate) fn new(node: Node, executor: DaemonExecutor, about: About) -> Self {
        let mut driver = Self::with(node, executor, about);
        driver.feed(Input::Deadline);
        driver
    }

    /// Wraps a node that was started before.
    pub(crate) fn with(node: Node, executor: DaemonExecutor, about: About) -> Self {
        let mut driver = Self {
            node,
            executor,
            about,
            budget: Budget::new(MemoryOptions::default()),
            troubles: Troubles::default(),
            effects: Effects::default(),
            deadlines: Deadlines::default(),
            faults: FaultBuffer::default(),
            stopped: Vec::new(),
            heard: Vec::new(),
            began: Time::ZERO,
        };
        driver.deadlines.set(driver.node.next_deadline());
        driver
    }

    /// What people are told of this node.
    pub(crate) fn status(&self) -> Status<'_> {
        Status {
            about: &self.about,
            node: &self.node,
            executor: &self.executor,
        }
    }

    /// Looks whether anything is wrong with this node.
    pub(crate) fn look_for_troubles(&mut self, now: u64) {
        let mut troubles = std::mem::take(&mut self.troubles);
        troubles.look(now, || self.status().problems(Time(now)));
        self.troubles = troubles;
    }

    /// Gives the node an input that happens now.
    pub(crate) fn feed(&mut self, input: Input<'_>) {
        self.feed_at(Time(clock::monotonic()), input, Payloads::NONE);
    }

    /// Gives the node an input that happened at `now`.
    fn feed_at(&mut self, now: Time, input: Input<'_>, payloads: Payloads<'_>) {
        let now = self.deadlines.time(now);
        self.executor.recorder.input(now, &input);
        self.executor.faults.woken = false;
        self.step(now, input, payloads);
        self.follow_up();
    }

    /// Handles the queued inputs.
    fn follow_up(&mut self) {
        loop {
            let deadlines = &self.deadlines;
            let time = || deadlines.time(Time(clock::monotonic()));
            let Some((now, next)) = self.executor.recorder.next(time) else {
                break;
            };
            self.step(now, next, Payloads::NONE);
        }
        self.executor.settle(&self.node);
        self.deadlines.set(self.node.next_deadline());
    }

    fn step(&mut self, now: Time, input: Input<'_>, payloads: Payloads<'_>) {
        if let Input::LockReturned { key, .. } = input {
            self.executor.take_back(key);
        }
        self.node.handle(now, input, &mut self.effects);
        self.carry_out(now, payloads);
    }

    fn carry_out(&mut self, now: Time, payloads: Payloads<'_>) {
        self.executor.network.meet(&self.node);
        self.executor.carry_out(now.0, &mut self.effects, payloads);
    }

    /// Begins a turn of datagrams that were received together at `now`.
    pub(crate) fn begin_to_hear(&mut self, now: u64) {
        self.began = self.deadlines.time(Time(now));
    }

    /// The node handles one datagram of the turn; its effects wait for [`Driver::act`]. False if
    /// that must come next.
    pub(crate) fn hear(&mut self, (source, key): (SocketAddr, PublicKey), bytes: &[u8]) -> bool {
        let now = self.began;
        let input = Input::Datagram { source, key, bytes };
        if self.heard.is_empty() {
            self.executor.recorder.input(now, &input);
            self.executor.faults.woken = false;
        } else {
            self.executor.recorder.join(now, &input);
        }
        // All datagrams of a turn come from one node.
        self.executor.sharing.comes_from(bytes);
        let before = self.effects.as_slice().len();
        self.node.handle(now, input, &mut self.effects);
        let effects = self.effects.as_slice();
        self.heard.push(Heard {
            bytes: bytes.len(),
            effects: effects.len(),
        });
        let room = self.heard.len() < TURN && effects.len() < ENOUGH;
        room && effects[before..].iter().all(Effect::may_wait)
    }

    /// Number of datagrams whose effects are not carried out yet.
    pub(crate) fn heard(&self) -> usize {
        self.heard.len()
    }

    /// Carries out the effects of all datagrams of the turn.
    pub(crate) fn act(&mut self, receive_batch: &ReceiveBatch) {
        let mut heard = std::mem::take(&mut self.heard);
        self.executor.network.answers_together(true);
        self.carry_out(self.began, receive_batch.pages(&heard));
        self.executor.network.answers_together(false);
        heard.clear();
        self.heard = heard;
        self.follow_up();
    }

    /// Completes what the previous daemon left: the effects of its last input except the first
    /// `done`, and the queued inputs.
    pub(crate) fn redo(
        &mut self,
        mut effects: Effects,
        done: usize,
        queue: VecDeque<Input<'static>>,
        payloads: Payloads<'_>,
    ) {
        self.executor.recorder.take_over(queue);
        let now = clock::monotonic();
        self.executor
            .carry_out_from(done, now, &mut effects, payloads);
        self.follow_up();
    }

    /// Handles a datagram received at `now`.
    pub(crate) fn datagram(
        &mut self,
        now: u64,
        (source, key): (SocketAddr, PublicKey),
        bytes: &[u8],
    ) {
        self.executor.sharing.comes_from(bytes);
        let payload = Payload::of(bytes);
        if payload.is_malformed() {
            return self.executor.count(Count::DiffsRefused, 1);
        }
        let input = Input::Datagram { source, key, bytes };
        self.feed_at(Time(now), input, Payloads::One(payload));
    }

    /// Handles a deadline that has passed, and sends datagrams that the impairments held back.
    pub(crate) fn due(&mut self, now: u64) {
        if self
            .deadlines
            .next()
            .is_some_and(|deadline| deadline <= now)
        {
            self.feed(Input::Deadline);
        }
        let executor = &mut self.executor;
        executor.network.release(now, &mut executor.counters);
    }

    /// When [`Driver::due`] has something to do next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        [self.deadlines.next(), self.executor.network.due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Asks the node to hand over everything and leave the cluster.
    pub(crate) fn leave(&mut self) {
        let ticket = self.executor.tickets.issue(Pending {
            client: None,
            number: 0,
            kind: Kind::Leave,
        });
        self.feed(Input::Request {
            ticket,
            client: ClientId(0),
            request: Request::Leave,
        });
    }

    /// The disk has taken decisions.
    pub(crate) fn kept(&mut self) {
        if let Some(batch) = self.executor.ledger.as_ref().map(Ledger::kept) {
            self.feed(Input::Kept { batch });
        }
    }

    /// Etcd has elected this node, or answered it.
    pub(crate) fn elected(&mut self) {
        let elections = self.executor.elections.as_ref();
        for told in elections.map(Elections::told).unwrap_or_default() {
            self.feed(told);
        }
    }

    /// The node goes on as this program.
    pub(crate) fn runs(&mut self) {
        let program = self.about.edition.program;
        self.feed(Input::Runs(program));
    }

    /// Has everything that this node keeps on its disk written anew there.
    pub(crate) fn keep_anew(&mut self, ledger: Option<Ledger>) {
        if ledger.is_some() {
            self.executor.ledger = ledger;
            self.feed(Input::KeepAnew);
        }
    }

    /// Polls the faults of a mapping.
    pub(crate) fn poll_mapping(&self, id: MappingId) -> io::Result<()> {
        let mapping = self.executor.pages.mappings.get(id);
        mapping.map_or(Ok(()), |mapping| {
            self.executor
                .poll
                .add(&mapping.uffd, Token::Mapping(id).encode())
        })
    }
}
