//! The schema in which a daemon hands its state to a daemon of another version.
//!
//! Snapshots of the journal are compact and read by the same build alone. Before a daemon makes
//! room for another one it writes its state once more, as a document: MessagePack with the name of
//! every field. A document carries its version; each [`STEPS`] entry turns a document of one
//! version into one of the next, so that the state is read whatever a field is called, and
//! wherever it lives, in the version that reads it.
//!
//! To change the state of a node: raise [`SCHEMA`], append a step, and keep the document that the
//! version before wrote in `tests/schema/` (`UPDATE_GOLDEN=1` writes the new version's beside it).

mod steps;

use pagemesh_core::Node;
use rmpv::Value;
use serde::{Deserialize, Serialize};
use steps::STEPS;

/// The version of the documents that this build writes.
pub const SCHEMA: u64 = OLDEST + STEPS.len() as u64;

/// The oldest version that this build reads.
pub const OLDEST: u64 = 1;

/// Why a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Another version wrote it, and this build has no steps from there.
    #[error(
        "the state has schema {0}, this version reads {OLDEST} to {SCHEMA}: start the version \
         that wrote it, or let the node leave (pagemesh leave)"
    )]
    Version(u64),
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

#[derive(Deserialize)]
struct Read {
    schema: u64,
    node: Value,
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
    let mut bytes = Vec::new();
    let mut serializer = rmp_serde::Serializer::new(&mut bytes)
        .with_struct_map()
        .with_human_readable();
    document
        .serialize(&mut serializer)
        .expect("the state of a node has no unencodable part");
    bytes
}

/// The node and the daemon's bytes of a document.
///
/// # Errors
/// If the version is not among those that this build reads, or the document is damaged.
pub fn read(bytes: &[u8]) -> Result<(Node, Vec<u8>), SchemaError> {
    let damaged = |why: &dyn ToString| SchemaError::Damaged(0, why.to_string());
    let Read {
        schema,
        mut node,
        registry,
    } = rmp_serde::from_slice(bytes).map_err(|why| damaged(&why))?;
    let steps = schema
        .checked_sub(OLDEST)
        .and_then(|first| STEPS.get(usize::try_from(first).ok()?..))
        .ok_or(SchemaError::Version(schema))?;
    for step in steps {
        step(&mut node).map_err(|why| SchemaError::Damaged(schema, why))?;
    }
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &node)
        .map_err(|why| SchemaError::Damaged(schema, why.to_string()))?;
    let mut deserializer = rmp_serde::Deserializer::new(&bytes[..]).with_human_readable();
    let node = Node::deserialize(&mut deserializer)
        .map_err(|why| SchemaError::Damaged(schema, why.to_string()))?;
    Ok((node, registry))
}
