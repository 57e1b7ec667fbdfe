//! The thread that starts daemons.
//!
//! A child's death signal comes when the *thread* that started it ends, so one thread must live as
//! long as the sandbox does, whichever thread calls it.

use anyhow::{Context, Result};
use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};

type Order = (Command, Sender<io::Result<Child>>);

pub(super) struct Spawner(Sender<Order>);

impl Spawner {
    pub(super) fn start() -> Result<Self> {
        let (sender, orders) = channel::<Order>();
        std::thread::Builder::new()
            .name("spawner".to_owned())
            .spawn(move || {
                for (mut command, answer) in orders {
                    let _ = answer.send(command.spawn());
                }
            })
            .context("starting a thread")?;
        Ok(Self(sender))
    }

    pub(super) fn spawn(&self, command: Command) -> Result<Child> {
        let (answer, child) = channel();
        let program = command.get_program().to_owned();
        self.0
            .send((command, answer))
            .context("the spawner ended")?;
        child
            .recv()
            .context("the spawner ended")?
            .with_context(|| format!("starting {}", program.to_string_lossy()))
    }
}
