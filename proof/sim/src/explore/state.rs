//! The whole cluster at one moment, and the possible next steps.

use super::lab::{Lab, PacketId, SiteId};
use super::remains::Remains;
use super::setting::{Luck, Op};
use crate::golden::Golden;
use crate::hints::Hints;
use crate::instants::Instants;
use crate::kernel::PageKey;
use crate::lines::Lines;
use pagemesh_core::{Input, Rights};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{SegmentId, SyncKey, Ticket};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// A possible next step. Hosts and threads by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// A thread runs.
    Run(u8),
    /// A daemon gets an input of a process or the kernel.
    Hear(u8),
    /// The oldest datagram from one host to another arrives.
    Deliver(u8, u8),
    /// ... is lost.
    Lose(u8, u8),
    /// ... arrives, and will come again some time.
    Twice(u8, u8),
    /// ... will come some time.
    Hold(u8, u8),
    /// A datagram that comes some time comes now.
    Late(u8),
    /// Nothing happens for so long that every host resends.
    Wait,
    /// One host's clock runs ahead: it repeats itself although an answer may come.
    Tick(u8),
    /// A host vanishes.
    Crash(u8),
    /// The coordinator gives it up.
    DeclareDead(u8),
}

/// Where a host is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Life {
    Up,
    Crashed,
    Buried,
    Left,
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mode {
    /// It may run.
    Ready,
    /// It is stopped at a page.
    Stopped,
    /// It awaits a reply.
    Asking(Ticket),
    /// It has ended, or died.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Thread {
    /// How far it is in its program.
    pub(super) at: u8,
    pub(super) mode: Mode,
    pub(super) stopped_at: Option<PageKey>,
    pub(super) holds: Option<SyncKey>,
}

impl Thread {
    pub(super) const NEW: Self = Self {
        at: 0,
        mode: Mode::Ready,
        stopped_at: None,
        holds: None,
    };
}

/// A request that waits for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    pub(super) thread: u8,
    pub(super) op: Op,
    /// It was told that it waits.
    pub(super) waiting: bool,
}

/// The memory of an observer of the whole cluster.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Observer {
    pub(super) golden: Golden,
    /// Beside it, where hosts may vanish under policy `release`.
    pub(super) remains: Remains,
    /// What a dead host may have left, where it has replicas.
    pub(super) instants: Instants<(PageKey, usize)>,
    pub(super) hints: Hints,
    pub(super) lines: Lines,
    pub(super) holders: SortedMap<SyncKey, u8>,
    /// Locks whose holders died holding them, until the next holder is told.
    pub(super) orphaned: BTreeSet<SyncKey>,
    pub(super) asked: SortedMap<Ticket, Asked>,
}

/// The cluster.
#[derive(Clone, Hash)]
pub(super) struct State {
    pub(super) sites: Vec<SiteId>,
    pub(super) lives: Vec<Life>,
    /// Datagrams in order, from host to host: `from * hosts + to`.
    pub(super) wires: Vec<VecDeque<PacketId>>,
    /// Datagrams that come some time, in no order.
    pub(super) late: Vec<PacketId>,
    /// Inputs from processes to their daemons.
    pub(super) inboxes: Vec<VecDeque<Input<'static>>>,
    pub(super) threads: Vec<Thread>,
    /// The segment, once a process has opened it.
    pub(super) opened: Option<SegmentId>,
    pub(super) observer: Rc<Observer>,
    /// The failures that may still happen.
    pub(super) luck: Luck,
}

impl State {
    pub(super) fn hosts(&self) -> usize {
        self.sites.len()
    }

    pub(super) fn is_up(&self, host: usize) -> bool {
        self.lives[host] == Life::Up
    }

    pub(super) fn observer(&mut self) -> &mut Observer {
        Rc::make_mut(&mut self.observer)
    }

    pub(super) fn wire(&mut self, from: u8, to: u8) -> &mut VecDeque<PacketId> {
        let hosts = self.hosts();
        &mut self.wires[usize::from(from) * hosts + usize::from(to)]
    }

    /// Nothing will happen before some clock has run.
    fn is_still(&self) -> bool {
        self.wires.iter().all(VecDeque::is_empty)
            && self.inboxes.iter().all(VecDeque::is_empty)
            && self.threads.iter().all(|thread| thread.mode != Mode::Ready)
    }

    /// No request is open any more, if clocks change nothing.
    pub(super) fn is_over(&self) -> bool {
        self.is_still()
            && self.late.is_empty()
            && self.threads.iter().all(|thread| thread.mode == Mode::Done)
            && !self.lives.contains(&Life::Crashed)
    }

    /// All possible next steps.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::with_capacity(16);
        let hosts = 0..self.hosts() as u8;
        let up = |host: &u8| self.is_up(usize::from(*host));
        let heard = hosts
            .clone()
            .filter(|host| !self.inboxes[usize::from(*host)].is_empty());
        steps.extend(heard.map(Step::Hear));
        for from in hosts.clone() {
            for to in hosts.clone() {
                if !self.wires[usize::from(from) * self.hosts() + usize::from(to)].is_empty() {
                    self.fates(from, to, &mut steps);
                }
            }
        }
        for (number, packet) in self.late.iter().enumerate() {
            if number == 0 || self.late[number - 1] != *packet {
                steps.push(Step::Late(number as u8));
            }
        }
        for (number, thread) in self.threads.iter().enumerate() {
            if thread.mode == Mode::Ready {
                steps.push(Step::Run(number as u8));
            }
        }
        let crashed = |host: &u8| self.lives[usize::from(*host)] == Life::Crashed;
        steps.extend(hosts.clone().filter(crashed).map(Step::DeclareDead));
        if self.luck.crash > 0 {
            steps.extend(hosts.clone().skip(1).filter(up).map(Step::Crash));
        }
        if self.luck.early > 0 {
            steps.extend(hosts.filter(up).map(Step::Tick));
        }
        let patient = self.late.is_empty() || self.luck.patience > 0;
        if self.is_still() && patient && !self.lives.contains(&Life::Crashed) {
            steps.push(Step::Wait);
        }
        steps
    }

    /// The possible fates of the oldest datagram between two hosts.
    fn fates(&self, from: u8, to: u8, steps: &mut Vec<Step>) {
        steps.push(Step::Deliver(from, to));
        if self.luck.lost > 0 {
            steps.push(Step::Lose(from, to));
        }
        if self.luck.twice > 0 {
            steps.push(Step::Twice(from, to));
        }
        if self.luck.late > 0 {
            steps.push(Step::Hold(from, to));
        }
    }

    /// The rights of all hosts that count.
    pub(super) fn rights<'a>(
        &'a self,
        lab: &'a Lab,
        key: PageKey,
    ) -> impl Iterator<Item = (usize, Rights)> + 'a {
        let up = (0..self.hosts()).filter(|host| self.is_up(*host));
        up.map(move |host| (host, lab.site(self.sites[host]).rights(key)))
    }
}
