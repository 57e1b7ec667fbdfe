//! The plan of a seed: hosts, network, segments, programs and faults.
//!
//! Every seed draws the features that it has, so that some runs have nothing but locks and others
//! all features at once.

mod large;

use crate::dice::Dice;
use crate::network::Weather;
use crate::run::Options;
use crate::step::{BarrierPlan, ClientPlan, Fault, HostPlan, QueuePlan, SegmentPlan};
use crate::workload;
use crate::world::Setting;
use pagemesh_core::limits::{
    AHEAD, LARGE_DIFF, LARGE_DIFFS_SHOWN, LEFT_TO_READER, NOTICES_KEPT, TWINS_KEPT,
};
use pagemesh_core::{Pace, Time};
use pagemesh_wire::peer::{Manager, Policy, Window};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use large::Large;

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;

/// How bad network and faults are in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// No faults.
    Calm,
    /// Up to 10 % loss, short cuts and pauses, processes that die, hosts that leave.
    #[default]
    Mild,
    /// Up to 30 % loss, longer cuts and pauses, slow hosts, crashes.
    Harsh,
    /// As `Harsh`, and garbage on the wire, cuts so long that living hosts are declared dead, and
    /// hosts that leave under load.
    Wild,
}

impl Profile {
    fn is_harsh(self) -> bool {
        matches!(self, Self::Harsh | Self::Wild)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Calm => "calm",
            Self::Mild => "mild",
            Self::Harsh => "harsh",
            Self::Wild => "wild",
        })
    }
}

impl FromStr for Profile {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "calm" => Ok(Self::Calm),
            "mild" => Ok(Self::Mild),
            "harsh" => Ok(Self::Harsh),
            "wild" => Ok(Self::Wild),
            _ => Err("a profile is calm, mild, harsh or wild"),
        }
    }
}

/// The plan of a seed.
pub(crate) struct Plan {
    pub(crate) setting: Setting,
    pub(crate) clients: Vec<ClientPlan>,
    /// The number of main segments, which come first.
    pub(crate) mains: usize,
    pub(crate) heal_at: Time,
    pub(crate) doomed: Vec<usize>,
    pub(crate) leavers: Vec<usize>,
}

/// The features that a seed has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) locks: bool,
    pub(crate) barriers: bool,
    pub(crate) queues: bool,
    pub(crate) watches: bool,
    pub(crate) pins: bool,
    pub(crate) tenants: bool,
    pub(crate) several_mappings: bool,
    pub(crate) inquiries: bool,
    pub(crate) impatience: bool,
    pub(crate) client_deaths: bool,
    pub(crate) leaves: bool,
    pub(crate) crashes: bool,
    pub(crate) late_hosts: bool,
    pub(crate) home_anywhere: bool,
    /// Several processes create one name exclusively.
    pub(crate) races: bool,
    /// A host is cut off until it is declared dead.
    pub(crate) burials: bool,
    /// A host leaves while its processes still work.
    pub(crate) abrupt_leaves: bool,
    /// Threads walk through segments of many pages.
    pub(crate) strolls: bool,
    /// Processes save segments.
    pub(crate) holds: bool,
    /// Hosts have less memory than their segments have pages.
    pub(crate) pressure: bool,
}

impl Features {
    fn draw(seed: u64, dice: &mut Dice, profile: Profile) -> Self {
        let mut wild = Dice::stream(seed, "wild");
        let mut sometimes = |per_mille| profile == Profile::Wild && wild.chance(per_mille);
        let mut often = |per_mille| dice.chance(per_mille);
        let troubled = profile != Profile::Calm;
        Self {
            locks: often(600),
            barriers: often(400),
            queues: often(300),
            watches: often(300),
            pins: often(250),
            tenants: often(300),
            several_mappings: often(500),
            inquiries: often(300),
            impatience: often(200),
            client_deaths: often(300) && troubled,
            leaves: often(250),
            crashes: often(300) && profile.is_harsh(),
            late_hosts: often(300),
            home_anywhere: often(500),
            races: sometimes(300),
            burials: sometimes(300),
            abrupt_leaves: sometimes(300),
            strolls: Dice::stream(seed, "strolls").chance(400),
            holds: Dice::stream(seed, "holds").chance(300),
            pressure: Dice::stream(seed, "pressure").chance(400),
        }
    }
}

impl Features {
    /// The features of a run. A takeover is hard enough: no other host dies, joins late or leaves
    /// meanwhile.
    fn drawn(options: &Options, dice: &mut Dice) -> Self {
        let drawn = Self::draw(options.seed, dice, options.profile);
        if !options.takeover && !options.resume && !options.etcd {
            return drawn;
        }
        Self {
            crashes: false,
            late_hosts: false,
            leaves: false,
            burials: false,
            abrupt_leaves: false,
            races: false,
            ..drawn
        }
    }
}

/// How many pages are asked for ahead, and how many of a burst are left to another reader.
const STROLLS: [(u32, u8); 3] = [(3, 2), (16, 2), (AHEAD, LEFT_TO_READER)];

impl Plan {
    /// The plan of one seed.
    pub(crate) fn draw(options: &Options) -> Self {
        if let Some(large) = options.large {
            return large::draw(options, large);
        }
        let Options {
            seed,
            profile,
            canary,
            log,
            ..
        } = *options;
        let headless = options.takeover || options.resume || options.etcd;
        let mut dice = Dice::stream(seed, "plan");
        let features = Features::drawn(options, &mut dice);
        let most = if profile.is_harsh() { 6 } else { 5 };
        let count = dice.between(if headless { 3 } else { 2 }, most) as usize;
        let mut hosts: Vec<HostPlan> = (0..count)
            .map(|at| host(&mut dice, at, profile, features))
            .collect();
        let mut pace = pace(&mut dice);
        pace.resend_ceiling = pace.resend_ceiling.max(bearable(&hosts));
        let weather = weather(&mut dice, profile);
        let (mut segments, mains) = segments(&mut dice, features);
        if features.strolls {
            let mut dice = Dice::stream(seed, "grounds");
            (pace.ahead, pace.left_to_reader) = *dice.pick(&STROLLS);
            for ground in &mut segments[..mains] {
                ground.pages += dice.between(10, 60) as u32;
            }
        }
        let crashing = crashing(&mut dice, count, features);
        let leavers = leavers(&mut dice, count, features, &crashing);
        let crash_at = Time(dice.between(MILLI, 40 * MILLI));
        hosts.extend(successors(&mut dice, &crashing, crash_at));
        let mut dice = Dice::stream(seed, "fates");
        let buried = features
            .burials
            .then(|| other_host(&mut dice, count, &crashing))
            .flatten();
        let mut doomed = crashing.clone();
        doomed.extend(headless.then_some(0));
        doomed.extend(buried);
        let hasty = features
            .abrupt_leaves
            .then(|| other_host(&mut dice, count, &doomed))
            .flatten();
        doomed.extend(hasty);
        let leavers = leavers
            .into_iter()
            .filter(|host| !doomed.contains(host))
            .collect();
        let mut setting = Setting {
            recorded: Dice::stream(seed, "recorded").chance(250),
            replace: false,
            turns: Dice::stream(seed, "turns").chance(500),
            upgrades: options.upgrade,
            standby: false,
            keeps: false,
            elected: false,
            far: false,
            traps_late: Dice::stream(seed, "traps").chance(500),
            takeovers: 0,
            carried: crate::ways::carried(seed),
            sealed: Dice::stream(seed, "sealed").chance(125),
            seed,
            hosts,
            pace,
            weather,
            segments,
            queues: Vec::<QueuePlan>::new(),
            barriers: Vec::<BarrierPlan>::new(),
            faults: Vec::new(),
            repeats: *dice.pick(&[0, 100, 500]),
            canary,
            log,
        };
        let mut dice = Dice::stream(seed, "workload");
        let clients = workload::draw(&mut dice, features, &mut setting, mains, &doomed);
        let mut dice = Dice::stream(seed, "faults");
        let mut heal_at = Time(dice.between(20 * MILLI, 300 * MILLI));
        setting.faults = faults(&mut dice, profile, features, count, &clients, heal_at);
        let crash = |host: &usize| (crash_at, Fault::Crash { host: *host });
        setting.faults.extend(crashing.iter().map(crash));
        let soon = Time(dice.between(MILLI, 20 * MILLI));
        if let Some(host) = buried {
            let cut = cut_off(host, count, BURIED);
            setting.faults.push((soon, cut));
            heal_at = Time(soon.0 + BURIED);
        }
        setting
            .faults
            .extend(hasty.map(|host| (soon, Fault::Leave { host })));
        heal_at = more_faults(options, features, &mut setting, heal_at);
        Self {
            setting,
            clients,
            mains,
            heal_at,
            doomed,
            leavers,
        }
    }
}

/// For so long a host is cut off that is to be declared dead.
const BURIED: u64 = 5_000 * MILLI;

/// A host of so many is cut off from all others.
fn cut_off(host: usize, count: usize, length: u64) -> Fault {
    let others = (0..count).filter(|other| *other != host);
    let pairs = others
        .flat_map(|other| [(host, other), (other, host)])
        .collect();
    Fault::Cut { pairs, length }
}

/// What else befalls hosts. Returns when all is well again.
fn more_faults(
    options: &Options,
    features: Features,
    setting: &mut Setting,
    heal_at: Time,
) -> Time {
    press(options.seed, features, setting, heal_at);
    upgrade(options.seed, setting, heal_at);
    first_fails(options, setting).unwrap_or(heal_at)
}

/// The first host fails in some way, if that is asked for. Returns when all is well again.
fn first_fails(options: &Options, setting: &mut Setting) -> Option<Time> {
    if options.takeover {
        setting.standby = true;
        return Some(without_the_first(options.seed, setting));
    }
    if options.etcd {
        return Some(etcd_elects(options.seed, setting));
    }
    options.resume.then(|| first_resumes(options.seed, setting))
}

/// The coordinator dies or stands still, in some seeds a member with it, or the next one as well, and
/// etcd elects another. Before and meanwhile etcd is out of reach now and then, and in some seeds a
/// host asks the one that fails for admission. Returns when all is well again.
fn etcd_elects(seed: u64, setting: &mut Setting) -> Time {
    let mut dice = Dice::stream(seed, "etcd");
    (setting.keeps, setting.elected) = (true, true);
    let at = Time(dice.between(MILLI, 60 * MILLI));
    let crash = dice.chance(600);
    let mut others = Dice::stream(seed, "etcd and others");
    let hosts = setting.hosts.len();
    let with = (hosts > 3 && others.chance(300)).then(|| 1 + others.index(hosts - 1));
    setting.faults.push((at, Fault::FirstFails { crash, with }));
    let mut end = Time(at.0 + 12_000 * MILLI);
    for _ in 0..dice.below(4) {
        let one = dice.chance(500);
        let host = one.then(|| dice.index(setting.hosts.len()));
        let length = *dice.pick(&[5 * MILLI, 300 * MILLI, 4_000 * MILLI]);
        let from = Time(dice.between(0, at.0 + 4_000 * MILLI));
        setting
            .faults
            .push((from, Fault::EtcdFails { host, length }));
    }
    // Two hosts are left, and one of those may be cut off from etcd.
    if hosts - usize::from(with.is_some()) > 3 && dice.chance(400) {
        let again = Time(at.0 + dice.between(0, 6_000 * MILLI));
        setting.faults.push((again, Fault::CoordinatorFails));
        end = Time(again.0 + 20_000 * MILLI);
    }
    if others.chance(300) {
        let mut late = setting.hosts[1].clone();
        late.starts_at = at.0 + others.below(2_000 * MILLI);
        setting.hosts.push(late);
    }
    end
}

/// The first host's daemon dies or stands still until another one coordinates. Returns when all is
/// well again.
fn without_the_first(seed: u64, setting: &mut Setting) -> Time {
    let mut dice = Dice::stream(seed, "takeover");
    let at = Time(dice.between(MILLI, 60 * MILLI));
    let crash = dice.chance(500);
    let with = None;
    setting.faults.push((at, Fault::FirstFails { crash, with }));
    // Nothing else may stand still for so long that it counts as dead.
    let promote = Time(at.0 + dice.between(0, 4_000 * MILLI));
    setting.faults.push((promote, Fault::Promote));
    setting.takeovers = 1;
    Time(promote.0 + 12_000 * MILLI)
}

/// Hosts have little memory, now more, now less, until all is well again.
fn press(seed: u64, features: Features, setting: &mut Setting, heal_at: Time) {
    if !features.pressure {
        return;
    }
    let hosts = setting.hosts.len();
    let mut dice = Dice::stream(seed, "pressed");
    for _ in 0..dice.between(2, 20) {
        let fault = Fault::Press {
            host: dice.index(hosts),
            frames: dice.below(5) as u32,
            anywhere: dice.chance(700),
        };
        let at = Time(dice.between(0, heal_at.0));
        setting.faults.push((at, fault));
    }
    let relieved = |host| Fault::Press {
        host,
        frames: u32::MAX,
        anywhere: false,
    };
    let relieved = (0..hosts).map(|host| (heal_at, relieved(host)));
    setting.faults.extend(relieved);
}

/// Daemons are replaced by ones of another program, until all is well again: then all are new.
fn upgrade(seed: u64, setting: &mut Setting, heal_at: Time) {
    if !setting.upgrades {
        return;
    }
    let hosts = setting.hosts.len();
    let mut dice = Dice::stream(seed, "upgrades");
    for _ in 0..dice.between(3, 20) {
        let fault = Fault::Upgrade {
            host: dice.index(hosts),
            old: dice.chance(400),
        };
        setting
            .faults
            .push((Time(dice.between(0, heal_at.0)), fault));
    }
    let renewed = |host| (heal_at, Fault::Upgrade { host, old: false });
    setting.faults.extend((0..hosts).map(renewed));
}

/// The first host's daemon is killed, and goes on from its disk; in some seeds it is killed once
/// more, soon or late. Returns when all is well again.
fn first_resumes(seed: u64, setting: &mut Setting) -> Time {
    let mut dice = Dice::stream(seed, "resume");
    setting.keeps = true;
    setting.standby = dice.chance(500);
    let at = Time(dice.between(MILLI, 60 * MILLI));
    let (crash, with) = (true, None);
    setting.faults.push((at, Fault::FirstFails { crash, with }));
    let resume = Time(at.0 + *dice.pick(&[MILLI, 100 * MILLI, 3_000 * MILLI]));
    setting.faults.push((resume, Fault::Resume));
    if dice.chance(400) {
        let again = Time(resume.0 + dice.between(100 * MICRO, 30 * MILLI));
        setting.faults.push((again, Fault::KillAgain));
        setting.faults.push((Time(again.0 + MILLI), Fault::Resume));
    }
    Time(resume.0 + 12_000 * MILLI)
}

fn host(dice: &mut Dice, at: usize, profile: Profile, features: Features) -> HostPlan {
    let late = at > 0 && features.late_hosts && dice.chance(400);
    let sluggish = profile.is_harsh() && dice.chance(200);
    HostPlan {
        successor_of: None,
        resumes: None,
        starts_at: if late {
            dice.below(20 * MILLI)
        } else {
            dice.below(100 * MICRO) * at as u64
        },
        clock_offset: dice.below(1 << 50),
        cost: dice.between(300, 3_000) * if sluggish { 50 } else { 1 },
        wake: *dice.pick(&[2 * MICRO, 20 * MICRO, 200 * MICRO, 3 * MILLI]),
    }
}

pub(crate) fn pace(dice: &mut Dice) -> Pace {
    let resend_first = Duration::from_micros(*dice.pick(&[300, 1_000, 10_000]));
    Pace {
        resend_first,
        resend_soonest: resend_first / 5,
        resend_ceiling: resend_first * *dice.pick(&[8, 64]),
        heartbeat: Duration::from_millis(*dice.pick(&[100, 200])),
        dead_after: Duration::from_secs(3),
        ahead: AHEAD,
        notices: NOTICES_KEPT,
        twins: TWINS_KEPT,
        large_diff: LARGE_DIFF,
        shown: LARGE_DIFFS_SHOWN,
        left_to_reader: LEFT_TO_READER,
        frames_at_once: 3,
    }
}

/// The least ceiling of resend intervals that the slowest host bears. With real times it could
/// answer some 100,000 resent messages a second; below a hundred it would do nothing else, and no
/// node would ever get its turn (wild seed 431175119).
fn bearable(hosts: &[HostPlan]) -> Duration {
    let slowest = hosts.iter().map(|host| host.cost).max().unwrap_or(0);
    Duration::from_nanos(100 * slowest)
}

pub(crate) fn weather(dice: &mut Dice, profile: Profile) -> Weather {
    let base = dice.between(5 * MICRO, 40 * MICRO);
    let jitter = dice.pick(&[0, 1, 4, 20]) * base;
    let calm = Weather {
        base,
        jitter,
        ..Weather::default()
    };
    match profile {
        Profile::Calm => calm,
        Profile::Mild => Weather {
            late: *dice.pick(&[0, 10, 50]),
            latest: dice.between(100 * MICRO, 3 * MILLI),
            loss: *dice.pick(&[0, 10, 50, 100]),
            twice: *dice.pick(&[0, 10, 50]),
            ..calm
        },
        Profile::Harsh | Profile::Wild => Weather {
            garbage: if profile == Profile::Wild { 30 } else { 0 },
            late: *dice.pick(&[0, 50, 200]),
            latest: dice.between(MILLI, 40 * MILLI),
            loss: *dice.pick(&[0, 50, 150, 300]),
            twice: *dice.pick(&[0, 50, 300]),
            ..calm
        },
    }
}

fn segments(dice: &mut Dice, features: Features) -> (Vec<SegmentPlan>, usize) {
    let mains = dice.between(1, 3) as usize;
    let tenants = if features.tenants { 3 } else { 0 };
    let segment = |at: usize| {
        let manager = *dice.pick(&[Manager::Dynamic, Manager::Fixed]);
        let window = match dice.below(4) {
            0 => Window::Auto,
            1 | 2 => Window::Nanos(0),
            _ => Window::Nanos(dice.between(MICRO, 2 * MILLI)),
        };
        SegmentPlan {
            name: if at < mains {
                format!("main{at}")
            } else {
                format!("let{}", at - mains)
            },
            pages: dice.between(1, 6) as u32,
            policy: Policy::Sequential { manager, window },
            replicas: 0,
        }
    };
    let mut segments: Vec<SegmentPlan> = (0..mains + tenants).map(segment).collect();
    if features.races {
        segments.push(SegmentPlan {
            name: "race".into(),
            pages: 1,
            policy: Policy::default(),
            replicas: 0,
        });
    }
    (segments, mains)
}

/// Some host, but not the coordinator and none of these; none if too few would be left.
fn other_host(dice: &mut Dice, hosts: usize, taken: &[usize]) -> Option<usize> {
    let free: Vec<usize> = (1..hosts).filter(|host| !taken.contains(host)).collect();
    (free.len() > 1).then(|| *dice.pick(&free))
}

/// Hosts that will crash; never the coordinator, and never all others.
fn crashing(dice: &mut Dice, hosts: usize, features: Features) -> Vec<usize> {
    let mut doomed = Vec::new();
    if features.crashes && hosts > 2 {
        doomed.push(dice.between(1, hosts as u64 - 1) as usize);
    }
    doomed
}

fn leavers(dice: &mut Dice, hosts: usize, features: Features, doomed: &[usize]) -> Vec<usize> {
    let mut leaves = |host: &usize| features.leaves && !doomed.contains(host) && dice.chance(400);
    (1..hosts).filter(|host| leaves(host)).collect()
}

fn faults(
    dice: &mut Dice,
    profile: Profile,
    features: Features,
    hosts: usize,
    clients: &[ClientPlan],
    heal_at: Time,
) -> Vec<(Time, Fault)> {
    let mut faults = Vec::new();
    // Most runs are over long before they are healed: trouble comes early.
    let soon = |dice: &mut Dice| {
        let span = if dice.chance(700) {
            heal_at.0 / 10
        } else {
            heal_at.0
        };
        Time(dice.between(10 * MICRO, span))
    };
    let (rounds, longest) = match profile {
        Profile::Calm => (0, 0),
        Profile::Mild => (dice.below(4), 10 * MILLI),
        Profile::Harsh | Profile::Wild => (dice.below(8), 80 * MILLI),
    };
    for _ in 0..rounds {
        let length = dice.between(50 * MICRO, longest);
        let fault = match dice.below(4) {
            0 | 1 => Fault::Cut {
                pairs: cut(dice, hosts),
                length,
            },
            2 => Fault::Pause {
                host: dice.index(hosts),
                length,
            },
            _ => Fault::Slow {
                host: dice.index(hosts),
                factor: dice.between(5, 100),
                length,
            },
        };
        faults.push((soon(dice), fault));
    }
    if features.client_deaths {
        // No other thread relies on a client without a farewell.
        for (client, _) in clients
            .iter()
            .enumerate()
            .filter(|(_, plan)| plan.farewell.is_empty())
        {
            if dice.chance(600) {
                faults.push((soon(dice), Fault::ClientDies { client }));
            }
        }
    }
    faults
}

/// Hosts that come in the place of crashed ones: a new life, perhaps at the same
/// address, perhaps before anybody has noticed the death.
fn successors(dice: &mut Dice, doomed: &[usize], crash_at: Time) -> Vec<HostPlan> {
    let mut successors = Vec::new();
    for host in doomed {
        if dice.chance(600) {
            let pause = *dice.pick(&[10 * MICRO, 5 * MILLI, 100 * MILLI, 4_000 * MILLI]);
            successors.push(HostPlan {
                starts_at: crash_at.0 + pause,
                successor_of: dice.chance(600).then_some(*host),
                resumes: None,
                clock_offset: dice.below(1 << 50),
                cost: 1_000,
                wake: 20 * MICRO,
            });
        }
    }
    successors
}

/// Some pairs of hosts between which nothing gets through, one way or both.
fn cut(dice: &mut Dice, hosts: usize) -> Vec<(usize, usize)> {
    let alone = dice.index(hosts);
    let (out, back) = *dice.pick(&[(true, true), (true, false), (false, true)]);
    let from_one = dice.chance(500).then(|| dice.index(hosts));
    let others =
        (0..hosts).filter(|other| *other != alone && from_one.is_none_or(|one| one == *other));
    others
        .flat_map(|other| {
            let there = out.then_some((alone, other));
            let here = back.then_some((other, alone));
            there.into_iter().chain(here)
        })
        .collect()
}
