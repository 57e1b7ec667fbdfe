//! A store by one process is loaded by all.

use crate::support::{Cluster, Player, finish_all, load, store};
use pagemesh::{Mapping, Options, PAGE_SIZE};
use pagemesh_tests::dice::Dice;

#[test]
fn a_value_stored_on_any_node_is_loaded_on_all() {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    let maps = cluster.share("values", 4);
    for round in 1..=25 {
        for (writer, memory) in maps.iter().enumerate() {
            // On a page of its own, and on one that all write.
            let value = round * 10 + writer as u64;
            store(memory, writer * PAGE_SIZE, value);
            store(memory, 8 + writer * 8, value);
            for reader in &maps {
                assert_eq!(load(reader, writer * PAGE_SIZE), value);
                assert_eq!(load(reader, 8 + writer * 8), value);
            }
        }
    }
}

#[test]
fn untouched_memory_is_zero_and_moves_no_bytes() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let maps = cluster.share("zeros", 16);
    // The home is the last: what its kernel gives to it before others come counts as stored to.
    for memory in maps.iter().rev() {
        let mut bytes = vec![1; 16 * PAGE_SIZE];
        memory.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
    }
    // The first stores, though ownership moves, move nothing either.
    for page in 0..16 {
        store(&maps[2], page * PAGE_SIZE, 1);
    }
    for node in 0..3 {
        assert_eq!(cluster.counter(node, "pages_in"), 0);
        assert_eq!(cluster.counter(node, "pages_out"), 0);
    }
    let resent = || {
        (0..3)
            .map(|node| cluster.counter(node, "resent"))
            .sum::<u64>()
    };
    let before = resent();
    assert_eq!(load(&maps[0], 15 * PAGE_SIZE), 1);
    let moved = cluster.counter(0, "pages_in");
    // More only where a request was resent.
    let once = 1..=1 + resent() - before;
    assert!(
        once.contains(&moved),
        "now there is something to move: {moved}"
    );
}

#[test]
fn large_arrays_arrive_whole() {
    const PAGES: usize = 128;
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let maps = cluster.share("array", PAGES as u64);
    let mut dice = Dice::new(5);
    for (round, writer) in [0, 2, 1].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..PAGES * PAGE_SIZE).map(|_| dice.throw() as u8).collect();
        maps[writer].write(0, &bytes).unwrap();
        for memory in &maps {
            let mut seen = vec![0; bytes.len()];
            memory.read(0, &mut seen).unwrap();
            assert!(seen == bytes, "round {round}");
        }
    }
}

#[test]
fn neighbours_in_a_page_do_not_disturb_each_other() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let maps = cluster.share("neighbours", 1);
    let raise = |node: usize, memory: &Mapping| {
        for value in 1..=200_u8 {
            // One byte each, side by side.
            memory.write(node, &[value]).unwrap();
            let mut seen = [0];
            memory.read(node, &mut seen).unwrap();
            assert_eq!(seen, [value], "node {node}");
        }
    };
    std::thread::scope(|scope| {
        for (node, memory) in maps.iter().enumerate() {
            scope.spawn(move || raise(node, memory));
        }
    });
    let mut all = [0; 4];
    maps[0].read(0, &mut all).unwrap();
    assert_eq!(all, [200, 200, 200, 0]);
}

#[test]
fn processes_of_one_node_share_without_the_network() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    cluster.make_on(0, "local", 4, Options::default());
    let mut first = cluster.scripted_node(1, "local");
    let mut second = cluster.scripted_node(1, "local");
    let mut third = cluster.scripted_node(1, "local --read-only");
    assert_eq!(first.ask("store 4096 1"), "done");
    let asked = cluster.counter(1, "asked");
    for round in 1..=20 {
        first.ask(&format!("store 4096 {round}"));
        assert_eq!(second.ask("load 4096"), round.to_string());
        assert_eq!(third.ask("load 4096"), round.to_string());
        second.ask(&format!("store 4104 {round}"));
        assert_eq!(first.ask("load 4104"), round.to_string());
    }
    assert_eq!(cluster.counter(1, "asked"), asked, "nobody else was asked");
    assert!(cluster.counter(1, "faults_local") >= 2);
    assert_eq!(load(&cluster.map(0, "local"), 4104), 20);
}

fn counters(cluster: &Cluster, nodes: &[usize], name: &str, by: &str, rounds: u64) {
    let parties = nodes.len();
    let start = |node: &usize| -> Player {
        let arguments = format!("count {name} --by {by} --rounds {rounds} --parties {parties}");
        cluster.player(*node, &arguments)
    };
    finish_all(nodes.iter().map(start).collect());
}

#[test]
fn atomics_lose_no_step_within_a_node_and_between_nodes() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("one-node", 1)[0];
    counters(&cluster, &[1, 1, 1, 1], "one-node", "atomic", 20_000);
    assert_eq!(load(here, 0), 80_000);
    let all = &cluster.share("two-nodes", 1)[0];
    counters(&cluster, &[0, 1, 1, 0], "two-nodes", "atomic", 2_000);
    assert_eq!(load(all, 0), 8_000);
}

#[test]
fn a_mutex_of_the_c_library_works_among_the_processes_of_a_node() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("mutex", 1);
    make_mutex(&maps[1], 64);
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| counters(&cluster, &[1, 1, 1], "mutex", "mutex", 5_000));
        // Another node looks on, so that the page comes and goes.
        let mut last = 0;
        while !counting.is_finished() {
            let seen = load(&maps[0], 0);
            assert!(last <= seen && seen <= 15_000, "{last}, then {seen}");
            last = seen;
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    });
    assert_eq!(load(&maps[0], 0), 15_000);
}

/// A mutex for the processes of the node of this mapping.
fn make_mutex(memory: &Mapping, at: usize) {
    // SAFETY: the place is in the mapping, and no other code uses it yet.
    unsafe {
        let mut kind: libc::pthread_mutexattr_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut kind);
        libc::pthread_mutexattr_setpshared(&raw mut kind, libc::PTHREAD_PROCESS_SHARED);
        let place = memory.as_ptr().add(at).cast();
        assert_eq!(libc::pthread_mutex_init(place, &raw const kind), 0);
    }
}

#[test]
fn a_stopped_process_keeps_nobody_waiting() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let here = &cluster.share("stopped", 1)[0];
    let mut holder = cluster.scripted_node(1, "stopped");
    assert_eq!(holder.ask("store 0 5"), "done");
    holder.signal(rustix::process::Signal::STOP);
    crate::support::eventually("it is stopped", || holder.state() == Some('T'));
    assert_eq!(load(here, 0), 5);
    store(here, 0, 6);
    holder.signal(rustix::process::Signal::CONT);
    assert_eq!(holder.ask("load 0"), "6");
}
