//! What daemons do about a node's effects, and what it takes.

use super::cluster::Cluster;
use super::host::{Asked, State};
use crate::engine::Stuck;
use crate::site::{self, Pending, host_of, nanos};
use pagemesh_core::{Afterwards, DiffWork, Effect, Input, Reply, Rights};
use pagemesh_wire::header::{Header, MAX_DATAGRAM};
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::{DiffName, Diffs, Message};
use pagemesh_wire::{ClientId, PAGE_SIZE, PageIndex, SyncKey, Ticket};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Bytes of diffs in one datagram.
const TOGETHER: usize = MAX_DATAGRAM - 2048;

/// What a diff takes beside the bytes that changed.
const FRAME: u32 = 16;

/// The longest diff there is.
const LONGEST: u32 = 4600;

impl Cluster {
    pub(super) fn do_effect(
        &mut self,
        at: usize,
        effect: Effect,
        bytes: &[u8],
        end: &mut u64,
        follow: &mut VecDeque<Pending>,
    ) -> Result<(), Stuck> {
        match effect {
            Effect::Send {
                address,
                header,
                message,
                page,
            } => {
                let tail = if page.is_some() { PAGE_SIZE } else { 0 };
                self.send(at, (address, header), &message, tail, end);
            }
            Effect::Fill { .. } => *end += nanos(self.costs(at).copy),
            Effect::Map { page, rights, .. } => {
                *end += nanos(self.costs(at).place);
                self.hosts[at].rights.insert(page, rights);
                self.wake(at, page, *end);
            }
            Effect::Protect { page, .. } => {
                *end += nanos(self.costs(at).place);
                let rights = self.hosts[at].rights.entry(page).or_default();
                *rights = (*rights).min(Rights::Read);
            }
            Effect::Evict { page, .. } => {
                *end += nanos(self.costs(at).evict);
                self.hosts[at].rights.remove(&page);
            }
            Effect::Diffs(work) => self.diff_work(at, work, bytes, end, follow),
            Effect::LendLock {
                key,
                client,
                wanted,
            } => {
                let by: ClientId = client;
                let word = LockWord::Held { by, wanted };
                self.hosts[at].words.insert(key, word);
            }
            Effect::ReclaimLock { key } => self.reclaim(at, key, follow),
            Effect::Reply { ticket, reply } => return self.replied(at, ticket, *reply, end),
            Effect::Fail { page, why, .. } => {
                return Err(Stuck(format!("page {} fails: {why}", page.0)));
            }
            _ => {}
        }
        Ok(())
    }

    fn diff_work(
        &mut self,
        at: usize,
        work: DiffWork,
        bytes: &[u8],
        end: &mut u64,
        follow: &mut VecDeque<Pending>,
    ) {
        let copy = nanos(self.costs(at).copy);
        match work {
            DiffWork::Twin { page, .. } => {
                *end += copy;
                self.hosts[at].changed.insert(page, 0);
            }
            DiffWork::Diff {
                segment,
                name,
                then,
                ..
            } => {
                *end += copy;
                self.counts.diffs += 1;
                let host = &mut self.hosts[at];
                let changed = host.changed.insert(name.page, 0).unwrap_or(0);
                let long = (changed + FRAME).min(LONGEST) as u16;
                host.diffs.insert(name, long);
                if changed == 0 && then == Afterwards::Refresh {
                    let page = name.page;
                    let input = Input::Unchanged { segment, page };
                    follow.push_back(Pending::Local(input));
                }
            }
            DiffWork::Keep { names, .. } => self.keep(at, &names, bytes),
            DiffWork::Merge { names, .. } => *end += copy * (1 + names.len() as u64),
            DiffWork::Update { names, .. } => *end += 2 * copy * names.len() as u64,
            DiffWork::Send {
                address,
                header,
                segment,
                request,
                names,
                at_most,
            } => {
                let template = Diffs {
                    segment,
                    request,
                    diffs: Vec::new(),
                };
                self.send_diffs(at, (address, header), &template, (&names, at_most), end);
            }
            DiffWork::Forget { upto, .. } => {
                let diffs = &mut self.hosts[at].diffs;
                diffs.retain(|name, _| !upto.has(name.node, name.interval));
            }
            DiffWork::DropTwin { .. } | DiffWork::Compare { .. } => {}
        }
    }

    fn keep(&mut self, at: usize, names: &[DiffName], bytes: &[u8]) {
        let Ok((_, Message::Diffs(came), _)) = Message::decode(bytes) else {
            return;
        };
        let kept = came.diffs.iter().filter(|(name, _)| names.contains(name));
        self.hosts[at].diffs.extend(kept.copied());
    }

    fn send_diffs(
        &mut self,
        at: usize,
        to: (SocketAddr, Header),
        template: &Diffs,
        (names, at_most): (&[DiffName], u16),
        end: &mut u64,
    ) {
        let mut batch = template.clone();
        for name in names {
            let long = self.hosts[at].diffs.get(name).copied().unwrap_or(0);
            if long > at_most {
                continue;
            }
            if batch.bytes() + usize::from(long) > TOGETHER {
                let full = std::mem::replace(&mut batch, template.clone());
                let tail = full.bytes();
                self.send(at, to, &Message::Diffs(full), tail, end);
            }
            batch.diffs.push((*name, long));
        }
        if !batch.diffs.is_empty() {
            let tail = batch.bytes();
            self.send(at, to, &Message::Diffs(batch), tail, end);
        }
    }

    fn send(
        &mut self,
        at: usize,
        (address, header): (SocketAddr, Header),
        message: &Message,
        tail: usize,
        end: &mut u64,
    ) {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        bytes.resize(bytes.len() + tail, 0);
        self.counts.messages += 1;
        self.counts.bytes += bytes.len() as u64;
        *end += nanos(self.costs(at).half(bytes.len()));
        let source = site::address(at);
        let to = host_of(address);
        self.engine.arrives_at(to, *end, source, bytes);
    }

    fn wake(&mut self, at: usize, page: PageIndex, end: u64) {
        if let State::Stopped(index, _) = self.hosts[at].state
            && index == page
        {
            let host = &mut self.hosts[at];
            host.state = State::Runs;
            // Nobody helped if it is still the same turn.
            if host.fault_since < self.engine.now {
                self.counts.fault_waits.push(end - host.fault_since);
            }
            let wake = nanos(self.costs(at).wake);
            self.engine.resume_at(at, end + wake);
        }
    }

    fn reclaim(&mut self, at: usize, key: SyncKey, follow: &mut VecDeque<Pending>) {
        match self.hosts[at].words.get_mut(&key) {
            Some(word @ LockWord::Free) => {
                *word = LockWord::Absent;
                let recovered = false;
                let input = Input::LockReturned { key, recovered };
                follow.push_back(Pending::Local(input));
            }
            Some(LockWord::Held { wanted, .. }) => *wanted = true,
            _ => {}
        }
    }

    fn replied(
        &mut self,
        at: usize,
        ticket: Ticket,
        reply: Reply,
        end: &mut u64,
    ) -> Result<(), Stuck> {
        if self.hosts[at].state != State::Waits(ticket) {
            self.engine.replies.insert(ticket, reply);
            return Ok(());
        }
        if let Reply::Refused(why) = reply {
            return Err(Stuck(format!("a process is refused: {why}")));
        }
        *end += nanos(self.costs(at).call);
        let goes_on = *end + nanos(self.costs(at).wake);
        let host = &mut self.hosts[at];
        host.state = State::Runs;
        let (what, since) = host.asked;
        let waited = goes_on - since;
        match what {
            Asked::Lock => self.counts.lock_waits.push(waited),
            Asked::Barrier => self.counts.barrier_waits[at].push(waited),
            Asked::Relock => {}
        }
        self.engine.resume_at(at, goes_on);
        Ok(())
    }
}
