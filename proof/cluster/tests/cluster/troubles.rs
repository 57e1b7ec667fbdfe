//! States that need a person: `status` names each, the log tells when it begins, a counter counts it,
//! and operating.md has its cure.

use crate::coordinators::{say, wait_for_the_standby};
use crate::sealing_keys::key;
use crate::support::{Cluster, Joiner, eventually, load, store};
use crate::tmk::HERE;
use pagemesh::{Access, Options};
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

/// The counter of a state.
fn counter(trouble: Trouble) -> String {
    format!("trouble_{}", trouble.name().replace('-', "_"))
}

/// That the daemon has logged and counted the state.
fn was_told(cluster: &Cluster, node: usize, trouble: Trouble) {
    let counter = counter(trouble);
    eventually(&counter, || cluster.counter(node, &counter) > 0);
    let log = cluster.node(node).log();
    assert!(log.contains(&format!("{}: ", trouble.name())), "{log}");
}

/// One node, whose cluster others of this host can join.
fn one_that_is_joined() -> Option<Cluster> {
    let mut plan = Plan::new(1);
    plan.netns = Netns::Never;
    Cluster::of(plan)
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

/// That a daemon beside those of the cluster is in the state and tells that everywhere, and nothing is
/// lost by it. Returns what `status` says.
fn is_told(cluster: &Cluster, joiner: &Joiner, trouble: Trouble) -> String {
    let line = format!("problem: {}: ", trouble.name());
    eventually(&line, || joiner.says(&format!("{}: ", trouble.name())));
    let (code, said) = joiner.say(cluster, &["status"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&line), "{said}");
    let name = counter(trouble);
    let counters = joiner.mesh().counters().unwrap();
    let counted = counters.into_iter().find(|(of, _)| *of == name);
    assert_eq!(counted, Some((name, 1)));
    said
}

/// That it is a member like others, and not in the state.
fn is_cured(cluster: &Cluster, joiner: &Joiner, trouble: Trouble) {
    eventually("it is a member", || joiner.is_member());
    let (_, said) = joiner.say(cluster, &["status"]);
    assert!(!said.contains(trouble.name()), "{said}");
}

/// A limit of the host, put back at the end.
struct HostLimit {
    path: &'static str,
    before: String,
}

impl HostLimit {
    fn set(path: &'static str, value: &str) -> Option<Self> {
        let before = fs::read_to_string(path).ok()?;
        fs::write(path, value).ok()?;
        Some(Self { path, before })
    }
}

impl Drop for HostLimit {
    fn drop(&mut self) {
        let _ = fs::write(self.path, &self.before);
    }
}

#[test]
fn a_daemon_with_a_small_socket_buffer_says_so() {
    let Some(cluster) = one_that_is_joined() else {
        return;
    };
    // With this capability a daemon takes what it wants, whatever the limit is.
    let starter = ["setpriv", "--bounding-set", "-net_admin", "--"];
    let start = |name| Joiner::under(&cluster, &starter, (0, name), &[]);
    let Some(limit) = HostLimit::set("/proc/sys/net/core/rmem_max", "212992") else {
        eprintln!("skipped: only root can change what sockets may have");
        return;
    };
    let small = start("small");
    eventually("it is a member", || small.is_member());
    drop(limit);
    let said = is_told(&cluster, &small, Trouble::SocketBuffer);
    assert!(said.contains("net.core.rmem_max=16777216"), "{said}");
    // What the line says, done for as long as a daemon starts.
    let _limit = HostLimit::set("/proc/sys/net/core/rmem_max", "16777216");
    is_cured(&cluster, &start("large"), Trouble::SocketBuffer);
}

#[test]
fn a_daemon_without_room_for_its_recorder_says_so() {
    let Some(cluster) = one_that_is_joined() else {
        return;
    };
    // In KiB: enough for the stash and twins, 64 GiB of addresses, and not for the recorder's 16.
    let limited = ["sh", "-c", "ulimit -v 75497472 && exec \"$@\"", "sh"];
    let start = |name, starter: &[_], arguments: &[_]| {
        Joiner::under(&cluster, starter, (0, name), arguments)
    };
    let small = start("small", &limited, &[]);
    eventually("it is a member", || small.is_member());
    let said = is_told(&cluster, &small, Trouble::RecorderOff);
    assert!(said.contains("ulimit -v"), "{said}");
    let unlimited = start("large", &["env"], &[]);
    is_cured(&cluster, &unlimited, Trouble::RecorderOff);
    let without = start("without", &limited, &["--recorder", "off"]);
    is_cured(&cluster, &without, Trouble::RecorderOff);
}

/// Both were founded on one network, and programs give their segments the same name.
#[test]
fn two_clusters_with_one_name_have_nothing_in_common() {
    let (Some(one), Some(other)) = (one_that_is_joined(), one_that_is_joined()) else {
        return;
    };
    let memory = [&one, &other].map(|cluster| {
        let segment = cluster.make_on(0, "same", 1, Options::default());
        segment.map().unwrap()
    });
    for (value, memory) in (1..).zip(&memory) {
        store(memory, 0, value);
    }
    let joiner = Joiner::start(&other, "late", &[]);
    eventually("it is a member", || joiner.is_member());
    let joined = joiner.mesh().open("same", Access::ReadOnly).unwrap();
    assert_eq!(load(&joined.map().unwrap(), 0), 2);
    assert_eq!(load(&memory[0], 0), 1);
    let members = [&one, &other].map(|cluster| cluster.mesh(0).status().unwrap().alive);
    assert_eq!(members, [1, 2]);
    // A host that went over to the other cluster is a new node there, and none here.
    let (code, said) = say(&one, 0, "members");
    assert!(code == Some(0) && !said.contains("late"), "{said}");
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
        assert!(is_test, "no test {test} of {trouble:?}");
    }
}
