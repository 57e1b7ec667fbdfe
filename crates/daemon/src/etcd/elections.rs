//! Has this node's claim to coordinate renewed, or that of a silent coordinator taken, and looks up
//! who coordinates and who lives. A thread of its own waits for etcd.

use super::start::{Next, next};
use super::{EtcdProgram, lock, trouble};
use crate::ledger::file;
use anyhow::{Context as _, Result};
use pagemesh_core::Input;
use pagemesh_wire::etcd::{Answer, Request, Seen};
use pagemesh_wire::{NodeId, Term};
use rustix::event::{EventfdFlags, eventfd};
use std::mem::discriminant;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How often the coordinator is looked up.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
    /// What the node is to be told.
    told: Mutex<Vec<Input<'static>>>,
    /// The cluster that this host wants to join has no coordinator.
    alone: AtomicBool,
    /// Rung when there is something to be told.
    bell: OwnedFd,
}

impl Elections {
    /// # Errors
    /// If there can be no thread for it.
    pub(crate) fn start(program: Arc<EtcdProgram>) -> Result<Self> {
        let shared = Arc::new(Shared {
            problem: Mutex::new(None),
            told: Mutex::new(Vec::new()),
            alone: AtomicBool::new(false),
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

    /// Has the nodes listed that have asked for the claim since this one has it.
    pub(crate) fn list_asking(&self, term: Term) {
        self.ask(Request::Asked { term });
    }

    /// Has the coordinator looked up.
    pub(crate) fn seek(&self) {
        self.ask(Request::Look);
    }

    fn ask(&self, request: Request) {
        // The thread ends only after this end of the channel.
        let _ = self.requests.send(request);
    }

    /// Becomes readable when the node is to be told something.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// What the node is to be told.
    pub(crate) fn told(&self) -> Vec<Input<'static>> {
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        std::mem::take(&mut *lock(&self.shared.told))
    }

    /// Whether the cluster had no coordinator when one was looked up last.
    pub(crate) fn nobody_coordinates(&self) -> bool {
        self.shared.alone.load(Ordering::Relaxed)
    }

    /// Why nobody can be elected.
    pub(crate) fn problem(&self) -> Option<String> {
        lock(&self.shared.problem).clone()
    }
}

impl Shared {
    fn run(&self, program: &EtcdProgram, queue: &Receiver<Request>) {
        let mut looked: Option<Instant> = None;
        while let Ok(request) = queue.recv() {
            let mut requests = vec![request];
            for request in queue.try_iter() {
                // What was asked for before took long, and counts no more.
                requests.retain(|before| discriminant(before) != discriminant(&request));
                requests.push(request);
            }
            for request in requests {
                if request == Request::Look {
                    // Everything is read.
                    if looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
                        continue;
                    }
                    looked = Some(Instant::now());
                }
                let problem = self.ask(program, &request).err();
                *lock(&self.problem) = problem.map(|why| trouble(why.as_ref()));
            }
        }
    }

    fn ask(&self, program: &EtcdProgram, request: &Request) -> Result<()> {
        match program.ask(request)? {
            Answer::Claimed(Seen { term, records, .. }) => {
                let kept = Box::new(file::read_whole(&records)?);
                tracing::info!(term = term.count(), "etcd has elected this node");
                self.tell(Input::Elected { term, kept });
            }
            Answer::Fenced(by) => {
                tracing::info!(by = %by.coordinator(), "etcd has elected another coordinator");
            }
            Answer::Asked(nodes) => {
                if let Request::Asked { term } = *request {
                    self.tell(Input::Asking { term, nodes });
                }
            }
            Answer::Seen(seen) if !seen.records.is_empty() => {
                let next = next(&seen)?;
                let alone = matches!(next, Next::GoOn(_));
                self.alone.store(alone, Ordering::Relaxed);
                if let Next::Join(_, address) = next {
                    self.tell(Input::Coordinates { address });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn tell(&self, input: Input<'static>) {
        lock(&self.told).push(input);
        // A full counter has rung already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}
