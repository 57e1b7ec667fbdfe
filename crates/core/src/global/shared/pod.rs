//! The page ownership directory (POD, G17): the node that keeps the directory of a chunk of pages.

use pagemesh_wire::peer::FileKey;
use pagemesh_wire::{NodeId, NodeSet};
use serde::{Deserialize, Serialize};

/// A chunk of a file's pages ([`FilePart`](pagemesh_wire::peer::FilePart)).
pub(super) type Chunk = (FileKey, u32);

/// Buckets that chunks are hashed into. Many more than a cluster has nodes, so that each node gets
/// about as many.
const BUCKETS: u64 = 1024;

/// The table from hash buckets to nodes.
///
/// Every node derives it from its view of the members, which the coordinator distributes: nodes
/// with the same view have the same table. Each bucket belongs to the member with the highest hash
/// of bucket and member, so that a change of one member moves that member's buckets and no others.
/// An entry costs a hash a member, so the table is not stored. Nodes whose views differ for a moment
/// look in the wrong place, which is a miss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Pod {
    members: NodeSet,
}

impl Pod {
    /// Follows the members. The table before, if it is another one now.
    pub(super) fn follow(&mut self, members: NodeSet) -> Option<Self> {
        let is_new = self.members != members;
        is_new.then(|| core::mem::replace(self, Self { members }))
    }

    /// The node with the directory of a chunk.
    pub(super) fn node(&self, (file, chunk): Chunk) -> Option<NodeId> {
        let hash = mix(file.hash[0] ^ u64::from(file.user), file.hash[1]);
        let bucket = mix(hash, u64::from(chunk)) % BUCKETS;
        let weight = |node: &NodeId| (mix(bucket, u64::from(node.0)), node.0);
        self.members.iter().max_by_key(weight)
    }
}

/// A hash of two numbers (splitmix64). It is the same in every release: all nodes must agree.
fn mix(one: u64, other: u64) -> u64 {
    let mut mixed = one
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(other)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nodes: &[u16]) -> Pod {
        let mut pod = Pod::default();
        let _ = pod.follow(nodes.iter().copied().map(NodeId).collect());
        pod
    }

    fn chunks() -> impl Iterator<Item = Chunk> {
        let file = |number| FileKey {
            user: 0,
            hash: [number, 7],
        };
        (0..4000).map(move |number| (file(number / 4), number as u32 % 4))
    }

    #[test]
    fn chunks_are_spread_and_all_nodes_agree() {
        let pod = of(&[1, 2, 3]);
        assert_eq!(pod, of(&[3, 1, 2]));
        for node in [1, 2, 3].map(NodeId) {
            let its = chunks()
                .filter(|chunk| pod.node(*chunk) == Some(node))
                .count();
            assert!((900..1800).contains(&its), "{node}: {its}");
        }
    }

    #[test]
    fn a_new_member_takes_chunks_and_no_others_move() {
        let (before, after) = (of(&[1, 2, 3]), of(&[1, 2, 3, 4]));
        let moved: Vec<_> = chunks()
            .filter(|chunk| before.node(*chunk) != after.node(*chunk))
            .collect();
        assert!((700..1400).contains(&moved.len()), "{}", moved.len());
        assert!(
            moved
                .into_iter()
                .all(|chunk| after.node(chunk) == Some(NodeId(4)))
        );
    }

    #[test]
    fn without_members_there_is_no_directory() {
        assert_eq!(Pod::default().node((FileKey::default(), 0)), None);
        let mut pod = of(&[1]);
        assert_eq!(pod.follow(NodeSet::only(NodeId(1))), None);
        assert!(pod.follow(NodeSet::EMPTY).is_some());
        assert_eq!(pod.node((FileKey::default(), 0)), None);
    }
}
