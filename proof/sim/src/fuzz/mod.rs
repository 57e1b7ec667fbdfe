//! Hostile bytes: targets that take any bytes at all and must neither panic nor
//! break a law, a corpus for each, and mutations of it.
//!
//! Every target is a function of bytes, so that any fuzzer can drive it. The one
//! here knows nothing of coverage; its corpus knows every message.

mod mutate;
mod node_inputs;
mod packets;
mod seeds;
mod snapshots;
mod states;

use crate::check::{Check, ensure};
use crate::dice::Dice;
use crate::explore::Setting;
use crate::run::without_panic;
use crate::scenario;
use node_inputs::Victims;
use pagemesh_compress::{Form, unpack};
use pagemesh_diff::{Diff, PAGE, merge};
use pagemesh_wire::local::{ReplyPacket, RequestPacket};
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::multicast_batch::{self, MulticastBatch};
use pagemesh_wire::peer::Message;
use states::States;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The code that is given hostile bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Datagrams of peers.
    PeerDecode,
    /// Packets of local programs and the daemon's replies.
    LocalDecode,
    /// Diffs of pages.
    DiffApply,
    /// Packed pages, behind a byte for their form.
    PageUnpack,
    /// A datagram from a multicast group.
    MulticastBatchDecode,
    /// Packets about the paths between nodes.
    PathPackets,
    /// A real node, given datagrams and requests.
    NodeInputs,
    /// Transcripts and settings of explorations.
    Scripts,
    /// Files of saved segments.
    SnapshotRead,
    /// States of nodes, as one daemon hands them to another.
    StateRead,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::PeerDecode,
        Self::LocalDecode,
        Self::DiffApply,
        Self::PageUnpack,
        Self::MulticastBatchDecode,
        Self::PathPackets,
        Self::NodeInputs,
        Self::Scripts,
        Self::SnapshotRead,
        Self::StateRead,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::PeerDecode => "peer_decode",
            Self::LocalDecode => "local_decode",
            Self::DiffApply => "diff_apply",
            Self::PageUnpack => "page_unpack",
            Self::MulticastBatchDecode => "multicast_batch_decode",
            Self::PathPackets => "path_packets",
            Self::NodeInputs => "node_inputs",
            Self::Scripts => "scripts",
            Self::SnapshotRead => "snapshot_read",
            Self::StateRead => "state_read",
        }
    }

    /// Where its corpus is: one input a line, in hexadecimal.
    #[must_use]
    pub fn corpus_file(self) -> PathBuf {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
        PathBuf::from(folder).join(format!("{self}.txt"))
    }

    /// Its corpus.
    ///
    /// # Errors
    /// If the file cannot be read or is not hexadecimal.
    pub fn corpus(self) -> Result<Vec<Vec<u8>>, String> {
        let path = self.corpus_file();
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| bytes(line).ok_or_else(|| format!("{line} is not hexadecimal")))
            .collect()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|target| target.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no such target; there are {names}")
        })
    }
}

/// Bytes that broke something.
#[derive(Clone, Debug)]
pub struct Breach {
    /// As few as were found, in hexadecimal: a line for the corpus.
    pub input: String,
    /// The check that failed.
    pub why: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.why, self.input)
    }
}

/// A target, ready.
pub struct Fuzz {
    target: Target,
    corpus: Vec<Vec<u8>>,
    victims: Victims,
    states: States,
}

impl Fuzz {
    /// Sets a target up.
    ///
    /// # Errors
    /// If its corpus or the documents of former versions cannot be read.
    pub fn new(target: Target) -> Result<Self, String> {
        Ok(Self {
            target,
            corpus: target.corpus()?,
            victims: Victims::new(),
            states: States::read()?,
        })
    }

    /// Every input of the corpus, as it is.
    ///
    /// # Errors
    /// The first that breaks something.
    pub fn replay(&self) -> Result<usize, Breach> {
        for input in &self.corpus {
            self.attempt(input)?;
        }
        Ok(self.corpus.len())
    }

    /// Tests `count` mutations of the corpus, decided by a seed.
    ///
    /// # Errors
    /// The first that fails a check.
    pub fn mutate(&self, seed: u64, count: u32) -> Result<(), Breach> {
        let mut dice = Dice::stream(seed, self.target.name());
        for _ in 0..count {
            self.attempt(&mutate::mutated(&mut dice, &self.corpus))?;
        }
        Ok(())
    }

    fn attempt(&self, input: &[u8]) -> Result<(), Breach> {
        if self.run(input).is_ok() {
            return Ok(());
        }
        let least = mutate::shrunk(input, |input| self.run(input).is_err());
        let why = self.run(&least).expect_err("shrinking keeps what is wrong");
        Err(Breach {
            input: hex(&least),
            why: why.to_string(),
        })
    }

    fn run(&self, input: &[u8]) -> Check {
        without_panic(|| match self.target {
            Target::PeerDecode => peer_decode(input),
            Target::LocalDecode => local_decode(input),
            Target::DiffApply => diff_apply(input),
            Target::PageUnpack => page_unpack(input),
            Target::MulticastBatchDecode => multicast_batch_decode(input),
            Target::PathPackets => packets::path_packets(input),
            Target::NodeInputs => self.victims.suffer(input).map(|_| ()),
            Target::SnapshotRead => snapshots::snapshot_read(input).map(drop),
            Target::StateRead => self.states.suffer(input).map(drop),
            Target::Scripts => {
                scripts(&String::from_utf8_lossy(input));
                Ok(())
            }
        })
    }
}

/// A message that was decoded is the same when it is encoded and decoded again.
fn peer_decode(input: &[u8]) -> Check {
    if let Ok((header, message, page)) = Message::decode(input) {
        let mut again = Vec::new();
        message.encode(header, &mut again);
        again.extend_from_slice(page);
        let same = Message::decode(&again) == Ok((header_of(&again, header), message, page));
        ensure!(same, Law, "a datagram means something else when sent again");
    }
    Ok(())
}

/// The same header, with the length of this body.
fn header_of(
    datagram: &[u8],
    header: pagemesh_wire::header::Header,
) -> pagemesh_wire::header::Header {
    let split = pagemesh_wire::header::Header::split(datagram);
    split.map_or(header, |(header, _, _)| header)
}

fn local_decode(input: &[u8]) -> Check {
    if let Ok(packet) = RequestPacket::decode(input) {
        let again = RequestPacket::decode(&packet.encode());
        ensure!(
            again == Ok(packet),
            Law,
            "a request means something else when sent again"
        );
    }
    if let Ok(packet) = ReplyPacket::decode(input) {
        let bytes = packet.encode();
        let again = ReplyPacket::decode(&bytes).map(|packet| packet.encode());
        ensure!(
            again == Ok(bytes),
            Law,
            "a reply means something else when sent again"
        );
    }
    if let Some(word) = input.first_chunk() {
        let word = LockWord::decode(u32::from_le_bytes(*word));
        ensure!(
            LockWord::decode(word.encode()) == word,
            Law,
            "{word:?} changes"
        );
    }
    Ok(())
}

/// A diff changes as many bytes as it says, and is the only way to say so.
fn diff_apply(input: &[u8]) -> Check {
    let Ok(diff) = Diff::check(input) else {
        return Ok(());
    };
    let (mut zeros, mut ones) = ([0; PAGE], [u8::MAX; PAGE]);
    diff.apply(&mut zeros);
    diff.apply(&mut ones);
    let changed = zeros.iter().zip(&ones).filter(|(a, b)| a == b).count();
    ensure!(
        changed == diff.len(),
        Law,
        "a diff changes {changed} bytes and says {}",
        diff.len()
    );
    let mut again = Vec::new();
    merge(&diff, &diff, &mut again);
    ensure!(again == input, Law, "a diff has two encodings");
    Ok(())
}

/// The page that a packed page unpacks to does not depend on the page it is written over.
fn page_unpack(input: &[u8]) -> Check {
    let Some((form, bytes)) = input.split_first() else {
        return Ok(());
    };
    let Ok(form) = Form::try_from(*form) else {
        return Ok(());
    };
    let (mut zeros, mut ones) = ([0; PAGE], [u8::MAX; PAGE]);
    let outcomes = [
        unpack(form, bytes, &mut zeros),
        unpack(form, bytes, &mut ones),
    ];
    ensure!(outcomes[0] == outcomes[1], Law, "{outcomes:?}");
    ensure!(
        outcomes[0].is_err() || zeros == ones,
        Law,
        "a part of the page is left over"
    );
    Ok(())
}

/// Parts lie in the multicast batch one behind the other, and say the same when they are sent
/// again.
fn multicast_batch_decode(input: &[u8]) -> Check {
    let Some(multicast_batch) = MulticastBatch::decode(input) else {
        return Ok(());
    };
    let mut again = Vec::new();
    if let MulticastBatch::Parts(parts) = multicast_batch {
        multicast_batch::begin(&mut again);
        for (to, at) in parts.iter() {
            let datagram = input.get(at.clone());
            ensure!(datagram.is_some(), Law, "a part at {at:?} lies outside");
            multicast_batch::add(&mut again, to, datagram.unwrap_or_default());
        }
    } else {
        again = multicast_batch.encode();
    }
    ensure!(again == input, Law, "a multicast batch has two encodings");
    Ok(())
}

fn scripts(text: &str) {
    let _ = Setting::parse(text);
    for line in text.lines() {
        let _ = scenario::makes_sense(line);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests;
