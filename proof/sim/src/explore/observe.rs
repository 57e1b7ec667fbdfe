//! The observer of all hosts: the golden memory and every invariant that no host can check alone.

use super::happen::{client, node};
use super::lab::{Lab, PacketId};
use super::setting::Op;
use super::site::Sight;
use super::state::{Asked, Life, Mode, State};
use crate::canary::Canary;
use crate::check::{Check, ensure};
use crate::golden::Words;
use crate::kernel::PageKey;
use crate::network::kind;
use pagemesh_core::{Input, Reply, Request, Rights};
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{ClientId, NodeId, PageIndex, SegmentId, SyncKey, Ticket};

impl State {
    /// A datagram leaves.
    pub(super) fn sent(&mut self, lab: &Lab, id: PacketId) -> Check {
        let packet = lab.packet(id);
        let (from, to) = (node(packet.from), node(packet.to));
        let observer = self.observer();
        observer.hints.said(from, to, &packet.message)?;
        observer.lines.said(from, to, &packet.message, |_| true)?;
        let lost =
            lab.setting.canary == Some(Canary::PassAckLost) && kind(&packet.message) == "PassAck";
        if self.is_up(packet.to) && !lost {
            self.wire(packet.from as u8, packet.to as u8).push_back(id);
        }
        Ok(())
    }

    /// Handles another event of a host.
    pub(super) fn see(&mut self, lab: &Lab, at: usize, sight: &Sight) -> Check {
        match sight {
            Sight::Mapped(key, words, rights) => self.mapped(lab, at, *key, words, *rights),
            Sight::Dropped(key) => {
                self.contents_dropped(lab, *key);
                Ok(())
            }
            Sight::Passed(to, key) => {
                self.observer().golden.passed(host(*to), *key);
                self.contents_dropped(lab, *key);
                Ok(())
            }
            Sight::Owned(key, version) => self.observer().golden.owned(at, *key, *version),
            Sight::Failed(key, threads, why) => {
                self.may_fail(lab, at, *key, why)?;
                for thread in threads {
                    self.threads[thread.0].stopped_at = None;
                    self.go_on(thread.0);
                }
                Ok(())
            }
            Sight::Replied(ticket, reply) => self.replied(lab, at, *ticket, reply),
            Sight::Lent(to) => self.lent(lab, at, *to),
            Sight::Awaited(key) => self.awaited(at, *key),
            Sight::Woken(thread) => {
                self.wake(thread.0);
                Ok(())
            }
            Sight::Given(event) => {
                self.observer().hints.told(event);
                Ok(())
            }
            Sight::Gone(node) => {
                self.observer().lines.gone(*node);
                Ok(())
            }
            Sight::Expelled => {
                self.crash(lab, at);
                Ok(())
            }
            Sight::Recovered(keys) => {
                let back = keys.iter().map(|key| Input::LockReturned {
                    key: *key,
                    recovered: true,
                });
                self.inboxes[at].extend(back);
                Ok(())
            }
            _ => unreachable!("only a thread does this: {sight:?}"),
        }
    }

    fn mapped(&mut self, lab: &Lab, at: usize, key: PageKey, words: &Words, here: Rights) -> Check {
        // Under policy `release` many nodes may write, and copies differ until a node acquires.
        if lab.setting.policy.sequential().is_none() {
            if here == Rights::Write && lab.setting.loses_what_is_collected() {
                self.observer().remains.let_store(at, key);
            }
            return Ok(());
        }
        for (other, there) in self.rights(lab, key).filter(|(other, _)| *other != at) {
            let fine = there == Rights::None || (here != Rights::Write && there != Rights::Write);
            ensure!(
                fine,
                SingleWriter,
                "h{} has {here:?} rights to {key} while h{} has {there:?}",
                at + 1,
                other + 1
            );
        }
        if lab.setting.leaves_instants() {
            return Ok(());
        }
        self.observer().golden.mapped(at, key, words)
    }

    /// After a crash these may have been the last contents of a page. An older stash does not
    /// count: it is for another node.
    fn contents_dropped(&mut self, lab: &Lab, key: PageKey) {
        let lives = self.lives.clone();
        let dead = |host: usize| matches!(lives[host], Life::Crashed | Life::Buried);
        if !(0..lives.len()).any(dead) {
            return;
        }
        let sites = self.sites.clone();
        self.observer().golden.dropped(key, dead, |words| {
            let mut up = (0..lives.len()).filter(|host| lives[*host] == Life::Up);
            up.any(|host| lab.site(sites[host]).shows(key, words))
        });
    }

    fn may_fail(&self, lab: &Lab, at: usize, key: PageKey, why: &str) -> Check {
        let home_gone = !self.is_up(host(key.segment.home()));
        let lost = if lab.setting.leaves_remains() {
            self.observer.remains.may_be_lost(&self.lives, key)
        } else {
            self.observer.golden.may_be_lost(key)
        };
        // With a replica, what any living node knows of is on another one.
        let lost = (home_gone || lost) && lab.setting.replicas == 0;
        ensure!(
            lost || self.is_leaving(lab, at),
            PageNotLost,
            "h{} cannot have {key} ({why}), though nobody who held it crashed",
            at + 1
        );
        Ok(())
    }

    /// True if this host was asked to leave.
    fn is_leaving(&self, lab: &Lab, at: usize) -> bool {
        let asked = self.observer.asked.values();
        let mut leaves = asked.filter(|asked| asked.op == Op::Leave);
        leaves.any(|asked| lab.setting.threads[usize::from(asked.thread)].0 == at)
    }

    fn lent(&self, lab: &Lab, at: usize, to: ClientId) -> Check {
        let thread = to.0 as usize - 1;
        let lives = lab.setting.threads[thread].0 == at && self.threads[thread].mode != Mode::Done;
        let dying =
            |input: &Input<'_>| matches!(input, Input::ClientGone { client } if *client == to);
        ensure!(
            lives || self.inboxes[at].iter().any(dying),
            Law,
            "h{} lends a lock to {to}, which it does not have",
            at + 1
        );
        Ok(())
    }

    fn awaited(&self, at: usize, wanted: SyncKey) -> Check {
        let comes =
            |input: &Input<'_>| matches!(input, Input::LockReturned { key, .. } if *key == wanted);
        ensure!(
            self.inboxes[at].iter().any(comes),
            OneToken,
            "h{} reclaims lock {wanted}, which it has not lent",
            at + 1
        );
        Ok(())
    }

    // ---- threads ---------------------------------------------------------------

    /// The result of a thread's step.
    pub(super) fn did(
        &mut self,
        lab: &Lab,
        at: usize,
        number: usize,
        op: Op,
        sight: &Sight,
    ) -> Check {
        match sight {
            Sight::Loaded(key, word, value) => {
                let word = usize::from(*word);
                if lab.setting.leaves_instants() {
                    let found = self.observer().instants.load(at, (*key, word), *value);
                    agrees(found, *key)?;
                } else if lab.setting.leaves_remains() {
                    let lives = self.lives.clone();
                    let remains = &mut self.observer().remains;
                    remains.load(&lives, (*key, word), *value)?;
                    if lab.setting.replicas > 0 {
                        remains.seen(at, (*key, word));
                    }
                } else {
                    self.observer.golden.load(at, *key, word, *value)?;
                }
                self.go_on(number);
            }
            Sight::Stored(key, word, value) => {
                let word = usize::from(*word);
                self.observer().golden.store(at, *key, word, *value)?;
                if lab.setting.leaves_remains() {
                    self.observer().remains.store(at, *key, word, *value);
                }
                if lab.setting.leaves_instants() {
                    self.observer().instants.store(at, (*key, word), *value);
                }
                self.go_on(number);
            }
            Sight::Stopped(key, fault) => {
                let thread = &mut self.threads[number];
                thread.mode = Mode::Stopped;
                thread.stopped_at = Some(*key);
                self.inboxes[at].push_back(fault.clone());
            }
            Sight::Took(key) => {
                self.acquired(lab, number, *key, false)?;
                self.go_on(number);
            }
            Sight::Asks(request) => self.ask(at, number, op, request.clone()),
            Sight::Released(key, tell) => {
                self.threads[number].holds = None;
                self.observer().holders.remove(key);
                if lab.setting.leaves_instants() {
                    self.observer().instants.release(at, key.number);
                }
                if *tell {
                    self.inboxes[at].push_back(Input::LockReturned {
                        key: *key,
                        recovered: false,
                    });
                }
                self.go_on(number);
            }
            _ => unreachable!("no thread does this: {sight:?}"),
        }
        Ok(())
    }

    fn ask(&mut self, at: usize, number: usize, op: Op, request: Request) {
        let step = self.threads[number].at;
        let ticket = Ticket(number as u64 * 1000 + u64::from(step) + 1);
        self.threads[number].mode = Mode::Asking(ticket);
        let asked = Asked {
            thread: number as u8,
            op,
            waiting: false,
        };
        self.observer().asked.insert(ticket, asked);
        self.inboxes[at].push_back(Input::Request {
            ticket,
            client: client(number),
            request,
        });
    }

    fn acquired(&mut self, lab: &Lab, number: usize, key: SyncKey, recovered: bool) -> Check {
        if lab.setting.leaves_instants() {
            let at = lab.setting.threads[number].0;
            let found = self.observer().instants.acquire(at, key.number, recovered);
            ensure!(found.is_ok(), LatestValue, "{key}: {found:?}");
        }
        let observer = self.observer();
        if let Some(other) = observer.holders.insert(key, number as u8) {
            ensure!(
                false,
                MutualExclusion,
                "t{} takes lock {key}, which t{} holds",
                number + 1,
                other + 1
            );
        }
        let orphaned = observer.orphaned.remove(&key);
        ensure!(
            recovered || !orphaned,
            LockRecovered,
            "t{} takes lock {key} and is not told that its last holder died",
            number + 1
        );
        self.threads[number].holds = Some(key);
        Ok(())
    }

    fn replied(&mut self, lab: &Lab, at: usize, ticket: Ticket, reply: &Reply) -> Check {
        if let Reply::Segment(info) = reply {
            self.opened = Some(info.id);
            return Ok(());
        }
        let known = self.observer.asked.get(&ticket).copied();
        let Some(asked) = known else {
            // A dead process may be answered; a living one not twice.
            let thread = (ticket.0 / 1000) as usize;
            ensure!(
                self.threads[thread].mode == Mode::Done,
                OneReply,
                "h{} answers {ticket}, which was never asked or is answered: {reply:?}",
                at + 1
            );
            return Ok(());
        };
        let number = usize::from(asked.thread);
        if let (Reply::Waiting, Op::Watch(page)) = (reply, asked.op) {
            ensure!(
                !asked.waiting,
                OneReply,
                "{ticket} is told twice that it waits"
            );
            let key = page_of(lab.segment, page);
            let observer = self.observer();
            observer.golden.watch(key, ticket);
            observer.asked.insert(
                ticket,
                Asked {
                    waiting: true,
                    ..asked
                },
            );
            self.go_on(number);
            return Ok(());
        }
        let leaving = self.is_leaving(lab, at);
        let observer = self.observer();
        observer.asked.remove(&ticket);
        observer.golden.unwatch(ticket);
        match (asked.op, reply) {
            (Op::Lock(number_of_lock), Reply::Locked { recovered }) => {
                let key = SyncKey {
                    segment: lab.segment,
                    number: number_of_lock,
                };
                self.acquired(lab, number, key, *recovered)?;
            }
            (Op::Watch(_), Reply::Changed) | (Op::Need(_), Reply::Done) => {}
            (Op::Leave, Reply::Done) => {
                self.depart(lab, at, Life::Left);
                return Ok(());
            }
            (Op::Leave, Reply::Refused(Refusal::CannotLeave(_))) => {}
            (_, Reply::Refused(why)) => {
                let excused = leaving || self.lives.iter().any(|life| *life != Life::Up);
                ensure!(excused, SensibleReply, "{ticket} is refused: {why}");
            }
            (op, reply) => ensure!(
                false,
                SensibleReply,
                "t{} wanted to {op} and is answered {reply:?}",
                number + 1
            ),
        }
        if !asked.waiting {
            self.go_on(number);
        }
        Ok(())
    }
}

fn agrees(found: Result<(), String>, key: PageKey) -> Check {
    ensure!(found.is_ok(), LatestValue, "{key}: {found:?}");
    Ok(())
}

fn host(node: NodeId) -> usize {
    usize::from(node.0) - 1
}

pub(super) fn page_of(segment: SegmentId, page: u32) -> PageKey {
    PageKey {
        segment,
        page: PageIndex(page),
    }
}
