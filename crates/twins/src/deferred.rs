//! Deferred diffs. Of a page that was rewritten, other nodes request copies, and a collection often
//! drops the diff before it is requested. So its diff is not made when its twin is made anew: the
//! former twin is kept, and the diff is made of both when it is needed.

use crate::store::encode_any;
use crate::{At, DiffKey, Error, Keep, Label, Slots, Store};
use pagemesh_wire::{PageIndex, SegmentId};

/// Words of a page that are looked at.
const SAMPLES: usize = 16;

/// Of these, the words that have changed in a page that was rewritten: its diff would be no smaller
/// than the page.
pub const REWRITTEN: usize = 14;

const WORD: usize = 8;

/// A diff that is not made yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Deferred<Slot> {
    key: DiffKey,
    /// The page before the interval; always there but while a store is adopted.
    pub(crate) before: Option<Slot>,
    /// The page after the interval, if that is not its twin.
    pub(crate) after: Option<Slot>,
}

impl<Slot: Copy> Deferred<Slot> {
    fn new(key: DiffKey) -> Self {
        Self {
            key,
            before: None,
            after: None,
        }
    }

    /// Whether the diff is to be made of the present twin.
    pub(crate) fn is_of_twin(&self) -> bool {
        self.after.is_none()
    }

    /// The twin is no twin any more.
    pub(crate) fn keep_after<S: Slots<Slot = Slot>>(&mut self, slots: &mut S, twin: Slot) {
        self.after = Some(slots.relabel(twin, Label::After(self.key)));
    }
}

impl<S: Slots> Store<S> {
    /// From now on diffs are deferred where so many of 16 words in a page have changed, as by default
    /// [`REWRITTEN`]; zero: where anything has changed.
    pub fn defer_from(&mut self, words: usize) {
        self.rewritten = words;
    }

    /// Makes all deferred diffs.
    ///
    /// # Errors
    /// If the storage is full.
    pub fn settle_all(&mut self) -> Result<(), Error> {
        let all: Vec<At> = self.deferred.keys().copied().collect();
        all.into_iter().try_for_each(|at| self.settle(at))
    }

    pub(crate) fn is_deferred(&self, key: DiffKey) -> bool {
        let deferred = self.deferred.get(&key.at());
        deferred.is_some_and(|deferred| deferred.key == key)
    }

    /// Whether so much of a page has changed since its twin was made that its diff is deferred.
    pub(crate) fn is_rewritten(&self, at: At, now: &[u8]) -> bool {
        let Some(twin) = self.twin_of(at).filter(|twin| twin.len() == now.len()) else {
            return false;
        };
        let words = samples(twin).zip(samples(now));
        let changed = words.filter(|(before, after)| before != after).count();
        changed >= self.rewritten && (changed > 0 || twin != now)
    }

    /// The page `now` becomes the twin, and the diff is deferred. Returns an upper bound of the
    /// number of changed bytes.
    ///
    /// Should the daemon end before the twin is stored, its successor finds none, and takes for the
    /// twin what the page is then. That is a diff as good as the other one, since no node has either.
    pub(crate) fn defer(&mut self, key: DiffKey, now: &[u8]) -> Result<usize, Error> {
        let at = key.at();
        let twin = self.twins.remove(&at).ok_or(Error::NoTwin(at))?;
        let before = self.slots.relabel(twin, Label::Before(key));
        self.deferred_of(key).before = Some(before);
        let done = self.deferred_before(key, now, Keep::Twin);
        if done.is_err() {
            self.deferred.remove(&at);
            let twin = self.slots.relabel(before, Label::Twin(at));
            self.twins.insert(at, twin);
        }
        done
    }

    /// The diff was deferred before, perhaps by the previous daemon, which may have ended before it
    /// had stored the twin.
    pub(crate) fn deferred_before(
        &mut self,
        key: DiffKey,
        now: &[u8],
        keep: Keep,
    ) -> Result<usize, Error> {
        let at = key.at();
        let lacks_twin = self.deferred_of(key).is_of_twin() && !self.twins.contains_key(&at);
        if lacks_twin {
            self.keep_twin(at, now)?;
        }
        if keep == Keep::Nothing {
            self.drop_twin(at);
        }
        Ok(now.len())
    }

    /// Makes a diff, if it is deferred.
    pub(crate) fn settle_diff(&mut self, key: DiffKey) -> Result<(), Error> {
        if self.is_deferred(key) {
            self.settle(key.at())?;
        }
        Ok(())
    }

    /// The twin of a page is about to change: makes the diff that needs it as it is.
    pub(crate) fn settle_from_twin(&mut self, at: At) -> Result<(), Error> {
        if self.deferred.get(&at).is_some_and(Deferred::is_of_twin) {
            self.settle(at)?;
        }
        Ok(())
    }

    /// Makes the deferred diff of a page, if it has one.
    pub(crate) fn settle(&mut self, at: At) -> Result<(), Error> {
        let Some(deferred) = self.deferred.get(&at).copied() else {
            return Ok(());
        };
        let twin = self.twins.get(&at).copied();
        let after = deferred.after.or(twin).ok_or(Error::NoTwin(at))?;
        let before = deferred.before.ok_or(Error::NoTwin(at))?;
        let mut draft = std::mem::take(&mut self.draft.0);
        draft.clear();
        encode_any(self.twin_in(before), self.twin_in(after), &mut draft);
        let kept = self.keep_diff(deferred.key, &draft);
        self.draft.0 = draft;
        kept?;
        self.drop_deferred(at);
        Ok(())
    }

    /// The deferred diff of a page, made known if it is not.
    pub(crate) fn deferred_of(&mut self, key: DiffKey) -> &mut Deferred<S::Slot> {
        let deferred = self.deferred.entry(key.at());
        let deferred = deferred.or_insert_with(|| Deferred::new(key));
        debug_assert_eq!(deferred.key, key, "two diffs of a page are deferred");
        deferred
    }

    pub(crate) fn drop_deferred(&mut self, at: At) {
        if let Some(deferred) = self.deferred.remove(&at) {
            for slot in [deferred.before, deferred.after].into_iter().flatten() {
                self.free(slot);
            }
        }
    }

    /// Drops the deferred diffs of a segment that are `gone`.
    pub(crate) fn forget_deferred(&mut self, segment: SegmentId, gone: impl Fn(&DiffKey) -> bool) {
        let pages = (segment, PageIndex(0))..=(segment, PageIndex(u32::MAX));
        let deferred = self.deferred.range(pages);
        let gone: Vec<At> = deferred
            .filter(|(_, deferred)| gone(&deferred.key))
            .map(|(at, _)| *at)
            .collect();
        for at in gone {
            self.drop_deferred(at);
        }
    }

    /// The previous daemon may have ended after it had made a diff, and before it dropped what that
    /// was made of.
    pub(crate) fn drop_made(&mut self) {
        let made = |deferred: &Deferred<S::Slot>| self.made(deferred.key).is_ok();
        let made: Vec<At> = self
            .deferred
            .iter()
            .filter(|(_, deferred)| made(deferred))
            .map(|(at, _)| *at)
            .collect();
        for at in made {
            self.drop_deferred(at);
        }
    }
}

/// The words of a page that are looked at.
fn samples(page: &[u8]) -> impl Iterator<Item = &[u8; WORD]> {
    let step = (page.len() / SAMPLES).max(WORD);
    page.chunks(step).filter_map(<[u8]>::first_chunk)
}
