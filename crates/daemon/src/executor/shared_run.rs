//! Pages that go to several nodes at one moment: each datagram leaves once, for all that multicast
//! reaches. The node sees nothing of that: its effects name one receiver each.

use super::DaemonExecutor;
use super::batch::EffectBatch;
use crate::payload::Payload;
use pagemesh_core::{At, Effect, Source};
use pagemesh_wire::NodeId;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::Message;
use std::net::SocketAddr;

/// Effects that were carried out for several nodes at once.
#[derive(Debug, Default)]
pub(super) struct SharedRun {
    /// The index behind the last of them.
    end: usize,
    /// The nodes that got them.
    to: Vec<SocketAddr>,
}

/// The receiver of a copy of a page.
fn receiver(effect: &Effect) -> Option<(SocketAddr, NodeId)> {
    match effect {
        Effect::Send {
            address,
            header,
            message,
            page: Some(_),
        } if matches!(**message, Message::PolicyPage(_)) => Some((*address, header.to)),
        _ => None,
    }
}

/// Whether two datagrams differ in their receivers only.
fn same(one: &Effect, other: &Effect) -> bool {
    match (one, other) {
        (
            Effect::Send { message, page, .. },
            Effect::Send {
                message: others,
                page: its,
                ..
            },
        ) => page == its && message == others,
        _ => false,
    }
}

/// How many copies the first effects send to one node, and all nodes to which the effects behind them
/// send just the same.
fn repeated(effects: &[Effect]) -> (usize, Vec<(SocketAddr, NodeId)>) {
    let Some(first) = effects.first().and_then(receiver) else {
        return (0, Vec::new());
    };
    let to_first = effects.iter().take_while(|it| receiver(it) == Some(first));
    let each = to_first.count();
    let (run, rest) = effects.split_at(each);
    let mut nodes = vec![first];
    for block in rest.chunks_exact(each) {
        let Some(to) = receiver(&block[0]) else {
            break;
        };
        let mut pairs = block.iter().zip(run);
        if !pairs.all(|(copy, known)| receiver(copy) == Some(to) && same(copy, known)) {
            break;
        }
        nodes.push(to);
    }
    (each, nodes)
}

impl EffectBatch<'_> {
    /// Whether the first of these effects was carried out for several nodes at once, or just now is.
    pub(super) fn is_shared(&mut self, index: usize, rest: &[Effect]) -> bool {
        let first = rest.first().and_then(receiver);
        let Some((to, _)) = first.filter(|_| self.executor.network.group().is_some()) else {
            return false;
        };
        if index >= self.shared.end {
            let (each, nodes) = repeated(rest);
            self.shared = SharedRun {
                end: index + each * nodes.len(),
                to: self.share(&rest[..each], nodes),
            };
        }
        self.shared.to.contains(&to)
    }

    /// Sends copies to those of the nodes that can be told at once; returns which these are.
    fn share(&mut self, run: &[Effect], nodes: Vec<(SocketAddr, NodeId)>) -> Vec<SocketAddr> {
        let nodes = match nodes.len() {
            1 => return Vec::new(),
            _ => self.executor.network.told_at_once(nodes),
        };
        if nodes.is_empty() {
            return Vec::new();
        }
        self.finish_fill();
        let payload = self.payload();
        for effect in run {
            if let Effect::Send {
                header,
                message,
                page: Some((segment, page, source)),
                ..
            } = effect
            {
                let page = ((*segment, *page), *source);
                self.executor
                    .share((&nodes, *header), message, page, payload);
            }
        }
        nodes.into_iter().map(|(address, _)| address).collect()
    }
}

impl DaemonExecutor {
    /// Sends a copy of a page to several nodes at once.
    fn share(
        &mut self,
        (nodes, header): (&[(SocketAddr, NodeId)], Header),
        message: &Message,
        (at, source): (At, Source),
        payload: Payload<'_>,
    ) {
        let pages = &self.pages;
        let append = |datagram: &mut Vec<u8>| pages.append(at, source, payload, datagram);
        let (network, counters) = (&mut self.network, &mut self.counters);
        if !network.share(nodes, header, message, append, counters) {
            tracing::error!(?at, "contents to send are not there");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::peer::{Payload as Body, PolicyMessage};
    use pagemesh_wire::{ClusterId, Incarnation, PageIndex, SegmentId, Term};

    fn copy(node: u16, page: u32) -> Effect {
        let segment = SegmentId::new(NodeId(1), 1);
        Effect::Send {
            address: SocketAddr::from(([10, 0, 0, node as u8], 7450)),
            header: Header {
                version: pagemesh_wire::header::PROTOCOL_VERSION,
                cluster: ClusterId(1),
                from: NodeId(1),
                to: NodeId(node),
                incarnation: Incarnation(1),
                body: 0,
                term: Term::FIRST,
                generation: 0,
            },
            message: Box::new(Message::PolicyPage(PolicyMessage {
                segment,
                body: Body::of(&page),
            })),
            page: Some((segment, PageIndex(page), Source::Frame)),
        }
    }

    #[test]
    fn the_same_copies_for_several_nodes_are_found() {
        let of = |copies: &[(u16, u32)]| {
            let effects: Vec<_> = copies
                .iter()
                .map(|(node, page)| copy(*node, *page))
                .collect();
            let (each, nodes) = repeated(&effects);
            let nodes: Vec<_> = nodes.iter().map(|(_, node)| node.0).collect();
            (each, nodes)
        };
        assert_eq!(of(&[]), (0, vec![]));
        assert_eq!(of(&[(2, 7), (3, 7), (4, 7)]), (1, vec![2, 3, 4]));
        assert_eq!(of(&[(2, 7), (3, 8)]), (1, vec![2]));
        let run = [(2, 7), (2, 8), (3, 7), (3, 8), (4, 7)];
        assert_eq!(of(&run), (2, vec![2, 3]), "the last gets only a part");
        assert_eq!(of(&[(2, 7), (2, 8), (3, 8), (3, 7)]), (2, vec![2]));
    }
}
