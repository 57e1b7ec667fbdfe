//! What this daemon, the coordinator's or the standby's, has on its disk, or in etcd. A thread of its
//! own writes it: a disk that is slow, full or broken stops that thread, and not the daemon. Answers
//! about names wait for the disk; pages, locks and barriers do not.

pub(crate) mod file;

use crate::etcd::EtcdRecords;
use anyhow::{Context as _, Result};
pub(crate) use file::LedgerFile;
use pagemesh_core::KeptEntry;
use pagemesh_wire::Term;
use pagemesh_wire::local::Trouble;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often a disk that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The same for etcd, which is without a leader for a second now and then.
const AGAIN_SOON: Duration = Duration::from_millis(50);

/// Where it is written.
pub(crate) enum Medium {
    /// Into a file.
    File(Box<LedgerFile>),
    /// Into etcd.
    Etcd(Box<EtcdRecords>),
}

/// Why something is not written.
pub(crate) enum Refused {
    /// Another node coordinates, in this term.
    Fenced(Term),
    /// The disk or etcd does not work.
    Failed(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Entries with the number of their batch.
type Batch = (u64, Vec<KeptEntry>);

/// The writer of the file.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// None while the daemon ends.
    batches: Option<Sender<Batch>>,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

/// Between the writer and the daemon.
#[derive(Debug)]
struct Shared {
    /// The number of the last batch that is on the disk.
    kept: AtomicU64,
    /// Why nothing can be written now.
    problem: Mutex<Option<String>>,
    /// The daemon ends: a disk that does not work is not waited for.
    ending: AtomicBool,
    /// Rung when a batch was written.
    bell: OwnedFd,
}

impl Ledger {
    /// Begins to write to an open file.
    ///
    /// # Errors
    /// If there can be no thread for it.
    pub(crate) fn start(medium: Medium) -> Result<Self> {
        let shared = Arc::new(Shared {
            kept: AtomicU64::new(0),
            problem: Mutex::new(None),
            ending: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        });
        let (batches, queue) = channel();
        let writer = Writer {
            medium,
            queue,
            shared: Arc::clone(&shared),
        };
        let writer = thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || writer.run())
            .context("no thread to write what the coordinator decides")?;
        Ok(Self {
            batches: Some(batches),
            shared,
            writer: Some(writer),
        })
    }

    /// Has a batch written.
    pub(crate) fn keep(&self, batch: u64, entries: Vec<KeptEntry>) {
        if let Some(batches) = &self.batches {
            // The writer ends only after this end of the channel.
            let _ = batches.send((batch, entries));
        }
    }

    /// Becomes readable when a batch was written.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// The number of the last batch that is on the disk.
    pub(crate) fn kept(&self) -> u64 {
        let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
        self.shared.kept.load(Ordering::Acquire)
    }

    /// Why nothing can be written now, with the cure.
    pub(crate) fn problem(&self) -> Option<String> {
        self.shared.problem().clone()
    }
}

impl Drop for Ledger {
    /// Waits until everything is written, unless the disk does not work.
    fn drop(&mut self) {
        self.batches = None;
        self.shared.ending.store(true, Ordering::Release);
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Shared {
    fn problem(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that writes.
struct Writer {
    medium: Medium,
    queue: Receiver<Batch>,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(mut self) {
        while let Ok((mut last, mut entries)) = self.queue.recv() {
            // One write for all that has come meanwhile, and one record: only the last record of
            // the file may be incomplete after a crash.
            for (batch, more) in self.queue.try_iter() {
                last = batch;
                entries.extend(more);
            }
            match self.append(&entries) {
                Ok(()) => {}
                Err(Refused::Fenced(by)) => {
                    // No answer that depends on these decisions leaves the daemon.
                    let by = by.coordinator();
                    tracing::warn!(%by, "etcd has elected another coordinator");
                    continue;
                }
                Err(Refused::Failed(error)) if self.try_again(&error) => {}
                Err(Refused::Failed(_)) if self.shared.ending.load(Ordering::Acquire) => return,
                Err(Refused::Failed(_)) => continue,
            }
            self.shared.kept.store(last, Ordering::Release);
            // A full counter has rung already.
            let _ = rustix::io::write(&self.shared.bell, &1_u64.to_ne_bytes());
        }
    }

    fn append(&mut self, entries: &[KeptEntry]) -> Result<(), Refused> {
        match &mut self.medium {
            Medium::File(file) => Ok(file.append(entries)?),
            Medium::Etcd(records) => records.append(entries),
        }
    }

    fn rewrite(&mut self) -> Result<(), Refused> {
        match &mut self.medium {
            Medium::File(file) => Ok(file.rewrite()?),
            Medium::Etcd(records) => records.rewrite(),
        }
    }

    /// Writes everything anew until that works, because after an error it is not known what of
    /// the last record is on the disk. False if the daemon ends meanwhile, or if another node
    /// coordinates by now.
    fn try_again(&mut self, error: &io::Error) -> bool {
        let problem = self.trouble(error);
        tracing::error!("{problem}");
        *self.shared.problem() = Some(problem);
        let pause = match self.medium {
            Medium::File(_) => AGAIN,
            Medium::Etcd(_) => AGAIN_SOON,
        };
        while !self.shared.ending.load(Ordering::Acquire) {
            thread::sleep(pause);
            match self.rewrite() {
                Ok(()) => {
                    *self.shared.problem() = None;
                    let what = match self.medium {
                        Medium::File(_) => "the disk",
                        Medium::Etcd(_) => "etcd",
                    };
                    tracing::info!("{what} takes decisions again");
                    return true;
                }
                Err(Refused::Failed(error)) => *self.shared.problem() = Some(self.trouble(&error)),
                Err(Refused::Fenced(_)) => {
                    *self.shared.problem() = None;
                    return false;
                }
            }
        }
        false
    }

    fn trouble(&self, error: &io::Error) -> String {
        let Medium::File(file) = &self.medium else {
            return crate::etcd::trouble(error);
        };
        let path = file.path();
        let path = path.display();
        let full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        );
        if full {
            return Trouble::DiskFull.line(format_args!(
                "what the coordinator decides cannot be written to {path}, so opening, \
                 closing and removing segments and joining wait; pages, locks and barriers go on: \
                 free some space there, and it goes on by itself"
            ));
        }
        Trouble::DiskFailed.line(format_args!(
            "what the coordinator decides cannot be written to {path} ({error}), so \
             opening, closing and removing segments and joining wait; pages, locks and barriers go \
             on: mend the disk, or promote the standby"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::{ClusterId, NodeId, Term};
    use std::fs;
    use std::time::Instant;

    fn life(node: u16) -> Vec<KeptEntry> {
        vec![KeptEntry::Life {
            cluster: ClusterId(7),
            node: NodeId(node),
            term: Term(u32::from(node) << 16 | u32::from(node)),
        }]
    }

    fn wait_for(what: &str, mut come: impl FnMut() -> bool) {
        let start = Instant::now();
        while !come() {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What was given to a full disk is reported as kept only when it is.
    #[test]
    fn a_full_disk_is_told_and_tried_again() {
        let name = format!("pagemesh-full-ledger-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        let mut file = LedgerFile::open(&place).unwrap();
        file.append(&life(1)).unwrap();
        file.fill_disk();
        // No new file can be made either.
        let aside = place.with_extension("aside");
        fs::rename(&place, &aside).unwrap();
        let ledger = Ledger::start(Medium::File(Box::new(file))).unwrap();
        ledger.keep(1, life(2));
        ledger.keep(2, life(3));
        wait_for("the problem is told", || ledger.problem().is_some());
        assert_eq!(ledger.kept(), 0);
        fs::rename(&aside, &place).unwrap();
        wait_for("all is kept", || ledger.kept() == 2);
        assert_eq!(ledger.problem(), None);
        ledger.keep(3, life(4));
        let before = {
            drop(ledger);
            LedgerFile::open(&place).unwrap().kept.clone()
        };
        let mut right = pagemesh_core::Kept::default();
        for node in 1..=4 {
            life(node).into_iter().for_each(|entry| right.apply(entry));
        }
        assert_eq!(before, right);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn problems_name_the_file_and_the_cure() {
        let name = format!("pagemesh-trouble-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        let (_, queue) = channel();
        let writer = Writer {
            medium: Medium::File(Box::new(LedgerFile::open(&place).unwrap())),
            queue,
            shared: Arc::new(Shared {
                kept: AtomicU64::new(0),
                problem: Mutex::new(None),
                ending: AtomicBool::new(true),
                bell: eventfd(0, EventfdFlags::empty()).unwrap(),
            }),
        };
        let full = writer.trouble(&io::Error::from_raw_os_error(libc::ENOSPC));
        assert!(full.starts_with("disk-full: ") && full.contains("free some space"));
        let broken = writer.trouble(&io::Error::from_raw_os_error(libc::EIO));
        assert!(broken.starts_with("disk-failed: ") && broken.contains("promote"));
        for problem in [full, broken] {
            assert!(problem.contains(&place.display().to_string()), "{problem}");
        }
        fs::remove_dir_all(place).unwrap();
    }
}
