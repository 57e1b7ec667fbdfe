//! `pagemesh export`: memory of the cluster as a block device, by the NBD protocol.

mod memory;
mod server;

use crate::exit::{Exit, Trouble};
use crate::far;
use crate::global::Global;
use crate::interrupts::Interrupts;
use crate::output;
use crate::units::parse_size;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use memory::Memory;
use pagemesh::{Access, Mesh, Segment};
use pagemesh_nbd::Export as Device;
use pagemesh_wire::ByteLen;
use serde_json::json;
use server::Server;
use std::path::PathBuf;
use std::sync::mpsc;

/// Offer memory of the cluster as a block device, by the NBD protocol
#[derive(Args)]
#[command(
    after_help = "Example: pagemesh export --size 16G --listen /run/far.sock\n         \
                  nbdcopy disk.img 'nbd+unix:///far?socket=/run/far.sock'\n\
                  The contents are memory: they go with this command. Ctrl-C ends it."
)]
pub(crate) struct Export {
    /// How large, for example 64M or 16GiB
    #[arg(long, value_parser = parse_size, required_unless_present = "segment")]
    size: Option<u64>,
    /// How much of it this host keeps in its memory at most, for example 2G; the rest is in idle
    /// memory of other hosts and on this host's disk [default: what the daemon's memory allows]
    #[arg(long, value_parser = parse_size, conflicts_with = "segment")]
    local: Option<u64>,
    /// An existing segment, instead of new memory
    #[arg(long, value_name = "NAME", conflicts_with = "size")]
    segment: Option<String>,
    /// Where clients connect [default: pagemesh-NAME.sock in XDG_RUNTIME_DIR, for root /run]
    #[arg(long, value_name = "PATH")]
    listen: Option<PathBuf>,
    /// The name by which clients ask for it
    #[arg(long, default_value = "far", value_parser = parse_name)]
    name: String,
    /// Refuse stores
    #[arg(long)]
    read_only: bool,
}

impl Export {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let interrupts = Interrupts::catch()?;
        let path = self.place()?;
        let mesh = far::connect(global)?;
        let segment = self.segment(&mesh)?;
        let device = Device {
            name: self.name,
            size: segment.size(),
            read_only: self.read_only,
        };
        let (sender, ends) = mpsc::channel();
        interrupts.watch(move |signal| sender.send(signal).is_ok())?;
        let mapping = segment.map().context("mapping the memory")?;
        let memory = match self.segment {
            None => Memory::new(mapping),
            Some(_) => Memory::shared(mapping),
        };
        let server = Server::start(&path, device, memory)?;
        let uri = uri(server.name(), &path);
        output::told(
            global.output,
            &format!("{} as a block device: {uri}", ByteLen(segment.size())),
            json!({ "name": server.name(), "size": segment.size(), "socket": path, "uri": uri }),
        )?;
        // Nothing but a signal ends it.
        let _ = ends.recv();
        let cut = server.stop();
        if cut > 0 && !global.quiet {
            output::note(format_args!("pagemesh: {cut} clients were still connected"));
        }
        Ok(Exit::OK)
    }

    fn segment(&self, mesh: &Mesh) -> Result<Segment> {
        let Some(name) = &self.segment else {
            let size = self.size.unwrap_or_default();
            ensure!(size > 0, "a block device has at least one byte");
            return far::memory(mesh, "export", size, self.local);
        };
        let access = if self.read_only {
            Access::ReadOnly
        } else {
            Access::Writable
        };
        let segment = mesh.open(name, access);
        segment.with_context(|| format!("opening segment {name}"))
    }

    fn place(&self) -> Result<PathBuf> {
        if let Some(path) = &self.listen {
            return std::path::absolute(path).context("finding this directory");
        }
        let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(directory) => PathBuf::from(directory),
            None if rustix::process::geteuid().is_root() => PathBuf::from("/run"),
            None => {
                let why = "XDG_RUNTIME_DIR is not set; say with --listen where clients connect";
                return Err(Trouble::new(Exit::USAGE, why).into());
            }
        };
        Ok(directory.join(format!("pagemesh-{}.sock", self.name)))
    }
}

/// Names that need no quoting in an address.
fn parse_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !text.is_empty() && text.len() <= 64 && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("a name has 1 to 64 letters, digits, '-', '_' and '.'".to_owned())
    }
}

/// The address for clients, by the specification of NBD URIs.
fn uri(name: &str, path: &std::path::Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let mut uri = format!("nbd+unix:///{name}?socket=");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(char::from(*byte));
            }
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn addresses_are_quoted() {
        assert_eq!(
            uri("far", Path::new("/run/a b&c.sock")),
            "nbd+unix:///far?socket=/run/a%20b%26c.sock"
        );
        assert!(parse_name("a/b").is_err());
    }
}
