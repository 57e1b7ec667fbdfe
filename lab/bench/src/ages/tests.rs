use super::*;
use pagemesh_cli::output::note;
use trace::Touch;

/// Touches of these pages, each a store.
fn stores(pages: impl IntoIterator<Item = u32>) -> Trace {
    let touch = |page| Touch { page, store: true };
    let touches: Vec<_> = pages.into_iter().map(touch).collect();
    let pages = touches.iter().map(|touch| touch.page + 1).max();
    let pages = pages.unwrap_or_default();
    Trace { pages, touches }
}

#[test]
fn true_lru_misses_all_of_a_loop_that_is_a_page_too_large_and_nothing_else() {
    let rounds = |pages: u32| stores((0..4).flat_map(move |_| 0..pages));
    assert_eq!(lru::fetched(&rounds(10), 10), 0);
    assert_eq!(lru::fetched(&rounds(10), 9), 30);
    assert_eq!(lru::fetched(&stores([0, 1, 2, 0, 1, 3, 0, 2]), 3), 1);
}

#[test]
fn a_node_fetches_what_does_not_fit_and_nothing_that_does() {
    let rounds = stores((0..6).flat_map(|_| 0..200));
    let all = replay::replay(&rounds, 300).unwrap();
    assert_eq!((all.fetched, all.soft), (0, 0));
    assert!(all.all < 50, "frames come ahead of a walk: {all:?}");
    let half = replay::replay(&rounds, 100).unwrap();
    assert!(
        half.fetched >= 5 * 100 && half.fetched < 6 * 200,
        "{half:?}"
    );
    assert!(half.missed > 0 && half.missed <= half.fetched, "{half:?}");
    // One page again and again beside a loop that does not fit: it is found, since it is young.
    let hot = (0..3000).flat_map(|step| [0, 1 + step * 77 % 150, 0, 1 + step * 91 % 150]);
    let hot = stores(hot);
    let with = replay::replay(&hot, 100).unwrap();
    assert!(with.soft > 0, "{with:?}");
    let without = hot.touches.iter().filter(|touch| touch.page != 0).count() as u64;
    assert!(with.fetched < without / 2, "{with:?}");
}

/// The recorder, built where this test may write.
fn programs() -> Option<PathBuf> {
    let place = std::env::temp_dir().join(format!("pagemesh-ages-{}", std::process::id()));
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../apps/trace");
    let mut make = std::process::Command::new("make");
    make.arg("-sC")
        .arg(trace)
        .arg(format!("OUTPUT={}", place.display()));
    let built = make.output().is_ok_and(|output| output.status.success());
    (built && place.join("libpagetrace.so.0").exists()).then_some(place)
}

#[test]
fn programs_are_recorded_and_find_their_pages_about_as_often_as_with_lru() {
    let Some(programs) = programs() else {
        note(format_args!(
            "skipped: no recorder can be built here (make, cc, x86_64)"
        ));
        return;
    };
    // The recorder stops a program at each touch, and numpy touches pages nine hundred thousand times
    // before it computes: it is left to `pagemesh-bench ages`.
    let workloads = workload::all(10).unwrap();
    for workload in workloads.iter().filter(|workload| workload.name != "numpy") {
        let trace = match workload.record(&programs) {
            Ok(trace) => trace,
            Err(why) => {
                note(format_args!("skipped: {}: {why:#}", workload.name));
                continue;
            }
        };
        assert!(
            trace.pages > 100,
            "{}: {} pages",
            workload.name,
            trace.pages
        );
        let local = local_of(&trace, 500);
        let faults = replay::replay(&trace, local).unwrap();
        let lru = lru::fetched(&trace, local);
        note(format_args!(
            "{}: {} touches, {lru} by LRU, {faults:?}",
            workload.name,
            trace.touches.len()
        ));
        // A page a touch is the most there can be; a window for walks and a stage are what it takes.
        let most = 2 * lru + u64::from(trace.pages);
        assert!(
            faults.fetched <= most,
            "{}: {lru}, {faults:?}",
            workload.name
        );
    }
    std::fs::remove_dir_all(programs).unwrap();
}
