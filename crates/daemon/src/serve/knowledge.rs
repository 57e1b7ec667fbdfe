//! Requests for the daemon's own state.

use super::Answer;
use crate::driver::Driver;
use pagemesh_core::{Inspection, MemoryReport, PageRange, Rights, Time};
use pagemesh_os::clock;
use pagemesh_os::memfd;
use pagemesh_os::udp::headers;
use pagemesh_wire::local::{
    ControlStatus, DiskState, NodeStatus, PageLine, PageReport, PathInfo, Reply,
};
use pagemesh_wire::peer::{Health, Refusal};
use pagemesh_wire::{ByteLen, ClientId, NodeId, NodeSet, PageIndex, SegmentId};

/// Pages in one report: as many as surely fit in a packet.
const REPORTED: usize = 1000;

impl Driver {
    /// Hands out the flight recorder, which shows the actions of all users.
    pub(super) fn dump(&mut self, client: ClientId, number: u64) -> Answer {
        self.check_master(client)?;
        let cannot = |why: String| Refusal::Invalid(format!("the flight recorder: {why}"));
        let recorder = &self.executor.recorder;
        let dump = recorder.dump(Some(&self.node), "asked for");
        let dump = dump.map_err(|error| cannot(error.to_string()))?;
        let file =
            memfd::file("pagemesh-dump", &dump).map_err(|error| cannot(error.to_string()))?;
        let length = ByteLen(dump.len() as u64);
        self.executor
            .reply(client, number, Reply::Dumped { length }, vec![file]);
        Ok(None)
    }

    pub(super) fn inspect(&self, name: &str, first: PageIndex, limit: u32) -> Answer {
        let info = self.node.segment_named(name).ok_or(Refusal::NotFound)?;
        let limit = usize::try_from(limit).unwrap_or(REPORTED).min(REPORTED);
        let seen = self.inspected(info.id, first, limit);
        let seen = seen.ok_or(Refusal::NotFound)?;
        Ok(Some(Reply::Pages(PageReport {
            info: info.clone(),
            known: seen.known,
            readable: seen.readable,
            writable: seen.writable,
            owned: seen.owned,
            unreplicated: seen.unreplicated,
            pages: seen.pages,
        })))
    }

    /// The state of some pages of a segment here. Until it is trapped, all that have frames were used by
    /// processes of this node alone.
    pub(crate) fn inspected(
        &self,
        id: SegmentId,
        first: PageIndex,
        limit: usize,
    ) -> Option<Inspection> {
        let seen = self.node.inspect(id, first, limit)?;
        if self.node.is_trapped(id) {
            return Some(seen);
        }
        let me = self.node.id()?;
        let framed = self.executor.pages.framed(id).unwrap_or_default();
        Some(used_here_alone(me, &framed, first, limit))
    }

    /// What this node knows of pages, for a process that saves the segment.
    pub(super) fn states(&self, client: ClientId, id: SegmentId, first: PageIndex) -> Answer {
        self.opening(client, id)?;
        let states = self.node.states(id, first).ok_or(Refusal::NotFound)?;
        Ok(Some(Reply::States(states)))
    }

    pub(super) fn status(&self) -> NodeStatus {
        let count = |health: Health| {
            let members = self.node.view().members.iter();
            members.filter(|member| member.health == health).count() as u32
        };
        let now = clock::monotonic();
        let keeper = self.executor.keeper.process();
        let (fault_p50, fault_p99) = self.executor.counters.remote_faults();
        NodeStatus {
            node: self.node.id().unwrap_or(NodeId::NONE),
            name: self.about.name.clone(),
            address: self.about.address.to_string(),
            alive: if self.out().is_some() {
                0
            } else {
                count(Health::Alive)
            },
            dead: count(Health::Dead),
            clients: self.executor.sessions.len() as u32,
            segments: self.executor.pages.segments.len() as u32,
            pages: self.pages_known(),
            uptime: now.saturating_sub(self.about.started) as f64 / 1e9,
            fault_p50,
            fault_p99,
            problems: self.problems(Time(now)),
            keeper: keeper.and_then(|id| u32::try_from(id).ok()).unwrap_or(0),
            takeovers: self.executor.life.takeovers,
            unreplicated: self.pages_unreplicated(),
            control: ControlStatus {
                disk: self.disk(),
                ..self.node.control(Time(now))
            },
        }
    }

    fn disk(&self) -> DiskState {
        match &self.executor.ledger {
            None => DiskState::None,
            Some(ledger) if ledger.problem().is_none() => DiskState::Good,
            Some(_) => DiskState::Failing,
        }
    }

    pub(super) fn paths(&self) -> Vec<PathInfo> {
        let ways = self.executor.network.ways().into_iter();
        ways.map(|way| PathInfo {
            node: way.node,
            mtu: (way.size + headers(way.address.ip())) as u32,
            found: way.found,
        })
        .collect()
    }

    pub(super) fn counters(&mut self) -> Vec<(String, u64)> {
        let executor = &mut self.executor;
        executor.network.settle(&mut executor.counters);
        let pages = &self.executor.pages;
        let mut counters = self.executor.counters.report();
        counters.push(("mappings".into(), pages.mappings.len() as u64));
        counters.push(("stash_pages".into(), pages.stash.len() as u64));
        let (twins, diffs) = pages.changes.counts();
        counters.push(("twins".into(), twins as u64));
        counters.push(("diffs".into(), diffs as u64));
        counters.push(("diff_bytes_held".into(), pages.changes.bytes()));
        counters.extend(memory(&self.node.memory()));
        counters.extend(self.troubles.counters());
        counters
    }
}

fn used_here_alone(me: NodeId, framed: &[PageRange], first: PageIndex, limit: usize) -> Inspection {
    let count = framed.iter().map(|run| u64::from(run.count)).sum();
    let from_here = framed
        .iter()
        .filter(|run| run.first.0 + run.count > first.0);
    let pages = from_here.flat_map(|run| run.iter().map(|(_, page)| page));
    let line = |page| PageLine {
        page,
        rights: Rights::Write as u8,
        owner: true,
        hint: me,
        version: 0,
        copies: NodeSet::EMPTY,
        queued: 0,
    };
    let asked = pages.filter(|page| *page >= first).take(limit);
    Inspection {
        known: count,
        readable: count,
        writable: count,
        owned: count,
        unreplicated: 0,
        pages: asked.map(line).collect(),
    }
}

/// Where the pages of private segments are now, and what is kept for others.
fn memory(report: &MemoryReport) -> impl Iterator<Item = (String, u64)> {
    let all = [
        ("memory_local", report.local),
        ("memory_lent", report.lent),
        ("memory_on_disk", report.on_disk),
        ("memory_files", report.files),
        ("memory_borrowed", report.borrowed),
        ("memory_lend", report.lend),
        ("epoch", report.epoch),
        ("epoch_min_age_ms", report.min_age.into()),
        ("epoch_weight", report.weight.into()),
    ];
    all.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
}
