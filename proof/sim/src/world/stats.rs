//! The counts of a run.

/// The counts of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Steps of programs that ended.
    pub operations: u64,
    /// Datagrams sent, signs of life included.
    pub datagrams: u64,
    /// Datagrams sent that were no signs of life.
    pub messages: u64,
    /// Of these, those that carried a page.
    pub pages: u64,
    /// Sealed datagrams and handshakes, in seeds that have guards.
    pub sealed: u64,
    /// Pieces of messages, in seeds that have narrow links.
    pub pieces: u64,
    /// Datagrams lost.
    pub lost: u64,
    /// Datagrams that came twice.
    pub twice: u64,
    /// Cuts, pauses, slow phases, deaths of processes and hosts.
    pub faults: u64,
    /// Daemons that were killed and replaced.
    pub replaced: u64,
    /// Hosts that were declared dead although they lived.
    pub buried_alive: u64,
    /// Daemons that were replaced by one of another program.
    pub upgraded: u64,
    /// Standbys that became the coordinator.
    pub promotions: u64,
    /// Happenings of any kind.
    pub happenings: u64,
    /// Pages that left before their threads had used them.
    pub stolen: u64,
    /// Pages that left a host for want of memory.
    pub pressed_out: u64,
    /// Accesses that the kernel served by itself.
    pub untrapped: u64,
    /// How often one thread stopped for one access.
    pub most_stops: u32,
    /// Nanoseconds the slowest operation took.
    pub worst_wait: u64,
    /// Simulated nanoseconds.
    pub simulated: u64,
}
