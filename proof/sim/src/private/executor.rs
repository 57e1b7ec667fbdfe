//! What a daemon does: it carries out what its node decided.

use super::PrivateMistake;
use super::cluster::{Cluster, host_at};
use super::memory::{Check, Memory, bytes_of, value_of};
use pagemesh_core::{
    At, DiffWork, Effect, EffectExecutor, Event, Input, Mappings, Next, PageRange, Reclaimed,
    Reply, Rights, Source,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{Got, Message, Refusal};
use pagemesh_wire::{ClientId, MappingId, SegmentId, SyncKey, Ticket};
use std::net::SocketAddr;

/// Carries out the effects of one input of a host.
pub(super) struct Executor<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) host: usize,
    /// The page behind the present datagram.
    pub(super) payload: &'a [u8],
    /// Inputs that effects gave rise to.
    pub(super) follow: Vec<Input<'static>>,
}

impl Executor<'_> {
    fn memory(&mut self) -> &mut Memory {
        &mut self.cluster.hosts[self.host].memory
    }
}

impl EffectExecutor for Executor<'_> {
    type Error = String;

    fn send(
        &mut self,
        address: SocketAddr,
        header: Header,
        mut message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check {
        let mut behind = Vec::new();
        if let Some((at, source)) = page {
            let stash = &self.memory().stash;
            let bytes = stash.get(&at).filter(|_| source == Source::Stash);
            behind = bytes
                .ok_or_else(|| format!("{at:?} is not in the stash"))?
                .to_vec();
        }
        match &mut *message {
            Message::Put(put) => put.seal = self.memory().seal(put.lent, &mut behind),
            Message::Got(got) => self.cluster.tamper(self.host, got, &mut behind),
            Message::Forward(on) => self.cluster.tamper_on(self.host, on, &mut behind)?,
            _ => {}
        }
        self.cluster
            .send(self.host, (address, header), &message, &behind);
        Ok(())
    }

    /// Strangers, of whom there are none here, get them.
    fn send_notice(&mut self, _: SocketAddr, _: Notice) -> Check {
        Ok(())
    }

    fn fill(&mut self, pages: PageRange, source: Source) -> Check {
        let payload = value_of(self.payload);
        for at in pages.iter() {
            let value = match source {
                Source::Zero => 0,
                Source::Disk => {
                    self.cluster.remote.read += 1;
                    self.memory().read_disk(at)?
                }
                Source::Stash => {
                    let bytes = self.memory().stash.get(&at);
                    value_of(&bytes.ok_or_else(|| format!("{at:?} is not in the stash"))?[..])
                }
                Source::Payload if self.payload.len() == pagemesh_wire::PAGE_SIZE => payload,
                other => return Err(format!("{at:?} is filled from {other:?}")),
            };
            self.memory().fill(at, value)?;
        }
        Ok(())
    }

    fn map(&mut self, _: Mappings, pages: PageRange, rights: Rights) -> Check {
        for at in pages.iter() {
            self.memory().map(at, rights)?;
            self.cluster.woken(self.host, at.1);
        }
        Ok(())
    }

    fn protect(&mut self, _: Mappings, _: PageRange) -> Check {
        Ok(())
    }

    fn evict(&mut self, pages: PageRange, keep: bool) -> Check {
        for at in pages.iter() {
            self.memory().evict(at, keep)?;
        }
        Ok(())
    }

    fn drop_stash(&mut self, at: At) -> Check {
        let dropped = self.memory().stash.remove(&at);
        dropped
            .map(drop)
            .ok_or_else(|| format!("{at:?} is not in the stash"))
    }

    fn fail(&mut self, _: MappingId, at: At, why: Refusal) -> Check {
        self.cluster.failed(self.host, at, &why)
    }

    fn has_run(&mut self, _: At) -> Check<bool> {
        Ok(true)
    }

    fn forget(&mut self, segment: SegmentId) -> Check {
        self.memory().forget(segment);
        Ok(())
    }

    fn lend_lock(&mut self, _: SyncKey, _: ClientId, _: bool) -> Check {
        Err("no lock is used here".into())
    }

    fn reclaim_lock(&mut self, _: SyncKey) -> Check<Reclaimed> {
        Err("no lock is used here".into())
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply) -> Check {
        self.cluster.replied(self.host, ticket, reply)
    }

    fn diff_work(&mut self, work: DiffWork) -> Check {
        Err(format!("no segment here has diffs: {work:?}"))
    }

    fn stow(&mut self, at: At) -> Check {
        let bytes = self.payload.first_chunk().copied();
        let bytes = bytes.ok_or("a page is to be kept, and none came")?;
        self.memory().stash.insert(at, Box::new(bytes));
        self.cluster.record(self.host, at, &bytes);
        Ok(())
    }

    fn store(&mut self, pages: PageRange) -> Check<bool> {
        let mut done = true;
        for at in pages.iter() {
            done &= self.memory().store_on_disk(at)?;
        }
        self.cluster.remote.written += u64::from(done) * u64::from(pages.count);
        Ok(done)
    }

    fn emit(&mut self, event: Event) -> Check {
        let remote = &mut self.cluster.remote;
        match event {
            Event::PageLent { .. } => remote.lent += 1,
            Event::BytesArrived { .. } => remote.fetched += 1,
            Event::SoftFault { .. } => remote.soft += 1,
            Event::DiskFull {} => remote.full += 1,
            Event::EpochBegan {} => remote.epochs += 1,
            Event::BorrowedDropped {} => remote.dropped += 1,
            Event::PageSentOn {} => remote.sent_on += 1,
            _ => {}
        }
        Ok(())
    }

    fn follow(&mut self, input: Input<'static>) {
        self.follow.push(input);
    }

    fn before(&mut self, _: usize, rest: &[Effect]) -> Next {
        if let [effect, ..] = rest
            && !matches!(effect, Effect::Emit(_) | Effect::Send { .. })
        {
            self.cluster.note(self.host, || format!("{effect:?}"));
        }
        Next::Execute
    }
}

/// What a hostile donor sends instead of the page.
pub(super) fn forge(got: &mut Got, bytes: &mut Vec<u8>, kind: u64, older: Option<&(Got, Vec<u8>)>) {
    match (kind, older) {
        // A changed byte.
        (0, _) => bytes[100] ^= 1,
        // Contents of its own.
        (1, _) => *bytes = bytes_of(999).to_vec(),
        // An older version as if it were this one.
        (2, Some((older, contents))) => {
            got.seal = older.seal;
            bytes.clone_from(contents);
        }
        // An older version as what it is.
        (3, Some((older, contents))) => {
            *got = *older;
            bytes.clone_from(contents);
        }
        _ => got.seal.0[0] ^= 1,
    }
}

/// The host that a datagram goes to.
pub(super) fn receiver(address: SocketAddr) -> usize {
    host_at(address)
}

/// Whether the run plants the mistake of ignoring what is lent.
pub(super) fn ignores_budget(planted: Option<PrivateMistake>) -> bool {
    planted == Some(PrivateMistake::BudgetIgnored)
}
