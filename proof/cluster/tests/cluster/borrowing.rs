//! `pagemesh borrow`: unmodified programs whose large allocations lie in memory of the cluster.
//! `scripts/setup --far` installs those of Debian.

use crate::support::Cluster;
use crate::sysv::{build_library, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A node, and a folder for files.
struct Lender {
    cluster: Cluster,
}

impl Lender {
    fn start() -> Option<Self> {
        let cluster = Cluster::start(1)?;
        build_library("borrow");
        Some(Self { cluster })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.cluster.directory().join(name)
    }

    /// A program that borrows; options come before `--` and its name.
    fn borrow(&self, options: &[&str], program: &[&str]) -> Command {
        let ours = env!("CARGO_BIN_EXE_pagemesh-under-test");
        let mut command = self.cluster.node(0).command(ours);
        command.arg("borrow").args(options).arg("--").args(program);
        command.current_dir(self.cluster.directory());
        command
    }

    /// The program of `c/borrow.c`.
    fn program(&self) -> String {
        let program = self.file("borrow");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-std=gnu11", "-O1", "-Wall", "-fno-builtin", "-pthread"])
            .arg(format!("{HERE}/tests/cluster/c/borrow.c"))
            .arg("-o")
            .arg(&program);
        run(&mut compiler);
        program.to_str().unwrap().to_owned()
    }

    /// The pages that were put into the borrowed memory of programs of this node.
    fn touched(&self) -> u64 {
        self.cluster.counter(0, "pages_placed")
    }

    /// Both ways to run a program print the same, and at least so many pages were borrowed.
    fn compare(&self, program: &[&str], pages: u64) {
        let plain = Command::new(program[0])
            .args(&program[1..])
            .current_dir(self.cluster.directory())
            .output();
        let plain = plain.unwrap();
        assert!(plain.status.success(), "{plain:?}");
        let before = self.touched();
        let borrowed = self
            .borrow(&["--threshold", "64K", "--local", "4M"], program)
            .output()
            .unwrap();
        assert_eq!(
            (
                borrowed.status,
                words(&borrowed.stdout),
                words(&borrowed.stderr)
            ),
            (plain.status, words(&plain.stdout), words(&plain.stderr)),
            "{program:?}"
        );
        let touched = self.touched() - before;
        assert!(touched >= pages, "{program:?} got {touched} borrowed pages");
    }
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn has(command: &str, arguments: &[&str]) -> bool {
    let mut probe = Command::new(command);
    probe.args(arguments).stdin(Stdio::null());
    let there = probe.output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("skipped: {command} {arguments:?} fails; scripts/setup --far installs it");
    }
    there
}

#[test]
fn allocations_threads_and_children_are_as_without() {
    let Some(lender) = Lender::start() else {
        return;
    };
    let program = lender.program();
    let said = run(&mut lender.borrow(&["--size", "1G"], &[&program]));
    assert_eq!(said, "done\n");
    // Programs without a name for their memory leave nothing behind.
    assert!(lender.cluster.mesh(0).list().unwrap().is_empty());
}

#[test]
fn a_fork_that_cannot_get_its_copy_is_refused_with_the_cure() {
    let Some(lender) = Lender::start() else {
        return;
    };
    let program = lender.program();
    let options = ["--size", "64M", "--fork-limit", "1M"];
    let output = lender.borrow(&options, &[&program, "refused"]).output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.unwrap();
    assert!(status.success(), "{}", words(&stderr));
    assert_eq!(words(&stdout), "done\n");
    let why = words(&stderr);
    assert!(
        why.contains("fork is refused") && why.contains("--fork-limit"),
        "{why}"
    );
}

#[test]
fn sort_sorts() {
    let Some(lender) = Lender::start() else {
        return;
    };
    let lines: String = (0..200_000_u64)
        .map(|number| format!("{:016x}\n", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    std::fs::write(lender.file("lines"), lines).unwrap();
    lender.compare(&["sort", "--parallel=2", "-S", "16M", "lines"], 500);
}

#[test]
fn numpy_computes() {
    if !has("/usr/bin/python3", &["-c", "import numpy"]) {
        return;
    }
    let Some(lender) = Lender::start() else {
        return;
    };
    let script = "import numpy as n, os, subprocess\n\
                  a = n.arange(1 << 20, dtype='f8'); b = n.sqrt(a)[::-1].copy()\n\
                  print(float(a @ b), float(n.sort(b).cumsum()[-1]))\n\
                  print(n.linalg.norm(a.reshape(1024, 1024) @ b.reshape(1024, 1024)))\n\
                  a.tofile('bytes'); print(bool((n.fromfile('bytes') == a).all()))\n\
                  print(subprocess.check_output(['echo', 'child']))\n\
                  pid = os.fork()\n\
                  if pid == 0: a += 1; os._exit(int(a[5] != 6))\n\
                  print(os.waitpid(pid, 0)[1], a[5])\n";
    lender.compare(&["/usr/bin/python3", "-c", script], 4000);
    assert!(
        lender.cluster.counter(0, "pages_evicted") > 1000,
        "its arrays do not fit into local memory"
    );
}

#[test]
fn sqlite_answers() {
    if !has("sqlite3", &["--version"]) {
        return;
    }
    let Some(lender) = Lender::start() else {
        return;
    };
    // One block for its cache, as who has little memory sets it up.
    let script = "create table t as with recursive c(x) as (select 1 union all select x + 1 from c \
                  where x < 50000) select x, hex(x * 7919) y, zeroblob(70000 * (x % 500 = 0)) z \
                  from c; create index i on t(y); \
                  select count(*), sum(x), sum(length(z)), max(y) from t; \
                  select x from t order by y desc limit 3; select length(group_concat(y)) from t;";
    lender.compare(&["sqlite3", ":memory:", script], 50);
}

#[test]
fn gcc_compiles_a_large_file() {
    let Some(lender) = Lender::start() else {
        return;
    };
    let source: String = (0..3000)
        .map(|number| format!("int f{number}(int x) {{ return x * {number} + f(x); }}\n"))
        .collect();
    std::fs::write(lender.file("large.c"), format!("int f(int x);\n{source}")).unwrap();
    lender.compare(&["gcc", "-O1", "-S", "-o", "-", "large.c"], 16);
}

#[test]
fn programs_with_a_memory_manager_of_their_own_are_refused_with_the_command_to_type() {
    let Some(lender) = Lender::start() else {
        return;
    };
    let refused = |program: &str, manager: &str| {
        let output = lender.borrow(&[], &[program]).output().unwrap();
        let why = words(&output.stderr);
        assert_eq!(output.status.code(), Some(126), "{program}: {why}");
        assert!(why.contains(manager), "{program}: {why}");
        assert!(why.contains("pagemesh export --size"), "{program}: {why}");
    };
    for (program, manager) in [("java", "Java"), ("node", "node"), ("go", "Go runtime")] {
        let found = Command::new("which").arg(program).output().unwrap();
        let path = words(&found.stdout);
        if found.status.success() && Path::new(path.trim()).exists() {
            refused(path.trim(), manager);
        } else {
            eprintln!("not tried: there is no {program}");
        }
    }
    let program = lender.file("static");
    let source = lender.file("static.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    run(Command::new("cc")
        .arg("-static")
        .arg(&source)
        .arg("-o")
        .arg(&program));
    let output = lender
        .borrow(&[], &[program.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    assert!(
        words(&output.stderr).contains("without -static"),
        "{output:?}"
    );
}

#[test]
fn redis_saves_in_the_background() {
    if !has("redis-server", &["--version"]) {
        return;
    }
    let Some(lender) = Lender::start() else {
        return;
    };
    let socket = lender.file("redis.sock");
    let path = socket.to_str().unwrap();
    let line = [
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        path,
        "--save",
        "",
    ];
    let before = lender.touched();
    let mut server = lender.borrow(&["--threshold", "64K", "--local", "2M"], &line);
    let mut server = server.stdout(Stdio::null()).spawn().unwrap();
    let ask = |words: &[&str]| {
        let output = Command::new("redis-cli")
            .args(["-s", path])
            .args(words)
            .output();
        String::from_utf8(output.unwrap().stdout)
            .unwrap()
            .trim()
            .to_owned()
    };
    crate::support::eventually("redis answers", || ask(&["ping"]) == "PONG");
    let script = "for i = 1, 40 do redis.call('set', 'k' .. i, string.rep(tostring(i % 10), \
                  100000 + i)) end return 1";
    assert_eq!(ask(&["eval", script, "0"]), "1");
    assert!(
        lender.touched() - before > 500,
        "the values are not borrowed"
    );
    assert!(ask(&["bgsave"]).contains("started"));
    // The child has what was there; what is stored now is not for it.
    ask(&["set", "k7", "new"]);
    let done = || ask(&["info", "persistence"]).contains("rdb_bgsave_in_progress:0");
    crate::support::eventually("it is saved", done);
    assert!(ask(&["info", "persistence"]).contains("rdb_last_bgsave_status:ok"));
    assert_eq!(ask(&["strlen", "k40"]), "100040");
    ask(&["shutdown", "nosave"]);
    assert!(server.wait().unwrap().success());
    // Another server reads the file.
    let mut plain = Command::new(line[0]);
    plain
        .args(&line[1..])
        .current_dir(lender.cluster.directory());
    let mut plain = plain.stdout(Stdio::null()).spawn().unwrap();
    crate::support::eventually("redis answers", || ask(&["ping"]) == "PONG");
    assert_eq!(ask(&["strlen", "k40"]), "100040");
    assert_eq!(ask(&["getrange", "k7", "0", "2"]), "777");
    assert_eq!(ask(&["dbsize"]), "40");
    ask(&["shutdown", "nosave"]);
    plain.wait().unwrap();
}
