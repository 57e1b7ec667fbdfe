//! Private segments that do not fit into local memory: donors, the disk, budgets in real memory.
//! (C4: G10, G12, G17, G24, GR14, GB1, GB3.)

use crate::support::{Cluster, PAGE, eventually, load, store};
use crate::swapping::Group;
use pagemesh::{Access, Backing, ByteLen, Mapping, Options, PAGE_SIZE, Policy};
use pagemesh_cli::sandbox::Plan;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

/// Pages of a segment, and how many of them may be in local memory.
const PAGES: u64 = 2048;
const LOCAL: u64 = 1024;

/// Slots of the stash that stay allocated for the next pages.
const WARM: u64 = 1024;

fn plan(nodes: usize, arguments: &[&str]) -> Plan {
    let mut plan = Plan::new(nodes);
    let fixed = ["--memory", "1G", "--lend", "16M"];
    let arguments = fixed.iter().chain(arguments);
    plan.daemon_args = arguments.map(|argument| (*argument).to_owned()).collect();
    plan
}

fn options(copies: bool) -> Options {
    let name = if copies { "private-copies" } else { "private" };
    let policy: Policy = name.parse().unwrap();
    Options {
        policy: policy.with_local(ByteLen(LOCAL * PAGE)).unwrap(),
        ..Options::default()
    }
}

fn private(cluster: &Cluster, copies: bool) -> Mapping {
    cluster
        .make_on(0, "big", PAGES, options(copies))
        .map()
        .unwrap()
}

/// Pages in an order without a pattern.
fn scattered(rounds: u64) -> impl Iterator<Item = usize> {
    let mut state = 88_172_645_463_325_252_u64;
    (0..rounds).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % PAGES) as usize
    })
}

fn fill(memory: &Mapping, salt: u64) {
    for page in 0..PAGES {
        store(memory, page as usize * PAGE_SIZE + 8, salt + page);
    }
}

fn check(memory: &Mapping, salt: u64) {
    for page in 0..PAGES {
        assert_eq!(
            load(memory, page as usize * PAGE_SIZE + 8),
            salt + page,
            "page {page}"
        );
    }
}

/// Pages that a process keeps in memfds of these names, as the kernel counts them.
pub(crate) fn resident(pid: u32, names: &[&str]) -> u64 {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mut files = std::collections::BTreeMap::new();
    for descriptor in descriptors.flatten() {
        let link = std::fs::read_link(descriptor.path()).unwrap_or_default();
        let link = link.to_string_lossy();
        if names
            .iter()
            .any(|name| link.starts_with(&format!("/memfd:{name}")))
            && let Ok(about) = std::fs::metadata(descriptor.path())
        {
            files.insert(about.ino(), about.blocks() * 512 / PAGE);
        }
    }
    files.values().sum()
}

/// GR3, budgets: twice the local memory, and the rest is with donors.
#[test]
fn a_program_with_twice_its_local_memory_finishes_right_within_its_budget() {
    let Some(cluster) = Cluster::of(plan(3, &[])) else {
        return;
    };
    let memory = private(&cluster, false);
    let pid = cluster.node(0).pid();
    let mut most = 0;
    let mut look = || {
        let now = resident(pid, &["pagemesh:big", "pagemesh-stash"]);
        most = most.max(now);
        assert!(now <= LOCAL + WARM, "{now} pages are resident");
    };
    for round in 0..2 {
        fill(&memory, round * 1_000_000);
        look();
        check(&memory, round * 1_000_000);
        look();
        for page in scattered(PAGES) {
            let found = load(&memory, page * PAGE_SIZE + 8);
            assert_eq!(found, round * 1_000_000 + page as u64);
        }
        look();
    }
    assert!(
        most >= LOCAL / 2,
        "the memory that is there is used: {most}"
    );
    let frames = resident(pid, &["pagemesh:big"]);
    assert!(frames <= LOCAL, "{frames} frames");
    assert!(
        cluster.counter(0, "pages_in") > PAGES / 4,
        "donors gave pages back"
    );
    let borrowed = [1, 2].map(|node| cluster.counter(node, "pages_borrowed"));
    assert!(
        borrowed.iter().all(|pages| *pages > 0),
        "both lend: {borrowed:?}"
    );
    assert!(cluster.counter(0, "epochs") + cluster.counter(1, "epochs") > 0);
    // Only its home may have it.
    let refused = cluster.mesh(1).open("big", Access::Writable).unwrap_err();
    assert!(refused.to_string().contains("policy private"), "{refused}");
}

/// GR14: the death of a donor under load costs no contents.
#[test]
fn a_donor_that_is_killed_takes_nothing_with_it() {
    for copies in [false, true] {
        let Some(cluster) = Cluster::of(plan(4, &[])) else {
            return;
        };
        let memory = private(&cluster, copies);
        fill(&memory, 5);
        check(&memory, 5);
        // The disk has all pages that left this node, or none but those for which there were no two
        // donors.
        let on_disk = cluster.counter(0, "pages_to_disk");
        assert!(copies || on_disk >= PAGES - LOCAL, "{on_disk} were written");
        let lent = [1, 2, 3].map(|node| cluster.counter(node, "pages_borrowed"));
        let donors = lent.iter().filter(|pages| **pages > 0).count();
        assert!(!copies || donors >= 2, "{lent:?}");
        cluster.kill(2).unwrap();
        for page in scattered(PAGES) {
            assert_eq!(load(&memory, page * PAGE_SIZE + 8), 5 + page as u64);
        }
        fill(&memory, 9_000_000);
        check(&memory, 9_000_000);
    }
}

/// GB3: a donor that changes pages is a donor that has none.
#[test]
fn a_hostile_donor_changes_nothing() {
    let Some(cluster) = Cluster::of(plan(2, &["--tamper"])) else {
        return;
    };
    let memory = private(&cluster, false);
    for round in 0..2 {
        fill(&memory, 100 * round);
        for page in scattered(PAGES / 4) {
            assert_eq!(
                load(&memory, page * PAGE_SIZE + 8),
                100 * round + page as u64
            );
        }
    }
    assert!(cluster.counter(0, "pages_forged") > 0);
    assert!(cluster.counter(0, "pages_from_disk") > 0);
}

/// A small file system that ends with the test.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let path = std::env::temp_dir().join(format!("pagemesh-disk-{}", std::process::id()));
        std::fs::create_dir_all(&path).ok()?;
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&path)
            .status();
        let disk = Self(path);
        mounted.is_ok_and(|status| status.success()).then_some(disk)
    }

    fn resize(&self, size: &str) {
        let status = std::process::Command::new("mount")
            .args(["-o", &format!("remount,size={size}")])
            .arg(&self.0)
            .status();
        assert!(status.unwrap().success());
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Nothing is lost on a full disk, and an access that waits goes on when there is room.
#[test]
fn a_full_disk_makes_accesses_wait_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount("1M") else {
        eprintln!("skipped: no file system can be mounted here; run as root");
        return;
    };
    let directory = disk.path().to_str().unwrap();
    let Some(cluster) = Cluster::of(plan(2, &["--private-dir", directory])) else {
        return;
    };
    let memory = private(&cluster, false);
    std::thread::scope(|scope| {
        let filler = scope.spawn(|| fill(&memory, 77));
        eventually("the disk is full", || cluster.counter(0, "disk_full") > 0);
        assert!(!filler.is_finished());
        disk.resize("64M");
        filler.join().unwrap();
    });
    check(&memory, 77);
}

#[test]
fn a_segment_says_what_it_is() {
    let Some(cluster) = Cluster::of(plan(1, &[])) else {
        return;
    };
    let memory = private(&cluster, true);
    let known = cluster.mesh(0).stat("big").unwrap().spec.policy;
    let Policy::Private { local, backing } = known else {
        panic!("{known:?}");
    };
    assert_eq!((u64::from(local.0), backing), (LOCAL, Backing::Copies));
    // Without any donor the disk has what does not fit.
    fill(&memory, 3);
    check(&memory, 3);
    assert!(cluster.counter(0, "pages_from_disk") > 0);
}

/// A program that takes so many MiB, says so, and waits for the end of its input.
const HUNGRY: &str = r#"
import sys
memory = bytearray(int(sys.argv[1]) << 20)
memory[::4096] = b"x" * len(range(0, len(memory), 4096))
print("has it", flush=True)
sys.stdin.read()
"#;

/// The memory of a donor's group, in bytes, and what a program of that group takes of it, in MiB.
const GROUP: u64 = 512 << 20;
const HUNGER: u64 = 336;

/// The programs of a donor's host, here of its control group, want memory: the donor gives it back
/// at once, and no page is lost.
#[test]
fn a_donor_gives_memory_back_when_its_own_programs_want_it() {
    let Some(group) = Group::make("donor", GROUP) else {
        eprintln!("skipped: no memory control group can be made here; run as root");
        return;
    };
    let mut plan = Plan::new(2);
    let arguments = ["--memory", "1G", "--lend", "auto"];
    plan.daemon_args = arguments.map(str::to_owned).to_vec();
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let donor = cluster.node(1).pid();
    group.take(donor);
    let most = (GROUP - GROUP / 8) / 2 / PAGE;
    eventually("the donor knows its group", || {
        cluster.counter(1, "memory_lend") <= most
    });
    let pages = 32 * PAGES / 2;
    let memory = cluster
        .make_on(0, "big", pages, options(false))
        .map()
        .unwrap();
    let word = |page: u64| page as usize * PAGE_SIZE + 8;
    (0..pages).for_each(|page| store(&memory, word(page), page + 1));
    let lent = resident(donor, &["pagemesh-stash"]);
    assert!(lent > pages / 2, "{lent} of {pages} pages are lent");
    let mut program = group.command("python3");
    program.args(["-c", HUNGRY, &HUNGER.to_string()]);
    program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let mut said = String::new();
    let out = program.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut said).unwrap();
    assert_eq!(said, "has it\n", "it was not ended");
    let began = Instant::now();
    // The program needs what is above half of the rest.
    let free = GROUP - (HUNGER << 20) - GROUP / 8;
    let enough = free / 2 / PAGE + WARM + free / 16 / PAGE;
    eventually("the donor gives memory back", || {
        resident(donor, &["pagemesh-stash"]) <= enough
    });
    let given = ((lent - enough) * PAGE) >> 20;
    println!("{given} MiB were given back in {:?}", began.elapsed());
    (0..pages).for_each(|page| assert_eq!(load(&memory, word(page)), page + 1));
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success(), "nobody was ended");
    assert!(cluster.counter(0, "pages_from_disk") > 0);
}

/// Two donors leave at once, and what only they had stays: they go when its owner has it again.
#[test]
fn donors_that_leave_hand_back_what_only_they_have() {
    let Some(cluster) = Cluster::of(plan(5, &[])) else {
        return;
    };
    let memory = private(&cluster, true);
    fill(&memory, 5);
    check(&memory, 5);
    let lent = cluster.counter(0, "memory_lent");
    assert!(
        lent >= (PAGES - LOCAL) / 2,
        "{lent} pages are with donors alone"
    );
    std::thread::scope(|scope| {
        for node in [1, 2] {
            let mesh = cluster.mesh(node);
            scope.spawn(move || mesh.leave().unwrap());
        }
    });
    check(&memory, 5);
    assert_eq!(cluster.counter(0, "pages_forged"), 0);
}

/// `pagemesh memory` of a node knows all nodes, and what its daemon has in memory.
#[test]
fn the_memory_of_every_node_is_shown() {
    let Some(cluster) = Cluster::of(plan(3, &[])) else {
        return;
    };
    let memory = private(&cluster, false);
    fill(&memory, 1);
    check(&memory, 1);
    let program = env!("CARGO_BIN_EXE_pagemesh-under-test");
    let mut command = cluster.node(0).command(program);
    let output = command.args(["memory", "-o", "json"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let document: serde_json::Value = serde_json::from_str(&text).expect(&text);
    let of = |node: usize, field: &str| document["nodes"][node]["memory"][field].as_u64();
    assert_eq!(of(0, "budget"), Some(1 << 30), "{document}");
    assert_eq!(of(1, "lend"), Some(16 << 20), "{document}");
    assert_eq!(document["nodes"][2]["memory"]["placement"], "epoch");
    // What the owner has lent is with the others.
    let borrowed = of(1, "borrowed").unwrap() + of(2, "borrowed").unwrap();
    let lent = of(0, "lent").unwrap();
    assert!(borrowed > 0 && lent > 0, "{document}");
    assert!(of(0, "local").unwrap() <= LOCAL * PAGE, "{document}");
    let again = &document["needed_again"];
    assert!(again["nodes"].as_u64().unwrap() > 0, "{document}");
    let shared = document["resident"]["shared"].as_u64().unwrap();
    assert!(shared > 0, "{document}");
    let mut command = cluster.node(0).command(program);
    let table = command.arg("memory").output().unwrap();
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(
        table.contains("BORROWED") && table.contains("resident"),
        "{table}"
    );
}
