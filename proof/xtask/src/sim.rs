//! `cargo xtask sim`: one seed in full, or many seeds and a summary.

mod small;

use pagemesh_sim::{
    Campaign, Canary, Failure, Invariant, LEGEND, Large, Options, Profile, Summary, failure_report,
};
use small::Small;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::process::exit;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run this seed only, and show what it broke.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Run so many seeds; 1000 if that is not said, or 1 with --nodes.
    #[arg(long)]
    seeds: Option<u64>,
    /// Begin with this one.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How hard: calm, mild or harsh.
    #[arg(long, default_value_t = Profile::default())]
    profile: Profile,
    /// Plant a bug that must be found.
    #[arg(long)]
    canary: Option<Canary>,
    /// Kill daemons again and again, and replace them from their journals.
    #[arg(long)]
    replace: bool,
    /// The first host's daemon dies or stands still, and the standby is promoted.
    #[arg(long)]
    takeover: bool,
    /// The first host's daemon is killed, once or twice, and goes on from its disk.
    #[arg(long, conflicts_with = "takeover")]
    resume: bool,
    /// The coordinator dies or stands still, and etcd elects another.
    #[arg(long, conflicts_with_all = ["takeover", "resume"])]
    etcd: bool,
    /// Daemons are replaced by ones of another program, newer or older, again and again.
    #[arg(long, conflicts_with_all = ["takeover", "resume", "etcd"])]
    upgrade: bool,
    /// With --seed: print the whole log, even if nothing broke.
    #[arg(long, requires = "seed")]
    log: bool,
    /// How many of the last lines of the log a failure shows.
    #[arg(long, default_value_t = 100)]
    lines: usize,
    /// Run properly labelled programs in a segment of policy `release` instead.
    #[arg(long, conflicts_with_all = ["canary", "replace", "takeover", "resume", "etcd", "upgrade", "log"])]
    labelled: bool,
    /// With --labelled: the segment has a replica, and a host vanishes in each run.
    #[arg(long, requires = "labelled")]
    replicas: bool,
    /// With --replicas: in a segment of policy `sequential`, with programs that race.
    #[arg(long, requires = "replicas")]
    sequential: bool,
    /// Run random programs in a segment of policy `views` instead.
    #[arg(long, conflicts_with_all = ["canary", "replace", "labelled"])]
    views: bool,
    /// Run programs with private segments larger than their memory instead.
    #[arg(long, conflicts_with_all = ["canary", "replace", "labelled", "views"])]
    private: bool,
    /// Run clusters whose nodes leave, vanish and join again and again instead, so that numbers are
    /// used for many lives.
    #[arg(long, conflicts_with_all = ["canary", "replace", "takeover", "resume", "etcd", "upgrade", "log", "labelled", "views", "private"])]
    churn: bool,
    /// With --churn: how many lives join in each run.
    #[arg(long, default_value_t = 500, requires = "churn")]
    joins: u64,
    /// Run clusters of so many hosts instead, which use many segments.
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..1024), conflicts_with_all = ["replace", "takeover", "resume", "etcd", "upgrade", "labelled", "views", "private", "churn"])]
    nodes: Option<u16>,
    /// With --nodes: of how many segments.
    #[arg(long, default_value_t = 1000, requires = "nodes", value_parser = clap::value_parser!(u16).range(1..))]
    segments: u16,
    /// Run all seeds even if one fails, and count what broke.
    #[arg(long)]
    keep_going: bool,
}

impl Arguments {
    /// How many seeds are run.
    fn count(&self) -> u64 {
        let usual = if self.nodes.is_some() { 1 } else { 1000 };
        self.seeds.unwrap_or(usual)
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let small = [
        (arguments.sequential, Small::Sequential),
        (arguments.labelled, Small::Labelled(arguments.replicas)),
        (arguments.views, Small::Views),
        (arguments.private, Small::Private),
        (arguments.churn, Small::Churn(arguments.joins)),
    ];
    if let Some((_, small)) = small.into_iter().find(|(chosen, _)| *chosen) {
        return small::run(arguments, small);
    }
    match arguments.seed {
        Some(seed) => run_one(arguments, seed),
        None => run_many(arguments),
    }
}

/// The cluster of many hosts that is asked for.
fn large(arguments: &Arguments) -> Option<Large> {
    let nodes = usize::from(arguments.nodes?);
    let segments = usize::from(arguments.segments);
    Some(Large { nodes, segments })
}

fn run_one(arguments: &Arguments, seed: u64) -> anyhow::Result<()> {
    let Arguments {
        profile,
        canary,
        replace,
        takeover,
        resume,
        etcd,
        upgrade,
        log,
        ..
    } = *arguments;
    let large = large(arguments);
    let options = Options {
        seed,
        profile,
        canary,
        replace,
        takeover,
        resume,
        etcd,
        upgrade,
        large,
        log,
    };
    let outcome = pagemesh_sim::run(options);
    if log {
        println!("{LEGEND}");
        for line in &outcome.lines {
            println!("{line}");
        }
    }
    if outcome.failure.is_some() {
        let lines = if log { 0 } else { arguments.lines };
        print!("{}", failure_report(options, lines).unwrap_or_default());
        exit(1);
    }
    let mut summary = Summary {
        seeds: 1,
        slowest: seed,
        ..Summary::default()
    };
    summary.stats = outcome.stats;
    println!("seed {seed} holds, log hash {:016x}", outcome.hash);
    print_summary(&summary);
    Ok(())
}

fn run_many(arguments: &Arguments) -> anyhow::Result<()> {
    let count = arguments.count();
    let Arguments {
        from,
        profile,
        canary,
        replace,
        takeover,
        resume,
        etcd,
        upgrade,
        keep_going,
        ..
    } = *arguments;
    let large = large(arguments);
    let campaign = Campaign {
        from,
        count,
        profile,
        canary,
        replace,
        takeover,
        resume,
        etcd,
        upgrade,
        large,
        stop_at_failure: !keep_going,
    };
    let start = Instant::now();
    let interactive = std::io::stderr().is_terminal();
    let summary = campaign.run(|done| {
        if interactive && done % 50 == 0 {
            let rate = done as f64 / start.elapsed().as_secs_f64();
            eprint!("\r{done}/{count} seeds, {rate:.0}/s ");
            let _ = std::io::stderr().flush();
        }
    });
    if interactive {
        eprintln!();
    }
    print_summary(&summary);
    let took = start.elapsed();
    println!(
        "{:.1} s, {:.0} seeds/s",
        took.as_secs_f64(),
        summary.seeds as f64 / took.as_secs_f64()
    );
    let Some(first) = summary.failures.first() else {
        return Ok(());
    };
    print_failures(&summary);
    let options = Options {
        seed: first.seed,
        profile,
        canary,
        replace,
        takeover,
        resume,
        etcd,
        upgrade,
        large,
        log: false,
    };
    print!(
        "{}",
        failure_report(options, arguments.lines).unwrap_or_default()
    );
    println!(
        "{} of {} seeds broke an invariant",
        summary.failures.len(),
        summary.seeds
    );
    exit(1)
}

/// The broken invariants, each with its first seeds.
fn print_failures(summary: &Summary) {
    let mut broken: BTreeMap<Invariant, Vec<&Failure>> = BTreeMap::new();
    for failure in &summary.failures {
        broken
            .entry(failure.violation.invariant)
            .or_default()
            .push(failure);
    }
    for (invariant, failures) in broken {
        println!(
            "{} was broken by {} seeds:",
            invariant.name(),
            failures.len()
        );
        for failure in failures.iter().take(5) {
            let line = failure.violation.detail.lines().next().unwrap_or_default();
            println!("  seed {} at {}: {line}", failure.seed, failure.at);
        }
    }
}

fn print_summary(summary: &Summary) {
    let stats = &summary.stats;
    println!(
        "{} seeds: {} operations, {} datagrams ({} messages, {} with a page), {} sealed",
        summary.seeds, stats.operations, stats.datagrams, stats.messages, stats.pages, stats.sealed
    );
    println!(
        "faults injected: {} lost, {} doubled, {} others; {} hosts buried alive, {} daemons replaced, \
         {} by another program",
        stats.lost, stats.twice, stats.faults, stats.buried_alive, stats.replaced, stats.upgraded
    );
    println!(
        "worst wait {:?} (seed {}) of {:?} simulated; {} pages left unused, at most {} faults for one access",
        Duration::from_nanos(stats.worst_wait),
        summary.slowest,
        Duration::from_nanos(stats.simulated),
        stats.stolen,
        stats.most_stops
    );
}
