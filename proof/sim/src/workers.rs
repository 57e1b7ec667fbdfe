//! The processors of this host, for tests that have many independent things to do.

use std::sync::Mutex;
use std::thread;

/// Works through all of them on all processors.
pub(crate) fn for_each<T: Send>(work: Vec<T>, one: impl Fn(T) + Sync) {
    let work = Mutex::new(work);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = work.lock().expect("taken for a moment only").pop();
                    let Some(next) = next else { return };
                    one(next);
                }
            });
        }
    });
}
