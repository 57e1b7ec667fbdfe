//! The guard at this daemon's network, and the key file it goes by.

use crate::counters::{Count, Counters};
use crate::key_file::{KeyFile, read_token};
use crate::options::Admission;
use anyhow::Result;
use pagemesh_core::Time;
use pagemesh_os::clock;
use pagemesh_os::region::{Region, Shape};
use pagemesh_seal::{Guard, Identity, Now, Opened, Outbox, Pace, Refused, Ring, SystemDice, Whom};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::local::Trouble;
use pagemesh_wire::peer::{Health, Member, MemberView};
use pagemesh_wire::{NodeId, PublicKey};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Seals and opens datagrams.
#[derive(Debug)]
pub(crate) struct Sealing {
    guard: Guard,
    /// Members' keys by number.
    keys: Vec<PublicKey>,
    /// Of the view of members they are from.
    epoch: u64,
    /// The key of a coordinator that goes on from its disk, and is no member yet.
    awaited: Option<PublicKey>,
    file: Option<KeyFile>,
    /// The private key, for a daemon that goes on as this node.
    kept: Region,
    /// The reasons logged so far: each is logged once.
    told: HashSet<Refused>,
    /// When hosts last greeted with a key that is not accepted here.
    wrong_keys: SortedMap<SocketAddr, Time>,
    /// That the key file cannot be read now, and why.
    unreadable: Option<String>,
    /// Datagrams of the guard itself.
    pub(crate) outbox: Outbox,
}

/// A private key.
const PRIVATE: Shape = Shape {
    words: 0,
    bytes: 32,
};

/// Hosts with other keys that are remembered at most: any host can send greetings.
const WRONG_KEYS: usize = 64;

/// For so long after its last greeting a host with another key is told of.
const WRONG_KEY_TOLD: Duration = Duration::from_secs(60);

impl Sealing {
    /// A guard with a new identity, or with that of the daemon before.
    pub(crate) fn new(admission: &Admission, before: Option<OwnedFd>) -> Result<Self> {
        let (ring, token, file) = match admission {
            Admission::KeyFile(path) => {
                let (file, ring) = KeyFile::open(path)?;
                (ring, None, Some(file))
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
            awaited: None,
            file,
            kept,
            told: HashSet::new(),
            wrong_keys: SortedMap::new(),
            unreadable: None,
            outbox: Outbox::new(),
        })
    }

    /// The descriptor to keep for the next daemon.
    pub(crate) fn kept(&self) -> BorrowedFd<'_> {
        self.kept.as_fd()
    }

    /// The public key of this daemon.
    pub(crate) const fn public(&self) -> PublicKey {
        self.guard.public()
    }

    /// The identity of this daemon.
    pub(crate) fn identity(&self) -> Identity {
        self.guard.identity().clone()
    }

    /// Learns who the members are, and who is awaited as one.
    pub(crate) fn meet(&mut self, view: &MemberView, awaited: Option<PublicKey>) {
        if (view.epoch, awaited) == (self.epoch, self.awaited) {
            return;
        }
        (self.epoch, self.awaited) = (view.epoch, awaited);
        self.keys = vec![PublicKey::NONE; usize::from(NodeId::LIMIT)];
        for member in &view.members {
            if let Some(key) = self.keys.get_mut(usize::from(member.id.0)) {
                *key = member.key;
            }
        }
        let members = view.members.iter().map(|member| member.key);
        let members = members.chain(awaited);
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
        counters: &mut Counters,
    ) -> Option<Opened> {
        let opened = self
            .guard
            .open(now(), source, datagram, clear, &mut self.outbox);
        opened.unwrap_or_else(|why| {
            self.refuse(source, why, counters);
            None
        })
    }

    /// Counts a datagram that was not let in, and logs the first for each reason.
    pub(crate) fn refuse(&mut self, source: SocketAddr, why: Refused, counters: &mut Counters) {
        counters.add(count(why), 1);
        if why == Refused::WrongKey {
            self.note_wrong_key(source);
        }
        if !self.told.insert(why) {
            return;
        }
        let told = "a datagram was not let in; further ones for this reason are only counted";
        if is_ordinary(why) {
            tracing::debug!(%source, %why, "{told}");
        } else {
            tracing::warn!(%source, %why, "{told}");
        }
    }

    fn note_wrong_key(&mut self, source: SocketAddr) {
        let now = Time(clock::monotonic());
        if self.wrong_keys.len() < WRONG_KEYS || self.wrong_keys.contains_key(&source) {
            self.wrong_keys.insert(source, now);
        }
        self.wrong_keys
            .retain(|_, last| now - *last < WRONG_KEY_TOLD);
    }

    /// The problems of the key file here, and of hosts that greet with another key.
    pub(crate) fn problems(&self, now: Time) -> Vec<String> {
        let greeted = self.wrong_keys.iter();
        let greeted = greeted.filter(|(_, last)| now - **last < WRONG_KEY_TOLD);
        let last = greeted.max_by_key(|(_, last)| **last).map(|(address, _)| {
            Trouble::OtherKey.line(format_args!(
                "{address} greets with a key that is not in the key file here: if it is a host of \
                 yours, a key was rotated on one of both alone (`pagemesh key rotate`): \
                 bring the present file to all hosts, or make new tokens"
            ))
        });
        self.unreadable.iter().cloned().chain(last).collect()
    }

    /// Becomes readable when the key file has changed; none without a key file.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(KeyFile::bell)
    }

    /// Has the key file read again at once.
    pub(crate) fn look(&self) {
        if let Some(file) = &self.file {
            file.look();
        }
    }

    /// Applies changes of the key file. While it cannot be read, no key is accepted: one of those
    /// read before may have been taken out.
    pub(crate) fn keys_changed(&mut self) {
        let Some((file, found)) = self
            .file
            .as_ref()
            .and_then(|file| Some((file, file.take()?)))
        else {
            return;
        };
        let name = file.path().display();
        self.unreadable = found.as_ref().err().map(|why| {
            Trouble::KeyUnreadable.line(format_args!(
                "{why}; until it can be read again, this daemon lets no host in"
            ))
        });
        if let Some(problem) = &self.unreadable {
            tracing::error!("{problem}");
        }
        let ring = found.unwrap_or_default();
        let accepted: Vec<_> = ring.iter().map(|key| key.id().to_string()).collect();
        tracing::info!(file = %name, ?accepted, "the cluster's keys were read again");
        self.guard.set_ring(ring);
    }

    /// Where, and why, this host was last refused when it introduced itself.
    pub(crate) fn turned_away(&self) -> Option<(SocketAddr, Refused)> {
        self.guard.turned_away()
    }
}

/// True if this happens whenever a host joins or comes back, or the network doubles a datagram: a
/// newcomer sends hellos to members that have not heard of it yet.
const fn is_ordinary(why: Refused) -> bool {
    matches!(
        why,
        Refused::Unknown | Refused::Replayed | Refused::Stranger
    )
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
