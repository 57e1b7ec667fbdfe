//! The messages that take copies of a page back, without pages and a protocol: for the two ways to
//! do it, that of the FreeBSD DSM (F21) and that of PageMesh.

use super::{REQUEST, Wait, answer_to, greet, receive, socket};
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

/// The first byte of a request, and of an acknowledgement that the last owner gets.
const WRITE: u8 = 0xa5;
const ACKNOWLEDGED: u8 = 0x5a;

/// A node that has a copy, or is a member without one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in super::super) struct Holder {
    pub(in super::super) bind: SocketAddr,
    /// The node that must hear that the copy is gone; none if there was no copy.
    pub(in super::super) writer: Option<SocketAddr>,
    /// The nodes that are asked next, by an owner that knows them.
    pub(in super::super) others: Vec<SocketAddr>,
    /// Requests after which it ends.
    pub(in super::super) count: u32,
    pub(in super::super) wait: Wait,
}

/// A node that has a copy and wants to store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in super::super) struct Writer {
    pub(in super::super) bind: SocketAddr,
    /// All that take part.
    pub(in super::super) members: Vec<SocketAddr>,
    /// The members that the writer itself asks. The first one of them is the owner, which gets an
    /// acknowledgement.
    pub(in super::super) asked: Vec<SocketAddr>,
    /// Answers to wait for.
    pub(in super::super) answers: u32,
    /// How often.
    pub(in super::super) count: u32,
    pub(in super::super) wait: Wait,
}

impl Holder {
    /// Serves until all requests have come.
    pub(in super::super) fn serve(&self) -> Result<Vec<u64>> {
        let socket = socket(self.bind, self.wait)?;
        let mut buffer = [0; REQUEST];
        let mut served = 0;
        while served < self.count {
            let (length, from) = receive(&socket, &mut buffer, self.wait)?;
            if length == 0 {
                socket.send_to(&[], from)?;
            } else if buffer[0] == WRITE {
                self.pass_on(&socket, &buffer)?;
                served += 1;
            }
        }
        Ok(Vec::new())
    }

    fn pass_on(&self, socket: &UdpSocket, request: &[u8]) -> Result<()> {
        for other in &self.others {
            socket.send_to(request, other)?;
        }
        if let Some(writer) = self.writer {
            socket.send_to(request, writer)?;
        }
        Ok(())
    }
}

impl Writer {
    /// The time of each.
    pub(in super::super) fn write(&self) -> Result<Vec<u64>> {
        ensure!(!self.asked.is_empty(), "nobody to ask");
        let socket = socket(self.bind, self.wait)?;
        for member in &self.members {
            greet(&socket, member, self.wait)?;
        }
        let (mut request, mut answer) = ([0; REQUEST], [0; REQUEST]);
        let mut times = Vec::with_capacity(self.count as usize);
        for _ in 0..self.count {
            request[0] = WRITE;
            let start = Instant::now();
            for to in &self.asked {
                socket.send_to(&request, to)?;
            }
            for _ in 0..self.answers {
                answer_to(&socket, &mut answer, self.wait)?;
            }
            times.push(start.elapsed().as_nanos() as u64);
            request[0] = ACKNOWLEDGED;
            socket.send_to(&request, self.asked[0])?;
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two copies and a member without one, on this host.
    #[test]
    fn both_ways_take_all_copies_back() {
        // An address of its own: on 127.0.0.1 another test could get a port that is free for a moment.
        let sockets: Vec<_> = (0..4)
            .map(|_| UdpSocket::bind("127.84.66.1:0").unwrap())
            .collect();
        let [writer, owner, other, member] =
            [0, 1, 2, 3].map(|at: usize| sockets[at].local_addr().unwrap());
        drop(sockets);
        let count = 5;
        let holder = |bind, copy: bool, others: &[SocketAddr]| Holder {
            bind,
            writer: copy.then_some(writer),
            others: others.to_vec(),
            count,
            wait: Wait::Block,
        };
        let ways = [
            (vec![owner, other, member], vec![]),
            (vec![owner], vec![other]),
        ];
        for (asked, others) in ways {
            let members = match others.is_empty() {
                true => vec![owner, other, member],
                false => vec![owner, other],
            };
            let mut holders = vec![
                holder(owner, true, &others),
                holder(other, true, &[]),
                holder(member, false, &[]),
            ];
            holders.truncate(members.len());
            let running: Vec<_> = holders
                .into_iter()
                .map(|holder| std::thread::spawn(move || holder.serve()))
                .collect();
            let writer = Writer {
                bind: writer,
                members,
                asked,
                answers: 2,
                count,
                wait: Wait::Block,
            };
            assert_eq!(writer.write().unwrap().len(), count as usize);
            for holder in running {
                holder.join().unwrap().unwrap();
            }
        }
    }
}
