//! A process that takes a tenth of each processor in bursts, as other programs of a host do.

use anyhow::{Context, Result};
use clap::Args;
use pagemesh_cli::Exit;
use std::hint::spin_loop;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Take a tenth of each processor in bursts
#[derive(Args)]
pub(crate) struct Companion {}

/// Of each period, so long is computed.
const BURST: Duration = Duration::from_millis(2);
const PERIOD: Duration = Duration::from_millis(20);

impl Companion {
    pub(crate) fn run(&self) -> Result<Exit> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..processors)
            .map(|cpu| std::thread::spawn(move || bursts(cpu)))
            .collect();
        for thread in threads {
            let _ = thread.join();
        }
        Ok(Exit::OK)
    }
}

fn bursts(cpu: usize) {
    // Without a processor of its own it takes as much, somewhere.
    let _ = pagemesh_os::cpu::pin(cpu);
    loop {
        let start = Instant::now();
        while start.elapsed() < BURST {
            spin_loop();
        }
        std::thread::sleep(PERIOD.saturating_sub(start.elapsed()));
    }
}

/// It runs as long as this.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.arg("companion").stdin(Stdio::null());
        pagemesh_os::netns::die_with_parent(&mut command);
        Ok(Self(command.spawn().context("cannot start a companion")?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
