//! Journals of nodes, and daemons that are killed and replaced from them.
//!
//! A kill falls before, between or after the effects of an input. While nobody
//! is there the rest of the world goes on: threads run, datagrams and faults
//! wait in the kernel. The newcomer has the node from its journal, carries out
//! what is left of the effects, and knows that of those it finds undone some
//! may be done: what is there already must not be done over.

use crate::canary::Canary;
use crate::check::{Check, ensure};
use crate::dice::Dice;
use crate::executor::Executor;
use crate::hearing::Hearing;
use crate::log::Mark;
use crate::world::{Life, Pending, World};
use pagemesh_core::{Effect, EffectExecutor as _, Effects, Input, Node, Time};
use pagemesh_recorder::{Journal, recover, schema};
use pagemesh_wire::lockword::LockWord;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Words of a journal's memory, and bytes after which a log is long: short
/// enough that most runs need several.
const WORDS: usize = 160 << 10;
const LOG: usize = 16 << 10;

/// An input in so many is the last one of its daemon.
const LIVES: u64 = 60;

/// Nanoseconds until the next daemon is there, at most.
const ABSENCE: u64 = 2_000_000;

/// A journal is read back after one input in so many.
const LOOKS: u64 = 400;

/// The journal of a host's node.
#[derive(Debug)]
pub(crate) struct Recording {
    journal: Journal<Arc<[AtomicU64]>>,
    dice: Dice,
    /// Of the present effects, the first that is not done for good.
    filling: Option<usize>,
}

/// What the next daemon is to do first.
#[derive(Debug)]
pub(crate) struct Remains {
    /// What was heard whose effects these are.
    pub(crate) hearing: Hearing,
    effects: Effects,
    /// So many effects count as done.
    done: usize,
    /// So many are done.
    truly: usize,
}

/// Which of the effects of what was heard a daemon carries out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effort {
    /// All of them.
    All,
    /// It is killed before this one, or after it and before that is noted.
    Until {
        /// Which.
        last: usize,
        /// That one is carried out.
        half: bool,
    },
    /// Those that the daemon before left, which truly did so many.
    Again {
        /// So many.
        truly: usize,
    },
}

/// What an effect is to the journal. Filled frames, and mappings that got what was filled, count
/// only with what comes of them, as in the daemon, which may do it all at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Standing {
    /// It counts with what follows.
    Begins,
    /// It counts with what it follows.
    GoesOn,
    /// All before it count.
    #[default]
    Ends,
}

impl Standing {
    pub(crate) fn of(effect: &Effect) -> Self {
        match effect {
            Effect::Fill { .. } => Self::Begins,
            Effect::Emit(_)
            | Effect::Send { page: None, .. }
            | Effect::Map { .. }
            | Effect::DropStash { .. } => Self::GoesOn,
            _ => Self::Ends,
        }
    }
}

impl Recording {
    /// A journal that begins with this node.
    pub(crate) fn begin(seed: u64, host: usize, node: &Node) -> Self {
        let memory = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        Self {
            journal: Journal::begin(memory, LOG, node, &[]).expect("a new node is small"),
            dice: Dice::stream(seed, &format!("journal {host}")),
            filling: None,
        }
    }

    /// The journal of the same node, as another program begins it.
    pub(crate) fn begin_anew(&mut self, node: &Node) {
        let memory = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        self.journal = Journal::begin(memory, LOG, node, &[]).expect("it fitted before");
        self.filling = None;
    }

    /// The node is about to handle this, which stood in line if it is an answer, or
    /// joins what it heard before.
    fn input(&mut self, now: Time, input: Input<'_>, answer: bool, joined: bool) {
        self.filling = None;
        if answer {
            self.journal.next(now);
        } else if joined {
            self.journal.join(now, input);
        } else {
            self.journal.input(now, input);
        }
    }

    /// An effect was carried out, with these answers.
    pub(crate) fn done(&mut self, index: usize, standing: Standing, answers: &[Input<'static>]) {
        for answer in answers {
            self.journal.follow(answer.clone());
        }
        self.filling = match standing {
            Standing::Begins => self.filling.or(Some(index)),
            Standing::GoesOn => self.filling,
            Standing::Ends => None,
        };
        let done = self.filling.unwrap_or(index + 1);
        self.journal.progress(u32::try_from(done).expect("few"));
    }

    /// Nothing is left to do: now and then the journal is read back.
    fn settle(&mut self, node: &Node) -> Result<(), String> {
        if self.dice.below(LOOKS) == 0 {
            self.check(node)?;
        }
        if self.journal.is_long() {
            let taken = self.journal.snapshot(node, &[]);
            taken.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Whether the journal gives the very node.
    pub(crate) fn check(&self, node: &Node) -> Result<(), String> {
        let found = recover(self.journal.memory()).map_err(|error| error.to_string())?;
        (found.node == *node)
            .then_some(())
            .ok_or_else(|| "it is another node".to_owned())
    }
}

impl World {
    /// Carries out the effects of what was heard, unless the daemon is killed on the way.
    pub(crate) fn carry_out(
        &mut self,
        at: usize,
        effects: &mut Effects,
        hearing: &Hearing,
    ) -> Check {
        let all = effects.as_slice().len();
        let effort = self.effort(at, all);
        self.checkers.granted(effects.as_slice());
        Executor::new(self, at, hearing, effort).execute_all(effects)?;
        self.reaction.heard = None;
        if let Effort::Until { last, half } = effort {
            return self.replace(at, hearing, all.min(last + usize::from(half)));
        }
        self.all_done(at, all);
        Ok(())
    }

    /// Nothing is left to do of what was heard.
    fn all_done(&mut self, at: usize, effects: usize) {
        if let Some(recording) = &mut self.hosts[at].recording {
            let all = u32::try_from(effects).expect("few");
            recording.journal.progress(all);
        }
    }

    /// How far the daemon of a host comes with its effects.
    fn effort(&mut self, at: usize, effects: usize) -> Effort {
        if !self.setting.replace {
            return Effort::All;
        }
        let Some(recording) = &mut self.hosts[at].recording else {
            return Effort::All;
        };
        if recording.dice.below(LIVES) != 0 {
            return Effort::All;
        }
        let last = recording.dice.below(effects as u64 + 1) as usize;
        let half = last < effects && recording.dice.chance(500);
        Effort::Until { last, half }
    }

    /// The daemon is killed. The next one has its node from the journal.
    fn replace(&mut self, at: usize, hearing: &Hearing, truly: usize) -> Check {
        self.stats.replaced += 1;
        self.hosts[at].ways.forget();
        self.forget_receipts(at);
        let host = &mut self.hosts[at];
        let recording = host.recording.as_mut().expect("only such hosts are killed");
        let found = match recover(recording.journal.memory()) {
            Ok(found) => found,
            Err(error) => {
                ensure!(false, Replay, "h{}: {error}", at + 1);
                unreachable!()
            }
        };
        ensure!(
            found.node == host.node,
            Replay,
            "h{} is replaced by another node",
            at + 1
        );
        let handed_over = schema::read(&schema::write(&host.node, &[]));
        ensure!(
            handed_over.is_ok_and(|(node, _)| node == host.node),
            Replay,
            "h{} is another node to the next version",
            at + 1
        );
        let (done, all) = (found.done, found.effects.as_slice().len());
        self.log.note(
            self.now,
            at,
            Mark::Hand,
            [7, done as u64, all as u64],
            || format!("is killed, {done} of {all} effects are done, {truly} truly"),
        );
        // What stood in line was in the memory of the daemon; the rest is the kernel's.
        host.inbox.drain(..host.answers);
        host.answers = found.queue.len();
        for answer in found.queue.iter().rev() {
            host.inbox.push_front(Pending::Local(answer.clone()));
        }
        self.reaction.answers.clear();
        let memory = Arc::clone(recording.journal.memory());
        recording.journal = Journal::resume(memory, LOG, &found).expect("it fits");
        let absence = recording.dice.below(ABSENCE);
        host.remains = Some(Remains {
            hearing: hearing.clone(),
            effects: found.effects,
            done,
            truly,
        });
        host.node = found.node;
        self.pause(at, absence);
        Ok(())
    }

    /// The next daemon does what is left of the effects.
    pub(crate) fn redo(&mut self, at: usize, remains: &mut Remains) -> Check {
        let all = remains.effects.as_slice().len();
        let truly = remains.truly;
        Executor::new(self, at, &remains.hearing, Effort::Again { truly })
            .execute_from(remains.done, &mut remains.effects)?;
        self.all_done(at, all);
        Ok(())
    }

    /// Whether the next daemon sees that this was done, or whoever hears of it
    /// twice does not mind. (Counters would count twice; replies and their
    /// repetitions are told apart by their numbers.)
    pub(crate) fn is_done(&mut self, at: usize, effect: &Effect) -> bool {
        let kernel = &self.hosts[at].kernel;
        match effect {
            Effect::Emit(_) | Effect::Reply { .. } => true,
            _ if self.setting.canary == Some(Canary::RedoBlind) => false,
            Effect::Fill { pages, .. }
            // Their contents are in the stash already.
            | Effect::Evict { pages, keep: true } => {
                let filled = matches!(effect, Effect::Fill { .. });
                pages.iter().all(|at| kernel.has_frame(at.into()) == filled)
            }
            Effect::LendLock { key, .. } => kernel.lock_word(*key) != LockWord::Absent,
            Effect::ReclaimLock { key } => {
                let back = kernel.lock_word(*key) == LockWord::Absent;
                let key = *key;
                if back && !self.return_under_way(at, key) {
                    self.reaction.answers.push(Input::LockReturned { key, recovered: false });
                }
                back
            }
            _ => false,
        }
    }

    /// Nothing is left to do of an input.
    pub(crate) fn settle_journal(&mut self, at: usize) -> Check {
        let host = &mut self.hosts[at];
        let (node, idle) = (&host.node, host.answers == 0 && host.remains.is_none());
        if let Some(recording) = host.recording.as_mut().filter(|_| idle)
            && let Err(why) = recording.settle(node)
        {
            ensure!(false, Replay, "h{}: {why}", at + 1);
        }
        Ok(())
    }

    /// Asserts that all nodes can be had again.
    pub(crate) fn check_journals(&self) -> Check {
        for (at, host) in self.hosts.iter().enumerate() {
            if let (Some(recording), Life::Up) = (&host.recording, host.life)
                && let Err(why) = recording.check(&host.node)
            {
                ensure!(false, Replay, "h{} in the end: {why}", at + 1);
            }
        }
        Ok(())
    }

    /// Writes down what a node is about to handle.
    pub(crate) fn record(
        &mut self,
        at: usize,
        now: Time,
        input: &Input<'_>,
        answer: bool,
        joined: bool,
    ) {
        if let Some(recording) = &mut self.hosts[at].recording {
            recording.input(now, input.clone(), answer, joined);
        }
    }
}
