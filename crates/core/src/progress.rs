//! How far other nodes have come with what this node asked of them.
//!
//! A node answers in the order in which it was asked. As long as answers come, a request that was
//! sent after those that are answered is not lost: it waits its turn, or its answer is under way
//! behind others. So all requests to a node share one clock, which starts anew with each of its
//! answers. A request that later ones have overtaken was lost, and waits no longer.
//!
//! Under policy `release` a node leaves requests to other readers, which send what they have. As long as
//! any of those are answered, the others are on their way. They come in about the order of the requests
//! only, since each reader keeps an order of its own: one is lost if requests that were sent as much
//! later as it is waited for have been answered.

use crate::time::Time;
use core::time::Duration;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::NodeId;
use serde::{Deserialize, Serialize};

/// The answers of other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Progress(SortedMap<NodeId, Answered>);

/// The answers of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Answered {
    /// When it answered last.
    last: Time,
    /// When the latest request was sent that it has answered.
    sent: Time,
    /// When another node answered last what was asked of this one.
    #[serde(default)]
    elsewhere: Time,
    /// When the latest request was sent that another node has answered.
    #[serde(default)]
    left: Time,
    /// The last answer was to a request that had been repeated.
    #[serde(default)]
    again: bool,
}

impl Progress {
    /// A node answered a request. `sent` is when that was sent, if it was sent once: an answer to a
    /// repeated request does not show which requests it has overtaken.
    pub(crate) fn answered(&mut self, node: NodeId, now: Time, sent: Option<Time>) {
        let answered = self.0.entry(node).or_default();
        (answered.last, answered.again) = (now, sent.is_none());
        answered.sent = answered.sent.max(sent.unwrap_or(Time::ZERO));
    }

    /// Another node answered what was asked of this one, which has left it to that; `sent` as above.
    pub(crate) fn answered_elsewhere(&mut self, node: NodeId, now: Time, sent: Option<Time>) {
        let answered = self.0.entry(node).or_default();
        (answered.elsewhere, answered.again) = (now, sent.is_none());
        answered.left = answered.left.max(sent.unwrap_or(Time::ZERO));
    }

    /// Until when a request that was sent to a node at `said` is to be waited for, because others were
    /// answered since: by that node, or by those to which it leaves requests.
    pub(crate) fn until(&self, node: NodeId, said: Time, wait: Duration) -> Option<Time> {
        let answered = self.0.get(&node)?;
        let here = Some(answered.last).filter(|last| *last > said && answered.sent <= said);
        let is_left = answered.left <= said + wait;
        let elsewhere = Some(answered.elsewhere).filter(|last| *last > said && is_left);
        here.max(elsewhere).map(|last| last + wait)
    }

    /// Whether a node has answered last what had been asked of it twice: if what was asked at the same
    /// time has to be asked twice as well, all of that was lost.
    pub(crate) fn answers_repetitions(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|answered| answered.again)
    }

    /// A node is gone.
    pub(crate) fn gone(&mut self, node: NodeId) {
        self.0.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(2);
    const WAIT: Duration = Duration::from_nanos(10);

    #[test]
    fn who_answers_is_waited_for() {
        let mut progress = Progress::default();
        assert_eq!(progress.until(NODE, Time(100), WAIT), None, "silent");
        progress.answered(NODE, Time(105), Some(Time(90)));
        assert_eq!(progress.until(NODE, Time(100), WAIT), Some(Time(115)));
        progress.answered(NODE, Time(108), Some(Time(100)));
        assert_eq!(
            progress.until(NODE, Time(100), WAIT),
            Some(Time(118)),
            "one of those sent together"
        );
        assert_eq!(progress.until(NODE, Time(108), WAIT), None, "silent since");
        assert_eq!(progress.until(NodeId(3), Time(100), WAIT), None);
        progress.gone(NODE);
        assert_eq!(progress, Progress::default());
    }

    #[test]
    fn what_is_left_to_others_comes_in_about_the_order_of_requests() {
        let mut progress = Progress::default();
        progress.answered(NODE, Time(120), Some(Time(110)));
        progress.answered_elsewhere(NODE, Time(115), Some(Time(105)));
        assert_eq!(progress.until(NODE, Time(100), WAIT), Some(Time(125)));
        progress.answered_elsewhere(NODE, Time(130), None);
        assert_eq!(progress.until(NODE, Time(115), WAIT), Some(Time(140)));
        assert_eq!(progress.until(NODE, Time(130), WAIT), None, "silent since");
        progress.answered_elsewhere(NODE, Time(135), Some(Time(111)));
        assert_eq!(progress.until(NODE, Time(100), WAIT), None, "lost");
        assert_eq!(progress.until(NODE, Time(101), WAIT), Some(Time(145)));
    }

    #[test]
    fn what_later_requests_overtake_is_lost() {
        let mut progress = Progress::default();
        progress.answered(NODE, Time(120), Some(Time(110)));
        assert_eq!(progress.until(NODE, Time(100), WAIT), None);
        assert_eq!(progress.until(NODE, Time(115), WAIT), Some(Time(130)));
        progress.answered(NODE, Time(125), None);
        assert_eq!(
            progress.until(NODE, Time(115), WAIT),
            Some(Time(135)),
            "an answer to a repeated request overtakes none"
        );
    }
}
