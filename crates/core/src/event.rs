//! The list of all events, which counters, logs, time stamps and the dashboard share.

use core::net::SocketAddr;
use pagemesh_wire::{NodeId, PageIndex, SegmentId, SyncKey, Version};

macro_rules! events {
    ($( $(#[$doc:meta])* $name:ident { $($field:ident : $type:ty),* } => $counter:literal ),* $(,)?) => {
        /// An event that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Event {
            $( $(#[$doc])* $name {
                $(
                    #[doc = concat!("The ", stringify!($field), " concerned.")]
                    $field: $type
                ),*
            } ),*
        }

        /// The names of all counters, by [`Event::index`].
        pub const COUNTERS: &[&str] = &[$($counter),*];

        #[repr(usize)]
        enum Index { $($name),* }

        impl Event {
            /// The event's place in [`COUNTERS`].
            #[must_use]
            pub fn index(&self) -> usize {
                match self { $( Self::$name { .. } => Index::$name as usize ),* }
            }

            /// The name of the counter that counts it.
            #[must_use]
            pub fn counter(&self) -> &'static str {
                COUNTERS[self.index()]
            }
        }
    };
}

events! {
    /// A load found no copy here.
    ReadFault { segment: SegmentId, page: PageIndex } => "faults_read",
    /// A store found no right to write here and no copy.
    WriteFault { segment: SegmentId, page: PageIndex } => "faults_write",
    /// A store found a read copy here (M11).
    Upgrade { segment: SegmentId, page: PageIndex } => "faults_upgrade",
    /// A load found nothing here, and the right to store was asked for, since a store
    /// has always followed (MB8).
    StoreExpected { segment: SegmentId, page: PageIndex } => "stores_expected",
    /// Another process or thread of this node had the page already (M4).
    LocalFault { segment: SegmentId, page: PageIndex } => "faults_local",
    /// The driver reports the faults of a segment from now on, which only this node has used.
    Trapped { segment: SegmentId } => "segments_trapped",
    /// The kernel repeated a fault that is being served.
    RepeatedFault { segment: SegmentId, page: PageIndex } => "faults_repeated",
    /// A request left for another node.
    Asked { segment: SegmentId, page: PageIndex } => "asked",
    /// A request was forwarded along an owner hint (F19).
    Forwarded { segment: SegmentId, page: PageIndex } => "forwarded",
    /// A read copy arrived.
    CopyArrived { segment: SegmentId, page: PageIndex } => "copies_arrived",
    /// Ownership arrived.
    OwnershipArrived { segment: SegmentId, page: PageIndex } => "ownerships_arrived",
    /// A page's bytes arrived.
    BytesArrived { segment: SegmentId, page: PageIndex } => "pages_in",
    /// A page's bytes left.
    BytesLeft { segment: SegmentId, page: PageIndex } => "pages_out",
    /// Rights were granted to a waiting access; the fault is over.
    Granted { segment: SegmentId, page: PageIndex } => "faults_served",
    /// A page was asked for before anybody touched it.
    AskedAhead { segment: SegmentId, page: PageIndex } => "asked_ahead",
    /// A page asked for ahead came before anybody waited for it.
    CameAhead { segment: SegmentId, page: PageIndex } => "came_ahead",
    /// A page asked for ahead was asked for again: it was passed by later ones, or
    /// nothing came any more.
    Repaired { segment: SegmentId, page: PageIndex } => "repaired",
    /// A request was left to a reader that has a copy.
    CopyLeftToReader { segment: SegmentId, page: PageIndex } => "copies_left_to_readers",
    /// A reader sent its copy on to another one, as the owner had said.
    CopySentOn { segment: SegmentId, page: PageIndex } => "copies_sent_on",
    /// A read copy was sent.
    CopyGiven { segment: SegmentId, page: PageIndex } => "copies_given",
    /// Ownership was sent.
    OwnershipGiven { segment: SegmentId, page: PageIndex, to: NodeId, version: Version } => "ownerships_given",
    /// The writer here became a reader (M11).
    Downgraded { segment: SegmentId, page: PageIndex } => "downgrades",
    /// The copy here was dropped for a writer elsewhere.
    Invalidated { segment: SegmentId, page: PageIndex } => "invalidations_in",
    /// Copies elsewhere were invalidated for a writer here, or by the owner here.
    InvalidationSent { segment: SegmentId, page: PageIndex } => "invalidations_out",
    /// A request had to wait for the time window Δ (M10).
    Delayed { segment: SegmentId, page: PageIndex } => "window_delays",
    /// A page was held back because it had not been used yet (M12).
    Unused { segment: SegmentId, page: PageIndex } => "use_guards",
    /// A page left its node before it was seen to be used, after the longest wait.
    Stolen { segment: SegmentId, page: PageIndex } => "pages_stolen",
    /// Something was sent again for want of an answer (F20).
    Resent {} => "resent",
    /// A message came too late or twice.
    Stale {} => "stale",
    /// This node did not run for a while: it was stopped or frozen, or had no processor.
    WasAway {} => "absences",
    /// A datagram that is none of ours, or malformed, was dropped.
    Malformed {} => "malformed",
    /// A datagram of another version of the protocol was dropped.
    ForeignVersion { source: SocketAddr, version: u8 } => "foreign_version",
    /// The version of the protocol in which the cluster speaks, as far as this node knows.
    Speaks { version: u8 } => "spoken_version_changes",
    /// A datagram of a stranger, another cluster or a former life was dropped.
    Stranger {} => "strangers",
    /// An access could not be served: its page is lost.
    Failed { segment: SegmentId, page: PageIndex } => "faults_failed",
    /// A page whose owner was gone lives on from the copy here.
    Regained { segment: SegmentId, page: PageIndex } => "pages_regained",
    /// A page became owned here at this version: the simulator's checkers watch it.
    Owned { segment: SegmentId, page: PageIndex, version: Version } => "owned",
    /// A lock was granted to a process here.
    Locked { key: SyncKey } => "locks",
    /// A lock's token arrived.
    TokenArrived { key: SyncKey } => "tokens_in",
    /// A lock's token left.
    TokenGiven { key: SyncKey, to: NodeId, version: Version } => "tokens_out",
    /// A lock was taken back from a dead process.
    LockRecovered { key: SyncKey } => "locks_recovered",
    /// A barrier opened for a process here.
    BarrierPassed { key: SyncKey } => "barriers",
    /// A host that wanted to join was refused.
    JoinRefused {} => "joins_refused",
    /// A member joined.
    Joined { node: NodeId } => "members_joined",
    /// A member left.
    Left { node: NodeId } => "members_left",
    /// A member was declared dead.
    Died { node: NodeId } => "members_died",
    /// This node was admitted.
    Admitted { node: NodeId } => "admitted",
    /// This node was refused or expelled.
    Expelled {} => "expelled",
    /// A page that was taken from its frame came back before it left the node.
    SoftFault { segment: SegmentId, page: PageIndex } => "faults_soft",
    /// A page was sent to a donor.
    PageLent { segment: SegmentId, page: PageIndex } => "pages_lent",
    /// A donor did not have a page that it was asked for.
    DonorMissed { segment: SegmentId, page: PageIndex } => "donor_misses",
    /// A page was read from the disk.
    DiskRead { segment: SegmentId, page: PageIndex } => "pages_from_disk",
    /// A page was written to the disk.
    DiskWritten { segment: SegmentId, page: PageIndex } => "pages_to_disk",
    /// The disk had no room for pages.
    DiskFull {} => "disk_full",
    /// A page of another node is kept here.
    PageBorrowed { segment: SegmentId, page: PageIndex } => "pages_borrowed",
    /// A page was sent back to its owner.
    PageReturned { segment: SegmentId, page: PageIndex } => "pages_returned",
    /// A page of another node was dropped for a younger one, or for the host.
    BorrowedDropped {} => "borrowed_dropped",
    /// There was no room for a page of another node.
    PutRefused {} => "puts_refused",
    /// This node began an epoch of global memory.
    EpochBegan {} => "epochs",
    /// Another node is the coordinator, or this one is now.
    CoordinatorChanged { node: NodeId } => "coordinator_changes",
    /// This node has become the coordinator.
    Promoted {} => "promotions",
    /// This node, the coordinator, has named its standby.
    StandbyNamed { node: NodeId } => "standbys_named",
    /// This node was the coordinator, and another one is.
    Superseded { node: NodeId } => "superseded",
    /// A datagram of a coordinator of an older term was dropped.
    OldCoordinator { node: NodeId } => "old_coordinators",
    /// A page of a file was read that this node caches.
    FilePageHere {} => "file_pages_here",
    /// A page of a file came from another node that caches it.
    FilePageCame {} => "file_pages_in",
    /// A page of a file was sent to another node.
    FilePageSent {} => "file_pages_out",
    /// A page was read from its file.
    FilePageRead {} => "file_pages_read",
    /// A page of a file left this node's cache.
    FilePageDropped {} => "file_pages_dropped",
    /// The directory said that this node caches pages of a file that it did not.
    FilePageMissed {} => "file_pages_missed",
    /// A page left this node for want of memory (F14).
    PressedOut { segment: SegmentId, page: PageIndex } => "pages_pressed_out",
    /// This node has joined again after it was declared dead, and its programs go on.
    Rejoined { node: NodeId } => "rejoined",
    /// The last copy of a page of a file was sent to another node, which is to keep it.
    FilePagePut {} => "file_pages_put",
    /// A page of a file is kept here for other nodes.
    FilePageKept {} => "file_pages_kept",
    /// A page that was kept for others was sent on to another node (N-chance).
    PageSentOn {} => "pages_sent_on",
    /// This node went on as the coordinator, from its disk.
    Resumed {} => "resumptions",
    /// This node has told which lives that are over it names.
    NamesTold {} => "names_told",
    /// This node, the coordinator, may give numbers of lives that are over again.
    NumbersFreed { count: u32 } => "number_checks_fruitful",
    /// New contents of pages of policy `views` are here, for processes that wait for them.
    ViewChanged { segment: SegmentId } => "views_changed",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_distinct_names() {
        let mut names = COUNTERS.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COUNTERS.len());
        assert_eq!(Event::Resent {}.counter(), "resent");
    }
}
