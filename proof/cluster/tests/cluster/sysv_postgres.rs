//! PostgreSQL, unmodified, its shared memory the cluster's. A server is the processes of
//! one host; what several hosts have of it is that no second server gets hold of its data.
//! Needs the package postgresql.

use crate::support::eventually;
use crate::sysv::Stage;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A user that is not root, as which alone the server runs.
const NOBODY: u32 = 65534;

/// Every query worth a process gets two more, which share memory made for it.
const PARALLEL: &str = "-c max_parallel_workers_per_gather=2 -c parallel_setup_cost=0 \
                        -c parallel_tuple_cost=0 -c min_parallel_table_scan_size=0";

/// An installation, and a directory with data.
struct Postgres<'a> {
    stage: &'a Stage,
    programs: PathBuf,
    data: PathBuf,
}

/// A server that was started. Ended at the latest when this goes.
struct Server {
    process: Child,
    log: PathBuf,
}

fn installed() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let programs = versions.flatten().map(|version| version.path().join("bin"));
    let found = programs
        .into_iter()
        .find(|there| there.join("initdb").exists());
    if found.is_none() {
        eprintln!("skipped: no PostgreSQL in /usr/lib/postgresql; the package postgresql has it");
    }
    found
}

impl<'a> Postgres<'a> {
    fn new(stage: &'a Stage, programs: PathBuf) -> Self {
        let directory = stage.cluster.directory();
        let data = directory.join("data");
        fs::create_dir(&data).unwrap();
        if rustix::process::geteuid().is_root() {
            fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
            chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let postgres = Self {
            stage,
            programs,
            data,
        };
        let mut initialize = Command::new("env");
        postgres.as_nobody(&mut initialize, "initdb");
        initialize.args(["-U", "postgres", "-A", "trust", "--no-sync"]);
        let output = initialize.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        postgres
    }

    /// Adds to a command that runs commands: one of PostgreSQL's programs, on the data.
    fn as_nobody(&self, command: &mut Command, program: &str) {
        if rustix::process::geteuid().is_root() {
            let [user, group] = ["--reuid", "--regid"].map(|flag| format!("{flag}={NOBODY}"));
            command.args(["setpriv", &user, &group, "--clear-groups"]);
        }
        command
            .arg(self.programs.join(program))
            .arg("-D")
            .arg(&self.data);
        command.current_dir(&self.data);
    }

    /// Starts a server on a node, run by this command.
    fn serve(&self, node: usize, by: &[&str]) -> Server {
        let mut command = self.stage.command(node, Path::new(by[0]));
        command.args(&by[1..]);
        self.as_nobody(&mut command, "postgres");
        command.arg("-k").arg(&self.data);
        for setting in [
            "listen_addresses=",
            "shared_memory_type=sysv",
            "dynamic_shared_memory_type=sysv",
            "shared_buffers=8MB",
            "fsync=off",
        ] {
            command.args(["-c", setting]);
        }
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = self
            .stage
            .cluster
            .directory()
            .join(format!("pg{number}.log"));
        let file = File::create(&log).unwrap();
        command.stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        let process = command.spawn().unwrap();
        Server { process, log }
    }

    fn ready(&self, server: &Server) {
        eventually("the server answers", || {
            assert!(!server.says("FATAL:  could not"), "{}", server.words());
            self.ask("select 1").status.success()
        });
    }

    fn psql(&self, statement: &str) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        command.env("PGOPTIONS", PARALLEL).arg("-h").arg(&self.data);
        command.args(["-X", "-U", "postgres", "-Atc", statement, "postgres"]);
        command
    }

    fn ask(&self, statement: &str) -> Output {
        self.psql(statement).output().unwrap()
    }

    fn told(&self, statement: &str) -> String {
        let output = self.ask(statement);
        assert!(output.status.success(), "{statement}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Server {
    fn words(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn says(&self, words: &str) -> bool {
        self.words().contains(words)
    }

    /// Ends it in order.
    fn stop(mut self) {
        kill(self.process.id(), Signal::INT);
        let ended = self.process.wait().unwrap();
        assert!(ended.success(), "{}", self.words());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn kill(process: u32, signal: Signal) {
    let process = Pid::from_raw(process as i32).unwrap();
    kill_process(process, signal).unwrap();
}

/// Segments that the cluster has.
fn segments(stage: &Stage) -> usize {
    let program = env!("CARGO_BIN_EXE_pagemesh-under-test");
    let mut list = stage.cluster.node(0).command(program);
    let output = list.args(["ipcs", "-o", "json"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    said.matches("\"attached\"").count()
}

#[test]
fn postgresql_serves_from_the_memory_of_the_cluster() {
    let (Some(programs), Some(stage)) = (installed(), Stage::set(2)) else {
        return;
    };
    let postgres = Postgres::new(&stage, programs);
    let first = postgres.serve(0, &["env"]);
    postgres.ready(&first);
    assert!(first.says("POSIX semaphore lies in a System V segment"));
    assert!(segments(&stage) >= 2, "its memory is the cluster's");
    postgres.told("create table t as select generate_series(1, 20000) as i");
    let plan = postgres.told("explain (analyze, costs off) select sum(i) from t");
    assert!(plan.contains("Workers Launched: 2"), "{plan}");
    assert_eq!(postgres.told("select sum(i) from t"), "200010000");

    // A process of it that is killed: the server makes its memory anew.
    let mut sleeper = postgres.psql("select pg_sleep(100)").spawn().unwrap();
    let pid = "select pid from pg_stat_activity where query = 'select pg_sleep(100)'";
    eventually("somebody sleeps", || !postgres.told(pid).is_empty());
    kill(postgres.told(pid).parse().unwrap(), Signal::KILL);
    assert!(!sleeper.wait().unwrap().success());
    eventually("it begins anew", || first.says("reinitializing"));
    postgres.ready(&first);
    assert_eq!(postgres.told("select sum(i) from t"), "200010000");

    // Another host with the same data: process numbers tell it nothing, but the segment
    // is attached.
    if rustix::process::geteuid().is_root() {
        let elsewhere = ["unshare", "--pid", "--fork", "--mount-proc"];
        let mut second = postgres.serve(1, &elsewhere);
        assert!(!second.process.wait().unwrap().success());
        assert!(second.says("is still in use"), "{}", second.words());
        assert_eq!(postgres.told("select sum(i) from t"), "200010000");
    }

    first.stop();
    assert_eq!(segments(&stage), 0);
    let second = postgres.serve(1, &["env"]);
    postgres.ready(&second);
    assert_eq!(postgres.told("select sum(i) from t"), "200010000");
    second.stop();
    assert_eq!(segments(&stage), 0);
}
