//! The programs whose memory is looked at.

use super::trace::Trace;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// The recorder.
const LIBRARY: &str = "libpagetrace.so.0";

/// A program, which must not start others: the recorder looks at one process.
pub(super) struct Workload {
    pub(super) name: &'static str,
    program: PathBuf,
    words: Vec<String>,
    /// What it reads, at the end of its words.
    input: Option<String>,
}

/// A file that goes when it is not used any more.
struct Scratch(PathBuf);

/// Files of this process so far.
static MADE: AtomicU32 = AtomicU32::new(0);

impl Scratch {
    fn new(suffix: &str) -> Self {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("pagemesh-ages-{}-{number}{suffix}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn with(contents: &str) -> Result<Self> {
        let file = Self::new(".c");
        std::fs::write(&file.0, contents).with_context(|| file.0.display().to_string())?;
        Ok(file)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// All of them, doing so many percent of their usual work.
pub(super) fn all(work: u32) -> Result<Vec<Workload>> {
    Ok(vec![sqlite(work), numpy(work), compiler(work)?, sort(work)])
}

fn sqlite(work: u32) -> Workload {
    let rows = 400 * work;
    let sql = format!(
        "create table t (a integer primary key, b integer, c text); \
         with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows}) \
         insert into t select i, (i * 7919) % {rows}, hex(randomblob(80)) from n; \
         create index u on t (b); \
         select count(*), sum(length(u.c)) from t join t u on u.a = t.b where t.a % 4 = 0;"
    );
    Workload {
        name: "sqlite",
        program: "sqlite3".into(),
        words: vec![":memory:".into(), sql],
        input: None,
    }
}

fn numpy(work: u32) -> Workload {
    let numbers = 10_000 * work;
    let script = format!(
        "import numpy as n\n\
         a = n.arange({numbers}, dtype='f8')\n\
         r = n.random.default_rng(1)\n\
         print(sum(a[r.integers(0, {numbers}, 500)].sum() for _ in range(10)))\n\
         b = n.sort(a[::-1] * 7919 % 10007)\n\
         print((a * b).sum())"
    );
    Workload {
        name: "numpy",
        program: "/usr/bin/python3".into(),
        words: vec!["-c".into(), script],
        input: None,
    }
}

/// The compiler proper, which the driver `gcc` starts.
fn compiler(work: u32) -> Result<Workload> {
    let mut asked = Command::new("gcc");
    let said = asked.arg("-print-prog-name=cc1").output();
    let said = said.context("cannot start gcc")?;
    let program = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    let mut source = String::new();
    for number in 0..(60 * work / 100).max(3) {
        let (factor, limit) = (number + 3, 1000 * number + 7);
        writeln!(
            source,
            "int f{number}(int *a, int n) {{ int s = {number}; for (int k = 0; k < n; k++) {{ \
             s += a[k] * {factor}; if (s > {limit}) s ^= a[(k * {factor}) % n]; \
             switch (s & 7) {{ case 0: s += {number}; break; case 3: s -= k; break; \
             default: s *= 3; }} }} return s; }}"
        )?;
    }
    let words = ["-quiet", "-O1", "-o", "/dev/null"];
    Ok(Workload {
        name: "cc1",
        program: program.into(),
        words: words.map(str::to_owned).to_vec(),
        input: Some(source),
    })
}

fn sort(work: u32) -> Workload {
    let lines = 2000 * work;
    let mut input = String::new();
    for line in 0..lines {
        let scattered = u64::from(line) * 7919 % u64::from(lines + 9);
        input.push_str(&format!("{scattered} {line}\n"));
    }
    let words = ["--parallel=1", "-S", "64M"];
    Workload {
        name: "sort",
        program: "sort".into(),
        words: words.map(str::to_owned).to_vec(),
        input: Some(input),
    }
}

impl Workload {
    /// Runs it with these variables; returns the seconds that it took.
    fn run(&self, variables: &[(&str, &Path)]) -> Result<f64> {
        let input = self.input.as_deref().map(Scratch::with).transpose()?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.words)
            .args(input.as_ref().map(|file| &file.0));
        command.env("LC_ALL", "C").env("OPENBLAS_NUM_THREADS", "1");
        command.envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let began = Instant::now();
        let output = command.stderr(Stdio::piped()).output();
        let output = output.with_context(|| format!("cannot start {}", self.program.display()))?;
        let took = began.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}", self.name, said.trim());
        Ok(took)
    }

    /// Seconds of a run that nobody looks at.
    pub(super) fn run_alone(&self) -> Result<f64> {
        self.run(&[])
    }

    /// The pages that it touches.
    pub(super) fn record(&self, programs: &Path) -> Result<Trace> {
        let library = std::path::absolute(programs.join(LIBRARY))?;
        ensure!(
            library.exists(),
            "no {}; `make -C lab/apps` builds it",
            library.display()
        );
        let trace = Scratch::new(".trace");
        self.run(&[("LD_PRELOAD", &library), ("PAGE_TRACE", &trace.0)])?;
        Trace::read(&trace.0)
    }
}
