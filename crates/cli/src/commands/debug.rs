//! `pagemesh debug`: a daemon's records of itself.

use crate::control::unexpected;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use pagemesh_wire::local::{Reply, Request};
use serde_json::json;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub(crate) enum Debug {
    /// Save what the flight recorder remembers of this node
    Dump(Dump),
}

impl Debug {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        match self {
            Self::Dump(command) => command.run(global),
        }
    }
}

/// Save what the flight recorder remembers of this node
#[derive(Args)]
#[command(
    after_help = "The file has the last inputs of the node and its state before them: names, \
                  addresses and users, but no contents of memory. `cargo xtask replay FILE`, in \
                  the sources of the same build, shows what happened."
)]
pub(crate) struct Dump {
    /// Where to [default: pagemesh-NODE.dump]
    file: Option<PathBuf>,
    /// Replace a file that is there already
    #[arg(short, long)]
    force: bool,
}

impl Dump {
    fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        let path = self
            .file
            .unwrap_or_else(|| format!("pagemesh-{}.dump", control.node).into());
        let (reply, fds) = control.exchange(Request::Dump)?;
        let Reply::Dumped { length } = reply else {
            return unexpected(&reply);
        };
        let Some(fd) = fds.into_iter().next() else {
            bail!("the daemon sent no file");
        };
        let save = || -> io::Result<u64> {
            let mut target = open(&path, self.force)?;
            io::copy(&mut File::from(fd), &mut target)
        };
        let copied = save().with_context(|| cannot(&path))?;
        if copied != length.0 {
            bail!("{}: {copied} of {} bytes", cannot(&path), length.0);
        }
        output::told(
            global.output,
            &format!("{} has the last doings of {}", path.display(), control.node),
            json!({ "file": path, "bytes": copied, "node": control.node.0 }),
        )?;
        Ok(Exit::OK)
    }
}

/// It tells of all programs of the node: only for its owner.
fn open(path: &Path, force: bool) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).mode(0o600);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    options.open(path)
}

fn cannot(path: &Path) -> String {
    format!(
        "cannot write {}; name another file, or replace it with --force",
        path.display()
    )
}
