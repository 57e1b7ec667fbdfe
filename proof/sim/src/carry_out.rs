//! Carrying out effects, one host at a time, as the driver's law says.

mod sending;

use crate::canary::Canary;
use crate::check::{Check, ensure};
use crate::kernel::{PageKey, Reclaimed, ThreadId};
use crate::log::Mark;
use crate::world::{Happening, Life, World};
use pagemesh_core::limits::USE_GUARD;
use pagemesh_core::{Effect, Event, Input, Rights, Source};
use pagemesh_wire::{ClientId, MappingId, PageIndex, SegmentId, SyncKey};

fn key(segment: SegmentId, page: PageIndex) -> PageKey {
    PageKey { segment, page }
}

fn facts(key: PageKey, more: u64) -> [u64; 3] {
    [key.segment.0, u64::from(key.page.0), more]
}

impl World {
    /// Carries out one effect of the node at `at`.
    pub(crate) fn execute(&mut self, at: usize, effect: Effect, payload: Option<&[u8]>) -> Check {
        match effect {
            Effect::Send {
                address,
                header,
                mut message,
                page,
            } => {
                if let Some(canary) = self.setting.canary {
                    canary.tamper(&mut message);
                }
                if self.keeps_receipt(at, address, header, &message) {
                    return Ok(());
                }
                self.send(at, address, header, &message, page, payload)
            }
            Effect::Fill {
                segment,
                page,
                source,
            } => self.fill(at, key(segment, page), source, payload),
            Effect::Map {
                mapping,
                segment,
                page,
                rights,
            } => self.map(at, mapping, key(segment, page), rights),
            Effect::Protect { segment, page } => {
                self.protect(at, key(segment, page));
                Ok(())
            }
            Effect::Evict {
                segment,
                page,
                keep,
            } => self.evict(at, key(segment, page), keep),
            Effect::DropStash { segment, page } => {
                let key = key(segment, page);
                self.log
                    .note(self.now, at, Mark::DropStash, facts(key, 0), || {
                        key.to_string()
                    });
                self.hosts[at].kernel.drop_stash(key);
                self.contents_dropped(key);
                Ok(())
            }
            Effect::Fail {
                mapping,
                segment,
                page,
                why,
            } => self.fail(at, mapping, key(segment, page), &why.to_string()),
            Effect::ConfirmUse { segment, page } => {
                self.confirm_use(at, key(segment, page));
                Ok(())
            }
            Effect::Forget { segment } => {
                self.log
                    .note(self.now, at, Mark::Forget, [segment.0, 0, 0], || {
                        segment.to_string()
                    });
                self.hosts[at].kernel.forget(segment)
            }
            Effect::LendLock {
                key,
                client,
                wanted,
            } => self.lend(at, key, client, wanted),
            Effect::ReclaimLock { key } => self.reclaim(at, key),
            Effect::Reply { ticket, reply } => self.answer(at, ticket, *reply),
            Effect::SendNotice { address, notice } => {
                let arrival = Happening::Arrival {
                    to: address,
                    source: self.hosts[at].address,
                    bytes: notice.encode().to_vec(),
                };
                self.after(1_000, arrival);
                Ok(())
            }
            Effect::Diffs(work) => {
                ensure!(false, Law, "no segment here has policy release: {work:?}");
                Ok(())
            }
            Effect::Emit(event) => self.event(at, event),
        }
    }

    fn fill(&mut self, at: usize, key: PageKey, source: Source, payload: Option<&[u8]>) -> Check {
        let kernel = &mut self.hosts[at].kernel;
        ensure!(
            source != Source::Frame,
            Law,
            "h{} fills {key} from its own frame",
            at + 1
        );
        let words = kernel.contents(key, source, payload)?;
        kernel.fill(key, words)?;
        self.log
            .note(self.now, at, Mark::Fill, facts(key, words[0]), || {
                format!("{key} from {source:?} {words:x?}")
            });
        Ok(())
    }

    fn map(&mut self, at: usize, mapping: MappingId, key: PageKey, rights: Rights) -> Check {
        let now = self.now;
        self.log
            .note(now, at, Mark::Map, facts(key, rights as u64), || {
                format!("{key} {rights:?} for {mapping}")
            });
        let words = self.hosts[at].kernel.map(now, mapping, key, rights)?;
        if !self.hosts[at].buried {
            self.check_single_writer(at, key)?;
            self.golden.mapped(at, key, &words)?;
        }
        self.wake_threads(at);
        Ok(())
    }

    fn protect(&mut self, at: usize, key: PageKey) {
        self.log
            .note(self.now, at, Mark::Protect, facts(key, 0), || {
                key.to_string()
            });
        self.note_unused(at, key);
        self.hosts[at].kernel.protect(key);
    }

    fn evict(&mut self, at: usize, key: PageKey, keep: bool) -> Check {
        let now = self.now;
        self.log
            .note(now, at, Mark::Evict, facts(key, u64::from(keep)), || {
                format!("{key}{}", if keep { " into the stash" } else { "" })
            });
        self.note_unused(at, key);
        self.hosts[at].kernel.evict(now, key, keep)?;
        self.contents_dropped(key);
        self.wake_threads(at);
        Ok(())
    }

    /// Counts pages that leave before they were used (M12).
    fn note_unused(&mut self, at: usize, key: PageKey) {
        let since = self.hosts[at].kernel.unused_since(key);
        if since.is_some_and(|since| self.now.since(since) < USE_GUARD) {
            self.stats.stolen += 1;
        }
    }

    /// Schedules the threads that the last effect woke.
    fn wake_threads(&mut self, at: usize) {
        let mut woken = std::mem::take(&mut self.hosts[at].kernel.woken);
        for thread in woken.drain(..) {
            self.wake(thread);
        }
        self.hosts[at].kernel.woken = woken;
    }

    fn fail(&mut self, at: usize, mapping: MappingId, key: PageKey, why: &str) -> Check {
        self.log
            .note(self.now, at, Mark::Sigbus, facts(key, 0), || {
                format!("{key}: {why}")
            });
        let home_gone = self.is_home_gone(key.segment);
        let host = &self.hosts[at];
        ensure!(
            home_gone || self.golden.may_be_lost(key) || host.buried || host.leaves,
            PageNotLost,
            "h{} cannot have {key} ({why}), though nobody who held it crashed",
            at + 1
        );
        for thread in self.hosts[at].kernel.sleepers(mapping, key) {
            self.sigbus(thread);
        }
        Ok(())
    }

    /// Whether the segment's home is no member any more, and has left no heir.
    pub(crate) fn is_home_gone(&self, segment: SegmentId) -> bool {
        let home = self
            .hosts
            .iter()
            .find(|host| host.id == Some(segment.home()));
        home.is_none_or(|home| !matches!(home.life, Life::Up | Life::Left) || home.buried)
    }

    fn confirm_use(&mut self, at: usize, key: PageKey) {
        let used = self.hosts[at].kernel.used(key);
        self.log
            .note(self.now, at, Mark::Use, facts(key, u64::from(used)), || {
                format!("{key} {}", if used { "used" } else { "not used yet" })
            });
        let PageKey { segment, page } = key;
        self.answers.push(Input::UseConfirmed {
            segment,
            page,
            used,
        });
    }

    fn lend(&mut self, at: usize, key: SyncKey, client: ClientId, wanted: bool) -> Check {
        self.log.note(
            self.now,
            at,
            Mark::Lock,
            [key.segment.0, key.number, 1],
            || {
                format!(
                    "{key} lent to {client}{}",
                    if wanted { ", wanted" } else { "" }
                )
            },
        );
        let client_of_here = self.clients_of(at).any(|other| other.id == client);
        let dead_but_unknown = self.death_under_way(at, client);
        ensure!(
            client_of_here || dead_but_unknown,
            Law,
            "h{} lends lock {key} to {client}, which it does not have",
            at + 1
        );
        self.hosts[at].kernel.lend(key, client, wanted)
    }

    fn reclaim(&mut self, at: usize, key: SyncKey) -> Check {
        let reclaimed = self.hosts[at].kernel.reclaim(key);
        self.log.note(
            self.now,
            at,
            Mark::Lock,
            [key.segment.0, key.number, 2],
            || format!("{key} reclaimed: {reclaimed:?}"),
        );
        match reclaimed {
            Reclaimed::Back => self.answers.push(Input::LockReturned {
                key,
                recovered: self.setting.canary == Some(Canary::DeathInvented),
            }),
            Reclaimed::Marked => {}
            Reclaimed::UnderWay => ensure!(
                self.return_under_way(at, key),
                OneToken,
                "h{} reclaims lock {key}, which it has not lent",
                at + 1
            ),
        }
        Ok(())
    }

    fn event(&mut self, at: usize, event: Event) -> Check {
        self.log.note(
            self.now,
            at,
            Mark::Event,
            [event.index() as u64, 0, 0],
            || format!("{event:?}"),
        );
        self.hints.told(&event);
        self.storms.told(at, &event)?;
        match event {
            Event::Owned { .. } if self.hosts[at].buried => Ok(()),
            Event::Owned {
                segment,
                page,
                version,
            } => self.golden.owned(at, key(segment, page), version),
            Event::Admitted { node } => {
                self.hosts[at].id = Some(node);
                self.admitted(at);
                Ok(())
            }
            Event::LockRecovered { key } if self.somebody_left => {
                // Its token was on its way to the node that left, marked or not.
                self.processes.bequeathed.insert(key);
                Ok(())
            }
            Event::Left { node } => {
                self.somebody_left = true;
                self.lines.gone(node);
                Ok(())
            }
            Event::Died { node } => {
                self.declared_dead(node);
                Ok(())
            }
            Event::Expelled {} => {
                // Its last replies stand behind this event.
                self.departing.push((at, Life::Crashed));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A thread's access can never be served.
    fn sigbus(&mut self, thread: ThreadId) {
        self.drop_step(thread);
        self.wake(thread);
    }
}
