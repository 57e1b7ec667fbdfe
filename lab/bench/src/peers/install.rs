//! Programs of peers: found, or installed when asked.

use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// Debian's packages of all peers, and of the programs that start them on a node.
const PACKAGES: [&str; 8] = [
    "gcc",
    "libc6-dev",
    "libmpich-dev",
    "libopenmpi-dev",
    "mpich",
    "openmpi-bin",
    "redis-server",
    "util-linux",
];

/// Installs every package that a peer needs.
///
/// # Errors
/// Without apt-get, without the right to install, without a mirror.
pub(super) fn all() -> Result<()> {
    packages(&PACKAGES)
}

/// Installs these packages of Debian.
///
/// # Errors
/// As [`all`].
pub(crate) fn packages(packages: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        // Standard output is for results.
        .stdout(std::io::stderr())
        .status()
        .context("no apt-get here; install the peers yourself, without --install")?;
    ensure!(
        status.success(),
        "apt-get could not install {}: see above; as root, after `apt-get update`, it may",
        packages.join(", ")
    );
    Ok(())
}

/// Fails if a program is missing that a peer needs.
pub(crate) fn need(programs: &[&str], packages: &str) -> Result<()> {
    for program in programs {
        if !found(program) {
            bail!("no {program} here; --install would install Debian's {packages}");
        }
    }
    Ok(())
}

/// Fails, with its cure, if a Python cannot execute this import.
pub(crate) fn need_import(python: &Path, import: &str, cure: &str) -> Result<()> {
    let mut command = Command::new(python);
    command.args(["-c", import]);
    let output = command.stdin(Stdio::null()).output();
    let Ok(output) = output else {
        bail!("no {}; {cure}", python.display());
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or_default();
    ensure!(
        output.status.success(),
        "{} cannot `{import}` ({last}); {cure}",
        python.display()
    );
    Ok(())
}

pub(crate) fn found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_cure() {
        need(&["sh"], "dash").unwrap();
        let why = need(&["sh", "no-such-mpicc"], "mpich")
            .unwrap_err()
            .to_string();
        assert!(
            why.contains("no no-such-mpicc") && why.contains("Debian's mpich"),
            "{why}"
        );
    }
    #[test]
    fn a_missing_module_is_named_with_its_cure() {
        let why = need_import(Path::new("/no/python3"), "import numpy", "install it").unwrap_err();
        let why = why.to_string();
        assert!(
            why.contains("/no/python3") && why.contains("install it"),
            "{why}"
        );
    }
}
