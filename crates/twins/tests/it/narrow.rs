//! Storage that becomes full.

use pagemesh_twins::{Full, Heap, Label, Slots};

/// Storage with room for so many more slots.
pub(crate) struct Narrow {
    pub(crate) room: usize,
    heap: Heap,
}

impl Narrow {
    pub(crate) fn with(room: usize) -> Self {
        let heap = Heap::default();
        Self { room, heap }
    }
}

impl Slots for Narrow {
    type Slot = Label;

    fn keep(&mut self, label: Label, bytes: &[u8]) -> Result<Label, Full> {
        self.room = self.room.checked_sub(1).ok_or(Full)?;
        self.heap.keep(label, bytes)
    }

    fn bytes(&self, slot: Label) -> &[u8] {
        self.heap.bytes(slot)
    }

    fn bytes_mut(&mut self, slot: Label) -> &mut [u8] {
        self.heap.bytes_mut(slot)
    }

    fn relabel(&mut self, slot: Label, label: Label) -> Label {
        self.heap.relabel(slot, label)
    }

    fn free(&mut self, slot: Label) {
        self.heap.free(slot);
    }
}
