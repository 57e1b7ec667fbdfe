//! Requests for the daemon's own state.

use super::{Answer, Service};
use pagemesh_core::MemoryReport;
use pagemesh_os::memfd;
use pagemesh_wire::local::{Reply, Request, StampKind};
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ByteLen, PageIndex, SegmentId};

impl Service<'_> {
    /// Answers a request for this daemon's own state.
    pub(super) fn tell(&mut self, request: Request) -> Answer {
        match request {
            Request::Inspect { name, first, limit } => {
                self.driver.status().inspect(&name, first, limit).map(Some)
            }
            Request::States { segment, first } => self.states(segment, first),
            Request::Members => {
                let view = self.driver.node.view();
                Ok(Some(Reply::Everyone {
                    epoch: view.epoch,
                    spoken: self.driver.node.spoken(),
                    members: view.members.clone(),
                }))
            }
            Request::Status => Ok(Some(Reply::Status(self.driver.status().report()))),
            Request::Paths => Ok(Some(Reply::Paths(self.driver.status().paths()))),
            Request::Counters => Ok(Some(Reply::Counters(self.counters()))),
            Request::Stamp { tag } => {
                let stamps = &mut self.driver.executor.events.stamps;
                stamps.push(StampKind::Program, tag);
                Ok(Some(Reply::Done))
            }
            Request::Stamps { from } => Ok(Some(Reply::Stamps(
                self.driver.executor.events.stamps.since(from),
            ))),
            Request::WatchSharing { name, on } => {
                self.driver.executor.sessions.check_master(self.client)?;
                let info = self.driver.node.segment_named(&name);
                let info = info.ok_or(Refusal::NotFound)?;
                self.driver.executor.sharing.watch(info.id, on);
                Ok(Some(Reply::Done))
            }
            Request::Sharing { name, first } => {
                let info = self.driver.node.segment_named(&name);
                let info = info.ok_or(Refusal::NotFound)?;
                let report = self.driver.executor.sharing.report(info.id, first);
                let why = || Refusal::Invalid("nobody watches who writes to this segment".into());
                Ok(Some(Reply::Sharing(report.ok_or_else(why)?)))
            }
            Request::Races { first } => {
                Ok(Some(Reply::Races(self.driver.executor.races.report(first))))
            }
            Request::Label { segment, labels } => {
                self.driver
                    .executor
                    .sessions
                    .opening(self.client, segment)?;
                if self.driver.executor.races.looked_for {
                    self.driver.executor.races.labels.add(segment, labels);
                }
                Ok(Some(Reply::Done))
            }
            other => unreachable!("no request about the daemon's state: {other:?}"),
        }
    }

    /// Hands out the flight recorder, which shows the actions of all users.
    pub(super) fn dump(&mut self) -> Answer {
        self.driver.executor.sessions.check_master(self.client)?;
        let cannot = |why: String| Refusal::Invalid(format!("the flight recorder: {why}"));
        let recorder = &self.driver.executor.recorder;
        let dump = recorder.dump(Some(&self.driver.node), "asked for");
        let dump = dump.map_err(|error| cannot(error.to_string()))?;
        let file =
            memfd::file("pagemesh-dump", &dump).map_err(|error| cannot(error.to_string()))?;
        let length = ByteLen(dump.len() as u64);
        self.reply_with(Reply::Dumped { length }, vec![file]);
        Ok(None)
    }

    /// What this node knows of pages, for a process that saves the segment.
    fn states(&self, id: SegmentId, first: PageIndex) -> Answer {
        self.driver.executor.sessions.opening(self.client, id)?;
        let states = self
            .driver
            .node
            .states(id, first)
            .ok_or(Refusal::NotFound)?;
        Ok(Some(Reply::States(states)))
    }

    fn counters(&mut self) -> Vec<(String, u64)> {
        let executor = &mut self.driver.executor;
        executor.network.settle(&mut executor.counters);
        let pages = &self.driver.executor.pages;
        let mut counters = self.driver.executor.counters.report();
        counters.push(("mappings".into(), pages.mappings.len() as u64));
        counters.push(("stash_pages".into(), pages.stash.len() as u64));
        let (twins, diffs) = pages.changes.counts();
        counters.push(("twins".into(), twins as u64));
        counters.push(("diffs".into(), diffs as u64));
        counters.push(("diff_bytes_held".into(), pages.changes.bytes()));
        counters.extend(memory(&self.driver.node.memory()));
        counters.extend(self.driver.troubles.counters());
        counters
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
