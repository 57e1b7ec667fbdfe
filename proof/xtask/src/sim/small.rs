//! `cargo xtask sim --labelled | --views | --private | --churn`: the small simulators.

use super::Arguments;
use pagemesh_sim::{
    Labelled, Private, Profile, RejoinRun, ViewsRun, labelled, private, private_told, rejoin,
    sequential, views, views_told,
};
use std::time::Instant;

/// The small simulators.
#[derive(Clone, Copy, Debug)]
pub(super) enum Small {
    /// With a replica, or not.
    Labelled(bool),
    /// The same programs and racing ones under policy `sequential`, with a replica.
    Sequential,
    Views,
    Private,
    /// Until so many lives have joined.
    Churn(u64),
}

/// What is counted, and how often it happened.
type Counts = Vec<(&'static str, u64)>;

impl Small {
    /// The option of `cargo xtask sim`.
    fn option(self) -> &'static str {
        match self {
            Self::Labelled(_) | Self::Sequential => "--labelled",
            Self::Views => "--views",
            Self::Private => "--private",
            Self::Churn(_) => "--churn",
        }
    }

    /// Further options of the run.
    fn settings(self) -> String {
        match self {
            Self::Churn(joins) => format!(" --joins {joins}"),
            Self::Labelled(true) => " --replicas".into(),
            Self::Sequential => " --replicas --sequential".into(),
            _ => String::new(),
        }
    }

    fn run(self, seed: u64, profile: Profile) -> Result<Counts, String> {
        match self {
            Self::Labelled(replica) => labelled(Labelled {
                seed,
                profile,
                planted: None,
                replicas: replica.into(),
            })
            .map(|seen| {
                vec![
                    ("loads compared", seen.loads),
                    ("diffs merged", seen.merged),
                    ("hosts vanished", seen.crashed),
                    ("while all was on two", seen.survived),
                    ("accesses of lost pages", seen.failed),
                ]
            }),
            Self::Sequential => sequential(Labelled {
                seed,
                profile,
                planted: None,
                replicas: 1,
            })
            .map(|seen| {
                vec![
                    ("loads compared", seen.loads),
                    ("stores", seen.stores),
                    ("datagrams", seen.datagrams),
                    ("hosts vanished", seen.crashed),
                    ("while all was on two", seen.survived),
                    ("accesses of lost pages", seen.failed),
                ]
            }),
            Self::Views => views(of_views(seed, profile)).map(|seen| {
                vec![
                    ("loads checked", seen.loads),
                    ("moves", seen.moves),
                    ("publications", seen.published),
                    ("hosts vanished", seen.crashed),
                    ("pages regained", seen.regained),
                    ("accesses of lost pages", seen.lost),
                ]
            }),
            Self::Private => private(of_private(seed, profile)).map(|seen| {
                vec![
                    ("loads compared", seen.loads),
                    ("pages lent", seen.lent),
                    ("fetched", seen.fetched),
                    ("forged", seen.forged),
                    ("hosts vanished", seen.crashed),
                ]
            }),
            Self::Churn(joins) => rejoin(RejoinRun {
                seed,
                profile,
                planted: None,
                churn: Some(joins),
            })
            .map(|seen| {
                vec![
                    ("accesses checked", seen.accesses),
                    ("locks", seen.locked),
                    ("lives joined", seen.joined),
                    ("left", seen.left),
                    ("vanished", seen.vanished),
                    ("joined again by themselves", seen.rejoined),
                    ("checks that freed numbers", seen.freed),
                    ("datagrams", seen.datagrams),
                ]
            }),
        }
    }

    /// The whole log of a seed, and what it broke.
    fn told(self, seed: u64, profile: Profile) -> (String, Option<String>) {
        match self {
            Self::Labelled(_) | Self::Sequential | Self::Churn(_) => {
                (String::new(), self.run(seed, profile).err())
            }
            Self::Views => {
                let (log, result) = views_told(of_views(seed, profile));
                (log, result.err())
            }
            Self::Private => {
                let (log, result) = private_told(of_private(seed, profile));
                (log, result.err())
            }
        }
    }
}

/// Every second seed has a segment with a replica.
fn of_views(seed: u64, profile: Profile) -> ViewsRun {
    ViewsRun {
        seed,
        profile,
        replicas: (seed % 2) as u8,
        planted: None,
    }
}

fn of_private(seed: u64, profile: Profile) -> Private {
    Private {
        seed,
        profile,
        planted: None,
    }
}

/// One seed, or many seeds and a summary.
pub(super) fn run(arguments: &Arguments, small: Small) -> anyhow::Result<()> {
    let profile = arguments.profile;
    if let Some(seed) = arguments.seed.filter(|_| arguments.log) {
        let (log, why) = small.told(seed, profile);
        println!("{log}");
        if let Some(why) = why {
            anyhow::bail!("seed {seed}, {profile}: {}", last_lines(&why, 1));
        }
        println!("seed {seed}, {profile} holds");
        return Ok(());
    }
    let from = arguments.seed.unwrap_or(arguments.from);
    let count = arguments.seed.map_or_else(|| arguments.count(), |_| 1);
    let (start, mut wrong) = (Instant::now(), 0);
    let mut all = Counts::new();
    for seed in from..from + count {
        match small.run(seed, profile) {
            Ok(counts) => add(&mut all, counts),
            Err(why) if arguments.keep_going => {
                wrong += 1;
                println!("seed {seed}: {}", last_lines(&why, 1));
            }
            Err(why) => {
                let again = format!(
                    "cargo xtask sim {}{} --seed {seed} --profile {profile}",
                    small.option(),
                    small.settings()
                );
                let shown = last_lines(&why, arguments.lines);
                anyhow::bail!("seed {seed}, {profile}:\n{shown}\nreplay: {again}");
            }
        }
    }
    let told: Vec<_> = all.iter().map(|(what, n)| format!("{n} {what}")).collect();
    let took = start.elapsed().as_secs_f64();
    println!("{count} seeds: {}; {took:.1} s", told.join(", "));
    anyhow::ensure!(wrong == 0, "{wrong} seeds failed");
    Ok(())
}

fn add(all: &mut Counts, counts: Counts) {
    if all.is_empty() {
        *all = counts;
        return;
    }
    for ((_, sum), (_, more)) in all.iter_mut().zip(counts) {
        *sum += more;
    }
}

fn last_lines(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
