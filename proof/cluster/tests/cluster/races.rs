//! Two nodes write the same bytes, and no lock or barrier is between them: that is
//! told, and nothing else is.

use crate::c_examples::library_of;
use crate::release::{labelled, release};
use crate::support::{Cluster, eventually, load, store};
use crate::tmk::{HERE, compile, run};
use pagemesh_cli::sandbox::Plan;
use pagemesh_wire::NodeId;
use pagemesh_wire::PAGE_SIZE;
use pagemesh_wire::local::{RaceLine, Reply, Request};
use std::collections::{BTreeMap, BTreeSet};

/// Daemons that look for races.
fn watchful(nodes: usize) -> Plan {
    let mut plan = Plan::new(nodes);
    plan.daemon_args.push("--check-races".to_owned());
    plan
}

/// The races that all daemons together have noticed, with the names of their bytes.
fn named(cluster: &Cluster) -> BTreeMap<RaceLine, String> {
    let mut all = BTreeMap::new();
    for node in cluster.nodes() {
        let mut control = node.control().unwrap();
        let Reply::Races(report) = control.ask(Request::Races { first: 0 }).unwrap() else {
            panic!("no races are told");
        };
        assert!(report.looked_for);
        assert_eq!(report.lines.len(), report.names.len());
        all.extend(report.lines.into_iter().zip(report.names));
    }
    all
}

fn noticed(cluster: &Cluster) -> BTreeSet<RaceLine> {
    named(cluster).into_keys().collect()
}

#[test]
fn a_planted_race_is_told_with_its_place_and_its_nodes() {
    let Some(cluster) = Cluster::of(watchful(3)) else {
        return;
    };
    const RACED: std::ops::Range<usize> = 1..8;
    let maps = cluster.share_with("raced", RACED.end as u64, release());
    std::thread::scope(|scope| {
        for (node, memory) in maps.iter().enumerate() {
            scope.spawn(move || {
                let barrier = memory.segment().barrier(1, 3);
                // A late process would learn, at its first access, of stores made before it came,
                // and that is no race. A copy that is made late has the other's stores already.
                (0..RACED.end).for_each(|page| {
                    load(memory, page * PAGE_SIZE);
                });
                for page in RACED {
                    barrier.wait().unwrap();
                    // Nodes 1 and 2 write the word 5 of the page; all write neighbours. The home,
                    // node 0, would know of the others' stores when they have come to the barrier.
                    let page = page * PAGE_SIZE;
                    if node != 0 {
                        store(memory, page + 40, 0x0101_0101_0101_0101 * (node as u64 + 1));
                    }
                    store(memory, page + 80 + 8 * node, 7);
                    let guard = memory.segment().lock(1).lock().unwrap();
                    store(memory, 0, load(memory, 0) + 1);
                    guard.unlock();
                }
                barrier.wait().unwrap();
            });
        }
    });
    // The pages are not touched again, and yet each race is noticed.
    let raced = |race: &RaceLine| race.page.0 as usize;
    let pages = |races: &BTreeSet<RaceLine>| races.iter().map(raced).collect::<BTreeSet<_>>();
    eventually("all races are noticed", || {
        pages(&noticed(&cluster)) == RACED.collect()
    });
    for race in noticed(&cluster) {
        assert_eq!((race.begin, race.end), (40, 48), "{race:?}");
        assert_eq!((race.one, race.other), (NodeId(2), NodeId(3)), "{race:?}");
    }
    let counted: u64 = (0..3)
        .map(|node| cluster.counter(node, "races_found"))
        .sum();
    assert!(counted >= RACED.len() as u64);
}

#[test]
fn a_race_goes_by_the_name_of_the_variable_that_points_there() {
    for policy in ["release", "eager", "hybrid"] {
        let Some(cluster) = Cluster::of(watchful(2)) else {
            return;
        };
        let directory = library_of(&cluster);
        let source = format!("{HERE}/tests/cluster/c/raced.c");
        let program = compile(&directory, "raced", "cc", &[&source, "-lpagemesh"]);
        let stored = directory.join("stored");
        let arguments = format!("{} -- --policy {policy}", stored.display());
        let said = run(&cluster, &program, "raced", &arguments);
        assert_eq!(said, [["raced"], ["raced"]]);
        eventually("both races are noticed", || noticed(&cluster).len() >= 2);
        let races = named(&cluster);
        let mut names: Vec<_> = races.values().map(String::as_str).collect();
        names.sort_unstable();
        // Of the numbers only some bytes differ.
        let one = |name: &str| matches!(name, "*grid + 806" | "*grid + 807");
        assert!(names.iter().any(|name| one(name)), "{policy}: {races:?}");
        assert!(names.contains(&"*rows[2] + 56"), "{policy}: {races:?}");
        assert!(names.iter().all(|name| name.starts_with('*')), "{races:?}");
    }
}

#[test]
fn properly_labelled_programs_have_no_races() {
    for plan in [watchful(2), watchful(4)] {
        labelled(plan, 1, release(), |_| {});
    }
}
