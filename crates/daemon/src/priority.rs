//! Scheduling of this daemon against programs that want the same processor.

use pagemesh_os::clock;
use pagemesh_os::cpu::Standing;

/// The daemon's priority against programs.
#[derive(Debug, Default)]
pub(crate) struct SchedulingPriority {
    /// `None` if the kernel does not permit the change.
    standing: Option<Standing>,
    /// Programs are expected to compute once they run.
    computing: bool,
    /// When the first program was woken since [`SchedulingPriority::woke`] was called last.
    woke: Option<u64>,
}

impl SchedulingPriority {
    /// For the calling thread.
    pub(crate) fn new(standing: Option<Standing>) -> Self {
        Self {
            standing,
            computing: false,
            woke: None,
        }
    }

    /// Tells whether programs woken from now on will compute.
    pub(crate) fn expect(&mut self, computing: bool) {
        self.computing = computing;
    }

    /// Called before a program is woken. If it will compute, the daemon must sleep before the
    /// program gets the processor: else the daemon is runnable behind it, and no datagram wakes it.
    pub(crate) fn before_waking(&mut self) {
        self.woke.get_or_insert_with(clock::monotonic);
        if self.computing {
            self.go_first();
        }
    }

    /// When the first program was woken since the last call.
    pub(crate) fn woke(&mut self) -> Option<u64> {
        self.woke.take()
    }

    /// Programs that compute must not delay this daemon when it is woken.
    pub(crate) fn go_first(&mut self) {
        if let Some(standing) = &mut self.standing {
            standing.go_first();
        }
    }

    /// Lets a yield of this daemon pass the processor on.
    pub(crate) fn take_turns(&mut self) {
        if let Some(standing) = &mut self.standing {
            standing.take_turns();
        }
    }
}
