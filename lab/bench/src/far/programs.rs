//! Programs with half of the memory that they want: all of it here, in a private array or borrowed, or
//! in a memory control group that swaps.

use super::super::peers::install::{found, need_import};
use super::super::testbed::Testbed;
use super::PROGRAM;
use super::group::Group;
use super::space::Space;
use anyhow::{Context, Result, bail, ensure};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Where the half of a program's memory is that is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rest {
    /// Nowhere: all of it is here.
    None,
    /// An array of policy `private`.
    Array,
    /// Large allocations in private memory, by `pagemesh borrow`.
    Borrowed,
    Swapped(Space),
}

impl Rest {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "all_here",
            Self::Array => "private_array",
            Self::Borrowed => "borrow",
            Self::Swapped(space) => space.name(),
        }
    }
}

/// A program that looks something up at random places of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lookups {
    /// numpy: items of an array by their numbers, `array[numbers]`.
    Gather,
    /// sqlite: rows by their keys, in a database in memory.
    Sqlite,
}

/// Fills an array, takes items twice, and prints nanoseconds an item of the second time.
const GATHER: &str = "\
import sys, time, numpy
items, count, local = (int(word) for word in sys.argv[1:4])
if local:
    import pagemesh
    a = pagemesh.array(None, items, 'f8', policy=pagemesh.Private(local=local))
else:
    a = numpy.empty(items)
for i in range(0, items, 1 << 15):
    a[i : i + (1 << 15)] = numpy.arange(i, i + (1 << 15))
r = numpy.random.default_rng(1)
for _ in range(2):
    i = r.integers(0, items, count)
    began = time.perf_counter_ns()
    found = a[i]
    took = time.perf_counter_ns() - began
    assert (found == i).all()
print(took / count)
";

/// How the packages come to Python.
const CURE: &str = "pip install numpy, and in PageMesh's sources pip install .";

/// Bytes of text in a row of the database, and of the row in its pages.
const TEXT: u32 = 900;
const ROW: u32 = 1000;

/// A page of the database and what sqlite notes of it.
const SQLITE_PAGE: u32 = 4368;

impl Lookups {
    pub(super) const ALL: [Self; 2] = [Self::Gather, Self::Sqlite];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gather => "gather",
            Self::Sqlite => "sqlite",
        }
    }

    /// Fails if it cannot run here so, and says why.
    pub(super) fn need(self, rest: Rest) -> Result<()> {
        let import = |import| need_import(Path::new(self.program()), import, CURE);
        match (self, rest) {
            (Self::Gather, Rest::Array) => import("import numpy, pagemesh"),
            (Self::Gather, _) => import("import numpy"),
            (Self::Sqlite, Rest::Array) => bail!("sqlite has no arrays"),
            (Self::Sqlite, _) if found("sqlite3") => Ok(()),
            (Self::Sqlite, _) => bail!("no sqlite3 here: apt-get install sqlite3"),
        }
    }

    /// Nanoseconds for a lookup, of `count` in so many MiB.
    pub(super) fn run(
        self,
        testbed: &Testbed,
        (size, count): (u32, u32),
        rest: Rest,
    ) -> Result<u64> {
        let half = size / 2;
        let mut command = match rest {
            Rest::None | Rest::Array => testbed.command(0, self.program()),
            Rest::Borrowed => {
                let mut command = testbed.command(0, &testbed.program().to_string_lossy());
                command.args(["borrow", "--local", &format!("{half}M"), "--"]);
                command.arg(self.program());
                command
            }
            Rest::Swapped(space) => return self.run_swapped(testbed, (size, count), space),
        };
        let array = if rest == Rest::Array { half } else { 0 };
        self.nanos(&mut command, (size, count), array)
    }

    fn run_swapped(
        self,
        testbed: &Testbed,
        (size, count): (u32, u32),
        space: Space,
    ) -> Result<u64> {
        let used = space.on(testbed, size)?;
        let limit = (u64::from(size / 2) << 20) + self.besides();
        let ran = Group::make(limit)
            .context("no memory control group can be made")
            .and_then(|group| {
                let mut command = group.command(Path::new(self.program()));
                self.nanos(&mut command, (size, count), 0)
            });
        used.off()?;
        ran
    }

    fn program(self) -> &'static str {
        match self {
            Self::Gather => "python3",
            Self::Sqlite => "sqlite3",
        }
    }

    /// Bytes that the program takes besides the memory that it is given.
    fn besides(self) -> u64 {
        match self {
            Self::Gather => PROGRAM + (8 << 20),
            Self::Sqlite => PROGRAM + (16 << 20),
        }
    }

    /// Runs the command; an array has so many MiB here.
    fn nanos(self, command: &mut Command, (size, count): (u32, u32), array: u32) -> Result<u64> {
        let name = self.name();
        let script = match self {
            Self::Gather => {
                let items = u64::from(size) << 17;
                let local = u64::from(array) << 20;
                let words = [items, count.into(), local].map(|number| number.to_string());
                command.arg("-").args(words);
                GATHER.to_owned()
            }
            Self::Sqlite => {
                let pages = (size << 8) + 64;
                command.args(["-batch", "-pagecache", &SQLITE_PAGE.to_string()]);
                command.args([&pages.to_string(), ":memory:"]);
                sqlite_script((size << 20) / ROW, count)
            }
        };
        let output = talk(command, &script).with_context(|| format!("cannot run {name}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let wrong = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        ensure!(status.success(), "{name} ended with {status}: {wrong}");
        let nanos = match self {
            Self::Gather => said.trim().parse().ok(),
            Self::Sqlite => sqlite_nanos(&said, count),
        };
        let nanos: f64 = nanos.with_context(|| format!("{name} says {said} {wrong}"))?;
        Ok(nanos as u64)
    }
}

/// Runs a program that reads a script, to its end.
fn talk(command: &mut Command, script: &str) -> Result<Output> {
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(script.as_bytes())?;
    drop(stdin);
    Ok(child.wait_with_output()?)
}

/// Fills a table, then looks up so many rows at random.
fn sqlite_script(rows: u32, count: u32) -> String {
    let last = rows - 1;
    let blob = TEXT / 2;
    format!(
        "create table t (a integer primary key, c text);\n\
         with recursive n(i) as (select 0 union all select i + 1 from n where i < {last}) \
         insert into t select i, hex(randomblob({blob})) from n;\n\
         .timer on\n\
         with recursive n(i) as (select 1 union all select i + 1 from n where i < {count}) \
         select count(*), sum(length(t.c)) from n cross join t on t.a = abs(random()) % {rows};\n"
    )
}

/// Nanoseconds for a lookup, if all rows were found.
fn sqlite_nanos(said: &str, count: u32) -> Option<f64> {
    let found = format!("{count}|{}\n", count * TEXT);
    let time = said.strip_prefix(&found)?.strip_prefix("Run Time: real ")?;
    let seconds: f64 = time.split_whitespace().next()?.parse().ok()?;
    Some(seconds * 1e9 / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sqlite_says_is_a_time_if_it_found_all_rows() {
        let said = "10|9000\nRun Time: real 0.020 user 0.001 sys 0.001\n";
        assert_eq!(sqlite_nanos(said, 10), Some(2e6));
        assert_eq!(sqlite_nanos(said, 9), None);
        assert_eq!(sqlite_nanos("10|9000\n", 10), None);
    }
}
