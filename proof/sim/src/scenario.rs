//! Transcripts: a few nodes, a few accesses, and every datagram that is sent.
//!
//! A transcript is a list of commands. Below each stand, indented, the datagrams it caused and its
//! result. Running it produces the same text again, or the behaviour has changed. All checkers run
//! as in random runs; time is simulated and nothing is random.
//!
//! ```text
//! nodes N                              segment NAME pages=K [manager=fixed] [window=30us] [home=n1]
//! read nX NAME:PAGE[.WORD] [expect V]  write nX NAME:PAGE[.WORD] V     start read|write ...
//! lock nX NAME/K                       unlock nX NAME/K                start lock ...
//! barrier nX,nY,... NAME/K             watch nX NAME:PAGE              pin|unpin nX NAME:PAGE
//! hold|endhold nX NAME
//! drop|hold|twice nX->nY KIND [times=N]   release                      cut nX->nY 5ms
//! run 5ms      stabilize      crash nX      leave nX      rights NAME:PAGE
//! standby (before nodes)      promote nX
//! expect datagrams N [KIND]    expect rights nX NAME:PAGE read|write|none    expect waiting N
//! ```
//!
//! A segment of policy `release` (`policy=release`, `release-eager`, `release-hybrid` or `release-invalidate`, and
//! `notices=N` for the bound of write notices) is simulated with real diffs, in
//! [`crate::labelled`]. There a word is one byte, accesses have to be ordered by locks and
//! barriers, and every node takes part in the one barrier, 1000.

pub(crate) mod command;

use crate::check::{Check, ensure};
use crate::dice::Dice;
use crate::kernel::{PageKey, ThreadId};
use crate::labelled;
use crate::network::Weather;
use crate::process::State;
use crate::run::without_panic;
use crate::step::{BarrierPlan, ClientPlan, HostPlan, Place, Seg, SegmentPlan, Step, Sync};
use crate::world::{Setting, World};
use command::{Command, Expectation, Lockable, Operation, Word};
use pagemesh_core::{Rights, Time};
use pagemesh_wire::PageIndex;

const MILLI: u64 = 1_000_000;
/// An operation that takes longer is stuck.
const PATIENCE: u64 = 30_000 * MILLI;
/// After an operation its last datagrams still travel.
const SETTLE: u64 = MILLI;
/// Longer than any scenario.
const FOREVER: u64 = 1 << 60;

/// Runs a transcript. Returns it with everything indented as it happened now.
///
/// # Errors
/// If a command makes no sense, an expectation does not hold, or an invariant
/// is broken; the text says where.
pub fn rewrite_scenario(text: &str) -> Result<String, String> {
    if text.lines().any(is_of_release) {
        let mut stage = labelled::Stage::default();
        return rewrite(text, |command| stage.perform(command));
    }
    let mut stage = Stage::new();
    rewrite(text, |command| {
        without_panic(|| stage.perform(command)).map_err(|broken| {
            let log = std::mem::replace(&mut stage.world.log, crate::log::Log::new(false));
            format!("{broken}\n{}", tail(&log.into_lines()))
        })?;
        Ok(std::mem::take(&mut stage.said))
    })
}

/// Whether a line makes a segment of policy `release`, which has a simulation of its own.
fn is_of_release(line: &str) -> bool {
    line.starts_with("segment ") && line.contains(" policy=release")
}

/// Performs the commands of a transcript, and writes the effects of each below it.
fn rewrite(
    text: &str,
    mut perform: impl FnMut(Command) -> Result<Vec<String>, String>,
) -> Result<String, String> {
    let mut script = String::new();
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("  ") {
            continue;
        }
        script.push_str(line);
        script.push('\n');
        let words = line.split('#').next().unwrap_or_default().trim();
        if words.is_empty() {
            continue;
        }
        let place = |why: String| format!("line {}: {line}\n{why}", number + 1);
        let said = Command::parse(words)
            .and_then(&mut perform)
            .map_err(place)?;
        for said in said {
            script.push_str("  ");
            script.push_str(&said);
            script.push('\n');
        }
    }
    Ok(script)
}

/// The last lines of a log.
pub(crate) fn tail(lines: &[String]) -> String {
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Whether a line is a command.
pub(crate) fn makes_sense(line: &str) -> bool {
    Command::parse(line).is_ok()
}

/// The world of one transcript.
struct Stage {
    world: World,
    /// The process of each host.
    actors: Vec<usize>,
    /// Datagrams of the last command that was no expectation.
    caused: Vec<String>,
    /// The lines below the command.
    said: Vec<String>,
}

impl Stage {
    fn new() -> Self {
        let setting = Setting {
            recorded: true,
            weather: Weather {
                base: 10_000,
                ..Weather::default()
            },
            log: true,
            ..Setting::default()
        };
        let mut world = World::new(setting);
        world.traffic.transcript = Some(Vec::new());
        world.dice = Dice::stream(0, "scenario");
        Self {
            world,
            actors: Vec::new(),
            caused: Vec::new(),
            said: Vec::new(),
        }
    }

    fn perform(&mut self, command: Command) -> Check {
        match command {
            Command::Expect(expectation) => return self.expect(&expectation),
            Command::Nodes(count) => self.add_nodes(count)?,
            Command::Segment { plan, home, .. } => self.add_segment(plan, home)?,
            Command::Operate(host, operation) => self.operate(host, &operation, true)?,
            Command::Start(host, operation) => self.operate(host, &operation, false)?,
            Command::Unlock(host, lock) => self.unlock(host, &lock)?,
            Command::Barrier(hosts, barrier) => self.barrier(&hosts, &barrier)?,
            Command::Meddle(rule) => self.world.network.add_rule(rule),
            Command::Release => {
                for (to, source, bytes) in std::mem::take(&mut self.world.traffic.held) {
                    self.world.arrival(to, source, bytes);
                }
                self.run(SETTLE)?;
            }
            Command::Cut(from, to, length) => {
                let until = Time(self.world.now.0 + length);
                self.world.network.cut(from, to, until);
            }
            Command::Run(length) => self.run(length)?,
            Command::Stabilize => self.stabilize()?,
            Command::Crash(host) => self.world.crash(host, "crashes")?,
            Command::Leave(host) => {
                self.spawn(host, vec![Step::Leave]);
                self.run_until(|world| world.hosts[host].life != crate::world::Life::Up)?;
            }
            Command::Standby => self.world.setting.standby = true,
            Command::Promote(host) => {
                let thread = self.spawn(host, vec![Step::Promote]);
                self.run_until(|world| world.processes.threads[thread.0].state == State::Ended)?;
                ensure!(
                    self.world.stats.promotions > 0,
                    Scenario,
                    "n{} is not promoted",
                    host + 1
                );
                self.run(SETTLE)?;
            }
            Command::Rights(page) => self.tell_rights(&page)?,
        }
        if let Some(transcript) = &mut self.world.traffic.transcript {
            self.caused = std::mem::take(transcript);
        }
        let told = std::mem::take(&mut self.said);
        self.said = self.caused.iter().cloned().chain(told).collect();
        Ok(())
    }

    fn add_nodes(&mut self, count: usize) -> Check {
        for _ in 0..count {
            let host = self.world.hosts.len();
            let plan = HostPlan {
                starts_at: 0,
                successor_of: None,
                resumes: None,
                clock_offset: 0,
                cost: 1_000,
                wake: 1_000,
            };
            self.world.add_host(plan);
            self.run_until(|world| world.hosts[host].id.is_some())?;
            let stay = vec![Step::Begin, Step::Think(FOREVER)];
            let plan = ClientPlan {
                host,
                programs: vec![stay],
                farewell: Vec::new(),
            };
            let actor = self.world.spawn_client(plan);
            self.actors.push(actor);
            self.run(SETTLE)?;
        }
        self.forget_transcript();
        Ok(())
    }

    /// Creates a segment at its home, then opens and maps it everywhere.
    fn add_segment(&mut self, plan: SegmentPlan, home: usize) -> Check {
        let number = self.world.setting.segments.len();
        self.world.setting.segments.push(plan);
        for client in &mut self.world.processes.clients {
            client.open.push(None);
        }
        let seg = Seg::Main(number);
        let others = (0..self.actors.len()).filter(|host| *host != home);
        for host in std::iter::once(home).chain(others.collect::<Vec<_>>()) {
            let create = host == home;
            let open = Step::Open {
                seg,
                name: number,
                create,
                exclusive: create,
                write: true,
            };
            let thread = self.spawn(host, vec![open, Step::Map(seg)]);
            self.run_until(|world| world.processes.threads[thread.0].state == State::Ended)?;
        }
        self.run(SETTLE)?;
        self.forget_transcript();
        Ok(())
    }

    /// Setting the stage is not part of the play.
    fn forget_transcript(&mut self) {
        self.world.traffic.transcript = Some(Vec::new());
    }

    fn spawn(&mut self, host: usize, steps: Vec<Step>) -> ThreadId {
        self.world.spawn_thread(self.actors[host], steps)
    }

    fn operate(&mut self, host: usize, operation: &Operation, wait: bool) -> Check {
        let step = self.step_of(operation)?;
        let thread = self.spawn(host, vec![step]);
        if !wait {
            return self.run(SETTLE);
        }
        let locks = matches!(operation, Operation::Lock(_));
        self.run_until(|world| {
            let thread = &world.processes.threads[thread.0];
            thread.state == State::Ended || locks && thread.holds.is_some()
        })?;
        let failed = self.world.processes.threads[thread.0].failed;
        let loaded = self.world.processes.threads[thread.0].last;
        if failed {
            self.said.push(format!("n{} is refused", host + 1));
        } else if let Operation::Read { expect, .. } = operation {
            ensure!(
                expect.is_none_or(|expect| expect == loaded),
                Scenario,
                "n{} reads {loaded}",
                host + 1
            );
            self.said.push(format!("n{} reads {loaded}", host + 1));
        }
        self.run(SETTLE)
    }

    fn step_of(&self, operation: &Operation) -> Check<Step> {
        Ok(match operation {
            Operation::Read { word, .. } => Step::Load(self.place(word)?),
            Operation::Write { word, value } => Step::Store(self.place(word)?, Some(*value)),
            Operation::Lock(lock) => Step::Locked {
                lock: self.sync(lock)?,
                patience: None,
                body: vec![Step::Think(FOREVER)],
            },
            Operation::Watch(word) => Step::WatchBriefly(self.place(word)?, FOREVER),
            Operation::Pin(word) => Step::Pin {
                seg: self.number(&word.segment)?,
                first: word.page,
                count: 1,
            },
            Operation::Hold(name) => Step::Hold(self.number(name)?),
            Operation::EndHold(name) => Step::EndHold(self.number(name)?),
            Operation::Unpin(word) => Step::Unpin {
                seg: self.number(&word.segment)?,
                first: word.page,
                count: 1,
            },
        })
    }

    fn number(&self, name: &str) -> Check<usize> {
        let number = self
            .world
            .setting
            .segments
            .iter()
            .position(|segment| segment.name == name);
        ensure!(number.is_some(), Scenario, "there is no segment {name}");
        Ok(number.unwrap_or_default())
    }

    fn place(&self, word: &Word) -> Check<Place> {
        let seg = Seg::Main(self.number(&word.segment)?);
        Ok(Place {
            seg,
            mapping: 0,
            page: word.page,
            word: word.word,
        })
    }

    fn sync(&self, lock: &Lockable) -> Check<Sync> {
        Ok(Sync {
            seg: self.number(&lock.segment)?,
            number: lock.number,
        })
    }

    fn unlock(&mut self, host: usize, lock: &Lockable) -> Check {
        let sync = self.sync(lock)?;
        let threads = 0..self.world.processes.threads.len();
        let holder = threads.map(ThreadId).find(|id| {
            let thread = &self.world.processes.threads[id.0];
            thread.client == self.actors[host]
                && thread.holds.is_some()
                && thread.holds == self.world.processes.sync_key(*id, sync)
        });
        let Some(holder) = holder else {
            ensure!(false, Scenario, "n{} does not hold that lock", host + 1);
            return Ok(());
        };
        self.world.run_after(holder, 0);
        self.run_until(|world| world.processes.threads[holder.0].state == State::Ended)?;
        self.run(SETTLE)
    }

    fn barrier(&mut self, hosts: &[usize], barrier: &Lockable) -> Check {
        let number = self.world.setting.barriers.len();
        let plan = BarrierPlan {
            sync: self.sync(barrier)?,
            parties: hosts.len() as u32,
        };
        self.world.setting.barriers.push(plan);
        let come = |host: &usize| {
            self.world
                .spawn_thread(self.actors[*host], vec![Step::Barrier(number)])
        };
        let threads: Vec<ThreadId> = hosts.iter().map(come).collect();
        self.run_until(|world| {
            threads
                .iter()
                .all(|thread| world.processes.threads[thread.0].state == State::Ended)
        })?;
        self.run(SETTLE)
    }

    fn run(&mut self, length: u64) -> Check {
        let end = Time(self.world.now.0 + length);
        while self.world.next_time().is_some_and(|next| next <= end) {
            self.world.step()?;
        }
        self.world.now = end;
        Ok(())
    }

    fn run_until(&mut self, done: impl Fn(&World) -> bool) -> Check {
        let end = Time(self.world.now.0 + PATIENCE);
        while !done(&self.world) {
            let stuck = self.world.next_time().is_none_or(|next| next > end);
            ensure!(
                !stuck,
                Progress,
                "it does not end within {} ms",
                PATIENCE / MILLI
            );
            self.world.step()?;
        }
        Ok(())
    }

    /// Runs until no datagram was sent for longer than the slowest repetition.
    fn stabilize(&mut self) -> Check {
        let silence = 2 * self.world.setting.pace.resend_ceiling.as_nanos() as u64;
        let end = self.world.now.0 + PATIENCE;
        loop {
            let since = self.world.traffic.last_message.0;
            let quiet = since + silence;
            if self.world.now.0 >= quiet {
                return Ok(());
            }
            self.run(quiet - self.world.now.0)?;
            ensure!(self.world.now.0 < end, Quiet, "messages do not cease");
        }
    }

    fn key(&self, word: &Word) -> Check<PageKey> {
        let number = self.number(&word.segment)?;
        let opened = self
            .world
            .processes
            .clients
            .iter()
            .find_map(|client| client.open[number].as_ref());
        ensure!(
            opened.is_some(),
            Scenario,
            "{} is open nowhere",
            word.segment
        );
        let segment = opened.map(|opened| opened.segment).unwrap_or_default();
        Ok(PageKey {
            segment,
            page: PageIndex(word.page),
        })
    }

    fn tell_rights(&mut self, word: &Word) -> Check {
        let key = self.key(word)?;
        let rights = self.world.up().map(|host| {
            format!(
                "n{} {}",
                host + 1,
                name(self.world.hosts[host].kernel.rights(key))
            )
        });
        let line = rights.collect::<Vec<_>>().join(", ");
        self.said.push(line);
        Ok(())
    }

    fn expect(&mut self, expectation: &Expectation) -> Check {
        match expectation {
            Expectation::Datagrams(count, kind) => {
                let of_kind = |line: &&String| {
                    kind.as_ref()
                        .is_none_or(|kind| line.split(' ').nth(1) == Some(kind.as_str()))
                };
                let seen = self.caused.iter().filter(of_kind).count();
                ensure!(
                    seen == *count,
                    Scenario,
                    "there were {seen}:\n{}",
                    self.caused.join("\n")
                );
            }
            Expectation::Rights(host, word, rights) => {
                let key = self.key(word)?;
                let has = self.world.hosts[*host].kernel.rights(key);
                ensure!(has == *rights, Scenario, "n{} has {}", host + 1, name(has));
            }
            Expectation::Waiting(count) => {
                let waits = |thread: &&crate::process::Thread| {
                    matches!(thread.state, State::Waiting { .. } | State::Faulting { .. })
                };
                let waiting = self.world.processes.threads.iter().filter(waits).count();
                ensure!(waiting == *count, Scenario, "{waiting} threads wait");
            }
        }
        Ok(())
    }
}

fn name(rights: Rights) -> &'static str {
    match rights {
        Rights::None => "none",
        Rights::Read => "read",
        Rights::Write => "write",
    }
}
