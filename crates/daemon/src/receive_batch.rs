//! Where datagrams are received, in memory that outlives the daemon: the page of the
//! last one may be wanted by the next daemon.

use crate::network::LONGEST;
use crate::payload::Payload;
use crate::turn::Payloads;
use anyhow::{Context as _, Result, ensure};
use pagemesh_os::memfd::PAGE;
use pagemesh_os::region::{Region, Shape};
use pagemesh_recorder::Heard;
use pagemesh_wire::header::HEADER_SIZE;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Datagrams that came together, and which of them was taken last.
#[derive(Debug)]
pub(crate) struct ReceiveBatch(Region);

const SHAPE: Shape = Shape {
    words: 1,
    bytes: ROOM + TURN * PAGE,
};

/// Bytes for what came together, and for one datagram made of that; behind them are
/// the pages of a turn.
const ROOM: usize = 2 * LONGEST;

/// Datagrams of a turn at most.
pub(crate) const TURN: usize = 64;

impl ReceiveBatch {
    /// An empty one.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn create() -> Result<Self> {
        let region = Region::create("pagemesh-datagram", SHAPE);
        Ok(Self(region.context("no memory for datagrams")?))
    }

    /// That of the daemon before.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn adopt(fd: OwnedFd) -> Result<Self> {
        Ok(Self(Region::map(fd, SHAPE)?))
    }

    /// Where to receive. Its former contents are not needed any more.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.0.bytes_mut()[..ROOM]
    }

    /// The datagram that lies there.
    pub(crate) fn at(&self, at: Range<usize>) -> &[u8] {
        &self.0.bytes()[at]
    }

    /// Takes the datagram that lies there.
    pub(crate) fn take(&self, at: Range<usize>) -> &[u8] {
        self.0.word(0).store(at.start as u64, Ordering::Release);
        &self.0.bytes()[at]
    }

    /// Keeps the page of a datagram that is the `index`-th of its turn, beside the pages
    /// of the others.
    pub(crate) fn sort(&mut self, index: usize, at: Range<usize>) {
        if at.len() >= HEADER_SIZE + PAGE {
            let into = ROOM + index * PAGE;
            let bytes = self.0.bytes_mut();
            bytes.copy_within(at.end - PAGE..at.end, into);
        }
    }

    /// The pages of a turn, in which the node heard this.
    pub(crate) fn pages<'a>(&'a self, heard: &'a [Heard]) -> Payloads<'a> {
        let (slots, _) = self.0.bytes()[ROOM..].as_chunks();
        Payloads::Turn { slots, heard }
    }

    /// The pages of the last turn of the daemon before.
    ///
    /// # Errors
    /// If it did not keep them.
    pub(crate) fn left<'a>(&'a self, heard: &'a [Heard]) -> Result<Payloads<'a>> {
        ensure!(heard.len() <= TURN, "no turn has so many datagrams");
        let [one] = heard else {
            return Ok(self.pages(heard));
        };
        Ok(Payloads::One(Payload::of(self.last(one.bytes)?)))
    }

    /// The datagram taken last, of so many bytes.
    ///
    /// # Errors
    /// If none was that long.
    pub(crate) fn last(&self, length: usize) -> Result<&[u8]> {
        let start = usize::try_from(self.0.word(0).load(Ordering::Acquire))?;
        let end = start.checked_add(length).filter(|end| *end <= ROOM);
        ensure!(end.is_some(), "no datagram is that long");
        Ok(&self.0.bytes()[start..start + length])
    }
}

impl AsFd for ReceiveBatch {
    /// The descriptor to keep for the next daemon.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_daemon_finds_the_pages_of_a_turn() {
        let mut receive_batch = ReceiveBatch::create().unwrap();
        let length = HEADER_SIZE + 7 + PAGE;
        let (small, large) = (0..40, 40..40 + length);
        receive_batch.room()[large.clone()].fill(5);
        let mut heard = Vec::new();
        for (index, (at, effects)) in [(small, 2), (large.clone(), 5), (large, 6)]
            .into_iter()
            .enumerate()
        {
            receive_batch.sort(index, at.clone());
            let bytes = receive_batch.take(at).len();
            heard.push(Heard { bytes, effects });
            receive_batch.room()[40..40 + length].fill(5 + index as u8);
        }
        let fd = receive_batch.as_fd().try_clone_to_owned().unwrap();
        drop(receive_batch);
        let receive_batch = ReceiveBatch::adopt(fd).unwrap();
        let payloads = receive_batch.left(&heard).unwrap();
        let bytes = (0..7).map(|effect| payloads.of(effect).page().map(|page| page[9]));
        let expected = [None, None, Some(5), Some(5), Some(5), Some(6), None];
        assert!(bytes.eq(expected));
        assert_eq!(payloads.pages(2, 2), [[5; PAGE], [6; PAGE]]);
        assert!(receive_batch.left(&[heard[0]; TURN + 1]).is_err());
    }

    #[test]
    fn the_next_daemon_finds_the_datagram_taken_last() {
        let mut receive_batch = ReceiveBatch::create().unwrap();
        let room = receive_batch.room();
        for (at, byte) in room.iter_mut().enumerate() {
            *byte = (at / 100).min(9) as u8;
        }
        assert_eq!(receive_batch.take(0..100), [0; 100]);
        assert_eq!(receive_batch.take(700..800), [7; 100]);
        let fd = receive_batch.as_fd().try_clone_to_owned().unwrap();
        drop(receive_batch);
        let receive_batch = ReceiveBatch::adopt(fd).unwrap();
        assert_eq!(receive_batch.last(100).unwrap(), [7; 100]);
        assert!(receive_batch.last(ROOM - 700).is_ok());
        assert!(receive_batch.last(ROOM - 699).is_err());
        assert!(receive_batch.last(usize::MAX).is_err());
    }
}
