//! Conversions between C pointers and Rust references.

use std::ffi::{CStr, c_char};
use std::slice;
use std::time::Duration;

use crate::error::{Failure, Outcome};

/// Borrows the value behind a handle.
///
/// # Safety
/// NULL, or a handle from [`give`] that was not taken back, and will not be while the reference is
/// used.
pub unsafe fn borrow<'a, T>(handle: *const T) -> Outcome<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::invalid("a handle is NULL"))
}

/// Borrows an array; `what` it is, for the message.
///
/// # Safety
/// So many entries, or any pointer if that is 0.
pub unsafe fn entries<'a, T>(entries: *const T, count: usize, what: &str) -> Outcome<&'a [T]> {
    match (entries.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::invalid(&format!("{what} are NULL"))),
        // SAFETY: the caller's promise.
        (false, count) => Ok(unsafe { slice::from_raw_parts(entries, count) }),
    }
}

/// Writes a result.
///
/// # Safety
/// NULL, or a pointer to memory for one `T`.
pub unsafe fn put<T>(place: *mut T, value: T) -> Outcome<()> {
    if place.is_null() {
        return Err(Failure::invalid("the place for the result is NULL"));
    }
    // SAFETY: the caller's promise; the previous value is not dropped, because it belongs to C.
    unsafe { place.write(value) };
    Ok(())
}

/// Fills an array as far as its capacity goes; returns the total number of entries.
///
/// # Safety
/// `entries` has room for `capacity` entries; NULL if that is 0.
pub unsafe fn fill<T>(
    entries: *mut T,
    capacity: usize,
    values: impl ExactSizeIterator<Item = T>,
) -> Outcome<isize> {
    if entries.is_null() && capacity > 0 {
        return Err(Failure::invalid("the array for the results is NULL"));
    }
    let count = isize::try_from(values.len()).unwrap_or(isize::MAX);
    for (place, value) in values.take(capacity).enumerate() {
        // SAFETY: below `capacity`, so there is room.
        unsafe { entries.add(place).write(value) };
    }
    Ok(count)
}

/// Borrows a string from C.
///
/// # Safety
/// NULL, or a terminated string that does not change meanwhile.
pub unsafe fn text<'a>(string: *const c_char) -> Outcome<&'a str> {
    if string.is_null() {
        return Err(Failure::invalid("a name is NULL"));
    }
    // SAFETY: the caller's promise.
    let string = unsafe { CStr::from_ptr(string) };
    string
        .to_str()
        .map_err(|_| Failure::invalid("a name is not UTF-8"))
}

/// Hands a value over to C, as a handle.
pub fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes the value behind a handle back.
///
/// # Safety
/// NULL, or a handle from [`give`] that is not used any more.
pub unsafe fn take<T>(handle: *mut T) -> Option<T> {
    // SAFETY: the caller's promise.
    (!handle.is_null()).then(|| *unsafe { Box::from_raw(handle) })
}

/// A time limit from C: negative means none.
pub fn limit(nanos: i64) -> Option<Duration> {
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

/// A string as a C array: cut at a character so that a NUL fits, and padded.
pub fn array<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (place, byte) in array.iter_mut().zip(text[..end].bytes()) {
        *place = byte as c_char;
    }
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_between_characters() {
        let bytes = |array: &[c_char]| array.iter().map(|c| *c as u8).collect::<Vec<_>>();
        assert_eq!(bytes(&array::<4>("ab")), *b"ab\0\0");
        assert_eq!(bytes(&array::<4>("abcdef")), *b"abc\0");
        assert_eq!(bytes(&array::<4>("abü")), *b"ab\0\0");
    }

    #[test]
    fn arrays_are_filled_as_far_as_they_go() {
        let mut array = [0; 2];
        // SAFETY: the array has the given capacity.
        let count = unsafe { fill(array.as_mut_ptr(), 2, [7, 8, 9].into_iter()) };
        assert_eq!((count.unwrap(), array), (3, [7, 8]));
        // SAFETY: nothing is written.
        let none = unsafe { fill(std::ptr::null_mut(), 0, [7, 8, 9].into_iter()) };
        assert_eq!(none.unwrap(), 3);
        // SAFETY: the call is refused.
        assert!(unsafe { fill(std::ptr::null_mut(), 1, [7].into_iter()) }.is_err());
    }
}
