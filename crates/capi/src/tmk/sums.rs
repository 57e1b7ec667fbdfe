//! Numbers of the shared heap to which all processes add without a lock.

use pagemesh::{Heap, Kind, Merge};

/// Bytes of a `double`.
const SIZE: usize = size_of::<f64>();

/// Declares `count` numbers. False if the heap's policy keeps one copy of them: then atomic
/// additions give correct sums without a declaration.
pub fn declare(heap: &Heap, numbers: *const f64, count: usize) -> Result<bool, String> {
    let at = numbers as usize;
    let memory = heap.memory();
    let start = memory.as_ptr() as usize;
    if !at.is_multiple_of(SIZE) {
        return Err(format!(
            "{numbers:p} is no multiple of {SIZE}, where a double begins"
        ));
    }
    let length = count.checked_mul(SIZE);
    let end = length.and_then(|length| at.checked_add(length));
    let inside = at >= start && end.is_some_and(|end| end <= start + memory.len());
    let (true, Some(length)) = (inside, length) else {
        return Err(format!(
            "{count} doubles at {numbers:p} are not in shared memory; take it from Tmk_malloc"
        ));
    };
    if count == 0 {
        return Err("0 doubles have no sum; count is how many there are".to_owned());
    }
    let segment = heap.segment();
    if segment.info().spec.policy.sequential().is_some() {
        return Ok(false);
    }
    let offset = (at - start) as u64;
    let bytes = offset..offset + length as u64;
    let declared = segment.reduce(bytes, Merge::Sum, Kind::F64);
    declared.map_err(|error| format!("{count} doubles at {numbers:p}: {error}"))?;
    Ok(true)
}
