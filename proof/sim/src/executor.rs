//! The simulator's effect executor, for one host at a time; it follows the driver's law.

mod sending;

use crate::canary::Canary;
use crate::check::{Check, Violation, ensure};
use crate::hearing::Hearing;
use crate::kernel::{PageKey, Returned, ThreadId};
use crate::log::Mark;
use crate::recording::{Effort, Standing};
use crate::world::{Asked, Life, World};
use pagemesh_core::limits::USE_GUARD;
use pagemesh_core::{
    At, DiffWork, Effect, EffectExecutor, Event, Input, KeptEntry, Mappings, Next, PageRange,
    Reclaimed, Reply, Rights, Source,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{Message, Refusal};
use pagemesh_wire::{ClientId, MappingId, NodeId, SegmentId, SyncKey, Term, Ticket};
use std::net::SocketAddr;

fn facts(key: PageKey, more: u64) -> [u64; 3] {
    [key.segment.0, u64::from(key.page.0), more]
}

/// Carries out the effects of the inputs that one host's node handled.
pub(crate) struct Executor<'a> {
    world: &'a mut World,
    at: usize,
    hearing: &'a Hearing,
    /// Which effects this daemon carries out before it is killed, if it is.
    effort: Effort,
    /// The index of the present effect.
    index: usize,
    /// The page that [`Source::Payload`] of the present effect refers to.
    payload: Option<&'a [u8]>,
    /// How the journal counts the present effect.
    standing: Standing,
    /// Number of answers that were queued before the present effect.
    answered: usize,
}

impl<'a> Executor<'a> {
    /// The executor of the host with index `at`.
    pub(crate) fn new(
        world: &'a mut World,
        at: usize,
        hearing: &'a Hearing,
        effort: Effort,
    ) -> Self {
        Self {
            world,
            at,
            hearing,
            effort,
            index: 0,
            payload: None,
            standing: Standing::default(),
            answered: 0,
        }
    }

    fn note(&mut self, mark: Mark, facts: [u64; 3], text: impl FnOnce() -> String) {
        let world = &mut *self.world;
        world.log.note(world.now, self.at, mark, facts, text);
    }

    /// Counts pages that leave before the threads that wanted them have run (M12).
    fn note_unused(&mut self, key: PageKey) {
        let world = &mut *self.world;
        let since = world.hosts[self.at].kernel.unused_since(key);
        if since.is_some_and(|since| world.now.since(since) < USE_GUARD) {
            world.stats.stolen += 1;
        }
    }

    /// Schedules the threads that the last effect woke.
    fn wake_threads(&mut self) {
        let mut woken = std::mem::take(&mut self.world.hosts[self.at].kernel.woken);
        for thread in woken.drain(..) {
            self.world.wake(thread);
        }
        self.world.hosts[self.at].kernel.woken = woken;
    }

    fn fill_page(&mut self, key: PageKey, source: Source) -> Check {
        let kernel = &mut self.world.hosts[self.at].kernel;
        ensure!(
            source != Source::Frame,
            Law,
            "h{} fills {key} from its own frame",
            self.at + 1
        );
        let words = kernel.contents(key, source, self.payload)?;
        kernel.fill(key, words)?;
        self.note(Mark::Fill, facts(key, words[0]), || {
            format!("{key} from {source:?} {words:x?}")
        });
        Ok(())
    }

    fn map_page(&mut self, mapping: MappingId, key: PageKey, rights: Rights) -> Check {
        self.note(Mark::Map, facts(key, rights as u64), || {
            format!("{key} {rights:?} for {mapping}")
        });
        let (world, at) = (&mut *self.world, self.at);
        let words = world.hosts[at]
            .kernel
            .map(world.now, mapping, key, rights)?;
        if !world.hosts[at].buried {
            world.check_single_writer(at, key)?;
            world.checkers.golden.mapped(at, key, &words)?;
        }
        self.wake_threads();
        Ok(())
    }

    fn evict_page(&mut self, key: PageKey, keep: bool) -> Check {
        self.note(Mark::Evict, facts(key, u64::from(keep)), || {
            format!("{key}{}", if keep { " into the stash" } else { "" })
        });
        self.note_unused(key);
        let world = &mut *self.world;
        world.hosts[self.at].kernel.evict(world.now, key, keep)?;
        world.contents_dropped(key);
        self.wake_threads();
        Ok(())
    }

    /// A thread's access can never be served: the thread gets a SIGBUS.
    fn sigbus(&mut self, thread: ThreadId) {
        self.world.drop_step(thread);
        self.world.wake(thread);
    }
}

impl EffectExecutor for Executor<'_> {
    type Error = Violation;

    fn send(
        &mut self,
        address: SocketAddr,
        header: Header,
        mut message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check {
        let (world, at) = (&mut *self.world, self.at);
        if let Some(canary) = world.setting.canary {
            canary.tamper(&mut message);
        }
        if world.keeps_receipt(at, address, header, &message) {
            return Ok(());
        }
        world.send(at, (address, header), &message, page, self.payload)
    }

    fn send_notice(&mut self, address: SocketAddr, notice: Notice) -> Check {
        let (world, at) = (&mut *self.world, self.at);
        world.say_notice(at, address, notice.encode().to_vec());
        Ok(())
    }

    fn fill(&mut self, pages: PageRange, source: Source) -> Check {
        for (step, at) in pages.iter().enumerate() {
            self.payload = self.hearing.page(self.index, step);
            self.fill_page(at.into(), source)?;
        }
        Ok(())
    }

    fn map(&mut self, mappings: Mappings, pages: PageRange, rights: Rights) -> Check {
        let kernel = &self.world.hosts[self.at].kernel;
        for mapping in kernel.mappings(mappings, pages.segment) {
            for at in pages.iter() {
                self.map_page(mapping, at.into(), rights)?;
            }
        }
        Ok(())
    }

    fn protect(&mut self, mappings: Mappings, pages: PageRange) -> Check {
        for key in pages.iter().map(PageKey::from) {
            self.note(Mark::Protect, facts(key, 0), || key.to_string());
            self.note_unused(key);
            self.world.hosts[self.at].kernel.protect(mappings, key);
        }
        Ok(())
    }

    fn evict(&mut self, pages: PageRange, keep: bool) -> Check {
        for at in pages.iter() {
            self.evict_page(at.into(), keep)?;
        }
        Ok(())
    }

    fn stow(&mut self, at: At) -> Check {
        let payload = self.hearing.page(self.index, 0);
        let kernel = &mut self.world.hosts[self.at].kernel;
        let words = kernel.contents(at.into(), Source::Payload, payload)?;
        kernel.stow(at.into(), words);
        Ok(())
    }

    fn drop_stash(&mut self, at: At) -> Check {
        let key = PageKey::from(at);
        self.note(Mark::DropStash, facts(key, 0), || key.to_string());
        self.world.hosts[self.at].kernel.drop_stash(key);
        self.world.contents_dropped(key);
        Ok(())
    }

    fn fail(&mut self, mapping: MappingId, at: At, why: Refusal) -> Check {
        let key = PageKey::from(at);
        self.note(Mark::Sigbus, facts(key, 0), || format!("{key}: {why}"));
        let home_gone = self.world.is_home_gone(key.segment);
        let host = &self.world.hosts[self.at];
        ensure!(
            home_gone || self.world.checkers.golden.may_be_lost(key) || host.buried || host.leaves,
            PageNotLost,
            "h{} cannot have {key} ({why}), though nobody who held it crashed",
            self.at + 1
        );
        let kernel = &mut self.world.hosts[self.at].kernel;
        for thread in kernel.sleepers(mapping, key) {
            self.sigbus(thread);
        }
        Ok(())
    }

    fn has_run(&mut self, at: At) -> Check<bool> {
        let key = PageKey::from(at);
        let used = self.world.hosts[self.at].kernel.used(key);
        self.note(Mark::Use, facts(key, u64::from(used)), || {
            format!("{key} {}", if used { "used" } else { "not used yet" })
        });
        Ok(used)
    }

    fn forget(&mut self, segment: SegmentId) -> Check {
        self.note(Mark::Forget, [segment.0, 0, 0], || segment.to_string());
        self.world.hosts[self.at].kernel.forget(segment)
    }

    fn lend_lock(&mut self, key: SyncKey, client: ClientId, wanted: bool) -> Check {
        self.note(Mark::Lock, [key.segment.0, key.number, 1], || {
            format!(
                "{key} lent to {client}{}",
                if wanted { ", wanted" } else { "" }
            )
        });
        let (world, at) = (&mut *self.world, self.at);
        let client_of_here = world.clients_of(at).any(|other| other.id == client);
        let dead_but_unknown = world.death_under_way(at, client);
        ensure!(
            client_of_here || dead_but_unknown,
            Law,
            "h{} lends lock {key} to {client}, which it does not have",
            at + 1
        );
        world.hosts[at].kernel.lend(key, client, wanted)
    }

    fn reclaim_lock(&mut self, key: SyncKey) -> Check<Reclaimed> {
        let returned = self.world.hosts[self.at].kernel.reclaim(key);
        self.note(Mark::Lock, [key.segment.0, key.number, 2], || {
            format!("{key} reclaimed: {returned:?}")
        });
        let invented = self.world.setting.canary == Some(Canary::DeathInvented);
        match returned {
            Returned::Back if invented => Ok(Reclaimed::Broken),
            Returned::Back => Ok(Reclaimed::Back),
            Returned::Marked => Ok(Reclaimed::Marked),
            Returned::UnderWay => {
                ensure!(
                    self.world.return_under_way(self.at, key),
                    OneToken,
                    "h{} reclaims lock {key}, which it has not lent",
                    self.at + 1
                );
                Ok(Reclaimed::Marked)
            }
        }
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply) -> Check {
        self.world.answer(self.at, ticket, reply)
    }

    fn store(&mut self, pages: PageRange) -> Check<bool> {
        ensure!(false, Law, "no segment here has policy private: {pages:?}");
        Ok(true)
    }

    fn diff_work(&mut self, work: DiffWork) -> Check {
        ensure!(false, Law, "no segment here has policy release: {work:?}");
        Ok(())
    }

    fn keep(&mut self, batch: u64, entries: Vec<KeptEntry>) -> Check {
        match self.world.setting.elected {
            true => self.world.give_to_etcd(self.at, batch, entries),
            false => self.world.give_to_disk(self.at, batch, entries),
        }
        Ok(())
    }

    fn renew(&mut self, term: Term) -> Check {
        self.world.ask_etcd(self.at, Asked::Renew(term));
        Ok(())
    }

    fn elect(&mut self, node: NodeId, fence: Term) -> Check {
        self.world.ask_etcd(self.at, Asked::Elect(node, fence));
        Ok(())
    }

    fn list_asking(&mut self, term: Term) -> Check {
        self.world.ask_etcd(self.at, Asked::ListAsking(term));
        Ok(())
    }

    fn seek(&mut self) -> Check {
        self.world.ask_etcd(self.at, Asked::Seek);
        Ok(())
    }

    fn trap(&mut self, segment: SegmentId) -> Check<Vec<PageRange>> {
        self.note(Mark::Trap, [segment.0, 0, 0], || segment.to_string());
        Ok(self.world.hosts[self.at].kernel.trap(segment))
    }

    fn emit(&mut self, event: Event) -> Check {
        self.note(Mark::Event, [event.index() as u64, 0, 0], || {
            format!("{event:?}")
        });
        let pressed_out = matches!(event, Event::PressedOut { .. });
        self.world.stats.pressed_out += u64::from(pressed_out);
        self.world.told(self.at, event)
    }

    fn follow(&mut self, input: Input<'static>) {
        self.world.reaction.answers.push(input);
    }

    fn before(&mut self, index: usize, rest: &[Effect]) -> Next {
        self.standing = Standing::of(&rest[0]);
        self.answered = self.world.reaction.answers.len();
        self.index = index;
        self.payload = self.hearing.page(index, 0);
        match self.effort {
            Effort::Until { last, half } if index > last || (index == last && !half) => Next::Stop,
            Effort::All | Effort::Until { .. } => {
                self.world.reaction.heard = self.hearing.ask(index);
                Next::Execute
            }
            Effort::Again { truly } => {
                let done = index < truly && self.world.is_done(self.at, &rest[0]);
                self.world.reaction.repeats = index < truly;
                if done { Next::Skip } else { Next::Execute }
            }
        }
    }

    fn after(&mut self, index: usize) {
        let world = &mut *self.world;
        world.reaction.repeats = false;
        if matches!(self.effort, Effort::Until { last, .. } if last == index) {
            // The daemon is killed before it writes to its journal that the effect is done.
            world.reaction.answers.truncate(self.answered);
        } else if let Some(recording) = &mut world.hosts[self.at].recording {
            recording.done(
                index,
                self.standing,
                &world.reaction.answers[self.answered..],
            );
        }
    }
}

impl World {
    /// True if the segment's home is no member any more and has left no successor.
    pub(crate) fn is_home_gone(&self, segment: SegmentId) -> bool {
        let home = self
            .hosts
            .iter()
            .find(|host| host.id == Some(segment.home()));
        home.is_none_or(|home| !matches!(home.life, Life::Up | Life::Left) || home.buried)
    }

    /// Handles an event that a node emits.
    fn told(&mut self, at: usize, event: Event) -> Check {
        self.checkers.told(at, &event)?;
        match event {
            Event::Owned { .. } if self.hosts[at].buried => Ok(()),
            Event::Owned {
                segment,
                page,
                version,
            } => self
                .checkers
                .golden
                .owned(at, PageKey { segment, page }, version),
            Event::Admitted { node } => {
                self.hosts[at].id = Some(node);
                self.admitted(at);
                Ok(())
            }
            Event::Resumed {} => {
                self.stats.promotions += 1;
                Ok(())
            }
            Event::Promoted {} if self.setting.elected => {
                self.stats.promotions += 1;
                Ok(())
            }
            Event::LockRecovered { key } if self.losses.somebody_left => {
                // The token was on its way to the node that left, marked as lent or not.
                self.processes.bequeathed.insert(key);
                Ok(())
            }
            Event::Left { node } => {
                self.losses.somebody_left = true;
                self.checkers.lines.gone(node);
                Ok(())
            }
            // A node that does not count any more declares nobody dead.
            Event::Died { .. } if self.hosts[at].buried => Ok(()),
            Event::Died { node } => {
                self.declared_dead(node);
                Ok(())
            }
            Event::Expelled {} => {
                // The node's last replies are effects after this event, so the host departs
                // later.
                self.reaction.departing.push((at, Life::Crashed));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
