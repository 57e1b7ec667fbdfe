//! Carries out the effects of one input, or of a turn, in order. One system call serves several
//! effects where the kernel can: it fills a frame and maps the page at once, and places, protects
//! or evicts neighbouring pages together.

use super::DaemonExecutor;
use crate::crash_point;
use crate::pages::Fresh;
use crate::payload::Payload;
use crate::runs::{Run, What};
use crate::turn::{Fill, Payloads, Placing};
use pagemesh_core::{At, Effect, EffectExecutor, Effects, Next, Rights, Source};
use pagemesh_wire::MappingId;
use std::net::SocketAddr;

/// Effects that are being carried out, with those begun and not finished.
pub(super) struct EffectBatch<'a> {
    pub(super) executor: &'a mut DaemonExecutor,
    payloads: Payloads<'a>,
    /// Index of the present effect.
    index: usize,
    /// Kind of the present effect; `None` for an event.
    kind: Option<&'static str>,
    pub(super) filling: Option<Fill>,
    placing: Option<Placing>,
    /// Run of neighbouring pages that is being protected or evicted.
    run: Option<Run>,
    /// When a thread was woken last, if one was.
    woken: Option<u64>,
    /// A datagram was sent whose answer a thread may wait for.
    pub(super) sent: bool,
    /// An effect other than an event was carried out: time has passed.
    pub(super) acted: bool,
}

/// True if the next effect sends another datagram to `to`.
fn is_next(effects: &[Effect], to: SocketAddr) -> bool {
    let mut effects = effects.iter();
    let next = effects.find(|effect| !matches!(effect, Effect::Emit(_)));
    next.and_then(Effect::destination) == Some(to)
}

impl DaemonExecutor {
    /// Carries out all effects of an input of `began`. `payloads` are the pages and diffs behind
    /// the messages that caused them.
    pub(crate) fn carry_out(&mut self, began: u64, effects: &mut Effects, payloads: Payloads<'_>) {
        self.carry_out_from(0, began, effects, payloads);
    }

    /// Carries out all effects except the first `done`.
    pub(crate) fn carry_out_from(
        &mut self,
        done: usize,
        began: u64,
        effects: &mut Effects,
        payloads: Payloads<'_>,
    ) {
        let all = effects.as_slice().len().max(done);
        let mut batch = EffectBatch {
            executor: self,
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
        self.network.depart(&mut self.counters);
        self.network.repeats(false);
        if sent && woken.is_none() {
            self.acknowledge();
        }
        self.note_waiting();
        if self.events.settle(began, woken) {
            self.events.write(&mut self.counters, self.life.left);
        }
        self.recorder.progress(all);
    }
}

impl<'a> EffectBatch<'a> {
    /// Before an effect: collects datagrams to one node, and finds runs of neighbouring pages.
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
        let executor = &mut *self.executor;
        if let Some(address) = effect.destination() {
            executor.network.expect_more(is_next(behind, address));
        } else {
            // The other effects take time: send what waits first.
            executor.network.circulate(&mut executor.counters);
        }
        self.kind = Some(crash_point::kind(effect));
        if !self.run.as_ref().is_some_and(|run| run.covers(effect)) {
            return Next::Execute;
        }
        self.settle_pages();
        let run = self.run.take();
        self.run = self.go_through(run, effect);
        Next::Skip
    }

    /// After an effect: records it as done, so that a successor does not repeat it.
    pub(super) fn end(&mut self, index: usize) {
        let Some(kind) = self.kind else {
            return;
        };
        let done = self.done(index + 1);
        self.executor.recorder.burn(kind);
        self.executor.note_waiting();
        self.executor.recorder.progress(done);
        self.executor.recorder.burn(kind);
    }

    /// Number of effects done if `all` were begun.
    fn done(&self, all: usize) -> usize {
        let filling = self.filling.as_ref().map(|fill| fill.index);
        let placing = self.placing.as_ref().map(|run| run.index);
        [filling, placing]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(all)
    }

    /// Payload of the message that caused the present effect.
    pub(super) fn payload(&self) -> Payload<'a> {
        self.payloads.of(self.index)
    }

    /// Payload of the message that caused a fill.
    pub(super) fn payload_of(&self, fill: &Fill) -> Payload<'a> {
        self.payloads.of(fill.index)
    }

    /// Begins to fill a frame.
    pub(super) fn begin_fill(&mut self, at: At, fresh: Fresh) {
        let index = self.index;
        self.filling = Some(Fill { at, fresh, index });
    }

    /// Maps a page; joins it to the run that is being placed if its contents came in the same way.
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
        self.executor.priority.before_waking();
        self.map_one(mapping, at, rights, fresh, payload);
    }

    /// Finishes the fill and the run of pages that were begun.
    pub(super) fn settle_pages(&mut self) {
        self.place();
        self.finish_fill();
    }

    /// Places the run of pages; pages that the kernel refuses in the run are placed one by one.
    pub(super) fn place(&mut self) {
        let Some(run) = self.placing.take() else {
            return;
        };
        self.executor.priority.before_waking();
        let pages = self.payloads.slots(run.slot, run.count);
        let (mapping, rights) = (run.mapping, run.rights);
        let mut step = 0;
        while step < pages.len() {
            let (rest, executor) = (&pages[step..], &mut *self.executor);
            let count = executor.pages.place_run(
                mapping,
                run.at(step),
                rights,
                rest,
                &mut executor.counters,
            );
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
        self.executor.keep_segments();
    }

    /// Finishes the fill that was begun.
    pub(super) fn finish_fill(&mut self) {
        if let Some(Fill { at, fresh, index }) = self.filling.take() {
            self.executor
                .pages
                .fill(at, &fresh, self.payloads.of(index));
            self.executor.keep_segments();
        }
    }

    /// Carries out a whole run at its first page. Returns the rest of the run.
    fn go_through(&mut self, run: Option<Run>, effect: &Effect) -> Option<Run> {
        let run = run?;
        let executor = &mut *self.executor;
        if run.begins_at(effect) {
            match run.what {
                What::Protect => executor.pages.protect_run(&run, &mut executor.counters),
                What::Evict { keep } => {
                    executor.pages.evict_run(&run, keep, &mut executor.counters);
                    executor.write_down();
                    run.pages().for_each(|at| executor.taken_away(at));
                }
            }
        }
        (!run.ends_at(effect)).then_some(run)
    }

    /// Gives a mapping one page.
    fn map_one(
        &mut self,
        mapping: MappingId,
        at: At,
        rights: Rights,
        fresh: Option<Fresh>,
        payload: Payload<'_>,
    ) {
        let executor = &mut *self.executor;
        let counters = &mut executor.counters;
        match fresh {
            Some(fresh) => {
                executor
                    .pages
                    .place(mapping, at, rights, &fresh, payload, counters);
                executor.keep_segments();
            }
            None => {
                let found = executor.faults.open.kind((mapping, at.1));
                executor.pages.map(mapping, at, rights, found, counters);
            }
        }
        self.placed(mapping, at);
    }

    /// A mapping has got a page.
    fn placed(&mut self, mapping: MappingId, at: At) {
        let woken = self.executor.faults.placed(mapping, at);
        self.woken = woken.or(self.woken);
        if self.executor.faults.is_full() {
            self.executor.write_down();
        }
    }
}
