//! Writes events into counters, stamps and the log.

use crate::counters::Counters;
use crate::stamps::Stamps;
use pagemesh_core::{At, Event};
use pagemesh_os::clock;
use pagemesh_wire::peer::Refusal;
use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};

/// Events on their way into counters, stamps and the log.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    /// Time stamps.
    pub(crate) stamps: Stamps,
    /// Events of the present effects, and whether each followed an effect that took time.
    present: Vec<(Event, bool)>,
    /// Events not written down yet, with their times: a thread that was just woken may want this
    /// processor first.
    later: Vec<(Event, u64)>,
    /// Pages whose loss was logged.
    lost: HashSet<At>,
    /// Hosts that speak another version of the protocol.
    foreigners: BTreeSet<IpAddr>,
}

/// Lost pages that are logged one by one; the loss of a large segment must not fill the disk.
const LOGGED: usize = 1000;

/// Hosts with other protocol versions that are remembered, at most: any host can send datagrams.
const FOREIGNERS: usize = 16;

impl EventLog {
    /// Adds an event of the present effects.
    pub(crate) fn push(&mut self, event: Event, acted: bool) {
        self.present.push((event, acted));
    }

    /// Ends the effects of an input of `began`; `woken` is when a thread was woken, if one was.
    /// True if the events should be written down now.
    pub(crate) fn settle(&mut self, began: u64, woken: Option<u64>) -> bool {
        if self.present.is_empty() {
            return false;
        }
        let now = woken.unwrap_or_else(clock::monotonic);
        let events = self.present.drain(..);
        let events = events.map(|(event, acted)| (event, if acted { now } else { began }));
        self.later.extend(events);
        woken.is_none()
    }

    /// Counts, stamps and logs all waiting events. `left`: this node has left its cluster.
    pub(crate) fn write(&mut self, counters: &mut Counters, left: bool) {
        let mut events = std::mem::take(&mut self.later);
        for (event, nanos) in events.drain(..) {
            counters.event(&event);
            self.stamps.event(&event, nanos);
            self.log(&event, left);
        }
        self.later = events;
    }

    fn log(&mut self, event: &Event, left: bool) {
        match event {
            Event::ForeignVersion { source, version } => self.foreign(*source, *version),
            Event::Speaks { version } => {
                tracing::info!(version, "the cluster speaks this protocol")
            }
            Event::Admitted { node } => tracing::info!(%node, "admitted to the cluster"),
            Event::Joined { node } => tracing::info!(%node, "joined"),
            Event::Left { node } => tracing::info!(%node, "left"),
            Event::Died { node } => tracing::warn!(%node, "does not answer; declared dead"),
            Event::StandbyNamed { node } => tracing::info!(%node, "is the standby"),
            Event::NumbersFreed { count } => {
                tracing::info!(count, "numbers of former nodes are free again");
            }
            Event::CoordinatorChanged { node } => {
                tracing::warn!(%node, "coordinates the cluster now")
            }
            Event::Promoted {} => tracing::warn!("this node coordinates the cluster now"),
            Event::Resumed {} => tracing::warn!(
                "this node went on from its disk: names, permissions and members are known; pages \
                 that only daemons had which have ended are lost"
            ),
            Event::Superseded { node } => tracing::error!(
                %node,
                "another node coordinates the cluster, and this node, which did, is no member any \
                 more: end its programs and restart its daemon with --join",
            ),
            Event::Rejoined { node } => tracing::warn!(
                %node,
                "joined again as another node, after this one was declared dead; `pagemesh status` \
                 says whether any program has lost something",
            ),
            Event::Expelled {} if left => tracing::info!("not a member any more"),
            Event::Expelled {} => tracing::error!("not a member of the cluster (any more)"),
            other => tracing::trace!(?other),
        }
    }

    /// Logs once per host that it speaks another version.
    fn foreign(&mut self, source: SocketAddr, version: u8) {
        if self.foreigners.len() < FOREIGNERS && self.foreigners.insert(source.ip()) {
            tracing::warn!(
                %source, version,
                "a daemon speaks a version of the protocol that this one does not: see `pagemesh status`",
            );
        }
    }

    /// Hosts that speak another version of the protocol.
    pub(crate) fn foreigners(&self) -> impl Iterator<Item = &IpAddr> {
        self.foreigners.iter()
    }

    /// Logs once per page that an access to it can never be served.
    pub(crate) fn cannot_be_served(&mut self, at: At, why: &Refusal) {
        if self.lost.len() >= LOGGED || !self.lost.insert(at) {
            return;
        }
        let cure = match why {
            Refusal::NodeGone(_) => {
                "the page is lost: go on without it, or make a new segment; if that node is the \
                 coordinator and only stopped, let its daemon go on"
            }
            Refusal::DeclaredDead { .. } => "end the program and start it again",
            _ => "restart this node's daemon",
        };
        tracing::error!(
            segment = %at.0, home = %at.0.home(), page = %at.1, %why, cure,
            "an access cannot be served; the process gets SIGBUS",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_wait_while_a_woken_thread_may_want_the_processor() {
        let mut log = EventLog::default();
        assert!(!log.settle(5, None), "there are none");
        log.push(Event::Malformed {}, false);
        log.push(Event::Malformed {}, true);
        assert!(!log.settle(5, Some(9)));
        let times: Vec<u64> = log.later.iter().map(|(_, nanos)| *nanos).collect();
        assert_eq!(times, [5, 9], "before and after what took time");
        log.push(Event::Malformed {}, false);
        assert!(log.settle(20, None));
        log.write(&mut Counters::default(), false);
        assert!(log.later.is_empty() && log.present.is_empty());
    }

    #[test]
    fn each_foreign_host_is_known_once_and_few_are() {
        let mut log = EventLog::default();
        for host in (0..=u8::MAX).chain(0..=u8::MAX) {
            log.foreign(([10, 0, 0, host], 1).into(), 1);
        }
        assert_eq!(log.foreigners().count(), FOREIGNERS);
    }
}
