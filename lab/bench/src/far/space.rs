//! Swap spaces beside private memory, each used for as long as it is measured.

use super::super::testbed::Testbed;
use super::nbd::Nbd;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kind of swap space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Space {
    /// A file on this host's disk.
    File,
    /// Memory of the cluster, by `pagemesh swap`.
    Cluster,
    /// Compressed memory of this host.
    Zram,
    /// Memory of another host, by NBD over TCP.
    Nbd,
}

/// A swap space that is used; [`Used::off`] ends it.
pub(super) enum Used {
    File(PathBuf),
    /// The command that ends it.
    Cluster(Box<Command>),
    /// The number of the device.
    Zram(String),
    Nbd(Box<Nbd>),
}

/// Makes zram devices, and removes them.
const ZRAM: &str = "/sys/class/zram-control";

impl Space {
    pub(super) const ALL: [Self; 4] = [Self::File, Self::Cluster, Self::Zram, Self::Nbd];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::File => "swap_file",
            Self::Cluster => "pagemesh_swap",
            Self::Zram => "zram",
            Self::Nbd => "nbd_tcp",
        }
    }

    /// Uses it once, and ends that.
    pub(super) fn try_out(self, testbed: &Testbed, size: u32) -> Result<()> {
        self.on(testbed, size)?.off()
    }

    /// Uses it, with room for so many MiB and a quarter.
    pub(super) fn on(self, testbed: &Testbed, size: u32) -> Result<Used> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "swap space is the host's: run this as root"
        );
        let size = format!("{}M", size + size / 4);
        match self {
            Self::File => {
                let name = format!("pagemesh-far-{}.swap", std::process::id());
                let path = Path::new("/var/tmp").join(name);
                run(
                    "fallocate",
                    ["-l".as_ref(), size.as_ref(), path.as_os_str()],
                )?;
                run("chmod", ["600".as_ref(), path.as_os_str()])?;
                let used = swap_on(&path);
                if used.is_err() {
                    let _ = std::fs::remove_file(&path);
                }
                used.map(|()| Used::File(path))
            }
            Self::Cluster => {
                let state = testbed.directory().join("swap");
                let order = |word: &str| {
                    let program = testbed.program().to_string_lossy().into_owned();
                    let mut command = testbed.command(0, &program);
                    command.args(["swap", word, "-q", "--state"]).arg(&state);
                    command
                };
                let mut on = order("on");
                done(on.args(["--size", &size, "--local", "8M"]))?;
                Ok(Used::Cluster(Box::new(order("off"))))
            }
            Self::Zram => {
                let hot = Path::new(ZRAM).join("hot_add");
                let number = std::fs::read_to_string(hot)
                    .context("this kernel has no zram, or it is not loaded (modprobe zram)")?;
                let number = number.trim().to_owned();
                let disk = format!("/sys/block/zram{number}/disksize");
                std::fs::write(&disk, &size).with_context(|| disk.clone())?;
                let used = swap_on(Path::new(&format!("/dev/zram{number}")));
                if used.is_err() {
                    let _ = std::fs::write(Path::new(ZRAM).join("hot_remove"), &number);
                }
                used.map(|()| Used::Zram(number))
            }
            Self::Nbd => {
                let nbd = Nbd::start(testbed, &size)?;
                swap_on(nbd.device())?;
                Ok(Used::Nbd(Box::new(nbd)))
            }
        }
    }
}

impl Used {
    /// Ends the use. No process may have anything swapped out there.
    pub(super) fn off(self) -> Result<()> {
        match self {
            Self::File(path) => {
                run("swapoff", [path.as_os_str()])?;
                std::fs::remove_file(&path).with_context(|| path.display().to_string())
            }
            Self::Cluster(mut off) => done(&mut off).map(drop),
            Self::Nbd(nbd) => run("swapoff", [nbd.device().as_os_str()]),
            Self::Zram(number) => {
                run("swapoff", [format!("/dev/zram{number}").as_ref()])?;
                let remove = Path::new(ZRAM).join("hot_remove");
                std::fs::write(&remove, number).with_context(|| remove.display().to_string())
            }
        }
    }
}

fn swap_on(path: &Path) -> Result<()> {
    run("mkswap", [path.as_os_str()])?;
    run("swapon", [path.as_os_str()])
}

pub(super) fn run<const N: usize>(program: &str, arguments: [&OsStr; N]) -> Result<()> {
    done(administrator(program).args(arguments)).map(drop)
}

/// A program for administrators: a user's path may lack their places.
pub(super) fn administrator(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new(program);
    command.env("PATH", path);
    command
}

/// Lets it run to its end, and returns what it printed.
pub(super) fn done(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("starting {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
