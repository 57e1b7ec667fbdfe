//! Requests that wait for an answer of the core.

use pagemesh_recorder::Pending;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::{ClientId, Ticket};
use std::collections::BTreeSet;

/// Open requests by ticket, and by process and number.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    pending: SortedMap<Ticket, Pending>,
    numbers: SortedMap<(ClientId, u64), Ticket>,
    /// Those that wait for a state to change, which need not be soon. Not written down: a successor
    /// takes them for others.
    watches: BTreeSet<Ticket>,
    last: u64,
}

impl Tickets {
    /// A ticket never used before.
    pub(crate) fn issue(&mut self, pending: Pending) -> Ticket {
        let ticket = Ticket(self.last + 1);
        self.restore(ticket, pending);
        ticket
    }

    /// A ticket that was given before.
    pub(crate) fn restore(&mut self, ticket: Ticket, pending: Pending) {
        self.skip_to(ticket.0);
        if let Some(client) = pending.client {
            self.numbers.insert((client, pending.number), ticket);
        }
        self.pending.insert(ticket, pending);
    }

    /// The request waits for a state to change.
    pub(crate) fn watches(&mut self, ticket: Ticket) {
        self.watches.insert(ticket);
    }

    /// The number given last.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Gives no number up to this one.
    pub(crate) fn skip_to(&mut self, last: u64) {
        self.last = self.last.max(last);
    }

    /// How many requests are open.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// All open requests.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ticket, Pending)> {
        self.pending
            .iter()
            .map(|(ticket, pending)| (*ticket, *pending))
    }

    /// The request with the ticket.
    pub(crate) fn get(&self, ticket: Ticket) -> Option<Pending> {
        self.pending.get(&ticket).copied()
    }

    /// The request was answered for good. Whether it was one that waited for a state to change.
    pub(crate) fn close(&mut self, ticket: Ticket) -> bool {
        if let Some(pending) = self.pending.remove(&ticket)
            && let Some(client) = pending.client
        {
            self.numbers.remove(&(client, pending.number));
        }
        self.watches.remove(&ticket)
    }

    /// The ticket of an open request of a process.
    pub(crate) fn find(&self, client: ClientId, number: u64) -> Option<Ticket> {
        self.numbers.get(&(client, number)).copied()
    }

    /// The open requests of a process.
    pub(crate) fn of(&self, client: ClientId) -> Vec<Ticket> {
        let numbers = self.numbers.range((client, 0)..=(client, u64::MAX));
        numbers.map(|(_, ticket)| *ticket).collect()
    }

    /// The process is gone; its answers are not needed.
    pub(crate) fn forget(&mut self, client: ClientId) {
        for ticket in self.of(client) {
            self.watches.remove(&ticket);
        }
        self.pending
            .retain(|_, pending| pending.client != Some(client));
        self.numbers.retain(|(of, _), _| *of != client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_recorder::Kind;

    #[test]
    fn a_request_is_found_until_answered() {
        let mut tickets = Tickets::default();
        let (client, number) = (ClientId(3), 8);
        let pending = Pending {
            client: Some(client),
            number,
            kind: Kind::Plain,
        };
        let ticket = tickets.issue(pending);
        assert_eq!(tickets.get(ticket), Some(pending));
        assert_eq!(tickets.find(client, number), Some(ticket));
        assert_eq!(tickets.of(client), [ticket]);
        assert!(tickets.of(ClientId(2)).is_empty() && tickets.of(ClientId(4)).is_empty());
        tickets.close(ticket);
        assert_eq!(tickets.get(ticket), None);
        assert_eq!(tickets.find(client, number), None);
        let other = tickets.issue(pending);
        assert_ne!(other, ticket);
        tickets.forget(client);
        assert_eq!(tickets.get(other), None);
    }
}
