//! `pagemesh swap on`.

use super::device;
use super::host::{self, Process};
use super::state::{Places, State};
use crate::exit::{Exit, Trouble};
use crate::far;
use crate::global::Global;
use crate::output;
use crate::units::{parse_size, size};
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the server may take to end after the file system is unmounted.
const END: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(super) struct On {
    /// How large, for example 16G
    #[arg(long, value_parser = parse_size)]
    size: u64,
    /// How much of it this host keeps in its memory at most. What lies there is not swapped out:
    /// it only smooths the way to other hosts
    #[arg(long, value_parser = parse_size, default_value = "64M")]
    local: u64,
    /// Keep each page with two hosts, and on this host's disk only if there are no two
    #[arg(long)]
    copies: bool,
    /// Swap space with a higher priority is used first [default: the kernel's]
    #[arg(long, value_parser = clap::value_parser!(i16).range(0..=32767))]
    priority: Option<i16>,
}

/// The steps of `swap on` that are done. If a later step fails, they are undone in reverse order.
struct Steps<'a> {
    places: Places<'a>,
    server: Option<Child>,
    device: Option<PathBuf>,
}

impl On {
    pub(super) fn run(self, global: &Global, directory: &Path) -> Result<Exit> {
        device::check()?;
        let places = Places(directory);
        if let Some(state) = places.read()? {
            let why = format!(
                "there is a swap device already, {}: end it by `pagemesh swap off`, or give the \
                 second one a --state of its own",
                state.device.display()
            );
            return Err(Trouble::new(Exit::FAILURE, why).into());
        }
        ensure!(
            !places.file().exists(),
            "an earlier `pagemesh swap on` did not come to its end: losetup --detach-all if it \
             left a loop device, then umount {}",
            places.mount().display()
        );
        far::policy(Some(self.local))?;
        ensure!(self.size >= 1 << 20, "a swap device has at least 1M");
        places.make()?;
        let mut steps = Steps {
            places,
            server: None,
            device: None,
        };
        match self.take(global, &mut steps) {
            Ok(state) => {
                let size = size(state.size);
                let device = state.device.display();
                output::told(
                    global.output,
                    &format!(
                        "{size} of memory of the cluster are swap space of this host: {device}"
                    ),
                    json!({ "device": state.device, "size": state.size, "server": state.server.pid }),
                )?;
                Ok(Exit::OK)
            }
            Err(error) => {
                steps.take_back();
                Err(error)
            }
        }
    }

    fn take(&self, global: &Global, steps: &mut Steps<'_>) -> Result<State> {
        let server = self.start(global, steps)?;
        let device = device::attach(&steps.places.file())?;
        steps.device = Some(device.clone());
        let state = State {
            device,
            size: self.size,
            local: Some(self.local),
            server,
            socket: global.socket.clone(),
        };
        steps.places.write(&state)?;
        device::swap_on(&state.device, self.priority)?;
        ensure!(
            host::swap_space(&state.device).is_some(),
            "{} is not in /proc/swaps after swapon",
            state.device.display()
        );
        Ok(state)
    }

    /// Starts the process that serves the device, and waits until the file is there.
    fn start(&self, global: &Global, steps: &mut Steps<'_>) -> Result<Process> {
        let log = steps.places.log();
        let sink = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.args(global.arguments());
        command.args(["swap", "serve", "--size", &self.size.to_string()]);
        command.args(["--local", &self.local.to_string()]);
        command.args(self.copies.then_some("--copies"));
        command.arg("--state").arg(steps.places.0);
        // A directory that is to be unmounted must not be in use.
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(sink);
        let mut server = command.spawn().context("starting the server")?;
        let pid = server.id();
        let out = server.stdout.take();
        steps.server = Some(server);
        let mut said = String::new();
        BufReader::new(out.context("no way to hear the server")?).read_line(&mut said)?;
        let ready = serde_json::from_str::<Value>(&said).is_ok_and(|said| said["ready"] == pid);
        if !ready {
            let why = std::fs::read_to_string(&log).unwrap_or_default();
            bail!("the swap device cannot be served: {}", why.trim());
        }
        Process::of(pid).context("the server has ended")
    }
}

impl Steps<'_> {
    fn take_back(&mut self) {
        if let Some(device) = self.device.take() {
            if host::swap_space(&device).is_some() {
                // Its pages must not be lost.
                let _ = device::swap_off(&device);
            }
            let _ = device::detach(&device);
        }
        if let Some(mut server) = self.server.take() {
            let _ = device::unmount(&self.places.mount());
            let asked = Instant::now();
            while matches!(server.try_wait(), Ok(None)) {
                if asked.elapsed() > END {
                    let _ = server.kill();
                    let _ = server.wait();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.places.remove();
    }
}
