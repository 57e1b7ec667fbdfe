//! Segments whose accesses the kernel serves until a second node uses them (decision 0054).

use crate::replacement::lasting;
use crate::support::{Cluster, PAGE, eventually, load, state, store};
use pagemesh::{Access, Mapping, Options, PAGE_SIZE, Policy, Spread};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

const PAGES: usize = 64;

/// Both policies under which a segment starts untrapped, each with a name for its segment.
fn policies() -> [(Policy, &'static str); 2] {
    let spread = Spread::Lazy;
    [
        (Policy::default(), "sequential"),
        (Policy::Release { spread }, "release"),
    ]
}

/// A new segment, mapped on the node that made it.
fn made(cluster: &Cluster, (policy, name): (Policy, &str)) -> Mapping {
    let options = Options {
        policy,
        ..Options::default()
    };
    let segment = cluster.make_on(0, name, PAGES as u64, options);
    segment.map().unwrap()
}

/// Stores to two of three pages.
fn fill(memory: &Mapping) {
    for page in (0..PAGES).filter(|page| page % 3 != 0) {
        store(memory, page * PAGE_SIZE, page as u64);
    }
}

fn expect_filled(memory: &Mapping, name: &str) {
    for page in 0..PAGES {
        let there = if page % 3 == 0 { 0 } else { page as u64 };
        assert_eq!(load(memory, page * PAGE_SIZE), there, "{name}");
    }
}

/// Faults that the daemon of the first node has served.
fn faults(cluster: &Cluster) -> u64 {
    let kinds = ["read", "write", "upgrade", "local"];
    let of_kind = |kind| cluster.counter(0, &format!("faults_{kind}"));
    kinds.into_iter().map(of_kind).sum()
}

#[test]
fn a_segment_of_one_node_has_no_faults_and_a_second_node_finds_all_of_it() {
    for (policy, name) in policies() {
        let Some(cluster) = Cluster::start(2) else {
            return;
        };
        let memory = made(&cluster, (policy, name));
        fill(&memory);
        let read = cluster.mesh(0).open(name, Access::ReadOnly).unwrap();
        let read = read.map().unwrap();
        assert_eq!(load(&read, PAGE_SIZE), 1, "{name}: to read only");
        assert_eq!(faults(&cluster), 0, "{name}");
        let seen = cluster.mesh(0).inspect(name, 3, 2).unwrap();
        let shown: Vec<_> = seen.pages.iter().map(|line| line.page.0).collect();
        let stored_to = PAGES - PAGES.div_ceil(3);
        assert_eq!(
            (seen.owned, shown),
            (stored_to as u64, vec![4, 5]),
            "{name}: what the kernel served"
        );
        let other = cluster.map(1, name);
        expect_filled(&other, name);
        assert_eq!(cluster.counter(0, "segments_trapped"), 1);
        let last = (PAGES - 1) * PAGE_SIZE;
        assert_eq!(load(&read, last), 0, "{name}");
        assert!(faults(&cluster) > 0, "{name}: the control");
    }
}

/// Every page has a number that one thread of the first node makes larger all the while.
#[test]
fn no_store_is_lost_while_a_second_node_comes() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    for round in 0..20 {
        let name = format!("round{round}");
        let memory = made(&cluster, (Policy::default(), &name));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stores = scope.spawn(|| count_up(&memory, &over));
            let other = cluster.map(1, &name);
            for _ in 0..10 {
                for page in 0..PAGES {
                    let word = other.atomic_u64(page * PAGE_SIZE).unwrap();
                    word.fetch_add(1, SeqCst);
                }
            }
            over.store(true, Release);
            let made = stores.join().unwrap();
            for page in 0..PAGES {
                assert_eq!(load(&other, page * PAGE_SIZE), made + 10, "{name}, {page}");
            }
        });
    }
}

/// Adds one to a word of each page, again and again. Returns how often.
fn count_up(memory: &Mapping, over: &AtomicBool) -> u64 {
    let mut times = 0;
    while !over.load(Acquire) {
        for page in 0..PAGES {
            let word = memory.atomic_u64(page * PAGE_SIZE).unwrap();
            word.fetch_add(1, SeqCst);
        }
        times += 1;
    }
    times
}

#[test]
fn what_a_program_has_mapped_over_a_part_stays_its_own() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let memory = made(&cluster, (Policy::default(), "over"));
    store(&memory, 0, 1);
    let hole = memory.as_ptr().wrapping_add(2 * PAGE_SIZE);
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: pages of this mapping to which nothing refers.
    unsafe { mmap_anonymous(hole.cast(), 4 * PAGE_SIZE, rights, flags) }.unwrap();
    // SAFETY: memory that was just mapped.
    unsafe { hole.write_volatile(5) };
    let other = cluster.map(1, "over");
    assert_eq!(load(&other, 0), 1);
    store(&other, 2 * PAGE_SIZE, 9);
    store(&other, 8 * PAGE_SIZE, 8);
    let last = hole.wrapping_add(3 * PAGE_SIZE);
    // SAFETY: as above; the last page is touched for the first time now.
    let seen = unsafe { [hole.read_volatile(), last.read_volatile()] };
    assert_eq!(seen, [5, 0]);
    assert_eq!(load(&memory, 8 * PAGE_SIZE), 8, "behind it nothing is lost");
}

/// The daemon ends when it has done as it was told for a second segment, or when it has told the node of
/// that; the next one goes on. This process has no mapping, because it starts daemons.
#[test]
fn daemons_die_when_they_begin_to_trap() {
    for (policy, name) in policies() {
        for effect in ["--die-after=Trap:3", "--die-after=Trap:4"] {
            let mut plan = lasting(2);
            plan.daemon_args.push(effect.into());
            let Some(cluster) = Cluster::of(plan) else {
                return;
            };
            for (round, name) in [format!("{name}-1"), format!("{name}-2")]
                .iter()
                .enumerate()
            {
                let options = Options {
                    policy,
                    ..Options::default()
                };
                drop(cluster.make_on(0, name, 4, options));
                let [mut one, mut two] = [0, 1].map(|node| cluster.scripted_node(node, name));
                assert_eq!(one.ask("store 0 5"), "done");
                two.tell("load 0");
                if round == 1 {
                    let home = cluster.node(0);
                    eventually("it dies", || matches!(state(home.pid()), Some('Z') | None));
                    cluster.restart(0).unwrap();
                }
                assert_eq!(two.hear(), "5", "{name}, {effect}");
                assert_eq!(two.ask(&format!("store {PAGE} 6")), "done");
                assert_eq!(one.ask("load 0"), "5");
            }
        }
    }
}
