//! A host that is no member and hears what passes in a group.

use super::Cluster;
use pagemesh_os::udp::{Group, Received, Udp};
use std::net::SocketAddrV4;

/// Datagrams that are kept.
const MOST: usize = 400;

/// It keeps what it hears, and sends it again.
pub(crate) struct Stranger {
    pub(crate) socket: Udp,
    group: Group,
    pub(crate) heard: Vec<Vec<u8>>,
}

impl Stranger {
    pub(crate) fn listening(group: SocketAddrV4) -> Self {
        let socket = Udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let group = Group::join(group, &socket).unwrap();
        Self {
            socket,
            group,
            heard: Vec::new(),
        }
    }

    /// Keeps what has passed since, but for what it has sent itself: what it has cut off would be cut
    /// off again, until nothing is left.
    pub(crate) fn overhear(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(Received::Datagram(length, from)) = self.group.receive(&mut buffer) {
            if self.heard.len() < MOST && from != self.socket.address() {
                self.heard.push(buffer[..length].to_vec());
            }
        }
    }

    /// Sends a datagram to the group and to node 1, where most have no meaning.
    pub(crate) fn say(&self, cluster: &Cluster, bytes: &[u8]) {
        self.say_from(&self.socket, cluster, bytes);
    }

    /// The same from another socket.
    pub(crate) fn say_from(&self, socket: &Udp, cluster: &Cluster, bytes: &[u8]) {
        socket.send(self.group.address(), bytes).unwrap();
        let _ = socket.send(cluster.node(1).address(), bytes);
    }

    /// Sends `count` of the last datagrams again, the newest first and each `step`-th: as they were,
    /// cut off or changed, by turns that begin with `turn`.
    pub(crate) fn repeat(&self, cluster: &Cluster, turn: usize, (step, count): (usize, usize)) {
        let again = self.heard.iter().rev().step_by(step).take(count);
        for (number, old) in again.enumerate() {
            let mut bytes = old.clone();
            match (turn + number) % 3 {
                0 => {}
                1 => bytes.truncate(bytes.len() * 2 / 3),
                _ => {
                    let at = bytes.len() - 1 - (turn * 7) % (bytes.len() / 2);
                    bytes[at] ^= 0x10;
                }
            }
            self.say(cluster, &bytes);
        }
    }
}
