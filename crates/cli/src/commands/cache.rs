//! `pagemesh cache`: a view of a directory whose files the nodes cache for each other.

mod frames;

use crate::exit::{Exit, Trouble};
use crate::global::Global;
use crate::interrupts::Interrupts;
use crate::output;
use crate::units::parse_size;
use anyhow::{Context as _, Result};
use clap::Args;
use frames::PoolFrames;
use pagemesh::{FilePool, Mesh};
use pagemesh_files::{Counted, Identity, Meter, Mount, Options, Scope, Unmounter};
use pagemesh_wire::{ByteLen, PAGE_SIZE};
use rustix::process::{Resource, Rlimit};
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Receiver};

/// Mount a view of a directory whose files all nodes cache for each other
#[derive(Args)]
#[command(
    after_help = "Example: pagemesh cache /net/data /mnt/data --local 4G\n\
                  Run it on every node that reads DIR. Stores go to DIR at once; a file changed \
                  elsewhere is seen when it is opened next (docs/far-memory.md). Ctrl-C unmounts."
)]
pub(crate) struct Cache {
    /// The directory, on slow or remote storage
    dir: PathBuf,
    /// An empty directory where the view appears; only this user can use it
    mountpoint: PathBuf,
    /// How much memory of this host caches files at most
    #[arg(long, value_parser = parse_size, default_value = "1G", value_name = "SIZE")]
    local: u64,
    /// Refuse all changes
    #[arg(long)]
    read_only: bool,
    /// Share pages with every node that uses this name, because DIR has the same files there, with
    /// the same inode numbers and times [default: known for network file systems]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// Reads that are served at once.
const THREADS: usize = 4;

/// The fewest bytes of frames: those of some reads at once.
const LEAST: u64 = 4 << 20;

/// What happens to a view.
enum Event {
    Signal,
    Ended(io::Result<()>),
}

impl Cache {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let interrupts = Interrupts::catch()?;
        let (directory, mountpoint) = self.places()?;
        if self.local < LEAST {
            return Err(usage(format!(
                "--local is {}, and a cache has at least {}",
                ByteLen(self.local),
                ByteLen(LEAST)
            )));
        }
        let identity = match &self.name {
            Some(name) => Identity::named(name),
            None => Identity::of(&directory)
                .with_context(|| format!("looking at {}", directory.display()))?,
        };
        let mesh = connect(global)?;
        // The name exists for a moment, and another process must not guess it.
        let name = format!("cache.{:032x}", rand::random::<u128>());
        let pool = FilePool::new(&mesh, &name, self.local).context("no memory for the cache")?;
        let frames = Box::new(PoolFrames::new(pool));
        allow_files();
        // Modes of new files come from the programs that make them.
        rustix::process::umask(rustix::fs::Mode::empty());
        let options = Options {
            read_only: self.read_only,
            threads: THREADS,
        };
        let scope = identity.scope().clone();
        let mount = Mount::new(&directory, &mountpoint, frames, identity, &options)
            .map_err(|error| cannot_mount(&mountpoint, &error))?;
        let meter = mount.meter();
        let (serving, mut unmounter) = mount.split();
        let (sender, events) = mpsc::channel();
        let ended = sender.clone();
        interrupts.watch(move |_| sender.send(Event::Signal).is_ok())?;
        std::thread::Builder::new()
            .name("view".to_owned())
            .spawn(move || ended.send(Event::Ended(serving.run())))
            .context("starting a thread")?;
        self.began(global, (&directory, &mountpoint), &scope)?;
        let outcome = serve(&events, &mut unmounter, &mountpoint);
        finished(global, &meter)?;
        outcome.map(|()| Exit::OK)
    }

    /// The two directories, if they are fit.
    fn places(&self) -> Result<(PathBuf, PathBuf)> {
        let (dir, mountpoint) = (self.dir.display(), self.mountpoint.display());
        let directory = std::fs::canonicalize(&self.dir)
            .map_err(|error| usage(format!("{dir} cannot be cached: {error}; name a directory")))?;
        if !directory.is_dir() {
            return Err(usage(format!("{dir} is no directory; name one to cache")));
        }
        let place = std::fs::canonicalize(&self.mountpoint).map_err(|error| {
            usage(format!(
                "nothing can be mounted at {mountpoint}: {error}; make the directory first: \
                 mkdir -p {mountpoint}"
            ))
        })?;
        if place.starts_with(&directory) || directory.starts_with(&place) {
            return Err(usage(format!(
                "{mountpoint} and {dir} lie in each other, and the view would show itself; choose \
                 a mountpoint elsewhere"
            )));
        }
        let mut entries = std::fs::read_dir(&place)
            .map_err(|error| usage(format!("{mountpoint} is no fit mountpoint: {error}")))?;
        if entries.next().is_some() {
            return Err(usage(format!(
                "{mountpoint} is not empty, and what lies there would be hidden; choose an empty \
                 directory"
            )));
        }
        Ok((directory, place))
    }

    fn began(
        &self,
        global: &Global,
        (directory, mountpoint): (&Path, &Path),
        scope: &Scope,
    ) -> Result<()> {
        let (kind, with) = match scope {
            Scope::Source(source) => ("source", format!("all nodes that mount {source}")),
            Scope::Name(name) => ("name", format!("all nodes that use --name {name}")),
            Scope::Host(_) => ("host", "nodes on this host".to_owned()),
        };
        if let Scope::Host(system) = scope
            && !global.quiet
        {
            output::note(format_args!(
                "pagemesh: {} is on {system}, where other hosts may have other files; to share its \
                 pages with them, see --name",
                directory.display()
            ));
        }
        output::told(
            global.output,
            &format!(
                "{} at {}, cached with {with}",
                directory.display(),
                mountpoint.display()
            ),
            json!({ "directory": directory, "mountpoint": mountpoint, "local": self.local, "scope": kind }),
        )
    }
}

fn usage(why: String) -> anyhow::Error {
    Trouble::new(Exit::USAGE, why).into()
}

fn connect(global: &Global) -> Result<Mesh> {
    let mesh = match &global.socket {
        Some(socket) => Mesh::connect_to(socket),
        None => Mesh::connect(),
    };
    mesh.map_err(|error| match error {
        pagemesh::Error::NoDaemon { .. } => Trouble::new(Exit::NO_DAEMON, error.to_string()).into(),
        error => error.into(),
    })
}

/// The view has a descriptor for each file that the kernel remembers of it.
fn allow_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // If it is refused, fewer files can be remembered.
    let _ = rustix::process::setrlimit(Resource::Nofile, all);
}

fn cannot_mount(mountpoint: &Path, error: &io::Error) -> anyhow::Error {
    let place = mountpoint.display();
    let cure = if !Path::new("/dev/fuse").exists() {
        "there is no /dev/fuse; load the module (modprobe fuse), or give the container the device \
         (--device /dev/fuse --cap-add SYS_ADMIN)"
    } else if rustix::process::geteuid().is_root() {
        "a container needs the capability SYS_ADMIN for it (--cap-add SYS_ADMIN)"
    } else {
        "without root it takes fusermount3 (Debian: fuse3) and a mountpoint that is yours"
    };
    let why = format!("cannot mount at {place}: {error}; {cure}");
    Trouble::new(Exit::FAILURE, why).into()
}

/// Waits for the end: the first signal unmounts; if files are in use, the second one cuts their
/// programs off.
fn serve(events: &Receiver<Event>, unmounter: &mut Unmounter, mountpoint: &Path) -> Result<()> {
    let mut asked = false;
    for event in events {
        match event {
            Event::Ended(outcome) => return outcome.context("serving the view"),
            Event::Signal if asked => detach(mountpoint)?,
            Event::Signal => {
                asked = true;
                if let Err(error) = unmounter.unmount() {
                    let place = mountpoint.display();
                    output::note(format_args!(
                        "pagemesh: {place} is in use ({error}); end the programs that use it and \
                         then: umount {place}; or Ctrl-C again, which cuts them off"
                    ));
                }
            }
        }
    }
    Ok(())
}

fn detach(mountpoint: &Path) -> Result<()> {
    let run = |program: &str, option: &str| {
        let status = Command::new(program).arg(option).arg(mountpoint).status();
        status.is_ok_and(|status| status.success())
    };
    if run("umount", "-l") || run("fusermount3", "-uz") {
        // The kernel ends the view when its last file is closed; this process does not wait.
        return Err(Trouble::new(Exit::FAILURE, "cut off programs that used the view").into());
    }
    let place = mountpoint.display();
    let why = format!("{place} cannot be unmounted; as root: umount -l {place}");
    Err(Trouble::new(Exit::FAILURE, why).into())
}

/// Says what was read.
fn finished(global: &Global, meter: &Meter) -> Result<()> {
    let Counted {
        here,
        came,
        read,
        past,
        bytes,
    } = meter.read();
    let pages = (here + came + read).max(1);
    let share = |part: u64| 100.0 * part as f64 / pages as f64;
    let size = |pages: u64| ByteLen(pages * PAGE_SIZE as u64);
    output::told(
        global.output,
        &format!(
            "read {} from this host's cache ({:.0} %), {} from other nodes ({:.0} %), {} from the \
             directory ({:.0} %); {past} reads of changing files went past the cache",
            size(here),
            share(here),
            size(came),
            share(came),
            size(read),
            share(read),
        ),
        json!({
            "pages_here": here, "pages_from_nodes": came, "pages_from_directory": read,
            "reads_past": past, "bytes_from_directory": bytes,
        }),
    )
}
