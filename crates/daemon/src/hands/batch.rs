//! The effects of one input, or of a turn, being carried out in order. Where the
//! kernel can do in one call what several effects want, it is done in one call: a
//! page gets into its frame and into a mapping at once, and neighbouring pages are
//! placed, protected and taken away together.

use super::{Hands, LATER, LOOKS};
use crate::fuse;
use crate::pages::{At, Fresh};
use crate::payload::Payload;
use crate::runs::{Run, What};
use crate::turn::{Payloads, Placing};
use pagemesh_core::{DiffWork, Effect, Effects, Event, Rights, Source};
use pagemesh_os::clock;
use pagemesh_wire::MappingId;
use std::net::SocketAddr;

/// Contents on their way into a frame. If a mapping wants them next, both are
/// done by one call of the kernel, straight from the receive buffer.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) at: At,
    pub(crate) fresh: Fresh,
    /// Which effect asked for it.
    pub(crate) index: usize,
}

/// What was begun and is not done yet.
struct Course<'a> {
    payloads: Payloads<'a>,
    filling: Option<Fill>,
    placing: Option<Placing>,
    /// Neighbours that are being protected or taken away.
    run: Option<Run>,
    /// When a thread was woken last, if one was.
    woken: Option<u64>,
    /// Something left that others wait for: their answer takes a while.
    sent: bool,
}

impl Course<'_> {
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
        let mut course = Course {
            payloads,
            filling: None,
            placing: None,
            run: None,
            woken: None,
            sent: false,
        };
        let mut acted = false;
        let mut all = done;
        let mut effects = effects.drain();
        if done > 0 {
            effects.nth(done - 1);
        }
        for index in done.. {
            if course.run.is_none() {
                course.run = Run::at(effects.as_slice());
            }
            let Some(effect) = effects.next() else { break };
            all = index + 1;
            if let Effect::Emit(event) = effect {
                if matches!(event, Event::Resent {}) {
                    self.network.repeats(true);
                }
                self.events.push((event, acted));
                continue;
            }
            acted = true;
            if let Some(address) = effect.destination() {
                self.network
                    .expect_more(is_next(effects.as_slice(), address));
            } else {
                // The rest takes time.
                self.network.circulate(&mut self.tally);
            }
            let kind = fuse::kind(&effect);
            self.go_on(&mut course, index, effect);
            self.burn(kind);
            self.note_waiting();
            self.recorder.progress(course.done(all));
            self.burn(kind);
        }
        self.settle_pages(&mut course);
        self.network.depart(&mut self.tally);
        self.network.repeats(false);
        if course.sent && course.woken.is_none() {
            self.acknowledge();
        }
        self.note_waiting();
        self.emit_all(began, course.woken);
        self.recorder.progress(all);
    }

    fn go_on(&mut self, course: &mut Course<'_>, index: usize, effect: Effect) {
        match effect {
            effect if course.run.as_ref().is_some_and(|run| run.covers(&effect)) => {
                self.settle_pages(course);
                course.run = self.go_through(course.run.take(), &effect);
            }
            Effect::Send {
                address,
                header,
                message,
                page: None,
            } if message.is_receipt() => self.receipts.push(address, header, message),
            Effect::Send {
                address,
                header,
                message,
                page: None,
            } => {
                course.sent = true;
                let tally = &mut self.tally;
                self.network
                    .send(address, header, &message, |_| true, tally);
            }
            Effect::Map {
                mapping,
                segment,
                page,
                rights,
            } => self.show(course, mapping, (segment, page), rights),
            Effect::Fill {
                segment,
                page,
                source,
            } => {
                self.fill(course);
                let at = (segment, page);
                if self.sharing.is_on() {
                    let page = course.payloads.of(index).page();
                    self.sharing.came(at, source, page);
                }
                let fresh = Fresh::From(source);
                course.filling = Some(Fill { at, fresh, index });
            }
            Effect::DropStash { segment, page } => {
                let from_stash = |fill: &Fill| matches!(fill.fresh, Fresh::From(Source::Stash));
                if course.filling.as_ref().is_some_and(from_stash) {
                    self.fill(course);
                }
                self.pages.stash.drop(segment, page);
            }
            Effect::Diffs(DiffWork::Merge {
                segment,
                page,
                source,
                names,
                rules,
            }) => {
                self.settle_pages(course);
                let at = (segment, page);
                let payload = course.payloads.of(index);
                let merged = self.merge(at, source, (&names, &rules), payload);
                course.filling = merged.map(|fresh| Fill { at, fresh, index });
            }
            Effect::Diffs(DiffWork::Twin { segment, page }) => {
                let at = (segment, page);
                self.place(course);
                let filling = course.filling.as_ref().filter(|fill| fill.at == at);
                let payload = course.payloads.of(filling.map_or(index, |fill| fill.index));
                self.twin(at, filling.map(|fill| &fill.fresh), payload);
            }
            other => {
                self.settle_pages(course);
                self.one(other, course.payloads.of(index));
            }
        }
    }

    /// A mapping gets a page, together with its neighbours if it just came as they did.
    fn show(&mut self, course: &mut Course<'_>, mapping: MappingId, at: At, rights: Rights) {
        let fill = course.filling.take_if(|fill| fill.at == at);
        self.fill(course);
        let fill = match Placing::of(mapping, rights, fill, course.payloads) {
            Ok(next) => {
                if !course.placing.as_mut().is_some_and(|run| run.takes(&next)) {
                    self.place(course);
                    course.placing = Some(next);
                }
                return;
            }
            Err(fill) => fill,
        };
        self.place(course);
        let payload = match &fill {
            Some(fill) => course.payloads.of(fill.index),
            None => Payload::NONE,
        };
        let fresh = fill.map(|fill| fill.fresh);
        self.rank.before_waking();
        let woken = self.map(mapping, at, rights, fresh, payload);
        course.woken = woken.or(course.woken);
    }

    /// Finishes what was begun with pages.
    fn settle_pages(&mut self, course: &mut Course<'_>) {
        self.place(course);
        self.fill(course);
    }

    /// Places a run of pages; those of it that something is in the way of by themselves.
    fn place(&mut self, course: &mut Course<'_>) {
        let Some(run) = course.placing.take() else {
            return;
        };
        self.rank.before_waking();
        let pages = course.payloads.slots(run.slot, run.count);
        let (mapping, rights) = (run.mapping, run.rights);
        let mut step = 0;
        while step < pages.len() {
            let (rest, tally) = (&pages[step..], &mut self.tally);
            let count = self
                .pages
                .place_run(mapping, run.at(step), rights, rest, tally);
            for _ in 0..count {
                let woken = self.placed(mapping, run.at(step));
                course.woken = woken.or(course.woken);
                step += 1;
            }
            if let Some(page) = pages.get(step) {
                let fresh = Some(Fresh::From(Source::Payload));
                let woken = self.map(mapping, run.at(step), rights, fresh, Payload::of_page(page));
                course.woken = woken.or(course.woken);
                step += 1;
            }
        }
        self.keep_segments();
    }

    fn fill(&mut self, course: &mut Course<'_>) {
        if let Some(Fill { at, fresh, index }) = course.filling.take() {
            self.pages.fill(at, &fresh, course.payloads.of(index));
            self.keep_segments();
        }
    }

    /// The effect is done with a run: all of it at its first page. Returns what is
    /// left of it.
    fn go_through(&mut self, run: Option<Run>, effect: &Effect) -> Option<Run> {
        let run = run?;
        let tally = &mut self.tally;
        if run.begins_at(effect) {
            match run.what {
                What::Protect => self.pages.protect_run(&run, tally),
                What::Evict { keep } => {
                    self.pages.evict_run(&run, keep, tally);
                    self.write_down();
                    run.pages().for_each(|at| self.taken_away(at));
                }
            }
        }
        (!run.ends_at(effect)).then_some(run)
    }

    /// Lets a mapping have a page. The time, if a thread was woken.
    fn map(
        &mut self,
        mapping: MappingId,
        at: At,
        rights: Rights,
        fresh: Option<Fresh>,
        payload: Payload<'_>,
    ) -> Option<u64> {
        match fresh {
            Some(fresh) => {
                let tally = &mut self.tally;
                self.pages
                    .place(mapping, at, rights, &fresh, payload, tally);
                self.keep_segments();
            }
            None => {
                let found = self.faults.kind((mapping, at.1));
                self.pages.map(mapping, at, rights, found, &mut self.tally);
            }
        }
        self.placed(mapping, at)
    }

    /// A mapping has a page now. The time, if a thread was woken.
    fn placed(&mut self, mapping: MappingId, at: At) -> Option<u64> {
        self.latest = Some((mapping, LOOKS));
        self.woken = true;
        let waiting = self.faults.end((mapping, at.1))?;
        // The thread may want this very processor: the rest has time.
        let now = clock::monotonic();
        let took = now.saturating_sub(waiting.since);
        self.over.push((at, waiting, took));
        if self.over.len() >= LATER {
            self.write_down();
        }
        Some(now)
    }
}
