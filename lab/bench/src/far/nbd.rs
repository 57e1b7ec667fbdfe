//! Memory of another host as a block device, by NBD over TCP: nbdkit serves it there. A kernel may
//! have no NBD client, so nbdfuse makes a file of it here, and the kernel a loop device of that, as
//! `pagemesh swap` does.

use super::super::peers::install;
use super::super::testbed::Testbed;
use super::space::{administrator, done, run};
use anyhow::{Context, Result, bail, ensure};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PORT: u16 = 7997;

/// How long each of them may take to be ready.
const PATIENCE: Duration = Duration::from_secs(10);

/// A device, which ends with this value; it must not be in use then.
pub(super) struct Nbd {
    device: PathBuf,
    // In the order in which they end.
    _file: File,
    _server: Process,
}

impl Nbd {
    /// Memory of node 1, so many bytes in the words of both programs, for node 0.
    pub(super) fn start(testbed: &Testbed, size: &str) -> Result<Self> {
        for (program, package) in [("nbdkit", "nbdkit"), ("nbdfuse", "libnbd-bin")] {
            let found = install::found(program);
            ensure!(found, "no {program} here: apt-get install {package}");
        }
        let mut address = testbed.address(1);
        address.set_port(PORT);
        let server = serve(testbed, address, size)?;
        let file = File::mount(testbed, address)?;
        let mut attach = administrator("losetup");
        attach.args(["--show", "--find", "--direct-io=on"]);
        let device = done(attach.arg(&file.path))?;
        Ok(Self {
            device: device.into(),
            _file: file,
            _server: server,
        })
    }

    pub(super) fn device(&self) -> &Path {
        &self.device
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        let _ = run("losetup", ["--detach".as_ref(), self.device.as_os_str()]);
    }
}

fn serve(testbed: &Testbed, at: SocketAddr, size: &str) -> Result<Process> {
    // It writes this when it is ready.
    let ready = testbed.directory().join("nbdkit.pid");
    let _ = std::fs::remove_file(&ready);
    let mut command = testbed.command(1, "nbdkit");
    command
        .args(["--foreground", "--ipaddr", &at.ip().to_string()])
        .args(["--port", &at.port().to_string(), "--pidfile"])
        .arg(&ready)
        .args(["memory", &format!("size={size}")]);
    let mut server = Process::start(command)?;
    server.wait_until(|| ready.exists())?;
    Ok(server)
}

/// The file that stands for the memory.
struct File {
    path: PathBuf,
    client: Process,
}

impl File {
    fn mount(testbed: &Testbed, server: SocketAddr) -> Result<Self> {
        let directory = testbed.directory().join("nbd");
        std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let path = directory.join("memory");
        let mut command = testbed.command(0, "nbdfuse");
        command.arg(&path).arg(format!("nbd://{server}"));
        let mut file = Self {
            client: Process::start(command)?,
            path,
        };
        let path = file.path.clone();
        let is_there = || std::fs::metadata(&path).is_ok_and(|file| file.len() > 0);
        file.client.wait_until(is_there)?;
        Ok(file)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(directory) = self.path.parent() {
            let _ = run("umount", [directory.as_os_str()]);
        }
    }
}

/// A program of another project; killed when this goes.
struct Process {
    child: Child,
    name: String,
}

impl Process {
    fn start(mut command: Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        pagemesh_os::netns::die_with_parent(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, name })
    }

    fn wait_until(&mut self, ready: impl Fn() -> bool) -> Result<()> {
        let name = &self.name;
        let end = Instant::now() + PATIENCE;
        while !ready() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{name} ended: {status}");
            }
            ensure!(Instant::now() < end, "{name} is not ready in {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
