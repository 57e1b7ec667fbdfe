//! Many writers of one page against one array of bytes: programs whose stores are
//! ordered by synchronization, wherever two touch the same byte.

use pagemesh_diff::PAGE;
use pagemesh_twins::{At, DiffKey, Keep, Store};
use pagemesh_wire::{NodeId, PageIndex, SegmentId};
use proptest::prelude::*;

const AT: At = (SegmentId(1), PageIndex(0));

/// A node: its copy of the page and its store.
struct Copy {
    node: NodeId,
    page: Vec<u8>,
    store: Store,
    interval: u64,
}

impl Copy {
    fn new(node: u16, length: usize) -> Self {
        Self {
            node: NodeId(node),
            page: vec![0; length],
            store: Store::default(),
            interval: 1,
        }
    }

    fn write(&mut self, offset: usize, byte: u8) {
        if self.store.twin_of(AT).is_none() {
            self.store.twin(AT, &self.page).unwrap();
        }
        self.page[offset] = byte;
    }

    /// Ends an interval: the diff of it, if anything was written.
    fn close(&mut self, keep: Keep) -> Option<(NodeId, u64, Vec<u8>)> {
        self.store.twin_of(AT)?;
        let key = DiffKey {
            segment: AT.0,
            page: AT.1,
            node: self.node,
            interval: self.interval,
        };
        self.store.capture(key, &self.page, keep).unwrap();
        self.interval += 1;
        let diff = self.store.diff(key).unwrap().to_vec();
        Some((key.node, key.interval, diff))
    }

    fn learn(&mut self, diffs: &[(NodeId, u64, Vec<u8>)]) {
        let others = diffs.iter().filter(|(node, ..)| *node != self.node);
        let mut order = Vec::new();
        for (node, interval, diff) in others {
            let key = DiffKey {
                segment: AT.0,
                page: AT.1,
                node: *node,
                interval: *interval,
            };
            self.store.insert(key, diff).unwrap();
            order.push(key);
        }
        let order = order.into_iter();
        self.store.merge(order.clone(), &mut self.page).unwrap();
        order.for_each(|key| self.store.update_twin(key).unwrap());
    }
}

/// A place in the page, the writer, the value.
type Stroke = (usize, usize, u8);

proptest! {
    /// Between two barriers each byte has one writer, neighbours have others.
    #[test]
    fn barriers(
        nodes in 1usize..5,
        short in any::<bool>(),
        phases in prop::collection::vec(
            (prop::collection::vec((0usize..PAGE, 0usize..4, any::<u8>()), 0..60), any::<[bool; 4]>(), any::<bool>()),
            1..8,
        ),
    ) {
        let length = if short { 64 } else { PAGE };
        let mut copies: Vec<_> = (1..=nodes as u16).map(|node| Copy::new(node, length)).collect();
        let mut reference = vec![0; length];
        for (strokes, keeps, backwards) in &phases {
            let mut writer = vec![None; length];
            let strokes: &[Stroke] = strokes;
            for (offset, node, byte) in strokes {
                // Close together, so that words are shared.
                let (offset, node) = (offset % length.min(100), node % nodes);
                if *writer[offset].get_or_insert(node) == node {
                    copies[node].write(offset, *byte);
                    reference[offset] = *byte;
                }
            }
            let mut diffs = Vec::new();
            for (copy, keep) in copies.iter_mut().zip(keeps) {
                let keep = if *keep { Keep::Twin } else { Keep::Nothing };
                diffs.extend(copy.close(keep));
            }
            if *backwards {
                diffs.reverse();
            }
            for copy in &mut copies {
                copy.learn(&diffs);
                prop_assert_eq!(&copy.page, &reference);
            }
        }
    }

    /// A lock goes from node to node, and every node writes the same few bytes; each holder gets
    /// the diffs it missed in the order of the lock.
    #[test]
    fn a_lock(
        nodes in 2usize..5,
        turns in prop::collection::vec(
            (0usize..4, prop::collection::vec((0usize..20, any::<u8>()), 0..10), any::<bool>()),
            1..40,
        ),
    ) {
        let mut copies: Vec<_> = (1..=nodes as u16).map(|node| Copy::new(node, PAGE)).collect();
        let mut reference = vec![0; PAGE];
        let mut history = Vec::new();
        let mut known = vec![0; nodes];
        for (node, strokes, keep) in &turns {
            let node = node % nodes;
            let copy = &mut copies[node];
            copy.learn(&history[known[node]..]);
            prop_assert_eq!(&copy.page, &reference);
            for (offset, byte) in strokes {
                copy.write(*offset, *byte);
                reference[*offset] = *byte;
            }
            history.extend(copy.close(if *keep { Keep::Twin } else { Keep::Nothing }));
            known[node] = history.len();
        }
    }
}
