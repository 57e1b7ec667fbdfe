//! The places of this process's variables: the same program is loaded at another address in every
//! process, so a variable is identified by its offset in an object file.

use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use libc::{PF_W, PT_LOAD, PT_NOTE, dl_iterate_phdr, dl_phdr_info};

/// An offset in an object file: program or library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The object: a hash of its build-id, or of its segment layout if it has none.
    pub object: u64,
    /// Offset from the object's load address.
    pub offset: u64,
}

/// The place of `size` bytes at an address, if they are variables of an object.
pub fn place_of(address: usize, size: usize) -> Option<Place> {
    find(&|object| {
        let inside = object
            .writable
            .iter()
            .any(|range| range.contains(&address) && size <= range.end - address);
        inside.then(|| Place {
            object: object.id,
            offset: address.wrapping_sub(object.base) as u64,
        })
    })
}

/// The address of `size` bytes at a place in this process, if it has that object loaded and they
/// are variables of it.
pub fn address_of(place: Place, size: usize) -> Option<usize> {
    let address = find(&|object| {
        let offset = usize::try_from(place.offset).ok()?;
        (object.id == place.object).then(|| object.base.wrapping_add(offset))
    })?;
    (place_of(address, size) == Some(place)).then_some(address)
}

/// An object as this process has loaded it.
struct Object {
    id: u64,
    base: usize,
    writable: Vec<Range<usize>>,
    path: PathBuf,
}

/// A loaded object file, for reading its symbols.
pub struct Loaded {
    /// The path of the file.
    pub path: PathBuf,
    /// The base of its addresses.
    pub base: usize,
    writable: Vec<Range<usize>>,
}

impl Loaded {
    /// True if `size` bytes at the address are variables of the object.
    pub fn is_writable(&self, address: usize, size: usize) -> bool {
        let holds = |range: &Range<usize>| range.contains(&address) && size <= range.end - address;
        self.writable.iter().any(holds)
    }
}

/// The program and its libraries.
pub fn loaded() -> Vec<Loaded> {
    let all = RefCell::new(Vec::new());
    find::<()>(&|object| {
        let path = match &object.path {
            // The program itself has an empty name here.
            path if path.as_os_str().is_empty() => PathBuf::from("/proc/self/exe"),
            path => path.clone(),
        };
        all.borrow_mut().push(Loaded {
            path,
            base: object.base,
            writable: object.writable.clone(),
        });
        None
    });
    all.into_inner()
}

type Visit<'v, T> = &'v dyn Fn(&Object) -> Option<T>;

/// The first result that `visit` returns for an object.
fn find<T>(visit: Visit<'_, T>) -> Option<T> {
    struct Search<'v, T> {
        visit: Visit<'v, T>,
        found: Option<T>,
    }
    /// Passes one object to the search; a result other than 0 ends it.
    unsafe extern "C" fn show<T>(info: *mut dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the dynamic linker passes data that is valid during this call, and the search
        // that was given to it.
        let (object, search) = unsafe { (object(&*info), &mut *search.cast::<Search<'_, T>>()) };
        search.found = (search.visit)(&object);
        c_int::from(search.found.is_some())
    }
    let mut search = Search { visit, found: None };
    // SAFETY: `show` is called only during the call, with the search.
    unsafe { dl_iterate_phdr(Some(show::<T>), (&raw mut search).cast()) };
    search.found
}

/// # Safety
/// `info` was passed by the dynamic linker.
unsafe fn object(info: &dl_phdr_info) -> Object {
    let base = info.dlpi_addr as usize;
    let count = usize::from(info.dlpi_phnum);
    let headers = if info.dlpi_phdr.is_null() {
        &[]
    } else {
        // SAFETY: the dynamic linker guarantees it.
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, count) }
    };
    let mut writable = Vec::new();
    let mut shape = Hash::new();
    let mut build = None;
    let mut path = PathBuf::new();
    if !info.dlpi_name.is_null() {
        // SAFETY: the dynamic linker guarantees it.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) };
        shape.add(file_name(name));
        path.push(OsStr::from_bytes(name.to_bytes()));
    }
    for header in headers {
        let start = base.wrapping_add(header.p_vaddr as usize);
        let range = start..start.saturating_add(header.p_memsz as usize);
        shape.add(&header.p_memsz.to_ne_bytes());
        if header.p_type == PT_LOAD && header.p_flags & PF_W != 0 {
            writable.push(range);
        } else if header.p_type == PT_NOTE && header.p_memsz < 4096 {
            // SAFETY: notes are loaded and never change.
            let notes = unsafe { std::slice::from_raw_parts(start as *const u8, range.len()) };
            build = build.or_else(|| build_id(notes).map(Hash::of));
        }
    }
    Object {
        id: build.unwrap_or(shape.0),
        base,
        writable,
        path,
    }
}

/// The last part of a path.
fn file_name(path: &CStr) -> &[u8] {
    path.to_bytes()
        .rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or_default()
}

/// The build-id among ELF notes: owner GNU, type 3.
fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    loop {
        let (name, text, kind) = (word(notes, 0)?, word(notes, 4)?, word(notes, 8)?);
        let (name, text) = (name as usize, text as usize);
        let begin = 12 + name.next_multiple_of(4);
        let found = notes.get(begin..begin.checked_add(text)?)?;
        if kind == 3 && notes.get(12..12 + name)? == b"GNU\0" {
            return Some(found);
        }
        notes = notes.get(begin + text.next_multiple_of(4)..)?;
    }
}

/// FNV-1a: the same in every process, whatever compiler built it.
#[derive(Clone, Copy)]
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn of(bytes: &[u8]) -> u64 {
        let mut hash = Self::new();
        hash.add(bytes);
        hash.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    static VARIABLE: AtomicU64 = AtomicU64::new(7);

    #[test]
    fn variables_have_a_place_and_the_way_back() {
        let address = VARIABLE.as_ptr() as usize;
        let place = place_of(address, 8).unwrap();
        assert_eq!(address_of(place, 8), Some(address));
        assert_eq!(address_of(place, usize::MAX), None);
        let elsewhere = Place {
            object: place.object ^ 1,
            ..place
        };
        assert_eq!(address_of(elsewhere, 8), None);
    }

    #[test]
    fn stack_heap_and_code_have_none() {
        let local = 7_u64;
        let boxed = Box::new(7_u64);
        assert_eq!(place_of((&raw const local) as usize, 8), None);
        assert_eq!(place_of((&raw const *boxed) as usize, 8), None);
        assert_eq!(place_of(place_of as *const () as usize, 8), None);
    }

    #[test]
    fn a_build_id_is_found_among_notes() {
        let mut notes = Vec::new();
        for (kind, text) in [(1_u32, &b"no"[..]), (3, b"12345678")] {
            for word in [4, text.len() as u32, kind] {
                notes.extend(word.to_ne_bytes());
            }
            notes.extend(b"GNU\0");
            notes.extend(text);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id(&notes), Some(&b"12345678"[..]));
        assert_eq!(build_id(&notes[..20]), None);
        assert_eq!(build_id(&[255; 40]), None);
    }
}
