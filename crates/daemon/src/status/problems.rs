//! The problems of this node that people are told of, each with its cure.

use super::Status;
use crate::ledger::Ledger;
use pagemesh_core::{Quotas, Time};
use pagemesh_wire::NodeId;
use pagemesh_wire::local::Trouble;
use pagemesh_wire::peer::Refusal;
use std::time::Duration;

/// Silence of the coordinator worth telling.
const SILENCE: Duration = Duration::from_secs(3);

/// Silence of a standby that lacks something worth telling.
const STANDBY_SILENCE: Duration = Duration::from_secs(2);

impl Status<'_> {
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
    pub(crate) fn problems(&self, now: Time) -> Vec<String> {
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
        if let Some(sealing) = &self.executor.network.sealing {
            problems.extend(sealing.problems(now));
        }
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
