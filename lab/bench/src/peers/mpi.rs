//! An MPI, two ranks, each on a node: compiled and started on demand.

use super::super::cpu_slots::CpuSlots;
use super::super::testbed::Testbed;
use super::{Peer, Times, install};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program that is measured.
const PROGRAM: &str = include_str!("mpi.c");

/// One run may take so long, in seconds.
const PATIENCE: &str = "60";

/// The device of a node.
const DEVICE: &str = "mesh0";

/// Programs needed to start any MPI.
const TOOLS: [&str; 6] = [
    "nsenter", "unshare", "taskset", "hostname", "mount", "timeout",
];

pub(super) struct Mpi {
    kind: Kind,
    launcher: PathBuf,
    program: PathBuf,
}

/// The MPI and its transport. None may use memory that both ranks share: they stand for two hosts.
/// All of them spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `ch4:ucx`, as Debian builds it; UCX over TCP.
    Mpich,
    /// UCX over TCP.
    OpenMpiUcx,
    /// Open MPI's own TCP transport.
    OpenMpiTcp,
}

impl Kind {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "mpich" => Self::Mpich,
            "openmpi_ucx" => Self::OpenMpiUcx,
            "openmpi_tcp" => Self::OpenMpiTcp,
            _ => return None,
        })
    }

    fn compiler(self) -> &'static str {
        match self {
            Self::Mpich => "mpicc.mpich",
            Self::OpenMpiUcx | Self::OpenMpiTcp => "mpicc.openmpi",
        }
    }

    fn starter(self) -> &'static str {
        match self {
            Self::Mpich => "mpiexec.mpich",
            Self::OpenMpiUcx | Self::OpenMpiTcp => "mpirun.openmpi",
        }
    }

    fn packages(self) -> &'static str {
        match self {
            Self::Mpich => "mpich and libmpich-dev",
            Self::OpenMpiUcx | Self::OpenMpiTcp => "openmpi-bin and libopenmpi-dev",
        }
    }

    /// The options that choose its transport.
    fn transport(self) -> &'static [&'static str] {
        match self {
            Self::Mpich => &[],
            Self::OpenMpiUcx => &[
                "--mca",
                "pml",
                "ucx",
                "--mca",
                "osc",
                "ucx",
                // It refuses devices other than InfiniBand unless told otherwise.
                "--mca",
                "pml_ucx_tls",
                "any",
                "--mca",
                "pml_ucx_devices",
                "any",
            ],
            Self::OpenMpiTcp => &[
                "--mca",
                "pml",
                "ob1",
                "--mca",
                "btl",
                "tcp,self",
                "--mca",
                "btl_tcp_if_include",
                DEVICE,
                "--mca",
                "osc",
                "pt2pt",
            ],
        }
    }
}

impl Mpi {
    /// Compiles the program with that MPI's own compiler, and writes down how a
    /// process is started on a node.
    pub(super) fn prepare(name: &str, testbed: &Testbed, cpu_slots: CpuSlots) -> Result<Self> {
        let kind = Kind::named(name).with_context(|| format!("no MPI is called {name}"))?;
        install::need(&[kind.compiler(), kind.starter()], kind.packages())?;
        install::need(&TOOLS, "util-linux, coreutils and hostname")?;
        ensure!(
            testbed.isolated(),
            "nodes have no namespaces of their own here, so that two hosts cannot be feigned"
        );
        let program = compile(kind, name, testbed.directory())?;
        let launcher = testbed.directory().join(format!("launch-{name}"));
        fs::write(&launcher, script(testbed, cpu_slots)).context("cannot write a script")?;
        fs::set_permissions(&launcher, fs::Permissions::from_mode(0o700))?;
        Ok(Self {
            kind,
            launcher,
            program,
        })
    }

    /// The command that starts both ranks, itself on node 0.
    fn command(&self, testbed: &Testbed) -> Command {
        let [one, two] = [0, 1].map(|node| testbed.address(node).ip().to_string());
        let mut command = testbed.command(0, "timeout");
        command.args(["--kill-after=5", PATIENCE]);
        // Through the launcher too, so that it believes to be on a host of its own.
        command
            .arg(&self.launcher)
            .arg(&one)
            .arg(self.kind.starter());
        match self.kind {
            Kind::Mpich => command
                .args(["-launcher", "ssh", "-launcher-exec"])
                .arg(&self.launcher)
                .args(["-iface", DEVICE, "-hosts", &format!("{one},{two}")])
                .env("MPIR_CVAR_NOLOCAL", "1"),
            Kind::OpenMpiUcx | Kind::OpenMpiTcp => command
                .args(["--allow-run-as-root", "--bind-to", "none"])
                .args(["--mca", "plm", "rsh", "--mca", "plm_rsh_agent"])
                .arg(&self.launcher)
                .args(["--mca", "oob_tcp_if_include", DEVICE])
                .args(["--mca", "mpi_yield_when_idle", "0"])
                .args(self.kind.transport())
                .args(["-x", "UCX_TLS", "-x", "UCX_NET_DEVICES"])
                .args(["-host", &format!("{one}:1,{two}:1")]),
        };
        command
            .env("UCX_TLS", "tcp,self")
            .env("UCX_NET_DEVICES", DEVICE)
            .args(["-n", "2"])
            .arg(&self.program);
        command
    }
}

impl Peer for Mpi {
    fn measure(&mut self, testbed: &mut Testbed, count: u32) -> Result<Times> {
        let mut command = self.command(testbed);
        command.arg(count.to_string()).stdin(Stdio::null());
        let output = command.output().context("cannot start an MPI")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let last: Vec<&str> = said.lines().rev().take(5).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            bail!(
                "{} ended with {}: {}",
                self.kind.starter(),
                output.status,
                last.join("; ")
            );
        }
        read(&String::from_utf8_lossy(&output.stdout))
    }
}

fn compile(kind: Kind, name: &str, directory: &Path) -> Result<PathBuf> {
    let source = directory.join(format!("{name}.c"));
    let program = directory.join(name);
    fs::write(&source, PROGRAM).context("cannot write a program")?;
    let mut compiler = Command::new(kind.compiler());
    let output = compiler
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(&source)
        .output()
        .with_context(|| format!("cannot start {}", kind.compiler()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{}: {}",
        kind.compiler(),
        said.trim()
    );
    Ok(program)
}

/// Lines of a name and numbers; other lines are the MPI's own.
fn read(text: &str) -> Result<Times> {
    let mut times = Times::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Ok(numbers)) = (words.next(), words.map(str::parse).collect()) else {
            continue;
        };
        times.push((name.to_owned(), numbers));
    }
    ensure!(!times.is_empty(), "the MPI's program said nothing");
    Ok(times)
}

/// The script that an MPI starts in place of `ssh`: a node for a host. The node has a name of its
/// own, and sees its own devices in `/sys`, where UCX looks for them.
fn script(testbed: &Testbed, cpu_slots: CpuSlots) -> String {
    let mut nodes = String::new();
    for node in 0..testbed.size() {
        let (address, daemon) = (testbed.address(node).ip(), testbed.daemon(node));
        let processor = cpu_slots.processor(node);
        let pin = processor.map_or_else(String::new, |cpu| format!("taskset -c {cpu}"));
        nodes += &format!("{address}) name=node{node} daemon={daemon} pin='{pin}';;\n");
    }
    format!(
        r#"#!/bin/sh
# [options] ADDRESS COMMAND...
while [ "${{1#-}}" != "$1" ]; do shift; done
case $1 in
{nodes}*) echo "no node has the address $1" >&2; exit 1;;
esac
shift
export PEER_COMMAND="$*"
exec nsenter --net=/proc/$daemon/ns/net unshare --uts --mount sh -c \
    "mount -t sysfs none /sys && hostname $name && exec $pin sh -c \"\$PEER_COMMAND\""
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_a_name_and_numbers_count() {
        let times = read("get 12 14\nWarning: 7 of 9\n\nbarrier 5\n").unwrap();
        let wanted = [
            ("get".to_owned(), vec![12, 14]),
            ("barrier".to_owned(), vec![5]),
        ];
        assert_eq!(times, wanted);
        assert!(read("nothing to see").is_err());
    }
}
