//! A datagram under way between the hosts of an explored world.

use std::rc::Rc;

/// A datagram under way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Packet {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) bytes: Rc<[u8]>,
}
