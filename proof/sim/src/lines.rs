//! *INV-queue-travels*: the receiver of a grant serves the nodes in the grant's queue before all
//! other nodes and in this order, or passes them on at the head of the next queue.

use crate::check::{Check, ensure};
use pagemesh_wire::peer::{Message, Pass, PassAck, Subject};
use pagemesh_wire::{NodeId, NodeSet, RequestId, Version};
use std::collections::BTreeMap;

/// The order of service that a grant has promised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Line {
    version: Version,
    /// The receiver of the grant, which has to keep the promise.
    keeper: NodeId,
    /// The sender of the grant, until the grant is acknowledged; if it dies, the grant may be
    /// lost.
    giver: NodeId,
    waiting: Vec<NodeId>,
    /// Waiting nodes that the keeper did not know at some time when it sent a message: it may
    /// have tried to serve them, which the checker cannot see.
    doubtful: NodeSet,
}

impl Line {
    /// True if these nodes are served in the promised order, before all others.
    fn is_kept_by(&self, served: impl Iterator<Item = NodeId>) -> bool {
        let mut served = served.peekable();
        self.waiting
            .iter()
            .all(|node| served.next_if_eq(node).is_some() || self.doubtful.contains(*node))
    }
}

/// The orders promised for all subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lines {
    of: BTreeMap<Subject, Line>,
    /// Nodes that crashed or left; nothing is promised to them.
    gone: NodeSet,
}

impl Lines {
    /// A node is gone; promises by it and to it are void.
    pub(crate) fn gone(&mut self, node: NodeId) {
        self.gone.insert(node);
        for line in self.of.values_mut() {
            if line.keeper == node || line.giver == node {
                // Its version still counts: a resent older grant is recognized by it.
                line.waiting.clear();
            }
            line.waiting.retain(|waiting| *waiting != node);
        }
    }

    /// Checks a message from one node to another. `knows` tells which members the sender knows:
    /// it cannot serve a member that it has not heard of yet, though it may have tried.
    pub(crate) fn said(
        &mut self,
        from: NodeId,
        to: NodeId,
        message: &Message,
        knows: impl Fn(NodeId) -> bool,
    ) -> Check {
        if self.gone.contains(from) {
            // The sender is gone and has not heard so; its messages have no effect.
            return Ok(());
        }
        for line in self.of.values_mut().filter(|line| line.keeper == from) {
            let strangers = line.waiting.iter().filter(|waiting| !knows(**waiting));
            line.doubtful = strangers.copied().chain(line.doubtful.iter()).collect();
        }
        match message {
            Message::Data(data) => {
                let (segment, page) = (data.segment, data.page);
                self.served(Subject::Page { segment, page }, from, to)
            }
            Message::Pass(pass) => self.passed(from, to, pass),
            Message::PassAck(ack) => {
                self.taken(ack);
                Ok(())
            }
            Message::PassAckMany(many) => {
                many.each().for_each(|ack| self.taken(&ack));
                Ok(())
            }
            Message::Lost(lost) => {
                if let Some(line) = self.of.get_mut(&lost.subject) {
                    line.waiting.retain(|waiting| *waiting != to);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn taken(&mut self, ack: &PassAck) {
        let line = self.of.get_mut(&ack.subject);
        if let Some(line) = line.filter(|line| line.version == ack.version) {
            line.giver = NodeId::NONE;
        }
    }

    fn served(&mut self, subject: Subject, by: NodeId, to: NodeId) -> Check {
        let Some(line) = self.of.get_mut(&subject) else {
            return Ok(());
        };
        if line.keeper != by || self.gone.contains(to) {
            return Ok(());
        }
        // The keeper may have served its own request without a message.
        line.waiting.retain(|waiting| *waiting != by);
        let place = line.waiting.iter().position(|waiting| *waiting == to);
        let before = &line.waiting[..place.unwrap_or(line.waiting.len())];
        ensure!(
            before.iter().all(|node| line.doubtful.contains(*node)),
            QueueTravels,
            "{by} serves {to} with {subject:?}, but {:?} waited before",
            line.waiting
        );
        line.waiting
            .drain(..place.map_or(line.waiting.len(), |place| place + 1));
        Ok(())
    }

    fn passed(&mut self, from: NodeId, to: NodeId, pass: &Pass) -> Check {
        let line = self.of.get(&pass.subject);
        if line.is_some_and(|line| pass.version <= line.version) {
            return Ok(());
        }
        // The handover of a leaving node answers no request.
        if pass.request != RequestId::NONE {
            self.served(pass.subject, from, to)?;
        }
        let queue = pass.queue.iter().map(|waiter| waiter.node);
        let waiting: Vec<NodeId> = queue
            .filter(|node| *node != to && !self.gone.contains(*node))
            .collect();
        let line = self.of.entry(pass.subject).or_default();
        if line.keeper == from {
            line.waiting.retain(|node| *node != from && *node != to);
            let others = waiting.iter().copied().filter(|node| *node != from);
            ensure!(
                line.is_kept_by(others),
                QueueTravels,
                "{from} passes {:?} to {to} with {waiting:?} waiting, but it had promised {:?}",
                pass.subject,
                line.waiting
            );
        }
        *line = Line {
            version: pass.version,
            keeper: to,
            giver: from,
            waiting,
            doubtful: NodeSet::EMPTY,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::key;
    use pagemesh_wire::peer::{Access, Contents, Data, Waiter};

    fn pass(version: u64, queue: &[u16]) -> Message {
        let (segment, page) = (key(0).segment, key(0).page);
        let waiter = |node: &u16| Waiter {
            node: NodeId(*node),
            request: RequestId(1),
            access: Access::Write,
            have: None,
        };
        Message::Pass(Pass {
            subject: Subject::Page { segment, page },
            request: RequestId(1),
            version: Version(version),
            contents: Contents::Zero,
            pristine: true,
            recovered: false,
            awaiting: NodeSet::EMPTY,
            queue: queue.iter().map(waiter).collect(),
        })
    }

    fn data() -> Message {
        Message::Data(Data {
            segment: key(0).segment,
            page: key(0).page,
            request: RequestId(1),
            version: Version(1),
            owner: NodeId(1),
            contents: Contents::Zero,
        })
    }

    fn say(lines: &mut Lines, from: u16, to: u16, message: &Message) -> Check {
        lines.said(n(from), n(to), message, |_| true)
    }

    fn n(number: u16) -> NodeId {
        NodeId(number)
    }

    #[test]
    fn a_promised_order_is_kept() {
        let mut lines = Lines::default();
        say(&mut lines, 1, 2, &pass(1, &[3, 4, 5])).unwrap();
        say(&mut lines, 2, 3, &data()).unwrap();
        let mut late = lines.clone();
        assert!(say(&mut late, 2, 5, &data()).is_err());
        assert!(say(&mut lines.clone(), 2, 4, &pass(2, &[6])).is_err());
        assert!(say(&mut lines.clone(), 2, 6, &pass(2, &[4, 5])).is_err());
        say(&mut lines, 2, 4, &pass(2, &[5, 6, 2])).unwrap();
        say(&mut lines, 2, 4, &pass(2, &[5, 6, 2])).unwrap();
        say(&mut lines, 4, 5, &data()).unwrap();
    }

    #[test]
    fn a_promise_may_be_lost_with_who_gave_it() {
        let mut lines = Lines::default();
        say(&mut lines, 1, 2, &pass(1, &[3, 4])).unwrap();
        let mut taken = lines.clone();
        let (segment, page) = (key(0).segment, key(0).page);
        let ack = PassAck {
            subject: Subject::Page { segment, page },
            version: Version(1),
        };
        say(&mut taken, 2, 1, &Message::PassAck(ack)).unwrap();
        for lines in [&mut lines, &mut taken] {
            lines.gone(n(1));
            // Node 1 resends the grant, because it has not heard that node 2 is gone.
            say(lines, 1, 2, &pass(1, &[3, 4])).unwrap();
        }
        say(&mut lines, 2, 4, &data()).unwrap();
        assert!(say(&mut taken, 2, 4, &data()).is_err());
    }

    #[test]
    fn whom_nobody_knows_nobody_serves() {
        let mut lines = Lines::default();
        say(&mut lines, 1, 2, &pass(1, &[3, 4])).unwrap();
        lines
            .said(n(2), n(4), &data(), |node| node != n(3))
            .unwrap();
    }

    #[test]
    fn the_dead_wait_for_nothing() {
        let mut lines = Lines::default();
        say(&mut lines, 1, 2, &pass(1, &[3, 4])).unwrap();
        lines.gone(n(3));
        say(&mut lines, 2, 4, &data()).unwrap();
        say(&mut lines, 2, 5, &pass(2, &[6])).unwrap();
        lines.gone(n(5));
        say(&mut lines, 1, 7, &pass(9, &[])).unwrap();
    }
}
