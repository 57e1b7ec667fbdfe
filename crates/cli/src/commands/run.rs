//! `pagemesh run`: one program on the nodes of the cluster.

use super::races::{self, Races};
use crate::control::Control;
use crate::exit::Exit;
use crate::global::Global;
use crate::interrupts::Interrupts;
use crate::preload;
use crate::ranks::{self, Care, Copy, Event, RemoteCopy};
use anyhow::{Context, Result, ensure};
use clap::Args;
use pagemesh_daemon::launch::{Order, Program, socket_path};
use pagemesh_wire::local::Request;
use pagemesh_wire::peer::Member;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Run a program on the nodes of the cluster
#[derive(Args)]
#[command(
    after_help = "Ranks go round the living members in the order of their numbers. Each copy has \
                  PAGEMESH_RANK, PAGEMESH_SIZE, PAGEMESH_JOB and the PAGEMESH_SOCKET of its node, \
                  besides the environment of this command. The worst exit code is returned; \
                  Ctrl-C ends all copies."
)]
pub(crate) struct Run {
    /// How many copies [default: one on each node]
    #[arg(short, value_parser = clap::value_parser!(u32).range(1..=256))]
    n: Option<u32>,
    /// Where the copies start [default: this directory]
    #[arg(long, value_name = "DIRECTORY")]
    chdir: Option<PathBuf>,
    #[command(flatten)]
    care: Care,
    /// Let the program's System V calls be for the whole cluster (docs/sysv.md)
    #[arg(long)]
    sysv: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Variables of ours that are meant for programs: see `docs/treadmarks.md`.
const FOR_PROGRAMS: [&str; 4] = [
    "PAGEMESH_POLICY",
    "PAGEMESH_HEAP",
    "PAGEMESH_REPLICAS",
    "PAGEMESH_STATS",
];

impl Run {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let interrupts = Interrupts::catch()?;
        let mut control = super::connect(global)?;
        let members = control.alive()?;
        ensure!(
            !members.is_empty(),
            "no member is alive; look at `pagemesh status`"
        );
        let size = self.n.map_or(members.len(), |n| n as usize);
        let raced = races::known(&mut control)?;
        let (sender, events) = ranks::events();
        let job: u64 = rand::random();
        let copies = self.start(&control, &members, size, job, &sender)?;
        interrupts.watch(move |signal| sender.send(Event::Interrupted(signal)).is_ok())?;
        let exit = ranks::supervise(&copies, &events, self.care);
        // Noticed by this node; others have theirs in their logs and counters.
        let mut races = Races::default();
        match races.add(&mut control, raced) {
            Ok(()) => races.tell(),
            // The program's exit code matters more.
            Err(error) => tracing::debug!(%error, "the daemon does not tell of races"),
        }
        // Made by the first copy that needed it, if any did.
        let name = format!("job.{job}");
        let _ = control.ask(Request::Remove { name });
        exit
    }

    fn start(
        &self,
        control: &Control,
        members: &[Member],
        size: usize,
        job: u64,
        events: &ranks::Events,
    ) -> Result<Vec<Box<dyn Copy>>> {
        let orders = socket_path(control.path());
        let mut copies: Vec<Box<dyn Copy>> = Vec::new();
        for (rank, member) in members.iter().cycle().take(size).enumerate() {
            let order = Order {
                member: member.address,
                program: self.program(rank, size, job)?,
            };
            let copy = RemoteCopy::start(rank, &orders, &order, &member.name, events)?;
            copies.push(Box::new(copy));
        }
        Ok(copies)
    }

    fn program(&self, rank: usize, size: usize, job: u64) -> Result<Program> {
        let directory = match &self.chdir {
            Some(directory) => directory.clone(),
            None => std::env::current_dir().context("finding this directory")?,
        };
        // Ours are not theirs: a copy must find its own daemon.
        let theirs = |key: &OsStr| {
            let ours = key.as_bytes().starts_with(b"PAGEMESH_");
            !ours || FOR_PROGRAMS.iter().any(|name| *name == key)
        };
        let mut environment: Vec<(Vec<u8>, Vec<u8>)> = std::env::vars_os()
            .filter(|(key, _)| theirs(key))
            .map(|(key, value)| (bytes(&key), bytes(&value)))
            .collect();
        for (key, value) in [
            ("PAGEMESH_RANK", rank as u64),
            ("PAGEMESH_SIZE", size as u64),
            ("PAGEMESH_JOB", job),
        ] {
            environment.push((key.into(), value.to_string().into_bytes()));
        }
        if self.sysv {
            let value = preload::preload(preload::SYSV, &self.command[0])?;
            environment.retain(|(key, _)| key != preload::VARIABLE.as_bytes());
            environment.push((preload::VARIABLE.into(), bytes(&value)));
        }
        Ok(Program {
            command: self.command.iter().map(|word| bytes(word)).collect(),
            environment,
            directory: bytes(directory.as_os_str()),
        })
    }
}

fn bytes(text: &OsStr) -> Vec<u8> {
    text.as_bytes().to_vec()
}
