//! Datagrams out, through a bad network if one was asked for.

use crate::tally::{Count, Tally};
use pagemesh_os::clock;
use pagemesh_os::impair::{Impairer, Impairment};
use pagemesh_os::memfd::PageBytes;
use pagemesh_os::udp::Udp;
use pagemesh_wire::header::{Header, MAX_DATAGRAM};
use pagemesh_wire::peer::Message;
use std::io::IoSlice;
use std::net::SocketAddr;

/// The way to other daemons.
#[derive(Debug)]
pub(crate) struct Network {
    /// The socket.
    pub(crate) udp: Udp,
    impairer: Option<Impairer>,
    /// Reused for every header and message.
    head: Vec<u8>,
}

impl Network {
    /// A network as bad as asked for.
    pub(crate) fn new(udp: Udp, impairment: Option<Impairment>) -> Self {
        Self {
            udp,
            impairer: impairment.map(Impairer::new),
            head: Vec::with_capacity(MAX_DATAGRAM),
        }
    }

    /// Sends a message, with a page behind it if it announces one.
    pub(crate) fn send(
        &mut self,
        to: SocketAddr,
        header: Header,
        message: &Message,
        page: Option<&PageBytes>,
        tally: &mut Tally,
    ) {
        self.head.clear();
        message.encode(header, &mut self.head);
        let page = page.map_or(&[][..], |page| &page[..]);
        match &mut self.impairer {
            None => put(&self.udp, to, &self.head, page, tally),
            Some(impairer) => {
                self.head.extend_from_slice(page);
                impairer.offer(clock::monotonic(), to, &self.head);
                self.release(clock::monotonic(), tally);
            }
        }
    }

    /// Sends what the bad network held back until now.
    pub(crate) fn release(&mut self, now: u64, tally: &mut Tally) {
        let Some(impairer) = &mut self.impairer else {
            return;
        };
        while let Some((to, bytes)) = impairer.release(now) {
            put(&self.udp, to, &bytes, &[], tally);
        }
    }

    /// When the bad network lets something out next.
    pub(crate) fn due(&self) -> Option<u64> {
        self.impairer.as_ref().and_then(Impairer::due)
    }
}

fn put(udp: &Udp, to: SocketAddr, head: &[u8], page: &[u8], tally: &mut Tally) {
    let parts = [IoSlice::new(head), IoSlice::new(page)];
    let parts = if page.is_empty() { &parts[..1] } else { &parts };
    match udp.send(to, parts) {
        Ok(()) => {
            tally.add(Count::DatagramsOut, 1);
            tally.add(Count::BytesOut, (head.len() + page.len()) as u64);
        }
        // As good as lost: the core repeats what matters.
        Err(error) => {
            tally.add(Count::DatagramsFailed, 1);
            tracing::debug!(%to, %error, "a datagram could not be sent");
        }
    }
}
