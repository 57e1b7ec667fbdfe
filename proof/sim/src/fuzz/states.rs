//! States that one daemon hands to another as documents: damaged ones are refused, or are the state
//! of a node, which is written as it was read.
//!
//! A document is longer than inputs are. So an input names one of those that the versions so far have
//! written, and says how it is changed.

use crate::check::{Check, ensure};
use crate::dice::Dice;
use pagemesh_recorder::schema;
use std::path::Path;

/// The documents, one of each version from the oldest on.
#[derive(Debug)]
pub(super) struct States(Vec<Vec<u8>>);

/// Bytes of a change: place, kind, operand.
const CHANGE: usize = 4;

impl States {
    pub(super) fn read() -> Result<Self, String> {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../crates/recorder/tests/schema"
        );
        let versions = schema::OLDEST..=schema::SCHEMA;
        let documents = versions.map(|version| {
            let path = Path::new(folder).join(format!("{version}.msgpack"));
            std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
        });
        Ok(Self(documents.collect::<Result<_, _>>()?))
    }

    /// Reads the document that the input means. Returns whether it is the state of a node.
    pub(super) fn suffer(&self, input: &[u8]) -> Check<bool> {
        let Some((which, changes)) = input.split_first() else {
            return Ok(false);
        };
        let mut document = self.0[usize::from(*which) % self.0.len()].clone();
        let (changes, _) = changes.as_chunks::<CHANGE>();
        for change in changes {
            damage(&mut document, *change);
        }
        let Ok((node, registry)) = schema::read(&document) else {
            return Ok(false);
        };
        let written = schema::write(&node, &registry);
        let again = schema::read(&written);
        let again = again.map(|(node, registry)| schema::write(&node, &registry));
        ensure!(
            again == Ok(written),
            Law,
            "a state that was read is another one when it is written"
        );
        Ok(true)
    }
}

/// Changes a document at a place of it.
fn damage(document: &mut Vec<u8>, [low, high, kind, operand]: [u8; CHANGE]) {
    let at = usize::from(u16::from_le_bytes([low, high])) % document.len().max(1);
    let end = (at + usize::from(operand)).min(document.len());
    match kind % 5 {
        0 if at < document.len() => document[at] ^= operand,
        1 if at < document.len() => document[at] = operand,
        2 => drop(document.drain(at..end)),
        3 => {
            let copy = document[at..end].to_vec();
            document.splice(at..at, copy);
        }
        _ => document.truncate(at.max(1)),
    }
}

/// Each version as it is, and with a few changes.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut dice = Dice::stream(0, "states");
    let versions = 0..=(schema::SCHEMA - schema::OLDEST) as u8;
    versions
        .flat_map(|version| {
            let whole = vec![version];
            let changed: Vec<Vec<u8>> = (1..4)
                .map(|changes| {
                    let bytes = (0..changes * CHANGE).map(|_| dice.number() as u8);
                    [version].into_iter().chain(bytes).collect()
                })
                .collect();
            std::iter::once(whole).chain(changed)
        })
        .collect()
}
