//! Datagrams leave: checked, packed, sealed, and at the mercy of the network.

use crate::check::{Check, ensure};
use crate::kernel::{PageKey, append_page};
use crate::log::{Mark, fingerprint};
use crate::network::{Fate, is_sign_of_life, kind};
use crate::packing;
use crate::world::{Happening, World};
use pagemesh_core::{At, Rights, Source};
use pagemesh_wire::header::{HEADER_SIZE, Header};
use pagemesh_wire::peer::Message;
use pagemesh_wire::{NodeId, PAGE_SIZE};
use std::net::SocketAddr;

impl World {
    pub(super) fn send(
        &mut self,
        at: usize,
        (address, header): (SocketAddr, Header),
        message: &Message,
        page: Option<(At, Source)>,
        payload: Option<&[u8]>,
    ) -> Check {
        ensure!(
            message.carries_page() == page.is_some(),
            Law,
            "h{} sends {message:?} with page {page:?}",
            at + 1
        );
        let grants = PageKey::granted_by(message);
        if let Some(granted) = grants {
            ensure!(
                self.hosts[at].kernel.rights(granted) < Rights::Write,
                ProtectBeforeGrant,
                "h{} grants {granted} while it may still be stored to: {message:?}",
                at + 1
            );
        }
        self.check_trail(at, header, message)?;
        let room = HEADER_SIZE + 64 + if page.is_some() { PAGE_SIZE } else { 0 };
        let mut bytes = Vec::with_capacity(room);
        message.encode(header, &mut bytes);
        let body = bytes.len();
        if let Some((page, source)) = page {
            let words = self.hosts[at]
                .kernel
                .contents(page.into(), source, payload)?;
            append_page(&words, &mut bytes);
        }
        if let (Message::Pass(_), Some(granted)) = (message, grants) {
            self.ownership_sent(header.to, granted);
        }
        self.dispatch(at, address, header.to, message, (bytes, body));
        Ok(())
    }

    /// Sends a message without contents.
    pub(crate) fn say(
        &mut self,
        at: usize,
        address: SocketAddr,
        header: Header,
        message: &Message,
    ) -> Check {
        self.send(at, (address, header), message, None, None)
    }

    /// Checks the owners and the queue that a message names.
    fn check_trail(&mut self, at: usize, header: Header, message: &Message) -> Check {
        if self.reaction.repeats {
            return Ok(());
        }
        let members = &self.hosts[at].node.view().members;
        let knows = |node| members.iter().any(|member| member.id == node);
        let heard = self.reaction.heard.as_ref();
        self.checkers.said(&header, message, heard, knows)
    }

    /// A datagram leaves: into the network, whatever that does to it.
    fn dispatch(
        &mut self,
        at: usize,
        address: SocketAddr,
        whom: NodeId,
        message: &Message,
        (mut bytes, body): (Vec<u8>, usize),
    ) {
        let kind = kind(message);
        self.stats.datagrams += 1;
        if let Some(sent) = self.traffic.sent.get_mut(at) {
            *sent += 1;
        }
        let to = self.host_at(address);
        let hash = [to.map_or(0, |to| to as u64 + 1), fingerprint(&bytes), 0];
        let now = self.now;
        if is_sign_of_life(kind) {
            self.log.hum(now, at, hash);
        } else {
            self.stats.messages += 1;
            self.stats.pages += u64::from(message.carries_page());
            self.traffic.last_message = now;
            let whom = || to.map_or(address.to_string(), |to| format!("h{}", to + 1));
            let text = || format!("-> {} {message:?}", whom());
            self.log.note(now, at, Mark::Leaves, hash, text);
        }
        let Some(to) = to else { return };
        if message.carries_page() {
            packing::pack(&mut bytes, body, hash[1]);
        }
        if self.leaves_in_pieces(at, address, whom, &bytes) {
            return;
        }
        if self.hosts[at].guard.is_on() {
            return self.seal(at, address, whom, &bytes);
        }
        let fate = self.network.fate(now, at, to, kind);
        self.transcribe(at, to, message, fate);
        self.suffer(at, (to, address), kind, bytes, fate);
    }

    /// A notice leaves, for a host that is no member.
    pub(super) fn say_notice(&mut self, at: usize, address: SocketAddr, bytes: Vec<u8>) {
        if self.hosts[at].guard.is_on() {
            return self.seal(at, address, NodeId::NONE, &bytes);
        }
        if let Some(to) = self.host_at(address) {
            let fate = self.network.fate(self.now, at, to, "notice");
            self.suffer(at, (to, address), "notice", bytes, fate);
        }
    }

    /// The network's treatment of a datagram.
    pub(crate) fn suffer(
        &mut self,
        at: usize,
        (to, address): (usize, SocketAddr),
        kind: &str,
        bytes: Vec<u8>,
        fate: Fate,
    ) {
        let now = self.now;
        let source = self.hosts[at].address;
        if self.is_too_long(at, to, bytes.len()) {
            return;
        }
        if let Some(garbage) = self.network.garbage(&bytes) {
            let arrival = Happening::Arrival {
                to: address,
                source,
                bytes: garbage,
            };
            self.after(1_000, arrival);
        }
        match fate {
            Fate::Lost => {
                self.stats.lost += 1;
                self.log.note(now, at, Mark::Lost, [to as u64, 0, 0], || {
                    format!("-> h{} {kind}", to + 1)
                });
            }
            Fate::Held => self.traffic.held.push((address, source, bytes)),
            Fate::Arrives(first, second) => {
                if let Some(second) = second {
                    self.stats.twice += 1;
                    self.log.note(now, at, Mark::Twice, [to as u64, 0, 0], || {
                        format!("-> h{} {kind}", to + 1)
                    });
                    let bytes = bytes.clone();
                    let again = Happening::Arrival {
                        to: address,
                        source,
                        bytes,
                    };
                    self.after(second, again);
                }
                self.after(
                    first,
                    Happening::Arrival {
                        to: address,
                        source,
                        bytes,
                    },
                );
            }
        }
    }

    /// Notes that a node handles a datagram.
    pub(crate) fn note_arrival(&mut self, at: usize, source: SocketAddr, bytes: &[u8]) {
        let from = self.host_at(source).map_or(0, |from| from + 1);
        let facts = [fingerprint(bytes), 0, 0];
        match Message::decode(bytes) {
            Ok((_, message, _)) if is_sign_of_life(kind(&message)) => {
                self.log.hum(self.now, at, facts);
            }
            Ok((_, message, _)) => self.log.note(self.now, at, Mark::Arrives, facts, || {
                format!("<- h{from} {}", kind(&message))
            }),
            Err(error) => self.log.note(self.now, at, Mark::Arrives, facts, || {
                format!("<- h{from} {error}")
            }),
        }
    }
}
