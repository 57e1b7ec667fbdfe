//! What every room of a node needs: who we are, who the others are, a way to
//! speak, and a clock that is an argument.

use crate::backoff::Backoff;
use crate::continuation::Continuation;
use crate::effect::{Effect, Effects, Reply, Source};
use crate::event::Event;
use crate::node::{Config, Pace};
use crate::patience::{Awaited, Patience};
use crate::time::Time;
use crate::timers::{Timer, Timers};
use core::net::SocketAddr;
use core::time::Duration;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Health, MemberView, Message, Refusal};
use pagemesh_wire::{ClusterId, NodeId, NodeSet, PageIndex, RequestId, SegmentId, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The identity of a node, its members, its timers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Shell {
    pub(crate) config: Config,
    /// [`NodeId::NONE`] until admitted.
    pub(crate) me: NodeId,
    pub(crate) cluster: ClusterId,
    pub(crate) view: MemberView,
    /// The living members, this node included.
    pub(crate) alive: NodeSet,
    pub(crate) timers: Timers,
    last_request: RequestId,
    /// How long to wait for answers.
    patience: Patience,
    /// What may go on before the present input is done; empty between inputs.
    #[serde(skip)]
    pub(crate) ready: VecDeque<Continuation>,
}

impl Shell {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            me: NodeId::NONE,
            cluster: ClusterId(0),
            view: MemberView::default(),
            alive: NodeSet::EMPTY,
            timers: Timers::default(),
            last_request: RequestId::NONE,
            patience: Patience::default(),
            ready: VecDeque::new(),
        }
    }

    /// Replaces the member view.
    pub(crate) fn set_view(&mut self, view: MemberView) {
        self.alive = view
            .members
            .iter()
            .filter(|member| member.health == Health::Alive)
            .map(|member| member.id)
            .collect();
        self.view = view;
    }

    /// Members other than this one that are alive.
    pub(crate) fn peers(&self) -> NodeSet {
        self.alive.without(NodeSet::only(self.me))
    }
}

/// One call of [`crate::Node::handle`]: the shell, the time, and what to do.
pub(crate) struct Cx<'a> {
    pub(crate) now: Time,
    pub(crate) shell: &'a mut Shell,
    pub(crate) effects: &'a mut Effects,
}

impl Cx<'_> {
    pub(crate) fn me(&self) -> NodeId {
        self.shell.me
    }

    pub(crate) fn pace(&self) -> &Pace {
        &self.shell.config.pace
    }

    pub(crate) fn checks_races(&self) -> bool {
        self.shell.config.check_races
    }

    pub(crate) fn is_alive(&self, node: NodeId) -> bool {
        self.shell.alive.contains(node)
    }

    /// Whether the node was a member and is none any more. A node that is
    /// neither alive nor gone is one we have not heard of yet.
    pub(crate) fn is_gone(&self, node: NodeId) -> bool {
        let members = &self.shell.view.members;
        members
            .iter()
            .any(|member| member.id == node && member.health != Health::Alive)
    }

    /// Who answers for a segment: its home, and the coordinator when that is gone.
    pub(crate) fn home(&self, segment: SegmentId) -> NodeId {
        let home = segment.home();
        if self.is_gone(home) {
            NodeId::COORDINATOR
        } else {
            home
        }
    }

    /// Who gets what this node owns of a segment when it leaves: the acting home,
    /// and the coordinator if this node is the home.
    pub(crate) fn heir(&self, segment: SegmentId) -> NodeId {
        let home = self.home(segment);
        if home == self.me() {
            NodeId::COORDINATOR
        } else {
            home
        }
    }

    /// Whether any member ever went without saying good-bye.
    pub(crate) fn somebody_died(&self) -> bool {
        let members = &self.shell.view.members;
        members.iter().any(|member| {
            matches!(
                member.health,
                Health::Dead | Health::Revoked | Health::Forgotten
            )
        })
    }

    /// Whether the node left in order.
    pub(crate) fn has_left(&self, node: NodeId) -> bool {
        let members = &self.shell.view.members;
        members
            .iter()
            .any(|member| member.id == node && member.health == Health::Left)
    }

    /// Lets something go on before the present input is done.
    pub(crate) fn ready(&mut self, next: Continuation) {
        self.shell.ready.push_back(next);
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn emit(&mut self, event: Event) {
        self.effects.emit(event);
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, reply: Reply) {
        let reply = Box::new(reply);
        self.push(Effect::Reply { ticket, reply });
    }

    pub(crate) fn refuse(&mut self, ticket: Ticket, why: Refusal) {
        self.reply(ticket, Reply::Refused(why));
    }

    pub(crate) fn arm(&mut self, at: Time, timer: Timer) {
        self.shell.timers.arm(at, timer);
    }

    pub(crate) fn next_request(&mut self) -> RequestId {
        self.shell.last_request.0 += 1;
        self.shell.last_request
    }

    /// Starts a schedule of repetitions and the timer that goes with it.
    pub(crate) fn backoff(&mut self, timer: Timer) -> Backoff {
        self.backoff_from(self.pace().resend_first, timer)
    }

    /// The same for what is mostly answered soon: how soon, [`Cx::answered`] has told.
    pub(crate) fn prompt_backoff(&mut self, awaited: Awaited, timer: Timer) -> Backoff {
        let wait = self.shell.patience.first_wait(awaited, self.pace());
        self.backoff_from(wait, timer)
    }

    fn backoff_from(&mut self, wait: Duration, timer: Timer) -> Backoff {
        let backoff = Backoff::start(self.now, wait);
        self.arm(backoff.due(), timer);
        backoff
    }

    /// What was asked for at `since`, and repeated as `backoff` says, has come.
    pub(crate) fn answered(&mut self, awaited: Awaited, since: Time, backoff: &Backoff) {
        let again = Some(backoff.said()).filter(|said| *said > since);
        let took = (self.now - since, again.map(|said| self.now - said));
        let pace = &self.shell.config.pace;
        self.shell.patience.answered(awaited, took, pace);
    }

    /// Ends a schedule of repetitions: what it waited for has come.
    pub(crate) fn end(&mut self, backoff: &Backoff, timer: Timer) {
        self.shell.timers.disarm(backoff.due(), timer);
    }

    /// Whether `backoff` is due now; if so its next timer is set.
    pub(crate) fn fire(&mut self, backoff: &mut Backoff, timer: Timer) -> bool {
        let due = backoff.fire(self.now, &self.shell.config.pace);
        if due {
            self.emit(Event::Resent {});
            self.arm(backoff.due(), timer);
        }
        due
    }

    /// Says something to a member. Members that are gone hear nothing.
    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        self.send_page(to, message, None);
    }

    /// Says something to a member, with a page behind it.
    pub(crate) fn send_page(
        &mut self,
        to: NodeId,
        message: Message,
        page: Option<(SegmentId, PageIndex, Source)>,
    ) {
        assert_ne!(
            to,
            self.me(),
            "a node does not write to itself: {message:?}"
        );
        assert_eq!(
            message.carries_page(),
            page.is_some(),
            "page goes with {message:?}"
        );
        let Some(address) = self.address_of(to) else {
            return;
        };
        let header = self.header(to);
        self.push(Effect::Send {
            address,
            header,
            message: Box::new(message),
            page,
        });
    }

    /// Where a living member listens.
    pub(crate) fn address_of(&self, node: NodeId) -> Option<SocketAddr> {
        let mut members = self.shell.view.members.iter();
        let member = members.find(|member| member.id == node)?;
        (member.health == Health::Alive).then_some(member.address)
    }

    /// The header of a datagram to `to`.
    pub(crate) fn header(&self, to: NodeId) -> Header {
        Header {
            cluster: self.shell.cluster,
            from: self.me(),
            to,
            incarnation: self.shell.config.incarnation,
            body: 0,
        }
    }
}

#[cfg(test)]
impl Shell {
    /// For tests: one of four living members.
    pub(crate) fn of_four(me: NodeId) -> Self {
        use crate::node::Start;
        use pagemesh_wire::peer::{Health, Member};
        use pagemesh_wire::{ClusterId, Incarnation, PublicKey};

        let address = core::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let mut shell = Self::new(Config {
            name: "me".into(),
            address,
            incarnation: Incarnation(1),
            key: PublicKey::NONE,
            start: Start::Found(ClusterId(1)),
            pace: Pace::default(),
            check_races: false,
            quotas: crate::Quotas::default(),
        });
        shell.me = me;
        let members = (1..=4).map(|id| Member {
            id: NodeId(id),
            name: String::new(),
            address,
            incarnation: Incarnation(id.into()),
            key: PublicKey::NONE,
            health: Health::Alive,
        });
        shell.set_view(MemberView {
            epoch: 1,
            members: members.collect(),
        });
        shell
    }
}
