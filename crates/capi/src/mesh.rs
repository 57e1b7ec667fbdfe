//! Version and connection.

use std::ffi::{CStr, OsStr, c_char, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;

use pagemesh::Mesh;

use crate::error::call;
use crate::handle::{borrow, give, take};

/// `PAGEMESH_VERSION` of this library.
#[unsafe(no_mangle)]
pub extern "C" fn pagemesh_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// `PAGEMESH_VERSION_NUMBER` of this library.
#[unsafe(no_mangle)]
pub extern "C" fn pagemesh_version_number() -> c_uint {
    let parts = [
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH"),
    ];
    parts.iter().fold(0, |number, part| {
        number * 100 + part.parse::<c_uint>().unwrap_or(0)
    })
}

/// Connects to the daemon.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_connect(path: *const c_char) -> *mut Mesh {
    call(null_mut(), || {
        let mesh = if path.is_null() {
            Mesh::connect()?
        } else {
            // SAFETY: the header asks for a string. Paths need not be UTF-8.
            let path = unsafe { CStr::from_ptr(path) };
            Mesh::connect_to(OsStr::from_bytes(path.to_bytes()))?
        };
        Ok(give(mesh))
    })
}

/// Closes the connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_disconnect(mesh: *mut Mesh) {
    call((), || {
        // SAFETY: the header asks for a handle that is not used any more.
        drop(unsafe { take(mesh) });
        Ok(())
    });
}

/// This node's number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_node(mesh: *const Mesh) -> c_uint {
    call(0, || {
        // SAFETY: the header asks for a handle.
        let mesh = unsafe { borrow(mesh)? };
        Ok(c_uint::from(mesh.node().0))
    })
}
