//! Node and hands together: what happened goes in, what is to be done gets done.

mod admission;
mod faults;
mod processes;

use crate::experiment::Ticks;
use crate::hands::Hands;
use crate::letterbox::{Letterbox, TURN};
use crate::payload::Payload;
use crate::tally::Count;
use crate::tickets::{Kind, Pending};
use crate::token::Token;
use crate::turn::Payloads;
use pagemesh_core::{Effect, Effects, Input, Node, Request, Time};
use pagemesh_os::clock;
use pagemesh_os::uffd::FaultBuffer;
use pagemesh_recorder::Heard;
use pagemesh_wire::peer::Access;
use pagemesh_wire::{ClientId, MappingId, PageIndex, PublicKey};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// A node that acts.
#[derive(Debug)]
pub(crate) struct Driver {
    /// Decides.
    pub(crate) node: Node,
    /// Act.
    pub(crate) hands: Hands,
    /// Who this is, for those who ask.
    pub(crate) about: About,
    effects: Effects,
    deadline: Option<Time>,
    /// Deadlines come no earlier.
    patience: u64,
    /// Deadlines come at ticks only, in an experiment.
    ticks: Option<Ticks>,
    faults: FaultBuffer,
    /// Where the threads stopped whose faults were read together.
    stopped: Vec<(PageIndex, Access)>,
    /// Datagrams of a turn that the node has heard, and since when.
    heard: Vec<Heard>,
    began: Time,
}

/// What the daemon says of itself.
#[derive(Debug)]
pub(crate) struct About {
    /// Its name.
    pub(crate) name: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// When it started, in nanoseconds.
    pub(crate) started: u64,
    /// `/dev/userfaultfd`, to lend to processes that may not open it.
    pub(crate) device: Option<OwnedFd>,
    /// The daemon it joins, if it does not found a cluster.
    pub(crate) join: Option<SocketAddr>,
    /// What is wrong on this host, each with its cure.
    pub(crate) problems: Vec<String>,
}

/// A pause after which others might seem to have been silent.
const LONG_PAUSE: u64 = 1_000_000_000;

/// In this time every member gives two signs of life.
const HEARING: u64 = 1_200_000_000;

/// Effects after which nothing more is heard before they are carried out.
const ENOUGH: usize = 4096;

fn time_of(ticks: Option<Ticks>, now: Time) -> Time {
    ticks.map_or(now, |ticks| ticks.time(now.0))
}

impl Driver {
    /// Starts the node.
    pub(crate) fn new(node: Node, hands: Hands, about: About) -> Self {
        let mut driver = Self::with(node, hands, about);
        driver.feed(Input::Deadline);
        driver
    }

    /// A node that was started before.
    pub(crate) fn with(node: Node, hands: Hands, about: About) -> Self {
        let mut driver = Self {
            node,
            hands,
            about,
            effects: Effects::default(),
            deadline: None,
            patience: 0,
            ticks: None,
            faults: FaultBuffer::default(),
            stopped: Vec::new(),
            heard: Vec::new(),
            began: Time::ZERO,
        };
        driver.deadline = driver.node.next_deadline();
        driver
    }

    /// Something happened.
    pub(crate) fn feed(&mut self, input: Input<'_>) {
        self.feed_at(Time(clock::monotonic()), input, Payloads::NONE);
    }

    /// From now on deadlines come at ticks only.
    pub(crate) fn tick(&mut self, ticks: Ticks) {
        self.ticks = Some(ticks);
    }

    /// What time it is for the node.
    fn time(&self, now: Time) -> Time {
        time_of(self.ticks, now)
    }

    /// Something happened just now, when the clock was read.
    fn feed_at(&mut self, now: Time, input: Input<'_>, payloads: Payloads<'_>) {
        let now = self.time(now);
        self.hands.recorder.input(now, &input);
        self.hands.faults.woken = false;
        self.step(now, input, payloads);
        self.follow_up();
    }

    /// Handles what is in line.
    fn follow_up(&mut self) {
        let ticks = self.ticks;
        let time = || time_of(ticks, Time(clock::monotonic()));
        while let Some((now, next)) = self.hands.recorder.next(time) {
            self.step(now, next, Payloads::NONE);
        }
        self.hands.settle(&self.node);
        self.deadline = self.node.next_deadline();
    }

    fn step(&mut self, now: Time, input: Input<'_>, payloads: Payloads<'_>) {
        if let Input::LockReturned { key, .. } = input {
            self.hands.take_back(key);
        }
        self.node.handle(now, input, &mut self.effects);
        self.carry_out(now, payloads);
    }

    fn carry_out(&mut self, now: Time, payloads: Payloads<'_>) {
        self.hands.network.meet(self.node.view());
        self.hands.carry_out(now.0, &mut self.effects, payloads);
    }

    /// Datagrams came together at this time: they are going to be heard.
    pub(crate) fn begin_to_hear(&mut self, now: u64) {
        self.began = self.time(Time(now));
    }

    /// One of the datagrams that came together: the node hears it. Nothing is carried
    /// out before [`Driver::act`]. False if that is to come next.
    pub(crate) fn hear(&mut self, (source, key): (SocketAddr, PublicKey), bytes: &[u8]) -> bool {
        let now = self.began;
        let input = Input::Datagram { source, key, bytes };
        if self.heard.is_empty() {
            self.hands.recorder.input(now, &input);
            self.hands.faults.woken = false;
        } else {
            self.hands.recorder.join(now, &input);
        }
        // All of a turn come from one node.
        self.hands.sharing.comes_from(bytes);
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

    /// How many datagrams the node has heard whose effects are not carried out yet.
    pub(crate) fn heard(&self) -> usize {
        self.heard.len()
    }

    /// Carries out what is to be done about all that was heard.
    pub(crate) fn act(&mut self, letterbox: &Letterbox) {
        let mut heard = std::mem::take(&mut self.heard);
        self.hands.network.answers_together(true);
        self.carry_out(self.began, letterbox.pages(&heard));
        self.hands.network.answers_together(false);
        heard.clear();
        self.heard = heard;
        self.follow_up();
    }

    /// Does what a daemon that ended left to do: the effects of its last input
    /// behind the first `done`, and what was in line.
    pub(crate) fn redo(
        &mut self,
        mut effects: Effects,
        done: usize,
        queue: VecDeque<Input<'static>>,
        payloads: Payloads<'_>,
    ) {
        self.hands.recorder.take_over(queue);
        let now = clock::monotonic();
        self.hands.carry_out_from(done, now, &mut effects, payloads);
        self.follow_up();
    }

    /// A datagram came, just now.
    pub(crate) fn datagram(
        &mut self,
        now: u64,
        (source, key): (SocketAddr, PublicKey),
        bytes: &[u8],
    ) {
        self.hands.sharing.comes_from(bytes);
        let payload = Payload::of(bytes);
        if payload.is_malformed() {
            return self.hands.count(Count::DiffsRefused, 1);
        }
        let input = Input::Datagram { source, key, bytes };
        self.feed_at(Time(now), input, Payloads::One(payload));
    }

    /// Whether a thread got a page in handling what came last.
    pub(crate) fn has_woken(&self) -> bool {
        self.hands.faults.woken
    }

    /// Does what time demands; what a bad network held back goes out.
    pub(crate) fn due(&mut self, now: u64) {
        if self.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.feed(Input::Deadline);
        }
        let hands = &mut self.hands;
        hands.network.release(now, &mut hands.tally);
    }

    fn next_deadline(&self) -> Option<u64> {
        let deadline = self.deadline?.0.max(self.patience);
        Some(self.ticks.map_or(deadline, |ticks| ticks.due(deadline)))
    }

    /// After a long pause since `last`, in which this node could not hear anybody:
    /// lets all others give a sign of life before it judges them.
    pub(crate) fn listen_first(&mut self, last: Time) {
        let now = clock::monotonic();
        // Of a node that was handed over it is not known: there was no pause.
        if last > Time::ZERO && now.saturating_sub(last.0) > LONG_PAUSE {
            self.patience = now + HEARING;
        }
    }

    /// When [`Driver::due`] has something to do next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        [self.next_deadline(), self.hands.network.due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Asks the core to hand over everything and leave the cluster.
    pub(crate) fn leave(&mut self) {
        let ticket = self.hands.tickets.issue(Pending {
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

    /// The token under which a mapping's faults are polled.
    pub(crate) fn poll_mapping(&self, id: MappingId) -> io::Result<()> {
        let mapping = self.hands.pages.mappings.get(id);
        mapping.map_or(Ok(()), |mapping| {
            self.hands
                .poll
                .add(&mapping.uffd, Token::Mapping(id).encode())
        })
    }

    /// Pages known here, over all segments.
    pub(crate) fn pages_known(&self) -> u64 {
        let segments = self.node.segments();
        segments
            .filter_map(|info| self.node.inspect(info.id, PageIndex(0), 0))
            .map(|inspection| inspection.known)
            .sum()
    }
}
