//! The invariants by name, and the type of a violation.

use std::fmt;

macro_rules! invariants {
    ($( $variant:ident = $name:literal: $law:literal ),* $(,)?) => {
        /// The invariants that must hold in every run, whatever the network does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Invariant {
            $( #[doc = $law] $variant ),*
        }

        impl Invariant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name in documents and reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The invariant in words.
            #[must_use]
            pub fn law(self) -> &'static str {
                match self { $(Self::$variant => $law),* }
            }
        }
    };
}

invariants! {
    SingleWriter = "INV-single-writer":
        "While one node may write a page, no other node may read or write it.",
    LatestValue = "INV-latest-value":
        "Every load returns what the latest store anywhere wrote.",
    PageNotLost = "INV-page-not-lost":
        "After healing every page can be read everywhere, unless only a crashed node held it.",
    ProtectBeforeGrant = "INV-protect-before-grant":
        "A page is granted away only after local stores to it have been stopped.",
    FillBeforeMap = "INV-fill-before-map":
        "A page is mapped only when its frame has contents.",
    StashBeforeSend = "INV-stash-before-send":
        "Contents are sent only from where there are some.",
    OneOwner = "INV-one-owner":
        "Versions of a page only rise: nobody becomes its owner twice at one version.",
    HintNearer = "INV-hint-nearer":
        "A hint names who did own; each hop of a forwarded ask knows a newer version.",
    QueueTravels = "INV-queue-travels":
        "Who waits in a grant's queue is served in this order, before anybody else.",
    UsedBeforeLeaving = "INV-used-before-leaving":
        "A thread that was woken for a page finds it there, if not at once then before long.",
    Pinned = "INV-pinned":
        "A pinned page stays here until it is unpinned or its lease ends.",
    HeldUnchanged = "INV-held-unchanged":
        "A page that is readable on a node which holds its segment does not change anywhere.",
    WatchFirst = "INV-watch-first":
        "No store happens to a watched page before its watcher was told.",
    MutualExclusion = "INV-mutual-exclusion":
        "At most one thread holds a lock, and no increment under it is lost.",
    OneToken = "INV-one-token":
        "A lock's token is lent to the clients of at most one node, and only into an absent word.",
    LockRecovered = "INV-lock-recovered":
        "Whoever takes a lock whose holder died holding it is told so.",
    NobodyDied = "INV-nobody-died":
        "Nobody is told that a lock was recovered unless its holder or a node died, or a node left to which it was going.",
    Barrier = "INV-barrier":
        "Nobody passes a barrier before all have come.",
    OneReply = "INV-one-reply":
        "Every request is answered once (a wait: first Waiting, then the end), to the right client.",
    SensibleReply = "INV-sensible-reply":
        "A reply fits its request.",
    StoreKnows = "INV-store-knows":
        "When a store elects a coordinator, it knows every name of which a process was told.",
    ExclusiveCreate = "INV-exclusive-create":
        "Of several exclusive creations of one name exactly one succeeds.",
    Progress = "INV-progress":
        "After healing every operation that was begun ends within bounded time.",
    Quiet = "INV-quiet":
        "When nobody wants anything, nodes exchange nothing but signs of life.",
    NoLeak = "INV-no-leak":
        "When every segment is closed and removed, no node keeps memory of it.",
    DeadlineMoves = "INV-deadline-moves":
        "Handling a deadline that has come moves the next one into the future.",
    Replay = "INV-replay":
        "The journal of a node gives the very same node, at any moment.",
    Spoken = "INV-spoken":
        "A node speaks a version of the protocol that all members speak, once it knows the members.",
    NoPanic = "INV-no-panic":
        "Nothing that peers or clients do makes a node panic.",
    Law = "INV-drivers-law":
        "Effects name what exists: known mappings, pages that go with their message, known addresses.",
    Scenario = "scenario":
        "A transcript's expectation holds.",
}

/// A broken invariant, with details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// Which node and subject broke it, and how.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant.name(), self.detail)
    }
}

/// The result of every function that checks.
pub(crate) type Check<T = ()> = Result<T, Violation>;

/// Returns a [`Violation`] unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $invariant:ident, $($detail:tt)*) => {
        if !$condition {
            return Err($crate::check::Violation {
                invariant: $crate::check::Invariant::$invariant,
                detail: format!($($detail)*),
            });
        }
    };
}
pub(crate) use ensure;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> = Invariant::ALL.iter().map(|law| law.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Invariant::ALL.len());
    }
}
