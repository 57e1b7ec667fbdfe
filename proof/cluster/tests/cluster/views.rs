//! Segments of policy `views`: consistent and inconsistent copies (E1 to E20).

use crate::support::views::{CONSISTENT, OLD, OLD_SHORT, share_views, word};
use crate::support::{Cluster, eventually, load, store};
use pagemesh::{PAGE_SIZE, View};
use std::time::Duration;

const NEXT_SHORT: View = View {
    data_driven: true,
    ..OLD_SHORT
};

#[test]
fn e2_e4_e5_a_copy_is_old_until_it_is_purged_or_published() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let views = share_views(&cluster, "old", 2);
    let writer = views[0].view(CONSISTENT).unwrap();
    store(writer, 0, 1);
    assert_eq!(word(&views[1], OLD, 0), 1);
    store(writer, 0, 2);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(
        word(&views[1], OLD, 0),
        1,
        "nobody has asked for a newer one"
    );
    views[1].purge(OLD, 0..8).unwrap();
    assert_eq!(word(&views[1], OLD, 0), 2);
    store(writer, 0, 3);
    views[0].purge(CONSISTENT, 0..8).unwrap();
    eventually("the copy is refreshed", || word(&views[1], OLD, 0) == 3);
}

#[test]
fn e2_e3_the_consistent_copy_moves_and_all_see_it_pass() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let views = share_views(&cluster, "moves", 1);
    for round in 0..30_u64 {
        let holder = &views[round as usize % 3];
        let memory = holder.view(CONSISTENT).unwrap();
        assert_eq!(load(memory, 0), round);
        store(memory, 0, round + 1);
    }
    // The last node has stored 30, and nobody has asked for that yet.
    eventually("the last move is seen", || word(&views[0], OLD, 0) == 29);
}

#[test]
fn e7_e9_e10_a_short_data_driven_view_sleeps_until_the_page_passes() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let views = share_views(&cluster, "short", 1);
    let writer = views[0].view(CONSISTENT).unwrap();
    for round in 1..=20_u64 {
        views[1].purge(OLD_SHORT, 0..8).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| word(&views[1], NEXT_SHORT, 0));
            std::thread::sleep(Duration::from_millis(2));
            store(writer, 0, round);
            views[0].publish(true, 0..8).unwrap();
            assert_eq!(reader.join().unwrap(), round);
        });
    }
    assert_eq!(word(&views[1], OLD_SHORT, 8), 0);
}

#[test]
fn e11_a_short_page_out_drops_the_prefix_and_leaves_the_page() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let views = share_views(&cluster, "paged-out", 1);
    let writer = views[0].view(CONSISTENT).unwrap();
    store(writer, 0, 1);
    assert_eq!(word(&views[1], OLD, 0), 1);
    assert_eq!(word(&views[1], OLD_SHORT, 0), 1);
    store(writer, 0, 2);
    views[1].page_out(OLD_SHORT, 0..8).unwrap();
    assert_eq!(word(&views[1], OLD, 0), 1, "the superset was left here");
    assert_eq!(word(&views[1], OLD_SHORT, 0), 2, "the subset is fetched");
    views[1].page_out(OLD, 0..8).unwrap();
    assert_eq!(word(&views[1], OLD, 0), 2);
    views[0].page_out(CONSISTENT, 0..8).unwrap();
    assert_eq!(load(writer, 0), 2, "the consistent copy stays");
}

#[test]
fn e12_a_short_lock_keeps_the_page_and_whole_views_come_back() {
    const SHORT: View = View {
        short: true,
        ..CONSISTENT
    };
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let views = share_views(&cluster, "locked", 1);
    store(views[0].view(CONSISTENT).unwrap(), 0, 1);
    assert!(
        views[1].lock(OLD_SHORT, 0..8).is_err(),
        "it is inconsistent"
    );
    let refused = views[1].lock(SHORT, 0..8);
    assert!(refused.is_err(), "the consistent copy is elsewhere");
    let mut locked = None;
    eventually("it was asked for", || {
        locked = views[1].lock(SHORT, 0..8).ok();
        locked.is_some()
    });
    std::thread::scope(|scope| {
        let other = scope.spawn(|| store(views[0].view(CONSISTENT).unwrap(), 0, 3));
        // All supersets are unmapped, and present.
        assert_eq!(word(&views[1], OLD, 0), 1);
        store(views[1].view(CONSISTENT).unwrap(), 64, 2);
        assert_eq!(word(&views[1], SHORT, 0), 1);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!other.is_finished(), "it is locked");
        drop(locked.take());
        other.join().unwrap();
    });
    assert_eq!(load(views[0].view(CONSISTENT).unwrap(), 64), 2);
}

#[test]
fn a_run_is_published_as_one() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let pages = 64;
    let views = share_views(&cluster, "run", pages);
    let writer = views[0].view(CONSISTENT).unwrap();
    let bytes = pages * PAGE_SIZE as u64;
    for round in 1..=10 {
        for page in 0..pages as usize {
            store(writer, page * PAGE_SIZE, round);
        }
        views[0].publish(false, 0..bytes).unwrap();
        for reader in &views[1..] {
            for page in 0..pages as usize {
                let at = page * PAGE_SIZE;
                eventually("the run arrives", || word(reader, OLD, at) == round);
            }
        }
    }
}

#[test]
fn the_last_state_survives_its_writers_daemon() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let views = share_views(&cluster, "legacy", 1);
    let writer = views[1].view(CONSISTENT).unwrap();
    store(writer, 0, 7);
    views[1].publish(false, 0..8).unwrap();
    for reader in [0, 2] {
        eventually("it arrives", || word(&views[reader], OLD, 0) == 7);
    }
    cluster.kill(1).unwrap();
    let memory = views[2].view(CONSISTENT).unwrap();
    assert_eq!(
        load(memory, 0),
        7,
        "the newest copy becomes the consistent one"
    );
    store(memory, 0, 8);
    views[2].publish(false, 0..8).unwrap();
    eventually("it goes on", || word(&views[0], OLD, 0) == 8);
}
