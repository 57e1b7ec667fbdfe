//! A mutex that protects data over a fork: the child finds the contents consistent and unlocked.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::shield::SHIELD;

/// A mutex that prevents forks while it is held. A thread must not block while it holds it.
#[derive(Debug, Default)]
pub struct Guarded<T>(Mutex<T>);

/// Access to the contents of a [`Guarded`]; unlocks when dropped.
#[derive(Debug)]
pub struct Guard<'g, T> {
    // Fields are dropped in this order: the mutex is unlocked before the shield is left.
    contents: MutexGuard<'g, T>,
    _inside: Inside,
}

/// This thread's presence inside the shield; leaves it when dropped.
#[derive(Debug)]
struct Inside;

impl<T> Guarded<T> {
    /// Puts `contents` under a mutex.
    pub const fn new(contents: T) -> Self {
        Self(Mutex::new(contents))
    }

    /// Enters the shield and locks the contents for this thread.
    pub fn lock(&self) -> Guard<'_, T> {
        SHIELD.enter();
        let inside = Inside;
        Guard {
            contents: self.while_forking(),
            _inside: inside,
        }
    }

    /// As [`Guarded::lock`], for the thread that has closed the shield.
    pub fn while_forking(&self) -> MutexGuard<'_, T> {
        // A panic of an earlier holder left the contents consistent, because no critical section of
        // this library panics half-way.
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
