//! How failures are reported to C: an error number, errno, and a message, per thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pagemesh::{Error, HeapError, Refusal};

/// The numbers of `enum pagemesh_error_number`, with errno and message. They never change; new ones
/// are appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Number {
    Ok = 0,
    NoDaemon = 1,
    DaemonGone = 2,
    DaemonSilent = 3,
    Malformed = 4,
    NotFound = 5,
    Exists = 6,
    Permission = 7,
    BadName = 8,
    BadSize = 9,
    NodeGone = 10,
    NotMember = 11,
    Limit = 12,
    Invalid = 13,
    TimedOut = 14,
    Interrupted = 15,
    Busy = 16,
    NotHeld = 17,
    Forked = 18,
    NoUserfaultfd = 19,
    Map = 20,
    AddressTaken = 21,
    Environment = 22,
    System = 23,
    Internal = 24,
    Closed = 25,
    PeerDied = 26,
}

/// All of them, in order.
const ALL: [(Number, c_int, &CStr); 27] = {
    use Number as N;
    [
        (N::Ok, 0, c"no error"),
        (
            N::NoDaemon,
            libc::ECONNREFUSED,
            c"no PageMesh daemon answers",
        ),
        (
            N::DaemonGone,
            libc::ECONNRESET,
            c"the PageMesh daemon is gone",
        ),
        (
            N::DaemonSilent,
            libc::EREMOTEIO,
            c"the PageMesh daemon does not answer",
        ),
        (
            N::Malformed,
            libc::EPROTO,
            c"daemon and library do not understand each other",
        ),
        (N::NotFound, libc::ENOENT, c"no segment of that name"),
        (
            N::Exists,
            libc::EEXIST,
            c"a segment of that name exists already",
        ),
        (
            N::Permission,
            libc::EACCES,
            c"permission denied by the segment's owner, group and mode",
        ),
        (
            N::BadName,
            libc::EINVAL,
            c"a segment name has 1 to 255 bytes and neither '/' nor NUL",
        ),
        (
            N::BadSize,
            libc::EFBIG,
            c"a segment has between 1 byte and 16 TiB",
        ),
        (
            N::NodeGone,
            libc::EHOSTDOWN,
            c"the node that must answer is gone",
        ),
        (
            N::NotMember,
            libc::ENETDOWN,
            c"this node is not a member of the cluster",
        ),
        (N::Limit, libc::ENOSPC, c"a limit was reached"),
        (N::Invalid, libc::EINVAL, c"the call makes no sense"),
        (N::TimedOut, libc::ETIMEDOUT, c"timed out"),
        (N::Interrupted, libc::EINTR, c"interrupted by a signal"),
        (N::Busy, libc::EBUSY, c"the lock is held"),
        (
            N::NotHeld,
            libc::EPERM,
            c"the lock is not held through this handle",
        ),
        (
            N::Forked,
            libc::ESTALE,
            c"the connection belongs to the parent process",
        ),
        (
            N::NoUserfaultfd,
            libc::EPERM,
            c"the kernel gives this process no userfaultfd",
        ),
        (N::Map, libc::ENOMEM, c"the memory could not be mapped"),
        (
            N::AddressTaken,
            libc::EEXIST,
            c"something is mapped at the wished address",
        ),
        (
            N::Environment,
            libc::EINVAL,
            c"a variable of the environment is unusable",
        ),
        (N::System, libc::EIO, c"the system failed unexpectedly"),
        (N::Internal, libc::ENOTRECOVERABLE, c"a bug in the library"),
        (
            N::Closed,
            libc::EPIPE,
            c"the other end of the pipe is closed",
        ),
        (
            N::PeerDied,
            libc::EOWNERDEAD,
            c"the process at the other end of the pipe died",
        ),
    ]
};

/// A failure to be reported to C.
#[derive(Debug)]
pub struct Failure {
    number: Number,
    errno: c_int,
    message: String,
}

/// The result of the functions' bodies.
pub type Outcome<T> = Result<T, Failure>;

thread_local! {
    static LAST: RefCell<(Number, Option<CString>)> = const { RefCell::new((Number::Ok, None)) };
}

impl Failure {
    /// A failure with the number's default message.
    pub fn new(number: Number) -> Self {
        let (_, errno, words) = ALL[number as usize];
        Self {
            number,
            errno,
            message: words.to_string_lossy().into_owned(),
        }
    }

    /// A failure because of an invalid argument, with the reason.
    pub fn invalid(why: &str) -> Self {
        Self::with(Number::Invalid, why.to_owned())
    }

    fn with(number: Number, message: String) -> Self {
        Self {
            message,
            ..Self::new(number)
        }
    }

    /// Stores errno, number and message for the calling thread.
    fn report(self) {
        let message = CString::new(self.message.replace('\0', "?")).unwrap_or_default();
        // A thread that is ending has no storage for it left.
        let _ = LAST.try_with(|last| *last.borrow_mut() = (self.number, Some(message)));
        // SAFETY: the C library gives each thread an errno of its own.
        unsafe { *libc::__errno_location() = self.errno };
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let number = match &error {
            Error::NoDaemon { .. } => Number::NoDaemon,
            Error::DaemonGone => Number::DaemonGone,
            Error::DaemonSilent => Number::DaemonSilent,
            Error::Malformed(_) => Number::Malformed,
            Error::Refused(refusal) => number_of(refusal),
            Error::TimedOut => Number::TimedOut,
            Error::Interrupted => Number::Interrupted,
            Error::Forked => Number::Forked,
            Error::NoUserfaultfd(_) => Number::NoUserfaultfd,
            Error::Map(_) => Number::Map,
            Error::AddressTaken(_) => Number::AddressTaken,
            Error::Invalid(_) => Number::Invalid,
            Error::Environment { .. } => Number::Environment,
            Error::PipeClosed => Number::Closed,
            Error::PeerDied => Number::PeerDied,
            Error::Heap(HeapError::Full(_)) => Number::Limit,
            Error::Heap(HeapError::NoAddress) => Number::AddressTaken,
            Error::Heap(_) => Number::Invalid,
            _ => Number::System,
        };
        let mut failure = Self::with(number, error.to_string());
        match &error {
            Error::NoDaemon { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                failure.errno = libc::EACCES;
            }
            Error::Map(source) | Error::System(source) => {
                failure.errno = source.raw_os_error().unwrap_or(failure.errno);
            }
            _ => {}
        }
        failure
    }
}

fn number_of(refusal: &Refusal) -> Number {
    match refusal {
        Refusal::NotFound => Number::NotFound,
        Refusal::Exists => Number::Exists,
        Refusal::Permission => Number::Permission,
        Refusal::BadName => Number::BadName,
        Refusal::BadSize => Number::BadSize,
        Refusal::NodeGone(_) => Number::NodeGone,
        Refusal::NotMember
        | Refusal::DeclaredDead { .. }
        | Refusal::Superseded { .. }
        | Refusal::NotYetMember
        | Refusal::PageSize { .. }
        | Refusal::Version { .. }
        | Refusal::Versions { .. } => Number::NotMember,
        Refusal::ClusterFull | Refusal::Limit(_) => Number::Limit,
        Refusal::CannotLeave(_) | Refusal::Invalid(_) => Number::Invalid,
        Refusal::Cancelled => Number::Interrupted,
    }
}

/// Runs the body of a function. A failure or panic is reported, and `otherwise` is returned.
pub fn call<T>(otherwise: T, body: impl FnOnce() -> Outcome<T>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure.report(),
        Err(_) => Failure::new(Number::Internal).report(),
    }
    otherwise
}

/// The last failure of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn pagemesh_error() -> c_int {
    LAST.try_with(|last| last.borrow().0 as c_int)
        .unwrap_or_default()
}

/// The message of the last failure of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn pagemesh_error_message() -> *const c_char {
    let words = LAST.try_with(|last| last.borrow().1.as_ref().map(|words| words.as_ptr()));
    words.ok().flatten().unwrap_or(c"".as_ptr())
}

/// The message of an error number.
#[unsafe(no_mangle)]
pub extern "C" fn pagemesh_strerror(number: c_int) -> *const c_char {
    usize::try_from(number)
        .ok()
        .and_then(|number| ALL.get(number))
        .map_or(c"unknown error", |(_, _, words)| words)
        .as_ptr()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The error numbers with their C names.
    pub fn numbers() -> Vec<(String, i32)> {
        let name = |number: &Number| {
            let mut name = String::from("PAGEMESH");
            if *number != Number::Ok {
                name.push_str("_E");
            }
            for letter in format!("{number:?}").chars() {
                if letter.is_ascii_uppercase() {
                    name.push('_');
                }
                name.push(letter.to_ascii_uppercase());
            }
            name
        };
        ALL.iter()
            .map(|(number, _, _)| (name(number), *number as i32))
            .collect()
    }

    #[test]
    fn the_table_is_in_order() {
        for (place, (number, _, words)) in ALL.iter().enumerate() {
            assert_eq!(*number as usize, place);
            assert!(!words.is_empty());
        }
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(call(-1, || -> Outcome<i32> { panic!("on purpose") }), -1);
        assert_eq!(pagemesh_error(), Number::Internal as i32);
        assert_eq!(
            io::Error::last_os_error().raw_os_error(),
            Some(libc::ENOTRECOVERABLE)
        );
    }

    #[test]
    fn a_refusal_keeps_its_words() {
        assert_eq!(call(-1, || Err(Error::Refused(Refusal::Exists).into())), -1);
        assert_eq!(
            io::Error::last_os_error().raw_os_error(),
            Some(libc::EEXIST)
        );
        // SAFETY: valid until the next failure of this thread.
        let words = unsafe { CStr::from_ptr(pagemesh_error_message()) };
        assert!(words.to_string_lossy().contains("remove it first"));
    }
}
