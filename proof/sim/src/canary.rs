//! Bugs planted on purpose: they show that the simulator finds bugs.

use pagemesh_wire::peer::Message;
use std::fmt;
use std::str::FromStr;

macro_rules! canaries {
    ($( $(#[$doc:meta])* $variant:ident = $name:literal ),* $(,)?) => {
        /// One planted bug, in the simulated kernel or network, never in the core.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Canary {
            $( $(#[$doc])* $variant ),*
        }

        impl Canary {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

canaries! {
    /// Eviction leaves the rights of one mapping in place.
    EvictMissesMapping = "evict-misses-mapping",
    /// An invalidation is acknowledged, but the copy stays.
    InvalidateIgnored = "invalidate-ignored",
    /// The right to store is not taken away before a copy is given.
    ProtectForgotten = "protect-forgotten",
    /// What comes out of the stash is zeros.
    StashForgotten = "stash-forgotten",
    /// A held lock is taken from its holder.
    LockStolen = "lock-stolen",
    /// The holder of a lock never learns that others wait.
    WantedForgotten = "wanted-forgotten",
    /// A token that comes back from a free word is said to come from a dead holder.
    DeathInvented = "death-invented",
    /// Acknowledgements of ownership never arrive.
    PassAckLost = "passack-lost",
    /// A daemon that takes the place of a killed one does over what was done.
    RedoBlind = "redo-blind",
    /// A barrier's departures reach processes before the others came.
    BarrierLeaks = "barrier-leaks",
    /// Every second grant does not take along who waits.
    QueueForgotten = "queue-forgotten",
    /// Forwarded asks name a newer version than anybody knows.
    HintInvented = "hint-invented",
    /// The store that elects the coordinator says that it has a batch before it has it.
    KeptTooSoon = "kept-too-soon",
    /// Of a segment that is trapped late, one page that has a frame is not listed.
    FrameUnlisted = "frame-unlisted",
}

impl Canary {
    /// Replaces a message by what the planted bug sends in its place.
    pub(crate) fn tamper(self, message: &mut Message) {
        match (self, message) {
            (Self::QueueForgotten, Message::Pass(pass)) if pass.version.0 % 2 == 0 => {
                pass.queue.clear();
            }
            (Self::HintInvented, Message::Ask(ask)) if (1..u8::MAX).contains(&ask.hops) => {
                ask.since = ask.since.next();
            }
            _ => {}
        }
    }
}

impl fmt::Display for Canary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Canary {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|canary| canary.name() == name);
        found.copied().ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|canary| canary.name()).collect();
            format!("no such canary; there are {}", names.join(", "))
        })
    }
}
