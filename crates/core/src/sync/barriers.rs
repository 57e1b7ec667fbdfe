//! Barriers (T14): arrivals are counted at the home of the segment. An arrival is a call and the
//! departure its reply, so n nodes exchange 2(n-1) datagrams.

use crate::caller::Caller;
use crate::continuation::Continuation;
use crate::segments::Segments;
use crate::shell::Cx;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{Arrival, Refusal, Reply};
use pagemesh_wire::{NodeId, SegmentId, SyncKey};
use serde::{Deserialize, Serialize};

/// The barriers of this home at which at least one party has arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Barriers(SortedMap<SyncKey, Gathering>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Gathering {
    parties: u32,
    arrived: Vec<Caller>,
}

/// A reply to a caller.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) caller: Caller,
    pub(crate) reply: Reply,
}

impl Barriers {
    /// A party arrives. Returns the replies that follow.
    pub(crate) fn arrive(&mut self, caller: Caller, key: SyncKey, parties: u32) -> Vec<Answer> {
        let refuse = |why: String| {
            let reply = Reply::Refused(Refusal::Invalid(why));
            vec![Answer { caller, reply }]
        };
        if parties == 0 {
            return refuse("a barrier is for at least one party".into());
        }
        let gathering = self.0.entry(key).or_insert_with(|| Gathering {
            parties,
            arrived: Vec::new(),
        });
        if gathering.parties != parties {
            let others = gathering.parties;
            return refuse(format!(
                "others wait at barrier {key} for {others} parties, this call says {parties}"
            ));
        }
        gathering.arrived.push(caller);
        if (gathering.arrived.len() as u64) < u64::from(parties) {
            return Vec::new();
        }
        let gathering = self.0.remove(&key).expect("it was there just now");
        let arrived = gathering.arrived.into_iter();
        let reply = Reply::Done;
        arrived
            .map(|caller| Answer {
                caller,
                reply: reply.clone(),
            })
            .collect()
    }

    /// All arrivals, for the successor of this home.
    pub(crate) fn handover(&self) -> Vec<Arrival> {
        let arrivals = self.0.iter().flat_map(|(key, gathering)| {
            gathering.arrived.iter().map(|caller| Arrival {
                key: *key,
                parties: gathering.parties,
                node: caller.node,
                call: caller.call,
            })
        });
        arrivals.collect()
    }

    /// Takes over an arrival from a home that leaves. If a policy sends payloads with barriers, this
    /// node must learn what the arrived nodes told the home before it lets any of them depart.
    pub(crate) fn inherit(&mut self, cx: &mut Cx<'_>, segments: &mut Segments, arrival: Arrival) {
        let caller = Caller {
            node: arrival.node,
            call: arrival.call,
        };
        if let Some(sync) = segments.sync(arrival.key.segment) {
            let then = Continuation::Arrive {
                caller,
                key: arrival.key,
                parties: arrival.parties,
            };
            return sync.acquire_from_all(cx, then);
        }
        let gathering = self.0.entry(arrival.key).or_insert_with(|| Gathering {
            parties: arrival.parties,
            arrived: Vec::new(),
        });
        gathering.arrived.push(caller);
    }

    /// The home died: drops the arrivals at its barriers.
    pub(crate) fn home_died(&mut self, home: NodeId) {
        self.0.retain(|key, _| key.segment.home() != home);
    }

    /// A caller has withdrawn its arrival.
    pub(crate) fn cancel(&mut self, caller: Caller) {
        self.retain(|waiting| *waiting != caller);
    }

    /// A node is gone: drops its arrivals.
    pub(crate) fn member_gone(&mut self, node: NodeId) {
        self.retain(|waiting| waiting.node != node);
    }

    /// A segment is gone: drops its barriers.
    pub(crate) fn forget(&mut self, segment: SegmentId) {
        self.0.retain(|key, _| key.segment != segment);
    }

    fn retain(&mut self, keep: impl Fn(&Caller) -> bool) {
        self.0.retain(|_, gathering| {
            gathering.arrived.retain(&keep);
            !gathering.arrived.is_empty()
        });
    }
}
