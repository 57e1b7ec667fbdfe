//! `pagemesh swap off`: the steps of `on`, backwards.

use super::state::{Places, State};
use super::{device, host, room};
use crate::exit::{Exit, Trouble};
use crate::global::Global;
use crate::output;
use crate::units::size;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long the server may take to end after the file system is unmounted.
const END: Duration = Duration::from_secs(10);

/// Time between two steps of the progress bar.
const STEP: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(super) struct Off {}

impl Off {
    pub(super) fn run(self, global: &Global, directory: &Path) -> Result<Exit> {
        let places = Places(directory);
        let Some(state) = places.read()? else {
            let why = "there is no swap device of PageMesh here; `pagemesh swap on` makes one";
            return Err(Trouble::new(Exit::FAILURE, why).into());
        };
        device::check()?;
        let used = host::swap_space(&state.device).map(|space| space.used);
        if let Some(used) = used {
            ensure!(
                state.server.runs() || used == 0,
                "the process that serves {} has ended, and {} that were swapped out there are \
                 lost: end the programs that need them (they get SIGBUS), then swapoff {0}",
                state.device.display(),
                size(used)
            );
            room::check(&state.device, used)?;
            bring_back(global, &state, used)?;
        }
        take_down(&places, &state)?;
        let brought = used.unwrap_or(0);
        let words = format!(
            "{} is no swap space any more; {} came back",
            state.device.display(),
            size(brought)
        );
        output::told(
            global.output,
            &words,
            json!({ "device": state.device, "brought_back": brought }),
        )?;
        Ok(Exit::OK)
    }
}

/// Swaps off, and shows how far it is.
fn bring_back(global: &Global, state: &State, used: u64) -> Result<()> {
    let bar = ProgressBar::new(used);
    if global.quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("bringing back {bytes} of {total_bytes} {bar}")
    {
        bar.set_style(style);
    }
    let done = thread::scope(|scope| {
        let work = scope.spawn(|| device::swap_off(&state.device));
        while !work.is_finished() {
            let left = host::swap_space(&state.device).map_or(0, |space| space.used);
            bar.set_position(used.saturating_sub(left));
            thread::sleep(STEP);
        }
        work.join()
    });
    bar.finish_and_clear();
    let done = done.unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that swaps off ended")));
    done.context("the device stays swap space")
}

/// Removes a swap device that is empty: the loop device and the file, and when the server has ended,
/// what is written down of them.
fn take_down(places: &Places<'_>, state: &State) -> Result<()> {
    if places.file().exists() {
        device::detach(&state.device)?;
        device::unmount(&places.mount())?;
    }
    let asked = Instant::now();
    while state.server.runs() {
        ensure!(
            asked.elapsed() < END,
            "process {} served the device and does not end; look at {}, and end it",
            state.server.pid,
            places.log().display()
        );
        thread::sleep(STEP / 10);
    }
    places.remove();
    Ok(())
}
