//! The number of an object, which contains its home, and the id of its segment.

use crate::{NodeId, SegmentId};
use serde::{Deserialize, Serialize};

/// The number of an object: 15 bits say where in the table of its home, 16 bits
/// which one after another. The lowest bit says that its home is another than the
/// first node, and in the upper bits then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id(pub i32);

impl Id {
    /// An object at `home`.
    #[must_use]
    pub fn new(home: NodeId, slot: u16, count: u16) -> Self {
        let (index, above) = if home == NodeId::FIRST {
            (slot << 1, count)
        } else {
            (slot << 1 | 1, home.0 << 9 | count & 0x1ff)
        };
        Self(i32::from(above) << 15 & i32::MAX | i32::from(index & 0x7fff))
    }

    /// The home, which answers for it; none if no object can have this number.
    #[must_use]
    pub fn home(self) -> Option<NodeId> {
        if self.0 < 0 {
            return None;
        }
        if self.0 & 1 == 0 {
            return Some(NodeId::FIRST);
        }
        let home = NodeId((self.0 >> 24) as u16);
        (home.is_valid() && home != NodeId::FIRST).then_some(home)
    }

    /// Where in the table of its home.
    #[must_use]
    pub fn slot(self) -> u16 {
        ((self.0 & 0x7fff) >> 1) as u16
    }

    /// Its index for `SHM_STAT` and its kin: no other object of the cluster has that as long as
    /// this one exists. -1 if no object can have this number.
    #[must_use]
    pub fn index(self) -> i32 {
        let slot = i32::from(self.slot());
        let at = |home: NodeId| slot * i32::from(NodeId::NEAR) + i32::from(home.0);
        self.home().map_or(-1, at)
    }

    /// The home of the object at an index.
    #[must_use]
    pub fn home_at(index: i32) -> Option<NodeId> {
        let home = u16::try_from(index.rem_euclid(i32::from(NodeId::NEAR))).ok()?;
        Some(NodeId(home)).filter(|home| index >= 0 && home.is_valid())
    }

    /// Where in the table of that home.
    #[must_use]
    pub fn slot_at(index: i32) -> Option<u16> {
        u16::try_from(index / i32::from(NodeId::NEAR)).ok()
    }

    /// The kernel's sequence number.
    #[must_use]
    pub fn sequence(self) -> u16 {
        (self.0 >> 15) as u16
    }
}

/// Numbers of System V segments have this bit, so that they differ from those
/// with names.
const SERIAL: u64 = 1 << 47;

/// A segment behind an object at `home`.
#[must_use]
pub fn segment(home: NodeId, serial: u64) -> SegmentId {
    SegmentId::new(home, SERIAL | serial & (SERIAL - 1))
}

/// The home of the System V object that a segment belongs to; none if it belongs to
/// none.
#[must_use]
pub fn keeper(segment: SegmentId) -> Option<NodeId> {
    (segment.0 & SERIAL != 0).then(|| segment.home())
}

/// With the number of an object: the name that its segment goes by, where
/// segments have names. No user can name one so, for the slash.
pub const SEGMENT_NAME: &str = "sysv/";

/// See [`SEGMENT_NAME`].
#[must_use]
pub fn segment_name(id: Id) -> String {
    format!("{SEGMENT_NAME}{}", id.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_where_their_objects_are() {
        for home in [NodeId(1), NodeId(2), NodeId(127)] {
            for slot in [0, 1, 4095, 16383] {
                for count in [0, 1, 511, 512, u16::MAX] {
                    let id = Id::new(home, slot, count);
                    assert!(id.0 >= 0, "{id:?}");
                    assert_eq!((id.home(), id.slot()), (Some(home), slot), "{id:?}");
                }
            }
        }
        assert_eq!(Id(-1).home(), None);
        assert_eq!(Id(1).home(), None, "nobody is node zero");
        assert_eq!(
            Id(1 << 24 | 1).home(),
            None,
            "the first node is not in the upper bits"
        );
    }

    #[test]
    fn indices_tell_where_their_objects_are() {
        let mut seen = std::collections::BTreeSet::new();
        for home in [NodeId(1), NodeId(2), NodeId(127)] {
            for slot in [0, 1, 4095, 16383] {
                let index = Id::new(home, slot, 77).index();
                assert!(seen.insert(index), "{home:?} {slot}");
                assert_eq!(Id::home_at(index), Some(home));
                assert_eq!(Id::slot_at(index), Some(slot));
            }
        }
        for nobody in [-1, i32::MIN, 0, 128] {
            assert_eq!(Id::home_at(nobody), None, "{nobody}");
        }
        assert_eq!(Id::slot_at(i32::MAX), None);
    }

    #[test]
    fn segments_tell_who_keeps_them() {
        assert_eq!(keeper(SegmentId::new(NodeId(3), 7)), None);
        assert_eq!(keeper(segment(NodeId(3), 7)), Some(NodeId(3)));
        assert_ne!(segment(NodeId(3), 7), segment(NodeId(3), 8));
    }
}
