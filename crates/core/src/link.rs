//! Input from the network: datagrams are checked first, then dispatched to their service.

use crate::caller::Caller;
use crate::effect::Effect;
use crate::event::Event;
use crate::membership::{Standing, tells_programs};
use crate::services::Services;
use crate::shell::Cx;
use crate::trapping::Waiting;
use core::net::SocketAddr;
use pagemesh_wire::header::{Header, HeaderError};
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{
    self, Addressee, Call, DecodeError, Grant, Health, Located, Message, PassAck, PassAckMany,
    Spare, Subject,
};
use pagemesh_wire::{NodeId, PageIndex, PublicKey, SegmentId, SyncKey, Version};

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
                self.foreign(cx, source, bytes);
            }
            Err(_) => match Notice::decode(bytes) {
                Some(notice) => self.membership.noticed(cx, notice),
                None => cx.emit(Event::Malformed {}),
            },
        }
    }

    /// A datagram of a protocol version that is not spoken here. A host that wants to join is sent a
    /// notice.
    fn foreign(&mut self, cx: &mut Cx<'_>, source: SocketAddr, bytes: &[u8]) {
        let speaks = cx.shell.config.program.speaks;
        if let Some(notice) = Notice::decode(bytes) {
            self.membership.noticed(cx, notice);
        } else if self.membership.standing == Standing::Member
            && let Some(notice) = Notice::answering(bytes, speaks)
        {
            let address = source;
            cx.push(Effect::SendNotice { address, notice });
        }
    }

    fn admit(&mut self, cx: &mut Cx<'_>, from: Sender, header: Header, message: Message) {
        match message {
            Message::Join(join) => self.join(cx, from, header.version, &join),
            Message::Welcome(welcome) => {
                let asked = matches!(self.membership.standing, Standing::Joining(_))
                    && welcome.incarnation == cx.shell.config.incarnation
                    && welcome.node.is_valid();
                if asked {
                    self.membership.admitted(cx, welcome);
                    self.open_again(cx);
                }
            }
            Message::Unwelcome { incarnation, why } => {
                let standing = &self.membership.standing;
                let asked = matches!(standing, Standing::Joining(_) | Standing::Resuming)
                    && incarnation == cx.shell.config.incarnation;
                if asked && self.may_ask_as_another(cx, &why) {
                    self.ask_as_another(cx);
                } else if asked {
                    self.resumption = None;
                    self.membership.out(cx, why);
                    self.end_rejoin(cx);
                }
            }
            Message::Resume(resume) => {
                let coordinates = self.coordinator.is_some();
                self.membership
                    .asked_to_resume(cx, from, &header, &resume, coordinates);
            }
            Message::Resumed(resumed) => self.promised_to_resume(cx, from, &header, resumed),
            Message::Redirect { incarnation, to } => {
                if incarnation == cx.shell.config.incarnation {
                    self.membership.redirected(cx, to);
                }
            }
            message if self.is_member(cx, from, &header, &message) => {
                if self.membership.is_outdated(cx, &header, &message) {
                    return cx.emit(Event::Stale {});
                }
                if !comes_too_early(cx, &header, &message) {
                    self.message(cx, header.from, message);
                }
            }
            _ => cx.emit(Event::Stranger {}),
        }
    }

    /// Whether the sender is a living member that addresses this node in this cluster. A member
    /// that was declared dead is told so, because it must not go on alone.
    fn is_member(
        &mut self,
        cx: &mut Cx<'_>,
        (source, key): Sender,
        header: &Header,
        message: &Message,
    ) -> bool {
        if self.membership.standing != Standing::Member
            || header.cluster != cx.shell.cluster
            || header.to != cx.me()
            || header.from == cx.me()
        {
            return false;
        }
        let health = cx
            .shell
            .view
            .members
            .iter()
            .find(|member| {
                (member.id, member.incarnation, member.key)
                    == (header.from, header.incarnation, key)
            })
            .map(|member| member.health);
        let introduces = matches!(
            message,
            Message::Call {
                body: Call::Members(_),
                ..
            }
        );
        if health.is_none() && self.membership.awaits(header, key) {
            // A coordinator sends heartbeats to members only that count as dead: it has gone on
            // without this node's answer.
            if matches!(message, Message::Heartbeat { .. }) {
                self.superseded(cx, header.term);
            }
            return introduces;
        }
        if health.is_none() && self.is_unknown_coordinator(cx, header) {
            self.superseded(cx, header.term);
            return false;
        }
        // A host that an earlier coordinator admitted without anybody else hearing of it; or a life
        // that was over long ago, of which the coordinator has given the number to another one.
        let before = header.term < cx.shell.view.term;
        let knows_all = self.coordinator.is_some() && header.term == cx.shell.view.term;
        let unheard = health.is_none() && header.from.is_valid() && (before || knows_all);
        let alive = health == Some(Health::Alive);
        if !alive && (health.is_some() || unheard) {
            if health.is_some() && header.term > self.membership.fence(cx) {
                self.superseded(cx, header.term);
                return false;
            }
            if *message == Message::Expelled {
                // It is answered by nothing, or two nodes would say so to each other for ever.
                return false;
            }
            cx.answer_sender(source, header, Message::Expelled);
        }
        alive && self.is_of_present_term(cx, header)
    }

    /// Whether a coordinator of a newer term is none of the members: it went on from its disk, and
    /// did so without this node, which had been silent for too long.
    fn is_unknown_coordinator(&self, cx: &Cx<'_>, header: &Header) -> bool {
        header.from == header.term.coordinator()
            && header.from.is_valid()
            && header.term > self.membership.fence(cx)
    }

    /// *INV-fenced*: a datagram of a coordinator of an older term than this node believes in counts
    /// for nothing; and a coordinator that meets a newer term is none any more.
    fn is_of_present_term(&mut self, cx: &mut Cx<'_>, header: &Header) -> bool {
        if self.coordinator.is_some() && header.term > cx.shell.view.term {
            self.superseded(cx, header.term);
            return false;
        }
        let old = header.term < self.membership.fence(cx);
        if old && header.from == header.term.coordinator() {
            cx.emit(Event::OldCoordinator { node: header.from });
            return false;
        }
        true
    }

    pub(crate) fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        if self.has_left() && !matches!(message, Message::Reply { .. } | Message::Expelled) {
            // A subject or call taken now would leave the cluster with this node.
            return cx.emit(Event::Stale {});
        }
        let pace = &cx.shell.config.pace;
        match &mut self.coordinator {
            Some(coordinator) => coordinator.heard(from, cx.now),
            None => self.membership.doubt.came(cx.now, pace, &message),
        }
        match message.addressee() {
            Addressee::Subject(Subject::Page { segment, page }) => {
                self.policy_message(cx, from, (segment, Some(page)), message);
            }
            Addressee::Subject(Subject::Lock(key)) => self.lock_message(cx, from, key, message),
            Addressee::Segment(segment) => {
                self.policy_message(cx, from, (segment, None), message);
            }
            Addressee::Node => self.control(cx, from, message),
        }
    }

    /// Many acknowledgements in one message, each handled like one that came alone.
    fn passed_many(&mut self, cx: &mut Cx<'_>, from: NodeId, many: &PassAckMany) {
        if many.taken.len() > PassAckMany::LIMIT {
            return cx.emit(Event::Malformed {});
        }
        for ack in many.each() {
            if let Subject::Page { segment, page } = ack.subject {
                self.policy_message(cx, from, (segment, Some(page)), Message::PassAck(ack));
            }
        }
    }

    fn control(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        match message {
            message @ (Message::Put(_)
            | Message::Global(_)
            | Message::SharedPage(_)
            | Message::SharedPut(_)
            | Message::Forward(_)) => self.global_message(cx, from, message),
            Message::PassAckMany(many) => self.passed_many(cx, from, &many),
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
            Message::Heartbeat { .. } => {
                let epoch = cx.shell.view.epoch;
                cx.send(from, Message::HeartbeatAck { epoch });
            }
            Message::HeartbeatAck { .. } => self.membership.heard(cx, from),
            Message::Expelled => self.expelled(cx),
            Message::Runs { epoch, program } => self.told_program(cx, from, epoch, program),
            other => unreachable!("handled before: {other:?}"),
        }
    }

    /// Whether this node is the acting home of a segment because its home is gone. A leaving home
    /// passes what it owns to this node even before.
    fn answers_for(&self, cx: &Cx<'_>, segment: SegmentId) -> bool {
        segment.home() != cx.me() && cx.home(segment) == cx.me()
    }

    /// A message for the policy of a segment, perhaps about one page. A segment is unknown here if
    /// this node has forgotten it or has not heard of it yet; requests are resent. Only the
    /// coordinator may have to answer for a segment that it never opened, when the home is gone.
    fn policy_message(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        (segment, page): (SegmentId, Option<PageIndex>),
        mut message: Message,
    ) {
        if self.answers_for(cx, segment)
            || matches!(message, Message::Pass(_) | Message::PolicyPage(_))
        {
            self.adopt(segment);
        }
        let known = self.segments.get_mut(&segment);
        let known = known.filter(|segment| page.is_none_or(|page| segment.has(page)));
        match known {
            Some(segment) => {
                if self.trapping.delays(cx, segment) {
                    return self.wait_for_frames(cx, from, message);
                }
                segment.keep_pages_it_has(&mut message);
                segment.policy.message(cx, from, message);
            }
            None => answer_unknown(cx, from, message),
        }
    }

    /// A message about a segment that is not known to be trapped yet. Contents do not wait: no node has
    /// any of such a segment.
    fn wait_for_frames(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        if message.carries_page() {
            return cx.emit(Event::Stale {});
        }
        self.trapping.wait(Waiting::Message(from, message));
    }

    /// A message about a lock. Locks of unknown segments are not kept; a late grant of one is
    /// acknowledged, so that it is not resent forever.
    fn lock_message(&mut self, cx: &mut Cx<'_>, from: NodeId, key: SyncKey, message: Message) {
        if self.answers_for(cx, key.segment)
            || matches!(message, Message::Pass(_) | Message::Grant(_))
        {
            self.adopt(key.segment);
        }
        let known = self.segments.get_mut(&key.segment);
        if known.is_some_and(|segment| self.trapping.delays(cx, segment)) {
            return self.wait_for_frames(cx, from, message);
        }
        match message {
            message if self.segments.contains_key(&key.segment) => {
                let overdue = self.membership.overdue(cx);
                self.locks
                    .message(cx, &mut self.segments, from, (key, overdue), message);
            }
            Message::Pass(pass) | Message::Grant(Grant { pass, .. }) => {
                let (subject, version) = (pass.subject, pass.version);
                cx.send(from, Message::PassAck(PassAck { subject, version }));
            }
            message => answer_unknown(cx, from, message),
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

/// A node answers a search even if it does not know the segment. A message from a policy is
/// returned to its sender, whose policy knows what that means.
fn answer_unknown(cx: &mut Cx<'_>, from: NodeId, message: Message) {
    match message {
        Message::Locate(locate) if cx.shell.view.epoch >= locate.epoch => {
            let located = Located {
                subject: locate.subject,
                request: locate.request,
                version: Version(0),
                owner: locate.subject.segment().home(),
                spare: Spare::None,
                passing: false,
            };
            cx.send(from, Message::Located(located));
        }
        // This node will soon learn that it is the home; until then the sender resends.
        Message::Policy(said) if said.segment.home() != cx.me() => {
            cx.send(from, Message::PolicyUndelivered(said));
        }
        _ => cx.emit(Event::Stale {}),
    }
}
