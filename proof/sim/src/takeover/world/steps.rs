//! What may happen to an explored takeover: datagrams, clocks, misfortune.

use super::{
    Add, CLUSTER, COORDINATOR, Cut, HOSTS, Life, Mode, Packet, ROUNDS, SILENCE, STANDBY, TICK,
    World, number,
};
use crate::small::{self, Check, address};
use crate::takeover::setting::TakeoverMistake;
use pagemesh_core::Input;
use pagemesh_wire::PublicKey;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Call, Message};
use std::rc::Rc;
use std::time::Duration;

impl World {
    pub(super) fn input(&mut self, host: usize, input: Input<'_>) -> Check {
        self.at = host;
        small::input(self, host, input)?;
        if core::mem::take(&mut self.promoted) {
            self.check_heir(host)?;
        }
        Ok(())
    }

    /// A datagram arrives. From an old coordinator, it changes nothing.
    pub(super) fn arrive(&mut self, packet: &Packet) -> Check {
        let to = packet.to;
        if self.lives[to] != Life::Up {
            return Ok(());
        }
        let (mut header, message, _) =
            Message::decode(&packet.bytes).map_err(|why| format!("not a datagram: {why:?}"))?;
        let before = Rc::clone(&self.hosts[to]);
        let fence = before.fence();
        let coordinated = header.from.is_valid() && header.from == header.term.coordinator();
        let old = coordinated && header.term < fence;
        let mut bytes = Rc::clone(&packet.bytes);
        match self.mistake {
            Some(TakeoverMistake::FenceIgnored) if old => {
                header.term = fence;
                bytes = encode(header, &message);
            }
            Some(TakeoverMistake::NewsIgnored) if to == COORDINATOR => {
                if message == Message::Expelled {
                    return Ok(());
                }
                header.term = before.node.view().term;
                bytes = encode(header, &message);
            }
            _ => {}
        }
        let input = Input::Datagram {
            source: address(packet.from),
            key: PublicKey::NONE,
            bytes: &bytes,
        };
        self.input(to, input)?;
        if old && self.hosts[to].node != before.node {
            let told = Self::tell(packet);
            return Err(format!(
                "INV-fenced: {told} in term {:?} changes h{}, which believes nobody before {fence:?}",
                header.term,
                to + 1
            ));
        }
        self.forget(to, &message, before.node.clone());
        Ok(())
    }

    /// A planted mistake: the node is as it was before this datagram came.
    fn forget(&mut self, host: usize, message: &Message, before: pagemesh_core::Node) {
        let Message::Call { body, .. } = message else {
            return;
        };
        let forgets = match self.mistake {
            Some(TakeoverMistake::LogForgotten) => matches!(body, Call::Log(_)),
            Some(TakeoverMistake::PromiseForgotten) => matches!(body, Call::TakeOver { .. }),
            _ => false,
        };
        if forgets {
            self.host(host).node = before;
        }
    }

    /// All signs of life that are under way arrive.
    pub(super) fn settle_beats(&mut self) -> Check {
        while let Some(packet) = self.beats.pop_front() {
            self.arrive(&packet)?;
        }
        Ok(())
    }

    pub(super) fn tick(&mut self, host: usize) -> Check {
        self.pass(host, TICK)
    }

    fn pass(&mut self, host: usize, time: Duration) -> Check {
        let now = self.hosts[host].clock + time;
        self.host(host).clock = now;
        self.deadlines(host)
    }

    /// Calls the node as long as it has something to do now.
    pub(super) fn deadlines(&mut self, host: usize) -> Check {
        for _ in 0..ROUNDS {
            let due = self.hosts[host].node.next_deadline();
            if due.is_none_or(|due| due > self.hosts[host].clock) {
                return Ok(());
            }
            self.input(host, Input::Deadline)?;
        }
        Err(format!(
            "INV-deadline-moves: h{} has one that stands",
            host + 1
        ))
    }

    /// All clocks run.
    pub(super) fn wait(&mut self) -> Check {
        for host in 0..HOSTS {
            if self.lives[host] == Life::Up {
                self.tick(host)?;
            }
        }
        Ok(())
    }

    /// Datagrams arrive, or do not.
    pub(super) fn network(&self, add: Add<'_>) {
        for wire in 0..self.wires.len() {
            let Some(packet) = self.wires[wire].front() else {
                continue;
            };
            let told = Self::tell(packet);
            if self.lives[packet.to] == Life::Up {
                add(told.clone(), &|world| {
                    let packet = world.wires[wire].pop_front();
                    packet.map_or(Ok(()), |packet| world.arrive(&packet))
                });
            }
            if self.luck.lost > 0 {
                add(format!("lose {told}"), &|world| {
                    world.luck.lost -= 1;
                    world.wires[wire].pop_front();
                    Ok(())
                });
            }
            if self.luck.twice > 0 {
                add(format!("double {told}"), &|world| {
                    world.luck.twice -= 1;
                    let packet = world.wires[wire].front().cloned();
                    world.put_off(packet);
                    Ok(())
                });
            }
            if self.luck.late > 0 {
                add(format!("put off {told}"), &|world| {
                    world.luck.late -= 1;
                    let packet = world.wires[wire].pop_front();
                    world.put_off(packet);
                    Ok(())
                });
            }
        }
        for index in 0..self.late.len() {
            if self.lives[self.late[index].to] == Life::Up {
                add(
                    format!("late {}", Self::tell(&self.late[index])),
                    &|world| {
                        let packet = world.late.remove(index);
                        world.arrive(&packet)
                    },
                );
            }
        }
    }

    fn put_off(&mut self, packet: Option<Packet>) {
        self.late.extend(packet);
        self.late.sort();
    }

    /// Programs run, and a person promotes the standby.
    pub(super) fn people(&self, add: Add<'_>) {
        for thread in 0..self.threads.len() {
            if self.threads[thread].mode != Mode::Runs || self.is_done(thread) {
                continue;
            }
            let (host, op) = self.op(thread);
            if matches!(self.lives[host], Life::Up | Life::Unborn) {
                add(
                    format!("t{} on n{}: {op:?}", thread + 1, host + 1),
                    &|world| world.step(thread),
                );
            }
        }
        if self.asked {
            return;
        }
        let any_time = self.luck.promote > 0 && self.is_member(STANDBY);
        if any_time && !self.hosts[STANDBY].coordinates() {
            add(format!("promote n{}", STANDBY + 1), &|world| {
                world.luck.promote -= 1;
                world.promote(STANDBY)
            });
            return;
        }
        // A standby whose coordinator is gone is promoted again, for as long as it takes.
        for host in (0..HOSTS).filter(|host| self.is_still() && self.could_take_over(*host)) {
            add(format!("promote n{} again", host + 1), &|world| {
                world.promote(host)
            });
        }
    }

    /// The coordinator dies, stands still or is cut off, and comes back; clocks run ahead.
    pub(super) fn misfortunes(&self, add: Add<'_>) {
        let (life, luck) = (self.lives[COORDINATOR], self.luck);
        if life == Life::Up && luck.die > 0 {
            add("n1 dies".into(), &|world| {
                world.luck.die -= 1;
                world.die();
                Ok(())
            });
        }
        if life == Life::Up && luck.pause > 0 {
            add("n1 stands still".into(), &|world| {
                world.luck.pause -= 1;
                world.lives[COORDINATOR] = Life::Still;
                Ok(())
            });
        }
        if life == Life::Still {
            add("n1 goes on".into(), &|world| {
                world.lives[COORDINATOR] = Life::Up;
                Ok(())
            });
        }
        if self.cut != Cut::None {
            add("the network is mended".into(), &|world| {
                world.cut = Cut::None;
                Ok(())
            });
        } else if life == Life::Up && luck.cut > 0 {
            let cuts = [
                ("n1 is cut off from n2", Cut::One(1)),
                ("n1 is cut off from n3", Cut::One(2)),
                ("n1 is cut off", Cut::All),
            ];
            for (what, cut) in cuts {
                add(what.into(), &|world| {
                    world.luck.cut -= 1;
                    world.cut = cut;
                    Ok(())
                });
            }
        }
        if luck.hasty > 0 {
            self.hasty(add);
        }
    }

    fn die(&mut self) {
        self.lives[COORDINATOR] = Life::Dead;
        for from in 0..HOSTS {
            self.wire(from, COORDINATOR).clear();
        }
        self.late.retain(|packet| packet.to != COORDINATOR);
        let programs = self.programs.clone();
        for (thread, (host, _)) in programs.iter().enumerate() {
            if *host == COORDINATOR && self.threads[thread].mode == Mode::Asks {
                self.names.unanswered(thread as u8);
                self.solid.unanswered(thread as u8);
            }
        }
    }

    /// A node gives another one up whose datagrams are under way.
    fn hasty(&self, add: Add<'_>) {
        if self.asked && self.lives[STANDBY] == Life::Up {
            add("n2 waits no longer for answers".into(), &|world| {
                world.luck.hasty -= 1;
                world.pass(STANDBY, SILENCE + Duration::from_nanos(1))
            });
        }
        if !self.takes_part(COORDINATOR) || !self.hosts[COORDINATOR].coordinates() {
            return;
        }
        for gone in 1..HOSTS {
            if self.hosts[COORDINATOR].counts_as_alive(gone) {
                add(format!("n1 counts n{} as dead", gone + 1), &|world| {
                    world.luck.hasty -= 1;
                    world.give_up(gone)
                });
            }
        }
    }

    /// The coordinator hears nothing of one node for too long, and of the other one lately.
    fn give_up(&mut self, gone: usize) -> Check {
        let nearly = SILENCE.saturating_sub(Duration::from_nanos(1));
        let now = self.hosts[COORDINATOR].clock;
        self.host(COORDINATOR).clock = now + nearly;
        for other in (1..HOSTS).filter(|other| *other != gone) {
            if !self.hosts[COORDINATOR].counts_as_alive(other) {
                continue;
            }
            let member = self.hosts[COORDINATOR].node.view().member(number(other));
            let Some(incarnation) = member.map(|member| member.incarnation) else {
                continue;
            };
            let view = self.hosts[COORDINATOR].node.view();
            let header = Header {
                version: self.hosts[COORDINATOR].node.spoken(),
                cluster: CLUSTER,
                from: number(other),
                to: number(COORDINATOR),
                incarnation,
                term: view.term,
                body: 0,
                generation: view.generation as u16,
            };
            let bytes = encode(header, &Message::Heartbeat { epoch: view.epoch });
            let (from, to) = (other, COORDINATOR);
            self.arrive(&Packet { from, to, bytes })?;
        }
        self.host(COORDINATOR).clock = now + SILENCE;
        self.deadlines(COORDINATOR)
    }
}

fn encode(header: Header, message: &Message) -> Rc<[u8]> {
    let mut bytes = Vec::new();
    message.clone().encode(header, &mut bytes);
    bytes.into()
}
