//! Ctrl-C and its like, as events instead of sudden death.

use anyhow::{Context, Result};
use pagemesh_os::signals::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;
use std::sync::Arc;

/// Catches the signals that end a command, so that it can clean up. Must be made before any thread
/// is: threads inherit the mask.
#[derive(Clone)]
pub(crate) struct Interrupts(Arc<Signals>);

impl Interrupts {
    pub(crate) fn catch() -> Result<Self> {
        let numbers = [Signal::INT, Signal::TERM, Signal::HUP].map(Signal::as_raw);
        let signals = Signals::catch(&numbers).context("catching signals")?;
        Ok(Self(Arc::new(signals)))
    }

    /// The next signal; waits for it.
    pub(crate) fn wait(&self) -> Result<i32> {
        loop {
            if let Some(signal) = self.0.next()? {
                return Ok(signal);
            }
            let mut fds = [PollFd::new(&*self.0, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Hands every signal from now on to `tell`, in a thread of its own, until `tell` returns
    /// false, because its receiver is gone.
    pub(crate) fn watch(&self, tell: impl Fn(i32) -> bool + Send + 'static) -> Result<()> {
        let signals = self.clone();
        std::thread::Builder::new()
            .name("interrupts".to_owned())
            .spawn(move || {
                while let Ok(signal) = signals.wait() {
                    if !tell(signal) {
                        return;
                    }
                }
            })
            .context("starting a thread")?;
        Ok(())
    }
}
