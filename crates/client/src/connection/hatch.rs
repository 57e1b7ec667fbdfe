//! The hatch of a process: brief requests and their answers through memory that it shares with
//! its daemon, one at a time. All others go through the socket, as these do whenever the hatch is
//! taken, the daemon sleeps, or an answer is long in coming.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pagemesh_os::descriptor::supplant;
use pagemesh_os::hatch::{Answer, Hatch};
use pagemesh_os::kept::{Mark, kept};
use pagemesh_os::signals::aside;
use pagemesh_os::{clock, cpu};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::fork::{Generation, Guarded};
use crate::{Error, Result};

/// A process that has asked briefly so often wants a hatch.
pub const OFTEN: u32 = 3;

/// An answer that takes longer comes through the socket: who waits there hears of the daemon's
/// end, too.
const SOON: Duration = Duration::from_millis(20);

/// A daemon of this host that is awake answers a System V call sooner than a thread falls asleep
/// and is woken: so long the thread looks for the answer itself, where there is a second processor.
const GLANCE: Duration = Duration::from_micros(8);

/// So often in a row no answer came that soon: then the thread sleeps at once,
const DISAPPOINTED: u32 = 4;

/// and looks again when it has slept so often.
const RESIGNED: u32 = 64;

/// The hatch of a connection, once there is one.
#[derive(Debug, Default)]
pub struct OurHatch {
    asked: AtomicU32,
    open: Guarded<Option<Arc<Open>>>,
}

#[derive(Debug)]
struct Open {
    hatch: Hatch,
    _kept: Mark,
    /// A forked child has the memory, too, but not the daemon at the other side.
    of: Generation,
    /// A request is under way.
    taken: AtomicBool,
    /// Waits since an answer came while it was looked for.
    vain: AtomicU32,
    /// The daemon may run while this process does.
    parallel: bool,
}

/// The way through the hatch, for one request.
#[derive(Debug)]
pub struct Way {
    open: Arc<Open>,
    number: u64,
    /// The answer comes at once, if the daemon is awake.
    soon: bool,
}

impl OurHatch {
    /// A brief request is to be sent. Whether this is the moment to ask for a hatch.
    pub fn is_wanted(&self) -> bool {
        self.asked.load(Ordering::Relaxed) < OFTEN
            && self.asked.fetch_add(1, Ordering::Relaxed) + 1 == OFTEN
    }

    /// The daemon lent one.
    pub fn open(&self, memory: OwnedFd) -> io::Result<()> {
        let (mark, memory) = kept(memory);
        let hatch = Hatch::map(memory)?;
        hatch.hide_from_children()?;
        let open = Open {
            hatch,
            _kept: mark,
            of: Generation::current(),
            taken: AtomicBool::new(false),
            vain: AtomicU32::new(0),
            parallel: cpu::available() > 1,
        };
        *self.open.lock() = Some(Arc::new(open));
        Ok(())
    }

    /// In a forked child: the one there was is its parent's. It asks for its own. What leads to
    /// that memory stands for `other` from now on.
    pub fn forget(&self, other: impl AsFd) {
        if let Some(open) = self.open.while_forking().take() {
            let _ = supplant(&open.hatch, other);
            // Not freed: its memory is not here, and another thread may have been about to allocate.
            std::mem::forget(open);
        }
        self.asked.store(0, Ordering::Relaxed);
    }

    /// The way for this request, if nobody else is there: its answer is to come here.
    pub fn way(&self, number: u64, soon: bool) -> Option<Way> {
        let open = self.open.lock().clone();
        let open = open.filter(|open| open.of.is_current())?;
        if open.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        let way = Way { open, number, soon };
        let hatch = &way.open.hatch;
        if hatch.is_free() {
            hatch.expect(number);
            return Some(way);
        }
        // Dropped, which leaves the place.
        None
    }
}

impl Way {
    /// Puts the request there; false if it has to go through the socket.
    pub fn post(&self, packet: &[u8]) -> bool {
        let hatch = &self.open.hatch;
        hatch.looks() && hatch.post(self.number, packet)
    }

    /// Whether the daemon has to be told of what was put there.
    pub fn must_knock(&self) -> bool {
        !self.open.hatch.looks()
    }

    /// Waits for the answer: its bytes, or nothing if it comes through the socket, where time may
    /// run out, too. Who is interrupted gets what has come, and else none here.
    pub fn wait(self, until: Option<Instant>) -> (Option<Vec<u8>>, Result<()>) {
        let hatch = &self.open.hatch;
        let moment = latest(until);
        self.glance();
        loop {
            let rings = hatch.rings();
            match hatch.take(self.number) {
                Answer::Here(bytes) => return (Some(bytes), Ok(())),
                Answer::Elsewhere => return (None, Ok(())),
                Answer::ToCome => {}
            }
            match aside(|| hatch.sleep(rings, moment, until.is_none())) {
                Ok(()) => {}
                Err(Errno::INTR) => return (self.give_up(), Err(Error::Interrupted)),
                Err(_) => return (self.give_up(), Ok(())),
            }
        }
    }

    /// Looks for an answer that comes sooner than this thread would be woken.
    fn glance(&self) {
        let Open {
            hatch,
            vain,
            parallel,
            ..
        } = &*self.open;
        if !self.soon || !parallel || !hatch.looks() {
            return;
        }
        let in_vain = vain.load(Ordering::Relaxed);
        if (DISAPPOINTED..RESIGNED).contains(&in_vain) {
            vain.store(in_vain + 1, Ordering::Relaxed);
            return;
        }
        let end = clock::monotonic() + GLANCE.as_nanos() as u64;
        while hatch.is_to_come(self.number) {
            if clock::monotonic() >= end {
                let more = if in_vain < RESIGNED {
                    in_vain + 1
                } else {
                    DISAPPOINTED
                };
                return vain.store(more, Ordering::Relaxed);
            }
            for _ in 0..16 {
                spin_loop();
            }
        }
        vain.store(0, Ordering::Relaxed);
    }

    /// From now on the answer comes through the socket, unless it is here.
    pub fn give_up(&self) -> Option<Vec<u8>> {
        let hatch = &self.open.hatch;
        if hatch.give_up(self.number) {
            return None;
        }
        match hatch.take(self.number) {
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

/// Until when an answer is waited for here, as the kernel's clock tells it.
fn latest(until: Option<Instant>) -> Timespec {
    let left = until.map_or(SOON, |until| {
        SOON.min(until.saturating_duration_since(Instant::now()))
    });
    let moment = Duration::from_nanos(clock::monotonic()).saturating_add(left);
    moment.try_into().unwrap_or(Timespec {
        tv_sec: i64::MAX,
        tv_nsec: 0,
    })
}
