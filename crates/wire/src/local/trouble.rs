//! States of a node that need a person.

use core::fmt::Display;

/// A state that needs a person. `pagemesh status` and the log call it by its name, which scripts may
/// go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// This node was revoked, has left, or was refused.
    NotMember,
    /// This node has not been admitted yet.
    Joining,
    /// This node was declared dead, and joins again.
    JoiningAgain,
    /// A program of this node has lost a segment, since the node was declared dead.
    SegmentLost,
    /// A member is dead, and none has taken its place.
    MemberDead,
    /// The coordinator does not answer.
    CoordinatorSilent,
    /// The standby does not confirm what the coordinator decides.
    StandbyBehind,
    /// Pages that are to have a replica have none, since there is no second node.
    NoSecondNode,
    /// The disk of what the coordinator decides is full.
    DiskFull,
    /// The disk of what the coordinator decides does not work.
    DiskFailed,
    /// The key file cannot be read.
    KeyUnreadable,
    /// A host wants to join with a key that is not in the key file here.
    OtherKey,
    /// A host speaks another version of the protocol.
    OtherVersion,
    /// The wall clock was set.
    ClockSet,
    /// The daemon has few file descriptors left.
    Descriptors,
    /// A user has nearly used its quota.
    Quota,
    /// Processes of a user fill the log.
    LogQuota,
    /// Programs cannot map segments on this kernel, or with these permissions.
    Userfaultfd,
    /// The socket's buffer is small.
    SocketBuffer,
    /// The flight recorder is off for want of memory.
    RecorderOff,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::NotMember,
        Self::Joining,
        Self::JoiningAgain,
        Self::SegmentLost,
        Self::MemberDead,
        Self::CoordinatorSilent,
        Self::StandbyBehind,
        Self::NoSecondNode,
        Self::DiskFull,
        Self::DiskFailed,
        Self::KeyUnreadable,
        Self::OtherKey,
        Self::OtherVersion,
        Self::ClockSet,
        Self::Descriptors,
        Self::Quota,
        Self::LogQuota,
        Self::Userfaultfd,
        Self::SocketBuffer,
        Self::RecorderOff,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotMember => "not-member",
            Self::Joining => "joining",
            Self::JoiningAgain => "joining-again",
            Self::SegmentLost => "segment-lost",
            Self::MemberDead => "member-dead",
            Self::CoordinatorSilent => "coordinator-silent",
            Self::StandbyBehind => "standby-behind",
            Self::NoSecondNode => "no-second-node",
            Self::DiskFull => "disk-full",
            Self::DiskFailed => "disk-failed",
            Self::KeyUnreadable => "key-unreadable",
            Self::OtherKey => "other-key",
            Self::OtherVersion => "other-version",
            Self::ClockSet => "clock-set",
            Self::Descriptors => "descriptors",
            Self::Quota => "quota",
            Self::LogQuota => "log-quota",
            Self::Userfaultfd => "userfaultfd",
            Self::SocketBuffer => "socket-buffer",
            Self::RecorderOff => "recorder-off",
        }
    }

    /// The line of a problem: its name, what is wrong, and the cure.
    #[must_use]
    pub fn line(self, text: impl Display) -> String {
        format!("{}: {text}", self.name())
    }

    /// The state that such a line begins with.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Self> {
        let (name, _) = line.split_once(": ")?;
        Self::ALL.into_iter().find(|trouble| trouble.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_line_tells_its_state() {
        for trouble in Trouble::ALL {
            let line = trouble.line("n1 is gone: do without it");
            assert_eq!(Trouble::of_line(&line), Some(trouble));
        }
        assert_eq!(Trouble::of_line("a node of another release says so"), None);
        assert_eq!(Trouble::of_line("something: else"), None);
    }

    #[test]
    fn every_state_has_a_name_of_its_own() {
        let names: BTreeSet<_> = Trouble::ALL.iter().map(|trouble| trouble.name()).collect();
        assert_eq!(names.len(), Trouble::ALL.len());
    }
}
