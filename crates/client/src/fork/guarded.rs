//! A mutex whose contents a forked child finds whole, and unlocked.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::shield::SHIELD;

/// See the module. Not to be held while anything is waited for.
#[derive(Debug, Default)]
pub struct Guarded<T>(Mutex<T>);

/// The contents, until this is dropped.
#[derive(Debug)]
pub struct Guard<'g, T> {
    // Fields are dropped in this order.
    contents: MutexGuard<'g, T>,
    _inside: Inside,
}

/// Inside of the shield, until this is dropped.
#[derive(Debug)]
struct Inside;

impl<T> Guarded<T> {
    /// Guards this.
    pub const fn new(contents: T) -> Self {
        Self(Mutex::new(contents))
    }

    /// The contents, for this thread alone.
    pub fn lock(&self) -> Guard<'_, T> {
        SHIELD.enter();
        let inside = Inside;
        Guard {
            contents: self.while_forking(),
            _inside: inside,
        }
    }

    /// As [`Guarded::lock`], for whoever has closed the shield.
    pub fn while_forking(&self) -> MutexGuard<'_, T> {
        // Whoever panicked holding it had left the contents whole: no critical
        // section of ours panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.contents
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.contents
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        SHIELD.leave();
    }
}
