//! Datagrams out, through a bad network if one was asked for.

use crate::sealing::Sealing;
use crate::tally::{Count, Tally};
use pagemesh_os::clock;
use pagemesh_os::impair::{Impairer, Impairment};
use pagemesh_os::udp::{Received, Udp};
use pagemesh_seal::Identity;
use pagemesh_wire::header::{Header, MAX_DATAGRAM};
use pagemesh_wire::peer::{MemberView, Message};
use pagemesh_wire::{NodeId, PublicKey};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// The way to other daemons.
#[derive(Debug)]
pub(crate) struct Network {
    /// The socket.
    pub(crate) udp: Udp,
    impairer: Option<Impairer>,
    /// Seals and opens, if this daemon has a key.
    sealing: Option<Sealing>,
    /// Reused for everything sent.
    datagram: Vec<u8>,
    /// Reused for every sealed datagram that comes in.
    sealed: Box<[u8]>,
    /// Somebody seals datagrams, and this daemon has no key: it was logged.
    keyless: bool,
}

/// What was received.
#[derive(Debug)]
pub(crate) enum Got {
    /// A datagram of so many bytes, from where, and whose seal it bore.
    Datagram(usize, SocketAddr, PublicKey),
    /// Something that is not for the node.
    Handled,
    /// Nothing.
    Nothing,
}

/// Longer datagrams do not exist.
const LONGEST: usize = 1 << 16;

impl Network {
    /// A network as bad as asked for.
    pub(crate) fn new(udp: Udp, impairment: Option<Impairment>, sealing: Option<Sealing>) -> Self {
        Self {
            udp,
            impairer: impairment.map(Impairer::new),
            datagram: Vec::with_capacity(MAX_DATAGRAM),
            sealed: vec![0; if sealing.is_some() { LONGEST } else { 0 }].into(),
            sealing,
            keyless: false,
        }
    }

    /// What others know this daemon by.
    pub(crate) fn key(&self) -> PublicKey {
        self.sealing
            .as_ref()
            .map_or(PublicKey::NONE, Sealing::public)
    }

    /// Who this daemon is to others, if it seals.
    pub(crate) fn who(&self) -> Option<Identity> {
        self.sealing.as_ref().map(Sealing::identity)
    }

    /// What to keep of it for the next daemon.
    pub(crate) fn identity(&self) -> Option<BorrowedFd<'_>> {
        self.sealing.as_ref().map(Sealing::kept)
    }

    /// Learns who the members are, before anything is sent to them.
    pub(crate) fn meet(&mut self, view: &MemberView) {
        if let Some(sealing) = &mut self.sealing {
            sealing.meet(view);
        }
    }

    /// Reads the key file again, if there is one.
    pub(crate) fn reload_keys(&mut self) {
        if let Some(sealing) = &mut self.sealing {
            sealing.reload();
        }
    }

    /// Receives one datagram into `clear`, without its seal.
    pub(crate) fn receive(&mut self, clear: &mut [u8], tally: &mut Tally) -> io::Result<Got> {
        let room = if self.sealing.is_some() {
            &mut self.sealed
        } else {
            &mut *clear
        };
        let (length, source) = match self.udp.receive(room)? {
            Received::Datagram(length, source) => (length.min(room.len()), source),
            Received::Nothing => return Ok(Got::Nothing),
            Received::Noise => {
                tally.add(Count::NetworkNoise, 1);
                return Ok(Got::Handled);
            }
        };
        tally.add(Count::DatagramsIn, 1);
        tally.add(Count::BytesIn, length as u64);
        let Some(sealing) = &mut self.sealing else {
            self.notice_seal(source, &clear[..length], tally);
            return Ok(Got::Datagram(length, source, PublicKey::NONE));
        };
        let opened = sealing.open(source, &self.sealed[..length], clear, tally);
        self.flush(tally);
        Ok(opened.map_or(Got::Handled, |opened| {
            Got::Datagram(opened.length, source, opened.key)
        }))
    }

    /// Says once that this daemon cannot understand others.
    fn notice_seal(&mut self, source: SocketAddr, bytes: &[u8], tally: &mut Tally) {
        if !pagemesh_seal::is_sealed(bytes) {
            return;
        }
        tally.add(Count::SealMissing, 1);
        if !self.keyless {
            self.keyless = true;
            tracing::error!(
                %source,
                "datagrams of this cluster are sealed, and this daemon has no key: start it with \
                 --key FILE or --join-token FILE",
            );
        }
    }

    /// Sends what the guard has to say of itself.
    fn flush(&mut self, tally: &mut Tally) {
        let Some(sealing) = &mut self.sealing else {
            return;
        };
        if sealing.outbox.is_empty() {
            return;
        }
        for letter in std::mem::take(&mut sealing.outbox) {
            self.put(letter.to, &letter.bytes, tally);
        }
    }

    /// Sends a message; `finish` puts the page behind it that it announces, and
    /// says whether it could.
    pub(crate) fn send(
        &mut self,
        to: SocketAddr,
        header: Header,
        message: &Message,
        finish: impl FnOnce(&mut Vec<u8>) -> bool,
        tally: &mut Tally,
    ) -> bool {
        let mut datagram = std::mem::take(&mut self.datagram);
        datagram.clear();
        message.encode(header, &mut datagram);
        let whole = finish(&mut datagram);
        if whole {
            self.seal((to, header.to), &datagram, tally);
        }
        self.datagram = datagram;
        whole
    }

    /// Sends bytes that are no message of ours to a host that is no member.
    pub(crate) fn send_bytes(&mut self, to: SocketAddr, bytes: &[u8], tally: &mut Tally) {
        self.seal((to, NodeId::NONE), bytes, tally);
    }

    /// Sends a datagram, sealed if this daemon has a key.
    fn seal(&mut self, (to, node): (SocketAddr, NodeId), datagram: &[u8], tally: &mut Tally) {
        if let Some(sealing) = &mut self.sealing {
            if let Some(sealed) = sealing.seal(to, node, &[datagram]) {
                give(&self.udp, &mut self.impairer, to, sealed, tally);
            }
            self.flush(tally);
        } else {
            self.put(to, datagram, tally);
        }
    }

    fn put(&mut self, to: SocketAddr, datagram: &[u8], tally: &mut Tally) {
        give(&self.udp, &mut self.impairer, to, datagram, tally);
    }

    /// Sends what the bad network held back until now.
    pub(crate) fn release(&mut self, now: u64, tally: &mut Tally) {
        let Some(impairer) = &mut self.impairer else {
            return;
        };
        while let Some((to, bytes)) = impairer.release(now) {
            put(&self.udp, to, &bytes, tally);
        }
    }

    /// When the bad network lets something out next.
    pub(crate) fn due(&self) -> Option<u64> {
        self.impairer.as_ref().and_then(Impairer::due)
    }
}

/// To the network, or to who makes it worse.
fn give(
    udp: &Udp,
    impairer: &mut Option<Impairer>,
    to: SocketAddr,
    datagram: &[u8],
    tally: &mut Tally,
) {
    match impairer {
        None => put(udp, to, datagram, tally),
        Some(impairer) => {
            impairer.offer(clock::monotonic(), to, datagram);
            while let Some((to, bytes)) = impairer.release(clock::monotonic()) {
                put(udp, to, &bytes, tally);
            }
        }
    }
}

fn put(udp: &Udp, to: SocketAddr, datagram: &[u8], tally: &mut Tally) {
    match udp.send(to, datagram) {
        Ok(()) => {
            tally.add(Count::DatagramsOut, 1);
            tally.add(Count::BytesOut, datagram.len() as u64);
        }
        // As good as lost: the core repeats what matters.
        Err(error) => {
            tally.add(Count::DatagramsFailed, 1);
            tracing::debug!(%to, %error, "a datagram could not be sent");
        }
    }
}
