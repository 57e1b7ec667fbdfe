//! Guards between nodes and the network, in seeds that have them: the same
//! code that seals the datagrams of real daemons.

use crate::dice::Dice;
use crate::world::World;
use pagemesh_seal::{Guard, Identity, Now, Outbox, Outgoing, Pace, Ring, Secret, Whom};
use pagemesh_wire::{NodeId, PublicKey};
use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A host's guard, if datagrams are sealed in this seed.
#[derive(Default)]
pub(crate) struct Sealing {
    guard: Option<Guard>,
    /// The view of members it knows.
    epoch: u64,
    /// Whom it awaits as a member.
    awaited: Option<PublicKey>,
    /// How often the cluster's key was rotated away under it.
    rotations: u64,
}

/// How often sessions are renewed.
const DATAGRAMS: u64 = 200;

/// How often the cluster's key is replaced, and sessions based on the old one end: members go on.
const ROTATE_NS: u64 = 30_000_000;

/// Dice that several rooms of a guard throw.
struct Shared(Mutex<Dice>);

impl pagemesh_seal::Dice for Shared {
    fn fill(&self, bytes: &mut [u8]) {
        let mut dice = self.0.lock().unwrap_or_else(|dead| dead.into_inner());
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&dice.number().to_le_bytes()[..part.len()]);
        }
    }
}

fn shared(seed: u64, name: &str) -> Arc<dyn pagemesh_seal::Dice> {
    Arc::new(Shared(Mutex::new(Dice::stream(seed, name))))
}

/// The only key after so many rotations.
fn ring(seed: u64, rotations: u64) -> Ring {
    let secret = Secret::new(&*shared(seed, &format!("cluster key {rotations}")));
    Ring::default().rotated(secret, 0)
}

impl Sealing {
    /// The guard of a host, if there are guards.
    pub(crate) fn new(sealed: bool, seed: u64, host: usize) -> Self {
        let guard = sealed.then(|| {
            let ring = ring(seed, 0);
            let dice = shared(seed, &format!("guard {host}"));
            let pace = Pace {
                rekey_datagrams: DATAGRAMS,
                repeat: Duration::from_micros(200),
                renew: Duration::from_millis(20),
                ..Pace::default()
            };
            Guard::new(Identity::new(&*dice), ring, None, pace, dice)
        });
        Self {
            guard,
            epoch: 0,
            awaited: None,
            rotations: 0,
        }
    }

    /// Whether there is one.
    pub(crate) const fn is_on(&self) -> bool {
        self.guard.is_some()
    }

    /// The public key of the host.
    pub(crate) fn key(&self) -> PublicKey {
        self.guard.as_ref().map_or(PublicKey::NONE, Guard::public)
    }
}

impl World {
    /// Seals a datagram and gives it to the network, after the datagrams of a handshake if one is
    /// needed.
    pub(crate) fn seal(&mut self, at: usize, address: SocketAddr, whom: NodeId, bytes: &[u8]) {
        self.rotate_key(at);
        let now = self.guards_clock(at);
        let host = &mut self.hosts[at];
        let whom = host.node.key_of(whom).map_or(Whom::Anybody, Whom::Member);
        let Some(guard) = &mut host.guard.guard else {
            return;
        };
        let mut outbox = Outbox::new();
        let sealed = guard.seal(now, address, whom, &[bytes], &mut outbox);
        let sealed = sealed.map(|bytes| Outgoing {
            to: address,
            bytes: bytes.to_vec(),
        });
        outbox.extend(sealed);
        self.mail(at, outbox);
    }

    /// Opens a datagram that reached a host; none if its guard kept it.
    pub(crate) fn open<'a>(
        &mut self,
        at: usize,
        source: SocketAddr,
        bytes: &'a [u8],
    ) -> Option<(PublicKey, Cow<'a, [u8]>)> {
        self.rotate_key(at);
        let now = self.guards_clock(at);
        let Some(guard) = &mut self.hosts[at].guard.guard else {
            return Some((PublicKey::NONE, bytes.into()));
        };
        let mut outbox = Outbox::new();
        let mut clear = vec![0; bytes.len()];
        let opened = guard.open(now, source, bytes, &mut clear, &mut outbox);
        let opened = opened.ok().flatten().map(|opened| {
            clear.truncate(opened.length);
            (opened.key, clear.into())
        });
        self.mail(at, outbox);
        opened
    }

    /// A node may have heard of new members, or of the end of old ones.
    pub(crate) fn meet_members(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let (view, awaited) = (host.node.view(), host.node.awaited());
        if let Some(guard) = &mut host.guard.guard
            && (view.epoch, awaited) != (host.guard.epoch, host.guard.awaited)
        {
            let keys = view.members.iter().map(|member| member.key);
            guard.set_members(keys.chain(awaited), std::iter::empty());
            (host.guard.epoch, host.guard.awaited) = (view.epoch, awaited);
        }
    }

    /// The key file of a host may have been replaced.
    fn rotate_key(&mut self, at: usize) {
        let rotations = self.now.0 / ROTATE_NS;
        let sealing = &mut self.hosts[at].guard;
        if let Some(guard) = &mut sealing.guard
            && rotations > sealing.rotations
        {
            guard.set_ring(ring(self.setting.seed, rotations));
            sealing.rotations = rotations;
        }
    }

    fn mail(&mut self, at: usize, outbox: Outbox) {
        for Outgoing { to: address, bytes } in outbox {
            self.stats.sealed += 1;
            if let Some(to) = self.host_at(address) {
                let fate = self.network.fate(self.now, at, to, "sealed");
                self.suffer(at, (to, address), "sealed", bytes, fate);
            }
        }
    }

    fn guards_clock(&self, at: usize) -> Now {
        let nanos = self.now.0 + self.hosts[at].plan.clock_offset;
        Now {
            since: Duration::from_nanos(nanos),
            unix: nanos / 1_000_000_000,
        }
    }
}

/// A world with guards has one future.
impl Clone for Sealing {
    fn clone(&self) -> Self {
        assert!(self.guard.is_none(), "sealed worlds are not cloned");
        Self::default()
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sealing").field(&self.key()).finish()
    }
}
