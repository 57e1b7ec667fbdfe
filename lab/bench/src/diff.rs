//! `bench diff`: the time to find, encode and apply the changes in a page (T7), beside a copy of
//! the page; and to find out which pages were written.

use super::Effort;
use super::report::{Report, Samples};
use pagemesh_diff::{Diff, PAGE, Page, encode};
use std::hint::black_box;
use std::time::Instant;

/// Pages in one measurement: they fit a second-level cache with their twins.
const PAGES: usize = 32;

/// How a page changed.
struct Change {
    name: &'static str,
    /// Whether this byte changed.
    hits: fn(usize) -> bool,
}

const CHANGES: [Change; 6] = [
    Change {
        name: "equal",
        hits: |_| false,
    },
    Change {
        name: "one_word",
        hits: |at| at / 8 == 77,
    },
    Change {
        name: "tenth_run",
        hits: |at| (1000..1410).contains(&at),
    },
    Change {
        name: "tenth_words",
        hits: |at| (at / 8).is_multiple_of(10),
    },
    Change {
        name: "tenth_bytes",
        hits: |at| at.is_multiple_of(10),
    },
    Change {
        name: "all",
        hits: |_| true,
    },
];

/// Nanoseconds a page, over all pages.
fn timed(samples: &mut Vec<u64>, mut work: impl FnMut(usize)) {
    let start = Instant::now();
    (0..PAGES).for_each(&mut work);
    samples.push(start.elapsed().as_nanos() as u64 / PAGES as u64);
}

pub(super) fn measure(effort: &Effort) -> Report {
    let mut report = Report::new("diff");
    let twins: Vec<Page> = (0..PAGES).map(|page| [page as u8; PAGE]).collect();
    for Change { name, hits } in CHANGES {
        let mut pages = twins.clone();
        for page in &mut pages {
            for (at, byte) in page.iter_mut().enumerate() {
                *byte ^= u8::from(hits(at));
            }
        }
        let mut diffs = vec![Vec::new(); PAGES];
        let [mut copy, mut found, mut applied] = [const { Vec::new() }; 3];
        let mut room = twins.clone();
        for _ in 0..effort.count * effort.rounds {
            timed(&mut copy, |at| {
                *black_box(&mut room[at]) = *black_box(&twins[at])
            });
            timed(&mut found, |at| {
                diffs[at].clear();
                black_box(encode(
                    black_box(&twins[at]),
                    black_box(&pages[at]),
                    &mut diffs[at],
                ));
            });
            timed(&mut applied, |at| {
                if let Ok(diff) = Diff::check(black_box(&diffs[at])) {
                    diff.apply(&mut room[at]);
                }
            });
        }
        let [copy, found, applied] = [copy, found, applied].map(|nanos| {
            let mut samples = Samples::default();
            samples.extend(nanos);
            samples
        });
        let beside = Some(("copy", &copy));
        report.row(format!("encode_{name}"), "none", &found, beside);
        report.row(format!("apply_{name}"), "none", &applied, beside);
        report.value(&format!("length_{name}"), "B", diffs[0].len() as f64, 1);
    }
    super::detect::measure(effort, &mut report);
    report
}
