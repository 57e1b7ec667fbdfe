//! Whatever happens to the writer of a journal, its node is had again, or an
//! error says why not.

mod damage;
mod forms;
mod handover;
mod pair;
mod private;
mod shape;

use core::sync::atomic::{AtomicU64, Ordering};
use pagemesh_core::Input;
use pagemesh_recorder::{Dump, FORMAT, Journal, RecoverError, Transition, Verdict, recover};
use pair::{LOG, Moment, Pair, copy, memory};
use std::net::SocketAddr;

#[test]
fn a_node_is_had_again_at_every_moment() {
    let (mut moments, mut follow) = (0, 0);
    let mut pair = Pair::new();
    pair.work(60, &mut |side, moment, effects| {
        let found = recover(side.journal.memory()).expect("a sound journal");
        assert_eq!(found.queue, side.queue);
        follow += found.queue.len();
        moments += 1;
        match moment {
            Moment::Told => assert_eq!(found.done, 0),
            Moment::Done(done) => {
                assert_eq!(found.node, side.node);
                assert_eq!(found.effects.as_slice(), effects);
                assert_eq!(found.done, done);
            }
        }
    });
    assert!(moments > 1000 && follow > 10, "{moments} {follow}");
}

#[test]
fn inputs_that_came_together_are_had_again_together() {
    let mut pair = Pair::new();
    pair.together = true;
    let (mut most, mut within) = (0, 0);
    pair.work(60, &mut |side, moment, effects| {
        let found = recover(side.journal.memory()).expect("a sound journal");
        most = most.max(found.turn.len());
        if let Moment::Done(done) = moment {
            assert_eq!(found.node, side.node);
            assert_eq!(found.effects.as_slice(), effects);
            assert_eq!(found.done, done);
            let ends: Vec<_> = found.turn.iter().map(|heard| heard.effects).collect();
            assert!(ends.is_sorted() && ends.last() == Some(&effects.len()));
            within += usize::from(done > ends[0] && done < effects.len());
        }
    });
    assert!(most > 2 && within > 10, "{most} {within}");
}

/// With `UPDATE_GOLDEN=1` it writes down what it sees instead of comparing.
#[test]
fn another_shape_of_the_state_is_another_format() {
    let mut shape = shape::Shape::default();
    // To write a whole state takes long: every third is seen.
    let mut moments = 0;
    Pair::new().work(60, &mut |side, _, _| {
        moments += 1;
        if moments % 3 == 0 {
            shape.see(&side.node);
        }
    });
    let now = format!("format {FORMAT}\n{}", shape.lines());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/journal/shape.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, now).expect("writable");
        return;
    }
    let before = std::fs::read_to_string(path).expect("readable");
    assert!(
        before == now,
        "snapshots look different now. If fields of the state came, went or moved, raise FORMAT; \
         then UPDATE_GOLDEN=1 writes {path}:\n{now}"
    );
}

#[test]
fn an_input_counts_before_the_node_knows_it() {
    let mut pair = Pair::new();
    let mut ahead = 0;
    let mut told = None;
    pair.work(60, &mut |side, moment, effects| match moment {
        Moment::Told => told = Some(recover(side.journal.memory()).expect("sound")),
        Moment::Done(0) => {
            let told = told.take().expect("told before");
            assert_eq!(told.effects.as_slice(), effects);
            assert_eq!(told.node, side.node);
            ahead += 1;
        }
        Moment::Done(_) => {}
    });
    assert!(ahead > 100);
}

#[test]
fn notes_count_with_what_is_published_next() {
    let mut pair = Pair::new();
    let side = &mut pair.sides[0];
    side.journal.snapshot(&side.node, b"fresh").expect("room");
    side.journal.note(b"one");
    let found = recover(side.journal.memory()).expect("sound");
    assert_eq!((found.registry, found.notes), (b"fresh".to_vec(), vec![]));
    side.journal.note(b"two");
    side.journal.publish();
    let found = recover(side.journal.memory()).expect("sound");
    assert_eq!(found.notes, [b"one".to_vec(), b"two".to_vec()]);
}

#[test]
fn a_writer_goes_on_where_another_was_killed() {
    let mut pair = Pair::new();
    pair.work(20, &mut |_, _, _| {});
    for side in &mut pair.sides {
        let memory = copy(side.journal.memory());
        let found = recover(&memory).expect("sound");
        assert_eq!(found.node, side.node);
        side.journal = Journal::resume(memory, LOG, &found).expect("room");
        side.node = found.node;
    }
    let mut moments = 0;
    pair.work(20, &mut |side, moment, _| {
        let found = recover(side.journal.memory()).expect("sound");
        moments += usize::from(moment != Moment::Told);
        assert!(moment == Moment::Told || found.node == side.node);
    });
    assert!(moments > 300);
}

#[test]
fn any_datagram_is_handled_alike_though_its_page_is_not_written_down() {
    let mut pair = Pair::new();
    let source = SocketAddr::from(([127, 0, 0, 1], 1001));
    for length in [0, 1, 31, 32, 33, 4095, 4096, 4128, 5000, 65_507] {
        for byte in [0, b'P', 0xff] {
            let mut bytes = vec![byte; length];
            if byte == b'P' && length >= 4 {
                bytes[..4].copy_from_slice(b"PM\x01\0");
            }
            let bytes = bytes.as_slice();
            let mut looks = 0;
            pair.input(
                0,
                Input::Datagram {
                    source,
                    key: pagemesh_wire::PublicKey::NONE,
                    bytes,
                },
                &mut |side, at, effects| {
                    let found = recover(side.journal.memory()).expect("sound");
                    assert!(at == Moment::Told || found.node == side.node);
                    assert!(at == Moment::Told || found.effects.as_slice() == effects);
                    looks += 1;
                },
            );
            assert!(looks >= 2);
        }
    }
}

#[test]
fn a_dump_is_replayed_to_the_same_state() {
    let mut pair = Pair::new();
    pair.work(40, &mut |_, _, _| {});
    let side = &pair.sides[1];
    let dump = Dump::take(side.journal.memory(), Some(&side.node), "test").expect("a journal");
    let read = Dump::from_bytes(&dump.to_bytes()).expect("what was written");
    assert_eq!(read, dump);
    let (mut last, mut seen) = (0, 0);
    let verdict = read.replay(|transition: &Transition<'_>| {
        assert!(transition.now.0 >= last);
        last = transition.now.0;
        seen += 1;
    });
    assert!(matches!(verdict, Ok(Verdict::Same(_))), "{verdict:?}");
    assert!(seen > 20, "both slots are history: {seen}");
    let other = Dump::take(side.journal.memory(), Some(&pair.sides[0].node), "").expect("one");
    let verdict = other.replay(|_| {}).expect("the same build");
    assert!(matches!(verdict, Verdict::Different { .. }), "{verdict:?}");
}

/// `cargo test --release -p pagemesh-recorder --test journal costs -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, not a test"]
fn what_a_record_costs() {
    const TIMES: u32 = 1_000_000;
    let mut pair = Pair::new();
    pair.work(20, &mut |_, _, _| {});
    let node = &pair.sides[0].node;
    let memory: Vec<_> = (0..64 << 20).map(|_| AtomicU64::new(0)).collect();
    let mut journal = Journal::begin(memory, usize::MAX, node, b"").expect("it fits");
    let source = SocketAddr::from(([127, 0, 0, 1], 1001));
    let mut datagram = vec![0; 4160];
    datagram[..4].copy_from_slice(b"PM\x01\0");
    datagram[24] = 32;
    let bytes = datagram.as_slice();
    let key = pagemesh_wire::PublicKey::NONE;
    let fault = Input::Fault {
        mapping: pagemesh_wire::MappingId(1),
        page: pagemesh_wire::PageIndex(70_000),
        access: pagemesh_wire::peer::Access::Read,
    };
    for (name, input) in [
        ("deadline", Input::Deadline),
        ("fault", fault),
        ("datagram", Input::Datagram { source, key, bytes }),
    ] {
        let start = std::time::Instant::now();
        for now in 0..TIMES {
            let now = pagemesh_core::Time(1 << 45 | u64::from(now));
            journal.input(now, input.clone());
            (1..=4).for_each(|done| journal.progress(done));
        }
        let took = start.elapsed() / TIMES;
        eprintln!("{name} and four effects: {took:?}");
        assert!(!journal.is_stopped());
    }
    let start = std::time::Instant::now();
    for _ in 0..TIMES / 1000 {
        journal.snapshot(node, b"").expect("it fits");
    }
    let took = start.elapsed() / (TIMES / 1000);
    let start = std::time::Instant::now();
    for _ in 0..TIMES / 1000 {
        recover(journal.memory()).expect("sound");
    }
    let found = start.elapsed() / (TIMES / 1000);
    let bytes = pagemesh_recorder::digest(node) >> 32;
    eprintln!("a snapshot of {bytes} bytes: {took:?}; recovered in {found:?}");
}

#[test]
fn a_journal_without_room_says_so() {
    let pair = Pair::new();
    let node = &pair.sides[0].node;
    let small =
        |words: usize| -> Vec<AtomicU64> { (0..words).map(|_| AtomicU64::new(0)).collect() };
    for words in [0, 1, 7, 8, 9, 24, 64, 1000] {
        assert!(Journal::begin(small(words), LOG, node, b"").is_err());
    }
    assert_eq!(recover(&small(1000)).unwrap_err(), RecoverError::Nothing);

    let mut journal = Journal::begin(memory(), LOG, node, b"").expect("it fits");
    let mut notes = 0;
    while !journal.is_stopped() {
        assert!(recover(journal.memory()).is_ok());
        journal.note(&[7; 50_000]);
        journal.publish();
        notes += 1;
    }
    assert!(notes > 5 && !journal.is_long(), "{notes}");
    let given_up = recover(journal.memory()).unwrap_err();
    assert_eq!(given_up, RecoverError::Stopped);
}

#[test]
fn what_another_build_wrote_is_replayed_by_nobody_else() {
    let mut pair = Pair::new();
    pair.work(3, &mut |_, _, _| {});
    let side = &mut pair.sides[0];
    let foreign = |memory: &[AtomicU64]| {
        let memory = copy(memory);
        for word in &memory {
            if word.load(Ordering::Relaxed) == pagemesh_recorder::FINGERPRINT {
                word.store(1, Ordering::Relaxed);
            }
        }
        recover(&memory).map(|found| found.node)
    };
    side.journal.note(b"so that there is a log");
    side.journal.publish();
    assert_eq!(foreign(side.journal.memory()), Err(RecoverError::Build));
    // Left in order: a snapshot alone means the same to every build.
    side.journal.snapshot(&side.node, b"").expect("room");
    assert_eq!(foreign(side.journal.memory()).as_ref(), Ok(&side.node));
}
