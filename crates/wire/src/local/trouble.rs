//! States of a node that need a person.

use core::fmt::Display;

/// Lists each state once: what it means, and its name.
macro_rules! troubles {
    ($($(#[$meaning:meta])* $state:ident = $name:literal,)*) => {
        /// A state that needs a person. `pagemesh status` and the log call it by its name, which
        /// scripts may go by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Trouble {
            $($(#[$meaning])* $state,)*
        }

        impl Trouble {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$state),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$state => $name,)*
                }
            }
        }
    };
}

troubles! {
    /// This node was revoked, has left, or was refused.
    NotMember = "not-member",
    /// This node has not been admitted yet.
    Joining = "joining",
    /// This node was declared dead, and joins again.
    JoiningAgain = "joining-again",
    /// A program of this node has lost a segment, since the node was declared dead.
    SegmentLost = "segment-lost",
    /// A member is dead, and none has taken its place.
    MemberDead = "member-dead",
    /// The coordinator does not answer.
    CoordinatorSilent = "coordinator-silent",
    /// The standby does not confirm what the coordinator decides.
    StandbyBehind = "standby-behind",
    /// Pages that are to have a replica have none, since there is no second node.
    NoSecondNode = "no-second-node",
    /// The disk of what the coordinator decides is full.
    DiskFull = "disk-full",
    /// The disk of what the coordinator decides does not work.
    DiskFailed = "disk-failed",
    /// Etcd, which has what the coordinator decides, does not answer.
    NoQuorum = "no-quorum",
    /// Etcd does not let this host in, or this host does not trust it.
    EtcdRefuses = "etcd-refuses",
    /// The key file cannot be read.
    KeyUnreadable = "key-unreadable",
    /// A host wants to join with a key that is not in the key file here.
    OtherKey = "other-key",
    /// A host speaks another version of the protocol.
    OtherVersion = "other-version",
    /// The wall clock was set.
    ClockSet = "clock-set",
    /// The daemon has few file descriptors left.
    Descriptors = "descriptors",
    /// A user has nearly used its quota.
    Quota = "quota",
    /// Processes of a user fill the log.
    LogQuota = "log-quota",
    /// Programs cannot map segments on this kernel, or with these permissions.
    Userfaultfd = "userfaultfd",
    /// The socket's buffer is small.
    SocketBuffer = "socket-buffer",
    /// The flight recorder is off for want of memory.
    RecorderOff = "recorder-off",
}

impl Trouble {
    /// The line of a problem: its name, what is wrong, and the cure.
    #[must_use]
    pub fn line(self, text: impl Display) -> String {
        format!("{}: {text}", self.name())
    }

    /// The state that such a line begins with.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Self> {
        let (name, _) = line.split_once(": ")?;
        Self::ALL
            .iter()
            .copied()
            .find(|trouble| trouble.name() == name)
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
            assert_eq!(Trouble::of_line(&line), Some(*trouble));
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
