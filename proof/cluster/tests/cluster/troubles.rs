//! States that need a person: `status` names each, the log tells when it begins, a counter counts it,
//! and operating.md has its cure.

use crate::coordinators::{say, wait_for_the_standby};
use crate::sealing_keys::key;
use crate::support::{Cluster, Joiner, eventually};
use crate::tmk::HERE;
use pagemesh::Options;
use pagemesh_cli::sandbox::{Netns, Plan};
use pagemesh_wire::local::Trouble;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// The exit code of `status`, and the states that it names.
fn states(cluster: &Cluster, node: usize) -> (Option<i32>, Vec<String>) {
    let (code, said) = say(cluster, node, "status -o json");
    let document: serde_json::Value = serde_json::from_str(&said).expect("a document");
    let states = document["states"].as_array().expect("a list");
    let name = |state: &serde_json::Value| state.as_str().expect("a name").to_owned();
    (code, states.iter().map(name).collect())
}

fn is_in(cluster: &Cluster, node: usize, trouble: Trouble) -> bool {
    states(cluster, node)
        .1
        .iter()
        .any(|state| state == trouble.name())
}

/// That the daemon has logged and counted the state.
fn was_told(cluster: &Cluster, node: usize, trouble: Trouble) {
    let counter = format!("trouble_{}", trouble.name().replace('-', "_"));
    eventually(&counter, || cluster.counter(node, &counter) > 0);
    let log = cluster.node(node).log();
    assert!(log.contains(&format!("{}: ", trouble.name())), "{log}");
}

fn sealed(nodes: usize) -> Option<Cluster> {
    let mut plan = Plan::new(nodes);
    plan.sealed = true;
    plan.netns = Netns::Never;
    Cluster::of(plan)
}

#[test]
fn a_standby_that_lags_and_a_coordinator_that_is_silent_are_named() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    wait_for_the_standby(&cluster, 0, 2);
    assert_eq!(states(&cluster, 0), (Some(0), Vec::new()));
    cluster.signal(1, Signal::STOP).unwrap();
    // Its answer waits until the standby has it, or is declared dead.
    cluster.make_on(0, "waits", 1, Options::default());
    was_told(&cluster, 0, Trouble::StandbyBehind);
    eventually("it is dead", || is_in(&cluster, 0, Trouble::MemberDead));
    assert_eq!(states(&cluster, 0).0, Some(4));
    wait_for_the_standby(&cluster, 0, 3);
    assert!(!is_in(&cluster, 0, Trouble::StandbyBehind));

    cluster.signal(0, Signal::STOP).unwrap();
    eventually("the coordinator is silent", || {
        let (code, states) = states(&cluster, 2);
        let silent = Trouble::CoordinatorSilent.name();
        code == Some(4) && states.iter().any(|state| state == silent)
    });
    was_told(&cluster, 2, Trouble::CoordinatorSilent);
    cluster.signal(0, Signal::CONT).unwrap();
    eventually("it goes on", || {
        !is_in(&cluster, 2, Trouble::CoordinatorSilent)
    });
}

#[test]
fn a_key_that_was_rotated_on_one_host_only_is_named() {
    let Some(cluster) = sealed(1) else { return };
    let old = cluster.directory().join("old.key");
    fs::copy(cluster.key_file(), &old).unwrap();
    let file = cluster.key_file();
    key(&cluster, &["rotate", file.to_str().unwrap(), "--keep", "0"]);
    eventually("the file is read again", || {
        cluster.node(0).log().contains("keys were read again")
    });
    let late = ["--key", old.to_str().unwrap()];
    let joiner = Joiner::through(&cluster, 0, "late", &late);
    eventually("a host wants to join with another key", || {
        is_in(&cluster, 0, Trouble::OtherKey)
    });
    was_told(&cluster, 0, Trouble::OtherKey);
    let (code, said) = say(&cluster, 0, "status");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("greets with a key"), "{said}");
    eventually("and is told, too", || {
        joiner.says("does not accept the key")
    });
}

/// A host stands still until it is declared dead, and meanwhile the key is changed.
#[test]
fn a_host_that_cannot_join_again_says_why() {
    let Some(cluster) = sealed(1) else { return };
    let own = cluster.directory().join("own.key");
    fs::copy(cluster.key_file(), &own).unwrap();
    let joiner = Joiner::through(&cluster, 0, "paused", &["--key", own.to_str().unwrap()]);
    eventually("it is a member", || joiner.is_member());
    let process = Pid::from_child(&joiner.child);
    kill_process(process, Signal::STOP).unwrap();
    eventually("it is dead", || is_in(&cluster, 0, Trouble::MemberDead));
    let file = cluster.key_file();
    key(&cluster, &["rotate", file.to_str().unwrap(), "--keep", "0"]);
    eventually("the file is read again", || {
        cluster.node(0).log().contains("keys were read again")
    });
    kill_process(process, Signal::CONT).unwrap();
    eventually("it says why", || {
        joiner.says("joining-again: ") && joiner.says("other-key: ")
    });
}

#[test]
fn a_key_file_that_cannot_be_read_is_named_until_it_can() {
    let Some(cluster) = sealed(1) else { return };
    let set = |mode| fs::set_permissions(cluster.key_file(), fs::Permissions::from_mode(mode));
    set(0o644).unwrap();
    eventually("it is not read", || {
        is_in(&cluster, 0, Trouble::KeyUnreadable)
    });
    was_told(&cluster, 0, Trouble::KeyUnreadable);
    let (_, said) = say(&cluster, 0, "status");
    assert!(said.contains("chmod 600"), "{said}");
    set(0o600).unwrap();
    eventually("it is read again", || {
        !is_in(&cluster, 0, Trouble::KeyUnreadable)
    });
}

#[test]
fn a_daemon_with_few_descriptors_left_says_so() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let pid = cluster.node(0).pid();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    // Few of what it allows for itself, 64, but many more than it has open: it still lets
    // programs in.
    let few = Rlimit {
        current: Some(80),
        maximum: Some(80),
    };
    prlimit(pid, Resource::Nofile, few).unwrap();
    eventually("it says so", || is_in(&cluster, 0, Trouble::Descriptors));
    was_told(&cluster, 0, Trouble::Descriptors);
    let (_, said) = say(&cluster, 0, "status");
    assert!(said.contains("LimitNOFILE"), "{said}");
}

/// Every function that is a test, by `git grep`.
fn tests_of_the_repository() -> String {
    let root = Path::new(HERE).join("../..");
    let found = Command::new("grep")
        .args(["-rhoE", "--include=*.rs", "fn [a-z0-9_]+\\(\\)"])
        .args(["crates", "proof"])
        .current_dir(root)
        .output()
        .unwrap();
    String::from_utf8(found.stdout).unwrap()
}

#[test]
fn every_state_has_its_paragraph_and_a_test_that_brings_it_about() {
    let page = Path::new(HERE).join("../../docs/operating.md");
    let page = fs::read_to_string(page).unwrap();
    let tests = tests_of_the_repository();
    for trouble in Trouble::ALL {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{}` |", trouble.name())));
        let row = row.unwrap_or_else(|| panic!("operating.md says nothing of {trouble:?}"));
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let test = cells[cells.len() - 2].trim_matches('`');
        let is_test = tests.contains(&format!("fn {test}()"));
        assert!(is_test || test == "none", "no test {test} of {trouble:?}");
    }
}
