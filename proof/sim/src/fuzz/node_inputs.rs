//! A real node among members that say anything and programs that ask for
//! anything. Its simulated kernel asserts the driver's law all the while.
//!
//! An input is a list of events: a byte for the kind of event, a byte for a length, and as many
//! bytes: the body of a message from one of three members, a whole datagram, or a local input in
//! the encoding of the flight recorder.

use crate::check::Check;
use crate::explore::{self, Outcome, Sight, Site, Stimulus};
use pagemesh_core::Input;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::Message;
use pagemesh_wire::{Incarnation, NodeId, PAGE_SIZE, Versions};

/// Hosts of the cluster.
pub(super) const HOSTS: u8 = 3;

/// The first byte of an event, after a member's number.
pub(super) const LOCAL: u8 = HOSTS;
pub(super) const TICK: u8 = HOSTS + 1;
pub(super) const RAW: u8 = HOSTS + 2;
const KINDS: u8 = HOSTS + 3;

/// Nodes of a cluster with a segment open: the coordinator and a member.
pub(super) struct Victims(Vec<Site>);

impl Victims {
    pub(super) fn new() -> Self {
        Self(explore::cluster(usize::from(HOSTS)))
    }

    /// Gives one of the nodes everything the input says; which, its first byte says.
    /// Returns whether anything of it made a difference.
    pub(super) fn suffer(&self, input: &[u8]) -> Check<bool> {
        let Some((first, mut rest)) = input.split_first() else {
            return Ok(false);
        };
        let me = usize::from(*first) % 2;
        let mut site = self.0[me].clone();
        while let [kind, length, more @ ..] = rest {
            let (body, others) = more.split_at(more.len().min(usize::from(*length)));
            rest = others;
            happen(&mut site, me, kind % KINDS, body)?;
        }
        Ok(site.digest() != self.0[me].digest())
    }
}

fn happen(site: &mut Site, me: usize, kind: u8, body: &[u8]) -> Check {
    let stranger = explore::address(usize::from(HOSTS));
    match kind {
        TICK => react(site, me, &Stimulus::Tick),
        RAW => react(site, me, &Stimulus::Datagram(stranger, body)),
        LOCAL => {
            let input = postcard::from_bytes::<Input<'_>>(body).ok();
            match input.and_then(Input::detach).filter(is_lawful) {
                Some(input) => react(site, me, &Stimulus::Local(&input)),
                None => Ok(()),
            }
        }
        from => {
            let from = usize::from(from);
            let datagram = datagram(from, me, body);
            react(
                site,
                me,
                &Stimulus::Datagram(explore::address(from), &datagram),
            )
        }
    }
}

/// The inputs that a driver may give at any time. It does not invent mappings, locks that come
/// back, or answers to effects that were not there.
fn is_lawful(input: &Input<'static>) -> bool {
    !matches!(
        input,
        Input::Datagram { .. }
            | Input::Mapped { .. }
            | Input::MappedView { .. }
            | Input::LockReturned { .. }
            | Input::UseConfirmed { .. }
            | Input::Trapped { .. }
    )
}

fn react(site: &mut Site, me: usize, stimulus: &Stimulus<'_>) -> Check {
    let (next, outcomes) = site.react(me, stimulus)?;
    *site = next;
    for outcome in outcomes {
        if let Outcome::Seen(Sight::Recovered(keys)) = outcome {
            for key in keys {
                let recovered = true;
                let back = Input::LockReturned { key, recovered };
                react(site, me, &Stimulus::Local(&back))?;
            }
        }
    }
    Ok(())
}

/// A datagram from a member, with a page if its message announces one.
fn datagram(from: usize, to: usize, body: &[u8]) -> Vec<u8> {
    // All versions that are read, in turn.
    let versions = Versions::SPOKEN;
    let several = u64::from(versions.newest - versions.oldest) + 1;
    let header = Header {
        version: versions.oldest + (body.len() as u64 % several) as u8,
        cluster: explore::CLUSTER,
        from: NodeId(from as u16 + 1),
        to: NodeId(to as u16 + 1),
        incarnation: Incarnation(from as u64 + 1),
        body: body.len() as u16,
        term: pagemesh_wire::Term::NONE,
        generation: 0,
    };
    let mut datagram = header.encode().to_vec();
    datagram.extend_from_slice(body);
    if Message::decode(&datagram).is_err() {
        datagram.resize(datagram.len() + PAGE_SIZE, 0x5a);
    }
    datagram
}
