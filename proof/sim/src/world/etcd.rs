//! The store that all hosts share, where etcd elects the coordinator: one linearizable thing, which
//! is out of reach for everybody now and then (it has no quorum), or for one host. A request takes
//! effect at one instant, or never; its answer may get lost. The clients behave as the daemon's do.

use super::{Happening, Life, World};
use crate::canary::Canary;
use crate::check::{Check, ensure};
use crate::dice::Dice;
use crate::log::Mark;
use pagemesh_core::limits::CLAIM;
use pagemesh_core::{Input, Kept, KeptEntry, Time};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{NodeId, NodeSet, SegmentId, Term};
use std::collections::{BTreeSet, VecDeque};

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;

/// How long a client waits until it sends a batch again.
const AGAIN: u64 = 100 * MILLI;

/// What a host asks of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    /// To take the first batch that waits at the host.
    Keep,
    /// To renew the host's claim.
    Renew(Term),
    /// To give the claim to the host's node, in a newer term than this one.
    Elect(NodeId, Term),
    /// Which nodes have asked for the claim since it was taken in this term.
    ListAsking(Term),
    /// Who coordinates.
    Seek,
}

/// A step of the store, or of a host's client of it.
#[derive(Clone, Debug)]
pub(crate) enum EtcdStep {
    /// A request reaches the store.
    Arrives(usize, Asked),
    /// An answer reaches a host.
    Answers(usize, Box<Input<'static>>),
}

/// The store.
#[derive(Debug)]
pub(crate) struct Etcd {
    /// Who may write, and when that was last renewed.
    claim: (Term, Time),
    /// The nodes that have asked for the claim in vain since.
    asking: NodeSet,
    kept: Kept,
    /// When it cannot be reached: by this host, or by nobody.
    outages: Vec<(Option<usize>, Time, Time)>,
    /// Segments of which a process was told, each with the number of its name; none that a process
    /// has asked to remove.
    told: SortedMap<usize, SegmentId>,
    removed: BTreeSet<usize>,
    dice: Dice,
}

/// A host's client of the store.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// The term in which the host writes.
    term: Term,
    /// Batches that the store has not acknowledged.
    waiting: VecDeque<(u64, Vec<KeptEntry>)>,
    /// The last batch that the store has; an acknowledgement that got lost comes again.
    taken: u64,
    /// A batch is under way.
    busy: bool,
}

impl Etcd {
    /// The first host founds the cluster, so it has the claim.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            claim: (Term::FIRST, Time(0)),
            asking: NodeSet::EMPTY,
            kept: Kept::default(),
            outages: Vec::new(),
            told: SortedMap::new(),
            removed: BTreeSet::new(),
            dice: Dice::stream(seed, "etcd"),
        }
    }

    /// From now on it is out of reach for so long, by one host or by all.
    pub(crate) fn fails(&mut self, host: Option<usize>, now: Time, length: u64) {
        self.outages.push((host, now, Time(now.0 + length)));
    }

    /// It is within reach of everybody from now on.
    pub(super) fn heal(&mut self) {
        self.outages.clear();
    }

    /// A process was told that a name has this segment.
    pub(crate) fn told(&mut self, name: usize, segment: SegmentId) {
        if !self.removed.contains(&name) {
            self.told.insert(name, segment);
        }
    }

    /// A process asks to remove a name.
    pub(crate) fn removing(&mut self, name: usize) {
        self.told.remove(&name);
        self.removed.insert(name);
    }

    /// Asserts *INV-store-knows* when another node goes on with what is here.
    fn check(&self) -> Check {
        for (name, segment) in &self.told {
            ensure!(
                self.kept.has_segment(*segment),
                StoreKnows,
                "a process was told that name {name} is {segment}, and etcd does not know it"
            );
        }
        Ok(())
    }

    fn reaches(&self, host: usize, now: Time) -> bool {
        let hit = |who: &Option<usize>| who.is_none_or(|who| who == host);
        let mut outages = self.outages.iter();
        !outages.any(|(who, from, until)| hit(who) && (*from..*until).contains(&now))
    }

    fn pause(&mut self) -> u64 {
        let pause = *self.dice.pick(&[0, 50 * MICRO, 2 * MILLI, 40 * MILLI]);
        pause + 100 * MICRO + self.dice.below(100 * MICRO)
    }

    /// The claim passes to a node, if nobody has renewed it for so long.
    fn elect(&mut self, node: NodeId, fence: Term, now: Time, patience: u64) -> Option<Term> {
        let (held, renewed) = self.claim;
        if now.0 <= renewed.0 + patience {
            self.asking.insert(node);
            return None;
        }
        let term = held.max(fence).next(node)?;
        self.claim = (term, now);
        self.asking = NodeSet::EMPTY;
        Some(term)
    }

    /// What is answered to a question, if anything.
    fn answer(&self, asked: Asked) -> Option<Input<'static>> {
        match asked {
            Asked::ListAsking(term) if term == self.claim.0 => {
                let nodes = self.asking.clone();
                Some(Input::Asking { term, nodes })
            }
            Asked::Seek => {
                let view = self.kept.view();
                let coordinator = view.member(self.claim.0.coordinator());
                let address = coordinator.filter(|_| view.term == self.claim.0)?.address;
                Some(Input::Coordinates { address })
            }
            _ => None,
        }
    }
}

impl World {
    /// A host's node gives its client a batch.
    pub(crate) fn give_to_etcd(&mut self, host: usize, batch: u64, entries: Vec<KeptEntry>) {
        let client = &mut self.hosts[host].client;
        if let Some(term) = entries.iter().find_map(KeptEntry::term) {
            client.term = term;
        }
        client.waiting.push_back((batch, entries));
        if self.setting.canary == Some(Canary::KeptTooSoon) {
            self.input(host, Input::Kept { batch });
        }
        if !std::mem::replace(&mut self.hosts[host].client.busy, true) {
            self.ask_etcd(host, Asked::Keep);
        }
    }

    /// A host's client asks the store.
    pub(crate) fn ask_etcd(&mut self, host: usize, asked: Asked) {
        let pause = self.etcd.pause();
        self.after(pause, Happening::Etcd(EtcdStep::Arrives(host, asked)));
    }

    /// Something reaches the store, or a host.
    pub(super) fn etcd_step(&mut self, step: EtcdStep) -> Check {
        match step {
            EtcdStep::Arrives(host, asked) => return self.etcd_asked(host, asked),
            EtcdStep::Answers(host, _) if self.hosts[host].life != Life::Up => {}
            EtcdStep::Answers(host, answer) if self.etcd.reaches(host, self.now) => {
                self.input(host, *answer);
            }
            // The client asks again.
            EtcdStep::Answers(host, answer) if matches!(*answer, Input::Kept { .. }) => {
                self.after(AGAIN, Happening::Etcd(EtcdStep::Answers(host, answer)));
            }
            EtcdStep::Answers(..) => {}
        }
        Ok(())
    }

    fn etcd_asked(&mut self, host: usize, asked: Asked) -> Check {
        let reached = self.etcd.reaches(host, self.now);
        match asked {
            Asked::Keep => self.etcd_keeps(host, reached),
            Asked::Renew(term) if reached && self.etcd.claim.0 == term => {
                self.etcd.claim.1 = self.now;
            }
            Asked::Elect(node, fence) if reached => return self.etcd_elects(host, node, fence),
            Asked::ListAsking(_) | Asked::Seek if reached => {
                if let Some(answer) = self.etcd.answer(asked) {
                    let pause = self.etcd.pause();
                    let answer = EtcdStep::Answers(host, Box::new(answer));
                    self.after(pause, Happening::Etcd(answer));
                }
            }
            Asked::Renew(_) | Asked::Elect(..) | Asked::ListAsking(_) | Asked::Seek => {}
        }
        Ok(())
    }

    /// The store takes the first batch of a host that has the claim.
    fn etcd_keeps(&mut self, host: usize, reached: bool) {
        // What was on its way when the host's daemon ended may arrive.
        let client = &mut self.hosts[host].client;
        let fenced = self.etcd.claim.0 != client.term;
        client.busy = false;
        if !reached {
            client.busy = true;
            return self.after(AGAIN, Happening::Etcd(EtcdStep::Arrives(host, Asked::Keep)));
        }
        let Some((batch, entries)) = client.waiting.pop_front() else {
            return;
        };
        if fenced {
            return client.waiting.clear();
        }
        if batch > client.taken {
            client.taken = batch;
            self.etcd.kept.apply_batch(entries.clone());
        }
        let (log, now) = (&mut self.log, self.now);
        log.note(now, host, Mark::Hand, [8, batch, 0], || {
            format!("etcd has batch {batch}")
        });
        let (pause, back) = (self.etcd.pause(), self.etcd.dice.chance(950));
        if !back {
            // The acknowledgement gets lost, and the batch comes again.
            self.hosts[host].client.waiting.push_front((batch, entries));
        } else if self.setting.canary != Some(Canary::KeptTooSoon) {
            let answer = Box::new(Input::Kept { batch });
            self.after(pause, Happening::Etcd(EtcdStep::Answers(host, answer)));
        }
        let client = &mut self.hosts[host].client;
        if !client.waiting.is_empty() && self.hosts[host].life == Life::Up {
            self.hosts[host].client.busy = true;
            self.ask_etcd(host, Asked::Keep);
        }
    }

    fn etcd_elects(&mut self, host: usize, node: NodeId, fence: Term) -> Check {
        let patience = self.setting.pace.heartbeat.as_nanos() as u64 * u64::from(CLAIM);
        let Some(term) = self.etcd.elect(node, fence, self.now, patience) else {
            return Ok(());
        };
        self.etcd.check()?;
        let (log, now) = (&mut self.log, self.now);
        log.note(
            now,
            host,
            Mark::Hand,
            [9, u64::from(term.count()), 0],
            || format!("etcd elects h{} in {term:?}", host + 1),
        );
        let kept = Box::new(self.etcd.kept.clone());
        let answer = Box::new(Input::Elected { term, kept });
        let pause = self.etcd.pause();
        self.after(pause, Happening::Etcd(EtcdStep::Answers(host, answer)));
        Ok(())
    }
}
