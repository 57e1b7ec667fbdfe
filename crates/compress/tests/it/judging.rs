//! Decisions of a judge about links and pages.

use pagemesh_compress::{Codec, Judge, PAGE};

/// Bytes a second.
const SLOW: f64 = 100e6 / 8.0;
const FAST: f64 = 5e9;

/// How many of 1000 pages are tried when each becomes `len` bytes in `nanos`.
fn tries(judge: &mut Judge, len: usize, nanos: u64) -> usize {
    let mut tries = 0;
    for _ in 0..1000 {
        if let Some(codec) = judge.choose() {
            judge.tried(codec, len, nanos);
            tries += 1;
        }
    }
    tries
}

#[test]
fn an_unknown_link_is_taken_for_fast() {
    assert_eq!(tries(&mut Judge::new(), 0, 1), 0);
}

#[test]
fn a_slow_link_packs_what_packs() {
    let mut judge = Judge::new();
    judge.measured(SLOW);
    assert_eq!(tries(&mut judge, 1000, 8000), 1000);
}

#[test]
fn pages_that_do_not_pack_are_soon_left_alone_and_tried_again() {
    let mut judge = Judge::new();
    judge.measured(SLOW);
    let tried = tries(&mut judge, PAGE, 3000);
    assert!((2..=15).contains(&tried), "{tried}");
    // The pages change; at the end of a pause it is noticed.
    let mut later = 0;
    for _ in 0..4 {
        later = tries(&mut judge, 500, 3000);
    }
    assert_eq!(later, 1000);
}

#[test]
fn a_fast_link_is_not_made_to_wait() {
    let mut judge = Judge::new();
    judge.measured(FAST);
    assert!(tries(&mut judge, 2000, 4000) <= 15);
    judge.measured(100e9);
    assert_eq!(tries(&mut judge, 2000, 4000), 0, "not even for a try");
}

#[test]
fn a_link_that_became_slow_is_noticed() {
    let mut judge = Judge::new();
    judge.measured(FAST);
    tries(&mut judge, 2000, 4000);
    judge.measured(SLOW);
    assert_eq!(tries(&mut judge, 2000, 4000), 1000);
}

#[test]
fn the_codec_that_gains_more_is_preferred() {
    let mut judge = Judge::new();
    judge.measured(SLOW);
    let mut lz4 = 0;
    for _ in 0..1000 {
        match judge.choose() {
            Some(codec @ Codec::Lz4) => {
                judge.tried(codec, 1000, 7000);
                lz4 += 1;
            }
            Some(codec @ Codec::Runs) => judge.tried(codec, PAGE, 500),
            None => {}
        }
    }
    assert!(lz4 > 900, "{lz4}");
}

#[test]
fn a_codec_that_was_interrupted_once_is_not_slow() {
    let mut judge = Judge::new();
    judge.measured(SLOW);
    let codec = judge.choose().unwrap();
    // A time slice of another process.
    judge.tried(codec, 2000, 4_000_000);
    assert_eq!(tries(&mut judge, 2000, 4000), 1000);
}
