//! Carries out the effects of one input, or of a turn, in order. One system call serves two effects
//! where the kernel can: it fills frames and maps their pages at once.

use super::DaemonExecutor;
use super::shared_run::SharedRun;
use crate::crash_point;
use crate::pages::Fresh;
use crate::payload::Payload;
use crate::turn::{Fill, Payloads};
use pagemesh_core::{
    At, Effect, EffectExecutor, Effects, Mappings, Next, PageRange, Rights, Source,
};
use pagemesh_os::clock;
use pagemesh_os::uffd::FaultKind;
use pagemesh_wire::{MappingId, SegmentId};
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
    /// When a thread was woken last, if one was.
    woken: Option<u64>,
    /// A datagram was sent whose answer a thread may wait for.
    pub(super) sent: bool,
    /// An effect other than an event was carried out: time has passed.
    pub(super) acted: bool,
    /// The datagrams that several nodes were sent at once.
    pub(super) shared: SharedRun,
    /// The segments of policy `views` with new contents.
    pub(super) changed: Vec<SegmentId>,
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
            woken: None,
            sent: false,
            acted: false,
            shared: SharedRun::default(),
            changed: Vec::new(),
        };
        let Ok(()) = batch.execute_from(done, effects);
        batch.finish_fill();
        batch.tell_changes();
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
    /// Before an effect: collects datagrams to one node.
    pub(super) fn begin(&mut self, index: usize, rest: &[Effect]) -> Next {
        self.index = index;
        self.kind = None;
        let [effect, behind @ ..] = rest else {
            return Next::Stop;
        };
        if matches!(effect, Effect::Emit(_)) {
            return Next::Execute;
        }
        self.acted = true;
        if self.is_shared(index, rest) {
            return Next::Skip;
        }
        let executor = &mut *self.executor;
        if let Some(address) = effect.destination() {
            executor.network.expect_more(is_next(behind, address));
        } else {
            // The other effects take time: send what waits first.
            executor.network.circulate(&mut executor.counters);
        }
        self.kind = Some(crash_point::kind(effect));
        Next::Execute
    }

    /// After an effect: records it as done, so that a successor does not repeat it.
    pub(super) fn end(&mut self, index: usize) {
        let Some(kind) = self.kind else {
            return;
        };
        let done = self.filling.as_ref().map_or(index + 1, |fill| fill.index);
        self.executor.recorder.burn(kind);
        self.executor.note_waiting();
        self.executor.recorder.progress(done);
        self.executor.recorder.burn(kind);
    }

    /// Wakes threads that sleep until states change. All new contents are in place.
    fn tell_changes(&mut self) {
        let sessions = &self.executor.sessions;
        let concerns = |client| {
            let session = sessions.get(client);
            let has = |segment| session.is_some_and(|session| session.open.contains_key(segment));
            self.changed.iter().any(has)
        };
        if !self.changed.is_empty() && sessions.request_slots.changed(concerns) {
            let now = clock::monotonic();
            self.executor.changed = Some(now);
            self.woken = Some(now);
        }
    }

    /// Payload of the message that caused the present effect.
    pub(super) fn payload(&self) -> Payload<'a> {
        self.payloads.of(self.index)
    }

    /// Contents of a page that is being filled.
    pub(super) fn payload_of(&self, fill: &Fill, at: At) -> Payload<'a> {
        fill.payload(at, self.payloads)
    }

    /// Begins to fill frames.
    pub(super) fn begin_fill(&mut self, pages: PageRange, fresh: Fresh) {
        self.finish_fill();
        let index = self.index;
        let fill = Fill {
            pages,
            fresh,
            index,
        };
        if let Fresh::From(source) = fill.fresh
            && self.executor.sharing.is_on()
        {
            for at in pages.iter() {
                let page = self.payload_of(&fill, at).page();
                self.executor.sharing.came(at, source, page);
            }
        }
        self.filling = Some(fill);
    }

    /// Begins to fill frames with contents from the disk.
    pub(super) fn load(&mut self, pages: PageRange) {
        for at in pages.iter() {
            match self.executor.lending.load(at) {
                Ok(bytes) => self.begin_fill(at.into(), Fresh::Merged(bytes)),
                Err(error) => {
                    tracing::error!(segment = %at.0, page = %at.1, %error, "a page cannot be read");
                }
            }
        }
    }

    /// Finishes the fill that was begun.
    pub(super) fn finish_fill(&mut self) {
        if let Some(fill) = self.filling.take() {
            for at in fill.pages.iter() {
                let payload = self.payload_of(&fill, at);
                self.executor.pages.fill(at, &fill.fresh, payload);
            }
            self.executor.keep_segments();
        }
    }

    /// Maps pages; those that are being filled are filled and mapped at once.
    pub(super) fn show(&mut self, mappings: Mappings, pages: PageRange, rights: Rights) {
        let at = (pages.segment, pages.first);
        let fills = |fill: &mut Fill| fill.pages.contains(at) && mappings != Mappings::All;
        let fill = self.filling.take_if(fills);
        self.finish_fill();
        self.executor.priority.before_waking();
        match mappings {
            Mappings::One(mapping) => self.show_in(mapping, fill.as_ref(), (pages, rights)),
            Mappings::All => {
                for mapping in self.executor.pages.ids_of(pages.segment).to_vec() {
                    self.show_in(mapping, None, (pages, rights));
                }
            }
        }
    }

    fn show_in(
        &mut self,
        mapping: MappingId,
        fill: Option<&Fill>,
        (pages, rights): (PageRange, Rights),
    ) {
        if let Some(fill) = fill {
            self.place(fill, mapping, (pages, rights));
        }
        if fill.is_none() && self.let_store(mapping, (pages, rights)) {
            return;
        }
        let filled = |at| fill.is_some_and(|fill| fill.pages.contains(at));
        for at in pages.iter().filter(|at| !filled(*at)) {
            let executor = &mut *self.executor;
            let found = executor.faults.open.kind((mapping, at.1));
            let counters = &mut executor.counters;
            executor.pages.map(mapping, at, rights, found, counters);
            self.placed(mapping, at);
        }
    }

    /// Gives a mapping the right to store to several pages by one call. Not if it may store already,
    /// or if a thread waits for one of them that is not mapped. False if nothing was done.
    fn let_store(&mut self, mapping: MappingId, (pages, rights): (PageRange, Rights)) -> bool {
        let executor = &mut *self.executor;
        let open = &executor.faults.open;
        let kinds = pages.iter().filter_map(|at| open.kind((mapping, at.1)));
        let protected = |kind| kind == FaultKind::WriteProtect;
        if pages.count == 1 || rights < Rights::Write || !kinds.into_iter().all(protected) {
            return false;
        }
        let done = executor.pages.let_store_run(mapping, pages);
        for at in pages.iter().filter(|_| done) {
            self.placed(mapping, at);
        }
        done
    }

    /// Fills frames, and gives a mapping those of their pages that it is to get. Pages that the
    /// kernel refuses to place with others are placed by themselves.
    fn place(&mut self, fill: &Fill, mapping: MappingId, (pages, rights): (PageRange, Rights)) {
        let contents = match fill.fresh {
            Fresh::From(Source::Payload) => fill.contents(self.payloads),
            _ => fill.fresh.zeros(fill.pages.count as usize),
        };
        let shown = fill.pages.iter().take_while(|at| pages.contains(*at));
        let shown = contents.get(..shown.count()).unwrap_or_default();
        let mut step = 0;
        while step < fill.pages.count as usize {
            let (at, executor) = (fill.at(step), &mut *self.executor);
            let counters = &mut executor.counters;
            let rest = shown.get(step..).unwrap_or_default();
            let placed = executor
                .pages
                .place_run(mapping, at, rights, rest, counters);
            for _ in 0..placed {
                self.placed(mapping, fill.at(step));
                step += 1;
            }
            if placed > 0 {
                continue;
            }
            let (payload, executor) = (self.payload_of(fill, at), &mut *self.executor);
            if pages.contains(at) {
                let counters = &mut executor.counters;
                executor
                    .pages
                    .place(mapping, at, rights, &fill.fresh, payload, counters);
                self.placed(mapping, at);
            } else {
                executor.pages.fill(at, &fill.fresh, payload);
            }
            step += 1;
        }
        self.executor.keep_segments();
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
