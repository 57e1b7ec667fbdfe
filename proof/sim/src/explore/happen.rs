//! The effect of each step on the cluster.

use super::lab::{Event, Lab, PacketId};
use super::setting::Op;
use super::site::{Outcome, Seat, Sight};
use super::state::{Life, Mode, State, Step};
use crate::check::Check;
use crate::hints::Hints;
use crate::kernel::ThreadId;
use pagemesh_core::Input;
use pagemesh_wire::peer::{Ask, Message};
use pagemesh_wire::{ClientId, MappingId, NodeId};

/// The node that runs on a host.
pub(super) fn node(host: usize) -> NodeId {
    NodeId(host as u16 + 1)
}

/// The process of a thread.
pub(super) fn client(thread: usize) -> ClientId {
    ClientId(thread as u32 + 1)
}

/// Where a thread maps the segment.
pub(super) fn mapping(thread: usize) -> MappingId {
    MappingId(thread as u64 + 1)
}

impl State {
    /// The state after a step; none if it changes nothing.
    pub(super) fn after(&self, lab: &mut Lab, step: Step) -> Check<Option<Self>> {
        let mut next = self.clone();
        let changed = next.happen(lab, step)?;
        Ok(changed.then_some(next))
    }

    fn happen(&mut self, lab: &mut Lab, step: Step) -> Check<bool> {
        match step {
            Step::Run(thread) => self.run(lab, usize::from(thread))?,
            Step::Hear(host) => {
                if let Some(input) = self.inboxes[usize::from(host)].pop_front() {
                    self.react(lab, usize::from(host), Event::Local(input))?;
                }
            }
            Step::Deliver(from, to) => {
                let packet = self.take(from, to);
                self.arrive(lab, usize::from(to), packet)?;
            }
            Step::Lose(from, to) => {
                self.take(from, to);
                self.luck.lost -= 1;
            }
            Step::Twice(from, to) => {
                let packet = self.take(from, to);
                self.luck.twice -= 1;
                self.hold(packet);
                self.arrive(lab, usize::from(to), packet)?;
            }
            Step::Hold(from, to) => {
                let packet = self.take(from, to);
                self.luck.late -= 1;
                self.hold(packet);
            }
            Step::Late(number) => {
                let packet = self.late.remove(usize::from(number));
                let to = lab.packet(packet).to;
                self.arrive(lab, to, packet)?;
            }
            Step::Wait => {
                self.luck.patience -= u8::from(!self.late.is_empty());
                let mut changed = false;
                for host in 0..self.hosts() {
                    changed |= self.is_up(host) && self.tick(lab, host)?;
                }
                return Ok(changed);
            }
            Step::Tick(host) => {
                self.luck.early -= 1;
                return self.tick(lab, usize::from(host));
            }
            Step::Crash(host) => {
                self.luck.crash -= 1;
                self.crash(lab, usize::from(host));
            }
            Step::DeclareDead(host) => {
                self.lives[usize::from(host)] = Life::Buried;
                self.react(lab, 0, Event::GiveUp(node(usize::from(host))))?;
            }
        }
        Ok(true)
    }

    fn take(&mut self, from: u8, to: u8) -> PacketId {
        let packet = self.wire(from, to).pop_front();
        packet.expect("only what is under way has a fate")
    }

    fn hold(&mut self, packet: PacketId) {
        self.late.push(packet);
        self.late.sort_unstable();
    }

    /// A host's clock runs. True if that changes anything.
    pub(super) fn tick(&mut self, lab: &mut Lab, host: usize) -> Check<bool> {
        let before = self.sites[host];
        let said = self.react(lab, host, Event::Tick)?;
        Ok(said || self.sites[host] != before)
    }

    fn arrive(&mut self, lab: &mut Lab, at: usize, packet: PacketId) -> Check {
        if !self.is_up(at) {
            return Ok(());
        }
        let outcomes = self.begin(lab, at, Event::Packet(packet))?;
        if let Message::Ask(heard) = &lab.packet(packet).message {
            for said in asks(lab, &outcomes) {
                Hints::forwarded(node(at), heard, said)?;
            }
        }
        self.see_all(lab, at, &outcomes)
    }

    /// A host reacts. True if anybody else can tell.
    fn react(&mut self, lab: &mut Lab, at: usize, event: Event) -> Check<bool> {
        let outcomes = self.begin(lab, at, event)?;
        self.see_all(lab, at, &outcomes)?;
        Ok(!outcomes.is_empty())
    }

    fn begin(
        &mut self,
        lab: &mut Lab,
        at: usize,
        event: Event,
    ) -> Check<std::rc::Rc<[Outcome<PacketId>]>> {
        let (site, outcomes) = lab.react(at, self.sites[at], event)?;
        self.sites[at] = site;
        Ok(outcomes)
    }

    fn see_all(&mut self, lab: &Lab, at: usize, outcomes: &[Outcome<PacketId>]) -> Check {
        for outcome in outcomes {
            match outcome {
                Outcome::Sent(packet) => self.sent(lab, *packet)?,
                Outcome::Seen(sight) => self.see(lab, at, sight)?,
            }
        }
        Ok(())
    }

    /// A thread takes a step of its program.
    fn run(&mut self, lab: &mut Lab, number: usize) -> Check {
        let (host, program) = &lab.setting.threads[number];
        let host = *host;
        let thread = self.threads[number];
        let Some(op) = program.get(usize::from(thread.at)).copied() else {
            self.threads[number].mode = Mode::Done;
            return Ok(());
        };
        match op {
            Op::Die => {
                self.end_thread(number);
                let client = client(number);
                self.inboxes[host].push_back(Input::ClientGone { client });
                return Ok(());
            }
            Op::Unlock(_) if thread.holds.is_none() => {
                self.go_on(number);
                return Ok(());
            }
            _ => {}
        }
        let seat = Seat {
            thread: ThreadId(number),
            client: client(number),
            mapping: mapping(number),
            stopped_at: thread.stopped_at,
        };
        let value = ((number as u64 + 1) << 16) | (u64::from(thread.at) + 1);
        self.threads[number].stopped_at = None;
        let outcomes = self.begin(lab, host, Event::Thread(seat, op, value))?;
        for outcome in outcomes.iter() {
            match outcome {
                Outcome::Seen(Sight::Woken(thread)) => self.wake(thread.0),
                // By the kernel alone.
                Outcome::Seen(sight @ Sight::Mapped(..)) => self.see(lab, host, sight)?,
                Outcome::Seen(sight) => self.did(lab, host, number, op, sight)?,
                Outcome::Sent(_) => unreachable!("threads send nothing"),
            }
        }
        Ok(())
    }

    /// A thread is done with an operation.
    pub(super) fn go_on(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        thread.at += 1;
        thread.mode = Mode::Ready;
    }

    pub(super) fn wake(&mut self, number: usize) {
        if self.threads[number].mode == Mode::Stopped {
            self.threads[number].mode = Mode::Ready;
        }
    }

    /// A thread is gone, perhaps with a lock.
    fn end_thread(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        thread.mode = Mode::Done;
        let held = thread.holds.take();
        let observer = self.observer();
        observer.asked.retain(|ticket, asked| {
            let theirs = usize::from(asked.thread) == number;
            if theirs {
                observer.golden.unwatch(*ticket);
            }
            !theirs
        });
        if let Some(key) = held {
            observer.holders.remove(&key);
            observer.orphaned.insert(key);
        }
    }

    /// A host vanishes with everything on it.
    pub(super) fn crash(&mut self, lab: &Lab, host: usize) {
        self.depart(lab, host, Life::Crashed);
        if lab.setting.leaves_instants() {
            self.observer().instants.died(host);
        }
        let up: Vec<usize> = (0..self.hosts())
            .filter(|other| self.is_up(*other))
            .collect();
        let sites = self.sites.clone();
        self.observer().golden.crashed(|key, words| {
            up.iter()
                .any(|other| lab.site(sites[*other]).holds(key, words))
        });
    }

    /// A host is gone, in order or not.
    pub(super) fn depart(&mut self, lab: &Lab, host: usize, how: Life) {
        self.lives[host] = how;
        self.inboxes[host].clear();
        for from in 0..self.hosts() {
            self.wire(from as u8, host as u8).clear();
        }
        self.late.retain(|packet| lab.packet(*packet).to != host);
        for thread in 0..self.threads.len() {
            if lab.setting.threads[thread].0 == host {
                self.end_thread(thread);
            }
        }
        self.observer().lines.gone(node(host));
    }
}

/// The asks among the outcomes of a host.
fn asks<'a>(lab: &'a Lab, outcomes: &'a [Outcome<PacketId>]) -> impl Iterator<Item = &'a Ask> {
    outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Sent(packet) => match &lab.packet(*packet).message {
            Message::Ask(ask) => Some(ask),
            _ => None,
        },
        Outcome::Seen(_) => None,
    })
}
