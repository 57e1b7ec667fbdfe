//! Processes that fork.
//!
//! A family: every member works in several threads and forks children in the
//! midst of it, who do the same. Each raises a counter of its own, one that all
//! add to, and one under a lock.

use crate::say;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use pagemesh::{Access, Mapping, Mesh, PAGE_SIZE, Segment};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

#[derive(Args)]
pub(crate) struct Family {
    segment: String,
    /// Children of each member
    #[arg(long)]
    children: usize,
    /// Generations below the first
    #[arg(long)]
    generations: usize,
    /// Threads of each member, besides the one that forks
    #[arg(long)]
    threads: usize,
}

/// How often each thread of each member raises every counter, at least.
pub(crate) const ROUNDS: u64 = 20;

// The pages.
const ADDED: usize = 0;
const LOCKED: usize = PAGE_SIZE;
/// A value that was stored before the first process started.
const INHERITED: usize = 2 * PAGE_SIZE;
const MEMBERS: usize = 3 * PAGE_SIZE;

impl Family {
    pub(crate) fn play(self) -> Result<()> {
        let segment = Mesh::connect()?.open(&self.segment, Access::Writable)?;
        let memory = segment.map()?;
        let home = Home { segment, memory };
        self.live(&home, self.generations)?;
        say("lived")
    }

    fn live(&self, home: &Home, generations: usize) -> Result<()> {
        ensure!(
            home.memory.load_u64(INHERITED)? == 7,
            "the value stored before the first process started is lost"
        );
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let works: Vec<_> = (0..self.threads)
                .map(|_| scope.spawn(|| home.work(&over)))
                .collect();
            let mut born = Ok(());
            if generations > 0 {
                born = (0..self.children).try_for_each(|_| self.beget(home, generations - 1));
            }
            over.store(true, SeqCst);
            for work in works {
                work.join().ok().context("a thread panicked")??;
            }
            born
        })
    }

    fn beget(&self, home: &Home, generations: usize) -> Result<()> {
        // SAFETY: the child uses only functions that the library promises to work in a child, and
        // the C library's own memory, which works there too.
        let child = unsafe { libc::fork() };
        if child == 0 {
            exit(match self.live(home, generations) {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("pagemesh-player: in a child: {error:#}");
                    1
                }
            });
        }
        match wait_for(child)? {
            0 => Ok(()),
            code => bail!("a child ended with {code}"),
        }
    }
}

struct Home {
    segment: Segment,
    memory: Mapping,
}

impl Home {
    /// Until it is over, but not less than some rounds.
    fn work(&self, over: &AtomicBool) -> Result<()> {
        let members = self.memory.atomic_u64(MEMBERS)?;
        for round in 0.. {
            if round >= ROUNDS && over.load(SeqCst) {
                break;
            }
            self.memory.atomic_u64(ADDED)?.fetch_add(1, SeqCst);
            members.fetch_add(1, SeqCst);
            let guard = self.segment.lock(1).lock()?;
            let counted = self.memory.load_u64(LOCKED)?;
            // Memory that children may find half-allocated.
            let counted = vec![counted; 100];
            let locked = self.memory.atomic_u64(LOCKED)?;
            locked.store(counted[counted.len() - 1] + 1, SeqCst);
            ensure!(!guard.recovered(), "nobody died with the lock");
            guard.unlock();
        }
        Ok(())
    }
}

/// Ways to become two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fork {
    /// `fork(3)`.
    Usual,
    /// The same, when no descriptor is to be had.
    Starved,
    /// The same, and the parent ends.
    Vanishing,
    /// Without the knowledge of the C library.
    Bare,
}

/// Forks. The child says that it is born; the parent waits for its end and says
/// how it ended.
pub(crate) fn fork(how: Fork) -> Result<String> {
    let limit = getrlimit(Resource::Nofile);
    if how == Fork::Starved {
        // The next one would be number so-and-so.
        let next = std::io::stdin().as_fd().try_clone_to_owned()?.as_raw_fd();
        let none = Rlimit {
            current: Some(next.cast_unsigned().into()),
            ..limit
        };
        setrlimit(Resource::Nofile, none)?;
    }
    let child = if how == Fork::Bare {
        // SAFETY: this process has no other thread, so the child may do anything.
        unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 }
    } else {
        // SAFETY: as above.
        unsafe { libc::fork() }
    };
    setrlimit(Resource::Nofile, limit)?;
    match (child, how) {
        (0, _) => Ok("born".into()),
        (_, Fork::Vanishing) => exit(0),
        _ => Ok(format!("ended {}", wait_for(child)?)),
    }
}

/// Its exit code, or the signal that ended it, negative.
fn wait_for(child: libc::pid_t) -> Result<i32> {
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    if child < 0 || unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(if libc::WIFSIGNALED(status) {
        -libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    })
}

/// Ends this process without a word to anybody.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: no destructor runs, as intended.
    unsafe { libc::_exit(code) }
}
