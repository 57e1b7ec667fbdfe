//! Every bound of the protocol, in one place, with its reason.

use core::time::Duration;
use pagemesh_wire::ByteLen;

/// First wait before a request is sent again. Long enough for a scheduler's
/// time slice on a busy host, short enough that a lost datagram is a hiccup.
pub const RESEND_FIRST: Duration = Duration::from_millis(10);

/// The same for a page or a lock, where answers have lately come sooner than that: a
/// multiple of this, as `patience.rs` has learnt. A hundred times what an exchange takes,
/// so that a daemon that is kept from its processor for a moment is not asked again.
pub const RESEND_SOONEST: Duration = Duration::from_millis(2);

/// Waits double up to this (F20).
pub const RESEND_CEILING: Duration = Duration::from_secs(1);

/// Δ of `auto` never falls below this: the woken thread must get to its access,
/// else re-revocation beats it and nobody progresses (docs/design/kernel.md, "Giving it back too soon").
pub const WINDOW_MIN: Duration = Duration::from_micros(30);

/// Δ of `auto` is this part of the time it took to get the page. That time includes the
/// windows of those who had it before: with all of it, two who contend would teach each
/// other to hold on longer and longer. With half of it they come to hold the page as long
/// as it takes to come. More who contend hold it longer, up to the bound below, which
/// gives the slow among them the time to ask again (`turns.rs` of the simulator).
pub const WINDOW_SHARE: u32 = 2;

/// Δ of `auto` where it is known that who loads will store: that long a woken thread
/// needs until it has done both.
pub const WINDOW_BURST: Duration = Duration::from_micros(20);

/// Δ of `auto` never rises above this, however many contend.
pub const WINDOW_MAX: Duration = Duration::from_micros(300);

/// The longest Δ a segment may ask for; everybody else waits for it.
pub const WINDOW_LIMIT: Duration = Duration::from_secs(10);

/// How soon to look again whether a page has been used (M12).
pub const USE_RECHECK: Duration = Duration::from_micros(100);

/// A page that was not used after this long leaves anyway: its thread is
/// stopped or starved, and nobody may wait for ever.
pub const USE_GUARD: Duration = Duration::from_millis(20);

/// The longest a process keeps pages by pinning them (M14).
pub const PIN_LEASE: Duration = Duration::from_secs(1);

/// Pages one pin may name.
pub const PIN_PAGES: u32 = 4096;

/// Pages of one segment asked for ahead and still under way. Their answers must find
/// room in the socket's buffer, which the driver knows and may lower this for.
pub const AHEAD: u32 = 512;

/// Pages that a program's announcement keeps under way: others want to be served, too.
pub const ERRAND: u32 = 128;

/// Members send a sign of life this often.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// A member that gave none for this long is dead. Generous: hosts that share
/// two cores with seven others must not be buried alive.
pub const DEAD_AFTER: Duration = Duration::from_secs(5);

/// Nobody buries the first node, since it may come back. When it has been silent for
/// so many times the above, accesses that have waited as long are given up: longer
/// than a daemon that died waits for another to take its place (30 s).
pub const FORSAKEN: u32 = 12;

/// A host that wants to join repeats itself this often.
pub const JOIN_RETRY: Duration = Duration::from_millis(200);

/// Segments in one reply to a list.
pub const LIST_PAGE: usize = 16;

/// Segments of one user in the whole cluster, unless the first node is told otherwise: as
/// many as the kernel's `SHMMNI`. Each costs memory of the first node, and a descriptor of
/// every node where it has pages.
pub const SEGMENTS_OF_USER: u32 = 4096;

/// Bytes of all segments of one user, unless the first node is told otherwise: four of the
/// largest. Pages that nobody touches cost nothing, so this bounds page numbers, not memory.
pub const BYTES_OF_USER: ByteLen = ByteLen(64 << 40);

/// Calls of one node that its server remembers. Far more than a node has open;
/// one that has more repeats itself until others are answered.
pub const CALLS_KEPT: usize = 1 << 16;

/// Groups of a process that travel with its requests.
pub const GROUPS: usize = 64;

/// Pieces of a leaving home's knowledge in one call: they must fit a datagram.
pub const INHERITED: usize = 32;

/// Write notices and interval records of one segment that a node remembers before it
/// wants them collected: with a diff of a page for each, some 70 MB. A page's first one is free.
pub const NOTICES_KEPT: u32 = 1 << 14;

/// Pages of one segment whose first notice does not count for that. These fill a quarter of a
/// GB where the pages themselves fill sixteen.
pub const PAGES_NAMED: usize = 1 << 22;

/// Pages of one segment that this node has written and whose diff nobody has asked for: their
/// twins fill a GB. A daemon takes an eighth of its host's memory if that is more.
pub const TWINS_KEPT: u32 = 1 << 18;

/// Diffs that go along with a token or the opening of a barrier (`hybrid`), and the
/// largest of them: together they fill one datagram.
pub const ATTACHED: usize = 24;
/// Bytes of the largest diff that goes along.
pub const ATTACHED_BYTES: u16 = 512;

/// Diffs pushed to one node at one release (`eager`): more at once would not find
/// room in its socket's buffer. The rest is asked for.
pub const PUSHED: usize = 96;

/// Diffs kept although their notices have not come yet.
pub const EARLY: usize = 256;

/// Page ownerships under way at once when a node leaves.
pub const LEAVE_BURST: usize = 64;

const _: () = assert!(RESEND_SOONEST.as_nanos() < RESEND_FIRST.as_nanos());
const _: () = assert!(RESEND_FIRST.as_nanos() < RESEND_CEILING.as_nanos());
const _: () = assert!(WINDOW_MIN.as_nanos() < WINDOW_MAX.as_nanos());
const _: () = assert!(WINDOW_MAX.as_nanos() < RESEND_CEILING.as_nanos());
const _: () = assert!(HEARTBEAT.as_nanos() * 4 < DEAD_AFTER.as_nanos());
