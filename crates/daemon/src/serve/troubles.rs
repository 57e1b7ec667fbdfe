//! The states of this node that need a person, each with its cure.

use crate::driver::Driver;
use crate::ledger::Ledger;
use pagemesh_core::{Quotas, Time};
use pagemesh_os::clock;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::NodeId;
use pagemesh_wire::local::Trouble;
use pagemesh_wire::peer::Refusal;
use std::time::Duration;

/// Silence of the coordinator worth telling.
const SILENCE: Duration = Duration::from_secs(3);

/// Silence of a standby that lacks something worth telling.
const STANDBY_SILENCE: Duration = Duration::from_secs(2);

/// How often a daemon looks whether anything is wrong.
const EVERY: u64 = 1_000_000_000;

/// The states that this node is in, and has been in.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    /// How often each began, and whether it lasts.
    seen: SortedMap<Trouble, (u64, bool)>,
    next: u64,
}

impl Troubles {
    /// Notes what is wrong now. The lines of states that have begun since the last time.
    fn note(&mut self, lines: Vec<String>) -> Vec<String> {
        let mut now: SortedMap<Trouble, String> = SortedMap::new();
        for line in lines {
            if let Some(trouble) = Trouble::of_line(&line) {
                now.entry(trouble).or_insert(line);
            }
        }
        for (trouble, (_, lasts)) in &mut self.seen {
            if *lasts && !now.contains_key(trouble) {
                *lasts = false;
                if !is_logged_elsewhere(*trouble) {
                    tracing::info!("{}: it is over", trouble.name());
                }
            }
        }
        let mut begun = Vec::new();
        for (trouble, line) in now {
            let (times, lasts) = self.seen.entry(trouble).or_default();
            if !*lasts {
                (*times, *lasts) = (*times + 1, true);
                if !is_logged_elsewhere(trouble) {
                    begun.push(line);
                }
            }
        }
        begun
    }

    /// How often each state has begun.
    pub(super) fn counters(&self) -> impl Iterator<Item = (String, u64)> {
        Trouble::ALL.iter().map(|trouble| {
            let (times, _) = self.seen.get(trouble).copied().unwrap_or_default();
            (
                format!("trouble_{}", trouble.name().replace('-', "_")),
                times,
            )
        })
    }
}

/// Every daemon begins with joining, and one that takes long says so; what cannot be read or written
/// is logged in that moment.
const fn is_logged_elsewhere(trouble: Trouble) -> bool {
    matches!(
        trouble,
        Trouble::Joining | Trouble::DiskFull | Trouble::DiskFailed | Trouble::KeyUnreadable
    )
}

impl Driver {
    /// Looks once a second whether anything is wrong, and logs what was not a second ago.
    pub(crate) fn look_for_troubles(&mut self, now: u64) {
        if now < self.troubles.next {
            return;
        }
        self.troubles.next = now + EVERY;
        let lines = self.problems(Time(now));
        for line in self.troubles.note(lines) {
            tracing::warn!("{line}");
        }
    }

    /// Why this node is no member.
    pub(super) fn out(&self) -> Option<String> {
        let (trouble, why) = match self.node.out() {
            Some(Refusal::NotMember) => (
                Trouble::NotMember,
                "this node is not a member of the cluster any more, and every call of its \
                 programs fails: end them, and restart its daemon; it joins as a new node"
                    .into(),
            ),
            Some(why) => (Trouble::NotMember, why.to_string()),
            None if self.node.rejoin().under_way => {
                (Trouble::JoiningAgain, self.not_admitted_again())
            }
            None if self.node.id().is_none() => (Trouble::Joining, self.not_admitted()),
            None => return None,
        };
        Some(trouble.line(why))
    }

    /// All that is wrong.
    pub(super) fn problems(&self, now: Time) -> Vec<String> {
        let out = self.out();
        let is_out = out.is_some();
        let mut problems: Vec<String> = out.into_iter().collect();
        let lost = self.node.rejoin().lost.into_iter();
        let lost = lost.map(|(name, why)| format!("segment {name}: {why}"));
        problems.extend(lost.map(|lost| Trouble::SegmentLost.line(lost)));
        problems.extend(self.about.problems.iter().cloned());
        let ledger = self.executor.ledger.as_ref();
        let unwritten = ledger.and_then(Ledger::problem);
        let elections = self.executor.elections.as_ref();
        problems.extend(unwritten.or_else(|| elections?.problem()));
        problems.extend(self.executor.near_limits());
        problems.extend(self.near_quotas());
        let silent = self.node.coordinator_silent(now);
        if !is_out && silent > SILENCE {
            problems.push(Trouble::CoordinatorSilent.line(self.coordinator_is_silent(silent)));
        }
        problems.extend(self.standby_is_behind(now));
        problems.extend(self.executor.network.key_problems(now));
        problems.extend(self.about.wall_clock.problem());
        for host in self.executor.events.foreigners() {
            problems.push(Trouble::OtherVersion.line(format_args!(
                "a daemon on {host} speaks a version of the protocol that this one does not (it \
                 speaks {}): install a release there that has one in common with all nodes \
                 (`pagemesh version`)",
                self.about.edition.program.speaks
            )));
        }
        problems
    }

    /// A member, as people know it.
    fn named(&self, node: NodeId) -> String {
        let member = self.node.view().member(node);
        member.map_or_else(
            || node.to_string(),
            |member| format!("{node} ({}, {})", member.name, member.address),
        )
    }

    /// The coordinator has been silent for so long: who can replace it, and how.
    fn coordinator_is_silent(&self, silent: Duration) -> String {
        let view = self.node.view();
        let cure = if self.node.is_elected() {
            "etcd elects another one, if it has a quorum and the claim of this one has run out"
                .into()
        } else if view.standby == NodeId::NONE {
            "there is no standby: let its daemon go on, or end all daemons and start anew"
                .to_owned()
        } else if self.node.id() == Some(view.standby) {
            "if its host is dead, run `pagemesh promote` here: this node is the standby".to_owned()
        } else {
            let standby = self.named(view.standby);
            format!(
                "if its host is dead, run `pagemesh promote` on the host of the standby, {standby}"
            )
        };
        let coordinator = self.named(view.term.coordinator());
        let seconds = silent.as_secs();
        format!("{coordinator}, the coordinator, has been silent for {seconds} s; {cure}")
    }

    /// The coordinator waits for its standby.
    fn standby_is_behind(&self, now: Time) -> Option<String> {
        let (standby, silent) = self.node.standby_silent(now)?;
        let behind = self.node.control(now).behind;
        (behind > 0 && silent > STANDBY_SILENCE).then(|| {
            Trouble::StandbyBehind.line(format_args!(
                "{}, the standby, has been silent for {} s and lacks {behind} entries of the \
                 coordinator's log, so opening, closing and removing segments and joining wait: \
                 if its host is dead, this ends by itself when it is declared dead",
                self.named(standby),
                silent.as_secs()
            ))
        })
    }

    /// Users whose segments are about to be refused; the coordinator knows.
    fn near_quotas(&self) -> impl Iterator<Item = String> {
        let Quotas { segments, bytes } = self.executor.quota.cluster;
        self.node.near_quota().into_iter().map(move |(uid, usage)| {
            Trouble::Quota.line(format_args!(
                "user {uid} has {} segments of {} bytes, and its quota is {segments} of {}: \
                 remove some, or raise the coordinator's --quota",
                usage.segments, usage.bytes, bytes.0
            ))
        })
    }
}

/// Whether somebody has set the wall clock since this daemon started. Only the expiry of join tokens
/// goes by that clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock {
    /// The wall clock less the time since the host started, in nanoseconds.
    began: i128,
}

/// Less is what keeps a clock right.
const SET: u64 = 60_000_000_000;

impl WallClock {
    pub(crate) fn new() -> Self {
        Self {
            began: Self::offset(),
        }
    }

    fn offset() -> i128 {
        i128::from(clock::wall()) - i128::from(clock::since_boot())
    }

    fn problem(self) -> Option<String> {
        self.judge(Self::offset())
    }

    fn judge(self, offset: i128) -> Option<String> {
        let set = offset - self.began;
        let seconds = set.unsigned_abs() / 1_000_000_000;
        let whither = if set < 0 { "back" } else { "forward" };
        (set.unsigned_abs() > u128::from(SET)).then(|| {
            Trouble::ClockSet.line(format_args!(
                "the clock of this host was set {whither} by {seconds} s since its daemon started; \
                 join tokens expire by it, and nothing else: see that it is right, then replace \
                 the daemon (`pagemesh daemon --replace`)"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_told_when_it_begins_and_counted() {
        let mut troubles = Troubles::default();
        let dead = || Trouble::CoordinatorSilent.line("n1");
        assert_eq!(troubles.note(vec![dead(), dead()]), [dead()]);
        assert!(troubles.note(vec![dead()]).is_empty(), "it lasts");
        assert!(troubles.note(vec![]).is_empty());
        assert_eq!(troubles.note(vec![dead(), "odd".into()]), [dead()]);
        let counted: SortedMap<_, _> = troubles.counters().collect();
        assert_eq!(counted["trouble_coordinator_silent"], 2);
        assert_eq!(counted["trouble_disk_full"], 0);
    }

    #[test]
    fn a_clock_that_was_set_is_told_and_one_that_drifts_is_not() {
        let clock = WallClock { began: 5 };
        assert_eq!(clock.judge(5 + i128::from(SET)), None);
        let back = clock.judge(-3_600_000_000_000).unwrap();
        assert!(back.contains("set back by 3600 s"), "{back}");
        let forward = clock.judge(120_000_000_005).unwrap();
        assert!(forward.contains("set forward by 120 s"), "{forward}");
        assert_eq!(WallClock::new().problem(), None);
    }
}
