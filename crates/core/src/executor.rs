//! The interpreter of effects: the trait that each driver of a node implements, and the loop over
//! effects that all drivers share.
//!
//! The daemon, the simulator and the forecasts differ in how they hold pages, send datagrams and
//! count time. Which effect means which step, in which order, and which inputs follow from it, is
//! the same for all and stands here. The calling order is [the driver's law](crate::Effect).

use core::net::SocketAddr;
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{DiffName, Message, Refusal, Rule};
use pagemesh_wire::{
    ClientId, MappingId, NodeId, PageIndex, RequestId, SegmentId, SyncKey, Term, Ticket, VectorTime,
};

use crate::control::KeptEntry;
use crate::effect::{
    Afterwards, DiffWork, Effect, Effects, Mappings, PageRange, Reply, Rights, Source,
};
use crate::event::Event;
use crate::input::Input;

/// A page of a segment.
pub type At = (SegmentId, PageIndex);

/// The outcome of asking for a lent lock token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimed {
    /// No client held the lock: the token is back.
    Back,
    /// A client holds the lock; [`Input::LockReturned`] follows when it releases or dies.
    Marked,
    /// The word is destroyed: the token is back, and its last holder is not known.
    Broken,
}

/// The decision of [`EffectExecutor::before`] on the first of the remaining effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Carry out the effect.
    Execute,
    /// Skip the effect: it has been carried out already.
    Skip,
    /// Carry out neither this effect nor any behind it.
    Stop,
}

/// Diffs of one segment for one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffBatch {
    /// The destination.
    pub address: SocketAddr,
    /// The header of each datagram; `body` is set when it is encoded.
    pub header: Header,
    /// The segment.
    pub segment: SegmentId,
    /// The request that the diffs answer; zero if they are pushed.
    pub request: RequestId,
    /// The names of the diffs.
    pub names: Vec<DiffName>,
    /// Diffs with more bytes than this are left out.
    pub at_most: u16,
}

/// Carries out the effects of a node.
///
/// An implementation says how each step is done; [`EffectExecutor::execute_all`] calls the steps in
/// order and turns their results into the inputs that the node expects. Each [`Effect`] documents
/// what its step must do, and what holds before and after it.
pub trait EffectExecutor {
    /// The error of a step, which ends the loop.
    type Error;

    /// [`Effect::Send`].
    fn send(
        &mut self,
        address: SocketAddr,
        header: Header,
        message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Result<(), Self::Error>;

    /// [`Effect::SendNotice`].
    fn send_notice(&mut self, address: SocketAddr, notice: Notice) -> Result<(), Self::Error>;

    /// [`Effect::Fill`].
    fn fill(&mut self, pages: PageRange, source: Source) -> Result<(), Self::Error>;

    /// [`Effect::Map`].
    fn map(
        &mut self,
        mappings: Mappings,
        pages: PageRange,
        rights: Rights,
    ) -> Result<(), Self::Error>;

    /// [`Effect::Protect`].
    fn protect(&mut self, mappings: Mappings, pages: PageRange) -> Result<(), Self::Error>;

    /// [`Effect::Evict`].
    fn evict(&mut self, pages: PageRange, keep: bool) -> Result<(), Self::Error>;

    /// [`Effect::Stow`].
    fn stow(&mut self, at: At) -> Result<(), Self::Error>;

    /// [`Effect::DropStash`].
    fn drop_stash(&mut self, at: At) -> Result<(), Self::Error>;

    /// [`Effect::Fail`].
    fn fail(&mut self, mapping: MappingId, at: At, why: Refusal) -> Result<(), Self::Error>;

    /// [`Effect::ConfirmUse`]. True if the threads that waited for the page have run.
    fn has_run(&mut self, at: At) -> Result<bool, Self::Error>;

    /// [`Effect::Forget`].
    fn forget(&mut self, segment: SegmentId) -> Result<(), Self::Error>;

    /// [`Effect::LendLock`].
    fn lend_lock(
        &mut self,
        key: SyncKey,
        client: ClientId,
        wanted: bool,
    ) -> Result<(), Self::Error>;

    /// [`Effect::ReclaimLock`].
    fn reclaim_lock(&mut self, key: SyncKey) -> Result<Reclaimed, Self::Error>;

    /// [`Effect::Reply`].
    fn reply(&mut self, ticket: Ticket, reply: Reply) -> Result<(), Self::Error>;

    /// [`Effect::Diffs`]; executors with twins and diffs call [`DiffExecutor::execute_diff_work`].
    fn diff_work(&mut self, work: DiffWork) -> Result<(), Self::Error>;

    /// [`Effect::Store`]. False if the disk could not take the pages.
    fn store(&mut self, pages: PageRange) -> Result<bool, Self::Error>;

    /// [`Effect::Keep`]; only nodes that keep decisions on a disk ask for it.
    fn keep(&mut self, _batch: u64, _entries: Vec<KeptEntry>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// [`Effect::Renew`]; only nodes whose coordinator is elected ask for it.
    fn renew(&mut self, _term: Term) -> Result<(), Self::Error> {
        Ok(())
    }

    /// [`Effect::Elect`]; only nodes whose coordinator is elected ask for it.
    fn elect(&mut self, _node: NodeId, _fence: Term) -> Result<(), Self::Error> {
        Ok(())
    }

    /// [`Effect::ListAsking`]; only nodes whose coordinator is elected ask for it.
    fn list_asking(&mut self, _term: Term) -> Result<(), Self::Error> {
        Ok(())
    }

    /// [`Effect::Seek`]; only nodes whose coordinator is elected ask for it.
    fn seek(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// [`Effect::Trap`]; only nodes that trap late ask for it. Returns the pages that have frames.
    fn trap(&mut self, _segment: SegmentId) -> Result<Vec<PageRange>, Self::Error> {
        Ok(Vec::new())
    }

    /// [`Effect::Emit`].
    fn emit(&mut self, event: Event) -> Result<(), Self::Error>;

    /// Keeps an input that an effect caused until all effects are carried out.
    fn follow(&mut self, input: Input<'static>);

    /// Called before each effect, with the effect's index, the effect and all effects behind it.
    fn before(&mut self, _index: usize, _rest: &[Effect]) -> Next {
        Next::Execute
    }

    /// Called when the effect with this index is carried out or skipped.
    fn after(&mut self, _index: usize) {}

    /// Carries out all effects in order and empties `effects`.
    ///
    /// # Errors
    /// The error of the first step that fails; the effects behind it are dropped.
    fn execute_all(&mut self, effects: &mut Effects) -> Result<(), Self::Error> {
        self.execute_from(0, effects)
    }

    /// As [`EffectExecutor::execute_all`], but the first `done` effects have been carried out
    /// already.
    ///
    /// # Errors
    /// As for [`EffectExecutor::execute_all`].
    fn execute_from(&mut self, done: usize, effects: &mut Effects) -> Result<(), Self::Error> {
        let mut rest = effects.drain();
        rest.by_ref().take(done).for_each(drop);
        for index in done.. {
            if rest.as_slice().is_empty() {
                break;
            }
            let next = self.before(index, rest.as_slice());
            if next == Next::Stop {
                break;
            }
            if let Some(effect) = rest.next()
                && next == Next::Execute
            {
                self.execute(effect)?;
            }
            self.after(index);
        }
        Ok(())
    }

    /// Carries out one effect.
    ///
    /// # Errors
    /// The error of its step.
    fn execute(&mut self, effect: Effect) -> Result<(), Self::Error> {
        match effect {
            Effect::Send {
                address,
                header,
                message,
                page,
            } => {
                let page = page.map(|(segment, page, source)| ((segment, page), source));
                self.send(address, header, message, page)
            }
            Effect::SendNotice { address, notice } => self.send_notice(address, notice),
            Effect::Fill { pages, source } => self.fill(pages, source),
            Effect::Map {
                mappings,
                pages,
                rights,
            } => self.map(mappings, pages, rights),
            Effect::Protect { pages, mappings } => self.protect(mappings, pages),
            Effect::Evict { pages, keep } => self.evict(pages, keep),
            Effect::Stow { segment, page } => self.stow((segment, page)),
            Effect::DropStash { segment, page } => self.drop_stash((segment, page)),
            Effect::Fail {
                mapping,
                segment,
                page,
                why,
            } => self.fail(mapping, (segment, page), why),
            Effect::ConfirmUse { segment, page } => confirm_use(self, (segment, page)),
            Effect::Forget { segment } => self.forget(segment),
            Effect::LendLock {
                key,
                client,
                wanted,
            } => self.lend_lock(key, client, wanted),
            Effect::ReclaimLock { key } => take_back(self, key),
            Effect::Reply { ticket, reply } => self.reply(ticket, *reply),
            Effect::Diffs(work) => self.diff_work(work),
            Effect::Store { pages } => store(self, pages),
            Effect::Keep { batch, entries } => self.keep(batch, entries),
            Effect::Renew { term } => self.renew(term),
            Effect::Elect { node, fence } => self.elect(node, fence),
            Effect::ListAsking { term } => self.list_asking(term),
            Effect::Seek => self.seek(),
            Effect::Trap { segment } => trap(self, segment),
            Effect::Emit(event) => self.emit(event),
        }
    }
}

/// Tells the node whether the threads that waited for a page have run.
fn confirm_use<E: EffectExecutor + ?Sized>(
    executor: &mut E,
    (segment, page): At,
) -> Result<(), E::Error> {
    let used = executor.has_run((segment, page))?;
    executor.follow(Input::UseConfirmed {
        segment,
        page,
        used,
    });
    Ok(())
}

/// Tells the node whether the disk has pages now.
fn store<E: EffectExecutor + ?Sized>(executor: &mut E, pages: PageRange) -> Result<(), E::Error> {
    let done = executor.store(pages)?;
    executor.follow(Input::Stored { pages, done });
    Ok(())
}

/// Tells the node which pages of a segment have frames, now that its accesses are trapped.
fn trap<E: EffectExecutor + ?Sized>(executor: &mut E, segment: SegmentId) -> Result<(), E::Error> {
    let pages = executor.trap(segment)?;
    executor.follow(Input::Trapped { segment, pages });
    Ok(())
}

/// Takes a lent token back at once, unless a client holds the lock.
fn take_back<E: EffectExecutor + ?Sized>(executor: &mut E, key: SyncKey) -> Result<(), E::Error> {
    let reclaimed = executor.reclaim_lock(key)?;
    if reclaimed != Reclaimed::Marked {
        let recovered = reclaimed == Reclaimed::Broken;
        executor.follow(Input::LockReturned { key, recovered });
    }
    Ok(())
}

/// Carries out work on twins and diffs: the part of an [`EffectExecutor`] that only policies with
/// write notices need.
pub trait DiffExecutor: EffectExecutor {
    /// [`DiffWork::Twin`], for each page.
    fn twin(&mut self, at: At, source: Source) -> Result<(), Self::Error>;

    /// [`DiffWork::Diff`]. False if nothing had changed since the twin was made.
    fn diff(
        &mut self,
        segment: SegmentId,
        name: DiffName,
        then: Afterwards,
        rules: &[Rule],
    ) -> Result<bool, Self::Error>;

    /// [`DiffWork::DropTwin`].
    fn drop_twin(&mut self, at: At) -> Result<(), Self::Error>;

    /// [`DiffWork::Keep`].
    fn keep_diffs(&mut self, segment: SegmentId, names: &[DiffName]) -> Result<(), Self::Error>;

    /// [`DiffWork::Merge`], with the names of the diffs and the rules of the page.
    fn merge(
        &mut self,
        at: At,
        source: Source,
        diffs: (&[DiffName], &[Rule]),
    ) -> Result<(), Self::Error>;

    /// [`DiffWork::Update`], with the names of the diffs and the rules of the page.
    fn update(&mut self, at: At, diffs: (&[DiffName], &[Rule])) -> Result<(), Self::Error>;

    /// [`DiffWork::Send`].
    fn send_diffs(&mut self, batch: &DiffBatch) -> Result<(), Self::Error>;

    /// [`DiffWork::Compare`].
    fn compare(
        &mut self,
        segment: SegmentId,
        pairs: &[(DiffName, DiffName)],
    ) -> Result<(), Self::Error>;

    /// [`DiffWork::Forget`].
    fn forget_diffs(&mut self, segment: SegmentId, upto: &VectorTime) -> Result<(), Self::Error>;

    /// Carries out one piece of work on diffs.
    ///
    /// # Errors
    /// The error of its step.
    fn execute_diff_work(&mut self, work: DiffWork) -> Result<(), Self::Error> {
        match work {
            DiffWork::Twin { pages, source } => {
                pages.iter().try_for_each(|at| self.twin(at, source))
            }
            DiffWork::Diff {
                segment,
                name,
                then,
                rules,
            } => {
                let changed = self.diff(segment, name, then, &rules)?;
                if then == Afterwards::Refresh && !changed {
                    let page = name.page;
                    self.follow(Input::Unchanged { segment, page });
                }
                Ok(())
            }
            DiffWork::DropTwin { segment, page } => self.drop_twin((segment, page)),
            DiffWork::Keep { segment, names } => self.keep_diffs(segment, &names),
            DiffWork::Merge {
                segment,
                page,
                source,
                names,
                rules,
            } => self.merge((segment, page), source, (&names, &rules)),
            DiffWork::Update {
                segment,
                page,
                names,
                rules,
            } => self.update((segment, page), (&names, &rules)),
            DiffWork::Send {
                address,
                header,
                segment,
                request,
                names,
                at_most,
            } => self.send_diffs(&DiffBatch {
                address,
                header,
                segment,
                request,
                names,
                at_most,
            }),
            DiffWork::Compare { segment, pairs } => self.compare(segment, &pairs),
            DiffWork::Forget { segment, upto } => self.forget_diffs(segment, &upto),
        }
    }
}

#[cfg(test)]
mod tests;
