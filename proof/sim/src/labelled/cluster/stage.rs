//! Scenarios of policy `release`: one thread on each host follows the script, and every datagram is
//! written down.

use super::threads::BARRIER;
use super::{Cluster, Plan};
use crate::dice::Dice;
use crate::labelled::Labelled;
use crate::labelled::program::Step;
use crate::network::{Fate, Meddling, is_sign_of_life, kind};
use crate::plan::Profile;
use crate::scenario::command::{Command, Expectation, Lockable, Operation, Word};
use crate::scenario::tail;
use crate::small::Check;
use crate::step::SegmentPlan;
use crate::transcript::say;
use pagemesh_core::Time;
use pagemesh_wire::PAGE_SIZE;
use pagemesh_wire::peer::{Message, Subject};

const MILLI: u64 = 1_000_000;
/// An operation that takes longer is stuck.
const PATIENCE: u64 = 60_000 * MILLI;
/// After an operation its last datagrams still travel.
const SETTLE: u64 = MILLI;

/// The datagrams that a scenario sees.
pub(super) struct Transcript {
    /// The name of the segment.
    segment: String,
    lines: Vec<String>,
}

/// The cluster of one transcript.
#[derive(Default)]
pub(crate) struct Stage {
    nodes: usize,
    cluster: Option<Cluster>,
    /// The name of the segment.
    segment: String,
    /// Datagrams of the last command that was no expectation.
    caused: Vec<String>,
}

impl Stage {
    /// Performs a command. Returns the datagrams that it caused, and its result.
    pub(crate) fn perform(&mut self, command: Command) -> Check<Vec<String>> {
        match command {
            Command::Nodes(count) => {
                self.nodes = count;
                return Ok(Vec::new());
            }
            Command::Segment {
                plan,
                home,
                notices,
            } => {
                self.begin(plan, home, notices)?;
                return Ok(Vec::new());
            }
            Command::Expect(expectation) => {
                self.expect(&expectation)?;
                return Ok(Vec::new());
            }
            _ => {}
        }
        let words = Words {
            segment: &self.segment,
        };
        let Some(cluster) = &mut self.cluster else {
            return Err("there is no segment yet".into());
        };
        let found = cluster.perform(&words, command).map_err(|why| {
            let log = cluster.log.lines();
            let log: Vec<_> = log.lines().map(String::from).collect();
            format!("{}\n{why}", tail(&log))
        })?;
        let transcript = cluster.transcript.as_mut();
        self.caused = transcript.map_or_else(Vec::new, |all| std::mem::take(&mut all.lines));
        Ok(self.caused.iter().cloned().chain(found).collect())
    }

    /// Makes the cluster; each thread opens the segment.
    fn begin(&mut self, plan: SegmentPlan, home: usize, notices: Option<u32>) -> Check {
        let options = Labelled {
            seed: 1,
            profile: Profile::Calm,
            planted: None,
            replicas: 0,
        };
        let mut dice = Dice::stream(options.seed, "scenario");
        let segment = (plan.pages as usize, plan.policy);
        let drawn = Plan::of_scenario(&mut dice, (self.nodes, home), segment, notices);
        let mut cluster = Cluster::of(drawn, dice, options);
        self.segment = plan.name.clone();
        cluster.run_until(|cluster| cluster.threads.iter().all(|thread| thread.opened))?;
        cluster.run_for(SETTLE)?;
        cluster.transcript = Some(Transcript {
            segment: plan.name,
            lines: Vec::new(),
        });
        self.cluster = Some(cluster);
        Ok(())
    }

    fn expect(&self, expectation: &Expectation) -> Check {
        let (count, seen) = match expectation {
            Expectation::Datagrams(count, kind) => {
                let of_kind = |line: &&String| {
                    kind.as_ref()
                        .is_none_or(|kind| line.split(' ').nth(1) == Some(kind.as_str()))
                };
                (*count, self.caused.iter().filter(of_kind).count())
            }
            Expectation::Waiting(count) => {
                let threads = self.cluster.iter().flat_map(|cluster| &cluster.threads);
                let waiting = threads.filter(|thread| !thread.steps.is_empty());
                (*count, waiting.count())
            }
            Expectation::Rights(..) => return Err("rights are not shown under release".into()),
        };
        if count == seen {
            Ok(())
        } else {
            Err(format!("{seen} of {expectation:?}"))
        }
    }
}

/// How the words of a script are read.
struct Words<'a> {
    segment: &'a str,
}

impl Words<'_> {
    fn byte(&self, word: &Word) -> Check<usize> {
        self.is_segment(&word.segment)?;
        Ok(word.page as usize * PAGE_SIZE + word.word)
    }

    fn lock(&self, lock: &Lockable) -> Check<u64> {
        self.is_segment(&lock.segment)?;
        Ok(lock.number)
    }

    fn is_segment(&self, name: &str) -> Check {
        if name == self.segment {
            return Ok(());
        }
        Err(format!("there is no segment {name}"))
    }

    fn step(&self, operation: &Operation) -> Check<Step> {
        Ok(match operation {
            Operation::Read { word, .. } => Step::Load(self.byte(word)?),
            Operation::Write { word, value } => {
                let value = u8::try_from(*value).map_err(|_| format!("{value} is no byte"))?;
                Step::Put(self.byte(word)?, value)
            }
            Operation::Lock(lock) => Step::Lock(self.lock(lock)?),
            Operation::Watch(_)
            | Operation::Pin(_)
            | Operation::Unpin(_)
            | Operation::Hold(_)
            | Operation::EndHold(_) => {
                return Err("policy release refuses this".into());
            }
        })
    }
}

impl Cluster {
    fn perform(&mut self, words: &Words<'_>, command: Command) -> Check<Vec<String>> {
        let mut found = Vec::new();
        match command {
            Command::Operate(host, operation) => {
                let failed = self.sighted.failed;
                self.take_steps(&[host], words.step(&operation)?)?;
                if self.sighted.failed > failed {
                    found.push(format!("n{} is refused", host + 1));
                } else if let Operation::Read { expect, .. } = operation {
                    let loaded = u64::from(self.loaded);
                    if expect.is_some_and(|expect| expect != loaded) {
                        return Err(format!("n{} reads {loaded}", host + 1));
                    }
                    found.push(format!("n{} reads {loaded}", host + 1));
                }
            }
            Command::Start(host, operation) => self.start(host, words.step(&operation)?)?,
            Command::Unlock(host, lock) => {
                self.take_steps(&[host], Step::Unlock(words.lock(&lock)?))?;
            }
            Command::Barrier(hosts, lock) => {
                if words.lock(&lock)? != BARRIER {
                    return Err(format!("the barrier here has number {BARRIER}"));
                }
                let living = self
                    .threads
                    .iter()
                    .filter(|thread| self.takes_part(thread.host));
                if living.count() != hosts.len() {
                    return Err("every node takes part in every barrier here".into());
                }
                self.take_steps(&hosts, Step::Barrier(hosts.len() as u32))?;
            }
            Command::Leave(host) => self.take_steps(&[host], Step::Leave)?,
            Command::Crash(host) => self.crash(host),
            Command::Run(nanos) => self.run_for(nanos)?,
            Command::Cut(from, to, nanos) => {
                let until = Time(self.queue.now().0 + nanos);
                self.network.cut(from, to, until);
            }
            Command::Meddle(rule) if rule.then != Meddling::Hold => self.network.add_rule(rule),
            other => return Err(format!("not under policy release: {other:?}")),
        }
        Ok(found)
    }

    fn takes_part(&self, host: usize) -> bool {
        !self.hosts[host].gone && !self.left.contains(&host)
    }

    fn start(&mut self, host: usize, step: Step) -> Check {
        if host >= self.hosts.len() || !self.takes_part(host) {
            return Err(format!("n{} is not there", host + 1));
        }
        if !self.threads[host].steps.is_empty() {
            return Err(format!("n{} waits for something else", host + 1));
        }
        self.threads[host].steps.push_back(step);
        self.run_at(Time(self.queue.now().0 + 1), host);
        self.run_for(SETTLE)
    }

    /// These hosts do a step, in this order.
    fn take_steps(&mut self, hosts: &[usize], step: Step) -> Check {
        for host in hosts {
            self.start(*host, step)?;
        }
        self.run_until(|cluster| {
            let mut threads = hosts.iter().map(|host| &cluster.threads[*host]);
            threads.all(|thread| thread.steps.is_empty())
        })?;
        self.run_for(SETTLE)
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> Check {
        let end = self.queue.now().0 + PATIENCE;
        while !done(self) {
            self.happen_next(end)?
                .then_some(())
                .ok_or_else(|| format!("it does not end\n{}", self.who_hangs()))?;
        }
        Ok(())
    }

    fn run_for(&mut self, nanos: u64) -> Check {
        let end = self.queue.now().0 + nanos;
        while self.happen_next(end)? {}
        self.queue.pass(Time(end));
        Ok(())
    }

    /// The next thing happens; returns false if there is none until `end`.
    fn happen_next(&mut self, end: u64) -> Check<bool> {
        if self.queue.next_time().is_none_or(|at| at.0 > end) {
            return Ok(false);
        }
        if let Some(event) = self.queue.next() {
            self.happen(event)?;
        }
        Ok(true)
    }

    /// Writes down a datagram, if a scenario wants to see them.
    pub(super) fn transcribe(&mut self, host: usize, to: usize, message: &Message, fate: Fate) {
        let Some(transcript) = &mut self.transcript else {
            return;
        };
        if is_sign_of_life(kind(message)) {
            return;
        }
        let fate = match fate {
            Fate::Lost | Fate::Held => " (lost)",
            Fate::Arrives(_, Some(_)) => " (twice)",
            Fate::Arrives(_, None) => "",
        };
        let segment = &transcript.segment;
        let name = |subject| match subject {
            Subject::Page { page, .. } => format!("{segment}:{page}"),
            Subject::Lock(key) => format!("{segment}/{}", key.number),
        };
        let said = say(message, &name);
        let line = format!("n{}->n{} {said}{fate}", host + 1, to + 1);
        transcript.lines.push(line);
    }
}
