//! The programs: each opens a segment, loads and stores, checks what it finds, and may remove it.

use super::super::executor::ignores_budget;
use super::{Cluster, Happening};
use crate::dice::Dice;
use crate::small::{self, Check};
use pagemesh_core::{At, Budgets, Input, Placement, Reply, Request, Time};
use pagemesh_wire::peer::{Access, Backing, Call, Credentials, Policy, Refusal, SegmentSpec};
use pagemesh_wire::{
    ByteLen, ClientId, MappingId, PAGE_SIZE, PageCount, PageIndex, SegmentId, Ticket,
};
use std::collections::{BTreeMap, VecDeque};

/// A program of one thread, and what it stored.
pub(super) struct Program {
    segment: Option<SegmentId>,
    name: Option<String>,
    mapping: MappingId,
    pages: u32,
    stored: BTreeMap<PageIndex, u64>,
    left: u32,
    /// Pages to be loaded in the end.
    rest: VecDeque<PageIndex>,
    next: Option<(PageIndex, Access)>,
    faulted: bool,
    ticket: Ticket,
    /// Its segment is to be removed while the others go on.
    removes: bool,
    /// The answer to that is waited for.
    removing: bool,
}

impl Program {
    pub(super) fn draw(dice: &mut Dice, pages: u32) -> Self {
        Self {
            segment: None,
            name: None,
            mapping: MappingId(dice.number()),
            pages,
            stored: BTreeMap::new(),
            left: dice.between(50, 400) as u32,
            rest: (0..pages).map(PageIndex).collect(),
            next: None,
            faulted: false,
            ticket: Ticket(0),
            removes: dice.chance(500),
            removing: false,
        }
    }

    /// It does nothing more.
    pub(super) fn end(&mut self) {
        self.rest.clear();
        (self.left, self.faulted) = (0, false);
    }

    /// It has nothing more to do, and no answer to a removal of its segment is waited for.
    pub(super) fn has_ended(&self) -> bool {
        self.rest.is_empty() && !self.removing
    }

    pub(super) fn has_faulted(&self) -> bool {
        self.faulted
    }
}

impl Cluster {
    /// A thread may go on.
    pub(in crate::private) fn woken(&mut self, host: usize, page: PageIndex) {
        let program = &mut self.hosts[host].program;
        if program.faulted && program.next.is_some_and(|(next, _)| next == page) {
            program.faulted = false;
            let at = Time(self.queue.now().0 + 1 + self.dice.below(3_000));
            self.schedule(at, Happening::Run(host));
        }
    }

    /// An access cannot be served. That may be so only if the host is none of the cluster any more,
    /// or if two donors with the only two copies are gone.
    pub(in crate::private) fn failed(&mut self, host: usize, at: At, why: &Refusal) -> Check {
        let state = &mut self.hosts[host];
        let excused = state.node.out().is_some()
            || *why == Refusal::NotMember
            || (state.backing == Backing::Copies && self.deaths > 1);
        state.program.end();
        if excused {
            return Ok(());
        }
        Err(format!("INV-private-kept: {at:?} cannot be had: {why}"))
    }

    pub(in crate::private) fn replied(
        &mut self,
        host: usize,
        ticket: Ticket,
        reply: Reply,
    ) -> Check {
        if self.hosts[host].leaving == Some(ticket) {
            self.has_left(host, &reply);
            return Ok(());
        }
        let program = &mut self.hosts[host].program;
        if ticket != program.ticket {
            return Err(format!("{ticket:?} is answered, and was not asked"));
        }
        if std::mem::take(&mut program.removing) {
            if matches!(reply, Reply::Done) {
                self.removed.extend(program.segment);
            }
            return Ok(());
        }
        let again = Time(self.queue.now().0 + 20_000_000);
        match reply {
            Reply::Segment(info) => program.segment = Some(info.id),
            // It has not joined yet.
            Reply::Refused(Refusal::NotYetMember) => {}
            Reply::Refused(_) if self.hosts[host].node.out().is_some() => {
                self.hosts[host].program.rest.clear();
            }
            other => return Err(format!("the segment is not opened: {other:?}")),
        }
        self.schedule(again, Happening::Run(host));
        Ok(())
    }

    fn open(&mut self, host: usize) -> Check {
        self.last += 1;
        let ticket = Ticket(self.last);
        let state = &mut self.hosts[host];
        state.program.ticket = ticket;
        let (local, backing) = (PageCount(state.local), state.backing);
        let spec = SegmentSpec {
            size: ByteLen(u64::from(state.program.pages) * PAGE_SIZE as u64),
            mode: 0o600,
            policy: Policy::Private { local, backing },
            replicas: 0,
        };
        let name = format!("memory{host}-{}", self.returns);
        self.hosts[host].program.name = Some(name.clone());
        let request = Request::Open {
            name,
            create: Some(spec),
            exclusive: false,
            write: true,
            credentials: Credentials::root(),
        };
        let client = ClientId(host as u32 + 1);
        let input = Input::Request {
            ticket,
            client,
            request,
        };
        small::input(self, host, input)
    }

    fn begin(&mut self, host: usize, segment: SegmentId) -> Check {
        let state = &mut self.hosts[host];
        let ignored = ignores_budget(self.options.planted);
        let lend = PageCount(state.lend + u32::from(ignored) * 50);
        let mapping = state.program.mapping;
        let budgets = Budgets {
            lend,
            placement: *self
                .dice
                .pick(&[Placement::Epoch, Placement::Random, Placement::NChance]),
            busy: *self.dice.pick(&[0, 0, 0, 30, 95]),
            ..Budgets::default()
        };
        small::input(self, host, Input::Budgets(budgets))?;
        let client = ClientId(host as u32 + 1);
        let input = Input::Mapped {
            mapping,
            segment,
            client,
        };
        small::input(self, host, input)
    }

    /// A program takes its next step.
    pub(super) fn step(&mut self, host: usize) -> Check {
        let state = &self.hosts[host];
        if state.program.rest.is_empty() && state.program.removes && !state.program.removing {
            self.hosts[host].program.removes = false;
            return self.remove(host);
        }
        if state.program.faulted || state.program.rest.is_empty() {
            return Ok(());
        }
        let Some(segment) = state.program.segment else {
            return self.open(host);
        };
        if state.program.next.is_none() && state.program.stored.is_empty() {
            self.begin(host, segment)?;
        }
        let (page, access) = self.next_access(host);
        let state = &mut self.hosts[host];
        state.program.next = Some((page, access));
        let at = (segment, page);
        match access {
            Access::Read => {
                let Some(value) = state.memory.load(at) else {
                    return self.fault(host);
                };
                self.remote.loads += 1;
                let wanted = state.program.stored.get(&page).copied().unwrap_or_default();
                if value != wanted {
                    return Err(format!(
                        "INV-private-version: h{} loads {value} at {page}, where {wanted} is",
                        host + 1
                    ));
                }
            }
            Access::Write => {
                let value = self.last + 1;
                if !state.memory.store(at, value) {
                    return self.fault(host);
                }
                self.last = value;
                self.remote.stores += 1;
                state.program.stored.insert(page, value);
            }
        }
        self.done(host);
        Ok(())
    }

    /// A program has ended, and its segment with it.
    fn remove(&mut self, host: usize) -> Check {
        let state = &mut self.hosts[host];
        let client = ClientId(host as u32 + 1);
        let (Some(segment), Some(name)) = (state.program.segment, state.program.name.clone())
        else {
            return Ok(());
        };
        state.program.removing = true;
        self.last += 1;
        let ticket = Ticket(self.last);
        self.hosts[host].program.ticket = ticket;
        let mapping = self.hosts[host].program.mapping;
        self.note(host, || format!("removes {segment}"));
        small::input(self, host, Input::Unmapped { mapping })?;
        small::input(self, host, Input::Closed { segment, client })?;
        let call = Call::Remove {
            name,
            credentials: Credentials::root(),
        };
        let input = Input::Request {
            ticket,
            client,
            request: Request::Call { to: None, call },
        };
        small::input(self, host, input)
    }

    fn done(&mut self, host: usize) {
        let program = &mut self.hosts[host].program;
        program.next = None;
        if program.left > 0 {
            program.left -= 1;
        } else {
            program.rest.pop_front();
        }
        let think = if self.dice.chance(20) {
            40_000_000
        } else {
            4_000
        };
        let at = Time(self.queue.now().0 + 1 + self.dice.below(think));
        self.schedule(at, Happening::Run(host));
    }

    /// Some pages are used more than others, and sometimes a program walks.
    fn next_access(&mut self, host: usize) -> (PageIndex, Access) {
        let program = &self.hosts[host].program;
        if let Some(next) = program.next {
            return next;
        }
        if program.left == 0 {
            return (program.rest[0], Access::Read);
        }
        let pages = u64::from(program.pages);
        let step = u64::from(program.left);
        let page = match step / 50 % 3 {
            0 => step % pages,
            1 => self.dice.below(pages) * self.dice.below(pages) / pages,
            _ => self.dice.below(pages),
        };
        let access = if self.dice.chance(500) {
            Access::Write
        } else {
            Access::Read
        };
        (PageIndex(page as u32), access)
    }

    pub(super) fn fault(&mut self, host: usize) -> Check {
        let program = &mut self.hosts[host].program;
        program.faulted = true;
        let (mapping, (page, access)) = (program.mapping, program.next.expect("it has a page"));
        if self.dice.chance(100) {
            let at = Time(self.queue.now().0 + self.dice.between(100, 100_000));
            self.schedule(at, Happening::FaultAgain(host));
        }
        let input = Input::Fault {
            mapping,
            page,
            access,
        };
        small::input(self, host, input)
    }
}
