//! What comes in from the network: checked first, then brought to its room.

use crate::calls::Caller;
use crate::effect::Effect;
use crate::event::Event;
use crate::membership::Standing;
use crate::policies::Letter;
use crate::rooms::Rooms;
use crate::shell::Cx;
use crate::sync::LockLetter;
use core::net::SocketAddr;
use pagemesh_wire::header::{Header, HeaderError};
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{
    Absent, AskMany, Base, Contents, DecodeError, Grant, Health, Located, Message, News, PassAck,
    PassAckMany, Refusal, Spare, Subject, Told,
};
use pagemesh_wire::{NodeId, PageIndex, PublicKey, SegmentId, SyncKey, VectorTime, Version};

/// The address a datagram came from, and whose seal it bore.
pub(crate) type Sender = (SocketAddr, PublicKey);

impl Rooms {
    /// A datagram arrived. Nothing of it is believed before it is checked.
    pub(crate) fn datagram(
        &mut self,
        cx: &mut Cx<'_>,
        source: SocketAddr,
        key: PublicKey,
        bytes: &[u8],
    ) {
        match Message::decode(bytes) {
            Ok((header, message, _)) => self.admit(cx, (source, key), header, message),
            Err(DecodeError::Header(HeaderError::Version(version))) => {
                cx.emit(Event::ForeignVersion { source, version });
                self.foreign(cx, source, bytes);
            }
            Err(_) => cx.emit(Event::Malformed {}),
        }
    }

    /// A datagram of another version: whoever wants to join is told, and if that
    /// is us, we give up.
    fn foreign(&mut self, cx: &mut Cx<'_>, source: SocketAddr, bytes: &[u8]) {
        if let Some(notice) = Notice::decode(bytes) {
            let joining = matches!(self.membership.standing, Standing::Joining(_));
            if joining && notice.to == cx.shell.config.incarnation {
                let theirs = notice.version;
                self.membership.out(cx, Refusal::Version { theirs });
            }
        } else if self.membership.standing == Standing::Member
            && let Some(notice) = Notice::answering(bytes)
        {
            let address = source;
            cx.push(Effect::SendNotice { address, notice });
        }
    }

    fn admit(&mut self, cx: &mut Cx<'_>, from: Sender, header: Header, message: Message) {
        match message {
            Message::Join(join) => self.join(cx, from, &join),
            Message::Welcome(welcome) => {
                let asked = matches!(self.membership.standing, Standing::Joining(_))
                    && welcome.incarnation == cx.shell.config.incarnation
                    && welcome.node.is_valid();
                if asked {
                    self.membership.admitted(cx, welcome);
                }
            }
            Message::Unwelcome { incarnation, why } => {
                let asked = matches!(self.membership.standing, Standing::Joining(_))
                    && incarnation == cx.shell.config.incarnation;
                if asked {
                    self.membership.out(cx, why);
                }
            }
            Message::Redirect { incarnation, to } => {
                if incarnation == cx.shell.config.incarnation {
                    self.membership.redirected(cx, to);
                }
            }
            message if self.is_member(cx, from, &header) => {
                self.message(cx, header.from, message);
            }
            _ => cx.emit(Event::Stranger {}),
        }
    }

    /// Whether the sender is a living member speaking to us in this cluster. A
    /// member that was given up is told so: it must not go on alone.
    fn is_member(&mut self, cx: &mut Cx<'_>, (source, key): Sender, header: &Header) -> bool {
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
        if health.is_some_and(|health| health != Health::Alive) {
            let header = cx.header(header.from);
            let message = Box::new(Message::Expelled);
            cx.push(Effect::Send {
                address: source,
                header,
                message,
                page: None,
            });
        }
        health == Some(Health::Alive)
    }

    fn message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        if self.has_left() && !matches!(message, Message::Reply { .. } | Message::Expelled) {
            // Whoever takes something now would take it out of the cluster.
            return cx.emit(Event::Stale {});
        }
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.heard(from, cx.now);
        }
        match message {
            Message::Ask(ask) => match ask.subject {
                Subject::Page { segment, page } => {
                    self.letter(cx, from, segment, page, Letter::Ask(ask));
                }
                Subject::Lock(key) => self.lock_letter(cx, from, key, LockLetter::Ask(ask)),
            },
            Message::Pass(pass) => match pass.subject {
                Subject::Page { segment, page } => {
                    self.letter(cx, from, segment, page, Letter::Pass(pass));
                }
                Subject::Lock(key) => self.lock_letter(cx, from, key, LockLetter::Pass(pass)),
            },
            Message::PassAck(ack) => match ack.subject {
                Subject::Page { segment, page } => {
                    self.letter(cx, from, segment, page, Letter::PassAck(ack));
                }
                Subject::Lock(key) => self.lock_letter(cx, from, key, LockLetter::PassAck(ack)),
            },
            Message::Locate(locate) => match locate.subject {
                Subject::Page { segment, page } => {
                    self.letter(cx, from, segment, page, Letter::Locate(locate));
                }
                Subject::Lock(key) => self.lock_letter(cx, from, key, LockLetter::Locate(locate)),
            },
            Message::Located(located) => match located.subject {
                Subject::Page { segment, page } => {
                    self.letter(cx, from, segment, page, Letter::Located(located));
                }
                Subject::Lock(key) => {
                    self.lock_letter(cx, from, key, LockLetter::Located(located));
                }
            },
            Message::Lost(lost) => match lost.subject {
                Subject::Page { segment, page } => {
                    self.letter(cx, from, segment, page, Letter::Lost(lost));
                }
                Subject::Lock(key) => self.lock_letter(cx, from, key, LockLetter::Lost(lost)),
            },
            message => self.page_message(cx, from, message),
        }
    }

    fn page_message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        match message {
            Message::Regain(regain) => {
                if let Subject::Page { segment, page } = regain.subject {
                    self.letter(cx, from, segment, page, Letter::Regain(regain));
                }
            }
            Message::Data(data) => {
                self.letter(cx, from, data.segment, data.page, Letter::Data(data));
            }
            Message::Invalidate(invalidate) => {
                let (segment, page) = (invalidate.segment, invalidate.page);
                self.letter(cx, from, segment, page, Letter::Invalidate(invalidate));
            }
            Message::InvalidateAck(ack) => {
                self.letter(cx, from, ack.segment, ack.page, Letter::InvalidateAck(ack));
            }
            Message::AskMany(many) => self.asked_for_many(cx, from, &many),
            Message::PassAckMany(many) => self.passed_many(cx, from, &many),
            Message::Served(served) => {
                self.letter(
                    cx,
                    from,
                    served.segment,
                    served.page,
                    Letter::Served(served),
                );
            }
            message => self.control(cx, from, message),
        }
    }

    /// Many wishes at once, each like one that came alone.
    fn asked_for_many(&mut self, cx: &mut Cx<'_>, from: NodeId, many: &AskMany) {
        if many.wishes.len() > AskMany::LIMIT {
            return cx.emit(Event::Malformed {});
        }
        for ask in many.each(from) {
            if let Subject::Page { segment, page } = ask.subject {
                self.letter(cx, from, segment, page, Letter::Ask(ask));
            }
        }
    }

    /// Many receipts at once, each like one that came alone.
    fn passed_many(&mut self, cx: &mut Cx<'_>, from: NodeId, many: &PassAckMany) {
        if many.taken.len() > PassAckMany::LIMIT {
            return cx.emit(Event::Malformed {});
        }
        for ack in many.each() {
            if let Subject::Page { segment, page } = ack.subject {
                self.letter(cx, from, segment, page, Letter::PassAck(ack));
            }
        }
    }

    fn control(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        match message {
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
            Message::HeartbeatAck { .. } => self.membership.heard(cx.now, from),
            Message::Expelled => self.expelled(cx),
            message => self.order_message(cx, from, message),
        }
    }

    /// What is said about segments whose locks and barriers keep the order.
    fn order_message(&mut self, cx: &mut Cx<'_>, from: NodeId, message: Message) {
        let segment = match &message {
            Message::Acquire(acquire) => match acquire.ask.subject {
                Subject::Lock(key) => {
                    let letter = LockLetter::Acquire(acquire.clone());
                    return self.lock_letter(cx, from, key, letter);
                }
                Subject::Page { .. } => return cx.emit(Event::Malformed {}),
            },
            Message::Grant(grant) => match grant.pass.subject {
                Subject::Lock(key) => {
                    let letter = LockLetter::Grant(grant.clone());
                    return self.lock_letter(cx, from, key, letter);
                }
                Subject::Page { .. } => return cx.emit(Event::Malformed {}),
            },
            Message::Inquire(inquire) => inquire.segment,
            Message::Told(told) => told.segment,
            Message::Fetch(fetch) => fetch.segment,
            Message::Base(base) => base.segment,
            Message::Want(want) => want.segment,
            Message::Diffs(diffs) => diffs.segment,
            Message::Absent(absent) => absent.segment,
            Message::Full { segment, .. } => *segment,
            other => unreachable!("handled before: {other:?}"),
        };
        if self.answers_for(cx, segment) {
            self.adopt(segment);
        }
        let known = self.segments.get_mut(&segment);
        match known.and_then(|segment| segment.policy.order()) {
            Some(order) => order.message(cx, from, message),
            // This node will hear soon that it is the home: whoever asks will ask again.
            None if segment.home() == cx.me() => cx.emit(Event::Stale {}),
            None => answer_unordered(cx, from, message),
        }
    }

    /// Whether this node is the acting home of a segment, its home being gone. A
    /// home that leaves presses on it what it owns even before.
    fn answers_for(&self, cx: &Cx<'_>, segment: SegmentId) -> bool {
        segment.home() != cx.me() && cx.home(segment) == cx.me()
    }

    /// Something about a page, for the policy of its segment. Segments unknown
    /// here are unknown because this node has forgotten them, or does not know
    /// them yet; whoever asks will ask again. Only the coordinator may have to
    /// answer for a segment it never opened, when the home is gone.
    fn letter(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        segment: SegmentId,
        page: PageIndex,
        letter: Letter,
    ) {
        if self.answers_for(cx, segment) || matches!(letter, Letter::Pass(_)) {
            self.adopt(segment);
        }
        let known = self.segments.get_mut(&segment);
        let known = known.filter(|segment| segment.has(page));
        match known {
            Some(segment) => segment.policy.letter(cx, from, page, letter),
            None => self.answer_blank(cx, from, letter),
        }
    }

    /// Something about a lock. Locks of segments unknown here are not kept; a
    /// late grant of one is acknowledged, so that it is not repeated for ever.
    fn lock_letter(&mut self, cx: &mut Cx<'_>, from: NodeId, key: SyncKey, letter: LockLetter) {
        if self.answers_for(cx, key.segment)
            || matches!(letter, LockLetter::Pass(_) | LockLetter::Grant(_))
        {
            self.adopt(key.segment);
        }
        match letter {
            letter if self.segments.contains_key(&key.segment) => {
                let forsaken = self.membership.forsaken(cx);
                self.locks
                    .message(cx, &mut self.segments, from, (key, forsaken), letter);
            }
            LockLetter::Pass(pass) | LockLetter::Grant(Grant { pass, .. }) => {
                let (subject, version) = (pass.subject, pass.version);
                cx.send(from, Message::PassAck(PassAck { subject, version }));
            }
            LockLetter::Locate(locate) => self.answer_blank(cx, from, Letter::Locate(locate)),
            _ => cx.emit(Event::Stale {}),
        }
    }

    /// Even who knows nothing of a segment must answer a search.
    fn answer_blank(&mut self, cx: &mut Cx<'_>, from: NodeId, letter: Letter) {
        match letter {
            Letter::Locate(locate) if cx.shell.view.epoch >= locate.epoch => {
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
            _ => cx.emit(Event::Stale {}),
        }
    }
}

/// Who knows nothing of a segment, or has forgotten it, says so to whoever asks.
fn answer_unordered(cx: &mut Cx<'_>, from: NodeId, message: Message) {
    match message {
        Message::Inquire(inquire) => cx.send(
            from,
            Message::Told(Told {
                segment: inquire.segment,
                request: inquire.request,
                news: News::default(),
            }),
        ),
        Message::Want(want) => cx.send(
            from,
            Message::Absent(Absent {
                segment: want.segment,
                request: want.request,
                diffs: want.diffs,
                floor: VectorTime::ZERO,
            }),
        ),
        Message::Fetch(fetch) if fetch.reader != cx.me() => cx.send(
            fetch.reader,
            Message::Base(Base {
                segment: fetch.segment,
                page: fetch.page,
                request: fetch.request,
                contents: Contents::None,
                applied: VectorTime::ZERO,
            }),
        ),
        _ => cx.emit(Event::Stale {}),
    }
}
