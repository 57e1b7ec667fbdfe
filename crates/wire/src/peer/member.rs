//! The members of a cluster.

use crate::{ClusterId, Incarnation, NodeId, NodeSet, Program, PublicKey, Term, Versions};
use core::net::SocketAddr;
use serde::{Deserialize, Serialize};

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its number.
    pub id: NodeId,
    /// Its name, by default the host name.
    pub name: String,
    /// Where its daemon listens.
    pub address: SocketAddr,
    /// Which of its lives this is.
    pub incarnation: Incarnation,
    /// Proves that a datagram is its own, where datagrams are sealed.
    pub key: PublicKey,
    /// Alive, or why not.
    pub health: Health,
    /// Which program its daemon is.
    #[serde(default)]
    pub program: Program,
}

/// Whether a member still counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Health {
    /// Takes part.
    Alive,
    /// Left in order, its pages handed over.
    Left,
    /// Did not answer for too long; pages that only it held are lost.
    Dead,
    /// Put out for good: its key opens nothing any more.
    Revoked,
    /// Was dead, and its loss has been dealt with.
    Forgotten,
}

/// All members, as a coordinator knows them. A larger term wins, and within a term a larger epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemberView {
    /// Rises with every change.
    pub epoch: u64,
    /// Everyone who has a number: the living, and the lives that are over and that somebody may
    /// still name. A number that is not here is free.
    pub members: Vec<Member>,
    /// The term of the coordinator that made the view.
    pub term: Term,
    /// The node that knows all that the coordinator knows, and may take over;
    /// [`NodeId::NONE`] if there is none.
    pub standby: NodeId,
    /// Counts the questions of coordinators which numbers their members still name (decision 34). A
    /// member answers when it learns of a greater one. Every datagram says which one its sender
    /// knew, so that none from before an answer undoes it.
    #[serde(default)]
    pub generation: u64,
    /// How many lives that ended without leaving are no more among the members.
    #[serde(default)]
    pub deaths: u64,
}

impl MemberView {
    /// A member, alive or not.
    #[must_use]
    pub fn member(&self, node: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == node)
    }

    /// All members, found by their numbers: for who looks for many of them.
    #[must_use]
    pub fn numbered(&self) -> Numbered<'_> {
        let most = self.members.iter().map(|member| member.id.0).max();
        let mut numbered = vec![None; most.map_or(0, |most| usize::from(most) + 1)];
        for member in self.members.iter().rev() {
            numbered[usize::from(member.id.0)] = Some(member);
        }
        Numbered(numbered)
    }

    /// The coordinator and a new member, as the beginning of a view that is told in parts.
    #[must_use]
    pub fn introduction(&self, node: NodeId) -> Self {
        let both = [self.term.coordinator(), node];
        let members = self.members.iter();
        Self {
            epoch: 0,
            members: members
                .filter(|one| both.contains(&one.id))
                .cloned()
                .collect(),
            ..*self
        }
    }

    /// The living members.
    pub fn living(&self) -> impl Iterator<Item = &Member> {
        let members = self.members.iter();
        members.filter(|member| member.health == Health::Alive)
    }

    /// The lives that are over, so that their numbers may be given again once nobody names them:
    /// those that left, those that a person has marked as forgotten, and dead ones whose host is
    /// back as another life. Those of revoked keys are remembered for good.
    #[must_use]
    pub fn over(&self) -> NodeSet {
        let is_back = |dead: &Member| self.living().any(|other| other.address == dead.address);
        let over = self.members.iter().filter(|member| match member.health {
            Health::Left | Health::Forgotten => true,
            Health::Dead => is_back(member),
            Health::Alive | Health::Revoked => false,
        });
        over.map(|member| member.id).collect()
    }

    /// The versions of the protocol that all living members speak; none if there are no such, which
    /// no coordinator allows.
    #[must_use]
    pub fn speaks(&self) -> Option<Versions> {
        let mut all = self.living().map(|member| member.program.speaks);
        let first = all.next()?;
        all.try_fold(first, Versions::common)
    }

    /// Which of two views is newer.
    #[must_use]
    pub fn age(&self) -> (Term, u64) {
        (self.term, self.epoch)
    }
}

/// What has changed in a member view, for a cluster whose views are too long for a datagram
/// (decision 53).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ViewChange {
    /// The receiver knows the view of this epoch, in the same term; 0 if it knows who coordinates, and
    /// itself.
    pub since: u64,
    /// The view after the change, of which the members are only those that changed.
    pub view: MemberView,
    /// Members that left the view: their numbers are free.
    pub freed: Vec<NodeId>,
    /// More has changed, and is told next. What is not about single members (standby, generation,
    /// deaths) counts with the last part only.
    pub more: bool,
}

impl ViewChange {
    /// Members in one change at most.
    pub const LIMIT: usize = 100;

    /// The view that a node knows after this change, if it knew `known`.
    #[must_use]
    pub fn applied_to(self, known: &MemberView) -> MemberView {
        let mut view = known.clone();
        view.epoch = self.view.epoch;
        view.members
            .retain(|member| !self.freed.contains(&member.id));
        let mut places = vec![None; usize::from(NodeId::LIMIT)];
        for (at, member) in view.members.iter().enumerate() {
            places[usize::from(member.id.0)] = Some(at);
        }
        for member in self.view.members {
            let place = &mut places[usize::from(member.id.0)];
            match *place {
                Some(at) => view.members[at] = member,
                None => {
                    *place = Some(view.members.len());
                    view.members.push(member);
                }
            }
        }
        if !self.more {
            view.standby = self.view.standby;
            view.generation = self.view.generation;
            view.deaths = self.view.deaths;
        }
        view
    }
}

/// The members of a view, found by their numbers.
#[derive(Clone, Debug)]
pub struct Numbered<'a>(Vec<Option<&'a Member>>);

impl<'a> Numbered<'a> {
    /// The member of this number.
    #[must_use]
    pub fn member(&self, node: NodeId) -> Option<&'a Member> {
        self.0.get(usize::from(node.0)).copied().flatten()
    }
}

/// A host asks to be admitted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Join {
    /// Its name.
    pub name: String,
    /// Its life.
    pub incarnation: Incarnation,
    /// Bytes of its pages; must be [`PAGE_SIZE`].
    pub page_size: u32,
    /// Where it may be reached, if not where the datagram came from.
    pub advertise: Option<SocketAddr>,
    /// Which program its daemon is.
    pub program: Program,
}

/// The coordinator admits a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Welcome {
    /// The life it answers.
    pub incarnation: Incarnation,
    /// The number of the new node.
    pub node: NodeId,
    /// The cluster it is in now.
    pub cluster: ClusterId,
    /// Everyone.
    pub view: MemberView,
}

/// A coordinator whose daemon was ended goes on from its disk, as a node of a new number: it asks a
/// member to believe no older coordinator. The header names the new node, and its term.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resume {
    /// The term of the coordinator that goes on.
    pub term: Term,
    /// The term of the newest view on its disk. A member that is in a later one, which is not among
    /// `tried`, knows another coordinator, and refuses.
    pub known: Term,
    /// Later terms in which former lives coordinated, or tried to.
    pub tried: Vec<Term>,
}

/// A member has promised to believe no coordinator before the one that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resumed {
    /// The life it answers.
    pub incarnation: Incarnation,
    /// The term that it promised to respect.
    pub term: Term,
    /// The members that it knows.
    pub view: MemberView,
}
