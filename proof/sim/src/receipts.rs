//! Receipts wait a little, as in the daemon, and those for pages of one segment leave as
//! one message; in some seeds.

use crate::check::Check;
use crate::world::{Happening, Life, World};
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::Message;
use std::net::SocketAddr;

/// Nanoseconds that receipts wait: a daemon that has nothing else to do sends them sooner.
const WAIT: u64 = 20_000;

/// Those of one host.
#[derive(Debug, Default)]
pub(crate) struct Receipts(Vec<(SocketAddr, Header, Message)>);

impl World {
    /// Whether a message waits: it is a receipt, and this is a seed where they do.
    pub(crate) fn keeps_receipt(
        &mut self,
        at: usize,
        to: SocketAddr,
        header: Header,
        message: &Message,
    ) -> bool {
        if !self.setting.turns || self.reaction.repeats || !matches!(message, Message::PassAck(_)) {
            return false;
        }
        if self.hosts[at].receipts.0.is_empty() {
            self.after(WAIT, Happening::Receipts(at));
        }
        let waiting = &mut self.hosts[at].receipts.0;
        let last = waiting.last_mut();
        let joins = last.is_some_and(|(whom, head, last)| {
            (*whom, *head) == (to, header) && last.takes(message)
        });
        if !joins {
            waiting.push((to, header, message.clone()));
        }
        true
    }

    /// The daemon of a host was killed, and receipts that waited in its memory are gone.
    pub(crate) fn forget_receipts(&mut self, at: usize) {
        self.hosts[at].receipts.0.clear();
    }

    /// Receipts have waited for long enough.
    pub(crate) fn send_receipts(&mut self, at: usize) -> Check {
        let waiting = std::mem::take(&mut self.hosts[at].receipts.0);
        if self.hosts[at].life != Life::Up {
            return Ok(());
        }
        for (to, header, message) in waiting {
            self.say(at, to, header, &message)?;
        }
        Ok(())
    }
}
