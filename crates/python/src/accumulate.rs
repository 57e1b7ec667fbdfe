//! Numbers of an array that are changed by atomic operations, one each: several nodes may do that
//! at once, in a declared range or in sequential memory.

use std::cmp::Ordering;
use std::sync::atomic::Ordering::Relaxed;

use pagemesh::{Error, Kind, Mapping, Merge, Result};

/// Where the elements of an array lie in a mapping.
#[derive(Debug)]
pub struct Layout {
    /// The first element's first byte.
    pub start: usize,
    /// How many there are along each axis, and bytes from one to the next.
    pub axes: Vec<(usize, isize)>,
    pub kind: Kind,
}

/// Combines each element with an operand; these lie side by side, in C's order.
///
/// # Errors
/// [`Error::Invalid`] if elements do not lie in the mapping, aligned, there are more or fewer
/// operands, or the mapping is read-only.
pub fn accumulate(mapping: &Mapping, layout: &Layout, merge: Merge, operands: &[u8]) -> Result<()> {
    let size = layout.kind.size();
    if operands.len() != layout.elements() * size {
        return Err(Error::Invalid("there is not one operand for each element"));
    }
    let mut operands = operands.chunks_exact(size).map(number);
    layout.each(|at| {
        let operand = operands.next().unwrap_or_default();
        let new = |old: u64| combine(layout.kind, merge, old, operand);
        update(mapping, at, size, new)
    })
}

impl Layout {
    fn elements(&self) -> usize {
        self.axes.iter().map(|(length, _)| length).product()
    }

    fn each(&self, mut work: impl FnMut(usize) -> Result<()>) -> Result<()> {
        let (&(inner, step), outer) = self.axes.split_last().unwrap_or((&(1, 0), &[]));
        let rows = outer.iter().map(|(length, _)| length).product();
        for row in 0..rows {
            let (mut rest, mut at) = (row, self.start);
            for &(length, stride) in outer.iter().rev() {
                at = at.wrapping_add_signed(stride.wrapping_mul((rest % length).cast_signed()));
                rest /= length;
            }
            for _ in 0..inner {
                work(at)?;
                at = at.wrapping_add_signed(step);
            }
        }
        Ok(())
    }
}

/// Little endian, as everything that is merged.
fn number(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(whole)
}

/// One atomic operation on one element; none that would change nothing, so that
/// its page need not become writable.
fn update(mapping: &Mapping, at: usize, size: usize, new: impl Fn(u64) -> u64) -> Result<()> {
    macro_rules! of {
        ($atomic:ident, $int:ty) => {{
            let change = |old: $int| {
                let made = new(u64::from(old)) as $int;
                (made != old).then_some(made)
            };
            // An error is: nothing was to be changed.
            let _ = mapping.$atomic(at)?.fetch_update(Relaxed, Relaxed, change);
        }};
    }
    match size {
        1 => of!(atomic_u8, u8),
        2 => of!(atomic_u16, u16),
        4 => of!(atomic_u32, u32),
        _ => of!(atomic_u64, u64),
    }
    Ok(())
}

/// The new value of an element; only its own bytes of the result count.
fn combine(kind: Kind, merge: Merge, old: u64, operand: u64) -> u64 {
    let wins = match merge {
        Merge::Sum => return sum(kind, old, operand),
        Merge::Or => return old | operand,
        Merge::Replace => true,
        Merge::Min => compare(kind, operand, old) == Some(Ordering::Less),
        Merge::Max => compare(kind, operand, old) == Some(Ordering::Greater),
    };
    // NaN loses against every number, as when nodes are merged.
    if wins || compare(kind, old, old).is_none() {
        operand
    } else {
        old
    }
}

fn sum(kind: Kind, old: u64, operand: u64) -> u64 {
    match kind {
        Kind::F32 => u64::from((single(old) + single(operand)).to_bits()),
        Kind::F64 => (f64::from_bits(old) + f64::from_bits(operand)).to_bits(),
        _ => old.wrapping_add(operand),
    }
}

fn compare(kind: Kind, one: u64, other: u64) -> Option<Ordering> {
    match kind {
        Kind::F32 => single(one).partial_cmp(&single(other)),
        Kind::F64 => f64::from_bits(one).partial_cmp(&f64::from_bits(other)),
        kind if kind.is_signed() => Some(signed(kind, one).cmp(&signed(kind, other))),
        _ => Some(one.cmp(&other)),
    }
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn signed(kind: Kind, bits: u64) -> i64 {
    let empty = 64 - 8 * kind.size() as u32;
    (bits << empty).cast_signed() >> empty
}
