//! Changes of others that go into a frame while threads of this node use it.

use crate::changes::key;
use crate::counters::Counters;
use crate::pages::Pages;
use pagemesh_core::{At, Mappings};
use pagemesh_os::memfd::{PAGE, PageBytes};
use pagemesh_twins::{DiffKey, Error, Keep};
use pagemesh_wire::peer::{DiffName, Rule};

/// A change of so many pieces is written piece by piece, with a call for each. For more
/// stores to the page are stopped for a moment instead.
const PIECES: usize = 4;

/// Neighbouring bytes, and where in the page the first of them lies.
type Piece = (usize, Vec<u8>);

/// Diffs in their order, and the rules they were made under.
type How<'a> = (&'a [DiffKey], &'a [Rule]);

impl Pages {
    /// Applies diffs to a frame that is in use, and to its twin: what threads store to
    /// other bytes meanwhile stays.
    pub(crate) fn update(
        &mut self,
        at: At,
        (names, rules): (&[DiffName], &[Rule]),
        counters: &mut Counters,
    ) -> Result<(), Error> {
        let keys: Vec<DiffKey> = names.iter().map(|name| key(at.0, *name)).collect();
        let how = (&keys[..], rules);
        if let Some(mut waiting) = self.waiting.leave(at) {
            self.apply(how, &mut waiting)?;
            self.put(at, &waiting);
        } else if self.changes.twin_of(at).is_none() {
            // No process can store to it.
            self.rewrite(at, how)?;
        } else if let Some(pieces) = self.few_pieces(how)? {
            let segment = self.segments.get(at.0).ok_or(Error::NoContents(at))?;
            for (start, bytes) in pieces {
                let written = segment.write_some(at.1, start, &bytes);
                written.map_err(|_| Error::NoContents(at))?;
            }
        } else {
            self.protect(Mappings::All, at.into(), counters);
            let rewritten = self.rewrite(at, how);
            self.let_store(at);
            rewritten?;
        }
        let mut keys = keys.into_iter();
        keys.try_for_each(|key| pagemesh_reduce::update_twin(&mut self.changes, key, rules))
    }

    /// Writes down what was done since the twin to numbers that threads go on adding to, and
    /// makes the twin anew. They stop for a moment: half a number must not travel.
    pub(crate) fn capture_stopped(
        &mut self,
        key: DiffKey,
        rules: &[Rule],
        counters: &mut Counters,
    ) -> Result<usize, Error> {
        self.protect(Mappings::All, key.at().into(), counters);
        let made = self.capture(key, (Keep::Twin, rules));
        self.let_store(key.at());
        made
    }

    fn apply(&mut self, (keys, rules): How<'_>, page: &mut PageBytes) -> Result<(), Error> {
        pagemesh_reduce::merge(&mut self.changes, keys.iter().copied(), rules, page)
    }

    /// One call reads, one writes all of it.
    fn rewrite(&mut self, at: At, how: How<'_>) -> Result<(), Error> {
        let mut page = [0; PAGE];
        self.look(at, &mut page)?;
        self.apply(how, &mut page)?;
        let segment = self.segments.get(at.0).ok_or(Error::NoContents(at))?;
        let written = segment.write_some(at.1, 0, &page);
        written.map_err(|_| Error::NoContents(at))
    }

    /// A page with a twin may be stored to wherever it is mapped for writing. Threads that
    /// stopped at it meanwhile go on.
    fn let_store(&self, at: At) {
        for (mapping, address) in self.mappings_of(at).filter(|(mapping, _)| mapping.write) {
            mapping.uffd.unprotect(address, PAGE as u64);
        }
    }

    /// The changed pieces, unless they are too many, or numbers: an addition under way would get
    /// lost.
    fn few_pieces(&mut self, (keys, rules): How<'_>) -> Result<Option<Vec<Piece>>, Error> {
        if !rules.is_empty() {
            return Ok(None);
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for key in keys {
            for change in self.changes.checked(*key)?.changes() {
                for (offset, byte) in bytes_of(&change) {
                    let last = pieces.last_mut();
                    let last = last.filter(|(start, bytes)| start + bytes.len() == offset);
                    if let Some((_, bytes)) = last {
                        bytes.push(byte);
                    } else if pieces.len() < PIECES {
                        pieces.push((offset, vec![byte]));
                    } else {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(pieces))
    }
}

/// The bytes of a changed word, each with its offset in the page.
fn bytes_of<'a>(change: &pagemesh_diff::Change<'a>) -> impl Iterator<Item = (usize, u8)> + 'a {
    let (offset, mask) = (change.offset, change.mask);
    let places = (0..8).filter(move |bit| mask & (1 << bit) != 0);
    places
        .map(move |bit| offset + bit)
        .zip(change.bytes.iter().copied())
}
