//! Every bound of the protocol, in one place, with its reason.

use core::time::Duration;
use pagemesh_wire::ByteLen;

/// The coordinator checks which numbers nobody names any more when at most so many are free: enough
/// for all hosts that join before the answers are there, and rare enough that the checks, which
/// look at everything that the members know, cost nothing.
pub const NUMBERS_LOW: usize = 48;

/// The shortest time between two of these checks, and the wait after one that freed a number.
pub const CHECK_AGAIN: Duration = Duration::from_secs(1);

/// The longest: each check that frees nothing doubles the wait.
pub const CHECK_AGAIN_AT_LAST: Duration = Duration::from_secs(60);

/// First wait before a request is sent again. It is longer than a scheduler's time slice on a busy
/// host, and short enough that a lost datagram delays a program only a little.
pub const RESEND_FIRST: Duration = Duration::from_millis(10);

/// First wait for something that no thread waits for yet, as a multiple of [`RESEND_FIRST`]. Many such
/// requests are under way at once; to a node that is kept from its processor for some time slices
/// all of them would be sent again. A thread that comes to wait shortens it.
pub const RESEND_UNHURRIED: u32 = 4;

/// First wait for a page or a lock where answers have lately come sooner: a multiple of this, as
/// `patience.rs` has learnt. It is a hundred times as long as an exchange takes, so that no request
/// is sent again to a daemon that waits for its processor for a moment.
pub const RESEND_SOONEST: Duration = Duration::from_millis(2);

/// The longest wait between two resends; waits double up to this (F20).
pub const RESEND_CEILING: Duration = Duration::from_secs(1);

/// The shortest Δ of `auto`. The woken thread must get to its access, otherwise the page is revoked
/// again before the access and no thread progresses (docs/design/kernel.md, "Giving it back too
/// soon").
pub const WINDOW_MIN: Duration = Duration::from_micros(30);

/// Δ of `auto` is the time it took to get the page, divided by this. That time includes the windows
/// of the nodes that had the page before: if Δ were all of it, two contending nodes would make each
/// other hold the page longer and longer. With half of it each holds the page for as long as the
/// page takes to come. With more contending nodes Δ grows up to [`WINDOW_MAX`], which gives slow
/// nodes the time to ask again (`turns.rs` of the simulator).
pub const WINDOW_SHARE: u32 = 2;

/// Δ of `auto` for a page of which it is known that a load is followed by a store: a woken thread
/// needs this time to do both.
pub const WINDOW_BURST: Duration = Duration::from_micros(20);

/// The longest Δ of `auto`, however many nodes contend.
pub const WINDOW_MAX: Duration = Duration::from_micros(300);

/// The longest Δ that a segment may ask for; all other nodes wait for it.
pub const WINDOW_LIMIT: Duration = Duration::from_secs(10);

/// Time between two checks whether a page has been used (M12).
pub const USE_RECHECK: Duration = Duration::from_micros(100);

/// A page that has not been used after this time leaves anyway: its thread is stopped or starved,
/// and other nodes must not wait forever.
pub const USE_GUARD: Duration = Duration::from_millis(20);

/// The longest time for which a process keeps pages by pinning them (M14).
pub const PIN_LEASE: Duration = Duration::from_secs(1);

/// Pages that one pin may name.
pub const PIN_PAGES: u32 = 4096;

/// The longest time for which a process that saves a segment keeps it from changing. It is as long as
/// the longest Δ, so that a page which another node keeps for that long arrives in time.
pub const HOLD_LEASE: Duration = WINDOW_LIMIT;

/// Pages of which one reply tells the state: it fits into a packet of the socket.
pub const STATES: u32 = 4096;

/// Pages of one segment that are asked for ahead and still under way. Their answers must fit into
/// the socket's receive buffer, whose size the driver knows; it may lower this for that reason.
pub const AHEAD: u32 = 512;

/// Pages of a burst that its owner leaves to another reader at least; for fewer the longer way is not
/// worth it.
pub const LEFT_TO_READER: u8 = 4;

/// Pages of a segment that is trapped from now on that are taken in after one input: some 10 to 50 ms, in
/// which nobody is answered.
pub const FRAMES_AT_ONCE: u32 = 16_384;

/// A node that asked for a burst this long ago reads no more, and serves no other reader. On a slow
/// link, or a busy host, a burst takes a good part of that.
pub const READS: Duration = Duration::from_millis(500);

/// Pages of a willneed range that are under way at once; fewer than [`AHEAD`], because other
/// accesses must be served, too.
pub const WILLNEED_RANGE: u32 = 128;

/// Ranges of announced pages that wait on a node for their turn, of one segment. Beyond them an
/// announcement is forgotten: its pages come when they are touched.
pub const WILLNEED_RANGES: usize = 8192;

/// Pages that a node makes whole at once because a collection makes it their keeper. It may be
/// thousands in all: answers to that many requests would not fit into the socket's receive buffer,
/// and a thread that needs a page would wait behind them.
pub const WHOLE_AT_ONCE: usize = 128;

/// Time between two heartbeats of a member.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// The same where a shared store elects the coordinator, which has to be missed soon.
pub const HEARTBEAT_ELECTED: Duration = Duration::from_millis(250);

/// A member that has been silent for this long is declared dead. The time is generous, because a
/// host that runs eight nodes on two cores must not lose any of them.
pub const DEAD_AFTER: Duration = Duration::from_secs(5);

/// A deadline that is handled later than so many heartbeats after its time shows that the node did not
/// run meanwhile. A second, as long as no member is given up for less than five.
pub const AWAY: u32 = 2;

/// The first node is never declared dead, since it may come back. When it has been silent for this
/// many times [`DEAD_AFTER`], accesses that have waited as long fail. That is longer than the 30 s
/// for which the keeper of a dead daemon waits for a successor.
pub const FORSAKEN: u32 = 12;

/// While the first node is silent, a heartbeat goes to so many other nodes at most, so that a large
/// cluster is not flooded. In one of a thousand each is asked every 16 s, three times before it counts
/// as silent.
pub const ASKED: usize = 32;

/// In a cluster of more members, those of the lowest numbers pass on the signs of life of the others, so
/// many, each those of its share. That is enough for all numbers that there are.
pub const RELAYS: usize = 32;

/// A member whose signs of life are not answered for this many heartbeats by way of its relay sends
/// them to the coordinator itself: that hears it several times before it would declare it dead.
pub const RELAY_SILENT: u32 = 2;

/// The claim to coordinate may be taken from a node that has not renewed it for this many
/// heartbeats, where a shared store elects the coordinator.
pub const CLAIM: u32 = 4;

/// Where a shared store elects the coordinator, the elected node waits for the promise of a member for
/// this many heartbeats. Then it waits on only for members that have asked the store for the claim
/// meanwhile, as a living one does that cannot be reached from here.
pub const PROMISE: u32 = 6;

/// Time between two requests of a host that wants to join.
pub const JOIN_RETRY: Duration = Duration::from_millis(200);

/// Times that a node that was declared dead joins again by itself. Each takes one of the cluster's
/// [`NodeId::NEAR`](pagemesh_wire::NodeId::NEAR) numbers, and a host that is cut off again and
/// again must not use them up: its daemon waits for a person then.
pub const REJOINS: u32 = 8;

/// Requests and accesses that a node keeps for its processes while it joins again; more are refused.
pub const KEPT_WAITING: usize = 1 << 16;

/// Segments in one reply to a list.
pub const LIST_PAGE: usize = 16;

/// Segments of one user in the whole cluster, unless the first node is told otherwise: as many as
/// the kernel's `SHMMNI`. Each segment costs memory of the first node, and a descriptor on every
/// node that has pages of it.
pub const SEGMENTS_OF_USER: u32 = 4096;

/// Bytes of all segments of one user, unless the first node is told otherwise: four segments of the
/// largest size. Pages that are never touched cost nothing, so this bounds page numbers, not
/// memory.
pub const BYTES_OF_USER: ByteLen = ByteLen(64 << 40);

/// Calls of one node that its server remembers. A node has far fewer open; a node with more repeats
/// the rest until others are answered.
pub const CALLS_KEPT: usize = 1 << 16;

/// Supplementary groups of a process that travel with its requests.
pub const GROUPS: usize = 64;

/// Entries of a leaving home's state in one call: they must fit into one datagram.
pub const INHERITED: usize = 32;

/// Write notices and interval records of one segment that a node remembers before it asks for a
/// collection: with a diff of a page for each, some 70 MB. The first notice of each page does not
/// count.
pub const NOTICES_KEPT: u32 = 1 << 14;

/// A diff of this many bytes is large: three quarters of a page. A copy of the page costs less.
pub const LARGE_DIFF: u16 = 3072;

/// So many large diffs of a node in a row show that its next ones are large, too.
pub const LARGE_DIFFS_SHOWN: u8 = 8;

/// Pages of one segment whose first notice does not count towards [`NOTICES_KEPT`]. Their records
/// fill a quarter of a GB; the pages themselves fill sixteen.
pub const PAGES_NAMED: usize = 1 << 22;

/// Pages of one segment that this node has written and whose diff no node has asked for: their
/// twins fill one GB. A daemon takes an eighth of its host's memory if that is more.
pub const TWINS_KEPT: u32 = 1 << 18;

/// Diffs that travel with a token or with the departure from a barrier (`hybrid`): this many of the
/// largest size fill one datagram.
pub const ATTACHED: usize = 24;
/// Bytes of the largest diff that travels with a token or departure.
pub const ATTACHED_BYTES: u16 = 512;

/// Diffs pushed to one node at one release (`eager`): more at once would not fit into the
/// receiver's socket buffer. The receiver asks for the rest.
pub const PUSHED: usize = 96;

/// Diffs that are kept although their notices have not come yet.
pub const EARLY: usize = 256;

/// Time between two attempts to write to a disk that was full.
pub const DISK_RETRY: Duration = Duration::from_millis(200);

/// Accesses that wait for room on a full disk fail after this time.
pub const DISK_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a coordinator's log in one call to its standby. Two of the largest decisions fit, and
/// the call fits into a datagram.
pub const LOG_BYTES: usize = 8 << 10;

/// Entries of a log whose receiver is still given a copy, at most: then a new copy is begun, which
/// is shorter.
pub const LOG_KEPT: usize = 1 << 16;

/// Segments that ended lately, as a standby remembers them, at most: many more than are under way
/// when a coordinator dies.
pub const GONE_KEPT: usize = 1024;
/// Chunks of files of which one node remembers who caches them: with one holder each some 100 MB,
/// for 256 GiB of cached files. More are not remembered, and are read from the files.
pub const SHARED_CHUNKS: usize = 1 << 20;

/// Chunks of files that are told at once to the nodes that have the directory now, and the time
/// between two such bursts: a cache of 16 GiB is told within half a minute, and no receiver is
/// flooded.
pub const SHARED_ANNOUNCED: usize = 64;
/// See [`SHARED_ANNOUNCED`].
pub const SHARED_PAUSE: Duration = Duration::from_millis(5);

/// Page ownerships under way at once when a node leaves.
pub const LEAVE_BURST: usize = 64;

/// Time between two questions of a donor whether owners count on what it keeps for them. A copy
/// that nobody counts on is rare, so one question in a second is enough.
pub const AUDIT_PAUSE: Duration = Duration::from_secs(1);

/// Time between the end of a round of questions and the next one.
pub const AUDIT_ROUND: Duration = Duration::from_secs(30);

/// Pages that are looked at for one question: less than a tenth of a millisecond.
pub const AUDIT_SCAN: usize = 1024;

/// Pages kept for others that go at once when the host wants its memory back: some milliseconds, in
/// which a node answers nobody.
pub const GIVEN_BACK: u32 = 1024;

const _: () = assert!(RESEND_SOONEST.as_nanos() < RESEND_FIRST.as_nanos());
const _: () = assert!(RESEND_FIRST.as_nanos() < RESEND_CEILING.as_nanos());
const _: () = assert!(WINDOW_MIN.as_nanos() < WINDOW_MAX.as_nanos());
const _: () = assert!(WINDOW_MAX.as_nanos() < RESEND_CEILING.as_nanos());
const _: () = assert!(RELAYS * (RELAYS + 1) >= pagemesh_wire::NodeId::LIMIT as usize);
const _: () = assert!(HEARTBEAT.as_nanos() * (RELAY_SILENT as u128 + 4) < DEAD_AFTER.as_nanos());
const _: () = assert!(HEARTBEAT.as_nanos() * 4 < DEAD_AFTER.as_nanos());
