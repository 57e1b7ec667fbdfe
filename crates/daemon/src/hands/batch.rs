//! The effects of one input, or of a turn, being carried out in order. Where the
//! kernel can do in one call what several effects want, it is done in one call: a
//! page gets into its frame and into a mapping at once, and neighbouring pages are
//! placed, protected and taken away together.

use super::Hands;
use crate::fuse;
use crate::pages::Fresh;
use crate::payload::Payload;
use crate::runs::{Run, What};
use crate::turn::{Fill, Payloads, Placing};
use pagemesh_core::{At, Effect, EffectExecutor, Effects, Next, Rights, Source};
use pagemesh_wire::MappingId;
use std::net::SocketAddr;

/// Effects being carried out, and what of them was begun and is not done yet.
pub(super) struct EffectBatch<'a> {
    pub(super) hands: &'a mut Hands,
    payloads: Payloads<'a>,
    /// Which effect is being carried out.
    index: usize,
    /// What it is, unless it is an event.
    kind: Option<&'static str>,
    pub(super) filling: Option<Fill>,
    placing: Option<Placing>,
    /// Neighbours that are being protected or taken away.
    run: Option<Run>,
    /// When a thread was woken last, if one was.
    woken: Option<u64>,
    /// A datagram left that a node waits for: its answer takes a while.
    pub(super) sent: bool,
    /// Something was done that takes time.
    pub(super) acted: bool,
}

/// Whether the next effect sends another datagram there.
fn is_next(effects: &[Effect], to: SocketAddr) -> bool {
    let mut effects = effects.iter();
    let next = effects.find(|effect| !matches!(effect, Effect::Emit(_)));
    next.and_then(Effect::destination) == Some(to)
}

impl Hands {
    /// Carries out all effects of what happened at `began`. `payloads` are what came
    /// behind the messages that caused them.
    pub(crate) fn carry_out(&mut self, began: u64, effects: &mut Effects, payloads: Payloads<'_>) {
        self.carry_out_from(0, began, effects, payloads);
    }

    /// Carries out all effects but the first so many, which are done.
    pub(crate) fn carry_out_from(
        &mut self,
        done: usize,
        began: u64,
        effects: &mut Effects,
        payloads: Payloads<'_>,
    ) {
        let all = effects.as_slice().len().max(done);
        let mut batch = EffectBatch {
            hands: self,
            payloads,
            index: done,
            kind: None,
            filling: None,
            placing: None,
            run: None,
            woken: None,
            sent: false,
            acted: false,
        };
        let Ok(()) = batch.execute_from(done, effects);
        batch.settle_pages();
        let (woken, sent) = (batch.woken, batch.sent);
        self.network.depart(&mut self.tally);
        self.network.repeats(false);
        if sent && woken.is_none() {
            self.acknowledge();
        }
        self.note_waiting();
        if self.events.settle(began, woken) {
            self.events.write(&mut self.tally, self.life.left);
        }
        self.recorder.progress(all);
    }
}

impl<'a> EffectBatch<'a> {
    /// Before an effect: datagrams to one node leave together, and so do neighbouring pages.
    pub(super) fn begin(&mut self, index: usize, rest: &[Effect]) -> Next {
        self.index = index;
        self.kind = None;
        if self.run.is_none() {
            self.run = Run::at(rest);
        }
        let [effect, behind @ ..] = rest else {
            return Next::Stop;
        };
        if matches!(effect, Effect::Emit(_)) {
            return Next::Execute;
        }
        self.acted = true;
        let hands = &mut *self.hands;
        if let Some(address) = effect.destination() {
            hands.network.expect_more(is_next(behind, address));
        } else {
            // The rest takes time.
            hands.network.circulate(&mut hands.tally);
        }
        self.kind = Some(fuse::kind(effect));
        if !self.run.as_ref().is_some_and(|run| run.covers(effect)) {
            return Next::Execute;
        }
        self.settle_pages();
        let run = self.run.take();
        self.run = self.go_through(run, effect);
        Next::Skip
    }

    /// After an effect: the next daemon need not do it again.
    pub(super) fn end(&mut self, index: usize) {
        let Some(kind) = self.kind else {
            return;
        };
        let done = self.done(index + 1);
        self.hands.recorder.burn(kind);
        self.hands.note_waiting();
        self.hands.recorder.progress(done);
        self.hands.recorder.burn(kind);
    }

    /// How many effects are done, if `all` were begun.
    fn done(&self, all: usize) -> usize {
        let filling = self.filling.as_ref().map(|fill| fill.index);
        let placing = self.placing.as_ref().map(|run| run.index);
        [filling, placing]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(all)
    }

    /// What came behind the message that caused the present effect.
    pub(super) fn payload(&self) -> Payload<'a> {
        self.payloads.of(self.index)
    }

    /// What came behind the message that caused a page to be filled.
    pub(super) fn payload_of(&self, fill: &Fill) -> Payload<'a> {
        self.payloads.of(fill.index)
    }

    /// Contents are to get into a frame.
    pub(super) fn begin_fill(&mut self, at: At, fresh: Fresh) {
        let index = self.index;
        self.filling = Some(Fill { at, fresh, index });
    }

    /// A mapping gets a page, together with its neighbours if it just came as they did.
    pub(super) fn show(&mut self, mapping: MappingId, at: At, rights: Rights) {
        let fill = self.filling.take_if(|fill| fill.at == at);
        self.finish_fill();
        let fill = match Placing::of(mapping, rights, fill, self.payloads) {
            Ok(next) => {
                if !self.placing.as_mut().is_some_and(|run| run.takes(&next)) {
                    self.place();
                    self.placing = Some(next);
                }
                return;
            }
            Err(fill) => fill,
        };
        self.place();
        let payload = match &fill {
            Some(fill) => self.payloads.of(fill.index),
            None => Payload::NONE,
        };
        let fresh = fill.map(|fill| fill.fresh);
        self.hands.rank.before_waking();
        self.map_one(mapping, at, rights, fresh, payload);
    }

    /// Finishes what was begun with pages.
    pub(super) fn settle_pages(&mut self) {
        self.place();
        self.finish_fill();
    }

    /// Places a run of pages; those of it that something is in the way of by themselves.
    pub(super) fn place(&mut self) {
        let Some(run) = self.placing.take() else {
            return;
        };
        self.hands.rank.before_waking();
        let pages = self.payloads.slots(run.slot, run.count);
        let (mapping, rights) = (run.mapping, run.rights);
        let mut step = 0;
        while step < pages.len() {
            let (rest, hands) = (&pages[step..], &mut *self.hands);
            let count =
                hands
                    .pages
                    .place_run(mapping, run.at(step), rights, rest, &mut hands.tally);
            for _ in 0..count {
                self.placed(mapping, run.at(step));
                step += 1;
            }
            if let Some(page) = pages.get(step) {
                let fresh = Some(Fresh::From(Source::Payload));
                let payload = Payload::of_page(page);
                self.map_one(mapping, run.at(step), rights, fresh, payload);
                step += 1;
            }
        }
        self.hands.keep_segments();
    }

    /// Contents get into their frame now.
    pub(super) fn finish_fill(&mut self) {
        if let Some(Fill { at, fresh, index }) = self.filling.take() {
            self.hands.pages.fill(at, &fresh, self.payloads.of(index));
            self.hands.keep_segments();
        }
    }

    /// The effect is done with a run: all of it at its first page. Returns what is
    /// left of it.
    fn go_through(&mut self, run: Option<Run>, effect: &Effect) -> Option<Run> {
        let run = run?;
        let hands = &mut *self.hands;
        if run.begins_at(effect) {
            match run.what {
                What::Protect => hands.pages.protect_run(&run, &mut hands.tally),
                What::Evict { keep } => {
                    hands.pages.evict_run(&run, keep, &mut hands.tally);
                    hands.write_down();
                    run.pages().for_each(|at| hands.taken_away(at));
                }
            }
        }
        (!run.ends_at(effect)).then_some(run)
    }

    /// Lets a mapping have a page.
    fn map_one(
        &mut self,
        mapping: MappingId,
        at: At,
        rights: Rights,
        fresh: Option<Fresh>,
        payload: Payload<'_>,
    ) {
        let hands = &mut *self.hands;
        let tally = &mut hands.tally;
        match fresh {
            Some(fresh) => {
                hands
                    .pages
                    .place(mapping, at, rights, &fresh, payload, tally);
                hands.keep_segments();
            }
            None => {
                let found = hands.faults.open.kind((mapping, at.1));
                hands.pages.map(mapping, at, rights, found, tally);
            }
        }
        self.placed(mapping, at);
    }

    /// A mapping has a page now.
    fn placed(&mut self, mapping: MappingId, at: At) {
        let woken = self.hands.faults.placed(mapping, at);
        self.woken = woken.or(self.woken);
        if self.hands.faults.is_full() {
            self.hands.write_down();
        }
    }
}
