//! Messages that several nodes get at once, through the multicast group of a network.

use super::{Got, LONGEST, Network};
use crate::counters::{Count, Counters};
use crate::packing::Unpacked;
use crate::shared_messages::SharedCame;
use pagemesh_os::clock;
use pagemesh_wire::header::{self, Header};
use pagemesh_wire::peer::Message;
use pagemesh_wire::{NodeId, NodeSet, PublicKey};
use std::net::SocketAddr;

impl Network {
    /// Which of these nodes are to be told at once what all of them are told; none if that is not
    /// worth it.
    pub(crate) fn told_at_once(
        &self,
        mut nodes: Vec<(SocketAddr, NodeId)>,
    ) -> Vec<(SocketAddr, NodeId)> {
        let multicast_batches = self.multicast_batches.as_ref();
        nodes.retain(|(to, node)| {
            node.is_near() && multicast_batches.is_some_and(|those| those.reaches(*to))
        });
        if !multicast_batches.is_some_and(|those| those.is_worth(nodes.len())) {
            nodes.clear();
        }
        nodes
    }

    /// Sends a message to several nodes at once; `finish` puts the page behind it, and says whether it
    /// could. Their own numbers are not in the header.
    pub(crate) fn share(
        &mut self,
        to: &[(SocketAddr, NodeId)],
        header: Header,
        message: &Message,
        finish: impl FnOnce(&mut Vec<u8>) -> bool,
        counters: &mut Counters,
    ) -> bool {
        let mut datagram = std::mem::take(&mut self.datagram);
        datagram.clear();
        let nobody = NodeId::NONE;
        message.encode(
            Header {
                to: nobody,
                ..header
            },
            &mut datagram,
        );
        let at = datagram.len();
        let whole = finish(&mut datagram);
        if whole {
            self.packing.pack_short(&mut datagram, at, counters);
            self.tell_keys(to, counters);
            self.cut_for(to, &datagram, counters);
        }
        self.datagram = datagram;
        whole
    }

    fn cut_for(&mut self, to: &[(SocketAddr, NodeId)], datagram: &[u8], counters: &mut Counters) {
        let (Some(shared), Some(multicast_batches)) = (&mut self.shared, &self.multicast_batches)
        else {
            return;
        };
        let mut nodes = NodeSet::EMPTY;
        to.iter().for_each(|(_, node)| nodes.insert(*node));
        let group = multicast_batches.group.address();
        let cut = shared.cut(nodes, datagram, |piece| {
            self.egress.give(group, piece, true, counters);
            counters.add(Count::MulticastBatchesOut, 1);
        });
        if cut {
            counters.add(Count::MulticastBatchParts, to.len() as u64);
        } else {
            counters.add(Count::DatagramsFailed, 1);
        }
    }

    /// Tells nodes the key of what they are about to get.
    fn tell_keys(&mut self, to: &[(SocketAddr, NodeId)], counters: &mut Counters) {
        let told = self.shared.as_mut().map(|shared| shared.tell(to));
        let told = told.filter(|told| !told.is_empty());
        for (address, node, bytes) in told.into_iter().flatten() {
            self.seal((address, node), &bytes, counters);
            self.circulate(counters);
        }
    }

    /// A shared datagram came from the group.
    pub(super) fn share_came(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        counters: &mut Counters,
    ) -> Option<PublicKey> {
        let shared = self.shared.as_mut()?;
        match shared.came(clock::monotonic(), from, datagram) {
            SharedCame::Whole(key) => {
                counters.add(Count::MulticastBatchesIn, 1);
                return Some(key);
            }
            SharedCame::Handled => {}
            SharedCame::Refused => counters.add(Count::MulticastBatchesRefused, 1),
            SharedCame::Sealed(why) => {
                if let Some(sealing) = &mut self.sealing {
                    sealing.refuse(from, why, counters);
                }
            }
            SharedCame::Ask(node, bytes) => self.seal((from, node), &bytes, counters),
        }
        None
    }

    /// The shared message that came whole last, in the second half of the room. Only what any member
    /// may bring about in its own name is taken: copies of pages.
    pub(super) fn shared_whole(
        &mut self,
        room: &mut [u8],
        (source, key): (SocketAddr, PublicKey),
        counters: &mut Counters,
    ) -> Got {
        let Some(shared) = &self.shared else {
            return Got::Handled;
        };
        let (message, me) = (shared.whole(), shared.id());
        let (clear, length) = (&mut room[LONGEST..], message.len());
        clear[..length].copy_from_slice(message);
        let length = match header::form(&clear[..length]) {
            0 => Some(length),
            _ => match self.packing.unpack(source, clear, length, counters) {
                Unpacked::Whole(length) => Some(length),
                Unpacked::Handled | Unpacked::Answer(_) => None,
            },
        };
        let copies = |length: &usize| {
            let message = Message::decode(&clear[..*length]);
            matches!(message, Ok((_, Message::PolicyPage(_), _)))
        };
        let Some(length) = length.filter(copies) else {
            counters.add(Count::MulticastBatchesRefused, 1);
            return Got::Handled;
        };
        header::set_receiver(clear, me);
        counters.add(Count::DatagramsIn, 1);
        counters.add(Count::BytesIn, length as u64);
        Got::Datagram(LONGEST..LONGEST + length, source, key)
    }

    /// A member says something about keys of shared datagrams. False if that is none of it.
    pub(super) fn is_about_keys(
        &mut self,
        (source, key): (SocketAddr, PublicKey),
        clear: &[u8],
        counters: &mut Counters,
    ) -> bool {
        let told = self.shared.as_mut().and_then(|it| it.told(key, clear));
        match told {
            None => return false,
            Some(None) => {}
            Some(Some((node, answer))) => self.seal((source, node), &answer, counters),
        }
        true
    }
}
