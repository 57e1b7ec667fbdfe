//! One run: trouble, healing, read-out, silence.

use crate::canary::Canary;
use crate::check::{Check, Invariant, Violation, ensure};
use crate::golden::WORDS;
use crate::kernel::PageKey;
use crate::plan::{Large, Plan, Profile};
use crate::step::{ClientPlan, Place, Seg, Step};
use crate::world::{Life, Stats, World};
use pagemesh_core::Time;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

const SECOND: u64 = 1_000_000_000;

/// After healing, everything that was begun must end within this time: resends
/// at their slowest, deaths to be noticed, pins to expire, one after the other.
const PATIENCE: u64 = 60 * SECOND;

/// More happenings than any sound run has.
const HAPPENINGS: u64 = 3_000_000;

/// In large clusters each host adds so many.
const HAPPENINGS_OF_HOST: u64 = 20_000;

/// The options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// How hard.
    pub profile: Profile,
    /// A bug to plant.
    pub canary: Option<Canary>,
    /// Kill daemons again and again, and replace them from their journals.
    pub replace: bool,
    /// The first host's daemon dies or stands still, and the standby is promoted.
    pub takeover: bool,
    /// The first host's daemon is killed, once or twice, and goes on from its disk.
    pub resume: bool,
    /// The coordinator dies or stands still, and etcd elects another.
    pub etcd: bool,
    /// Daemons are replaced by ones of another program, newer or older, again and again.
    pub upgrade: bool,
    /// A cluster of many hosts, without all other features.
    pub large: Option<Large>,
    /// Keep the text of the log.
    pub log: bool,
}

impl Options {
    /// The coordinator at the start does not stay it.
    pub(crate) fn first_fails(&self) -> bool {
        self.takeover || self.resume || self.etcd
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The options.
    pub options: Options,
    /// The counts.
    pub stats: Stats,
    /// The hash of the log.
    pub hash: u64,
    /// The invariant that was broken, if any, and when.
    pub failure: Option<(Time, Violation)>,
    /// The log, if it was kept.
    pub lines: Vec<String>,
}

/// Runs one seed.
#[must_use]
pub fn run(options: Options) -> Outcome {
    let plan = Plan::draw(&options);
    let mut setting = plan.setting.clone();
    setting.replace = options.replace || options.canary == Some(Canary::RedoBlind);
    setting.recorded |= setting.replace;
    let mut world = World::new(setting);
    world.losses.expected = plan.doomed.clone();
    world.processes.leavers = plan.leavers.clone();
    let result = without_panic(|| phases(&mut world, plan));
    let now = world.now;
    let mut stats = world.stats;
    stats.simulated = now.0;
    Outcome {
        options,
        stats,
        hash: world.log.hash(),
        failure: result.err().map(|violation| (now, violation)),
        lines: world.log.into_lines(),
    }
}

fn phases(world: &mut World, plan: Plan) -> Check {
    for client in plan.clients {
        world.spawn_client(client);
    }
    run_until(world, plan.heal_at)?;
    if world.setting.standby || world.setting.keeps {
        // Programs may have ended before the standby is promoted, and the first host fails later than
        // planned if another one was admitted late.
        let heal_at = |world: &World| Time(plan.heal_at.0 + world.losses.late.min(PATIENCE));
        while world.next_time().is_some_and(|next| next <= heal_at(world)) {
            world.step()?;
        }
    }
    world.heal();
    finish(world)?;
    read_out(world, plan.mains)?;
    world.checkers.judge()?;
    close_down(world)
}

/// Runs until all threads have ended or the time has come.
fn run_until(world: &mut World, end: Time) -> Check {
    let happenings = HAPPENINGS + HAPPENINGS_OF_HOST * world.hosts.len() as u64;
    while world.processes.unfinished > 0 && world.next_time().is_some_and(|next| next <= end) {
        world.step()?;
        ensure!(
            world.stats.happenings < happenings,
            Progress,
            "{happenings} things have happened and there is no end\n{}",
            describe(world)
        );
    }
    Ok(())
}

/// Runs until all threads have ended; they must.
fn finish(world: &mut World) -> Check {
    let end = Time(world.now.0 + PATIENCE);
    run_until(world, end)?;
    let stuck = world.stuck();
    if !stuck.is_empty() {
        ensure!(
            false,
            Progress,
            "{} threads did not end within {} s of simulated time\n{}",
            stuck.len(),
            PATIENCE / SECOND,
            describe(world)
        );
    }
    for client in 0..world.processes.clients.len() {
        // Processes that waited for the dead one are killed, too.
        world.kill_client(client);
    }
    Ok(())
}

fn describe(world: &World) -> String {
    let stuck = world
        .stuck()
        .into_iter()
        .map(|id| world.processes.describe_thread(id));
    stuck.collect::<Vec<_>>().join("\n")
}

/// Every word of every main segment is read on every host; in a large cluster, of the first one on
/// every host, and of each other one on some host.
fn read_out(world: &mut World, mains: usize) -> Check {
    let first = world.up().next();
    let hosts: Vec<_> = world.up().collect();
    for (at, &host) in hosts.iter().enumerate() {
        let mut steps = vec![Step::Begin];
        let far = world.setting.far;
        let reads = |name: &usize| !far || *name == 0 || name % hosts.len() == at;
        for name in (0..mains).filter(reads) {
            let seg = Seg::Main(name);
            steps.push(Step::Open {
                seg,
                name,
                create: far || Some(host) == first,
                exclusive: false,
                write: false,
            });
            steps.push(Step::Map(seg));
            for page in 0..world.setting.segments[name].pages {
                let load = |word| {
                    Step::Load(Place {
                        seg,
                        mapping: 0,
                        page,
                        word,
                    })
                };
                steps.extend((0..WORDS).map(load));
            }
            steps.push(Step::Unmap(seg));
            steps.push(Step::Close(seg));
        }
        world.spawn_client(ClientPlan {
            host,
            programs: vec![steps],
            farewell: Vec::new(),
        });
    }
    finish(world)
}

/// Every name is removed; then there must be silence, and no memory kept.
fn close_down(world: &mut World) -> Check {
    let mut steps = vec![Step::Begin];
    steps.extend((0..world.setting.segments.len()).map(Step::Remove));
    let host = world.up().next().unwrap_or(0);
    world.spawn_client(ClientPlan {
        host,
        programs: vec![steps],
        farewell: Vec::new(),
    });
    finish(world)?;
    let ceiling = world.setting.pace.resend_ceiling.as_nanos() as u64;
    let settled = Time(world.now.0 + 5 * SECOND + 20 * ceiling);
    let silence = Time(settled.0 + 4 * ceiling);
    while world.next_time().is_some_and(|next| next <= silence) {
        world.step()?;
    }
    check_ghosts(world)?;
    check_coordinator(world)?;
    check_spoken(world)?;
    world.check_journals()?;
    ensure!(
        world.traffic.last_message <= settled,
        Quiet,
        "the last message left at {}, {} after everything was over",
        world.traffic.last_message,
        Time(world.traffic.last_message.0 - settled.0)
    );
    if !world.losses.crashed {
        for (at, host) in world.hosts.iter().enumerate() {
            let kept: Vec<PageKey> = host.kernel.resident().collect();
            ensure!(kept.is_empty(), NoLeak, "h{} still keeps {kept:?}", at + 1);
        }
    }
    Ok(())
}

/// A node that was declared dead knows it, and of several exclusive creations of a name one
/// succeeded.
fn check_ghosts(world: &World) -> Check {
    for (at, host) in world.hosts.iter().enumerate() {
        ensure!(
            !host.buried || host.life != Life::Up,
            Progress,
            "h{} was declared dead and never hears of it",
            at + 1
        );
    }
    for (name, successes) in &world.processes.created {
        ensure!(
            *successes == 1,
            ExclusiveCreate,
            "{successes} processes created {:?} alone",
            world.setting.segments[*name].name
        );
    }
    Ok(())
}

/// No living node speaks a version that the program of another one does not speak.
fn check_spoken(world: &World) -> Check {
    for at in world.up() {
        let spoken = world.hosts[at].node.spoken();
        for other in world.up() {
            let speaks = world.hosts[other].node.program().speaks;
            ensure!(
                speaks.contains(spoken),
                Spoken,
                "h{} speaks {spoken}, and h{} speaks {speaks}",
                at + 1,
                other + 1
            );
        }
    }
    Ok(())
}

/// All living nodes agree who coordinates; it is one of them, and the one that was promoted.
fn check_coordinator(world: &World) -> Check {
    if !world.setting.standby && !world.setting.keeps {
        return Ok(());
    }
    let known: Vec<_> = world
        .up()
        .map(|host| {
            let control = world.hosts[host]
                .node
                .control(world.hosts[host].clock(world.now));
            (control.coordinator, control.term)
        })
        .collect();
    let first = known.first().copied();
    let coordinator = first.map(|(node, _)| node);
    let lives = world.up().any(|host| world.hosts[host].id == coordinator);
    let agreed = known.iter().all(|one| Some(*one) == first);
    // A coordinator that is killed again may have taken over before or not.
    let promotions = world.stats.promotions;
    let right = match world.setting.keeps {
        true => promotions >= 1,
        false => promotions == world.setting.takeovers,
    };
    ensure!(
        agreed && lives && right,
        Progress,
        "after {} promotions the living nodes know these coordinators and terms: {known:?}",
        world.stats.promotions
    );
    Ok(())
}

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static QUIET: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs something; a panic of the core is a broken invariant like any other.
pub(crate) fn without_panic<T>(run: impl FnOnce() -> Check<T>) -> Check<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.with_borrow(|quiet| *quiet) {
                LAST_PANIC.set(Some(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    QUIET.set(false);
    result.unwrap_or_else(|_| {
        let detail = LAST_PANIC.take().unwrap_or_default();
        Err(Violation {
            invariant: Invariant::NoPanic,
            detail,
        })
    })
}
