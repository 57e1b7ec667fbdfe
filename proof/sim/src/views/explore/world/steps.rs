//! What programs and misfortune do to an explored cluster, and what they may find.

use super::{CLUSTER, Life, PAGE, PUBLISHED, Packet, SILENCE, VIEWS, World};
use crate::small::Check;
use crate::views::check_purge_finds;
use crate::views::explore::setting::Op;
use pagemesh_core::{Input, Request, Rights};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Access, Message};
use pagemesh_wire::{MappingId, NodeId, PageCount, Term, Ticket};
use std::time::Duration;

impl World {
    pub(super) fn crash(&mut self, host: usize) {
        self.luck.crash -= 1;
        self.lives[host] = Life::Silent;
        for from in 0..self.nodes.len() {
            self.wire(from, host).clear();
        }
        self.late.retain(|packet| packet.to != host);
        let held = self.living().any(|living| self.holds(living));
        if !held {
            self.golden.last = None;
        }
        self.golden.death = true;
        // A newer copy may be a part of the page only, and of less use than the replica.
        self.golden.floor = self.golden.kept.unwrap_or_else(|| self.newest_copy());
        self.golden.seen.fill([0; 2]);
        self.golden.purged.fill([0; 2]);
    }

    pub(super) fn holds(&self, host: usize) -> bool {
        let segment = self.segment.unwrap_or_default();
        let inspection = self.nodes[host].inspect(segment, PAGE, 1);
        inspection.is_some_and(|found| found.pages.first().is_some_and(|page| page.owner))
    }

    pub(super) fn newest_copy(&self) -> u64 {
        let frames = self
            .living()
            .filter_map(|host| self.memory[host].frame(PAGE));
        frames.map(|frame| frame[0]).max().unwrap_or(0)
    }

    /// The first host, which alone counts the members, gives a silent one up.
    pub(super) fn declare_dead(&mut self, host: usize) -> Check {
        self.lives[host] = Life::Dead;
        let nearly = SILENCE.saturating_sub(Duration::from_nanos(1));
        self.clocks[0] = self.clocks[0] + nearly;
        let members = self.nodes[0].view().members.clone();
        let gone = NodeId(host as u16 + 1);
        let others = members.iter().filter(|m| m.id != NodeId(1) && m.id != gone);
        for member in others {
            let header = Header {
                version: pagemesh_wire::header::PROTOCOL_VERSION,
                cluster: CLUSTER,
                from: member.id,
                to: NodeId(1),
                incarnation: member.incarnation,
                term: Term::FIRST,
                body: 0,
                generation: 0,
            };
            let mut bytes = Vec::new();
            Message::Heartbeat { epoch: 0 }.encode(header, &mut bytes);
            let bytes = bytes.into();
            let from = usize::from(member.id.0) - 1;
            self.arrive(&Packet { from, to: 0, bytes })?;
        }
        self.clocks[0] = self.clocks[0] + (SILENCE - nearly);
        self.deadlines(0)
    }

    pub(super) fn step(&mut self, number: usize) -> Check {
        let (host, op) = self.op(number);
        let access = match op {
            Op::Store => Some((0, true)),
            Op::Load => Some((0, false)),
            Op::Look => Some((1, false)),
            Op::Glance => Some((2, false)),
            Op::Await => Some((3, false)),
            Op::Purge(_) | Op::Publish(_) => None,
        };
        match access {
            Some((view, write)) => self.access(number, host, view, write)?,
            None => {
                self.request(host, op)?;
                self.threads[number].at += 1;
                if let Op::Purge(short) = op {
                    self.purged(host, short);
                }
            }
        }
        if self.golden.kept.is_none() {
            self.golden.floor = self.golden.floor.min(self.newest_copy());
        }
        Ok(())
    }

    /// A host has purged the page, or its prefix.
    fn purged(&mut self, host: usize, short: bool) {
        let golden = &mut self.golden;
        if golden.death {
            golden.seen[host] = [0; 2];
        }
        let stored = golden.last.unwrap_or(0);
        let purged = &mut golden.purged[host];
        let views = if short { 1 } else { 2 };
        purged[..views].fill(stored);
    }

    pub(super) fn op(&self, number: usize) -> (usize, Op) {
        let (host, ops) = &self.programs[number];
        (*host, ops[self.threads[number].at])
    }

    fn request(&mut self, host: usize, op: Op) -> Check {
        let segment = self.segment.ok_or("it was opened")?;
        let (first, count) = (PAGE, PageCount(1));
        let mut ticket = Ticket(1);
        let request = match op {
            Op::Publish(short) => {
                if let Some(last) = self.golden.last.filter(|_| self.holds(host)) {
                    self.golden.published = last;
                    ticket = Ticket(PUBLISHED.0 + last);
                }
                Request::Publish {
                    segment,
                    first,
                    count,
                    short,
                    waits: true,
                }
            }
            _ => Request::Purge {
                segment,
                first,
                count,
                short: op == Op::Purge(true),
            },
        };
        self.ask_as(host, ticket, request)
    }

    fn access(&mut self, number: usize, host: usize, view: usize, write: bool) -> Check {
        let mapping = MappingId(view as u64 + 1);
        let rights = self.memory[host].rights(mapping, PAGE);
        let needed = if write { Rights::Write } else { Rights::Read };
        if rights < needed {
            self.threads[number].stopped = true;
            let access = if write { Access::Write } else { Access::Read };
            let page = PAGE;
            let input = Input::Fault {
                mapping,
                page,
                access,
            };
            return self.input(host, input);
        }
        let frame = self.memory[host].frame(PAGE);
        let frame = frame.ok_or("INV-fill-before-map: it is mapped and empty")?;
        if view == 0 {
            self.check_latest(host, frame[0])?;
        }
        if write {
            self.golden.value += 1;
            let value = self.golden.value;
            self.golden.last = Some(value);
            self.memory[host].store(PAGE, value);
        } else {
            let words = if VIEWS[view].short { 1 } else { 2 };
            self.check_seen(host, &frame[..words])?;
            if !VIEWS[view].data_driven {
                self.check_purged(host, &frame[..words])?;
            }
        }
        self.threads[number].at += 1;
        Ok(())
    }

    fn check_latest(&mut self, host: usize, found: u64) -> Check {
        let golden = &mut self.golden;
        let right = match golden.last {
            Some(last) => found == last,
            None => (golden.floor..=golden.value).contains(&found),
        };
        if !right {
            return Err(format!(
                "h{} finds {found} in the consistent copy; {:?} was stored last, and a copy of {} was left",
                host + 1,
                golden.last,
                golden.floor
            ));
        }
        golden.last = Some(found);
        Ok(())
    }

    /// INV-purge-finds: what was stored before a purge is found after it.
    fn check_purged(&self, host: usize, words: &[u64]) -> Check {
        let stored = self.golden.purged[host][words.len() - 1];
        check_purge_finds(host, PAGE, words, [stored; 2])
    }

    fn check_seen(&mut self, host: usize, words: &[u64]) -> Check {
        for (word, value) in words.iter().enumerate() {
            let seen = &mut self.golden.seen[host][word];
            if value < seen || *value > self.golden.value {
                let why = format!("h{} loads {value} after {seen}", host + 1);
                return Err(why);
            }
            *seen = *value;
        }
        Ok(())
    }
}
