//! The bytes of everything that crosses a socket: samples of each variant of each enum, beside
//! the bytes that were fixed for them. A variant without a sample does not compile.

use postcard::take_from_bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{Debug, Write as _};

mod choices;
mod local;
pub(crate) mod peer;
mod sysv;

/// A function that returns samples of an enum, each with its variant's name: at least one of every
/// variant, else it does not compile.
macro_rules! samples {
    ($visibility:vis fn $name:ident() -> $type:ident { $($variant:ident: $($sample:expr),+;)* }) => {
        $visibility fn $name() -> Vec<(&'static str, $type)> {
            let _: fn(&$type) = |sample| match sample {
                $($type::$variant { .. } => {})*
            };
            let samples = [$((stringify!($variant), vec![$($sample),+])),*];
            for (variant, samples) in &samples {
                for sample in samples {
                    let named = match sample { $($type::$variant { .. } => stringify!($variant),)* };
                    assert_eq!(named, *variant, "a sample stands with another variant");
                }
            }
            let each = |(name, samples): (&'static str, Vec<$type>)| samples.into_iter().map(move |it| (name, it));
            samples.into_iter().flat_map(each).collect()
        }
    };
}
pub(crate) use samples;

/// The samples' bytes as lines of a file, after each was found to come back from its bytes.
pub(crate) fn lines<T>(of: &str, samples: Vec<(&'static str, T)>) -> String
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let mut lines = String::new();
    for (name, sample) in samples {
        let bytes = postcard::to_extend(&sample, Vec::new()).unwrap();
        let (again, left) = take_from_bytes::<T>(&bytes).unwrap();
        assert_eq!((&again, left), (&sample, [].as_slice()), "{of}::{name}");
        write!(lines, "{of}::{name} ").unwrap();
        bytes
            .iter()
            .for_each(|byte| write!(lines, "{byte:02x}").unwrap());
        lines.push('\n');
    }
    lines
}

/// Compares with the fixed bytes. `UPDATE=1` writes the file anew.
fn compare(file: &str, fixed: &str, now: &str, version: &str) {
    if std::env::var_os("UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/golden/");
        return std::fs::write(format!("{path}{file}"), now).unwrap();
    }
    for (fixed, now) in fixed.lines().zip(now.lines()) {
        assert_eq!(
            now, fixed,
            "the bytes changed: raise {version}, then UPDATE=1"
        );
    }
    let rows = now.lines().count();
    assert!(
        now == fixed,
        "a row came or went, now {rows}; new variants come last"
    );
}

#[test]
fn between_daemons() {
    let now = peer::all() + &sysv::all() + &choices::all();
    compare(
        "peer.txt",
        include_str!("golden/peer.txt"),
        &now,
        "PROTOCOL_VERSION",
    );
}

/// `golden/peer-4.txt` has the bytes that version 4 had for its messages, calls and replies: they
/// are read, and what they say is written as they are.
#[test]
fn version_4_is_spoken_as_it_was() {
    use crate::peer::version_4;
    let mut rows = 0;
    let calls: &[u8] = &[7, 9, 8];
    for (of, front) in [("Message", &[][..]), ("Call", calls), ("Reply", &[8, 9])] {
        for (name, bytes) in fixed(include_str!("golden/peer-4.txt"), of) {
            let bytes = [front, &bytes].concat();
            let (message, left) = version_4::decode(&bytes).expect(name);
            assert!(left.is_empty(), "{name}");
            let again = version_4::encode(&message, Vec::new()).unwrap();
            assert_eq!(again, bytes, "{name}");
            rows += 1;
        }
    }
    assert_eq!(rows, 106, "rows of messages, calls and replies");
}

/// The bytes that a file fixed for the variants of one enum.
fn fixed(file: &'static str, of: &'static str) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    file.lines().filter_map(move |line| {
        let (name, hex) = line.split_once(' ').unwrap();
        let (its, _) = name.split_once("::").unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes = || (0..hex.len()).step_by(2).map(byte).collect();
        (its == of).then(|| (name, bytes()))
    })
}

/// `golden/local-6.txt` has the bytes that version 6 had for its requests and replies: they are read
/// and written as they were.
#[test]
fn version_6_of_the_local_protocol_is_spoken_as_it_was() {
    fn unchanged<T: Serialize + DeserializeOwned>(of: &'static str) -> usize {
        let rows = fixed(include_str!("golden/local-6.txt"), of);
        rows.map(|(name, bytes)| {
            let (said, left) = take_from_bytes::<T>(&bytes).expect(name);
            assert!(left.is_empty(), "{name}");
            assert_eq!(
                postcard::to_extend(&said, Vec::new()).unwrap(),
                bytes,
                "{name}"
            );
        })
        .count()
    }
    let requests = unchanged::<crate::local::RequestPacket>("Request");
    let replies = unchanged::<crate::local::ReplyPacket>("Reply");
    assert_eq!((requests, replies), (54, 27));
}

#[test]
fn between_a_program_and_its_daemon() {
    compare(
        "local.txt",
        include_str!("golden/local.txt"),
        &local::all(),
        "LOCAL_VERSION",
    );
}

/// Every message and every call has its row in docs/protocol.md, messages with their tag.
#[test]
fn the_protocol_is_described() {
    let text = include_str!("../../../docs/protocol.md");
    for (name, message) in peer::messages() {
        let tag = postcard::to_extend(&message, Vec::new()).unwrap()[0];
        let row = format!("| {tag} | `{name}`");
        assert!(text.contains(&row), "docs/protocol.md has no row {row}");
    }
    let (_, calls) = text.split_once("\n## Calls\n").unwrap();
    let (calls, _) = calls.split_once("\nThe rules:").unwrap();
    for (name, _) in peer::calls() {
        let named = format!("`{name}`");
        let row = |row: &&str| {
            row.split('|')
                .nth(1)
                .is_some_and(|first| first.contains(&named))
        };
        assert!(
            calls.lines().any(|line| row(&line)),
            "no row for call {named}"
        );
    }
}
