//! `pagemesh segment save`.

use super::bar::Bar;
use crate::exit::{Exit, Trouble};
use crate::global::Global;
use crate::output;
use crate::units::{parse_duration, size};
use anyhow::{Context as _, Result};
use clap::Args;
use pagemesh::snapshot::{Consistency, Form, SaveOptions, Saved, SnapshotError};
use pagemesh::{Access, Error, LockGuard, Segment};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the command waits for the lock before it looks whether it is to stop.
const TURN: Duration = Duration::from_millis(200);

/// Save a segment to a file, while programs go on
#[derive(Args)]
#[command(
    after_help = "What the file holds: sequential: one instant; boards: whole states; release and \
                  private: with --lock, the state at that lock; else save from within the program, \
                  between two barriers.\n\
                  The file appears whole or not at all, and replaces an older one."
)]
pub(crate) struct Save {
    /// Which segment
    name: String,
    /// Where to
    file: PathBuf,
    /// Save again and again, so often, until Ctrl-C; for example 60s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    every: Option<Duration>,
    /// Hold this lock of the segment meanwhile: one under which programs store
    #[arg(long, value_name = "NUMBER")]
    lock: Option<u64>,
    /// Save although nothing orders the copy with stores: each page may be of another moment
    /// (release, private, views)
    #[arg(long, conflicts_with = "lock")]
    unordered: bool,
    /// Make the file smaller, with LZ4
    #[arg(long)]
    compress: bool,
}

impl Save {
    pub(super) fn run(self, global: &Global) -> Result<Exit> {
        let bar = Bar::new(global.quiet)?;
        let mesh = crate::commands::mesh(global)?;
        let segment = mesh.open(&self.name, Access::Writable);
        let segment = segment.with_context(|| format!("opening segment {}", self.name))?;
        self.check(&segment)?;
        let Some(every) = self.every else {
            let saved = self.save(&segment, &bar)?;
            return self.tell(global, &saved).map(|()| Exit::OK);
        };
        let mut exit = Exit::OK;
        loop {
            let next = Instant::now() + every;
            match self.save(&segment, &bar) {
                Ok(saved) => {
                    exit = Exit::OK;
                    self.tell(global, &saved)?;
                }
                Err(_) if bar.is_stopped() => return Ok(exit),
                // The next one may work: the disk has room again, a node is back.
                Err(error) => {
                    exit = crate::exit::of(&error);
                    output::note(format_args!("pagemesh: {error:#}"));
                }
            }
            if !bar.wait_until(next) {
                return Ok(exit);
            }
        }
    }

    /// Refuses a copy that would mean nothing.
    fn check(&self, segment: &Segment) -> Result<()> {
        let policy = segment.info().spec.policy;
        let ordered = policy.sequential().is_some() || segment.is_board();
        if ordered || self.lock.is_some() || self.unordered {
            return Ok(());
        }
        let why = format!(
            "segment {}: under its policy only locks and barriers order stores, and this command \
             takes part in none; name the lock under which programs store (--lock NUMBER), save \
             from within the program between two barriers, or take what is there (--unordered)",
            self.name
        );
        Err(Trouble::new(Exit::USAGE, why).into())
    }

    fn save(&self, segment: &Segment, bar: &Bar) -> Result<Saved> {
        let guard = self.lock(segment, bar)?;
        let ordered = match self.lock {
            Some(number) => Consistency::Lock(number),
            None => Consistency::Unordered,
        };
        let mut observer = bar.observer();
        let options = SaveOptions {
            form: if self.compress {
                Form::Lz4
            } else {
                Form::Plain
            },
            ordered: Some(ordered),
            observer: Some(&mut observer),
        };
        let saved = segment.save(&self.file, options);
        drop(guard);
        bar.finish();
        saved.with_context(|| format!("saving segment {}", self.name))
    }

    fn lock(&self, segment: &Segment, bar: &Bar) -> Result<Option<LockGuard>> {
        let Some(number) = self.lock else {
            return Ok(None);
        };
        let lock = segment.lock(number);
        loop {
            match lock.lock_timeout(TURN) {
                Ok(guard) => return Ok(Some(guard)),
                Err(Error::TimedOut) if !bar.is_stopped() => {}
                Err(Error::TimedOut) => return Err(SnapshotError::Stopped.into()),
                Err(error) => return Err(error).context(format!("taking lock {number}")),
            }
        }
    }

    fn tell(&self, global: &Global, saved: &Saved) -> Result<()> {
        if global.quiet {
            return Ok(());
        }
        output::told(
            global.output,
            &sentence(&self.name, &self.file, saved),
            document(&self.name, &self.file, saved),
        )
    }
}

fn sentence(name: &str, file: &Path, saved: &Saved) -> String {
    let moment = match saved.consistency {
        Consistency::Instant => format!(
            "of one instant; stores waited for {:.1} ms",
            saved.stopped.as_secs_f64() * 1e3
        ),
        Consistency::Lock(number) => format!("as of lock {number}"),
        Consistency::Published => "whole states".to_owned(),
        Consistency::Caller | Consistency::Unordered => "not ordered with stores".to_owned(),
    };
    format!(
        "saved {name} to {}: {} pages, {}, {moment}",
        file.display(),
        saved.pages,
        size(saved.bytes)
    )
}

fn document(name: &str, file: &Path, saved: &Saved) -> Value {
    json!({
        "saved": name,
        "file": file,
        "pages": saved.pages,
        "bytes": saved.bytes,
        "consistency": saved.consistency.to_string(),
        "stopped_ms": saved.stopped.as_secs_f64() * 1e3,
    })
}
