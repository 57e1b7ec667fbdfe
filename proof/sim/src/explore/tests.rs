//! The settings in `explorations/`, each explored to the last state; those in
//! `explorations/large/` take longer and are for `cargo xtask explore`.

use super::{Exploration, Setting, explore, replay};
use crate::canary::Canary;
use crate::small::settings::files;
use crate::workers::for_each;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// More than any exploration of the tests has.
const LIMIT: usize = 2_000_000;

fn setting(path: &Path) -> Setting {
    let text = fs::read_to_string(path).expect("readable");
    Setting::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

#[test]
fn every_state_of_small_clusters_holds() {
    let total = Mutex::new(Exploration::default());
    for_each(files("explorations"), |path| {
        let found = explore(&setting(&path), LIMIT);
        let name = path.file_stem().unwrap_or_default().display();
        println!("{name}: {found}");
        if let Some((violation, tale)) = &found.failure {
            panic!("{name}: {violation}\n{tale}");
        }
        assert!(found.ends > 0, "{name} never ends");
        let mut total = total.lock().expect("nobody panicked");
        total.states += found.states;
        total.steps += found.steps;
    });
    let total = total.into_inner().expect("nobody panicked");
    println!("{} states and {} steps in all", total.states, total.steps);
    assert!(total.states > 5_000_000, "the explorations have shrunk");
}

#[test]
fn large_settings_parse() {
    for path in files("explorations/large") {
        setting(&path);
    }
}

/// Where each planted bug is to be found, and as what.
const TRAPS: &[(Canary, &str, &str)] = &[
    (Canary::EvictMissesMapping, "two-processes", "INV-"),
    (Canary::InvalidateIgnored, "three-lost", "INV-"),
    (
        Canary::ProtectForgotten,
        "two-writers",
        "INV-protect-before-grant",
    ),
    (Canary::StashForgotten, "two-writers", "INV-latest-value"),
    (Canary::LockStolen, "two-locks", "INV-"),
    (Canary::WantedForgotten, "two-locks", "INV-progress"),
    (Canary::PassAckLost, "two-pages", "INV-progress"),
    (Canary::QueueForgotten, "three-queue", "INV-queue-travels"),
    (Canary::HintInvented, "three-lost", "INV-hint-nearer"),
    (Canary::FrameUnlisted, "traps-late", "INV-"),
];

/// And under policy `release`.
const RELEASE_TRAPS: &[(Canary, &str, &str)] = &[
    (Canary::ProtectForgotten, "two-release", "INV-drivers-law"),
    (Canary::StashForgotten, "two-release", "INV-latest-value"),
    (Canary::LockStolen, "release-eager", "INV-mutual-exclusion"),
    (Canary::StashForgotten, "release-crash", "INV-latest-value"),
    (Canary::FrameUnlisted, "release-traps-late", "INV-"),
];

#[test]
fn every_planted_bug_is_found() {
    for (canary, name, invariant) in TRAPS.iter().chain(RELEASE_TRAPS) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("explorations")
            .join(format!("{name}.txt"));
        let found = explore(&setting(&path).with(Some(*canary)), LIMIT);
        let (violation, tale) = found
            .failure
            .unwrap_or_else(|| panic!("{canary} was not found"));
        assert!(
            violation.invariant.name().starts_with(invariant),
            "{canary}: {violation}"
        );
        let again = replay(&tale);
        let same = again
            .as_ref()
            .err()
            .is_none_or(|told| told.contains(&violation.detail));
        assert!(
            same,
            "{canary} is {violation}, but its tale ends otherwise: {again:?}"
        );
    }
    // No thread of an exploration comes to a barrier, no daemon is replaced, none has an etcd, and
    // the explorer does not check that a death was really one when it is told.
    let others = [
        Canary::BarrierLeaks,
        Canary::RedoBlind,
        Canary::DeathInvented,
        Canary::KeptTooSoon,
    ];
    assert_eq!(TRAPS.len() + others.len(), Canary::ALL.len());
}

#[test]
fn a_shortest_path_is_told() {
    let text = "explore nodes=2 canary=protect-forgotten\nthread n1 write 0\nthread n2 read 0";
    let found = explore(&Setting::parse(text).expect("a setting"), LIMIT);
    let (_, tale) = found.failure.expect("the planted bug is found");
    let steps: Vec<&str> = tale
        .lines()
        .skip(3)
        .filter(|line| !line.starts_with(' '))
        .collect();
    let expected = [
        "run t1",
        "run t2",
        "hear n1",
        "run t1",
        "hear n2",
        "deliver n2->n1",
    ];
    assert_eq!(steps.len(), expected.len(), "{tale}");
}

/// Paths that once led to a broken invariant; now each ends as it is written.
/// With `UPDATE_SCENARIOS=1` it writes down what happens instead.
#[test]
fn explored_paths_happen_as_written() {
    for path in files("scenarios/explored") {
        let before = fs::read_to_string(&path).expect("readable");
        let after = replay(&before).unwrap_or_else(|why| panic!("{}\n{why}", path.display()));
        if std::env::var_os("UPDATE_SCENARIOS").is_some() {
            fs::write(&path, after).expect("writable");
        } else {
            assert!(
                before == after,
                "{} happens differently:\n{after}",
                path.display()
            );
        }
    }
}
