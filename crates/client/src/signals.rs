//! Looking for what signal handlers have left, while a thread waits.
//!
//! A signal ends the wait that it interrupts. Two interrupt nothing: one that comes after the
//! program looked last and before the thread sleeps, and one whose handler the kernel runs in
//! another thread of the process. A runtime whose handlers only leave a mark, as Python's, would
//! see the mark of those when the wait ends by itself.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Looks for marks of handlers; true if one says that the wait is to end.
pub type Look = fn() -> bool;

/// How often a waiting thread looks.
const EVERY: Duration = Duration::from_millis(250);

thread_local! {
    static LOOK: Cell<Option<Look>> = const { Cell::new(None) };
}

/// From now on, a thread that waits for its daemon calls this function some times a second, and
/// ends the wait with [`Error::Interrupted`](crate::Error::Interrupted) if it returns true. Returns
/// the function that this thread had before. The function may call anything of this crate.
pub fn look_while_waiting(look: Option<Look>) -> Option<Look> {
    LOOK.replace(look)
}

/// How long this thread may sleep before it looks; its function then. None if it has none, or the
/// deadline comes before.
pub(crate) fn next_look(until: Option<Instant>) -> Option<(Instant, Look)> {
    let look = LOOK.get()?;
    let next = Instant::now() + EVERY;
    until
        .is_none_or(|until| next < until)
        .then_some((next, look))
}

/// Repeats a wait when a signal interrupts it.
pub fn undisturbed<T>(mut wait: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match wait() {
            Err(Error::Interrupted) => {}
            outcome => return outcome,
        }
    }
}
