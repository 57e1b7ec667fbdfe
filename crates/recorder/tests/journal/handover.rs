//! What a daemon hands over is read by this version and by the next ones.

use super::pair::{LOG, Memory, Pair, copy, memory};
use core::sync::atomic::Ordering;
use pagemesh_core::{Effects, Input, Time};
use pagemesh_recorder::schema::{self, OLDEST, OLDEST_WRITTEN, SCHEMA, SchemaError};
use pagemesh_recorder::{Dump, FINGERPRINT, Journal, RecoverError, Verdict, recover};
use pagemesh_wire::peer::MemberView;
use pagemesh_wire::{Program, Versions};
use rmpv::Value;
use std::fs;
use std::path::PathBuf;

#[test]
fn a_state_is_handed_over_whenever_nothing_is_left_to_do() {
    let mut looks = 0;
    let mut pair = Pair::new();
    pair.work(60, &mut |side, _, _| {
        let document = schema::write(&side.node, b"beside it");
        let read = schema::read(&document).expect("its own schema");
        assert_eq!(read, (side.node.clone(), b"beside it".to_vec()));
        looks += 1;
    });
    assert!(looks > 1000, "{looks}");
}

/// The next daemon's log starts anew, so that it may be killed and replaced in its turn.
#[test]
fn whoever_takes_over_has_a_log_of_its_own() {
    let mut pair = Pair::new();
    pair.work(20, &mut |_, _, _| {});
    for side in &mut pair.sides {
        side.journal
            .hand_over(SCHEMA, &side.node, b"registry")
            .expect("room");
        let memory = by_another_build(side.journal.memory());
        let found = recover(&memory).expect("any build reads it");
        assert_eq!(
            (&found.node, &found.registry[..]),
            (&side.node, &b"registry"[..])
        );
        side.journal = Journal::resume(memory, LOG, &found).expect("room");
    }
    let mut looks = 0;
    pair.work(20, &mut |side, _, _| {
        recover(side.journal.memory()).expect("its own log");
        looks += 1;
    });
    assert!(looks > 300, "{looks}");
    let side = &pair.sides[0];
    let dump = Dump::take(side.journal.memory(), Some(&side.node), "test").expect("a journal");
    assert!(matches!(dump.replay(|_| {}), Ok(Verdict::Same(_))));
}

#[test]
fn a_log_behind_what_was_handed_over_is_not_replayed() {
    let mut pair = Pair::new();
    let side = &mut pair.sides[0];
    side.journal
        .hand_over(SCHEMA, &side.node, b"")
        .expect("room");
    side.journal.note(b"too late");
    side.journal.publish();
    assert_eq!(
        recover(side.journal.memory()).unwrap_err(),
        RecoverError::Build
    );
}

/// `tests/schema/` keeps what each version wrote. With `UPDATE_GOLDEN=1` the present version is
/// added; what a former one wrote is never written again.
#[test]
fn states_of_former_versions_are_read() {
    let mut pair = Pair::new();
    pair.work(40, &mut |_, _, _| {});
    let now = schema::write(&pair.sides[1].node, b"registry");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(kept(SCHEMA), &now).expect("writable");
    }
    for version in OLDEST..=SCHEMA {
        let document = fs::read(kept(version)).expect("a version leaves its document");
        let (node, registry) = schema::read(&document).expect("steps lead here");
        assert_eq!(registry, b"registry");
        let (mut view, mut expected) = (node.view().clone(), pair.sides[1].node.view().clone());
        // Versions before 11 know none.
        forget_programs(&mut view);
        forget_programs(&mut expected);
        assert_eq!(view, expected, "version {version}");
        pair.sides[1].node = node;
        let (memory, now) = (memory(), pair.now);
        let side = &mut pair.sides[1];
        // As its daemon does. What it says gets lost, and is said again.
        let runs = Input::Runs(Program::of(Versions::SPOKEN));
        side.node.handle(now, runs, &mut Effects::default());
        side.journal = Journal::begin(memory, LOG, &side.node, b"").expect("room");
        pair.work(40, &mut |_, _, _| {});
    }
    assert!(
        fs::read(kept(SCHEMA)).is_ok_and(|before| before == now),
        "the state looks different now: append a step to crates/schema/src/steps.rs, \
         then UPDATE_GOLDEN=1 writes what this version writes"
    );
}

fn forget_programs(view: &mut MemberView) {
    for member in &mut view.members {
        member.program = Program::SILENT;
    }
}

/// The document without walks: what a node has seen of them is not handed to another version.
fn without_walks(document: &[u8]) -> Value {
    fn empty(value: &mut Value) {
        match value {
            Value::Array(values) => values.iter_mut().for_each(empty),
            Value::Map(fields) => {
                for (name, value) in fields {
                    match value {
                        Value::Array(walks) if name.as_str() == Some("walks") => walks.clear(),
                        value => empty(value),
                    }
                }
            }
            _ => {}
        }
    }
    let mut document = rmpv::decode::read_value(&mut &document[..]).expect("a document");
    empty(&mut document);
    document
}

/// A program that is put back reads what it wrote itself.
#[test]
fn states_are_put_back_as_the_former_version_wrote_them() {
    for version in OLDEST_WRITTEN..SCHEMA {
        let before = fs::read(kept(version)).expect("a version leaves its document");
        let (mut node, registry) = schema::read(&before).expect("steps lead here");
        let put_back = schema::write_as(version, &node, &registry).expect("it is written");
        assert!(
            without_walks(&put_back) == without_walks(&before),
            "version {version}"
        );
        // It says which programs there are.
        let runs = Input::Runs(Program::of(Versions::SPOKEN));
        node.handle(Time(u64::MAX / 2), runs, &mut Effects::default());
        let document = schema::write_as(version, &node, &registry).expect("it is written");
        let (read, _) = schema::read(&document).expect("steps lead here");
        let spoken = schema::protocols(version);
        let known = if spoken == Versions::only(4) {
            Program::SILENT
        } else {
            Program::of(spoken)
        };
        assert_eq!(read.program(), known);
        assert_eq!(read.view().epoch, node.view().epoch);
    }
    let node = &Pair::new().sides[0].node;
    assert_eq!(schema::write_as(OLDEST_WRITTEN - 1, node, b""), None);
    let later = schema::write_as(SCHEMA + 1, node, b"");
    assert_eq!(later, Some(schema::write(node, b"")));
}

/// No version has steps yet, so a document is read by one here that changes nothing.
#[test]
fn steps_lead_to_the_same_node_as_the_direct_way() {
    let mut pair = Pair::new();
    pair.work(10, &mut |_, _, _| {});
    let node = &pair.sides[1].node;
    let document = schema::write(node, b"registry");
    let unchanged: schema::Step = |_| Ok(());
    let read = schema::read_former(&document, &[unchanged]);
    assert_eq!(read, Ok((node.clone(), b"registry".to_vec())));
    assert_eq!(read.map_err(drop), schema::read(&document).map_err(drop));
    let refuses: schema::Step = |_| Err("no such field".into());
    let read = schema::read_former(&document, &[refuses]);
    assert_eq!(read, Err("no such field".into()));
}

#[test]
fn other_versions_and_damage_are_told() {
    let pair = Pair::new();
    let document = schema::write(&pair.sides[0].node, b"");
    let at = document.iter().position(|byte| u64::from(*byte) == SCHEMA);
    for version in [0, 127] {
        let mut other = document.clone();
        other[at.expect("it says its version")] = version;
        let why = schema::read(&other).unwrap_err();
        assert_eq!(why, SchemaError::Version(version.into()));
    }
    assert!(matches!(
        schema::read(b"no document"),
        Err(SchemaError::Unreadable(_))
    ));
    for length in 0..document.len() {
        let why = schema::read(&document[..length]).unwrap_err();
        assert!(
            matches!(
                why,
                SchemaError::Unreadable(_) | SchemaError::Damaged(SCHEMA, _)
            ),
            "{length} bytes: {why}"
        );
    }
    for at in 0..document.len() {
        let mut damaged = document.clone();
        damaged[at] ^= 0xff;
        drop(schema::read(&damaged));
    }
}

fn kept(version: u64) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schema");
    format!("{folder}/{version}.msgpack").into()
}

fn by_another_build(memory: &Memory) -> Memory {
    let memory = copy(memory);
    for word in &memory {
        if word.load(Ordering::Relaxed) == FINGERPRINT {
            word.store(1, Ordering::Relaxed);
        }
    }
    memory
}
