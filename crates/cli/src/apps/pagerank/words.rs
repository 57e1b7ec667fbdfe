//! A mapped segment as an array of words of eight bytes.

use anyhow::{Context, Result};
use pagemesh::{Access, Mapping, Mesh, Options, Segment};
use std::sync::atomic::Ordering;

/// Loads and stores go straight to memory; the barrier orders them.
pub(super) struct Words(Mapping);

impl Words {
    /// A new segment of so many words.
    pub(super) fn create(mesh: &Mesh, name: &str, count: usize) -> Result<Self> {
        let options = Options {
            exclusive: true,
            ..Options::default()
        };
        let segment = mesh
            .create(name, 8 * count as u64, options)
            .with_context(|| format!("creating the segment {name}"))?;
        Self::of(&segment)
    }

    pub(super) fn open(mesh: &Mesh, name: &str, access: Access) -> Result<Self> {
        let segment = mesh
            .open(name, access)
            .with_context(|| format!("opening the segment {name}"))?;
        Self::of(&segment)
    }

    pub(super) fn of(segment: &Segment) -> Result<Self> {
        Ok(Self::over(segment.map()?))
    }

    pub(super) fn over(mapping: Mapping) -> Self {
        Self(mapping)
    }

    pub(super) fn get(&self, index: usize) -> u64 {
        self.0
            .load_u64(8 * index)
            .expect("an index within the segment")
    }

    pub(super) fn set(&self, index: usize, value: u64) {
        let word = self.0.atomic_u64(8 * index);
        word.expect("an index within a writable segment")
            .store(value, Ordering::Release);
    }

    pub(super) fn f64(&self, index: usize) -> f64 {
        f64::from_bits(self.get(index))
    }

    pub(super) fn set_f64(&self, index: usize, value: f64) {
        self.set(index, value.to_bits());
    }

    /// Half a word: number `index` of those that begin at word `base`.
    pub(super) fn u32(&self, base: usize, index: usize) -> u32 {
        (self.get(base + index / 2) >> (32 * (index % 2))) as u32
    }

    /// Two a word, from word `base` on.
    pub(super) fn set_u32s(&self, base: usize, values: &[u32]) {
        for (index, pair) in values.chunks(2).enumerate() {
            let high = pair.get(1).copied().unwrap_or(0);
            self.set(base + index, u64::from(pair[0]) | u64::from(high) << 32);
        }
    }
}
