//! The plan of a cluster of many hosts: each uses a few segments of many, and all use the first one.

use super::{Features, MICRO, MILLI, Plan, Profile, faults, weather};
use crate::dice::Dice;
use crate::run::Options;
use crate::step::{ClientPlan, Fault, HostPlan, Place, Seg, SegmentPlan, Step, Sync};
use crate::world::Setting;
use pagemesh_core::{Pace, Time};
use pagemesh_wire::peer::{Manager, Policy, Window};
use std::time::Duration;

/// A cluster of many hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Large {
    /// How many hosts.
    pub nodes: usize,
    /// How many segments.
    pub segments: usize,
}

/// Segments that each host uses, beside the first one.
const USED: usize = 3;

/// Steps of each host.
const STEPS: usize = 12;

/// The word that is incremented under the lock of its page's number.
const COUNTER: usize = 4;

/// One of so many hosts stores to the segment that all read.
const WRITERS: u32 = 20;

/// One of so many hosts vanishes in harsh runs.
const VANISH: usize = 100;

/// The plan of one seed.
pub(super) fn draw(options: &Options, large: Large) -> Plan {
    let Options { seed, profile, .. } = *options;
    let mut dice = Dice::stream(seed, "large");
    let hosts: Vec<_> = (0..large.nodes).map(|at| host(&mut dice, at)).collect();
    let segments: Vec<_> = (0..large.segments)
        .map(|at| segment(&mut dice, at))
        .collect();
    let clients: Vec<_> = (0..large.nodes)
        .map(|at| client(&mut dice, at, &segments))
        .collect();
    let heal_at = Time(dice.between(200 * MILLI, 1_000 * MILLI));
    let features = Features::default();
    let mut faults = faults(&mut dice, profile, features, large.nodes, &clients, heal_at);
    let doomed = doomed(&mut dice, large.nodes, profile);
    for host in &doomed {
        let at = Time(dice.between(MILLI, heal_at.0));
        faults.push((at, Fault::Crash { host: *host }));
    }
    let setting = Setting {
        far: true,
        seed,
        hosts,
        pace: pace(),
        weather: weather(&mut dice, profile),
        segments,
        faults,
        repeats: 100,
        canary: options.canary,
        log: options.log,
        ..Setting::default()
    };
    Plan {
        setting,
        clients,
        mains: large.segments,
        heal_at,
        doomed,
        leavers: Vec::new(),
    }
}

/// All daemons start within a tenth of a second.
fn host(dice: &mut Dice, at: usize) -> HostPlan {
    HostPlan {
        successor_of: None,
        resumes: None,
        starts_at: if at == 0 { 0 } else { dice.below(100 * MILLI) },
        clock_offset: dice.below(1 << 50),
        cost: dice.between(300, 3_000),
        wake: *dice.pick(&[2 * MICRO, 20 * MICRO, 200 * MICRO]),
    }
}

/// As in a real cluster, but for the time after which a member counts as dead.
fn pace() -> Pace {
    Pace {
        resend_first: Duration::from_millis(10),
        resend_soonest: Duration::from_millis(2),
        resend_ceiling: Duration::from_millis(320),
        dead_after: Duration::from_secs(3),
        ..Pace::default()
    }
}

fn segment(dice: &mut Dice, at: usize) -> SegmentPlan {
    SegmentPlan {
        name: format!("main{at}"),
        pages: dice.between(1, 3) as u32,
        policy: Policy::Sequential {
            manager: *dice.pick(&[Manager::Dynamic, Manager::Fixed]),
            window: *dice.pick(&[Window::Auto, Window::Nanos(0)]),
        },
        replicas: 0,
    }
}

/// Hosts that vanish; the first one coordinates.
fn doomed(dice: &mut Dice, hosts: usize, profile: Profile) -> Vec<usize> {
    let count = if profile.is_harsh() {
        hosts / VANISH
    } else {
        0
    };
    let mut doomed: Vec<_> = (0..count).map(|_| 1 + dice.index(hosts - 1)).collect();
    doomed.sort_unstable();
    doomed.dedup();
    doomed
}

/// A process that uses the first segment and a few others.
fn client(dice: &mut Dice, host: usize, segments: &[SegmentPlan]) -> ClientPlan {
    let mut used = vec![0, host % segments.len()];
    used.extend((1..USED).map(|_| dice.index(segments.len())));
    used.sort_unstable();
    used.dedup();
    let mut steps = vec![Step::Begin];
    for name in &used {
        let seg = Seg::Main(*name);
        steps.push(Step::Open {
            seg,
            name: *name,
            create: true,
            exclusive: false,
            write: true,
        });
        steps.push(Step::Map(seg));
    }
    let writes_first = dice.below(u64::from(WRITERS)) == 0;
    for _ in 0..STEPS {
        let name = *dice.pick(&used);
        let place = |dice: &mut Dice, word| Place {
            seg: Seg::Main(name),
            mapping: 0,
            page: dice.below(u64::from(segments[name].pages)) as u32,
            word,
        };
        let word = dice.index(COUNTER);
        let somewhere = place(dice, word);
        steps.push(match dice.below(10) {
            _ if name == 0 && !writes_first => Step::Load(somewhere),
            0..=3 => Step::Load(somewhere),
            4..=7 => Step::Store(somewhere, None),
            _ => {
                let counter = place(dice, COUNTER);
                Step::Locked {
                    lock: Sync {
                        seg: name,
                        number: u64::from(counter.page),
                    },
                    patience: None,
                    body: vec![Step::Add(counter, 1)],
                }
            }
        });
    }
    for name in &used {
        steps.push(Step::Unmap(Seg::Main(*name)));
        steps.push(Step::Close(Seg::Main(*name)));
    }
    ClientPlan {
        host,
        programs: vec![steps],
        farewell: Vec::new(),
    }
}
