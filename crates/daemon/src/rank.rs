//! Who goes first on a processor that this daemon and programs want.

use pagemesh_os::clock;
use pagemesh_os::cpu::Standing;

/// This daemon's rank among them.
#[derive(Debug, Default)]
pub(crate) struct Rank {
    /// None if the kernel does not let us.
    standing: Option<Standing>,
    /// Programs will compute once they run.
    computing: bool,
    /// When a program was woken, and nobody has looked since how long this daemon was
    /// away for it.
    woke: Option<u64>,
}

impl Rank {
    /// That of the calling thread.
    pub(crate) fn new(standing: Option<Standing>) -> Self {
        Self {
            standing,
            computing: false,
            woke: None,
        }
    }

    /// Whether programs that are woken from now on will compute.
    pub(crate) fn expect(&mut self, computing: bool) {
        self.computing = computing;
    }

    /// A program is about to be woken. If it will compute, this daemon is to sleep
    /// before that one has the processor: else it waits for it as one that could run,
    /// and no datagram wakes it.
    pub(crate) fn before_waking(&mut self) {
        self.woke.get_or_insert_with(clock::monotonic);
        if self.computing {
            self.go_first();
        }
    }

    /// When the first program was woken since this was asked last.
    pub(crate) fn woke(&mut self) -> Option<u64> {
        self.woke.take()
    }

    /// Who computes is not to keep this daemon waiting when it is woken.
    pub(crate) fn go_first(&mut self) {
        if let Some(standing) = &mut self.standing {
            standing.go_first();
        }
    }

    /// Giving way is to mean something.
    pub(crate) fn take_turns(&mut self) {
        if let Some(standing) = &mut self.standing {
            standing.take_turns();
        }
    }
}
