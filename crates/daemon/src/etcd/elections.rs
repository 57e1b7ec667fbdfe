//! Has this node's claim to coordinate renewed, or that of a silent coordinator taken. A thread of
//! its own waits for etcd.

use super::{EtcdProgram, lock, no_quorum};
use crate::ledger::file;
use anyhow::{Context as _, Result};
use pagemesh_core::Kept;
use pagemesh_wire::etcd::{Answer, Request, Seen};
use pagemesh_wire::{NodeId, Term};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// A claim that was not renewed for so many seconds may be taken.
const AFTER: u8 = 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct Elections {
    requests: Sender<Request>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Why etcd does not answer.
    problem: Mutex<Option<String>>,
    /// The claim that this node has got, with what etcd has.
    claimed: Mutex<Option<(Term, Box<Kept>)>>,
    /// Rung when there is one.
    bell: OwnedFd,
}

impl Elections {
    /// # Errors
    /// If there can be no thread for it.
    pub(crate) fn start(program: Arc<EtcdProgram>) -> Result<Self> {
        let shared = Arc::new(Shared {
            problem: Mutex::new(None),
            claimed: Mutex::new(None),
            bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        });
        let (requests, queue) = channel();
        let there = Arc::clone(&shared);
        thread::Builder::new()
            .name("elections".to_owned())
            .spawn(move || there.run(&program, &queue))
            .context("no thread that asks etcd for elections")?;
        Ok(Self { requests, shared })
    }

    /// Has the claim renewed.
    pub(crate) fn renew(&self, term: Term) {
        self.ask(Request::Renew { term });
    }

    /// Has the claim of a silent coordinator taken.
    pub(crate) fn elect(&self, node: NodeId, fence: Term) {
        self.ask(Request::Claim {
            node,
            fence,
            after: AFTER,
        });
    }

    fn ask(&self, request: Request) {
        // The thread ends only after this end of the channel.
        let _ = self.requests.send(request);
    }

    /// Becomes readable when this node has got the claim.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// The claim that this node has got.
    pub(crate) fn claimed(&self) -> Option<(Term, Box<Kept>)> {
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        lock(&self.shared.claimed).take()
    }

    /// Why nobody can be elected.
    pub(crate) fn problem(&self) -> Option<String> {
        lock(&self.shared.problem).clone()
    }
}

impl Shared {
    fn run(&self, program: &EtcdProgram, queue: &Receiver<Request>) {
        while let Ok(request) = queue.recv() {
            // What was asked for before took long, and counts no more.
            let request = queue.try_iter().last().unwrap_or(request);
            let problem = self.ask(program, &request).err();
            let problem = problem.map(|why| no_quorum(&format!("{why:#}")));
            *lock(&self.problem) = problem;
        }
    }

    fn ask(&self, program: &EtcdProgram, request: &Request) -> Result<()> {
        match program.ask(request)? {
            Answer::Claimed(Seen { term, records, .. }) => {
                let kept = file::read_whole(&records)?;
                tracing::info!(term = term.count(), "etcd has elected this node");
                *lock(&self.claimed) = Some((term, Box::new(kept)));
                // A full counter has rung already.
                let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
            }
            Answer::Fenced(by) => {
                tracing::info!(by = %by.coordinator(), "etcd has elected another coordinator");
            }
            _ => {}
        }
        Ok(())
    }
}
