//! Whether a member may have been declared dead without knowing it, and still got word from other
//! members.
//!
//! The coordinator declares a member dead when it has not heard it for `dead_after`. Until the
//! member learns of that, its programs go on with copies that other nodes do not keep current any
//! more. That is as if they had run before its death, as long as nothing reaches them that happened
//! later. Only members that do not know of the death yet could send such a thing.

use crate::config::Pace;
use crate::time::Time;
use pagemesh_wire::peer::{Call, Message};
use serde::{Deserialize, Serialize};

/// Heartbeats by which an answer of the coordinator may be late. It does not say which heartbeat it
/// answers.
const LATE: u32 = 2;

/// What a member knows about its own life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Doubt {
    /// When the last heartbeat left.
    sent: Time,
    /// When the last heartbeat left that the coordinator answered.
    confirmed: Time,
    /// When a message came that may be younger than this node's death.
    since: Option<Time>,
}

impl Doubt {
    /// This node has just been admitted.
    pub(crate) fn begin(now: Time) -> Self {
        Self {
            sent: now,
            confirmed: now,
            since: None,
        }
    }

    /// A heartbeat leaves for the coordinator.
    pub(crate) fn sent(&mut self, now: Time) {
        self.sent = now;
    }

    /// The coordinator answered a heartbeat, and no dead node gets an answer: all that came before
    /// the heartbeat left is beyond doubt.
    pub(crate) fn answered(&mut self) {
        self.confirmed = self.confirmed.max(self.sent);
        self.since = self.since.filter(|since| *since >= self.sent);
    }

    /// The coordinator has heard the sign of life that this node sent then. Returns whether that is
    /// news.
    pub(crate) fn heard(&mut self, now: Time, sent: Time) -> bool {
        let is_news = sent > self.confirmed && sent <= now;
        if is_news {
            self.confirmed = sent;
            self.since = self.since.filter(|since| *since >= sent);
        }
        is_news
    }

    /// A message of another member arrived.
    pub(crate) fn came(&mut self, now: Time, pace: &Pace, message: &Message) {
        let certain = self.confirmed + pace.dead_after.saturating_sub(pace.heartbeat * LATE);
        if self.since.is_none() && now > certain && tells_programs(message) {
            self.since = Some(now);
        }
    }

    /// Whether programs may have got something that happened after this node's death.
    pub(crate) fn is_justified(&self) -> bool {
        self.since.is_some()
    }
}

/// Whether programs of this node may see, by this message, that something happened elsewhere. What
/// takes rights away, or only asks, tells them nothing, and neither does where idle memory is.
pub(crate) fn tells_programs(message: &Message) -> bool {
    match message {
        Message::Heartbeat { .. }
        | Message::HeartbeatAck { .. }
        | Message::Expelled
        | Message::Runs { .. }
        | Message::Signs { .. }
        | Message::SignsHeard { .. }
        | Message::Ask(_)
        | Message::AskMany(_)
        | Message::SendCopies(_)
        | Message::PassAck(_)
        | Message::PassAckMany(_)
        | Message::Invalidate(_)
        | Message::Locate(_)
        | Message::Lost(_)
        | Message::Global(_)
        | Message::Put(_)
        | Message::CancelCall { .. }
        | Message::HaveReply { .. } => false,
        Message::Call { body, .. } => !matches!(
            body,
            Call::Members(_) | Call::MembersChange(_) | Call::Forget { .. }
        ),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    const NEWS: Message = Message::Reply {
        call: pagemesh_wire::CallId(1),
        body: pagemesh_wire::peer::Reply::Done,
    };

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn news_are_doubtful_once_the_coordinator_may_have_given_this_node_up() {
        let pace = Pace::default();
        let mut doubt = Doubt::begin(at(10));
        doubt.came(at(13), &pace, &NEWS);
        assert!(!doubt.is_justified(), "it is alive for 5 s at least");
        doubt.came(at(15), &pace, &Message::Heartbeat { epoch: 1 });
        assert!(!doubt.is_justified(), "that tells programs nothing");
        doubt.came(at(15), &pace, &NEWS);
        assert!(doubt.is_justified());
    }

    #[test]
    fn an_answer_clears_what_came_before_its_heartbeat_left() {
        let pace = Pace::default();
        let mut doubt = Doubt::begin(at(10));
        doubt.came(at(15), &pace, &NEWS);
        doubt.answered();
        assert!(
            doubt.is_justified(),
            "the answer waited here since the heartbeat of 10 s"
        );
        doubt.sent(at(16));
        doubt.answered();
        assert!(!doubt.is_justified(), "it was alive at 16 s");
        doubt.came(at(19), &pace, &NEWS);
        assert!(!doubt.is_justified());
    }

    #[test]
    fn an_answer_with_the_time_of_its_sign_clears_what_came_before_that() {
        let pace = Pace::default();
        let mut doubt = Doubt::begin(at(10));
        doubt.came(at(15), &pace, &NEWS);
        assert!(doubt.heard(at(16), at(14)) && doubt.is_justified());
        assert!(!doubt.heard(at(16), at(14)), "no news");
        assert!(!doubt.heard(at(16), at(17)), "not sent yet");
        assert!(doubt.heard(at(18), at(16)) && !doubt.is_justified());
        doubt.came(at(19), &pace, &NEWS);
        assert!(!doubt.is_justified(), "it was alive at 16 s");
    }
}
