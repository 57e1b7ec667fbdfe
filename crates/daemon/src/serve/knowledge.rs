//! Requests for the daemon's own state.

use super::Answer;
use crate::driver::Driver;
use pagemesh_core::MemoryReport;
use pagemesh_os::memfd;
use pagemesh_wire::local::Reply;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ByteLen, ClientId, PageIndex, SegmentId};

impl Driver {
    /// Hands out the flight recorder, which shows the actions of all users.
    pub(super) fn dump(&mut self, client: ClientId, number: u64) -> Answer {
        self.executor.sessions.check_master(client)?;
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

    /// What this node knows of pages, for a process that saves the segment.
    pub(super) fn states(&self, client: ClientId, id: SegmentId, first: PageIndex) -> Answer {
        self.executor.sessions.opening(client, id)?;
        let states = self.node.states(id, first).ok_or(Refusal::NotFound)?;
        Ok(Some(Reply::States(states)))
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
