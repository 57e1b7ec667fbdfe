//! The peers' programs and packages: where they are, and how they come there.

use super::super::peers::install as debian;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Debian's packages.
const PACKAGES: [&str; 6] = [
    "gcc",
    "libc6-dev",
    "iproute2",
    "mosquitto",
    "python3-venv",
    "redis-server",
];

/// Packages of the Python Package Index.
const WHEELS: [&str; 5] = ["numpy", "paho-mqtt", "lcm", "eclipse-zenoh", "cyclonedds"];

/// The virtual environment that is used if none is named.
pub(super) fn home() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache =
        cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    let cache =
        cache.context("neither XDG_CACHE_HOME nor HOME is set; name a place with --venv")?;
    Ok(cache.join("pagemesh/boards"))
}

/// Installs every program and package.
///
/// # Errors
/// Without apt-get, Python or a mirror.
pub(super) fn all(venv: &Path) -> Result<()> {
    debian::packages(&PACKAGES)?;
    if !python(venv).is_file() {
        run(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
    }
    let mut pip = Command::new(python(venv));
    run(pip.args(["-m", "pip", "install", "--quiet"]).args(WHEELS))
}

/// The Python of a virtual environment.
pub(super) fn python(venv: &Path) -> PathBuf {
    venv.join("bin/python3")
}

fn run(command: &mut Command) -> Result<()> {
    command.stdin(Stdio::null()).stdout(std::io::stderr());
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status();
    let status = status.with_context(|| format!("cannot start {name}"))?;
    ensure!(status.success(), "{name} ended with {status}: see above");
    Ok(())
}
