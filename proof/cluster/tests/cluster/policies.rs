//! The choices of a segment's creator.

use crate::support::{Cluster, at_best, expect, finish_all, load, store};
use pagemesh::{Manager, Options, PAGE_SIZE, Policy, Window};
use pagemesh_cli::sandbox::Plan;
use std::time::{Duration, Instant};

fn sequential(manager: Manager, window: Window) -> Options {
    Options {
        policy: Policy::Sequential { manager, window },
        ..Options::default()
    }
}

fn nanos(time: Duration) -> Window {
    Window::Nanos(time.as_nanos() as u64)
}

#[test]
fn every_manager_and_window_keeps_every_step() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let windows = [
        Window::Auto,
        Window::Nanos(0),
        nanos(Duration::from_millis(2)),
    ];
    for manager in [Manager::Dynamic, Manager::Fixed] {
        for window in windows {
            let name = format!("{manager:?} {window:?}").replace(' ', "");
            let options = sequential(manager, window);
            // Not on the first node, which also keeps the names.
            cluster.make_on(1, &name, 1, options);
            assert_eq!(
                cluster.mesh(2).stat(&name).unwrap().spec.policy,
                options.policy
            );
            let players = (0..3)
                .map(|node| {
                    let arguments = format!("count {name} --by atomic --rounds 150 --parties 3");
                    cluster.player(node, &arguments)
                })
                .collect();
            finish_all(players);
            assert_eq!(load(&cluster.map(0, &name), 0), 450, "{name}");
        }
    }
}

#[test]
fn segments_of_different_policies_live_side_by_side() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let fixed = cluster.share_with("fixed", 4, sequential(Manager::Fixed, Window::Nanos(0)));
    let dynamic = cluster.share("dynamic", 4);
    for value in 1..=50 {
        let (here, there) = (value as usize % 2, 1 - value as usize % 2);
        for maps in [&fixed, &dynamic] {
            store(&maps[here], PAGE_SIZE, value);
            assert_eq!(load(&maps[there], PAGE_SIZE), value);
        }
    }
}

#[test]
fn a_long_window_makes_the_others_wait() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let long = nanos(Duration::from_millis(300));
    for manager in [Manager::Dynamic, Manager::Fixed] {
        let maps = cluster.share_with(&format!("{manager:?}"), 1, sequential(manager, long));
        let before = cluster.counter(1, "window_delays");
        for value in 1..=2 {
            store(&maps[0], 0, value);
            store(&maps[1], 0, value + 10);
        }
        assert_eq!(load(&maps[0], 0), 12);
        assert!(cluster.counter(1, "window_delays") > before, "{manager:?}");
    }
}

/// Milliseconds for which the second node waits for windows of 50 ms, which end at ticks
/// of 50 ms, in windows that begin at all times between two ticks.
fn waits_by_ticks(sleep: &str) -> Option<Vec<f64>> {
    const WINDOW: Duration = Duration::from_millis(50);
    let mut plan = Plan::new(2);
    plan.experiment = format!("tick=50ms,sleep={sleep}").parse().unwrap();
    let cluster = Cluster::of(plan)?;
    let maps = cluster.share_with("ticks", 1, sequential(Manager::Dynamic, nanos(WINDOW)));
    let waits = (1..=10).map(|round| {
        // Until nothing holds the page.
        std::thread::sleep(2 * WINDOW + Duration::from_millis(round * 17));
        // The window begins within the first store, so none of it is missed.
        let start = Instant::now();
        store(&maps[0], 0, round);
        store(&maps[1], 0, round + 100);
        start.elapsed().as_secs_f64() * 1000.0
    });
    Some(waits.collect())
}

#[test]
fn windows_end_at_ticks_early_or_late() {
    let Some(strict) = waits_by_ticks("strict") else {
        return;
    };
    // A busy machine makes waits longer, never shorter.
    assert!(strict.iter().all(|wait| *wait > 49.0), "{strict:?}");
    let most = strict.iter().copied().fold(0.0, f64::max);
    assert!(most > 60.0, "all end before the next tick: {strict:?}");
    at_best(|| {
        let early = waits_by_ticks("early").unwrap();
        let least = early.iter().copied().fold(f64::MAX, f64::min);
        expect(least < 40.0, format!("none is woken early: {early:?}"))
    });
}

#[test]
fn a_fixed_manager_that_never_touched_the_page_still_finds_it() {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    let options = sequential(Manager::Fixed, Window::Auto);
    cluster.make_on(3, "library", 8, options);
    let maps: Vec<_> = (0..3).map(|node| cluster.map(node, "library")).collect();
    for round in 1..=30 {
        let value = round as u64;
        store(&maps[round % 3], round % 8 * PAGE_SIZE, value);
        for memory in &maps {
            assert_eq!(load(memory, round % 8 * PAGE_SIZE), value);
        }
    }
}

#[test]
fn daemons_may_wait_as_they_like() {
    for waiting in ["spin", "block"] {
        let mut plan = Plan::new(2);
        plan.waiting = Some(waiting.to_owned());
        let Some(cluster) = Cluster::of(plan) else {
            return;
        };
        let memory = &cluster.share("waiting", 1)[0];
        let players = (0..2)
            .map(|node| cluster.player(node, "count waiting --by lock --rounds 200 --parties 2"))
            .collect();
        finish_all(players);
        assert_eq!(load(memory, 0), 400, "{waiting}");
    }
}
