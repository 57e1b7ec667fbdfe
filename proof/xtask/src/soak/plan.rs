//! The possible parts, and how often each comes.

use super::child::Programs;
use pagemesh_sim::{Profile, Target};

/// One thing to run.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// Simulated clusters.
    Sim(Profile),
    /// Hostile bytes.
    Fuzz(Target),
    /// A test, in a process of its own.
    Test(Test),
}

/// A test of some test program.
#[derive(Clone, Debug)]
pub(super) struct Test {
    /// As the test program calls it.
    pub(super) name: String,
    /// Which of [`super::child::PROGRAMS`] has it.
    pub(super) program: usize,
}

/// Parts of one kind, drawn together.
struct Group {
    weight: u64,
    parts: Vec<Part>,
}

/// All parts.
pub(super) struct Plan(Vec<Group>);

/// How often which tests are drawn, by how their names begin: those of the real
/// clusters, those that hammer pages that are taken away, with their control, and
/// those that throw hostile bytes at decoders. A test whose name has none of these
/// in it comes as often as one of [`OTHERS`].
const WEIGHTS: [(&str, u64); 10] = [
    ("stress::", 30),
    ("mortality::", 15),
    ("litmus::", 15),
    ("process_deaths::", 6),
    ("daemon_deaths::", 6),
    ("private_deaths::", 6),
    ("replica_deaths::", 6),
    ("hostile", 3),
    ("no_store_is_lost", 4),
    ("the_hammer_notices", 2),
];

/// The share of all other tests of real clusters.
const OTHERS: u64 = 15;

/// The share of the fuzz targets.
const FUZZ: u64 = 5;

/// The share of each profile of the simulator.
const SIM: [(Profile, u64); 4] = [
    (Profile::Calm, 2),
    (Profile::Mild, 10),
    (Profile::Harsh, 10),
    (Profile::Wild, 6),
];

impl Part {
    /// For people.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Sim(profile) => format!("sim {profile}"),
            Self::Fuzz(target) => format!("fuzz {target}"),
            Self::Test(test) => test.name.clone(),
        }
    }
}

impl Test {
    /// As part of a path.
    pub(super) fn file_name(&self) -> String {
        self.name.replace("::", "-")
    }

    /// The place of its group.
    fn group(&self) -> usize {
        let begins = |(prefix, _): &(&str, u64)| self.name.contains(prefix);
        WEIGHTS.iter().position(begins).unwrap_or(WEIGHTS.len())
    }
}

impl Plan {
    /// All parts whose names contain `only`.
    pub(super) fn new(programs: &Programs, only: Option<&str>) -> Self {
        let wanted = |part: &Part| only.is_none_or(|text| part.name().contains(text));
        let sims = SIM.map(|(profile, weight)| (weight, vec![Part::Sim(profile)]));
        let fuzz = Target::ALL.map(Part::Fuzz).to_vec();
        let mut groups: Vec<Group> = sims
            .into_iter()
            .chain([(FUZZ, fuzz)])
            .chain(WEIGHTS.map(|(_, weight)| (weight, Vec::new())))
            .chain([(OTHERS, Vec::new())])
            .map(|(weight, parts)| Group { weight, parts })
            .collect();
        for test in programs.tests() {
            let group = SIM.len() + 1 + test.group();
            groups[group].parts.push(Part::Test(test.clone()));
        }
        for group in &mut groups {
            group.parts.retain(wanted);
        }
        groups.retain(|group| !group.parts.is_empty());
        Self(groups)
    }

    /// Whether there is nothing to run.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Chooses a part at random.
    pub(super) fn draw(&self, dice: &mut Dice) -> Part {
        let all: u64 = self.0.iter().map(|group| group.weight).sum();
        let mut place = dice.next() % all;
        let group = self.0.iter().find(|group| {
            let here = place < group.weight;
            place = place.saturating_sub(group.weight);
            here
        });
        let parts = &group.expect("the weights add up").parts;
        parts[(dice.next() % parts.len() as u64) as usize].clone()
    }
}

/// SplitMix64: the same seed, the same soak.
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// The next number.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
