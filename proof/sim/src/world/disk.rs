//! The disk of a host: what the coordinator or standby gave it, and what it has written of that. A
//! daemon that is killed loses a tail that was not written.

use super::{Happening, Life, World};
use crate::dice::Dice;
use crate::log::Mark;
use crate::step::HostPlan;
use pagemesh_core::{Input, Kept, KeptEntry, Life as DaemonLife, Start};
use std::collections::VecDeque;

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;

/// A disk.
#[derive(Debug)]
pub(crate) struct Disk {
    kept: Kept,
    /// Batches that are being written, in order.
    waiting: VecDeque<(u64, Vec<KeptEntry>)>,
    dice: Dice,
}

impl Disk {
    pub(super) fn new(seed: u64, host: usize) -> Self {
        Self {
            kept: Kept::default(),
            waiting: VecDeque::new(),
            dice: Dice::stream(seed, &format!("disk {host}")),
        }
    }

    /// It is the disk of a daemon that goes on.
    pub(super) fn goes_on(&mut self, life: &DaemonLife) {
        self.kept.clone_from(&life.kept);
    }

    fn write(&mut self) -> Option<u64> {
        let (batch, entries) = self.waiting.pop_front()?;
        entries.into_iter().for_each(|entry| self.kept.apply(entry));
        Some(batch)
    }
}

impl World {
    /// A host's disk is given a batch, which it has written some time later.
    pub(crate) fn give_to_disk(&mut self, host: usize, batch: u64, entries: Vec<KeptEntry>) {
        let disk = &mut self.hosts[host].disk;
        disk.waiting.push_back((batch, entries));
        let pause = *disk.dice.pick(&[0, 50 * MICRO, 2 * MILLI, 40 * MILLI]);
        let pause = pause + disk.dice.below(100 * MICRO);
        self.after(pause, Happening::Disk(host));
    }

    /// A disk has written the next batch.
    pub(super) fn disk_writes(&mut self, host: usize) {
        if self.hosts[host].life == Life::Up
            && let Some(batch) = self.hosts[host].disk.write()
        {
            self.log
                .note(self.now, host, Mark::Hand, [7, batch, 0], || {
                    format!("the disk has batch {batch}")
                });
            self.input(host, Input::Kept { batch });
        }
    }

    /// The first host's daemon, or its last life, was killed and is started again.
    pub(crate) fn resume_first(&mut self) {
        let of_first = |at: &usize| *at == 0 || self.hosts[*at].plan.resumes.is_some();
        let last = (0..self.hosts.len()).rfind(of_first).unwrap_or(0);
        if self.hosts[last].life != Life::Crashed {
            return self.after(MILLI, Happening::Misfortune(crate::step::Fault::Resume));
        }
        let clock_offset = self.hosts[last].disk.dice.below(1 << 50);
        self.add_host(HostPlan {
            starts_at: self.now.0,
            successor_of: Some(0),
            resumes: Some(last),
            clock_offset,
            cost: 1_000,
            wake: 20 * MICRO,
        });
    }

    /// How a daemon goes on from the disk of a host. Some of what was not written for sure is there,
    /// but never a batch without those before it.
    pub(super) fn life_from_disk(&mut self, host: usize) -> Start {
        let disk = &mut self.hosts[host].disk;
        let torn = disk.dice.below(disk.waiting.len() as u64 + 1);
        for _ in 0..torn {
            disk.write();
        }
        disk.waiting.clear();
        let mut kept = disk.kept.clone();
        let (node, term) = kept.next_life().expect("a seed has few lives");
        let cluster = kept.cluster();
        kept.apply(KeptEntry::Life {
            cluster,
            node,
            term,
        });
        Start::Resume(Box::new(DaemonLife { kept, node, term }))
    }
}
