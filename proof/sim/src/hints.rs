//! *INV-hint-nearer*: a node sends a request only to a node that owned the subject at or after
//! the version that the request names, or is about to own it; and each hop names a newer version
//! than the hop before.

use crate::check::{Check, ensure};
use pagemesh_core::{Effect, Event};
use pagemesh_wire::peer::{Ask, Message, Subject};
use pagemesh_wire::{NodeId, Version};
use std::collections::BTreeMap;

/// Hop count of a request without an owner hint to follow; the home searches for the owner.
const NO_ROUTE: u8 = u8::MAX;

/// The owners of subjects as named by owners and grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Hints {
    /// The newest version at which a node was rightly named the owner.
    named: BTreeMap<(Subject, NodeId), Version>,
}

impl Hints {
    /// Checks and records a message from one node to another.
    pub(crate) fn said(&mut self, from: NodeId, to: NodeId, message: &Message) -> Check {
        let page = |segment, page| Subject::Page { segment, page };
        let (subject, owner, version) = match message {
            Message::Data(data) => (page(data.segment, data.page), data.owner, data.version),
            Message::Regain(regain) => (regain.subject, to, regain.version),
            Message::Invalidate(order) => {
                (page(order.segment, order.page), order.writer, order.version)
            }
            Message::Served(served) => {
                let Some(clock) = served.clock else {
                    return Ok(());
                };
                (page(served.segment, served.page), from, clock)
            }
            Message::Located(located) if located.owner == from => {
                (located.subject, from, located.version)
            }
            Message::Ask(ask) if ask.hops != NO_ROUTE => return self.asked(from, to, ask),
            Message::AskMany(many) => {
                return many
                    .each(from)
                    .try_for_each(|ask| self.asked(from, to, &ask));
            }
            _ => return Ok(()),
        };
        self.given(subject, owner, version);
        Ok(())
    }

    /// Records that a node owns the subject or will own it: a grant to it was made, whether or
    /// not it could be sent yet.
    pub(crate) fn given(&mut self, subject: Subject, to: NodeId, version: Version) {
        let named = self.named.entry((subject, to)).or_default();
        *named = version.max(*named);
    }

    /// Records the grants of a turn of a node. They count before any message of the turn: requests
    /// that the node gathers in one datagram stand where the first one stood.
    pub(crate) fn granted(&mut self, turn: &[Effect]) {
        for effect in turn {
            if let Effect::Emit(event) = effect {
                self.told(event);
            }
        }
    }

    /// As [`Hints::given`], for an event that a node emits.
    pub(crate) fn told(&mut self, event: &Event) {
        match *event {
            Event::OwnershipGiven {
                segment,
                page,
                to,
                version,
            } => self.given(Subject::Page { segment, page }, to, version),
            Event::TokenGiven { key, to, version } => {
                self.given(Subject::Lock(key), to, version);
            }
            _ => {}
        }
    }

    fn asked(&self, from: NodeId, to: NodeId, ask: &Ask) -> Check {
        let named = self.named.get(&(ask.subject, to)).copied();
        ensure!(
            ask.since <= named.unwrap_or_default(),
            HintNearer,
            "{from} believes that {to} owns {:?} since {}, but {to} was last named its owner at {named:?}",
            ask.subject,
            ask.since
        );
        Ok(())
    }

    /// Checks a request that a node sent while it handled another one. A request that comes back
    /// to its own requester is excepted: the home sends it there if that node is the owner or is
    /// about to be, and that node may have to send it back for the grant.
    pub(crate) fn forwarded(by: NodeId, heard: &Ask, said: &Ask) -> Check {
        let same = (heard.subject, heard.waiter.node, heard.waiter.request)
            == (said.subject, said.waiter.node, said.waiter.request);
        let goes_on = same
            && by != said.waiter.node
            && said.hops != NO_ROUTE
            && said.hops == heard.hops.wrapping_add(1);
        ensure!(
            !goes_on || said.since > heard.since,
            HintNearer,
            "{by} forwards an ask for {:?} that named {} along a hint of {}",
            heard.subject,
            heard.since,
            said.since
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Invariant;
    use crate::kernel::tests::key;
    use pagemesh_wire::RequestId;
    use pagemesh_wire::peer::{Access, PassAck, Regain, Waiter};

    fn subject() -> Subject {
        let (segment, page) = (key(0).segment, key(0).page);
        Subject::Page { segment, page }
    }

    fn ask(since: u64, hops: u8) -> Ask {
        Ask {
            subject: subject(),
            waiter: Waiter {
                node: NodeId(3),
                request: RequestId(1),
                access: Access::Read,
                have: None,
            },
            since: Version(since),
            hops,
            by_library: false,
        }
    }

    #[test]
    fn a_hint_names_who_did_own() {
        let mut hints = Hints::default();
        let (n1, n2) = (NodeId(1), NodeId(2));
        hints.said(n1, n2, &Message::Ask(ask(0, 0))).unwrap();
        let wrong = hints.said(n1, n2, &Message::Ask(ask(4, 0))).unwrap_err();
        assert_eq!(wrong.invariant, Invariant::HintNearer);
        hints.said(n1, n2, &Message::Ask(ask(4, NO_ROUTE))).unwrap();
        let regain = Regain {
            subject: subject(),
            version: Version(4),
            copies: pagemesh_wire::NodeSet::EMPTY,
        };
        hints.said(n1, n2, &Message::Regain(regain)).unwrap();
        hints.said(n1, n2, &Message::Ask(ask(4, 0))).unwrap();
        let ack = PassAck {
            subject: subject(),
            version: Version(9),
        };
        hints.said(n1, n2, &Message::PassAck(ack)).unwrap();
        assert!(hints.said(n1, n2, &Message::Ask(ask(5, 0))).is_err());
    }

    #[test]
    fn a_request_may_stand_before_the_grant_that_it_relies_on() {
        let mut hints = Hints::default();
        let (n1, n2) = (NodeId(1), NodeId(2));
        let given = Event::OwnershipGiven {
            segment: key(0).segment,
            page: key(0).page,
            to: n2,
            version: Version(4),
        };
        hints.granted(&[Effect::Emit(given)]);
        hints.said(n1, n2, &Message::Ask(ask(4, 0))).unwrap();
        assert!(hints.said(n1, n2, &Message::Ask(ask(5, 0))).is_err());
    }

    #[test]
    fn each_hop_knows_more() {
        let by = NodeId(2);
        Hints::forwarded(by, &ask(3, 0), &ask(4, 1)).unwrap();
        assert!(Hints::forwarded(by, &ask(3, 0), &ask(3, 1)).is_err());
        Hints::forwarded(by, &ask(3, 0), &ask(0, NO_ROUTE)).unwrap();
        Hints::forwarded(by, &ask(3, 1), &ask(3, 0)).unwrap();
        Hints::forwarded(NodeId(3), &ask(3, 0), &ask(2, 1)).unwrap();
    }
}
