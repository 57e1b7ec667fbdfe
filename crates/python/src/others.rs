//! The state of the other threads of this process.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

/// Longest wait for the other threads: Python threads in native code come to rest when they need
/// the interpreter's lock again.
const PATIENCE: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_micros(200);

/// How often each other thread has got a processor so far, by its number. All of
/// them sleep.
pub type Others = BTreeMap<u32, u64>;

/// Waits until all other threads sleep; `None` if that takes too long, or if the kernel keeps no
/// statistics. The caller has the interpreter's lock.
pub fn at_rest() -> Option<Others> {
    for _ in 0..PATIENCE.as_micros() / LOOK.as_micros() {
        let resting = others();
        if resting.is_some() {
            return resting;
        }
        thread::sleep(LOOK);
    }
    None
}

/// `None` if one of them runs, or if the kernel keeps no statistics. Two equal answers mean that
/// none of them ran in between.
pub fn others() -> Option<Others> {
    let me = rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs();
    let mut all = Others::new();
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let number: u32 = thread.ok()?.file_name().to_str()?.parse().ok()?;
        if number == me {
            continue;
        }
        let Ok(state) = fs::read_to_string(format!("/proc/self/task/{number}/stat")) else {
            continue; // it has ended
        };
        let asleep = sleeps(&state)?;
        let turns = fs::read_to_string(format!("/proc/self/task/{number}/schedstat")).ok()?;
        let turns = turns.split_ascii_whitespace().nth(2)?.parse().ok()?;
        if !asleep {
            return None;
        }
        all.insert(number, turns);
    }
    Some(all)
}

/// Whether a thread with this line in `stat` sleeps. Its name, in brackets, may
/// contain anything.
fn sleeps(stat: &str) -> Option<bool> {
    let (_, rest) = stat.rsplit_once(')')?;
    let state = rest.split_ascii_whitespace().next()?;
    Some(matches!(state, "S" | "D" | "T" | "t" | "Z" | "X" | "I"))
}
