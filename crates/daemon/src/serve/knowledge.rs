//! Requests for the daemon's own state.

use super::Answer;
use crate::driver::Driver;
use crate::ledger::Ledger;
use pagemesh_core::{MemoryReport, Quotas, Time};
use pagemesh_os::clock;
use pagemesh_os::memfd;
use pagemesh_os::udp::headers;
use pagemesh_wire::header::PROTOCOL_VERSION;
use pagemesh_wire::local::{ControlStatus, DiskState, NodeStatus, PageReport, PathInfo, Reply};
use pagemesh_wire::peer::{Health, Refusal};
use pagemesh_wire::{ByteLen, ClientId, NodeId, PageIndex, SegmentId};
use std::time::Duration;

/// Pages in one report: as many as surely fit in a packet.
const REPORTED: usize = 1000;

/// Silence of the coordinator worth telling.
const SILENCE: Duration = Duration::from_secs(3);

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
        let seen = self
            .node
            .inspect(info.id, first, limit)
            .ok_or(Refusal::NotFound)?;
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
        counters
    }

    /// Why this node is no member.
    fn out(&self) -> Option<String> {
        match self.node.out() {
            Some(Refusal::NotMember) => Some(
                "this node is not a member of the cluster any more, and every call of its \
                 programs fails: end them, and restart its daemon; it joins as a new node"
                    .into(),
            ),
            Some(why) => Some(why.to_string()),
            None if self.node.rejoin().under_way => Some(self.not_admitted_again()),
            None if self.node.id().is_none() => Some(self.not_admitted()),
            None => None,
        }
    }

    /// The coordinator has been silent for so long: who can replace it, and how.
    fn coordinator_is_silent(&self, silent: Duration) -> String {
        let view = self.node.view();
        let named = |node: NodeId| {
            let member = view.member(node);
            member.map_or_else(
                || node.to_string(),
                |member| format!("{node} ({}, {})", member.name, member.address),
            )
        };
        let cure = if view.standby == NodeId::NONE {
            "there is no standby: let its daemon go on, or end all daemons and start anew"
                .to_owned()
        } else if self.node.id() == Some(view.standby) {
            "if its host is dead, run `pagemesh promote` here: this node is the standby".to_owned()
        } else {
            let standby = named(view.standby);
            format!(
                "if its host is dead, run `pagemesh promote` on the host of the standby, {standby}"
            )
        };
        let coordinator = named(view.term.coordinator());
        let seconds = silent.as_secs();
        format!("{coordinator}, the coordinator, has been silent for {seconds} s; {cure}")
    }

    /// Users whose segments are about to be refused; the coordinator knows.
    fn near_quotas(&self) -> impl Iterator<Item = String> {
        let Quotas { segments, bytes } = self.executor.quota.cluster;
        self.node.near_quota().into_iter().map(move |(uid, usage)| {
            format!(
                "user {uid} has {} segments of {} bytes, and its quota is {segments} of {}: \
                 remove some, or raise the coordinator's --quota",
                usage.segments, usage.bytes, bytes.0
            )
        })
    }

    fn problems(&self, now: Time) -> Vec<String> {
        let out = self.out();
        let is_out = out.is_some();
        let mut problems: Vec<String> = out.into_iter().collect();
        let lost = self.node.rejoin().lost.into_iter();
        problems.extend(lost.map(|(name, why)| format!("segment {name}: {why}")));
        problems.extend(self.about.problems.iter().cloned());
        let ledger = self.executor.ledger.as_ref();
        problems.extend(ledger.and_then(Ledger::problem));
        problems.extend(self.executor.near_limits());
        problems.extend(self.near_quotas());
        let silent = self.node.coordinator_silent(now);
        if !is_out && silent > SILENCE {
            problems.push(self.coordinator_is_silent(silent));
        }
        for host in self.executor.events.foreigners() {
            problems.push(format!(
                "a daemon on {host} speaks another version of the protocol (this one speaks \
                 {PROTOCOL_VERSION}) and cannot take part: install the same release on all nodes"
            ));
        }
        problems
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
