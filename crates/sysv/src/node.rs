//! Requests to the daemon of this host.

use crate::{Result, shm};
use pagemesh::{Attached, Error, Guarded, Mesh, Refusal, Segment, watch_forks};
use pagemesh_os::signals::Quiet;
use pagemesh_wire::peer::{Health, Member};
use pagemesh_wire::sysv::{Family, IPC_NOWAIT, Id, Op, Outcome, Pick, Usage};
use std::cell::Cell;
use std::fmt::Display;
use std::io::Write as _;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

static MESH: Guarded<Option<Mesh>> = Guarded::new(None);

/// Sends a request, and waits as the call does: until a deadline, or a signal.
pub fn ask(op: Op, until: Option<Instant>) -> Result<Outcome> {
    let waits = match &op {
        Op::SemOp { .. } => true,
        Op::MsgSend { flags, .. } | Op::MsgReceive { flags, .. } => flags & IPC_NOWAIT == 0,
        _ => false,
    };
    let outcome = again(waits, || {
        mesh()?.sysv(op.clone(), until).map_err(Trouble::Call)
    })?;
    match outcome {
        Outcome::Failed(errno) => Err(errno.0.into()),
        outcome => Ok(outcome),
    }
}

/// The object at an index of the tables, for `SHM_STAT` and the like; `any` for `SHM_STAT_ANY` and
/// the like. As in the kernel, an object's number is accepted instead of its index, too.
pub fn ask_place(family: Family, place: libc::c_int, any: bool) -> Result<Outcome> {
    /// The lowest number of an object.
    const FIRST: libc::c_int = 1 << 15;
    let stat = |place| {
        let pick = if any {
            Pick::IndexAny(place)
        } else {
            Pick::Index(place)
        };
        ask(Op::Stat { family, pick }, None)
    };
    match stat(place) {
        Err(libc::EINVAL) if place >= FIRST && Id(place).index() >= 0 => stat(Id(place).index()),
        done => done,
    }
}

/// Sends a request whose result is a number.
pub fn ask_number(op: Op) -> Result<libc::c_int> {
    match ask(op, None)? {
        Outcome::Number(number) => Ok(number),
        other => Err(strange(&other)),
    }
}

/// The usage of a family of objects.
pub fn ask_usage(op: Op) -> Result<Usage> {
    match ask(op, None)? {
        Outcome::Usage(usage) => Ok(usage),
        other => Err(strange(&other)),
    }
}

/// The number of live nodes in the cluster; at least one.
pub fn members() -> u64 {
    let known = mesh().ok().and_then(|mesh| mesh.members().ok());
    let alive = |member: &&Member| member.health == Health::Alive;
    known.map_or(1, |known| {
        known.members.iter().filter(alive).count().max(1) as u64
    })
}

/// Opens a segment.
pub fn attach(op: &Op, write: bool) -> Result<Segment> {
    let attached = again(false, || {
        let mesh = mesh()?;
        mesh.sysv_attach(op.clone(), write).map_err(Trouble::Call)
    })?;
    match attached {
        Attached::Here(segment) => Ok(segment),
        Attached::Failed(errno) => Err(errno.0.into()),
    }
}

/// The reply does not fit the request.
pub fn strange(_: &Outcome) -> libc::c_int {
    complain("the daemon answers something else; is it of another version?");
    libc::EINVAL
}

/// Why a request could not be made.
enum Trouble {
    /// There is no daemon.
    NoNode,
    /// A call to the daemon failed.
    Call(Error),
}

fn again<T>(waits: bool, mut work: impl FnMut() -> std::result::Result<T, Trouble>) -> Result<T> {
    loop {
        let error = match work() {
            Ok(done) => return Ok(done),
            Err(Trouble::NoNode) => return Err(libc::ENOSYS),
            Err(Trouble::Call(error)) => error,
        };
        return Err(match error {
            // Only a call that waits is interrupted; others are repeated.
            Error::Interrupted if waits => libc::EINTR,
            Error::Interrupted => continue,
            Error::TimedOut => libc::EAGAIN,
            Error::Refused(
                Refusal::NodeGone(_) | Refusal::NotMember | Refusal::DeclaredDead { .. },
            ) => libc::EIDRM,
            Error::Refused(Refusal::Limit(why)) => {
                complain(why);
                libc::ENOMEM
            }
            Error::DaemonGone | Error::Forked => {
                complain(&error);
                *MESH.lock() = None;
                libc::EIDRM
            }
            error => {
                complain(&error);
                libc::EINVAL
            }
        });
    }
}

/// The connection of this process.
fn mesh() -> std::result::Result<Mesh, Trouble> {
    let known = MESH.lock().clone();
    if let Some(mesh) = known.filter(Mesh::is_ours) {
        return Ok(mesh);
    }
    watch();
    match Mesh::connect() {
        Ok(mesh) => Ok(MESH.lock().insert(mesh).clone()),
        Err(error) => {
            complain(&error);
            Err(Trouble::NoNode)
        }
    }
}

thread_local! {
    /// Set while this thread forks.
    static FORKING: Cell<Option<Quiet>> = const { Cell::new(None) };
}

/// Blocks signal handlers during a fork. Must be registered after the handlers of the `pagemesh`
/// library, so that this one runs first before a fork and last after it.
fn watch() {
    static ONCE: Once = Once::new();
    extern "C" fn before() {
        FORKING.set(Some(Quiet::begin()));
        shm::reconcile();
    }
    extern "C" fn after() {
        drop(FORKING.take());
    }
    ONCE.call_once(|| {
        watch_forks();
        // SAFETY: the handlers only block signals; this library is never unloaded, because it is
        // loaded before the program.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    });
}

/// Prints a problem, once, because the program only gets an error number.
pub fn complain(why: impl Display) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        warn(format_args!("a System V call fails: {why}"));
    }
}

/// Prints a line to standard error.
pub fn warn(what: std::fmt::Arguments<'_>) {
    // SAFETY: it has no arguments.
    let process = unsafe { libc::getpid() };
    let line = format!("pagemesh: process {process}: {what}\n");
    // If standard error is closed, the message is dropped.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
