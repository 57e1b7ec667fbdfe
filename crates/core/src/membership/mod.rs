//! Membership of the cluster. The coordinator, which is the first node until another one takes over,
//! admits members, watches them, declares them dead, and tells all others; the data path never
//! waits for it (decisions 9 and 33).

mod changes;
mod coordinator;
mod decisions;
mod doubt;
mod endings;
mod name_check;
mod promises;
mod relays;
mod senders;
mod upgrade;
mod views;

pub(crate) use coordinator::{Coordinator, Verdict};
pub(crate) use doubt::{Doubt, tells_programs};
use pagemesh_sorted::SortedMap;
pub(crate) use promises::taken;
pub(crate) use senders::SentBy;
pub(crate) use upgrade::{Upgrade, knows_programs, with_known_programs};
pub(crate) use views::{ViewNews, follow_view, without_unheard};

use self::relays::Relay;
use crate::backoff::Backoff;
use crate::config::Start;
use crate::effect::Effect;
use crate::event::Event;
use crate::limits::{ASKED, FORSAKEN, JOIN_RETRY};
use crate::names::names_in_message;
use crate::shell::Cx;
use crate::time::Time;
use crate::timers::Timer;
use core::net::SocketAddr;
use core::time::Duration;
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{Health, Join, Member, MemberView, Message, Refusal, Welcome};
use pagemesh_wire::{Incarnation, NodeId, NodeSet, PAGE_SIZE, PublicKey, Term};
use serde::{Deserialize, Serialize};

/// This node's own state of membership.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Standing {
    /// The node has not started.
    Unborn,
    /// The node has asked for admission.
    Joining(Backoff),
    /// The node is about to go on as the coordinator, from its disk.
    Resuming,
    /// The node is a member.
    Member,
    /// The node was refused, was expelled or has left, for this reason.
    Out(Refusal),
}

/// The coordinator has been silent for so long that requests which depend on it alone are refused.
#[derive(Clone, Debug)]
pub(crate) struct CoordinatorSilent {
    /// The length of that silence.
    pub(crate) patience: Duration,
    /// The coordinator and all other nodes that do not answer.
    pub(crate) silent: NodeSet,
}

/// A member's side of membership.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Membership {
    pub(crate) standing: Standing,
    /// When the coordinator was last heard.
    pub(crate) coordinator_heard: Time,
    /// While the coordinator is silent: when each other node last answered, or was first asked.
    echoes: SortedMap<NodeId, Time>,
    /// The address to ask for admission, if not the one that was configured.
    ask: Option<SocketAddr>,
    /// The newest term in which this node has promised to believe no older coordinator, and until
    /// when: a standby that has not taken over by then never will.
    promised: (Term, Time),
    /// When this node last looked for members that count as dead.
    knocked: Time,
    /// Whether this node may have been declared dead without knowing it.
    pub(crate) doubt: Doubt,
    /// The coordinator that goes on from its disk, and in which term, if the promise was given to
    /// such a one: this node does not know it as a member yet.
    resumer: Option<(Term, Incarnation, PublicKey)>,
    /// The generation in which this node was admitted: no datagram from before is for this life.
    born: u64,
    /// The newest generation for which this node has told the numbers that it names.
    told_names: u64,
    /// All lives that had ended when this node was asked which numbers it names.
    forgotten: NodeSet,
    /// What this node says of its program.
    #[serde(default)]
    pub(crate) upgrade: Upgrade,
    /// What this node passes on to others, in a cluster with far numbers.
    #[serde(skip)]
    relay: Relay,
}

impl Membership {
    pub(crate) fn new() -> Self {
        Self {
            standing: Standing::Unborn,
            coordinator_heard: Time::ZERO,
            echoes: SortedMap::new(),
            ask: None,
            promised: (Term::NONE, Time::ZERO),
            knocked: Time::ZERO,
            doubt: Doubt::default(),
            resumer: None,
            born: 0,
            told_names: 0,
            forgotten: NodeSet::EMPTY,
            upgrade: Upgrade::default(),
            relay: Relay::default(),
        }
    }

    /// Starts the node. Returns a coordinator if the node founds a cluster.
    pub(crate) fn start(&mut self, cx: &mut Cx<'_>) -> Option<Coordinator> {
        if self.standing != Standing::Unborn {
            return None;
        }
        match cx.shell.config.start {
            Start::Found(cluster) => {
                let me = NodeId::FIRST;
                let founder = Member {
                    id: me,
                    name: cx.shell.config.name.clone(),
                    address: cx.shell.config.address,
                    incarnation: cx.shell.config.incarnation,
                    key: cx.shell.config.key,
                    health: Health::Alive,
                    program: cx.shell.config.program,
                };
                let view = MemberView {
                    epoch: 1,
                    members: vec![founder],
                    term: Term::FIRST,
                    standby: NodeId::NONE,
                    generation: 0,
                    deaths: 0,
                };
                let incarnation = cx.shell.config.incarnation;
                self.admitted(
                    cx,
                    Welcome {
                        incarnation,
                        node: me,
                        cluster,
                        view,
                    },
                );
                Some(Coordinator::default())
            }
            Start::Join(address) => {
                self.standing = Standing::Joining(cx.backoff(Timer::Join));
                self.say_join(cx, address);
                None
            }
            Start::Resume(_) => None,
        }
    }

    /// Asks for admission: the host at this address as a new node, or the one that was asked before.
    pub(crate) fn ask(&mut self, cx: &mut Cx<'_>, address: Option<SocketAddr>) {
        match address {
            Some(address) => self.join_again(cx, address),
            None => self.join_due(cx),
        }
    }

    fn join_again(&mut self, cx: &mut Cx<'_>, address: SocketAddr) {
        cx.shell.config.start = Start::Join(address);
        self.ask = None;
        self.echoes.clear();
        self.standing = Standing::Joining(Backoff::start(cx.now, JOIN_RETRY));
        cx.arm(cx.now + JOIN_RETRY, Timer::Join);
        self.say_join(cx, address);
    }

    /// A node that is asked for admission speaks other versions than the one it was asked in: this
    /// node asks again in one that both speak, or gives up.
    pub(crate) fn noticed(&mut self, cx: &mut Cx<'_>, notice: Notice) {
        let joining = matches!(self.standing, Standing::Joining(_));
        if !joining || notice.to != cx.shell.config.incarnation {
            return;
        }
        let (cluster, here) = (notice.speaks, cx.shell.config.program.speaks);
        match here.common(cluster) {
            Some(both) => self.ask_in(cx, both.newest),
            None => self.out(cx, Refusal::Versions { cluster, here }),
        }
    }

    /// Asks for admission in another version of the protocol than before.
    fn ask_in(&mut self, cx: &mut Cx<'_>, version: u8) {
        let Start::Join(address) = cx.shell.config.start else {
            return;
        };
        if self.upgrade.asks_in(cx) != version {
            self.upgrade.asks_in = Some(version);
            self.say_join(cx, self.ask.unwrap_or(address));
        }
    }

    /// Asks for admission again.
    fn join_due(&mut self, cx: &mut Cx<'_>) {
        let (Standing::Joining(_), Start::Join(address)) = (&self.standing, &cx.shell.config.start)
        else {
            return;
        };
        let address = self.ask.unwrap_or(*address);
        cx.arm(cx.now + JOIN_RETRY, Timer::Join);
        if cx.shell.config.elected {
            // The coordinator that this host asks may be gone, and its successor does not know of this host.
            cx.push(Effect::Seek);
        }
        self.say_join(cx, address);
    }

    /// The asked node tells the coordinator's address.
    pub(crate) fn redirected(&mut self, cx: &mut Cx<'_>, to: SocketAddr) {
        if matches!(self.standing, Standing::Joining(_)) && self.ask != Some(to) {
            self.ask = Some(to);
            self.say_join(cx, to);
        }
    }

    /// The coordinator's address as told by the node that was asked first.
    pub(crate) fn redirected_to(&self) -> Option<SocketAddr> {
        self.ask
    }

    /// This node is admitted.
    pub(crate) fn admitted(&mut self, cx: &mut Cx<'_>, welcome: Welcome) {
        self.standing = Standing::Member;
        self.upgrade = Upgrade::default();
        self.relay = Relay::default();
        self.coordinator_heard = cx.now;
        self.doubt = Doubt::begin(cx.now);
        cx.shell.me = welcome.node;
        cx.shell.cluster = welcome.cluster;
        self.begin_life(welcome.view.generation);
        cx.shell.set_view(welcome.view);
        cx.emit(Event::Admitted { node: welcome.node });
        let version = cx.shell.spoken;
        cx.emit(Event::Speaks { version });
        if welcome.node != cx.coordinator() || cx.shell.config.may_be_replaced() {
            cx.arm(cx.now, Timer::Heartbeat);
        }
    }

    /// This node is a member from this generation on.
    pub(crate) fn begin_life(&mut self, generation: u64) {
        self.born = generation;
        self.told_names = 0;
        self.forgotten = NodeSet::EMPTY;
    }

    /// Whether this node has not told yet which lives it names in this generation.
    pub(crate) fn has_names_to_tell(&self, generation: u64) -> bool {
        generation > self.told_names
    }

    /// This node tells which lives that have ended in this view it names.
    pub(crate) fn names_told(&mut self, view: &MemberView) {
        let ended = view
            .members
            .iter()
            .filter(|one| one.health != Health::Alive);
        self.told_names = view.generation;
        self.forgotten = self.forgotten.union(&ended.map(|one| one.id).collect());
    }

    /// *INV-number-forgotten*: whether a datagram was sent before its sender had answered which
    /// lives it names, and could bring back a name that this node has forgotten; or was sent before
    /// this life began, and was meant for the last one of this number.
    pub(crate) fn is_outdated(&self, cx: &Cx<'_>, header: &Header, message: &Message) -> bool {
        let earlier = |than: u64| {
            let distance = (than as u16).wrapping_sub(header.generation);
            distance != 0 && distance < 1 << 15
        };
        let mine = cx.shell.view.generation;
        earlier(self.born)
            || earlier(mine) && {
                let named = names_in_message(message);
                named.without(&self.forgotten) != named
            }
    }

    /// The reason why this node serves no requests, if it does not.
    pub(crate) fn not_taking_part(&self, leaving: bool) -> Option<Refusal> {
        match &self.standing {
            Standing::Member => leaving.then_some(Refusal::NotMember),
            Standing::Out(why) => Some(why.clone()),
            Standing::Unborn | Standing::Joining(_) | Standing::Resuming => {
                Some(Refusal::NotYetMember)
            }
        }
    }

    /// This node is no member any more.
    pub(crate) fn out(&mut self, cx: &mut Cx<'_>, why: Refusal) {
        self.standing = Standing::Out(why);
        cx.emit(Event::Expelled {});
    }

    /// Whether the coordinator has been silent for so long that any other member would be declared
    /// dead. The coordinator never is, because it may come back.
    pub(crate) fn coordinator_silent(&self, cx: &Cx<'_>) -> bool {
        cx.me() != cx.coordinator() && cx.now - self.coordinator_heard > cx.pace().dead_after
    }

    /// How long an operation may wait for other nodes, if the coordinator has been silent for as
    /// long: the coordinator, or a node whose death it would have announced, may be gone.
    pub(crate) fn overdue(&self, cx: &Cx<'_>) -> Option<CoordinatorSilent> {
        let patience = patience(cx);
        let silence = cx.now - self.coordinator_heard;
        let silent = self.silent(cx);
        let overdue = CoordinatorSilent { patience, silent };
        (cx.me() != cx.coordinator() && silence > patience).then_some(overdue)
    }

    /// The nodes that would be declared dead if the coordinator were not silent itself. They are
    /// given more time than usual, because they may not know that it is silent.
    pub(crate) fn silent(&self, cx: &Cx<'_>) -> NodeSet {
        if !self.coordinator_silent(cx) {
            return NodeSet::EMPTY;
        }
        let patience = patience(cx);
        let mut silent = NodeSet::only(cx.coordinator());
        for (node, heard) in &self.echoes {
            if cx.is_alive(*node) && cx.now - *heard > patience {
                silent.insert(*node);
            }
        }
        silent
    }

    /// A heartbeat of another node was answered.
    pub(crate) fn heard(&mut self, cx: &Cx<'_>, from: NodeId) {
        if from == cx.coordinator() {
            self.doubt.answered();
            self.follow(cx.now);
        } else if let Some(heard) = self.echoes.get_mut(&from) {
            *heard = cx.now;
        }
    }

    /// This node did not run for so long: that is no silence of others.
    pub(crate) fn was_away(&mut self, now: Time, away: Duration) {
        self.coordinator_heard = now.min(self.coordinator_heard + away);
        for heard in self.echoes.values_mut() {
            *heard = now.min(*heard + away);
        }
    }

    /// The coordinator was heard, or is a new one.
    pub(crate) fn follow(&mut self, now: Time) {
        self.coordinator_heard = now;
        self.echoes.clear();
    }

    /// This node believes no coordinator of a term before this one.
    pub(crate) fn fence(&self, cx: &Cx<'_>) -> Term {
        let (promised, until) = self.promised;
        let known = cx.shell.view.term;
        if cx.now < until {
            known.max(promised)
        } else {
            known
        }
    }

    /// This node is a member from now on, as it believes alone.
    pub(crate) fn admit_self(&mut self, cx: &mut Cx<'_>, node: NodeId, mut view: MemberView) {
        let config = &cx.shell.config;
        view.members.push(Member {
            id: node,
            name: config.name.clone(),
            address: config.address,
            incarnation: config.incarnation,
            key: config.key,
            health: Health::Alive,
            program: config.program,
        });
        self.standing = Standing::Member;
        self.follow(cx.now);
        self.begin_life(view.generation);
        cx.shell.me = node;
        cx.shell.set_view(view);
        cx.emit(Event::Admitted { node });
        cx.arm(cx.now, Timer::Heartbeat);
    }

    /// Sends a heartbeat.
    pub(crate) fn heartbeat(&mut self, cx: &mut Cx<'_>) {
        if self.standing != Standing::Member {
            return;
        }
        let (epoch, coordinator) = (cx.shell.view.epoch, cx.coordinator());
        let coordinates = coordinator == cx.me();
        if !coordinates {
            self.say_alive(cx);
        }
        let silent = self.coordinator_silent(cx);
        if silent {
            for node in asked_now(cx) {
                self.echoes.entry(node).or_insert(cx.now);
                cx.send(node, Message::Heartbeat { epoch });
            }
        }
        if (silent || coordinates) && cx.shell.config.may_be_replaced() {
            self.knock(cx);
        }
        let next = cx.now + cx.pace().heartbeat;
        cx.arm(next, Timer::Heartbeat);
    }
}

impl Membership {
    /// Sends a heartbeat to members that count as dead. If they are alive, this node may be the one
    /// that was cut off: they answer that it is no member, in the term of their coordinator.
    fn knock(&mut self, cx: &mut Cx<'_>) {
        if cx.now - self.knocked < cx.pace().dead_after {
            return;
        }
        let view = &cx.shell.view;
        let taken: Vec<_> = view.living().map(|member| member.address).collect();
        let dead = view
            .members
            .iter()
            .filter(|member| member.health == Health::Dead && !taken.contains(&member.address));
        let dead: Vec<_> = dead.map(|member| (member.id, member.address)).collect();
        if dead.is_empty() {
            // The next one that dies is knocked at once.
            return;
        }
        self.knocked = cx.now;
        let epoch = cx.shell.view.epoch;
        for (node, address) in dead {
            let message = Message::Heartbeat { epoch };
            let header = cx.header_of(node, &message);
            cx.push(Effect::Send {
                address,
                header,
                message: Box::new(message),
                page: None,
            });
        }
    }

    fn say_join(&self, cx: &mut Cx<'_>, address: SocketAddr) {
        let config = &cx.shell.config;
        let join = Join {
            name: config.name.clone(),
            incarnation: config.incarnation,
            page_size: PAGE_SIZE as u32,
            advertise: Some(config.address),
            program: config.program,
        };
        let version = self.upgrade.asks_in(cx);
        cx.send_to_host((address, version), Message::Join(join));
    }
}

/// The other nodes that are asked now for a sign of life, while the coordinator is silent: in a large
/// cluster some at each heartbeat, all in turn, and each node begins with its successor.
fn asked_now(cx: &Cx<'_>) -> Vec<NodeId> {
    let others = cx.shell.peers().without(&NodeSet::only(cx.coordinator()));
    let others: Vec<_> = others.iter().collect();
    let heartbeats = cx.now.0 / cx.pace().heartbeat.as_nanos().max(1) as u64;
    let turn = heartbeats as usize % others.len().max(1) * ASKED;
    let behind = others.iter().filter(|node| **node < cx.me()).count();
    let first = (behind + turn) % others.len().max(1);
    let ring = others.iter().chain(&others).skip(first);
    let mut asked: Vec<_> = ring.take(others.len().min(ASKED)).copied().collect();
    asked.sort_unstable();
    asked
}

/// How long other nodes may be silent while the coordinator is silent, too.
fn patience(cx: &Cx<'_>) -> Duration {
    cx.pace().dead_after * FORSAKEN
}
