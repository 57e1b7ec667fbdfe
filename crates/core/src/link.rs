//! Input from the network: datagrams are checked first, then dispatched to their service.

use crate::caller::Caller;
use crate::event::Event;
use crate::membership::{SentBy, Standing, tells_programs};
use crate::services::Services;
use crate::shell::Cx;
use core::net::SocketAddr;
use pagemesh_wire::header::{Header, HeaderError};
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{self, Addressee, Call, DecodeError, Message, PassAckMany, Subject};
use pagemesh_wire::{NodeId, PublicKey};

/// The source address of a datagram and the public key of its seal.
pub(crate) type Sender = (SocketAddr, PublicKey);

impl Services {
    /// A datagram arrived. Nothing in it is trusted before it is checked.
    pub(crate) fn datagram(
        &mut self,
        cx: &mut Cx<'_>,
        source: SocketAddr,
        key: PublicKey,
        bytes: &[u8],
    ) {
        let speaks = cx.shell.config.program.speaks;
        match Message::decode(bytes) {
            Ok((header, message, _)) if speaks.contains(header.version) => {
                self.admit(cx, (source, key), header, message);
            }
            Ok((Header { version, .. }, ..))
            | Err(DecodeError::Header(HeaderError::Version(version))) => {
                cx.emit(Event::ForeignVersion { source, version });
                self.membership.foreign(cx, source, bytes);
            }
            Err(_) => match Notice::decode(bytes) {
                Some(notice) => self.membership.noticed(cx, notice),
                None => cx.emit(Event::Malformed {}),
            },
        }
    }

    fn admit(&mut self, cx: &mut Cx<'_>, from: Sender, header: Header, message: Message) {
        let coordinates = self.coordinator.is_some();
        match message {
            Message::Join(join) => self.join(cx, from, header.version, &join),
            Message::Welcome(welcome) => {
                let asked = matches!(self.membership.standing, Standing::Joining(_))
                    && welcome.incarnation == cx.shell.config.incarnation
                    && welcome.node.is_valid();
                if asked {
                    self.membership.admitted(cx, welcome);
                    let steps = self.rejoin.open_again(cx);
                    self.follow(cx, steps);
                    self.finish_rejoin(cx);
                }
            }
            Message::Unwelcome { incarnation, why } => {
                let standing = &self.membership.standing;
                let joining = matches!(standing, Standing::Joining(_));
                let asked = (joining || *standing == Standing::Resuming)
                    && incarnation == cx.shell.config.incarnation;
                if asked && joining && self.rejoin.asks_as_another(cx, &why) {
                    self.join_due(cx);
                } else if asked {
                    self.resumption = None;
                    self.membership.out(cx, why);
                    self.rejoin.end(cx, &self.mappings);
                }
            }
            Message::Resume(resume) => {
                self.membership
                    .asked_to_resume(cx, from, &header, &resume, coordinates);
            }
            Message::Resumed(resumed) => self.promised_to_resume(cx, from, &header, resumed),
            Message::Redirect { incarnation, to } => {
                if incarnation == cx.shell.config.incarnation {
                    self.membership.redirected(cx, to);
                }
            }
            message => {
                let said = (&header, &message);
                let by = self.membership.sender(cx, coordinates, from, said);
                if by == SentBy::Successor {
                    self.superseded(cx, header.term);
                }
                if by != SentBy::Member {
                    cx.emit(Event::Stranger {});
                } else if self.membership.is_outdated(cx, &header, &message) {
                    cx.emit(Event::Stale {});
                } else if !comes_too_early(cx, &header, &message) {
                    self.message(cx, header.from, message);
                }
            }
        }
    }

    pub(crate) fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        let is_last = matches!(message, Message::Reply { .. } | Message::Expelled);
        if self.leaving.is_empty() && !is_last {
            // A subject or call taken now would leave the cluster with this node.
            return cx.emit(Event::Stale {});
        }
        let pace = &cx.shell.config.pace;
        match &mut self.coordinator {
            Some(coordinator) => coordinator.heard(from, cx.now),
            None => self.membership.doubt.came(cx.now, pace, &message),
        }
        match message {
            Message::PassAckMany(many) if many.taken.len() > PassAckMany::LIMIT => {
                cx.emit(Event::Malformed {});
            }
            // Each is handled like one that came alone.
            Message::PassAckMany(many) => {
                let acks = many.each();
                for ack in acks.filter(|ack| matches!(ack.subject, Subject::Page { .. })) {
                    self.deliver(cx, from, Message::PassAck(ack));
                }
            }
            message => self.deliver(cx, from, message),
        }
    }

    /// Gives a message to what it is for. Only the coordinator may have to answer for a segment that
    /// it never opened, when the home is gone.
    fn deliver(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        let addressee = message.addressee();
        let segment = match addressee {
            Addressee::Subject(subject) => subject.segment(),
            Addressee::Segment(segment) => segment,
            Addressee::Node => return self.control(cx, from, message),
        };
        let takes = matches!(
            message,
            Message::Pass(_) | Message::Grant(_) | Message::PolicyPage(_)
        );
        if takes || cx.answers_for(segment) {
            self.adopt(segment);
        }
        let page = match addressee {
            Addressee::Subject(Subject::Page { page, .. }) => Some(page),
            _ => None,
        };
        let known = self.segments.get_mut(&segment);
        let known = known.filter(|segment| page.is_none_or(|page| segment.has(page)));
        if known.is_some_and(|segment| self.trapping.delays(cx, segment)) {
            return self.trapping.wait_for_frames(cx, from, message);
        }
        if let Addressee::Subject(Subject::Lock(key)) = addressee {
            let about = (key, self.membership.overdue(cx));
            return self
                .locks
                .message(cx, &mut self.segments, from, about, message);
        }
        self.segments.message(cx, from, (segment, page), message);
    }

    fn control(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        match message {
            message @ (Message::Put(_)
            | Message::Global(_)
            | Message::SharedPage(_)
            | Message::SharedPut(_)
            | Message::Forward(_)) => self.global_message(cx, from, message),
            Message::Call { call, floor, body } => {
                let caller = Caller { node: from, call };
                if self.calls.admit(cx, caller, floor, &body) {
                    self.execute(cx, caller, body);
                }
            }
            Message::Reply { call, body } => self.replied(cx, from, call, body),
            Message::CancelCall { call } => {
                let caller = Caller { node: from, call };
                self.forget_caller(caller);
                self.calls.cancelled(cx, caller);
            }
            Message::HaveReply { call } => {
                self.calls.acknowledged(Caller { node: from, call });
            }
            Message::Heartbeat { epoch: known } => {
                let epoch = cx.shell.view.epoch;
                cx.send(from, Message::HeartbeatAck { epoch });
                if self.coordinator.is_some() {
                    self.knows_epoch(cx, from, known);
                }
            }
            Message::HeartbeatAck { .. } => self.membership.heard(cx, from),
            Message::Signs { epoch, sent, of } => self.signs_came(cx, from, (epoch, sent), &of),
            Message::SignsHeard { sent, of } => self.membership.signs_heard(cx, from, sent, &of),
            Message::Expelled => self.expelled(cx),
            Message::Runs { epoch, program } => self.told_program(cx, from, epoch, program),
            other => unreachable!("handled before: {other:?}"),
        }
    }
}

/// Whether a new coordinator calls, of which this node has not heard yet: it will repeat the call.
///
/// Where a store elects the coordinator, whoever has heard of it says nothing that programs may
/// notice to those that have not: it will be repeated. The new coordinator may have declared a
/// member dead that has answered its former one a moment ago, and is not in doubt
/// ([`Doubt`](crate::membership::Doubt)); so nothing that happened after that death gets there
/// through a member that does not know of it.
fn comes_too_early(cx: &Cx<'_>, header: &Header, message: &Message) -> bool {
    if header.term <= cx.shell.view.term || introduces(message) {
        return false;
    }
    let calls = matches!(message, Message::Call { .. });
    calls && header.from == header.term.coordinator()
        || cx.shell.config.elected && tells_programs(message)
}

/// Whether it tells of a newer coordinator, or belongs to its election.
fn introduces(message: &Message) -> bool {
    match message {
        Message::Call { body, .. } => matches!(body, Call::Members(_) | Call::TakeOver { .. }),
        Message::Reply { body, .. } => matches!(body, peer::Reply::Members(_)),
        _ => false,
    }
}
