//! `/proc/sysvipc`: programs that read the list of System V objects (`ipcs(1)`) find those of the
//! cluster.
//!
//! Only files that the program opens itself are replaced, not those that another library opens
//! internally.

use crate::futex::Next;
use crate::node::{ask_place, ask_usage};
use crate::{Result, raw, system_call, user};
use libc::{c_char, c_int, c_void, mode_t};
use pagemesh_wire::sysv::{Family, Op, Outcome, Perm};
use std::ffi::CString;
use std::fmt::Write as _;

/// See open(2). The mode is passed only with some flags; since arguments are in registers, it may
/// be absent.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    static NEXT: Next = Next::new(b"open\0");
    type Open = unsafe extern "C" fn(*const c_char, c_int, mode_t) -> c_int;
    if let Some(family) = named(path as usize) {
        return table(family);
    }
    match NEXT.get() {
        0 => raw::told(Err(libc::ENOSYS)) as c_int,
        // SAFETY: the C library's function of this name and type, with the arguments it was called
        // with.
        next => unsafe { std::mem::transmute::<usize, Open>(next)(path, flags, mode) },
    }
}

/// As [`open`].
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise; there is one size of files here.
    unsafe { open(path, flags, mode) }
}

/// See openat(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    static NEXT: Next = Next::new(b"openat\0");
    type Open = unsafe extern "C" fn(c_int, *const c_char, c_int, mode_t) -> c_int;
    if let Some(family) = named(path as usize) {
        return table(family);
    }
    match NEXT.get() {
        0 => raw::told(Err(libc::ENOSYS)) as c_int,
        // SAFETY: as in `open`.
        next => unsafe { std::mem::transmute::<usize, Open>(next)(at, path, flags, mode) },
    }
}

/// As [`openat`].
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { openat(at, path, flags, mode) }
}

/// See fopen(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    static NEXT: Next = Next::new(b"fopen\0");
    // SAFETY: the caller's promise.
    unsafe { open_stream(&NEXT, path, mode) }
}

/// As [`fopen`].
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    static NEXT: Next = Next::new(b"fopen64\0");
    // SAFETY: the caller's promise.
    unsafe { open_stream(&NEXT, path, mode) }
}

/// # Safety
/// As that of fopen(3), which `next` is.
unsafe fn open_stream(next: &Next, path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    type Open = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut libc::FILE;
    if let Some(family) = named(path as usize) {
        let fd = table(family);
        if fd < 0 {
            return std::ptr::null_mut();
        }
        // SAFETY: a descriptor that was made just now, for the stream alone.
        return unsafe { libc::fdopen(fd, c"r".as_ptr()) };
    }
    match next.get() {
        0 => std::ptr::null_mut(),
        // SAFETY: as in `open`.
        next => unsafe { std::mem::transmute::<usize, Open>(next)(path, mode) },
    }
}

/// The table that a path names. Most paths name none, and the argument need not be a valid path.
pub fn named(path: usize) -> Option<Family> {
    const DIRECTORY: &[u8; 14] = b"/proc/sysvipc/";
    // A longer path names no table, and a shorter one may end where mapped memory ends.
    let bytes = user::read_bytes(path, DIRECTORY.len() + 4).ok()?;
    match bytes.strip_prefix(DIRECTORY)? {
        b"shm\0" => Some(Family::Shm),
        b"sem\0" => Some(Family::Sem),
        b"msg\0" => Some(Family::Msg),
        _ => None,
    }
}

/// A descriptor from which the table can be read, or -1 and errno.
pub fn table(family: Family) -> c_int {
    system_call(|| {
        let text = text(family)?;
        let name = CString::default();
        // SAFETY: the name is a string that lives as long as the call.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(libc::EMFILE);
        }
        // SAFETY: writes this many bytes to a file that was made just now.
        let written = unsafe { libc::pwrite(fd, text.as_ptr().cast::<c_void>(), text.len(), 0) };
        if usize::try_from(written) != Ok(text.len()) {
            raw::ask(libc::SYS_close, [fd as usize, 0, 0])?;
            return Err(libc::ENOMEM);
        }
        Ok(fd.into())
    }) as c_int
}

/// The text that the kernel's file would contain.
fn text(family: Family) -> Result<String> {
    let mut text = match family {
        Family::Shm => {
            "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  \
             cgid      atime      dtime      ctime                   rss                  swap\n"
        }
        Family::Sem => {
            "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n"
        }
        Family::Msg => {
            "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  \
             cgid      stime      rtime      ctime\n"
        }
    }
    .to_owned();
    let highest = ask_usage(Op::Info { family })?.highest;
    for place in 0..=highest {
        match ask_place(family, place, true) {
            Ok(outcome) => line(&mut text, &outcome),
            // There is no object at this index.
            Err(libc::EINVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(text)
}

fn line(text: &mut String, outcome: &Outcome) {
    // Writing to a string does not fail.
    let _ = match outcome {
        Outcome::Shm(shm) => writeln!(
            text,
            "{} {:>21} {:>5} {:>5}  {:>5} {} {:>10} {:>10} {:>10} {:>21} {:>21}",
            head(&shm.perm, shm.id.0),
            shm.size,
            shm.cpid,
            shm.lpid,
            shm.nattch,
            owners(&shm.perm),
            shm.atime,
            shm.dtime,
            shm.ctime,
            0,
            0
        ),
        Outcome::Sem(sem) => writeln!(
            text,
            "{} {:>10} {} {:>10} {:>10}",
            head(&sem.perm, sem.id.0),
            sem.nsems,
            owners(&sem.perm),
            sem.otime,
            sem.ctime
        ),
        Outcome::Msg(msg) => writeln!(
            text,
            "{}  {:>10} {:>10} {:>5} {:>5} {} {:>10} {:>10} {:>10}",
            head(&msg.perm, msg.id.0),
            msg.cbytes,
            msg.qnum,
            msg.lspid,
            msg.lrpid,
            owners(&msg.perm),
            msg.stime,
            msg.rtime,
            msg.ctime
        ),
        _ => Ok(()),
    };
}

fn head(perm: &Perm, id: i32) -> String {
    format!("{:>10} {id:>10}  {:>4o}", perm.key, perm.mode)
}

fn owners(perm: &Perm) -> String {
    let Perm {
        uid,
        gid,
        cuid,
        cgid,
        ..
    } = perm;
    format!("{uid:>5} {gid:>5} {cuid:>5} {cgid:>5}")
}
