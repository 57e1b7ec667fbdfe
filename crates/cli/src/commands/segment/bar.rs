//! The progress bar of a save or a load, and its end by Ctrl-C.

use crate::interrupts::Interrupts;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pagemesh::snapshot::{Progress, Step};
use std::cell::Cell;
use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Instant;

pub(super) struct Bar {
    bar: ProgressBar,
    signals: Receiver<i32>,
    stopped: Cell<bool>,
}

impl Bar {
    /// Draws on standard error if that is a terminal. Signals are caught from now on.
    pub(super) fn new(quiet: bool) -> Result<Self> {
        let interrupts = Interrupts::catch()?;
        let (sender, signals) = mpsc::channel();
        interrupts.watch(move |signal| sender.send(signal).is_ok())?;
        let bar = ProgressBar::new(1);
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let template = "{msg:8} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Ok(Self {
            bar,
            signals,
            stopped: Cell::new(false),
        })
    }

    /// Shows the progress; ends the work after a signal.
    pub(super) fn observer(&self) -> impl FnMut(Progress) -> ControlFlow<()> {
        |progress: Progress| {
            self.bar.set_message(match progress.step {
                Step::Copying => "copying",
                Step::Checking => "checking",
                Step::Storing => "storing",
            });
            self.bar.set_length(progress.total);
            self.bar.set_position(progress.done);
            if self.is_stopped() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        }
    }

    /// Whether a signal has come.
    pub(super) fn is_stopped(&self) -> bool {
        if self.signals.try_recv().is_ok() {
            self.stopped.set(true);
        }
        self.stopped.get()
    }

    /// Waits. False if a signal has come.
    pub(super) fn wait_until(&self, time: Instant) -> bool {
        let left = time.saturating_duration_since(Instant::now());
        let waited = self.signals.recv_timeout(left);
        if waited == Err(RecvTimeoutError::Timeout) {
            return true;
        }
        self.stopped.set(true);
        false
    }

    /// The work is done.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
        self.bar.reset();
    }
}
