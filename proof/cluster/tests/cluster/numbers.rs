//! More lives of daemons than there are node numbers.

use crate::support::{Cluster, eventually, load, state, store};
use pagemesh::{Health, Options};
use rustix::process::Signal;
use std::thread;
use std::time::Instant;

/// Hosts whose daemons come and go.
const HOSTS: usize = 4;
/// Bytes from one host's word to the next: a page each.
const APART: usize = 4096;
const LOCK: u64 = 1;

/// The daemon of a host leaves and joins again, so many times. Each life takes a lock, counts in a
/// page that the one before has had, and reads what the others count.
fn come_and_go(cluster: &Cluster, host: usize, lives: usize) {
    for life in 0..lives {
        let map = cluster.map(host, "shared");
        let guard = map.segment().lock(LOCK).lock().unwrap();
        let at = host * APART;
        assert_eq!(load(&map, at), life as u64, "of the life before");
        store(&map, at, life as u64 + 1);
        store(&map, 0, load(&map, 0) + 1);
        drop(guard);
        drop(map);
        let daemon = cluster.node(host).pid();
        cluster.signal(host, Signal::TERM).unwrap();
        eventually("the daemon has ended", || {
            matches!(state(daemon), Some('Z') | None)
        });
        cluster.restart(host).unwrap();
    }
}

fn lives(each: usize) {
    let Some(cluster) = Cluster::start(1 + HOSTS) else {
        return;
    };
    cluster.make_on(0, "shared", 1 + HOSTS as u64, Options::default());
    let start = Instant::now();
    thread::scope(|scope| {
        for host in 1..=HOSTS {
            let cluster = &cluster;
            scope.spawn(move || come_and_go(cluster, host, each));
        }
    });
    println!("{} lives in {:?}", each * HOSTS, start.elapsed());
    let map = cluster.map(0, "shared");
    assert_eq!(load(&map, 0), (each * HOSTS) as u64);
    for host in 1..=HOSTS {
        assert_eq!(load(&map, host * APART), each as u64);
    }
    let members = cluster.mesh(0).members().unwrap().members;
    let alive = members.iter().filter(|one| one.health == Health::Alive);
    assert_eq!(alive.count(), 1 + HOSTS, "{members:?}");
    assert!(cluster.counter(0, "number_checks_fruitful") > 0);
    assert_eq!(cluster.counter(0, "members_died"), 0);
}

#[test]
fn a_hundred_and_sixty_lives_find_numbers() {
    lives(160 / HOSTS);
}

#[test]
#[ignore = "a minute and more: make test-many"]
fn five_hundred_lives_find_numbers() {
    lives(500 / HOSTS);
}
