//! The request slot of a process: brief requests and their answers go through memory that the
//! process shares with its daemon, one at a time. All other requests go through the socket; so do
//! these when the slot is taken, the daemon sleeps, or an answer takes long.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pagemesh_os::descriptor::supplant;
use pagemesh_os::kept::{Mark, kept};
use pagemesh_os::polling::Polling;
use pagemesh_os::request_slot::{Answer, RequestSlot};
use pagemesh_os::signals::aside;
use pagemesh_os::{clock, cpu};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::fork::{Generation, Guarded};
use crate::{Error, Result};

/// Number of brief requests after which a process asks for a request slot.
pub const OFTEN: u32 = 3;

/// An answer that takes longer comes through the socket, where the waiting thread also learns that
/// the daemon is gone.
const SOON: Duration = Duration::from_millis(20);

/// How long a thread polls for the answer before it sleeps, if there is a second processor: an
/// awake daemon of this host answers a System V call sooner than a thread falls asleep and is
/// woken.
const GLANCE: Duration = Duration::from_micros(8);

/// The request slot of a connection, once there is one.
#[derive(Debug, Default)]
pub struct OurRequestSlot {
    /// How many brief requests there were, up to [`OFTEN`].
    asked: AtomicU32,
    /// The number of the request for it; zero before.
    request: AtomicU64,
    open: Guarded<Option<Arc<Open>>>,
}

#[derive(Debug)]
struct Open {
    request_slot: RequestSlot,
    _kept: Mark,
    /// The process it belongs to: a forked child has the memory, too, but no daemon on the other
    /// side.
    of: Generation,
    /// True while a request is under way.
    taken: AtomicBool,
    /// Whether polling finds answers.
    polling: Polling,
    /// True if the daemon can run at the same time as this process.
    parallel: bool,
}

/// A thread that is about to sleep until states change that other nodes publish.
#[derive(Debug)]
pub struct Watch {
    open: Arc<Open>,
    seen: u32,
}

/// The use of the request slot by one request.
#[derive(Debug)]
pub struct Way {
    open: Arc<Open>,
    number: u64,
    /// True for a request that an awake daemon answers at once.
    soon: bool,
}

impl OurRequestSlot {
    /// Counts a brief request. True if this is the moment to ask for a request slot.
    pub fn is_wanted(&self) -> bool {
        self.asked.load(Ordering::Relaxed) < OFTEN
            && self.asked.fetch_add(1, Ordering::Relaxed) + 1 == OFTEN
    }

    /// Notes the number of the request for a request slot.
    pub fn comes_with(&self, number: u64) {
        self.request.store(number, Ordering::Relaxed);
    }

    /// Takes the request slot out of the reply with this number, if it is the one that lends it.
    /// Without one all requests go through the socket.
    pub fn came(&self, number: u64, fds: &mut Vec<OwnedFd>) {
        if number == self.request.load(Ordering::Relaxed)
            && let Some(memory) = fds.pop()
        {
            // If the memory is not a valid request slot, it is not used.
            let _ = self.open(memory);
        }
    }

    /// Maps the request slot that the daemon lent.
    fn open(&self, memory: OwnedFd) -> io::Result<()> {
        let (mark, memory) = kept(memory);
        let request_slot = RequestSlot::map(memory)?;
        request_slot.hide_from_children()?;
        let open = Open {
            request_slot,
            _kept: mark,
            of: Generation::current(),
            taken: AtomicBool::new(false),
            polling: Polling::default(),
            parallel: cpu::available() > 1,
        };
        *self.open.lock() = Some(Arc::new(open));
        Ok(())
    }

    /// In a forked child: drops the parent's request slot; the child asks for its own. The
    /// descriptor of that memory is replaced by `other`.
    pub fn forget(&self, other: impl AsFd) {
        if let Some(open) = self.open.while_forking().take() {
            let _ = supplant(&open.request_slot, other);
            // Not freed: the memory is not mapped here, and another thread may have been inside the
            // allocator.
            std::mem::forget(open);
        }
        self.asked.store(0, Ordering::Relaxed);
        self.comes_with(0);
    }

    /// Takes the request slot for this request, if it is free; the answer comes there.
    pub fn way(&self, number: u64, soon: bool) -> Option<Way> {
        let open = self.open.lock().clone();
        let open = open.filter(|open| open.of.is_current())?;
        if open.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        let way = Way { open, number, soon };
        let request_slot = &way.open.request_slot;
        if request_slot.is_free() {
            request_slot.expect(number);
            return Some(way);
        }
        // Dropping it frees the request slot.
        None
    }

    /// Announces that this thread is about to sleep until states change; `None` if the daemon does
    /// not say here when they do.
    pub fn watch(&self) -> Option<Watch> {
        let open = self.open.lock().clone();
        let open = open.filter(|open| open.of.is_current())?;
        let seen = open.request_slot.watch()?;
        Some(Watch { open, seen })
    }
}

impl Watch {
    /// Sleeps until a state of some segment has changed since the watch began; may wake
    /// spuriously. With `goes_on`, signal handlers with `SA_RESTART` do not end the sleep.
    pub fn sleep(&self, until: Instant, goes_on: bool) -> Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let request_slot = &self.open.request_slot;
        let sleep = || request_slot.sleep_until_changed(self.seen, moment(left), goes_on);
        match aside(sleep) {
            Ok(()) => Ok(()),
            Err(Errno::INTR) => Err(Error::Interrupted),
            // Also before Linux 5.16: the thread watches by a request then.
            Err(_) => Err(Error::TimedOut),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.open.of.is_current() {
            self.open.request_slot.end_watch();
        }
    }
}

impl Way {
    /// Writes the request into the slot; false if it has to go through the socket.
    pub fn post(&self, packet: &[u8]) -> bool {
        let request_slot = &self.open.request_slot;
        request_slot.looks() && request_slot.post(self.number, packet)
    }

    /// True if the daemon must be told through the socket to look into the slot.
    pub fn must_knock(&self) -> bool {
        !self.open.request_slot.looks()
    }

    /// Waits for the answer: its bytes, or `None` if it comes through the socket, where the
    /// deadline is checked as well. After an interruption the answer is returned if it has come;
    /// otherwise none comes here.
    pub fn wait(self, until: Option<Instant>) -> (Option<Vec<u8>>, Result<()>) {
        self.glance();
        if let Some(outcome) = self.taken() {
            return outcome;
        }
        let outcome = self.doze(until);
        self.open.request_slot.is_awake();
        outcome
    }

    /// The answer, or that it comes elsewhere; `None` while it is to come.
    fn taken(&self) -> Option<(Option<Vec<u8>>, Result<()>)> {
        match self.open.request_slot.take(self.number) {
            Answer::Here(bytes) => Some((Some(bytes), Ok(()))),
            Answer::Elsewhere => Some((None, Ok(()))),
            Answer::ToCome => None,
        }
    }

    /// Sleeps until the answer comes, or the wait in the slot is over.
    fn doze(&self, until: Option<Instant>) -> (Option<Vec<u8>>, Result<()>) {
        let request_slot = &self.open.request_slot;
        let moment = latest(until);
        loop {
            let rings = request_slot.rings();
            if let Some(outcome) = self.taken() {
                return outcome;
            }
            match aside(|| request_slot.sleep(rings, moment, until.is_none())) {
                Ok(()) => {}
                Err(Errno::INTR) => return (self.give_up(), Err(Error::Interrupted)),
                Err(_) => return (self.give_up(), Ok(())),
            }
        }
    }

    /// Polls for an answer that comes sooner than this thread would be woken.
    fn glance(&self) {
        let Open {
            request_slot,
            polling,
            parallel,
            ..
        } = &*self.open;
        if !self.soon || !parallel || !request_slot.looks() || !polling.is_worth_it() {
            return;
        }
        let end = clock::monotonic() + GLANCE.as_nanos() as u64;
        while request_slot.is_to_come(self.number) {
            if clock::monotonic() >= end {
                return polling.ended(false);
            }
            for _ in 0..16 {
                spin_loop();
            }
        }
        polling.ended(true);
    }

    /// Gives up the slot: from now on the answer comes through the socket, unless it is already
    /// here.
    pub fn give_up(&self) -> Option<Vec<u8>> {
        let request_slot = &self.open.request_slot;
        if request_slot.give_up(self.number) {
            return None;
        }
        match request_slot.take(self.number) {
            Answer::Here(bytes) => Some(bytes),
            Answer::ToCome | Answer::Elsewhere => None,
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        if self.open.of.is_current() {
            let _ = self.give_up();
            self.open.taken.store(false, Ordering::Release);
        }
    }
}

/// The deadline of the wait in the slot, on the kernel's clock.
fn latest(until: Option<Instant>) -> Timespec {
    moment(until.map_or(SOON, |until| {
        SOON.min(until.saturating_duration_since(Instant::now()))
    }))
}

/// So long from now, on the kernel's clock.
fn moment(left: Duration) -> Timespec {
    let moment = Duration::from_nanos(clock::monotonic()).saturating_add(left);
    moment.try_into().unwrap_or(Timespec {
        tv_sec: i64::MAX,
        tv_nsec: 0,
    })
}
