//! `pagemesh export`: memory as a block device, by the programs that others use on block devices.
//! `scripts/setup --far` installs them.

use crate::support::{Cluster, PATIENCE};
use pagemesh::{Access, Options};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const SIZE: u64 = 24 << 20;

/// A sixth of it.
const LOCAL: &str = "4M";

/// Whether this program is installed.
fn has(command: &str) -> bool {
    let there = Command::new(command).arg("--version").output().is_ok();
    if !there {
        eprintln!("skipped: there is no {command}; scripts/setup --far installs it");
    }
    there
}

/// A running `pagemesh export`.
struct Running {
    child: Child,
    folder: PathBuf,
    uri: String,
}

impl Running {
    fn start(cluster: &Cluster, name: &str, arguments: &[&str]) -> Self {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("pagemesh-export-{name}-{id}"));
        std::fs::create_dir_all(&folder).unwrap();
        let program = env!("CARGO_BIN_EXE_pagemesh-under-test");
        let mut command = cluster.node(0).command(program);
        command.args(["export", "-o", "json", "--name", name, "--listen"]);
        command.arg(folder.join("socket")).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        for line in BufReader::new(child.stdout.as_mut().unwrap()).lines() {
            said += &line.unwrap();
            if said.ends_with('}') {
                break;
            }
        }
        let document: serde_json::Value = serde_json::from_str(&said).expect(&said);
        assert_eq!(document["schema_version"], 1);
        let uri = document["uri"].as_str().unwrap().to_owned();
        Self { child, folder, uri }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Ends it as a service manager does.
    fn end(mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        assert!(!self.socket().exists());
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

/// Runs it, and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}{errors}");
    text
}

fn qemu_io(uri: &str, orders: &[&str]) -> String {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw", uri]);
    for order in orders {
        command.args(["-c", order]);
    }
    run(&mut command)
}

#[test]
fn qemu_io_reads_what_it_wrote() {
    if !has("qemu-io") {
        return;
    }
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let size = SIZE.to_string();
    let export = Running::start(&cluster, "qemu", &["--size", &size, "--local", LOCAL]);
    let said = qemu_io(&export.uri, &["read -P 0 0 24M", "write -z 0 24M"]);
    assert!(!said.contains("failed"), "{said}");
    assert_eq!(
        cluster.counter(0, "kernel_faults"),
        0,
        "zeros take no memory"
    );
    let said = qemu_io(
        &export.uri,
        &[
            "write -P 7 1M 3M",
            "write -P 5 4M 20M",
            "write -f -P 9 5000 100",
            "flush",
            "read -P 7 1M 3M",
            "read -P 9 5000 100",
            "read -P 0 4096 904",
            "write -z 2M 1M",
            "discard 3M 64k",
            "read -P 0 2M 1M",
            "read -P 7 1M 1M",
            "read -P 5 4M 20M",
            "read -P 0 0 4096",
            "length",
        ],
    );
    assert!(!said.contains("failed"), "{said}");
    assert!(said.contains("24 MiB"), "{said}");
    // Another client sees the same.
    let said = qemu_io(&export.uri, &["read -P 9 5000 100"]);
    assert!(!said.contains("failed"), "{said}");
    assert!(
        cluster.counter(0, "pages_evicted") > 4096,
        "five sixths are not in local memory"
    );
    export.end();
}

#[test]
fn nbdcopy_copies_a_file_there_and_back_over_several_connections() {
    if !has("nbdcopy") {
        return;
    }
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let size = SIZE.to_string();
    let export = Running::start(&cluster, "copy", &["--size", &size, "--local", LOCAL]);
    let words = (0..SIZE / 8).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let [there, back] = ["there", "back"].map(|name| export.folder.join(name));
    std::fs::write(&there, &bytes).unwrap();
    let copy = |from: &Path, to: &Path| {
        run(Command::new("nbdcopy")
            .args(["--connections=4"])
            .args([from, to]));
    };
    let uri = PathBuf::from(&export.uri);
    copy(&there, &uri);
    copy(&uri, &back);
    assert!(std::fs::read(&back).unwrap() == bytes);
    let info = run(Command::new("nbdinfo").arg(&export.uri));
    for fact in ["can_multi_conn: true", "structured", "is_read_only: false"] {
        assert!(info.contains(fact), "no {fact} in {info}");
    }
    let list = run(Command::new("nbdinfo").arg("--list").arg(&export.uri));
    assert!(list.contains("export=\"copy\""), "{list}");
    export.end();
}

#[test]
fn fio_verifies_what_it_wrote_at_random_places() {
    if !has("fio") {
        return;
    }
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let size = SIZE.to_string();
    let export = Running::start(&cluster, "fio", &["--size", &size, "--local", LOCAL]);
    let mut command = Command::new("fio");
    command.current_dir(&export.folder).args([
        "--name=far",
        "--ioengine=nbd",
        "--rw=randrw",
        "--bs=4k",
        "--iodepth=8",
        "--size=16M",
        "--verify=crc32c",
        "--verify_fatal=1",
    ]);
    command.arg(format!("--uri={}", export.uri));
    let said = run(&mut command);
    assert!(said.contains("err= 0"), "{said}");
    export.end();
}

#[test]
fn a_segment_is_exported_to_clients_that_may_only_read() {
    if !has("qemu-io") {
        return;
    }
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let memory = cluster.share_with("shared", 256, Options::default());
    let export = Running::start(&cluster, "segment", &["--segment", "shared", "--read-only"]);
    // Stores of the other node are seen: it is the same memory.
    memory[1].write(4096, &[5; 4096]).unwrap();
    let order = ["-r", "-f", "raw", &export.uri, "-c", "read -P 5 4096 4096"];
    let said = run(Command::new("qemu-io").args(order));
    assert!(!said.contains("failed"), "{said}");
    let order = ["-f", "raw", &export.uri, "-c", "write 0 512"];
    let refused = Command::new("qemu-io").args(order).output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    export.end();
    assert!(cluster.mesh(1).open("shared", Access::ReadOnly).is_ok());
}

#[test]
fn hostile_and_idle_clients_harm_nobody_and_the_memory_goes_with_the_export() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let export = Running::start(&cluster, "hostile", &["--size", "1M"]);
    // A segment without a name is not listed, so nobody else can open it.
    assert!(cluster.mesh(0).list().unwrap().is_empty());
    // More than are served, half of them silent, half of them talking nonsense.
    let crowd: Vec<_> = (0..100)
        .map(|number| {
            let mut stream = export.connect();
            if number % 2 == 0 {
                // The server may have turned it away already.
                let _ = stream.write_all(&[0xff; 64]);
            }
            stream
        })
        .collect();
    drop(crowd);
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "nobody is served any more");
        let mut stream = export.connect();
        let mut hello = [0; 18];
        if stream.read_exact(&mut hello).is_ok() && hello.starts_with(b"NBDMAGICIHAVEOPT") {
            break;
        }
    }
    let waiting = export.connect();
    export.end();
    drop(waiting);
}
