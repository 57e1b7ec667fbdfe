//! A process on strings: one order a line of input, one answer a line of output.
//!
//! | order | answer |
//! |---|---|
//! | `load OFFSET` | the eight bytes there, as a number |
//! | `store OFFSET NUMBER` | `done` |
//! | `fill NUMBER` | `done`, when the first and the last number of every page are NUMBER and the page's |
//! | `walk BEFORE` | `done`, if the first and the last number of every page, front to back, are BEFORE and the page's |
//! | `walk BEFORE AFTER` | the same, and stores AFTER and the page's instead |
//! | `follow OFFSET` | the number to which the address there points |
//! | `send OFFSET LENGTH` | sum of these bytes, after a trip through a pipe by `write(2)` |
//! | `unprotect` | `done`, after `mprotect` to read and write |
//! | `discard OFFSET LENGTH` | `done`, after `madvise` that they are not needed |
//! | `punch OFFSET LENGTH` | `done`, after `madvise` to remove them |
//! | `unmap OFFSET LENGTH` | `done`, after a bare `munmap` |
//! | `map_over OFFSET LENGTH` | `done`, after mapping other memory over them |
//! | `move OFFSET LENGTH` | the number there after a bare `mremap` to elsewhere |
//! | `address` | where the mapping is |
//! | `profile` | `done`; from now on SIGPROF comes for every millisecond it runs |
//! | `crash` | none: it aborts and dumps core beside the daemon's socket |
//! | `lock KEY` | `locked`, or `recovered` |
//! | `unlock KEY` | `done` |
//! | `turns KEY` | how often it took and released the lock, until it had to wait for it in vain |
//! | `barrier KEY PARTIES` | `passed` |
//! | `condition KEY LOCK` | `woken`; the lock, which was held, is not any more |
//! | `change OFFSET BYTE` | the new value of the byte |
//! | `stat` | `done`, when the segment's name was looked up |
//! | `remove` | `done`, when the segment's name was removed |
//! | `try KEY` | `locked`, `recovered`, or `busy` |
//! | `fork` | `born`, by a forked child, which takes over the strings until `bye` |
//! | `bye` | `ended` and the exit code, by the parent when its child has ended |
//! | `orphan` | `born`, by a child that has no segments for lack of descriptors |
//! | `bare` | `born`, by a child made by a bare system call |
//! | `vanish` | `born`, by a child whose parent has ended |
//! | `again` | `done`, after it has connected, opened and mapped anew |
//! | `descriptors` | what a program that is started finds open, in one line |
//! | `end` | none: the process ends without letting go of anything |
//!
//! A failed order is answered by `error: ` and the reason.

use crate::family::{self, Fork};
use crate::say;
use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use pagemesh::{Access, Capability, LockGuard, Mapping, Mesh, Options, Segment};
use rustix::mm::{MprotectFlags, mprotect};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::collections::HashMap;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct ScriptedNode {
    /// The segment it plays with
    segment: String,
    /// Make the segment, of so many bytes
    #[arg(long, conflicts_with = "read_only")]
    create: Option<u64>,
    /// Only to look at
    #[arg(long)]
    read_only: bool,
    /// Open it by the capability that comes from this socket
    #[arg(long)]
    capability: Option<PathBuf>,
    /// Where to map it
    #[arg(long)]
    at: Option<usize>,
    /// Have a handler for SIGUSR1, which interrupts system calls
    #[arg(long)]
    handler: bool,
}

impl ScriptedNode {
    pub(crate) fn play(self) -> Result<()> {
        if self.handler {
            // Without SA_RESTART.
            catch(libc::SIGUSR1, 0)?;
        }
        let mesh = Mesh::connect()?;
        let segment = self.segment(&mesh)?;
        let memory = segment.map_at(self.at, 0, segment.size(), !self.read_only)?;
        let mut strings = Strings {
            mesh,
            segment,
            memory,
            held: HashMap::new(),
        };
        say("ready")?;
        for line in std::io::stdin().lines() {
            let line = line?;
            if line == "end" || line == "bye" {
                // Nothing is let go of.
                family::exit(0);
            }
            match strings.pull(&line) {
                Ok(answer) => say(&answer)?,
                Err(error) => say(&format!("error: {error:#}"))?,
            }
        }
        Ok(())
    }

    fn segment(&self, mesh: &Mesh) -> Result<Segment> {
        if let Some(socket) = &self.capability {
            let capability = Capability::receive(&UnixStream::connect(socket)?)?;
            return Ok(mesh.redeem(&capability)?);
        }
        Ok(match (self.create, self.read_only) {
            (Some(size), _) => mesh.create(&self.segment, size, Options::default())?,
            (None, true) => mesh.open(&self.segment, Access::ReadOnly)?,
            (None, false) => mesh.open(&self.segment, Access::Writable)?,
        })
    }
}

struct Strings {
    mesh: Mesh,
    segment: Segment,
    memory: Mapping,
    held: HashMap<u64, LockGuard>,
}

impl Strings {
    fn pull(&mut self, order: &str) -> Result<String> {
        let mut words = order.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let numbers = words
            .map(|word| word.parse().with_context(|| format!("number {word}")))
            .collect::<Result<Vec<u64>>>()?;
        match (verb, &numbers[..]) {
            ("load", [at]) => Ok(self.memory.load_u64(*at as usize)?.to_string()),
            ("store", [at, value]) => self.store(*at as usize, *value),
            ("fill", [after]) => self.fill(*after),
            ("walk", [before]) => self.walk(*before, None),
            ("walk", [before, after]) => self.walk(*before, Some(*after)),
            ("follow", [at]) => self.follow(*at as usize),
            ("send", [at, length]) => self.send(*at as usize, *length as usize),
            ("unprotect", []) => self.unprotect(),
            ("discard", [at, length]) => self.advise(*at, *length, libc::MADV_DONTNEED),
            ("punch", [at, length]) => self.advise(*at, *length, libc::MADV_REMOVE),
            ("unmap", [at, length]) => self.unmap(*at as usize, *length as usize),
            ("map_over", [at, length]) => self.map_over(*at as usize, *length as usize),
            ("move", [at, length]) => self.displace(*at as usize, *length as usize),
            ("address", []) => Ok((self.memory.as_ptr() as usize).to_string()),
            ("profile", []) => profile(),
            ("crash", []) => crash(),
            ("lock", [key]) => self.lock(*key),
            ("unlock", [key]) => self.unlock(*key),
            ("turns", [key]) => self.turns(*key),
            ("count", [key, at, times]) => self.count(*key, *at as usize, *times),
            ("barrier", [key, parties]) => self.barrier(*key, *parties),
            ("condition", [key, lock]) => self.condition(*key, *lock),
            ("change", [at, byte]) => self.change(*at, *byte),
            ("stat", []) => self.stat(),
            ("remove", []) => self.remove(),
            ("try", [key]) => self.try_lock(*key),
            ("fork", []) => family::fork(Fork::Usual),
            ("orphan", []) => family::fork(Fork::Starved),
            ("bare", []) => family::fork(Fork::Bare),
            ("vanish", []) => family::fork(Fork::Vanishing),
            ("again", []) => self.begin_anew(),
            ("descriptors", []) => descriptors(),
            _ => bail!("no such order"),
        }
    }

    /// Past the mapping's own checks: the kernel shall say no.
    fn store(&self, at: usize, value: u64) -> Result<String> {
        let place = self.place(at, 8)?.cast::<u64>();
        // SAFETY: eight bytes of the mapping; if they cannot be stored to, this
        // process is meant to end here.
        unsafe { place.write_volatile(value) };
        Ok("done".into())
    }

    fn fill(&self, after: u64) -> Result<String> {
        for page in 0..self.memory.len() / 4096 {
            for at in [page * 4096, page * 4096 + 4088] {
                self.store(at, after + page as u64)?;
            }
        }
        Ok("done".into())
    }

    fn walk(&self, before: u64, after: Option<u64>) -> Result<String> {
        for page in 0..self.memory.len() / 4096 {
            for at in [page * 4096, page * 4096 + 4088] {
                let (found, mark) = (self.memory.load_u64(at)?, page as u64);
                if found != before + mark {
                    bail!("{found} at {at}, not {}", before + mark);
                }
                if let Some(after) = after {
                    self.store(at, after + mark)?;
                }
            }
        }
        Ok("done".into())
    }

    fn follow(&self, at: usize) -> Result<String> {
        let target = self.memory.load_u64(at)? as usize;
        let at = target
            .checked_sub(self.memory.as_ptr() as usize)
            .context("points outside")?;
        // SAFETY: checked to lie in the mapping.
        let value = unsafe { self.place(at, 8)?.cast::<u64>().read_volatile() };
        Ok(value.to_string())
    }

    fn send(&self, at: usize, length: usize) -> Result<String> {
        let from = self.place(at, length)?;
        let (mut reader, writer) = std::io::pipe()?;
        // SAFETY: these bytes of the mapping live through the call; the kernel
        // only reads them.
        let sent = unsafe { libc::write(as_raw(&writer), from.cast(), length) };
        if sent < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        drop(writer);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
        Ok(sum.to_string())
    }

    fn unprotect(&self) -> Result<String> {
        let length = self.memory.len();
        let rights = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the mapping is this process's own, and stays where it is.
        unsafe { mprotect(self.memory.as_ptr().cast(), length, rights) }?;
        Ok("done".into())
    }

    fn advise(&self, at: u64, length: u64, advice: i32) -> Result<String> {
        let (at, length) = (at as usize, length as usize);
        let place = self.place(at, length)?;
        // SAFETY: pages of the mapping, which any process may change.
        done(unsafe { libc::madvise(place.cast(), length, advice) })
    }

    fn unmap(&self, at: usize, length: usize) -> Result<String> {
        let place = self.place(at, length)?;
        // SAFETY: no code refers to this memory; a thread that touches it shall crash.
        done(unsafe { libc::munmap(place.cast(), length) })
    }

    fn map_over(&self, at: usize, length: usize) -> Result<String> {
        let place = self.place(at, length)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: as above.
        let mapped = unsafe { libc::mmap(place.cast(), length, rights, flags, -1, 0) };
        done(if mapped == libc::MAP_FAILED { -1 } else { 0 })
    }

    fn displace(&self, at: usize, length: usize) -> Result<String> {
        let place = self.place(at, length)?;
        // SAFETY: as above; the kernel chooses the new place.
        let moved = unsafe { libc::mremap(place.cast(), length, 2 * length, libc::MREMAP_MAYMOVE) };
        if moved == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: just mapped there.
        Ok(unsafe { moved.cast::<u64>().read_volatile() }.to_string())
    }

    fn lock(&mut self, key: u64) -> Result<String> {
        let guard = self.segment.lock(key).lock()?;
        Ok(self.hold(key, guard))
    }

    fn try_lock(&mut self, key: u64) -> Result<String> {
        let Some(guard) = self.segment.lock(key).try_lock()? else {
            return Ok("busy".into());
        };
        Ok(self.hold(key, guard))
    }

    fn hold(&mut self, key: u64, guard: LockGuard) -> String {
        let answer = if guard.recovered() {
            "recovered"
        } else {
            "locked"
        };
        self.held.insert(key, guard);
        answer.into()
    }

    fn unlock(&mut self, key: u64) -> Result<String> {
        let guard = self.held.remove(&key).filter(LockGuard::is_held);
        guard.ok_or_else(|| anyhow!("not held"))?.unlock();
        Ok("done".into())
    }

    fn turns(&self, key: u64) -> Result<String> {
        let lock = self.segment.lock(key);
        let mut turns = 0_u64;
        loop {
            match lock.lock_timeout(Duration::from_millis(100)) {
                Ok(guard) => guard.unlock(),
                Err(pagemesh::Error::TimedOut) => return Ok(turns.to_string()),
                Err(error) => return Err(error.into()),
            }
            turns += 1;
        }
    }

    /// Adds one to a word, with a lock held, so many times.
    fn count(&self, key: u64, at: usize, times: u64) -> Result<String> {
        let lock = self.segment.lock(key);
        for _ in 0..times {
            let guard = lock.lock()?;
            self.store(at, self.memory.load_u64(at)? + 1)?;
            guard.unlock();
        }
        Ok("done".into())
    }

    fn barrier(&self, key: u64, parties: u64) -> Result<String> {
        self.segment.barrier(key, u32::try_from(parties)?).wait()?;
        Ok("passed".into())
    }

    fn condition(&mut self, key: u64, lock: u64) -> Result<String> {
        let mut guard = self.held.remove(&lock).context("not held")?;
        self.segment.condition(key).wait(&mut guard)?;
        Ok("woken".into())
    }

    fn change(&self, at: u64, byte: u64) -> Result<String> {
        let expected = u8::try_from(byte)?;
        let seen = self.segment.wait_change(at, expected, None)?;
        Ok(seen.to_string())
    }

    fn stat(&self) -> Result<String> {
        self.mesh.stat(self.segment.name())?;
        Ok("done".into())
    }

    fn remove(&self) -> Result<String> {
        self.mesh.remove(self.segment.name())?;
        Ok("done".into())
    }

    fn begin_anew(&mut self) -> Result<String> {
        self.mesh = Mesh::connect()?;
        self.segment = self.mesh.open(self.segment.name(), Access::Writable)?;
        self.memory = self.segment.map()?;
        Ok("done".into())
    }

    fn place(&self, at: usize, length: usize) -> Result<*mut u8> {
        if at
            .checked_add(length)
            .is_none_or(|end| end > self.memory.len())
        {
            bail!("outside of the mapping");
        }
        // SAFETY: just checked to lie in the mapping.
        Ok(unsafe { self.memory.as_ptr().add(at) })
    }
}

fn as_raw(file: &impl std::os::fd::AsFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(&file.as_fd())
}

fn done(result: i32) -> Result<String> {
    if result != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok("done".into())
}

/// As a profiler does: the handler runs again and again.
fn profile() -> Result<String> {
    catch(libc::SIGPROF, libc::SA_RESTART)?;
    let often = libc::timeval {
        tv_sec: 0,
        tv_usec: 1000,
    };
    let timer = libc::itimerval {
        it_interval: often,
        it_value: often,
    };
    // SAFETY: reads one itimerval.
    done(unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) })
}

fn crash() -> Result<String> {
    let socket = std::env::var_os(pagemesh::SOCKET_VARIABLE).context("no socket")?;
    let directory = std::path::Path::new(&socket).parent();
    std::env::set_current_dir(directory.context("no directory")?)?;
    let mut limit = getrlimit(Resource::Core);
    limit.current = limit.maximum;
    setrlimit(Resource::Core, limit)?;
    std::process::abort()
}

fn descriptors() -> Result<String> {
    let list = std::process::Command::new("ls")
        .args(["-l", "/proc/self/fd"])
        .output()?;
    Ok(String::from_utf8_lossy(&list.stdout).replace('\n', "; "))
}

/// A handler that does nothing.
fn catch(signal: i32, flags: i32) -> Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: all zeros is a valid sigaction, filled in before use; the handler
    // touches nothing.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = flags;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if failed != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(())
}
