//! Has the node of a writer that is gone again.

use crate::layout::{Field, Layout, Slot, State, WORD, load};
use crate::replay::{Damage, Replay};
use crate::schema::{self, SchemaError};
use crate::{FINGERPRINT, FORMAT};
use core::sync::atomic::AtomicU64;
use pagemesh_core::{Effects, Input, Node};
use std::collections::VecDeque;

/// A node as it was when its writer ended, and what is left to do.
#[derive(Debug)]
pub struct Recovered {
    /// The node; it has handled its last input.
    pub node: Node,
    /// The registry that the writer had added to the snapshot.
    pub registry: Vec<u8>,
    /// The writer's notes since, in order.
    pub notes: Vec<Vec<u8>>,
    /// The last input; none if it was a datagram, or if there was none.
    pub last: Option<Input<'static>>,
    /// The last input, and before it those it came together with.
    pub turn: Vec<Heard>,
    /// All effects of the last input, in order, behind those of the inputs that it
    /// came together with.
    pub effects: Effects,
    /// Number of them that were carried out; the next one perhaps in part.
    pub done: usize,
    /// Inputs that effects gave rise to, in the order in which they are to be
    /// handled, after the effects ([`Journal::next`](crate::Journal::next)).
    pub queue: VecDeque<Input<'static>>,
    pub(crate) position: Position,
}

/// One input of the last turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Bytes of the datagram that it was; zero if it was none.
    pub bytes: usize,
    /// How many effects there are up to the last of this input.
    pub effects: usize,
}

/// Where a journal goes on.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    pub(crate) slot: usize,
    pub(crate) serial: u64,
    pub(crate) start: usize,
    pub(crate) words: usize,
    pub(crate) done: u32,
    /// Another build wrote the snapshot, or it is a document: no log may follow it here.
    pub(crate) foreign: bool,
}

/// In place of the format of a snapshot: a document of its own [`schema`](crate::schema).
pub(crate) const HANDED_OVER: u64 = u64::from_le_bytes(*b"PMSCHEMA");

/// Why a node cannot be had again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// Not the memory of a journal, or nothing was written yet.
    #[error("there is no journal")]
    Nothing,
    /// The writer had to stop writing.
    #[error("the journal was given up: the state of the node did not fit into it")]
    Stopped,
    /// The state has another format: it was written by another version.
    #[error("the journal has format {0}, this version reads format {FORMAT}")]
    Format(u64),
    /// The log was written by other code, which might act differently.
    #[error("the journal was written by another build; end daemons in order to replace them")]
    Build,
    /// What was handed over cannot be read.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// It cannot be believed.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// The node whose journal is in this memory.
///
/// # Errors
/// If the journal does not give the very node of its writer.
pub fn recover(memory: &[AtomicU64]) -> Result<Recovered, RecoverError> {
    let layout = Layout::new(memory);
    if !layout.is_journal() {
        return Err(RecoverError::Nothing);
    }
    let active = layout.active().ok_or(RecoverError::Stopped)?;
    let slot = layout.slot(active);
    let state = slot.state();
    let (node, registry) = snapshot(slot, state)?;
    let log = log(slot, state).ok_or(Damage::Snapshot)?;
    let mut replay = Replay::new(node);
    replay.run(&log, &mut |_| {})?;
    let done = state.done as usize;
    if done > replay.effects.as_slice().len() {
        return Err(Damage::Order(log.len(), "more was done than was to do").into());
    }
    let start = slot.get(Field::Snapshot).div_ceil(WORD as u64);
    Ok(Recovered {
        node: replay.node,
        registry,
        notes: replay.notes,
        last: replay.last,
        turn: replay.turn,
        effects: replay.effects,
        done,
        queue: replay.queue,
        position: Position {
            slot: active,
            serial: slot.get(Field::Serial),
            start: usize::try_from(start).map_err(|_| Damage::Snapshot)?,
            words: state.words as usize,
            done: state.done,
            foreign: slot.get(Field::Format) == HANDED_OVER
                || slot.get(Field::Fingerprint) != FINGERPRINT,
        },
    })
}

fn snapshot(slot: Slot<'_>, state: State) -> Result<(Node, Vec<u8>), RecoverError> {
    let format = slot.get(Field::Format);
    if format == HANDED_OVER {
        if state.words > 0 {
            return Err(RecoverError::Build);
        }
        let bytes = load_snapshot(slot).ok_or(Damage::Snapshot)?;
        return Ok(schema::read(&bytes)?);
    }
    if format != FORMAT {
        return Err(RecoverError::Format(format));
    }
    if state.words > 0 && slot.get(Field::Fingerprint) != FINGERPRINT {
        return Err(RecoverError::Build);
    }
    let bytes = load_snapshot(slot).ok_or(Damage::Snapshot)?;
    Ok(schema::read_snapshot(&bytes).map_err(|_| Damage::Snapshot)?)
}

/// The bytes of a slot's snapshot, if they are what was written.
pub(crate) fn load_snapshot(slot: Slot<'_>) -> Option<Vec<u8>> {
    let bytes = load(slot.data(), slot.get(Field::Snapshot))?;
    (u64::from(crc32fast::hash(&bytes)) == slot.get(Field::Checksum)).then_some(bytes)
}

/// The bytes of a slot's log that count.
pub(crate) fn log(slot: Slot<'_>, state: State) -> Option<Vec<u8>> {
    let words = slot.log(slot.get(Field::Snapshot))?;
    load(words, u64::from(state.words) * WORD as u64)
}
