//! What a run checks: loads that a model allows, what has arrived in the end, and what survives.

use super::{Cluster, GIVES_UP, Host, PAGES, PATIENCE, RUN, Step, Words};
use crate::plan::Profile;
use crate::small::Check;
use crate::views::check_purge_finds;
use pagemesh_core::{Rights, Time};
use pagemesh_wire::{MappingId, PageIndex};

impl Cluster {
    /// Threads that wait for a page to pass give up after a while; all others must be served.
    pub(super) fn look_who_waits(&mut self, now: Time) -> Check {
        for host in 0..self.hosts.len() {
            let state = &self.hosts[host];
            let (false, Some((step, since))) = (state.gone || state.left, state.step) else {
                continue;
            };
            if matches!(step, Step::Access(_, 3, _)) && now.0 > since.0 + GIVES_UP {
                self.done(host);
            } else if now.0 > since.0 + PATIENCE {
                return Err(format!("h{} hangs at {step:?} since {since}", host + 1));
            }
        }
        Ok(())
    }

    /// Without deaths, every copy that is still mapped is the last that was published.
    pub(super) fn is_settled(&self) -> Check {
        self.is_replicated()?;
        if self.options.profile != Profile::Calm || self.seen.left > 0 {
            return Ok(());
        }
        for (page, published) in &self.published {
            for (number, host) in self.hosts.iter().enumerate() {
                let mapped =
                    (2..=4).any(|id| host.memory.rights(MappingId(id), *page) > Rights::None);
                let Some(frame) = host.memory.frame(*page).filter(|_| mapped) else {
                    continue;
                };
                if frame[0] < *published {
                    return Err(format!(
                        "h{} still has {frame:?} of {page}, {published} was published",
                        number + 1
                    ));
                }
            }
        }
        Ok(())
    }

    /// Pages that no second node has, as a host knows.
    pub(super) fn lacking(&self, host: usize) -> u64 {
        let host = &self.hosts[host];
        let segment = host.segment.unwrap_or_default();
        let found = host.node.inspect(segment, PageIndex(0), 0);
        found.map_or(0, |found| found.unreplicated)
    }

    /// When all is quiet, the next death may come.
    pub(super) fn is_replicated(&self) -> Check {
        let living = (0..self.hosts.len()).filter(|host| self.lives(*host));
        let living: Vec<_> = living.collect();
        let lacks = living.iter().find(|host| self.lacking(**host) > 0);
        match lacks.filter(|_| living.len() > 1) {
            None => Ok(()),
            Some(host) => Err(format!(
                "h{} still has {} pages that no second node has",
                host + 1,
                self.lacking(*host)
            )),
        }
    }

    /// INV-published-survives: the consistent copy has what a publisher was told is kept.
    pub(super) fn check_survives(&mut self, host: usize, page: PageIndex) -> Check {
        let kept = self.kept.get(&page).copied().unwrap_or(0);
        if !self.one_died() || kept == 0 {
            return Ok(());
        }
        let found = self.hosts[host]
            .memory
            .frame(page)
            .map_or(0, |frame| frame[0]);
        if found < kept {
            let why = format!("h{} finds {found} of {page}, {kept} was kept", host + 1);
            return Err(format!("INV-published-survives: {why}"));
        }
        self.seen.survived += self.seen.crashed;
        Ok(())
    }

    /// The pages of a publication change together, wherever nobody stores to them. When a host is gone, its
    /// backup asks for those that it kept, one by one; others may know that it has left before it does.
    pub(super) fn check_runs(&self) -> Check {
        let leaves = |host: &Host| matches!(host.step, Some((Step::Leave, _)));
        let gone = self.seen.crashed + self.seen.left > 0 || self.hosts.iter().any(leaves);
        let moved = self.options.replicas > 0 && gone;
        let hosts = self.hosts.iter().enumerate();
        for (number, host) in hosts.filter(|(number, _)| *number != self.publisher && !moved) {
            let pages = (RUN.0..PAGES).map(PageIndex);
            let frames: Vec<_> = pages.filter_map(|page| host.memory.frame(page)).collect();
            if frames.iter().any(|frame| *frame != frames[0]) {
                return Err(format!(
                    "h{} sees parts of a publication: {frames:?}",
                    number + 1
                ));
            }
        }
        Ok(())
    }

    pub(super) fn check_load(&mut self, host: usize, at: (PageIndex, usize), value: u64) -> Check {
        if value > self.value {
            return Err(format!("h{} loads {value}, which nobody stored", host + 1));
        }
        let seen = self.hosts[host].seen.entry(at).or_default();
        if value < *seen {
            let why = format!("h{} sees {} go back from {seen} to {value}", host + 1, at.0);
            return Err(why);
        }
        *seen = value;
        Ok(())
    }

    /// A host has purged a page, or its prefix.
    pub(super) fn purged(&mut self, host: usize, page: PageIndex, short: bool) {
        // A death may have left open what was stored last. Then the prefix may be newer than the rest.
        let stored = self.last.get(&page).copied().flatten().unwrap_or_default();
        for words in 1..=if short { 1 } else { 2 } {
            self.hosts[host].purged.insert((page, words), stored);
        }
    }

    /// INV-purge-finds: what was stored before a purge is found after it.
    pub(super) fn check_purged(&self, host: usize, page: PageIndex, words: &[u64]) -> Check {
        let stored = self.hosts[host].purged.get(&(page, words.len()));
        let stored = stored.copied().unwrap_or_default();
        check_purge_finds(host, page, words, stored)
    }

    /// The consistent copy has the last store.
    pub(super) fn check_latest(&mut self, host: usize, page: PageIndex) -> Check {
        self.check_survives(host, page)?;
        let found = self.hosts[host].memory.frame(page).unwrap_or_default();
        match self.last.entry(page).or_insert(Some(Words::default())) {
            Some(last) if *last != found => Err(format!(
                "h{} has {found:?} in the consistent copy of {page}, {last:?} was stored last",
                host + 1
            )),
            last => {
                *last = Some(found);
                Ok(())
            }
        }
    }
}
