//! The part of a node that a message is for.

use super::{Message, Subject};
use crate::SegmentId;

/// The part of a node that a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressee {
    /// A page or the token of a lock.
    Subject(Subject),
    /// The policy of a segment.
    Segment(SegmentId),
    /// The node itself; or several pages, if the message is for many.
    Node,
}

impl Message {
    /// The part of the receiver that the message is for.
    #[must_use]
    pub fn addressee(&self) -> Addressee {
        let page = |segment, page| Addressee::Subject(Subject::Page { segment, page });
        match self {
            Self::Ask(ask) => Addressee::Subject(ask.subject),
            Self::Acquire(acquire) => Addressee::Subject(acquire.ask.subject),
            Self::Pass(pass) => Addressee::Subject(pass.subject),
            Self::Grant(grant) => Addressee::Subject(grant.pass.subject),
            Self::PassAck(ack) => Addressee::Subject(ack.subject),
            Self::Locate(locate) => Addressee::Subject(locate.subject),
            Self::Located(located) => Addressee::Subject(located.subject),
            Self::Lost(lost) => Addressee::Subject(lost.subject),
            Self::Regain(regain) => Addressee::Subject(regain.subject),
            Self::Data(data) => page(data.segment, data.page),
            Self::Invalidate(invalidate) => page(invalidate.segment, invalidate.page),
            Self::InvalidateAck(ack) => page(ack.segment, ack.page),
            Self::Served(served) => page(served.segment, served.page),
            Self::AskMany(many) => Addressee::Segment(many.segment),
            Self::SendCopies(copies) => Addressee::Segment(copies.segment),
            Self::Diffs(diffs) => Addressee::Segment(diffs.segment),
            Self::Policy(said) | Self::PolicyPage(said) | Self::PolicyUndelivered(said) => {
                Addressee::Segment(said.segment)
            }
            Self::Got(got) => Addressee::Segment(got.lent.segment),
            Self::DonorReply(reply) => Addressee::Segment(reply.lent().segment),
            Self::Call { .. }
            | Self::Reply { .. }
            | Self::CancelCall { .. }
            | Self::HaveReply { .. }
            | Self::Join(_)
            | Self::Welcome(_)
            | Self::Unwelcome { .. }
            | Self::Redirect { .. }
            | Self::Heartbeat { .. }
            | Self::HeartbeatAck { .. }
            | Self::Expelled
            | Self::Put(_)
            | Self::Global(_)
            | Self::SharedPage(_)
            | Self::SharedPut(_)
            | Self::Forward(_)
            | Self::Resume(_)
            | Self::Resumed(_)
            | Self::Runs { .. }
            | Self::Signs { .. }
            | Self::SignsHeard { .. }
            | Self::PassAckMany(_) => Addressee::Node,
        }
    }
}
