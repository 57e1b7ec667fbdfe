//! Received packets go through another thread before they are handled, as MIRAGE+'s server
//! processes did it (M19, S), instead of being handled by the thread that received them (I). An
//! experiment: it shows the cost of the change of threads.

use anyhow::{Context as _, Result};
use rustix::event::{EventfdFlags, eventfd};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A thread that returns the datagrams it is given.
#[derive(Debug)]
pub(crate) struct Handoff {
    there: Sender<Parcel>,
    back: Receiver<Parcel>,
    /// Rung when something is back.
    bell: Arc<OwnedFd>,
}

/// A datagram, and where it is from.
pub(crate) type Parcel = (SocketAddr, Vec<u8>);

impl Handoff {
    /// Starts the thread; it ends when this is dropped.
    pub(crate) fn start() -> Result<Self> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let bell = Arc::new(bell);
        let (there, parcels) = channel::<Parcel>();
        let (returned, back) = channel();
        let ring = Arc::clone(&bell);
        std::thread::Builder::new()
            .name("server".to_owned())
            .spawn(move || {
                for parcel in parcels {
                    if returned.send(parcel).is_err() {
                        return;
                    }
                    // A full counter has rung already.
                    let _ = rustix::io::write(&*ring, &1_u64.to_ne_bytes());
                }
            })
            .context("no thread to hand datagrams to")?;
        Ok(Self { there, back, bell })
    }

    /// Hands something over.
    pub(crate) fn give(&self, parcel: Parcel) {
        // The thread lives as long as we do.
        let _ = self.there.send(parcel);
    }

    /// Takes a returned datagram, if there is one.
    pub(crate) fn take(&self) -> Option<Parcel> {
        let parcel = self.back.try_recv().ok();
        if parcel.is_none() {
            // Nothing is left: the next one rings anew.
            let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        }
        parcel.or_else(|| self.back.try_recv().ok())
    }
}

impl AsFd for Handoff {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn everything_comes_back_in_order_and_rings() {
        let handoff = Handoff::start().unwrap();
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        for number in 0..100 {
            handoff.give((from, vec![number]));
        }
        let mut got = Vec::new();
        while got.len() < 100 {
            if let Some((_, bytes)) = handoff.take() {
                got.push(bytes[0]);
                continue;
            }
            let mut bell = [PollFd::new(&handoff, PollFlags::IN)];
            assert_eq!(poll(&mut bell, None), Ok(1));
        }
        assert_eq!(got, (0..100).collect::<Vec<_>>());
    }
}
