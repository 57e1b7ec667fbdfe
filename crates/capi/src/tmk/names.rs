//! Names of a program's shared memory for reports of races: its global and static variables that
//! point there, found in its symbol table.
//!
//! TreadMarks programs keep the results of `Tmk_malloc` in such variables, which `Tmk_distribute`
//! copies to all processes. A program without symbols has no names.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;

use object::{Object, ObjectSymbol, SymbolKind};
use pagemesh::{Heap, Label};

use super::image;

/// Maximum number of labels that are sent; further pointers get no label.
const MOST: usize = 1024;

/// Number of bytes of a variable that are searched for pointers.
const SEARCHED: usize = 1 << 16;

/// Object files larger than this number of bytes are not read.
const LARGEST: u64 = 1 << 30;

/// Bytes of a pointer.
const WORD: usize = size_of::<usize>();

/// Labels for the blocks of a heap. An address that several variables hold gets the shortest name.
pub fn labels(heap: &Heap) -> Vec<Label> {
    let memory = heap.memory();
    let start = memory.as_ptr() as usize;
    let mut names: BTreeMap<usize, String> = BTreeMap::new();
    for (address, name) in pointers(&(start..start + memory.len())) {
        let known = names.get(&address);
        if known.is_none_or(|known| name.len() < known.len()) {
            names.insert(address, name);
        }
    }
    let label = |(address, name): (usize, String)| {
        let inside = std::ptr::with_exposed_provenance(address);
        let (block, length) = heap.block_of(inside).ok()??;
        let end = block.as_ptr() as usize + usize::try_from(length).ok()?;
        Some(Label {
            offset: (address - start) as u64,
            length: (end - address) as u64,
            name,
        })
    };
    names.into_iter().take(MOST).filter_map(label).collect()
}

/// Every pointer into this memory that a variable of the process holds.
fn pointers(memory: &Range<usize>) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for loaded in image::loaded() {
        let small = fs::metadata(&loaded.path).is_ok_and(|file| file.len() <= LARGEST);
        let Some(bytes) = small.then(|| fs::read(&loaded.path).ok()).flatten() else {
            continue;
        };
        let Ok(file) = object::File::parse(&*bytes) else {
            continue;
        };
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let address = loaded.base.wrapping_add(symbol.address() as usize);
            let size = (symbol.size() as usize).min(SEARCHED);
            let variable = symbol.kind() == SymbolKind::Data && symbol.is_definition();
            if let Ok(name) = symbol.name()
                && variable
                && loaded.is_writable(address, size)
            {
                // SAFETY: the object is loaded, and this many bytes there are readable.
                unsafe { search((address, size), name, memory, &mut found) };
            }
        }
    }
    found
}

/// Searches every aligned word of a variable.
///
/// # Safety
/// `size` bytes at its address must be readable.
unsafe fn search(
    (address, size): (usize, usize),
    name: &str,
    memory: &Range<usize>,
    found: &mut Vec<(usize, String)>,
) {
    let first = address.next_multiple_of(WORD);
    let words = (first..address + size).step_by(WORD);
    for at in words.filter(|at| at + WORD <= address + size) {
        // SAFETY: aligned, and the caller's promise; other threads may store to it.
        let word = unsafe { std::ptr::with_exposed_provenance::<usize>(at).read_volatile() };
        if memory.contains(&word) {
            let place = (at - address) / WORD;
            let name = match place {
                0 if size < 2 * WORD => format!("*{name}"),
                _ => format!("*{name}[{place}]"),
            };
            found.push((word, name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static POINTS: AtomicUsize = AtomicUsize::new(0);
    static TABLE: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

    #[test]
    fn variables_that_point_there_are_found_by_name() {
        // The variables are not read; without this the compiler would remove them.
        black_box(&POINTS).store(0x7000_0000_1010, Ordering::Relaxed);
        black_box(&TABLE)[2].store(0x7000_0000_1020, Ordering::Relaxed);
        let found = pointers(&(0x7000_0000_1000..0x7000_0000_2000));
        let named = |address: usize, part: &str, end: &str| {
            found
                .iter()
                .any(|(at, name)| *at == address && name.contains(part) && name.ends_with(end))
        };
        // Rust's own names are mangled, and contain more than these words.
        assert!(named(0x7000_0000_1010, "POINTS", ""), "{found:?}");
        assert!(named(0x7000_0000_1020, "TABLE", "[2]"), "{found:?}");
        assert!(pointers(&(0x7000_0000_2000..0x7000_0000_3000)).is_empty());
    }
}
