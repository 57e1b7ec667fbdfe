//! Many requests to the same node in one datagram.

use crate::effect::{Effect, Effects};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Ask, AskMany, Message, PageRequest, Subject};

/// Puts the requests among the effects from `start` on, as far as they are this node's own and new,
/// into as few datagrams as possible. Requests may overtake other messages, as any datagram may.
pub(crate) fn gather(effects: &mut Effects, start: usize) {
    let mut open: Vec<usize> = Vec::new();
    for effect in effects.split_off(start) {
        if let Some(request) = request(&effect) {
            let found = open
                .iter()
                .any(|&at| joins(effects.at(at), &effect, request));
            if found {
                continue;
            }
            open.push(effects.len());
        }
        effects.push(effect);
    }
}

/// A request as it stands among others, if it can.
fn request(effect: &Effect) -> Option<PageRequest> {
    let (header, ask) = said(effect)?;
    let Subject::Page { page, .. } = ask.subject else {
        return None;
    };
    let own = ask.waiter.node == header.from && ask.hops == 0 && !ask.by_library;
    own.then_some(PageRequest {
        page,
        request: ask.waiter.request,
        have: ask.waiter.have,
        since: ask.since,
    })
}

/// The request that is sent, if one is.
fn said(effect: &Effect) -> Option<(&Header, &Ask)> {
    let Effect::Send {
        header, message, ..
    } = effect
    else {
        return None;
    };
    match &**message {
        Message::Ask(ask) => Some((header, ask)),
        _ => None,
    }
}

/// True if a request found room in a message to the same node.
fn joins(open: &mut Effect, effect: &Effect, request: PageRequest) -> bool {
    let (
        Effect::Send {
            address,
            header,
            message: held,
            ..
        },
        Effect::Send {
            address: to,
            header: other,
            message: joining,
            ..
        },
    ) = (open, effect)
    else {
        return false;
    };
    let Message::Ask(ask) = &**joining else {
        return false;
    };
    // At the address of a node that died there may be a new one, with another number.
    if address != to || header.to != other.to {
        return false;
    }
    if let Message::Ask(first) = &**held {
        match AskMany::of(first) {
            Some(many) => **held = Message::AskMany(many),
            None => return false,
        }
    }
    let Message::AskMany(many) = &mut **held else {
        return false;
    };
    many.join(ask.subject.segment(), ask.waiter.access, request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Reply;
    use pagemesh_wire::peer::{Access, Waiter};
    use pagemesh_wire::{
        ClusterId, Incarnation, NodeId, PageIndex, RequestId, SegmentId, Ticket, Version,
    };

    fn ask(to: u16, page: u32, access: Access) -> Effect {
        let subject = Subject::Page {
            segment: SegmentId::new(NodeId(1), 1),
            page: PageIndex(page),
        };
        let waiter = Waiter {
            node: NodeId(9),
            request: RequestId(u64::from(page)),
            access,
            have: None,
        };
        Effect::Send {
            address: ([127, 0, 0, 1], to).into(),
            header: Header {
                version: pagemesh_wire::header::PROTOCOL_VERSION,
                cluster: ClusterId(1),
                from: NodeId(9),
                to: NodeId(to),
                incarnation: Incarnation(1),
                body: 0,
                term: pagemesh_wire::Term::NONE,
                generation: 0,
            },
            message: Box::new(Message::Ask(Ask {
                subject,
                waiter,
                since: Version(3),
                hops: 0,
                by_library: false,
            })),
            page: None,
        }
    }

    #[test]
    fn requests_of_one_kind_for_one_node_travel_together() {
        let mut effects = Effects::default();
        effects.push(ask(1, 1, Access::Read));
        for page in 10..90 {
            effects.push(ask(1, page, Access::Read));
        }
        effects.push(Effect::Reply {
            ticket: Ticket(1),
            reply: Box::new(Reply::Done),
        });
        effects.push(ask(2, 5, Access::Read));
        effects.push(ask(1, 6, Access::Write));
        let before: Vec<Effect> = effects.as_slice().to_vec();
        gather(&mut effects, 1);
        let after = effects.as_slice();
        assert_eq!(after[0], before[0], "what was there before stays");
        let sizes: Vec<usize> = after
            .iter()
            .filter_map(|effect| match effect {
                Effect::Send { message, .. } => match &**message {
                    Message::AskMany(many) => Some(many.each(NodeId(9)).count()),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        assert_eq!(sizes, [AskMany::LIMIT, 80 - AskMany::LIMIT]);
        assert_eq!(after.len(), 6);
        let all = |effects: &[Effect]| -> Vec<Ask> {
            let mut asks: Vec<Ask> = effects
                .iter()
                .flat_map(|effect| match effect {
                    Effect::Send { message, .. } => match &**message {
                        Message::Ask(ask) => vec![*ask],
                        Message::AskMany(many) => many.each(NodeId(9)).collect(),
                        _ => Vec::new(),
                    },
                    _ => Vec::new(),
                })
                .collect();
            asks.sort_by_key(|ask| ask.waiter.request);
            asks
        };
        assert_eq!(all(after), all(&before), "and none is changed");
    }

    #[test]
    fn a_new_node_at_the_address_of_another_gets_only_its_own() {
        let mut effects = Effects::default();
        effects.push(ask(1, 1, Access::Read));
        let mut other = ask(1, 2, Access::Read);
        if let Effect::Send { header, .. } = &mut other {
            header.to = NodeId(5);
        }
        effects.push(other);
        let before: Vec<Effect> = effects.as_slice().to_vec();
        gather(&mut effects, 0);
        assert_eq!(effects.as_slice(), before);
    }
}
