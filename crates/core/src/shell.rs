//! What every service of a node needs: its identity, the members, a way to send, and time as an
//! argument.

use crate::backoff::Backoff;
use crate::config::{Config, Pace};
use crate::continuation::Continuation;
use crate::effect::{Effect, Effects, Reply, Source};
use crate::event::Event;
use crate::executor::At;
use crate::global::Memory;
use crate::limits::RESEND_UNHURRIED;
use crate::patience::{Awaited, Patience};
use crate::progress::Progress;
use crate::time::Time;
use crate::timers::{Timer, Timers};
use core::net::SocketAddr;
use core::time::Duration;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Health, Manner, Member, MemberView, Message, Refusal};
use pagemesh_wire::{
    ClusterId, MappingId, NodeId, NodeSet, PageIndex, Program, RequestId, SegmentId, Ticket,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The identity of a node, its members, its timers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Shell {
    pub(crate) config: Config,
    /// This node's number; [`NodeId::NONE`] until admitted.
    pub(crate) me: NodeId,
    pub(crate) cluster: ClusterId,
    pub(crate) view: MemberView,
    /// The living members, this node included.
    pub(crate) alive: NodeSet,
    /// The version in which the cluster speaks: the newest that all members speak.
    #[serde(default = "former")]
    pub(crate) spoken: u8,
    pub(crate) timers: Timers,
    last_request: RequestId,
    /// Estimates of how long answers take.
    patience: Patience,
    /// The latest answers of other nodes.
    #[serde(default)]
    pub(crate) progress: Progress,
    /// Budgets, and where pages may go.
    pub(crate) memory: Memory,
    /// Continuations to run before the present input is finished; empty between inputs.
    #[serde(skip)]
    pub(crate) ready: VecDeque<Continuation>,
    /// While the services learn that another node coordinates: the coordinator before.
    #[serde(skip)]
    pub(crate) former_coordinator: Option<NodeId>,
}

/// What a cluster speaks of which nobody says what it speaks.
fn former() -> u8 {
    Program::SILENT.speaks.newest
}

impl Shell {
    pub(crate) fn new(config: Config) -> Self {
        let memory = Memory::new(config.incarnation);
        Self {
            spoken: config.program.speaks.oldest,
            config,
            memory,
            me: NodeId::NONE,
            cluster: ClusterId(0),
            view: MemberView::default(),
            alive: NodeSet::EMPTY,
            timers: Timers::default(),
            last_request: RequestId::NONE,
            patience: Patience::default(),
            progress: Progress::default(),
            ready: VecDeque::new(),
            former_coordinator: None,
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
        let here = self.config.program.speaks;
        let both = view.speaks().and_then(|all| all.common(here));
        self.spoken = both.map_or(here.oldest, |both| both.newest);
        self.view = view;
    }

    /// Members other than this one that are alive.
    pub(crate) fn peers(&self) -> NodeSet {
        self.alive.without(&NodeSet::only(self.me))
    }
}

/// The context of one call of [`crate::Node::handle`]: the shell, the time, and the effects.
pub(crate) struct Cx<'a> {
    pub(crate) now: Time,
    pub(crate) shell: &'a mut Shell,
    pub(crate) effects: &'a mut Effects,
}

impl Cx<'_> {
    pub(crate) fn me(&self) -> NodeId {
        self.shell.me
    }

    /// The coordinator, as far as this node knows.
    pub(crate) fn coordinator(&self) -> NodeId {
        self.shell.view.term.coordinator()
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

    /// Whether the node was a member and is none any more, or is a life whose number this node was
    /// told to forget ([`NodeId::NONE`]). A node that is neither alive nor gone is one that this
    /// node has not heard of yet.
    pub(crate) fn is_gone(&self, node: NodeId) -> bool {
        let members = &self.shell.view.members;
        let ended = |member: &Member| member.id == node && member.health != Health::Alive;
        node == NodeId::NONE || members.iter().any(ended)
    }

    /// The acting home of a segment: its home, or the coordinator if the home is gone.
    pub(crate) fn home(&self, segment: SegmentId) -> NodeId {
        let home = segment.home();
        if self.is_gone(home) {
            self.coordinator()
        } else {
            home
        }
    }

    /// Whether this node is the acting home of a segment because its home is gone. A leaving home
    /// passes what it owns to this node even before.
    pub(crate) fn answers_for(&self, segment: SegmentId) -> bool {
        segment.home() != self.me() && self.home(segment) == self.me()
    }

    /// The node that gets what this node owns of a segment when it leaves: the acting home, or the
    /// coordinator if this node is the home.
    pub(crate) fn successor(&self, segment: SegmentId) -> NodeId {
        let home = self.home(segment);
        if home == self.me() {
            self.coordinator()
        } else {
            home
        }
    }

    /// Whether a node that is gone was the acting home of a segment until now.
    pub(crate) fn was_home(&self, node: NodeId, segment: SegmentId) -> bool {
        let home = segment.home();
        node == home || self.shell.former_coordinator == Some(node) && self.is_gone(home)
    }

    /// Whether any member was ever declared dead or revoked.
    pub(crate) fn somebody_died(&self) -> bool {
        let members = &self.shell.view.members;
        let forgotten = self.shell.view.deaths > 0;
        forgotten
            || members.iter().any(|member| {
                matches!(
                    member.health,
                    Health::Dead | Health::Revoked | Health::Forgotten
                )
            })
    }

    /// Whether the node left gracefully.
    pub(crate) fn has_left(&self, node: NodeId) -> bool {
        let members = &self.shell.view.members;
        members
            .iter()
            .any(|member| member.id == node && member.health == Health::Left)
    }

    /// Runs a continuation before the present input is finished.
    pub(crate) fn ready(&mut self, next: Continuation) {
        self.shell.ready.push_back(next);
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn emit(&mut self, event: Event) {
        self.effects.emit(event);
    }

    /// Fails an access that can never be served.
    pub(crate) fn fail(&mut self, mapping: MappingId, (segment, page): At, why: Refusal) {
        self.emit(Event::Failed { segment, page });
        self.push(Effect::Fail {
            mapping,
            segment,
            page,
            why,
        });
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

    /// The newest request of this node; later ones have greater numbers.
    pub(crate) fn last_request(&self) -> RequestId {
        self.shell.last_request
    }

    /// Starts a schedule of resends and arms its timer.
    pub(crate) fn backoff(&mut self, timer: Timer) -> Backoff {
        self.backoff_from(self.pace().resend_first, timer)
    }

    /// As [`Cx::backoff`], for requests that are mostly answered soon; the first wait is what
    /// [`Cx::answered`] has learnt.
    pub(crate) fn prompt_backoff(&mut self, awaited: Awaited, timer: Timer) -> Backoff {
        let wait = self.shell.patience.first_wait(awaited, self.pace());
        self.backoff_from(wait, timer)
    }

    fn backoff_from(&mut self, wait: Duration, timer: Timer) -> Backoff {
        let backoff = Backoff::start(self.now, wait);
        self.arm(backoff.due(), timer);
        backoff
    }

    /// An answer came to a request that was first sent at `since` and resent as `backoff` says.
    pub(crate) fn answered(&mut self, awaited: Awaited, since: Time, backoff: &Backoff) {
        let again = Some(backoff.said()).filter(|said| *said > since);
        let took = (self.now - since, again.map(|said| self.now - said));
        let pace = &self.shell.config.pace;
        self.shell.patience.answered(awaited, took, pace);
    }

    /// A node answered a request, which is resent as `backoff` says.
    pub(crate) fn progressed(&mut self, node: NodeId, backoff: &Backoff) {
        let pace = self.pace();
        // Where the first wait is fixed nothing is learnt, because explorations would never end.
        if pace.resend_soonest < pace.resend_first {
            let sent = backoff.said_once();
            self.shell.progress.answered(node, self.now, sent);
        }
    }

    /// Another node answered a request to this one, which has left it to that.
    pub(crate) fn progressed_elsewhere(&mut self, node: NodeId, backoff: &Backoff) {
        let pace = self.pace();
        if pace.resend_soonest < pace.resend_first {
            let sent = backoff.said_once();
            self.shell.progress.answered_elsewhere(node, self.now, sent);
        }
    }

    /// As [`Cx::fire`], for a request to these nodes: while each of them goes on answering others
    /// that were sent no later, it is not due.
    pub(crate) fn fire_to(
        &mut self,
        nodes: impl IntoIterator<Item = NodeId>,
        backoff: &mut Backoff,
        timer: Timer,
    ) -> bool {
        if self.now < backoff.due() {
            return false;
        }
        let (said, wait) = (backoff.said(), backoff.wait());
        let until = |node| self.shell.progress.until(node, said, wait);
        // A node that is silent is asked again.
        let until: Option<Vec<Time>> = nodes.into_iter().map(until).collect();
        match until.and_then(|until| until.into_iter().min()) {
            Some(later) if later > self.now => {
                backoff.prolong(later);
                self.arm(later, timer);
                false
            }
            _ => self.fire(backoff, timer),
        }
    }

    /// As [`Cx::backoff`], for a request for which no thread waits.
    pub(crate) fn unhurried_backoff(&mut self, timer: Timer) -> Backoff {
        let pace = self.pace();
        // Where the first wait is fixed, it is short, because explorations would never end.
        let fixed = pace.resend_soonest >= pace.resend_first;
        let factor = if fixed { 1 } else { RESEND_UNHURRIED };
        self.backoff_from(self.pace().resend_first * factor, timer)
    }

    /// A thread waits for what is resent as `backoff` says.
    pub(crate) fn hurry(&mut self, backoff: &mut Backoff, timer: Timer) {
        let before = backoff.due();
        backoff.hurry(self.now, self.pace().resend_first);
        if backoff.due() != before {
            self.shell.timers.disarm(before, timer);
            self.arm(backoff.due(), timer);
        }
    }

    /// Ends a schedule of resends, because the answer has come.
    pub(crate) fn end(&mut self, backoff: &Backoff, timer: Timer) {
        self.shell.timers.disarm(backoff.due(), timer);
    }

    /// Whether a resend is due now; if so, arms the next timer.
    pub(crate) fn fire(&mut self, backoff: &mut Backoff, timer: Timer) -> bool {
        let due = backoff.fire(self.now, &self.shell.config.pace);
        if due {
            self.emit(Event::Resent {});
            self.arm(backoff.due(), timer);
        }
        due
    }

    /// Resends now what is resent as `backoff` says, and arms the next timer.
    pub(crate) fn repeat(&mut self, backoff: &mut Backoff, timer: Timer) {
        self.end(backoff, timer);
        backoff.repeat(self.now, &self.shell.config.pace);
        self.emit(Event::Resent {});
        self.arm(backoff.due(), timer);
    }

    /// Sends a message to a member; drops it if the member is gone.
    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        self.send_page(to, message, None);
    }

    /// Answers a datagram whose sender may be no member, where it came from and in its version.
    pub(crate) fn answer_sender(&mut self, source: SocketAddr, heard: &Header, message: Message) {
        let header = Header {
            version: heard.version,
            ..self.header(heard.from)
        };
        self.push(Effect::Send {
            address: source,
            header,
            message: Box::new(message),
            page: None,
        });
    }

    /// Sends a message to a host that may be no member, in this version of the protocol.
    pub(crate) fn send_to_host(&mut self, (address, version): (SocketAddr, u8), message: Message) {
        let header = Header {
            version,
            ..self.header(NodeId::NONE)
        };
        self.push(Effect::Send {
            address,
            header,
            message: Box::new(message),
            page: None,
        });
    }

    /// Sends a message to a member, with a page behind it.
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
        let header = self.header_of(to, &message);
        self.push(Effect::Send {
            address,
            header,
            message: Box::new(message),
            page,
        });
    }

    /// The address of a living member.
    pub(crate) fn address_of(&self, node: NodeId) -> Option<SocketAddr> {
        let mut members = self.shell.view.members.iter();
        let member = members.find(|member| member.id == node)?;
        (member.health == Health::Alive).then_some(member.address)
    }

    /// The header of a datagram with this message to `to`.
    pub(crate) fn header_of(&self, to: NodeId, message: &Message) -> Header {
        let header = self.header(to);
        let manner = message.manner();
        if manner == Manner::Spoken {
            return header;
        }
        let here = self.shell.config.program.speaks;
        let theirs = self.shell.view.member(to).map(|member| member.program);
        let both = theirs.and_then(|program| program.speaks.common(here));
        let version = match manner {
            Manner::Newest => both.map_or(header.version, |both| both.newest),
            _ => both.unwrap_or(here).oldest,
        };
        Header { version, ..header }
    }

    /// The header of a datagram to `to`, in the version that the cluster speaks.
    pub(crate) fn header(&self, to: NodeId) -> Header {
        Header {
            version: self.shell.spoken,
            cluster: self.shell.cluster,
            from: self.me(),
            to,
            incarnation: self.shell.config.incarnation,
            body: 0,
            term: self.shell.view.term,
            generation: self.shell.view.generation as u16,
        }
    }
}

#[cfg(test)]
impl Shell {
    /// For tests: one of four living members.
    pub(crate) fn of_four(me: NodeId) -> Self {
        use crate::config::Start;
        use pagemesh_wire::peer::{Health, Member};
        use pagemesh_wire::{ClusterId, Incarnation, PublicKey};

        let address = core::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let mut shell = Self::new(Config::plain(
            "me",
            address,
            Incarnation(1),
            Start::Found(ClusterId(1)),
        ));
        shell.me = me;
        let members = (1..=4).map(|id| Member {
            id: NodeId(id),
            name: String::new(),
            address,
            incarnation: Incarnation(id.into()),
            key: PublicKey::NONE,
            health: Health::Alive,
            program: shell.config.program,
        });
        let members = members.collect();
        shell.set_view(MemberView {
            epoch: 1,
            members,
            term: pagemesh_wire::Term::FIRST,
            standby: NodeId::NONE,
            generation: 0,
            deaths: 0,
        });
        shell
    }
}
