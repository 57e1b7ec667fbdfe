//! Any single site may fail (MB3): the library site of a segment, the clock site of a page, a
//! holder of copies. These tests show the cost of each death; the first node's is in
//! `daemon_deaths.rs`, and that of the only holder of a page.

use crate::support::{Cluster, load, store};
use pagemesh::{Access, Manager, Mapping, Options, PAGE_SIZE, Policy, Window};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

/// The roles of the nodes. Node 0 is the first, and only keeps the segment's name.
const LIBRARY: usize = 1;
const WRITER: usize = 2;
const READER: usize = 3;

/// Δ: long enough for a clock site to die amid it.
const WINDOW: Duration = Duration::from_millis(300);

/// Deaths are noticed after 5 s; nodes that wait for the dead one ask again every second.
const NOTICED: Duration = Duration::from_secs(15);

/// Page 0 was stored to by the writer and read by all others, page 1 only stored to by the reader,
/// page 2 not at all.
fn roles(name: &str) -> Option<(Cluster, Vec<Mapping>)> {
    let cluster = Cluster::start(4)?;
    let options = Options {
        policy: Policy::Sequential {
            manager: Manager::Fixed,
            window: Window::Nanos(WINDOW.as_nanos() as u64),
        },
        ..Options::default()
    };
    cluster.make_on(LIBRARY, name, 3, options);
    let maps: Vec<_> = (0..4).map(|node| cluster.map(node, name)).collect();
    store(&maps[READER], PAGE_SIZE, 7);
    store(&maps[WRITER], 0, 1);
    for memory in &maps {
        assert_eq!(load(memory, 0), 1);
    }
    Some((cluster, maps))
}

/// The living nodes share a page, whose value is known, and go on sharing it. Returns the longest
/// wait of one of them.
fn go_on(living: &[&Mapping], at: usize, value: u64) -> Duration {
    let mut longest = Duration::ZERO;
    for (step, writer) in living.iter().enumerate() {
        let start = Instant::now();
        let before = load(writer, at);
        assert_eq!(before, value + step as u64, "nothing is lost");
        store(writer, at, before + 1);
        for reader in living {
            assert_eq!(load(reader, at), before + 1);
        }
        longest = longest.max(start.elapsed());
    }
    longest
}

#[test]
fn the_library_site_may_die() {
    let Some((cluster, maps)) = roles("library") else {
        return;
    };
    cluster.kill(LIBRARY).unwrap();
    let living = [&maps[WRITER], &maps[0], &maps[READER]];
    let pause = go_on(&living, 0, 1);
    assert!(pause < NOTICED, "{pause:?}");
    // From now on another node answers for the segment.
    let pause = go_on(&living, PAGE_SIZE, 7).max(go_on(&living, 0, 4));
    assert!(pause < Duration::from_secs(4), "{pause:?}");
    for node in [0, WRITER] {
        let segment = cluster
            .mesh(node)
            .open("library", Access::Writable)
            .unwrap();
        drop(segment.lock(1).lock().unwrap());
        assert_eq!(load(&segment.map().unwrap(), 0), 7);
    }
    // Pages that it owned because they were never touched are gone with it.
    let mut scripted_node = cluster.scripted_node(0, "library");
    scripted_node.tell(&format!("load {}", 2 * PAGE_SIZE));
    assert_eq!(scripted_node.end().signal(), Some(Signal::BUS.as_raw()));
}

#[test]
fn the_clock_site_may_die_amid_its_window() {
    let Some((cluster, maps)) = roles("clock") else {
        return;
    };
    // The writer decides how long the others keep their copies.
    store(&maps[WRITER], 0, 2);
    for reader in [0, LIBRARY, READER] {
        assert_eq!(load(&maps[reader], 0), 2);
    }
    cluster.kill(WRITER).unwrap();
    let living = [&maps[READER], &maps[LIBRARY], &maps[0]];
    let pause = go_on(&living, 0, 2);
    assert!(pause < NOTICED, "{pause:?}");
    let regained = [0, LIBRARY, READER].map(|node| cluster.counter(node, "pages_regained"));
    assert_eq!(regained.iter().sum::<u64>(), 1, "lives on from one copy");
    let pause = go_on(&living, PAGE_SIZE, 7).max(go_on(&living, 0, 5));
    assert!(pause < Duration::from_secs(4), "{pause:?}");
}

#[test]
fn a_holder_of_a_copy_may_die() {
    let Some((cluster, maps)) = roles("holder") else {
        return;
    };
    store(&maps[WRITER], PAGE_SIZE, 8);
    cluster.kill(READER).unwrap();
    // Its acknowledgement is waited for until its death is known, and nothing else.
    let living = [&maps[WRITER], &maps[LIBRARY], &maps[0]];
    let pause = go_on(&living, 0, 1);
    assert!(pause < NOTICED, "{pause:?}");
    let pause = go_on(&living, PAGE_SIZE, 8).max(go_on(&living, 2 * PAGE_SIZE, 0));
    assert!(pause < Duration::from_secs(4), "{pause:?}");
}
