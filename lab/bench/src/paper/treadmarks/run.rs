//! Running the programs, and finding out what they did.

use super::super::super::copies;
use super::super::super::cpu_slots::pin_process;
use super::super::super::job::{Outcome, PATIENCE, Stand, Told, waited};
use super::super::super::quota::Quota;
use super::document::{Run, Shares, Typical};
use super::program::{Program, Size};
use anyhow::{Context, Result};
use pagemesh_forecast::Wait;
use std::path::Path;

/// Where programs and data are, and how large the problems.
pub(super) struct Place<'p> {
    pub(super) programs: &'p Path,
    pub(super) data: &'p Path,
    pub(super) size: Size,
}

impl Place<'_> {
    /// Seconds of a program alone, in the order of the parallel one.
    pub(super) fn alone(&self, program: &Program, quota: Option<&Quota>) -> Result<f64> {
        self.alone_by(program, quota, None)
    }

    /// Seconds of a program alone, with an argument more.
    pub(super) fn alone_by(
        &self,
        program: &Program,
        quota: Option<&Quota>,
        more: Option<&str>,
    ) -> Result<f64> {
        let path = self.programs.join(program.file());
        let mut command = copies::command(None, quota.map(|quota| (quota, 0)), &path);
        command.args(self.arguments(program)).arg("--sequential");
        command.args(more);
        let copy = copies::start(&mut command, &path)?;
        if quota.is_none() {
            // As the first node's will be.
            pin_process(copy.id(), 0).context("cannot pin a process")?;
        }
        copies::seconds(&copies::finish(vec![copy], PATIENCE)?[0])
    }

    /// Seconds of as many copies at a time, each alone with its problem, one on each
    /// processor: their mean.
    pub(super) fn crowd(&self, program: &Program, copies: usize) -> Result<f64> {
        let path = self.programs.join(program.file());
        let mut started = Vec::new();
        for number in 0..copies {
            let mut command = copies::command(None, None, &path);
            command.args(self.arguments(program)).arg("--sequential");
            let copy = copies::start(&mut command, &path)?;
            pin_process(copy.id(), number).context("cannot pin a process")?;
            started.push(copy);
        }
        let outputs = copies::finish(started, PATIENCE)?;
        let seconds: Result<Vec<f64>> = outputs.iter().map(copies::seconds).collect();
        Ok(seconds?.iter().sum::<f64>() / copies.max(1) as f64)
    }

    /// A program on all nodes.
    pub(super) fn together(
        &self,
        stand: &Stand<'_>,
        program: &'static Program,
        policy: &str,
    ) -> Result<Run> {
        let path = self.programs.join(program.file());
        let outcome = stand.run(&path, &self.arguments(program), policy)?;
        let run = put_together(program, policy, &outcome);
        Ok(Run {
            large: self.size.is_large(),
            ..run
        })
    }

    pub(super) fn arguments(&self, program: &Program) -> Vec<String> {
        program.arguments(self.size, &self.data.to_string_lossy())
    }
}

fn put_together(program: &Program, policy: &str, outcome: &Outcome) -> Run {
    let Outcome {
        seconds,
        ref told,
        before,
        after,
    } = *outcome;
    let sum = |of: fn(&Told) -> f64| told.iter().map(of).sum::<f64>();
    let whole = told.iter().map(|one| one.seconds).fold(0.0, f64::max);
    let time = (whole * told.len() as f64).max(f64::MIN_POSITIVE);
    let computation = sum(|one| one.user) / time;
    let kernel = (sum(|one| one.system) + after.system - before.system) / time;
    let pagemesh = (after.user - before.user) / time;
    let waited = waited(told);
    Run {
        program: program.name.to_owned(),
        large: false,
        policy: policy.to_owned(),
        nodes: told.len(),
        seconds,
        rounds: 1,
        measured: String::new(),
        crowd_seconds: None,
        paper_speedup: program.speedup,
        whole_seconds: whole,
        barriers: told.iter().map(|one| one.barriers).max().unwrap_or(0),
        locks: told.iter().map(|one| one.locks).sum(),
        messages: after.messages - before.messages,
        bytes: after.bytes - before.bytes,
        pages: after.pages - before.pages,
        diffs: after.diffs - before.diffs,
        lock_wait: waited.locks.map(micros),
        barrier_wait: waited.barriers.map(micros),
        fault_wait: (before.faults == 0 && after.faults > 0).then(|| Typical {
            micros: after.fault_nanos as f64 / after.faults as f64 / 1000.0,
            count: after.faults as usize,
        }),
        shares: Shares {
            computation,
            kernel,
            pagemesh,
            idle: (1.0 - computation - kernel - pagemesh).max(0.0),
        },
    }
}

fn micros(wait: Wait) -> Typical {
    Typical {
        micros: wait.typical.as_secs_f64() * 1e6,
        count: wait.count,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::job::Counted;
    use super::super::program::PROGRAMS;
    use super::*;

    #[test]
    fn time_is_divided_without_rest() {
        let told = Told {
            seconds: 2.0,
            user: 1.0,
            system: 0.2,
            barriers: 5,
            locks: 7,
            barrier_times: vec![30_000; 40],
            lock_times: vec![(70, 100), (20_000, 11), (90_000, 9)],
        };
        let after = Counted {
            messages: 100,
            diffs: 3,
            user: 0.2,
            system: 0.2,
            ..Counted::default()
        };
        let outcome = Outcome {
            seconds: 1.5,
            told: vec![told.clone(), told],
            before: Counted::default(),
            after,
        };
        let run = put_together(&PROGRAMS[0], "release", &outcome);
        assert_eq!((run.seconds, run.barriers, run.locks), (1.5, 5, 14));
        assert_eq!(run.diffs, 3);
        let typical = |micros, count| Some(Typical { micros, count });
        let locks = (22.0 * 20.0 + 14.0 * 90.0) / 36.0;
        let found = run.lock_wait.unwrap();
        assert!(
            (found.micros - locks).abs() < 0.01,
            "{found:?}: locks of this node stay out"
        );
        assert_eq!((found.count, run.barrier_wait), (40, typical(30.0, 40)));
        assert_eq!(run.fault_wait, None);
        let shares = run.shares;
        let all = shares.computation + shares.kernel + shares.pagemesh + shares.idle;
        assert!((all - 1.0).abs() < 1e-9, "{all}");
        assert!((shares.kernel - 0.15).abs() < 1e-9);
    }
}
