//! The pins that keep one page on this node (M14).

use crate::time::Time;
use pagemesh_wire::{ClientId, Ticket};
use serde::{Deserialize, Serialize};

/// Pins of clients that keep a page here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct PinsHere(Vec<Pin>);

/// A client keeps the page until it releases it or the lease ends. A pin whose lease has ended
/// stays here without effect until its client releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Pin {
    pub(super) client: ClientId,
    /// The request that made the pin.
    pub(super) ticket: Ticket,
    pub(super) until: Time,
}

impl PinsHere {
    /// Adds a pin; replaces the pin of the same request, which may have lost the page before it had
    /// all pages.
    pub(super) fn put(&mut self, pin: Pin) {
        self.remove_of(pin.ticket);
        self.0.push(pin);
    }

    /// Restarts the lease of a pin. Returns false if there is none.
    pub(super) fn renew(&mut self, ticket: Ticket, until: Time) -> bool {
        let pin = self.0.iter_mut().find(|pin| pin.ticket == ticket);
        pin.map(|pin| pin.until = until).is_some()
    }

    /// A client releases one of its pins of the page; others may be pins of its other threads.
    /// Returns false if it has none.
    pub(super) fn remove(&mut self, client: ClientId) -> bool {
        let at = self.0.iter().position(|pin| pin.client == client);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Removes the pin that this request made.
    pub(super) fn remove_of(&mut self, ticket: Ticket) {
        self.0.retain(|pin| pin.ticket != ticket);
    }

    /// A client is gone.
    pub(super) fn client_gone(&mut self, client: ClientId) {
        self.0.retain(|pin| pin.client != client);
    }

    pub(super) fn are_of(&self, client: ClientId) -> bool {
        self.0.iter().any(|pin| pin.client == client)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the last lease ends.
    pub(super) fn until(&self) -> Time {
        let ends = self.0.iter().map(|pin| pin.until);
        ends.max().unwrap_or(Time::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(2);

    fn pins(of: &[(u64, u64)]) -> PinsHere {
        let mut pins = PinsHere::default();
        for &(ticket, until) in of {
            pins.put(Pin {
                client: CLIENT,
                ticket: Ticket(ticket),
                until: Time(until),
            });
        }
        pins
    }

    #[test]
    fn a_request_has_one_pin_and_the_last_lease_counts() {
        let mut pins = pins(&[(1, 10), (2, 30), (1, 20)]);
        assert_eq!((pins.0.len(), pins.until()), (2, Time(30)));
        pins.remove_of(Ticket(2));
        assert_eq!(pins.until(), Time(20));
        assert!(pins.renew(Ticket(1), Time(40)) && !pins.renew(Ticket(2), Time(50)));
        assert_eq!(pins.until(), Time(40));
    }

    #[test]
    fn a_client_releases_one_pin_at_a_time() {
        let mut pins = pins(&[(1, 10), (2, 20)]);
        assert!(!pins.remove(ClientId(3)));
        assert!(pins.remove(CLIENT) && pins.are_of(CLIENT));
        assert!(pins.remove(CLIENT) && !pins.remove(CLIENT));
        assert_eq!((pins.is_empty(), pins.until()), (true, Time::ZERO));
    }

    #[test]
    fn a_client_that_is_gone_pins_nothing() {
        let mut pins = pins(&[(1, 10), (2, 20)]);
        pins.client_gone(ClientId(3));
        assert!(!pins.is_empty());
        pins.client_gone(CLIENT);
        assert!(pins.is_empty());
    }
}
