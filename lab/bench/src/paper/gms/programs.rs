//! GR6: real programs whose large allocations lie in a segment, with more and more idle memory at another
//! node, beside the disk alone.

use super::super::super::Waiting;
use super::super::super::testbed::Testbed;
use super::super::figures::Figures;
use super::nodes::{Setting, declared, plan};
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A program, its memory and what of it is here, in MiB.
pub(super) struct Program {
    pub(super) name: &'static str,
    words: &'static [&'static str],
    size: u32,
    here: u32,
}

pub(super) const PROGRAMS: [Program; 3] = [
    Program {
        name: "numpy: gather",
        words: &[
            "/usr/bin/python3",
            "-c",
            "import numpy as n\n\
             a = n.arange(4 << 20, dtype='f8')\n\
             r = n.random.default_rng(1)\n\
             print(sum(a[r.integers(0, 4 << 20, 500)].sum() for _ in range(10)))",
        ],
        size: 32,
        here: 16,
    },
    Program {
        name: "sqlite: a join without an index",
        words: &[
            "sqlite3",
            "-pagecache",
            "4368",
            "8000",
            ":memory:",
            "create table t (a integer primary key, b integer, c text); with recursive n(i) as (select 1 union all \
             select i + 1 from n where i < 120000) insert into t select i, (i * 7919) % 120000, hex(randomblob(80)) from n; \
             select count(*), sum(length(u.c)) from t join t u on u.a = t.b where t.a % 40 = 0;",
        ],
        size: 34,
        here: 17,
    },
    Program {
        name: "sort: two columns",
        words: &[
            "sh",
            "-c",
            "seq 1 400000 | awk '{ print ($1 * 7919) % 400009, $1 }' | LC_ALL=C sort --parallel=1 -S 40M | md5sum",
        ],
        size: 40,
        here: 12,
    },
];

/// Idle memory, to what the program needs besides its own.
pub(super) const IDLE: [f64; 4] = [0.0, 0.5, 1.0, 1.5];

pub(super) fn measure(document: &mut Figures) -> Result<()> {
    let disk = Some(declared(document)?);
    for program in &PROGRAMS {
        let need = f64::from((program.size - program.here) * 256);
        let none = Setting {
            placement: "none",
            disk,
        };
        let (slow, said) = program.run(none, 0)?;
        let fast = Setting { disk: None, ..none };
        let (fast, again) = program.run(fast, 0)?;
        ensure!(said == again, "{} says something else", program.name);
        document.put(format!("programs {} none s", program.name), slow);
        document.put(format!("programs {} disk s", program.name), fast);
        for idle in IDLE {
            let gms = Setting {
                placement: "epoch",
                disk,
            };
            let (took, again) = program.run(gms, (need * idle) as u32)?;
            ensure!(said == again, "{} says something else", program.name);
            document.put(format!("programs {} {idle} s", program.name), took);
            document.put(
                format!("programs {} {idle} speedup", program.name),
                slow / took,
            );
        }
    }
    Ok(())
}

impl Program {
    /// Seconds, and what it says.
    fn run(&self, setting: Setting<'_>, lend: u32) -> Result<(f64, String)> {
        let testbed = Testbed::raise(&plan(setting, &[0, lend])?, Waiting::Block)?;
        let pagemesh = std::env::current_exe()?.with_file_name("pagemesh");
        ensure!(
            pagemesh.exists(),
            "no program {}: build it",
            pagemesh.display()
        );
        let mut command: Command = testbed.command(0, &pagemesh.to_string_lossy());
        command.args(["borrow", "--threshold", "256K", "--local"]);
        command
            .arg(format!("{}M", self.here))
            .arg("--")
            .args(self.words);
        command.stdin(Stdio::null());
        let began = Instant::now();
        let output = command.output().context("cannot start a program")?;
        let took = began.elapsed().as_secs_f64();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{}: {}", self.name, words.trim());
        Ok((took, String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}
