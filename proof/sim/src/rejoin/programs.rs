//! Programs: what they do, and what they must see.

use super::cluster::{Cluster, Happening};
use super::memory::{Key, Newest, Word};
use crate::small::{self, Check};
use pagemesh_core::{Input, Mappings, Reply, Request, Rights, Time};
use pagemesh_wire::peer::{
    Access, Credentials, Health, Manager, Member, Policy, Refusal, SegmentSpec, Window,
};
use pagemesh_wire::{
    ByteLen, ClientId, MappingId, NodeId, PAGE_SIZE, PageIndex, SegmentId, SyncKey, Ticket,
};
use std::collections::BTreeSet;

/// When programs stop.
pub(super) const END: Time = Time(30_000_000_000);
const PAGES: u32 = 4;
const SEGMENTS: usize = 3;

/// What a program does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Nothing,
    /// It opens the segment of this name.
    Opening(usize),
    /// A thread waits at a page.
    Access(Key, Access),
    WaitsForLock(SyncKey),
    /// The daemon leaves the cluster.
    Leaving,
    /// It asks for the names of all segments.
    Listing,
    /// It removes a name of an era that is over.
    Removing,
}

pub(super) struct Program {
    pub(super) client: ClientId,
    pub(super) segments: Vec<SegmentId>,
    pub(super) doing: Doing,
    pub(super) ticket: Ticket,
    /// Pages that are lost.
    pub(super) broken: BTreeSet<Key>,
    /// The lock that it holds, and how many accesses it still makes under it.
    pub(super) holds: Option<(SyncKey, u32)>,
    /// It only loads.
    pub(super) reads_only: bool,
    /// As a program of a dead host it has seen something that happened after the death.
    pub(super) saw_later: bool,
    /// It must have lost its segments.
    pub(super) must_fail: bool,
    /// It has noticed that something is lost that it relied on.
    pub(super) ends: bool,
    /// When it began to do what it does.
    pub(super) since: Time,
    /// The era of its segments.
    pub(super) era: u64,
    /// Names of eras that are over, which it removes.
    pub(super) over: Vec<String>,
}

/// The host that makes a segment.
fn maker(segment: usize, hosts: usize) -> usize {
    [0, 0, 1][segment] % hosts
}

impl Cluster {
    pub(super) fn new_program(&mut self, client: u32) -> Program {
        Program {
            client: ClientId(client),
            segments: Vec::new(),
            doing: Doing::Nothing,
            ticket: Ticket(0),
            broken: BTreeSet::new(),
            holds: None,
            reads_only: self.dice.chance(500),
            saw_later: false,
            must_fail: false,
            ends: false,
            since: self.time(),
            era: self.era(),
            over: Vec::new(),
        }
    }

    pub(super) fn soon(&mut self, host: usize) {
        let at = Time(self.time().0 + 1 + self.dice.below(60_000_000));
        self.schedule(at, Happening::Run(host));
    }

    /// Whether the host is dead for the others and does not know it.
    fn is_unheard(&self, host: usize) -> bool {
        let view = self.hosts[0].node.view();
        let alive = |member: &Member| {
            member.health == Health::Alive && member.address == small::address(host)
        };
        let id = self.hosts[host].id;
        id.is_some_and(|id: NodeId| !view.member(id).is_some_and(alive))
    }

    pub(super) fn ask(&mut self, host: usize, request: Request) -> Check {
        self.last += 1;
        let ticket = Ticket(self.last);
        let now = self.time();
        let program = &mut self.hosts[host].program;
        program.ticket = ticket;
        program.since = now;
        let client = program.client;
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        self.local(host, input)
    }

    /// An input of a program, which waits while its daemon stands still.
    pub(super) fn local(&mut self, host: usize, input: Input<'static>) -> Check {
        debug_assert!(self.time() >= self.hosts[host].stopped_until);
        small::input(self, host, input)
    }

    fn open(&mut self, host: usize) -> Check {
        let at = self.hosts[host].program.segments.len();
        let manager = [Manager::Dynamic, Manager::Fixed, Manager::Dynamic][at];
        let spec = SegmentSpec {
            size: ByteLen(u64::from(PAGES) * PAGE_SIZE as u64),
            mode: 0o600,
            policy: Policy::Sequential {
                manager,
                window: Window::Nanos(0),
            },
            replicas: 0,
        };
        self.hosts[host].program.doing = Doing::Opening(at);
        let makes = self.churn.is_some() || maker(at, self.hosts.len()) == host;
        let era = self.hosts[host].program.era;
        let request = Request::Open {
            name: format!("s{at}-{era}"),
            create: makes.then_some(spec),
            exclusive: false,
            write: true,
            credentials: Credentials::root(),
        };
        self.ask(host, request)
    }

    pub(super) fn replied(&mut self, host: usize, ticket: Ticket, reply: Reply) -> Check {
        let program = &mut self.hosts[host].program;
        if ticket != program.ticket {
            return Ok(());
        }
        let doing = core::mem::replace(&mut program.doing, Doing::Nothing);
        match (doing, reply) {
            (Doing::Opening(at), Reply::Segment(info)) => {
                program.segments.push(info.id);
                let client = program.client;
                let mapped = Input::Mapped {
                    mapping: mapping(client, at),
                    segment: info.id,
                    client,
                };
                small::input(self, host, mapped)?;
            }
            (Doing::Opening(_), Reply::Refused(_)) => {}
            (Doing::WaitsForLock(key), Reply::Locked { .. }) => self.took(host, key)?,
            (Doing::WaitsForLock(_), Reply::Refused(why)) => self.refused(host, &why)?,
            (Doing::Leaving, reply) => return self.leave_answered(host, reply),
            (Doing::Listing, Reply::Segments(listed)) => return self.remove_all(host, &listed),
            (Doing::Listing | Doing::Removing, _) => return self.remove_next(host),
            (doing, reply) => return Err(format!("{reply:?} answers {doing:?}")),
        }
        self.soon(host);
        Ok(())
    }

    /// Something that the program relied on is lost: another program takes its place.
    pub(super) fn refused(&mut self, host: usize, why: &Refusal) -> Check {
        self.note(host, || format!("its program ends: {why}"));
        let broken = self.hosts[host].memory.program_gone();
        for key in broken {
            let recovered = true;
            self.local(host, Input::LockReturned { key, recovered })?;
        }
        let client = self.hosts[host].program.client;
        self.local(host, Input::ClientGone { client })?;
        self.hosts[host].program = self.new_program(client.0 + 100);
        Ok(())
    }

    pub(super) fn failed(&mut self, host: usize, mapping: MappingId, at: Key, why: &Refusal) {
        let id = self.hosts[host].id;
        let program = &mut self.hosts[host].program;
        let mine = program.segments.iter().position(|id| *id == at.0);
        if mine.map(|at| self::mapping(program.client, at)) != Some(mapping) {
            return;
        }
        self.seen.failed += 1;
        program.broken.insert(at);
        if matches!(program.doing, Doing::Access(key, _) if key == at) {
            program.doing = Doing::Nothing;
            let told = matches!(why, Refusal::DeclaredDead { .. } | Refusal::NotMember);
            let gone = Some(why) == id.map(Refusal::NodeGone).as_ref();
            program.ends |= told || gone;
            self.soon(host);
        }
    }

    pub(super) fn map_page(
        &mut self,
        host: usize,
        mappings: Mappings,
        at: Key,
        rights: Rights,
    ) -> Check {
        let state = &mut self.hosts[host];
        let mine = state.program.segments.iter().position(|id| *id == at.0);
        let mine = mine.map(|index| mapping(state.program.client, index));
        if !mine.is_some_and(|mine| mappings.contains(mine)) {
            return Ok(());
        }
        if !state.memory.frames.contains_key(&at) {
            return Err(format!("INV-fill-before-map: {at:?} is empty"));
        }
        state.memory.rights.insert(at, rights);
        if let Doing::Access(key, access) = state.program.doing
            && key == at
            && (access == Access::Read || rights == Rights::Write)
        {
            state.program.doing = Doing::Nothing;
            self.access(host, at, access)?;
            self.soon(host);
        }
        Ok(())
    }

    /// A program loads or stores, and has the right to.
    fn access(&mut self, host: usize, at: Key, access: Access) -> Check {
        let now = self.time();
        let unheard = self.is_unheard(host);
        let died = self.hosts[host].died;
        self.last += 1;
        let stored = self.last;
        let newest = self.newest.entry(at).or_default();
        let state = &mut self.hosts[host];
        if state.program.must_fail {
            return Err(format!(
                "INV-rejoin-clean: h{} goes on, although it saw at its death what came later",
                host + 1
            ));
        }
        let value = state
            .memory
            .frames
            .get(&at)
            .copied()
            .ok_or("mapped, but empty")?;
        match unheard {
            true => {
                self.seen.unheard += 1;
                let later = value == newest.value && newest.by != host;
                state.program.saw_later |= later && died.is_some_and(|died| newest.at > died);
            }
            false if value != newest.value => {
                return Err(format!(
                    "INV-newest: h{} sees {value} in {at:?}, where h{} stored {} at {}",
                    host + 1,
                    newest.by + 1,
                    newest.value,
                    newest.at.0
                ));
            }
            false => self.seen.accesses += 1,
        }
        if access == Access::Write {
            *newest = Newest {
                value: stored,
                at: now,
                by: host,
            };
            state.memory.frames.insert(at, stored);
        }
        Ok(())
    }

    /// The program has the lock.
    fn took(&mut self, host: usize, key: SyncKey) -> Check {
        self.seen.locked += 1;
        for other in 0..self.hosts.len() {
            let holds = self.hosts[other]
                .program
                .holds
                .is_some_and(|(of, _)| of == key);
            let counts = !self.is_unheard(other) && self.hosts[other].node.id().is_some();
            if other != host && holds && counts && !self.is_unheard(host) {
                let lost = self.hosts[other].node.rejoin().lost;
                if lost.is_empty() {
                    return Err(format!(
                        "INV-mutual-exclusion: h{} and h{} hold {key}",
                        host + 1,
                        other + 1
                    ));
                }
            }
        }
        let accesses = self.dice.between(1, 3) as u32;
        self.hosts[host].program.holds = Some((key, accesses));
        Ok(())
    }

    pub(super) fn lend(
        &mut self,
        host: usize,
        key: SyncKey,
        (client, wanted): (ClientId, bool),
    ) -> Check {
        let state = &mut self.hosts[host];
        if state.program.client != client {
            return Err(format!("{key} is lent to {client}, which is gone"));
        }
        state.memory.words.insert(key, Word::Held(wanted));
        Ok(())
    }

    fn unlock(&mut self, host: usize, key: SyncKey) -> Check {
        self.hosts[host].program.holds = None;
        let words = &mut self.hosts[host].memory.words;
        match words.insert(key, Word::Free) {
            Some(Word::Held(false)) => Ok(()),
            Some(Word::Held(true)) => {
                words.remove(&key);
                let recovered = false;
                self.local(host, Input::LockReturned { key, recovered })
            }
            other => Err(format!("{key} is given back, and was {other:?}")),
        }
    }

    /// A program takes its next step.
    pub(super) fn step(&mut self, host: usize) -> Check {
        let stopped = self.hosts[host].stopped_until;
        let program = &self.hosts[host].program;
        if program.doing != Doing::Nothing {
            return Ok(());
        }
        if program.ends && self.time() >= stopped {
            self.refused(host, &Refusal::NotMember)?;
            self.soon(host);
            return Ok(());
        }
        if self.ends_by_now() && program.holds.is_none() {
            return Ok(());
        }
        if program.holds.is_none() && program.era < self.era() && self.time() >= stopped {
            return self.end_era(host);
        }
        if program.segments.len() < SEGMENTS {
            if self.time() < stopped {
                self.soon(host);
                return Ok(());
            }
            return self.open(host);
        }
        self.use_memory(host)
    }

    fn use_memory(&mut self, host: usize) -> Check {
        let stopped = self.time() < self.hosts[host].stopped_until;
        let holds = self.hosts[host].program.holds;
        if let Some((key, left)) = holds {
            if left == 0 {
                if stopped {
                    self.soon(host);
                    return Ok(());
                }
                self.unlock(host, key)?;
                self.soon(host);
                return Ok(());
            }
            self.hosts[host].program.holds = Some((key, left - 1));
        } else if self.dice.chance(100) && !stopped {
            return self.lock(host);
        }
        let segment = self.dice.index(SEGMENTS);
        let page = PageIndex(self.dice.below(u64::from(PAGES)) as u32);
        let program = &self.hosts[host].program;
        let at = (program.segments[segment], page);
        let stores = !program.reads_only && self.dice.chance(400);
        let access = if stores { Access::Write } else { Access::Read };
        let program = &mut self.hosts[host].program;
        if program.broken.contains(&at) {
            self.soon(host);
            return Ok(());
        }
        let enough = if stores { Rights::Write } else { Rights::Read };
        if self.hosts[host].memory.rights(at) >= enough {
            self.access(host, at, access)?;
            self.soon(host);
            return Ok(());
        }
        if stopped {
            self.soon(host);
            return Ok(());
        }
        let now = self.time();
        let program = &mut self.hosts[host].program;
        program.since = now;
        program.doing = Doing::Access(at, access);
        let mapping = mapping(program.client, segment);
        self.local(
            host,
            Input::Fault {
                mapping,
                page,
                access,
            },
        )
    }

    fn lock(&mut self, host: usize) -> Check {
        let program = &mut self.hosts[host].program;
        let key = SyncKey {
            segment: program.segments[0],
            number: 1,
        };
        if self.hosts[host].memory.words.get(&key) == Some(&Word::Free) {
            self.hosts[host].memory.words.insert(key, Word::Held(false));
            self.took(host, key)?;
            self.soon(host);
            return Ok(());
        }
        self.hosts[host].program.doing = Doing::WaitsForLock(key);
        self.ask(host, Request::Lock { key })
    }
}

fn mapping(client: ClientId, segment: usize) -> MappingId {
    MappingId(u64::from(client.0) * 10 + segment as u64)
}
