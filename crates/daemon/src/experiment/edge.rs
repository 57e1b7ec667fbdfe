//! Where experiments sit: between seal and socket (M25). A daemon without any has
//! none of this.

use super::handoff::Handoff;
use super::parcels::{Mail, Parcels};
use super::switches::Experiment;
use anyhow::Result;
use pagemesh_os::clock;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd};

/// The switches that are set.
#[derive(Debug)]
pub(crate) struct Edge {
    parcels: Option<Parcels>,
    handoff: Option<Handoff>,
    /// Packets to be sent.
    mail: Mail,
}

impl Edge {
    /// None if no switch is set.
    pub(crate) fn new(experiment: Experiment) -> Result<Option<Self>> {
        let parcels = experiment.packet;
        if parcels.is_none() && !experiment.worker {
            return Ok(None);
        }
        Ok(Some(Self {
            parcels: parcels.map(|size| Parcels::new(size.into(), experiment.handshake)),
            handoff: experiment.worker.then(Handoff::start).transpose()?,
            mail: Mail::new(),
        }))
    }

    /// Cuts a datagram into packets of `mail`; false if it goes whole.
    pub(crate) fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        let parcels = self.parcels.as_mut();
        parcels
            .is_some_and(|parcels| parcels.send(to, datagram, clock::monotonic(), &mut self.mail))
    }

    /// The packets that are to be sent now.
    pub(crate) fn packets(&mut self) -> impl Iterator<Item = (SocketAddr, Vec<u8>)> {
        self.mail.drain(..)
    }

    /// Handles a packet from the socket; returns the datagram to be handled now.
    pub(crate) fn came(&mut self, from: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
        match &self.handoff {
            Some(handoff) => {
                handoff.give((from, bytes.to_vec()));
                None
            }
            None => self.whole(from, bytes.to_vec()),
        }
    }

    /// Takes a packet back from the thread it was handed to: none if there is none, and no bytes if
    /// it was a part of a datagram.
    pub(crate) fn back(&mut self) -> Option<(SocketAddr, Option<Vec<u8>>)> {
        let (from, bytes) = self.handoff.as_ref()?.take()?;
        Some((from, self.whole(from, bytes)))
    }

    fn whole(&mut self, from: SocketAddr, bytes: Vec<u8>) -> Option<Vec<u8>> {
        match &mut self.parcels {
            Some(parcels) if Parcels::is_packet(&bytes) => {
                parcels.receive(from, &bytes, clock::monotonic(), &mut self.mail)
            }
            _ => Some(bytes),
        }
    }

    /// Gives up packets and parts that waited too long.
    pub(crate) fn expire(&mut self, now: u64) {
        if let Some(parcels) = &mut self.parcels {
            parcels.expire(now, &mut self.mail);
        }
    }

    /// When [`Edge::expire`] has something to do.
    pub(crate) fn due(&self) -> Option<u64> {
        self.parcels.as_ref().and_then(Parcels::due)
    }

    /// The descriptor that becomes readable when a packet is back.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.handoff.as_ref().map(|handoff| handoff.as_fd())
    }
}
