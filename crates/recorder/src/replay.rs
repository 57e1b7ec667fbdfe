//! Runs a node again from its records.

use crate::pen;
use crate::record::Record;
use crate::recover::Heard;
use crate::script::read;
use core::any::Any;
use pagemesh_core::{Effect, Effects, Input, Node, Time};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a journal cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A snapshot does not have the bytes that were written.
    #[error("the snapshot is damaged")]
    Snapshot,
    /// A record does not have the bytes that were written.
    #[error("the log is damaged at byte {0}")]
    Log(usize),
    /// Each record is whole, but together they make no sense.
    #[error("the log contradicts itself at byte {0}: {1}")]
    Order(usize, &'static str),
    /// The node broke an invariant, as it did when this was written.
    #[error("the node breaks at the input at {now}, {input}: {panic}")]
    Broken {
        /// When.
        now: Time,
        /// The input.
        input: String,
        /// Message of the panic.
        panic: String,
    },
}

/// One input, handled once more.
#[derive(Debug)]
pub struct Transition<'a> {
    /// When.
    pub now: Time,
    /// The input; bytes of datagrams that were not written down are zeros.
    pub input: &'a Input<'a>,
    /// Its effects.
    pub effects: &'a [Effect],
}

/// A node on its way through a log.
pub(crate) struct Replay {
    pub(crate) node: Node,
    /// Of the last input, and of those it came together with.
    pub(crate) effects: Effects,
    /// The last input, unless it was a datagram.
    pub(crate) last: Option<Input<'static>>,
    /// The last input, and before it those it came together with.
    pub(crate) turn: Vec<Heard>,
    /// Inputs that effects gave rise to, not handled yet.
    pub(crate) queue: VecDeque<Input<'static>>,
    pub(crate) notes: Vec<Vec<u8>>,
}

impl Replay {
    pub(crate) fn new(node: Node) -> Self {
        Self {
            node,
            effects: Effects::default(),
            last: None,
            turn: Vec::new(),
            queue: VecDeque::new(),
            notes: Vec::new(),
        }
    }

    /// Goes through a whole log, and shows each transition.
    pub(crate) fn run(
        &mut self,
        log: &[u8],
        each: &mut dyn FnMut(&Transition<'_>),
    ) -> Result<(), Damage> {
        let mut at = 0;
        while at < log.len() {
            let (record, next) = read(log, at).ok_or(Damage::Log(at))?;
            self.record(record, at, each)?;
            at = next;
        }
        Ok(())
    }

    fn record(
        &mut self,
        record: Record<'_>,
        at: usize,
        each: &mut dyn FnMut(&Transition<'_>),
    ) -> Result<(), Damage> {
        match record {
            Record::Input {
                now,
                input: Input::Datagram { source, key, bytes },
                rest,
                joined,
            } => {
                self.begin(at, joined)?;
                let rest = usize::try_from(rest).unwrap_or(usize::MAX);
                let whole = bytes
                    .len()
                    .checked_add(rest)
                    .filter(|whole| *whole <= 1 << 16)
                    .ok_or(Damage::Order(at, "no datagram is that long"))?;
                let mut bytes = bytes.to_vec();
                bytes.resize(whole, 0);
                let bytes = bytes.as_slice();
                self.handle(now, &Input::Datagram { source, key, bytes }, each)
            }
            Record::Input {
                now, input, joined, ..
            } => {
                self.begin(at, joined)?;
                self.handle(now, &input, each)
            }
            Record::Follow(input) => {
                let input = input
                    .detach()
                    .ok_or(Damage::Order(at, "a datagram in line"))?;
                self.queue.push_back(input);
                Ok(())
            }
            Record::Next { now } => {
                let input = self.queue.pop_front();
                let input = input.ok_or(Damage::Order(at, "nothing is in line"))?;
                self.begin(at, false)?;
                self.handle(now, &input, each)
            }
            Record::Note(note) => {
                self.notes.push(note.to_vec());
                Ok(())
            }
        }
    }

    /// An input comes: the effects of the one before were carried out, unless it joins that.
    fn begin(&mut self, at: usize, joined: bool) -> Result<(), Damage> {
        if joined {
            let any = self.turn.last().is_some();
            return any
                .then_some(())
                .ok_or(Damage::Order(at, "there is no input to come together with"));
        }
        self.turn.clear();
        self.effects.drain();
        Ok(())
    }

    fn handle(
        &mut self,
        now: Time,
        input: &Input<'_>,
        each: &mut dyn FnMut(&Transition<'_>),
    ) -> Result<(), Damage> {
        self.last = input.clone().detach();
        let before = self.effects.as_slice().len();
        let (node, effects) = (&mut self.node, &mut self.effects);
        // An input that broke the node breaks it again; the caller wants to know where.
        let handled = catch_unwind(AssertUnwindSafe(|| {
            node.handle(now, input.clone(), effects)
        }));
        let effects = self.effects.as_slice();
        self.turn.push(Heard {
            bytes: match input {
                Input::Datagram { bytes, .. } => bytes.len(),
                _ => 0,
            },
            effects: effects.len(),
        });
        each(&Transition {
            now,
            input,
            effects: &effects[before..],
        });
        handled.map_err(|panic| Damage::Broken {
            now,
            input: format!("{input:?}"),
            panic: message(&*panic),
        })
    }
}

/// A number that identifies the state of a node: equal nodes have the same one.
///
/// # Panics
/// Never: a node can always be written.
#[must_use]
pub fn digest(node: &Node) -> u64 {
    let written = pen::measure(node);
    written.bytes << 32 | u64::from(written.checksum)
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it did not say why").to_owned()
}
