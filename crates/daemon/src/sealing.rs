//! The guard at this daemon's network, and the key file it goes by.

use crate::options::Admission;
use crate::tally::{Count, Tally};
use anyhow::{Context as _, Result, anyhow, bail};
use pagemesh_os::clock;
use pagemesh_os::region::{Region, Shape};
use pagemesh_seal::{
    Guard, Identity, Now, Opened, Outbox, Pace, Refused, Ring, SystemDice, Token, Whom,
};
use pagemesh_wire::peer::{Health, Member, MemberView};
use pagemesh_wire::{NodeId, PublicKey};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Seals and opens datagrams.
#[derive(Debug)]
pub(crate) struct Sealing {
    guard: Guard,
    /// Members' keys by number.
    keys: Vec<PublicKey>,
    /// Of the view of members they are from.
    epoch: u64,
    file: Option<KeyFile>,
    /// The private key, for a daemon that goes on as this node.
    kept: Region,
    /// What was logged: every reason once.
    told: HashSet<Refused>,
    /// What the guard has to say of itself.
    pub(crate) outbox: Outbox,
}

/// A key file, looked at again when it may have changed.
#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    changed: Option<SystemTime>,
    /// In nanoseconds of the monotonic clock.
    next_look: u64,
}

/// How often a key file is looked at, if there is reason to.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A private key.
const PRIVATE: Shape = Shape {
    words: 0,
    bytes: 32,
};

impl Sealing {
    /// A guard with a new identity, or with that of the daemon before.
    pub(crate) fn new(admission: &Admission, before: Option<OwnedFd>) -> Result<Self> {
        let (ring, token, file) = match admission {
            Admission::KeyFile(path) => {
                let file = KeyFile {
                    changed: changed(path),
                    path: path.clone(),
                    next_look: 0,
                };
                (read_ring(path)?, None, Some(file))
            }
            Admission::Token(path) => (Ring::default(), Some(read_token(path)?), None),
        };
        let dice = Arc::new(SystemDice::default());
        let (identity, kept) = match before {
            None => {
                let identity = Identity::new(&*dice);
                let mut kept = Region::create("pagemesh-identity", PRIVATE)?;
                kept.bytes_mut().copy_from_slice(identity.private());
                (identity, kept)
            }
            Some(fd) => {
                let kept = Region::map(fd, PRIVATE)?;
                let private = kept.bytes().try_into().expect("it has this shape");
                (Identity::from_private(private), kept)
            }
        };
        Ok(Self {
            guard: Guard::new(identity, ring, token, Pace::default(), dice),
            keys: Vec::new(),
            epoch: 0,
            file,
            kept,
            told: HashSet::new(),
            outbox: Outbox::new(),
        })
    }

    /// What to keep for the next daemon.
    pub(crate) fn kept(&self) -> BorrowedFd<'_> {
        self.kept.as_fd()
    }

    /// What others know this daemon by.
    pub(crate) const fn public(&self) -> PublicKey {
        self.guard.public()
    }

    /// Who this daemon is.
    pub(crate) fn identity(&self) -> Identity {
        self.guard.identity().clone()
    }

    /// Learns who the members are.
    pub(crate) fn meet(&mut self, view: &MemberView) {
        if view.epoch == self.epoch {
            return;
        }
        self.epoch = view.epoch;
        self.keys = vec![PublicKey::NONE; usize::from(NodeId::LIMIT)];
        for member in &view.members {
            if let Some(key) = self.keys.get_mut(usize::from(member.id.0)) {
                *key = member.key;
            }
        }
        let members = view.members.iter().map(|member| member.key);
        let revoked = |member: &&Member| member.health == Health::Revoked;
        let banned = view.members.iter().filter(revoked);
        self.guard
            .set_members(members, banned.map(|member| member.key));
    }

    /// Seals a datagram; none if it has to wait for a handshake.
    pub(crate) fn seal(
        &mut self,
        address: SocketAddr,
        to: NodeId,
        parts: &[&[u8]],
    ) -> Option<&mut Vec<u8>> {
        let key = self.keys.get(usize::from(to.0)).copied();
        let key = key.filter(|key| *key != PublicKey::NONE);
        let whom = key.map_or(Whom::Anybody, Whom::Member);
        self.guard
            .seal(now(), address, whom, parts, &mut self.outbox)
    }

    /// Opens a datagram into `clear`; none if it was not for the node.
    pub(crate) fn open(
        &mut self,
        source: SocketAddr,
        datagram: &[u8],
        clear: &mut [u8],
        tally: &mut Tally,
    ) -> Option<Opened> {
        let mut opened = self.try_open(source, datagram, clear);
        if opened == Err(Refused::WrongKey) && self.reload() {
            opened = self.try_open(source, datagram, clear);
        }
        opened.unwrap_or_else(|why| {
            self.refuse(source, why, tally);
            None
        })
    }

    fn try_open(
        &mut self,
        source: SocketAddr,
        datagram: &[u8],
        clear: &mut [u8],
    ) -> Result<Option<Opened>, Refused> {
        self.guard
            .open(now(), source, datagram, clear, &mut self.outbox)
    }

    fn refuse(&mut self, source: SocketAddr, why: Refused, tally: &mut Tally) {
        tally.add(count(why), 1);
        if self.told.insert(why) {
            tracing::warn!(
                %source, %why,
                "a datagram was not let in; further ones for this reason are only counted",
            );
        }
    }

    /// Reads the key file again if it has changed: whoever rotates keys need
    /// not restart daemons.
    pub(crate) fn reload(&mut self) -> bool {
        let Some(file) = &mut self.file else {
            return false;
        };
        let now = clock::monotonic();
        if now < file.next_look {
            return false;
        }
        file.next_look = now + LOOK_EVERY.as_nanos() as u64;
        let changed = changed(&file.path);
        if changed == file.changed {
            return false;
        }
        match read_ring(&file.path) {
            Ok(ring) => {
                file.changed = changed;
                self.guard.set_ring(ring);
                tracing::info!(file = %file.path.display(), "the cluster's keys were read again");
                true
            }
            Err(error) => {
                tracing::error!("{error:#}; the keys read before are still used");
                false
            }
        }
    }
}

const fn count(why: Refused) -> Count {
    match why {
        Refused::Unsealed => Count::SealMissing,
        Refused::Malformed => Count::SealMalformed,
        Refused::Unknown => Count::SealUnknown,
        Refused::Replayed => Count::SealReplayed,
        Refused::Forged => Count::SealForged,
        Refused::WrongKey | Refused::Expired => Count::SealWrongKey,
        Refused::Stranger | Refused::Banned => Count::SealStranger,
        Refused::Flooded => Count::SealFlooded,
    }
}

/// Every datagram asks. A guard waits for 10 ms at least, so the time of the last tick will do;
/// to read the exact one takes several times as long.
fn now() -> Now {
    let coarse = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    Now {
        since: coarse(ClockId::MonotonicCoarse),
        unix: coarse(ClockId::RealtimeCoarse).as_secs(),
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|file| file.modified()).ok()
}

fn read_ring(path: &Path) -> Result<Ring> {
    let text = read_private(path)?;
    Ring::from_text(&text).map_err(|(line, why)| anyhow!("{}, line {line}: {why}", path.display()))
}

fn read_token(path: &Path) -> Result<Token> {
    let text = read_private(path)?;
    Token::from_text(&text).with_context(|| format!("{}", path.display()))
}

/// A file that only its owner may read.
fn read_private(path: &Path) -> Result<String> {
    let name = path.display();
    let file = fs::metadata(path)
        .with_context(|| format!("cannot read {name}; `pagemesh key new` makes a key file"))?;
    if file.mode() & 0o077 != 0 {
        bail!(
            "{name} can be read by others than its owner, who could then join the cluster: \
             chmod 600 {name}"
        );
    }
    fs::read_to_string(path).with_context(|| format!("cannot read {name}"))
}
