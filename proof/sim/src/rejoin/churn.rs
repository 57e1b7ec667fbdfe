//! Lives come and go (decision 34): daemons leave, vanish and are started again at once at their old
//! addresses, again and again, so that every number is used for many lives. Segments last for an
//! era and are then removed, because a segment is named after its home.

use super::cluster::{Cluster, Happening};
use super::programs::{Doing, END};
use crate::small::{self, Check};
use pagemesh_core::{Input, Reply, Request, Time};
use pagemesh_wire::peer::{Call, Credentials, Refusal, SegmentInfo};

/// How far a run with churn is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Churn {
    /// When so many lives have joined, no further one ends.
    joins: u64,
    /// When that was so.
    over: Option<Time>,
    /// Segments of earlier eras are given up.
    era: u64,
    /// Misfortunes of the present era.
    in_era: u64,
    /// Until then no host vanishes or stumbles: the home of a page whose owner is gone asks all
    /// members, and cannot decide while one of them neither answers nor counts as dead.
    quiet_until: Time,
}

/// Misfortunes in one era: half of the pages are lost by then.
const ERA: u64 = 25;
/// So many lives are very many.
const MANY: u64 = 20_000;
/// Longer than anybody may wait: a member that does not answer is dead before.
const PATIENCE: u64 = 90_000_000_000;

impl Churn {
    pub(super) fn new(joins: u64) -> Self {
        Self {
            joins,
            over: None,
            era: 0,
            in_era: 0,
            quiet_until: Time::ZERO,
        }
    }

    pub(super) fn calm(&self) -> Time {
        let over = self.over.map(|over| Time(over.0 + 60_000_000_000));
        over.unwrap_or(Time(u64::MAX))
    }

    /// Time between two misfortunes, at most. In a run of very many lives programs do less in each.
    fn longest_pause(&self) -> u64 {
        match self.joins {
            0..MANY => 300_000_000,
            MANY.. => 30_000_000,
        }
    }

    pub(super) fn storm(&self) -> u64 {
        3_000_000 + self.joins * 50_000
    }
}

impl Cluster {
    pub(super) fn era(&self) -> u64 {
        self.churn.map_or(0, |churn| churn.era)
    }

    /// Whether programs stop now.
    pub(super) fn ends_by_now(&self) -> bool {
        match &self.churn {
            Some(churn) => churn.over.is_some(),
            None => self.time() > END,
        }
    }

    /// Something happens to one of the hosts; and nobody may have waited for too long.
    pub(super) fn stir(&mut self) -> Check {
        let now = self.time();
        let members = self.hosts[0].node.view().members.len() as u64;
        self.seen.most_members = self.seen.most_members.max(members);
        self.network.forget_cuts(now);
        self.check_patience()?;
        let Some(churn) = &mut self.churn else {
            return Ok(());
        };
        if self.seen.joined >= churn.joins {
            churn.over = Some(now);
            return Ok(());
        }
        churn.in_era += 1;
        if churn.in_era >= ERA {
            churn.in_era = 0;
            churn.era += 1;
        }
        let longest = churn.longest_pause();
        let pause = self.dice.between(1_000_000, longest);
        self.schedule(Time(now.0 + pause), Happening::Churn);
        let host = 1 + self.dice.index(self.hosts.len() - 1);
        let is_member = self.hosts[host].node.id().is_some();
        if !is_member || now < self.hosts[host].stopped_until {
            return Ok(());
        }
        let quiet = self.churn.is_some_and(|churn| now < churn.quiet_until);
        let what = self.dice.below(100);
        if quiet || what < 50 {
            return self.leave(host);
        }
        let quiet = self.dice.between(4_000_000_000, 10_000_000_000);
        if let Some(churn) = &mut self.churn {
            churn.quiet_until = Time(now.0 + quiet);
        }
        match what {
            50..80 => self.vanish(host),
            _ => {
                let end = Time(now.0 + self.dice.between(500_000_000, 5_000_000_000));
                let happening = match self.dice.chance(500) {
                    true => Happening::Stop(host, end),
                    false => {
                        let others = (0..self.hosts.len()).filter(|other| *other != host);
                        Happening::Cut(host, others.collect(), end)
                    }
                };
                self.schedule(now, happening);
                Ok(())
            }
        }
    }

    /// *INV-progress*, while lives come and go.
    fn check_patience(&self) -> Check {
        let now = self.time();
        for (host, state) in self.hosts.iter().enumerate() {
            let program = &state.program;
            let waits = program.doing != Doing::Nothing && now.0 - program.since.0 > PATIENCE;
            if waits {
                return Err(format!(
                    "INV-progress: the program of h{} waits since {}: {:?}",
                    host + 1,
                    program.since.0,
                    program.doing
                ));
            }
            if state.node.id().is_none() && now.0 - state.since.0 > PATIENCE {
                let over = self.hosts.iter().map(|host| host.node.names_of_the_gone());
                return Err(format!(
                    "INV-progress: h{} is not admitted: {:?}",
                    host + 1,
                    over.collect::<Vec<_>>()
                ));
            }
        }
        Ok(())
    }

    /// A daemon leaves, after its program has ended.
    fn leave(&mut self, host: usize) -> Check {
        if self.hosts[host].program.doing == Doing::Leaving {
            return Ok(());
        }
        self.refused(host, &Refusal::NotMember)?;
        self.hosts[host].program.doing = Doing::Leaving;
        self.ask(host, Request::Leave)
    }

    pub(super) fn leave_answered(&mut self, host: usize, reply: Reply) -> Check {
        self.seen.left += u64::from(reply == Reply::Done);
        self.note(host, || format!("has left: {reply:?}"));
        self.schedule(self.time(), Happening::Begin(host));
        Ok(())
    }

    /// A daemon is gone, with all that its host had.
    fn vanish(&mut self, host: usize) -> Check {
        self.seen.vanished += 1;
        self.note(host, || "vanishes".into());
        self.begin_life(host)
    }

    /// A new daemon is started at the address of the last one.
    pub(super) fn begin_life(&mut self, host: usize) -> Check {
        let before = self.hosts[host].program.client.0;
        let mut new = self.new_host(host);
        new.program.client.0 = before + 100;
        self.hosts[host] = new;
        self.note(host, || "is started".into());
        self.soon(host);
        small::input(self, host, Input::Deadline)
    }

    /// The segments of this program's era are given up.
    pub(super) fn end_era(&mut self, host: usize) -> Check {
        if host == 0 {
            self.hosts[host].program.doing = Doing::Listing;
            let call = Call::List {
                after: String::new(),
            };
            return self.ask(host, Request::Call { to: None, call });
        }
        self.refused(host, &Refusal::NotFound)?;
        self.soon(host);
        Ok(())
    }

    /// The first host's program removes the names of eras that are over. A program elsewhere that was
    /// late has made some of them after its own era was over, so all names are looked at.
    pub(super) fn remove_all(&mut self, host: usize, listed: &[SegmentInfo]) -> Check {
        let present = self.era().to_string();
        let names = listed.iter().map(|info| &info.name);
        let over = names.filter(|name| name.split_once('-').is_some_and(|(_, era)| era != present));
        self.hosts[host].program.over = over.cloned().collect();
        self.remove_next(host)
    }

    pub(super) fn remove_next(&mut self, host: usize) -> Check {
        let Some(name) = self.hosts[host].program.over.pop() else {
            self.hosts[host].program.doing = Doing::Nothing;
            self.refused(host, &Refusal::NotFound)?;
            self.soon(host);
            return Ok(());
        };
        self.hosts[host].program.doing = Doing::Removing;
        let call = Call::Remove {
            name,
            credentials: Credentials::root(),
        };
        self.ask(host, Request::Call { to: None, call })
    }
}
