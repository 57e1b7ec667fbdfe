//! The programs of util-linux that make a swap device of a file, and what they need.

use crate::exit::{Exit, Trouble};
use anyhow::{Context as _, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where programs for administrators lie: a user's path may lack them.
const PLACES: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";

/// Fails if this host cannot make a swap device, with the cure.
///
/// # Errors
/// For the first thing that is missing.
pub(super) fn check() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let why = "swap space is the host's: run this command as root (sudo)";
        return Err(Trouble::new(Exit::NO_PERMISSION, why).into());
    }
    for (path, cure) in [
        (
            "/dev/fuse",
            "this kernel has no FUSE: modprobe fuse; in a container, start it with --device /dev/fuse",
        ),
        (
            "/dev/loop-control",
            "this kernel has no loop devices: modprobe loop; in a container, start it with \
             --device /dev/loop-control",
        ),
        (
            "/proc/swaps",
            "this kernel has no swap space (CONFIG_SWAP): use another kernel, or `pagemesh borrow`",
        ),
    ] {
        if !Path::new(path).exists() {
            return Err(Trouble::new(Exit::FAILURE, cure).into());
        }
    }
    for program in ["losetup", "mkswap", "swapon", "swapoff", "umount"] {
        find(program)?;
    }
    Ok(())
}

fn find(program: &str) -> Result<PathBuf> {
    let mut places = std::env::split_paths(PLACES);
    let found = places.find_map(|place| {
        let path = place.join(program);
        path.exists().then_some(path)
    });
    found.with_context(|| format!("there is no {program}: apt install util-linux mount"))
}

/// Runs one of them, and returns what it printed.
fn run<I: AsRef<OsStr>>(program: &str, arguments: &[I]) -> Result<String> {
    let mut command = Command::new(find(program)?);
    command.args(arguments).stdin(Stdio::null());
    let output = command
        .output()
        .with_context(|| format!("starting {program}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!("{program} failed ({}): {}", output.status, said.trim());
}

/// A loop device of the file.
pub(super) fn attach(file: &Path) -> Result<PathBuf> {
    // Direct: without a second copy in the page cache.
    let options = ["--show", "--find", "--direct-io=on"].map(OsStr::new);
    let arguments: Vec<_> = options.into_iter().chain([file.as_os_str()]).collect();
    run("losetup", &arguments).map(PathBuf::from)
}

/// Removes a loop device.
pub(super) fn detach(device: &Path) -> Result<()> {
    run("losetup", &[OsStr::new("--detach"), device.as_os_str()]).map(drop)
}

/// Makes the device swap space, and uses it.
pub(super) fn swap_on(device: &Path, priority: Option<i16>) -> Result<()> {
    run("mkswap", &[device])?;
    let mut arguments = Vec::new();
    if let Some(priority) = priority {
        arguments = vec!["--priority".to_owned(), priority.to_string()];
    }
    arguments.push(device.to_string_lossy().into_owned());
    run("swapon", &arguments).map(drop)
}

/// Brings back what is swapped out there, and uses the device no more.
pub(super) fn swap_off(device: &Path) -> Result<()> {
    run("swapoff", &[device]).map(drop)
}

/// Unmounts a file system.
pub(super) fn unmount(place: &Path) -> Result<()> {
    run("umount", &[place]).map(drop)
}
