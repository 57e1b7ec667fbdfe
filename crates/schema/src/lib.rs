//! The schema in which a daemon hands its state to a daemon of another version.
//!
//! Everything that a daemon keeps is MessagePack, in two [`Form`]s. Snapshots of the journal and its
//! records are read by the same build alone, and their parts have no names. Before a daemon makes
//! room for another one it writes its state once more, as a document, with the name of every field.
//! A document carries its version; each [`STEPS`] entry turns a document of one
//! version into one of the next, so that the state is read whatever a field is called, and
//! wherever it lives, in the version that reads it.
//!
//! To change the state of a node: raise [`SCHEMA`], append a step, put the step back into [`BACK`]
//! in place of the former ones, and keep the document that the version before wrote in `crates/recorder/tests/schema/` (`UPDATE_GOLDEN=1` writes the new
//! version's beside it).
//!
//! It is a crate of its own so that the code that writes and reads each type of a node's state is
//! compiled here, once: it was a third of the program.

pub mod reader;
mod steps;
pub mod writer;

use pagemesh_core::{KeptEntry, Node};
use pagemesh_wire::Versions;
use reader::Misfit;
use rmpv::Value;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
pub use steps::Step;
use steps::{BACK, STEPS};
use writer::{NoRoom, Sink};

/// How the parts of a structure are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By their names: another version may read them.
    Named,
    /// By their places: the build that wrote them reads them.
    Positional,
}

impl Form {
    /// Whether addresses are texts, as documents have them.
    fn is_for_people(self) -> bool {
        self == Self::Named
    }
}

/// The version of the documents that this build writes.
pub const SCHEMA: u64 = OLDEST + STEPS.len() as u64;

/// The oldest version that this build reads.
pub const OLDEST: u64 = 1;

/// The oldest version that this build writes, for a program that is put back.
pub const OLDEST_WRITTEN: u64 = SCHEMA - BACK.len() as u64;

/// The versions of the protocol between daemons that the programs speak which read no newer schema
/// than this one: each new version of the protocol has a new schema.
#[must_use]
pub fn protocols(newest: u64) -> Versions {
    match newest {
        ..11 => Versions::only(4),
        _ => Versions::SPOKEN,
    }
}

/// Why a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Another version wrote it, and this build has no steps from there.
    #[error(
        "the state has schema {0}, this version reads {OLDEST} to {SCHEMA}: start the version \
         that wrote it, or let the node leave (pagemesh leave)"
    )]
    Version(u64),
    /// It is no whole document, so that no version is read from it.
    #[error("the state is damaged, or cut off: {0}")]
    Unreadable(String),
    /// It does not say what its version has to say.
    #[error("the state of schema {0} is damaged: {1}")]
    Damaged(u64, String),
}

#[derive(Serialize)]
struct Written<'a> {
    schema: u64,
    node: &'a Node,
    registry: &'a [u8],
}

/// What every version of a document has; the rest is skipped.
#[derive(Deserialize)]
struct Version {
    schema: u64,
}

/// A document whose node is of this version.
#[derive(Deserialize)]
struct Present {
    node: Node,
    registry: Vec<u8>,
}

/// The document of a node, and of the bytes that its daemon adds.
///
/// # Panics
/// If a part of the state cannot be written at all, which its tests exclude.
#[must_use]
pub fn write(node: &Node, registry: &[u8]) -> Vec<u8> {
    let document = Written {
        schema: SCHEMA,
        node,
        registry,
    };
    writer::append(&document, Form::Named, Vec::new())
}

/// Passes the snapshot of a node, and of the bytes that its daemon adds, on in portions of 4,096
/// bytes; the last one may be shorter.
///
/// # Errors
/// If there is no room for a portion.
///
/// # Panics
/// If a part of the state cannot be written at all, which its tests exclude.
pub fn write_snapshot(node: &Node, registry: &[u8], sink: Sink<'_>) -> Result<(), NoRoom> {
    writer::pass(node, registry, sink)
}

/// The node and the daemon's bytes of a snapshot that this build wrote.
///
/// # Errors
/// If it is none, or not whole.
pub fn read_snapshot(mut bytes: &[u8]) -> Result<(Node, Vec<u8>), Misfit> {
    let node = reader::read(&mut bytes, Form::Positional)?;
    let registry: &[u8] = reader::read(&mut bytes, Form::Positional)?;
    match bytes.len() {
        0 => Ok((node, registry.to_vec())),
        more => Err(Misfit::more(more)),
    }
}

/// Decisions of a coordinator, as its disk or etcd keeps them for every version.
///
/// # Panics
/// If an entry cannot be written at all, which its tests exclude.
#[must_use]
pub fn write_entries(entries: &[KeptEntry]) -> Vec<u8> {
    writer::append(entries, Form::Named, Vec::new())
}

/// The decisions in these bytes.
///
/// # Errors
/// If they are none, or cut off.
pub fn read_entries(mut bytes: &[u8]) -> Result<Vec<KeptEntry>, Misfit> {
    reader::read(&mut bytes, Form::Named)
}

/// The node and the daemon's bytes of a document.
///
/// # Errors
/// If the version is not among those that this build reads, or the document is damaged.
pub fn read(bytes: &[u8]) -> Result<(Node, Vec<u8>), SchemaError> {
    let Version { schema } = decode(bytes).map_err(SchemaError::Unreadable)?;
    let steps = schema
        .checked_sub(OLDEST)
        .and_then(|first| STEPS.get(usize::try_from(first).ok()?..))
        .ok_or(SchemaError::Version(schema))?;
    let read = if steps.is_empty() {
        decode(bytes).map(|Present { node, registry }| (node, registry))
    } else {
        read_former(bytes, steps)
    };
    read.map_err(|why| SchemaError::Damaged(schema, why))
}

/// The node of a former version's document, which each of these steps turns into the next one's,
/// and the daemon's bytes.
///
/// # Errors
/// If the document is damaged, or a step does not find what it changes.
#[doc(hidden)]
pub fn read_former(bytes: &[u8], steps: &[Step]) -> Result<(Node, Vec<u8>), String> {
    let mut document = values(bytes)?;
    let mut node = take(&mut document, "node")?;
    for step in steps {
        step(&mut node)?;
    }
    let registry = decode(&bytes_of(&take(&mut document, "registry")?))?;
    Ok((decode(&bytes_of(&node))?, registry))
}

/// As [`write`], for a program that reads no newer schema than this one; none if it is older than
/// [`OLDEST_WRITTEN`].
///
/// # Panics
/// As [`write`].
#[must_use]
pub fn write_as(schema: u64, node: &Node, registry: &[u8]) -> Option<Vec<u8>> {
    if schema >= SCHEMA {
        return Some(write(node, registry));
    }
    let steps = SCHEMA - schema;
    let steps = BACK.get(..usize::try_from(steps).ok()?)?;
    let mut document = values(&write(node, registry)).expect("it was written just now");
    for (key, part) in &mut document {
        match key.as_str() {
            Some("schema") => *part = schema.into(),
            Some("node") => {
                for step in steps {
                    step(part).expect("a step back finds what its step made");
                }
            }
            _ => {}
        }
    }
    Some(bytes_of(&Value::Map(document)))
}

/// A document of any version.
fn values(mut bytes: &[u8]) -> Result<Vec<(Value, Value)>, String> {
    let document = rmpv::decode::read_value(&mut bytes).map_err(|why| why.to_string())?;
    match document {
        Value::Map(parts) => Ok(parts),
        _ => Err("it is no map".into()),
    }
}

/// Takes a part out of a document.
fn take(document: &mut [(Value, Value)], name: &str) -> Result<Value, String> {
    let found = document
        .iter_mut()
        .find(|(key, _)| key.as_str() == Some(name));
    let (_, part) = found.ok_or_else(|| format!("it has no {name}"))?;
    Ok(std::mem::replace(part, Value::Nil))
}

fn bytes_of(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).expect("memory takes all");
    bytes
}

fn decode<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<T, String> {
    reader::read(&mut bytes, Form::Named).map_err(|why| why.to_string())
}
