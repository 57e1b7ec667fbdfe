//! Counters of this node since its start, and how long faults took.

use hdrhistogram::Histogram;
use pagemesh_core::Event;
use pagemesh_core::event::COUNTERS;

macro_rules! counts {
    ($( $(#[$doc:meta])* $name:ident => $text:literal ),* $(,)?) => {
        /// What the driver counts itself; everything else is an [`Event`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Count { $( $(#[$doc])* $name ),* }

        const NAMES: &[&str] = &[$($text),*];
    };
}

counts! {
    /// Datagrams received.
    DatagramsIn => "datagrams_in",
    /// Datagrams sent.
    DatagramsOut => "datagrams_out",
    /// Datagrams this host's kernel refused to send.
    DatagramsFailed => "datagrams_failed",
    /// Datagrams that waited for room in the queues of this host.
    DatagramsHeld => "datagrams_held",
    /// Messages that were not sent again, because they waited for room.
    MessagesHeld => "messages_held",
    /// Datagrams refused: not sealed, where datagrams are sealed.
    SealMissing => "seal_missing",
    /// Refused: sealed, but malformed.
    SealMalformed => "seal_malformed",
    /// Refused: of a session unknown here, as after a restart.
    SealUnknown => "seal_unknown",
    /// Refused: opened before, or far too late.
    SealReplayed => "seal_replayed",
    /// Refused: forged, or damaged on the way.
    SealForged => "seal_forged",
    /// Refused: made with a wrong, outdated or expired key or token.
    SealWrongKey => "seal_wrong_key",
    /// Refused: a member's greeting by somebody who is none.
    SealStranger => "seal_stranger",
    /// Refused: too many handshakes at once.
    SealFlooded => "seal_flooded",
    /// Errors the network reported for datagrams sent earlier.
    NetworkNoise => "network_noise",
    /// Bytes received, headers of UDP and IP not counted.
    BytesIn => "bytes_in",
    /// Bytes sent.
    BytesOut => "bytes_out",
    /// Multicast batches sent: one datagram each, for several nodes.
    MulticastBatchesOut => "multicast_batches_out",
    /// Datagrams that left in multicast batches.
    MulticastBatchParts => "multicast_batch_parts",
    /// Multicast batches received in which something was for this node.
    MulticastBatchesIn => "multicast_batches_in",
    /// Refused: came to the group from no member, or malformed.
    MulticastBatchesRefused => "multicast_batches_refused",
    /// Trials that a member did not answer: multicast batches do not reach it.
    MulticastBatchesUnheard => "multicast_batches_unheard",
    /// Probes of what the ways to other nodes carry.
    PathProbes => "path_probes",
    /// Ways that were found to carry less than before.
    PathsShrunk => "paths_shrunk",
    /// Messages too long for the way, sent in pieces.
    MessagesCut => "messages_cut",
    /// Messages that came in pieces and were made whole.
    MessagesJoined => "messages_joined",
    /// Times that missing pieces were asked for.
    PiecesAsked => "pieces_asked",
    /// Pieces sent again for who missed them.
    PiecesRepaired => "pieces_repaired",
    /// Messages of which pieces stayed missing.
    MessagesGivenUp => "messages_given_up",
    /// Pieces that came twice or too late, and answers to probes that came too late.
    PiecesLate => "pieces_late",
    /// Refused: malformed, or another piece of a message said something else.
    PiecesRefused => "pieces_refused",
    /// Pages that were zero and were not sent.
    PagesElided => "pages_elided",
    /// Pages that were sent smaller than they are.
    PagesPacked => "pages_packed",
    /// Pages that did not become small enough, and were sent as they are.
    PagesGivenUp => "pages_given_up",
    /// Bytes of pages that became smaller, before.
    PackedFrom => "packed_from_bytes",
    /// And after.
    PackedTo => "packed_to_bytes",
    /// Pages that came packed.
    PagesUnpacked => "pages_unpacked",
    /// Refused: no packed page although it said so, or a stranger's probe of a link.
    PagesRefused => "pages_refused",
    /// Faults the kernel reported, repetitions included.
    KernelFaults => "kernel_faults",
    /// Pages put into a mapping.
    PagesPlaced => "pages_placed",
    /// Pages taken out of all mappings.
    PagesEvicted => "pages_evicted",
    /// A frame had bytes where it should have been empty; overwritten.
    FramesOverwritten => "frames_overwritten",
    /// A frame was empty where it should have had bytes: some process punched it.
    FramesPunched => "frames_punched",
    /// A frame was tried again that there had been no memory for.
    FramesWaited => "frames_waited",
    /// Pages copied before they were written.
    TwinsMade => "twins_made",
    /// Pages compared with their twins, and what changed written down.
    DiffsMade => "diffs_made",
    /// Diffs of other nodes put into pages.
    DiffsApplied => "diffs_applied",
    /// Diffs sent to other nodes.
    DiffsSent => "diffs_sent",
    /// Datagrams refused: what they brought was no diff.
    DiffsRefused => "diffs_refused",
    /// Ranges of bytes that two nodes wrote without knowing of each other; looked for
    /// only if the daemon is told to.
    RacesFound => "races_found",
    /// The kernel refused to place or protect a page for no foreseen reason.
    PlacingFailed => "placing_failed",
    /// Processes that connected.
    SessionsOpened => "sessions_opened",
    /// Processes cut off: malformed packets, or they did not read their replies.
    SessionsRefused => "sessions_refused",
    /// Processes turned away for want of a file descriptor.
    SessionsTurnedAway => "sessions_turned_away",
    /// Requests of processes.
    Requests => "requests",
    /// Those of them that came through a request slot, not through the socket.
    RequestsByRequestSlot => "requests_by_request_slot",
    /// Requests of processes that were refused, with a reason; withdrawn ones aside.
    RequestsRefused => "requests_refused",
    /// Times the driver fell asleep waiting.
    Sleeps => "sleeps",
    /// Pages that a donor gave back changed, or in another version: refused.
    PagesForged => "pages_forged",
}

/// All counters.
#[derive(Debug)]
pub(crate) struct Counters {
    events: Vec<u64>,
    own: [u64; NAMES.len()],
    /// Faults that needed another node, in nanoseconds.
    remote: Histogram<u64>,
    /// Faults that did not.
    local: Histogram<u64>,
}

/// Longer faults count as this long: a minute.
const LONGEST: u64 = 60_000_000_000;

impl Default for Counters {
    fn default() -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, LONGEST, 2).expect("the bounds are constant and valid")
        };
        Self {
            events: vec![0; COUNTERS.len()],
            own: [0; NAMES.len()],
            remote: histogram(),
            local: histogram(),
        }
    }
}

impl Counters {
    /// Counts an event of the core.
    pub(crate) fn event(&mut self, event: &Event) {
        self.events[event.index()] += 1;
    }

    /// Adds to one of the driver's own counters.
    pub(crate) fn add(&mut self, count: Count, amount: u64) {
        self.own[count as usize] += amount;
    }

    /// A fault is over after so many nanoseconds.
    pub(crate) fn fault(&mut self, nanos: u64, remote: bool) {
        if remote {
            self.remote.saturating_record(nanos);
        } else {
            self.local.saturating_record(nanos);
        }
    }

    /// Median and 99th percentile of remote faults.
    pub(crate) fn remote_faults(&self) -> (u64, u64) {
        (
            self.remote.value_at_quantile(0.5),
            self.remote.value_at_quantile(0.99),
        )
    }

    /// All counters, by name.
    pub(crate) fn report(&self) -> Vec<(String, u64)> {
        let events = COUNTERS.iter().zip(&self.events);
        let own = NAMES.iter().zip(&self.own);
        let mut report: Vec<_> = events
            .chain(own)
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect();
        for (kind, faults) in [("remote", &self.remote), ("local", &self.local)] {
            report.push((format!("fault_{kind}_count"), faults.len()));
            report.push((
                format!("fault_{kind}_p50_ns"),
                faults.value_at_quantile(0.5),
            ));
            report.push((
                format!("fault_{kind}_p99_ns"),
                faults.value_at_quantile(0.99),
            ));
            report.push((format!("fault_{kind}_max_ns"), faults.max()));
            report.push((format!("fault_{kind}_usual_ns"), usual(faults)));
        }
        report
    }
}

/// The mean of all but the longest tenth.
fn usual(faults: &Histogram<u64>) -> u64 {
    let mut left = faults.len() - faults.len() / 10;
    let (mut count, mut nanos) = (0, 0);
    for step in faults.iter_recorded() {
        let these = step.count_since_last_iteration().min(left);
        left -= these;
        count += these;
        nanos += these * step.value_iterated_to();
    }
    nanos / count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_under_distinct_names() {
        let mut counters = Counters::default();
        counters.event(&Event::Resent {});
        counters.add(Count::BytesIn, 5);
        counters.fault(17_000, true);
        counters.fault(u64::MAX, true);
        let report = counters.report();
        let value = |name: &str| report.iter().find(|(of, _)| of == name).map(|(_, v)| *v);
        assert_eq!(value("resent"), Some(1));
        assert_eq!(value("bytes_in"), Some(5));
        assert_eq!(value("fault_remote_count"), Some(2));
        assert_eq!(value("fault_local_usual_ns"), Some(0));
        for _ in 0..18 {
            counters.fault(17_000, true);
        }
        let usual = usual(&counters.remote);
        assert!(
            (16_800..17_200).contains(&usual),
            "{usual}: the longest stays out"
        );
        let mut names: Vec<_> = report.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), report.len());
    }
}
