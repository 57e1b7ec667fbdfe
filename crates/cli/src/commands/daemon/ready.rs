//! The one line a daemon prints: that it is a member, and how others join it.

use crate::control::Control;
use crate::output;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often to look.
const INTERVAL: Duration = Duration::from_millis(20);

/// Asks this very daemon, as any process may, until it is a member; then says so
/// on standard output. In a thread of its own, while the daemon runs in ours.
pub(super) fn announce(socket: PathBuf) -> Result<()> {
    std::thread::Builder::new()
        .name("announce".to_owned())
        .spawn(move || {
            let line = loop {
                if let Some(line) = line(&socket) {
                    break line;
                }
                std::thread::sleep(INTERVAL);
            };
            // Nobody may be listening; the daemon works all the same.
            let _ = output::lines([line]);
        })
        .context("starting a thread")?;
    Ok(())
}

fn line(socket: &Path) -> Option<String> {
    let mut control = Control::connect(socket).ok()?;
    let status = control.status().ok()?;
    let alive = control.alive().ok()?;
    let me = alive.iter().find(|member| member.id == status.node)?;
    Some(format!(
        "ready: {} ({}) at {}, {} member(s), socket {}; join with: pagemesh daemon --join {}",
        me.id,
        me.name,
        me.address,
        alive.len(),
        socket.display(),
        me.address
    ))
}
