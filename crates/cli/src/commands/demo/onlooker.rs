//! The progress bar: one more process with the job's segment mapped, which
//! sees how far the others are by looking at their memory.

use crate::output;
use crate::sandbox::Sandbox;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pagemesh::{Access, Mesh};
use pagemesh_centrality::Progress;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often to look.
const INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct Onlooker {
    bar: ProgressBar,
    quiet: bool,
    over: Arc<AtomicBool>,
}

impl Onlooker {
    /// Draws on standard error if that is a terminal; else only prints progress.
    pub(super) fn new(quiet: bool) -> Self {
        let bar = ProgressBar::new(1);
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template("{bar:30} {elapsed:>4} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Self {
            bar,
            quiet,
            over: Arc::default(),
        }
    }

    pub(super) fn say(&self, what: String) {
        if self.bar.is_hidden() && !self.quiet {
            output::note(format_args!("pagemesh: {what}"));
        }
        self.bar.set_message(what);
        self.bar.tick();
    }

    /// Looks on from node 0 until [`Onlooker::finish`].
    pub(super) fn watch(&self, sandbox: &Sandbox) {
        self.say("reading the package lists".to_owned());
        if self.bar.is_hidden() {
            return;
        }
        let socket = sandbox.node(0).socket().to_owned();
        let segment = format!("job.{}", sandbox.job());
        let (bar, over) = (self.bar.clone(), Arc::clone(&self.over));
        std::thread::spawn(move || {
            // An onlooker may fail without harm.
            let _ = look(&socket, &segment, &bar, &over);
        });
    }

    pub(super) fn finish(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.bar.finish_and_clear();
    }
}

impl Drop for Onlooker {
    fn drop(&mut self) {
        self.finish();
    }
}

fn look(socket: &PathBuf, segment: &str, bar: &ProgressBar, over: &AtomicBool) -> Result<()> {
    let mesh = Mesh::connect_to(socket)?;
    let segment = loop {
        if let Ok(segment) = mesh.open(segment, Access::ReadOnly) {
            break segment;
        }
        if over.load(Ordering::Relaxed) {
            return Ok(());
        }
        bar.tick();
        std::thread::sleep(INTERVAL);
    };
    let progress = Progress::new(segment.map()?);
    while !over.load(Ordering::Relaxed) {
        let (taken, of) = progress.look()?;
        if of > 0 {
            bar.set_length(of);
            bar.set_position(taken.min(of));
            bar.set_message(format!("paths from {} of {of} packages", taken.min(of)));
        }
        bar.tick();
        std::thread::sleep(INTERVAL);
    }
    Ok(())
}
