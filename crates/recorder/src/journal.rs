//! Writes the journal of a node.

use crate::layout::{Field, Layout, State, WORD, store};
use crate::pen::{self, Written};
use crate::record::Record;
use crate::recover::{HANDED_OVER, Recovered};
use crate::{FINGERPRINT, FORMAT, schema, script};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use pagemesh_core::{Input, Node, Time};

/// The node does not fit into the memory of its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state of the node does not fit into the memory of its journal")]
pub struct Full;

/// Room kept for what is written after a log was seen to be long enough: the
/// largest datagram that a socket can deliver, and notes.
const SLACK: usize = (256 << 10) / WORD;

/// The kernel gives memory in pieces of this size.
const HOST_PAGE: usize = 4096;

/// The journal of a node, being written.
pub struct Journal<M> {
    memory: M,
    slot: usize,
    serial: u64,
    /// Where the log starts, in words of the slot's data.
    start: usize,
    /// Words of the log written so far; what is not published does not count.
    words: usize,
    /// Effects of the last input carried out.
    done: u32,
    /// Words after which a new snapshot is due.
    enough: usize,
    /// As long as this, in words, a log may always become.
    least: usize,
    scratch: Vec<u8>,
    stopped: bool,
}

impl<M> fmt::Debug for Journal<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("serial", &self.serial)
            .field("words", &self.words)
            .field("done", &self.done)
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}

impl<M: AsRef<[AtomicU64]>> Journal<M> {
    /// A journal that starts with this node. Its log is some `log` bytes long,
    /// or twice as long as the snapshot, before the next snapshot is due.
    ///
    /// # Errors
    /// If the memory is too small.
    pub fn begin(memory: M, log: usize, node: &Node, registry: &[u8]) -> Result<Self, Full> {
        Layout::new(memory.as_ref()).format();
        let mut journal = Self {
            memory,
            slot: 1,
            serial: 0,
            start: 0,
            words: 0,
            done: 0,
            enough: 0,
            least: log / WORD,
            scratch: Vec::new(),
            stopped: false,
        };
        journal.warm();
        journal.snapshot(node, registry)?;
        Ok(journal)
    }

    /// Touches what the first logs will be written to, lest threads that wait for
    /// a page wait for this memory, too.
    fn warm(&self) {
        let layout = Layout::new(self.memory.as_ref());
        for slot in [0, 1] {
            let words = layout.slot(slot).data().iter().take(self.least + SLACK);
            for word in words.step_by(HOST_PAGE / WORD) {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Goes on with a journal where a writer that is gone had stopped. If another build wrote
    /// what was recovered, the log begins anew: this build could not replay a log behind it.
    ///
    /// # Errors
    /// If the memory is too small for that.
    pub fn resume(memory: M, log: usize, recovered: &Recovered) -> Result<Self, Full> {
        let at = &recovered.position;
        let mut journal = Self {
            memory,
            slot: at.slot,
            serial: at.serial,
            start: at.start,
            words: at.words,
            done: at.done,
            enough: 0,
            least: log / WORD,
            scratch: Vec::new(),
            stopped: false,
        };
        journal.enough = journal.long_enough();
        if at.foreign {
            journal.snapshot(&recovered.node, &recovered.registry)?;
        }
        Ok(journal)
    }

    /// The node is about to handle `input`. Publishes it.
    pub fn input(&mut self, now: Time, input: Input<'_>) {
        self.append(&Record::input(now, input));
        self.progress(0);
    }

    /// The node is about to handle `input`, too, which came together with the one
    /// before: effects of both are carried out after it was handled, and from then on
    /// progress counts them all. Publishes it.
    pub fn join(&mut self, now: Time, input: Input<'_>) {
        debug_assert_eq!(self.done, 0, "nothing was done of the input before");
        self.append(&Record::joined(now, input));
        self.progress(0);
    }

    /// The node is about to handle the input that is first in line
    /// ([`Journal::follow`]). Publishes it.
    pub fn next(&mut self, now: Time) {
        self.append(&Record::Next { now });
        self.progress(0);
    }

    /// The effect being carried out gave rise to an input, which waits in line
    /// until the effects are done.
    pub fn follow(&mut self, input: Input<'_>) {
        self.append(&Record::Follow(input));
    }

    /// Appends a note.
    pub fn note(&mut self, note: &[u8]) {
        self.append(&Record::Note(note));
    }

    /// Effects of the last input that were carried out. Publishes them, and everything written
    /// before.
    #[inline]
    pub fn progress(&mut self, done: u32) {
        self.done = done;
        self.publish();
    }

    /// From now on everything written counts.
    #[inline]
    pub fn publish(&mut self) {
        let words = u32::try_from(self.words).expect("a slot has fewer words");
        let state = State {
            words,
            done: self.done,
        };
        Layout::new(self.memory.as_ref()).publish(self.slot, state);
    }

    /// There is time: looks at where the next records will be written, so that the
    /// memory is at hand by then.
    #[inline]
    pub fn look_ahead(&self) {
        const LINE: usize = 64 / WORD;
        const LINES: usize = 4;
        let data = Layout::new(self.memory.as_ref()).slot(self.slot).data();
        let ahead = data.get(self.start + self.words..).unwrap_or_default();
        for word in ahead.iter().step_by(LINE).take(LINES) {
            core::hint::black_box(word.load(Ordering::Relaxed));
        }
    }

    /// Whether a new snapshot is due.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.words >= self.enough && !self.stopped
    }

    /// Whether the journal had to give up: its memory was too small.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Starts again from the node as it is now, with an empty log. The effects
    /// of its last input have been carried out, and no input waits in line. The
    /// former snapshot and its log stay as history.
    ///
    /// # Errors
    /// If it does not fit; the journal has stopped then.
    pub fn snapshot(&mut self, node: &Node, registry: &[u8]) -> Result<(), Full> {
        self.renew(FORMAT, |words| pen::snapshot(node, registry, words))
            .inspect_err(|_| self.stop())
    }

    /// As [`Journal::snapshot`], for a daemon of any version that reads this [`schema`], which is the
    /// present one or, for a program that is put back, an older one. Nothing can be appended: the daemon that reads it starts a log of its own.
    ///
    /// # Errors
    /// If it does not fit, or that schema is not written any more; the snapshot and its log count as
    /// before then.
    pub fn hand_over(&mut self, schema: u64, node: &Node, registry: &[u8]) -> Result<(), Full> {
        let document = schema::write_as(schema, node, registry).ok_or(Full)?;
        self.renew(HANDED_OVER, |words| pen::document(&document, words))
    }

    /// Writes the other slot and makes it the one that counts.
    fn renew(
        &mut self,
        format: u64,
        write: impl FnOnce(&[AtomicU64]) -> Option<Written>,
    ) -> Result<(), Full> {
        if self.stopped {
            return Err(Full);
        }
        let layout = Layout::new(self.memory.as_ref());
        let other = 1 - self.slot;
        let slot = layout.slot(other);
        slot.set(Field::Serial, 0);
        slot.set(Field::State, State::default().pack());
        let written = write(slot.data()).ok_or(Full)?;
        slot.set(Field::Format, format);
        slot.set(Field::Fingerprint, FINGERPRINT);
        slot.set(Field::Snapshot, written.bytes);
        slot.set(Field::Checksum, written.checksum.into());
        self.serial += 1;
        slot.set(Field::Serial, self.serial);
        layout.activate(other);
        self.slot = other;
        self.start = usize::try_from(written.bytes)
            .expect("it was written")
            .div_ceil(WORD);
        self.words = 0;
        self.done = 0;
        self.enough = self.long_enough();
        if self.enough == 0 { Err(Full) } else { Ok(()) }
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    fn long_enough(&self) -> usize {
        let data = Layout::new(self.memory.as_ref()).slot(self.slot).data();
        let room = data.len().saturating_sub(self.start + SLACK);
        room.min(self.least.max(2 * self.start))
    }

    fn append(&mut self, record: &Record<'_>) {
        if self.stopped {
            return;
        }
        let bytes = script::write(record, core::mem::take(&mut self.scratch));
        let slot = Layout::new(self.memory.as_ref()).slot(self.slot);
        let room = slot.data().get(self.start + self.words..);
        let words = bytes.len() / WORD;
        match room.filter(|room| room.len() >= words) {
            Some(room) => {
                store(room, &bytes);
                self.words += words;
            }
            None => self.stop(),
        }
        self.scratch = bytes;
    }

    fn stop(&mut self) {
        self.stopped = true;
        Layout::new(self.memory.as_ref()).stop();
    }
}
