//! The end of a node whose daemon was not replaced: its processes get errors.
//!
//! Calls fail since their connections end. Memory fails since every page is taken out of it, and
//! each access to it raises SIGBUS from then on: a page that is only here cannot be changed
//! elsewhere, but there is no way to tell whether another node changed a page that can still be
//! read here.

use super::items::Items;
use super::words::{Tag, Whole, decode};
use anyhow::Result;
use pagemesh_os::memfd::{Memfd, PAGE};
use pagemesh_os::poll::Poll;
use pagemesh_os::seqpacket::Socket;
use pagemesh_os::uffd::{Fault, FaultBuffer, Outcome, Uffd};
use pagemesh_sorted::SortedMap;

/// How often to look whether processes are gone.
const INTERVAL: u64 = 500_000_000;

const LENGTH: u64 = PAGE as u64;

/// The remains of a node.
pub(super) struct Orphaned {
    poll: Poll,
    mappings: SortedMap<u64, Left>,
    faults: FaultBuffer,
}

/// A mapping in a process that may still live.
struct Left {
    uffd: Uffd,
    whole: Whole,
    process: i32,
}

impl Orphaned {
    /// Ends everything that was kept.
    pub(super) fn over(items: Items) -> Result<Self> {
        let poll = Poll::new()?;
        let mut mappings = SortedMap::new();
        let mut memory = Vec::new();
        let mut processes = SortedMap::new();
        // In the order of their tags: sessions, memory, mappings.
        for (tag, item) in items {
            match tag {
                Tag::Session(client) => {
                    let socket = Socket::from(item.fd);
                    processes.insert(client, socket.peer().map_or(0, |peer| peer.pid));
                    socket.hang_up();
                }
                Tag::Memory(_) => memory.push(Memfd::adopt(item.fd)),
                Tag::Mapping(id) => {
                    let whole: Option<Whole> = decode(&item.note);
                    if let (Some(whole), Ok(uffd)) = (whole, Uffd::adopt(item.fd)) {
                        poll.add(&uffd, id.0)?;
                        let process = processes.get(&whole.client).copied().unwrap_or(0);
                        let left = Left {
                            uffd,
                            whole,
                            process,
                        };
                        mappings.insert(id.0, left);
                    }
                }
                _ => {}
            }
        }
        for memory in memory {
            let emptied = memory.size().and_then(|size| memory.punch(0, size));
            if let Err(error) = emptied {
                tracing::error!(%error, "memory cannot be taken away");
            }
        }
        // Faults that the daemon had read come again.
        for left in mappings.values() {
            left.uffd.wake(left.whole.address, left.whole.length);
        }
        Ok(Self {
            poll,
            mappings,
            faults: FaultBuffer::default(),
        })
    }

    /// Fails every access, until no process is left.
    pub(super) fn run(mut self) -> Result<()> {
        let mut ready = Vec::new();
        loop {
            self.forget_the_gone();
            if self.mappings.is_empty() {
                return Ok(());
            }
            self.poll.wait(Some(INTERVAL), &mut ready)?;
            for event in ready.drain(..) {
                self.fail(event.token);
            }
        }
    }

    fn fail(&mut self, id: u64) {
        let Some(left) = self.mappings.get(&id) else {
            return;
        };
        let read = left.uffd.never_block();
        if read
            .and_then(|()| left.uffd.read(&mut self.faults))
            .is_err()
        {
            let _ = self.poll.remove(&left.uffd);
            self.mappings.remove(&id);
            return;
        }
        for index in 0..self.faults.len() {
            if let Some(fault) = self.faults.get(index) {
                left.poison(fault);
            }
        }
    }

    /// A process that is gone says nothing.
    fn forget_the_gone(&mut self) {
        self.mappings.retain(|_, left| !left.uffd.is_orphan());
    }
}

impl Left {
    fn poison(&self, fault: Fault) {
        let address = fault.address - fault.address % LENGTH;
        // A mark left by protecting is in the way of the poison.
        self.uffd.unprotect(address, LENGTH);
        match self.uffd.poison(address, LENGTH) {
            Outcome::Done | Outcome::Gone => {}
            // Poisoned already, for another thread.
            Outcome::AlreadyThere => drop(self.uffd.wake(address, LENGTH)),
            // Kernels before 6.6 cannot make one page fail; a hang would be worse.
            _ => crate::process::kill(self.process),
        }
    }
}
