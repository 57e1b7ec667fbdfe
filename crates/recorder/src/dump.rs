//! A journal in a file, for people: the flight recorder's record.

use crate::layout::{Field, Layout, Slot};
use crate::recover::{load_snapshot, log};
use crate::replay::{Damage, Replay, Transition, digest};
use crate::{FINGERPRINT, FORMAT, schema};
use core::sync::atomic::AtomicU64;
use pagemesh_core::Node;
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"PMFLIGHT";

/// The last inputs of a node, with the state they started from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dump {
    /// The format of the snapshots.
    pub format: u64,
    /// The code that wrote it.
    pub fingerprint: u64,
    /// Its version, for people.
    pub version: String,
    /// Why it was written.
    pub why: String,
    /// [`digest`] of the node; none if the node was broken.
    pub digest: Option<u64>,
    /// Effects of the last input that had been carried out.
    pub done: u32,
    parts: Vec<Part>,
}

/// A snapshot and the log from there on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    #[serde(serialize_with = "crate::bytes::serialize")]
    snapshot: Vec<u8>,
    #[serde(serialize_with = "crate::bytes::serialize")]
    log: Vec<u8>,
}

/// Why a dump cannot be read or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// Not a dump.
    #[error("this is no dump of a flight recorder")]
    Foreign,
    /// Cut short, or changed.
    #[error("the dump is damaged")]
    Damaged,
    /// Only the same code does the same.
    #[error(
        "the dump was written by version {version}, build {fingerprint:x}; this is build \
         {FINGERPRINT:x}, which might act differently: replay it with the sources of that build"
    )]
    Build {
        /// The version that wrote it.
        version: String,
        /// The fingerprint of the code that wrote it.
        fingerprint: u64,
    },
    /// There is nothing to dump.
    #[error("there is no journal to dump")]
    Nothing,
}

/// How the replay of a dump ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In the very state that was dumped.
    Same(u64),
    /// In another state: the node is not deterministic, or something was not
    /// recorded.
    Different {
        /// The digest in the dump.
        dumped: u64,
        /// The digest after the replay.
        replayed: u64,
    },
    /// In some state; that of the node was not dumped.
    Unknown(u64),
    /// A snapshot on the way differs from the state replayed.
    SnapshotDiffers,
    /// Not at all.
    Damaged(Damage),
}

impl Dump {
    /// A dump of the journal in this memory. `node` is its node, if that is sound.
    ///
    /// # Errors
    /// If there is no journal.
    pub fn take(memory: &[AtomicU64], node: Option<&Node>, why: &str) -> Result<Self, DumpError> {
        let layout = Layout::new(memory);
        if !layout.is_journal() {
            return Err(DumpError::Nothing);
        }
        let active = layout.active().ok_or(DumpError::Nothing)?;
        let (slot, former) = (layout.slot(active), layout.slot(1 - active));
        let mut parts = Vec::new();
        let goes_on = former.get(Field::Serial) > 0
            && former.get(Field::Serial).checked_add(1) == Some(slot.get(Field::Serial))
            && former.get(Field::Fingerprint) == FINGERPRINT
            && former.get(Field::Format) == FORMAT;
        if goes_on {
            parts.extend(Part::take(former));
        }
        parts.push(Part::take(slot).ok_or(DumpError::Damaged)?);
        Ok(Self {
            format: FORMAT,
            fingerprint: slot.get(Field::Fingerprint),
            version: env!("CARGO_PKG_VERSION").into(),
            why: why.into(),
            digest: node.map(digest),
            done: slot.state().done,
            parts,
        })
    }

    /// As it stands in a file.
    ///
    /// # Panics
    /// Never: it can always be written.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = postcard::to_allocvec(self).expect("a dump has no unencodable part");
        let checksum = crc32fast::hash(&body).to_le_bytes();
        [MAGIC.as_slice(), &checksum, &body].concat()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it is none of ours, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DumpError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(DumpError::Foreign)?;
        let (checksum, body) = rest.split_first_chunk().ok_or(DumpError::Damaged)?;
        if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
            return Err(DumpError::Damaged);
        }
        match postcard::take_from_bytes(body) {
            Ok((dump, [])) => Ok(dump),
            _ => Err(DumpError::Damaged),
        }
    }

    /// Does everything again, and shows each transition.
    ///
    /// # Errors
    /// If other code wrote it.
    pub fn replay(&self, mut each: impl FnMut(&Transition<'_>)) -> Result<Verdict, DumpError> {
        if self.fingerprint != FINGERPRINT || self.format != FORMAT {
            return Err(DumpError::Build {
                version: self.version.clone(),
                fingerprint: self.fingerprint,
            });
        }
        let mut former: Option<Replay> = None;
        for part in &self.parts {
            let Ok((node, _)) = schema::read_snapshot(&part.snapshot) else {
                return Ok(Verdict::Damaged(Damage::Snapshot));
            };
            if former.is_some_and(|former| former.node != node) {
                return Ok(Verdict::SnapshotDiffers);
            }
            let mut replay = Replay::new(node);
            if let Err(damage) = replay.run(&part.log, &mut each) {
                return Ok(Verdict::Damaged(damage));
            }
            former = Some(replay);
        }
        let Some(last) = former else {
            return Ok(Verdict::Damaged(Damage::Snapshot));
        };
        let replayed = digest(&last.node);
        Ok(match self.digest {
            Some(dumped) if dumped == replayed => Verdict::Same(dumped),
            Some(dumped) => Verdict::Different { dumped, replayed },
            None => Verdict::Unknown(replayed),
        })
    }
}

impl Part {
    fn take(slot: Slot<'_>) -> Option<Self> {
        Some(Self {
            snapshot: load_snapshot(slot)?,
            log: log(slot, slot.state())?,
        })
    }
}
