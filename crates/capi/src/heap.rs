//! Shared heaps.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use pagemesh::{Heap, HeapOptions, Mesh};

use crate::error::call;
use crate::handle::{borrow, give, put, take};
use crate::job::JobHandle;
use crate::segment::{COptions, Handle};

/// `pagemesh_heap_t`: a heap, and the handle of its segment.
#[derive(Debug)]
pub struct HeapHandle {
    heap: Heap,
    /// A handle from [`give`], so that C may keep its address.
    segment: *mut Handle,
}

/// Opens the heap of a job, together with its other processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_heap_open(
    mesh: *mut Mesh,
    job: *mut JobHandle,
    reserve: u64,
    options: *const COptions,
) -> *mut HeapHandle {
    call(null_mut(), || {
        // SAFETY: the header asks for handles, and options or NULL.
        let (mesh, job, options) = unsafe { (borrow(mesh)?, borrow(job)?, options.as_ref()) };
        let mut wanted = HeapOptions::default();
        if let Some(options) = options {
            wanted.policy = options.read()?.policy;
        }
        if reserve != 0 {
            wanted.reserve = reserve;
        }
        let heap = Heap::open(mesh, &job.job, wanted)?;
        let segment = give(Handle::new(heap.segment().clone()));
        Ok(give(HeapHandle { heap, segment }))
    })
}

/// Closes the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_heap_close(heap: *mut HeapHandle) {
    call((), || {
        // SAFETY: the header asks for handles that are not used any more.
        if let Some(HeapHandle { heap, segment }) = unsafe { take(heap) } {
            // SAFETY: as above; it was given when the heap was opened.
            drop((unsafe { take(segment) }, heap));
        }
        Ok(())
    });
}

/// Allocates a block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_heap_alloc(heap: *mut HeapHandle, bytes: usize) -> *mut c_void {
    call(null_mut(), || {
        // SAFETY: the header asks for a handle.
        let block = unsafe { borrow(heap)? }.heap.allocate(bytes as u64)?;
        Ok(block.as_ptr().cast())
    })
}

/// Frees a block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_heap_free(heap: *mut HeapHandle, block: *mut c_void) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        unsafe { borrow(heap)? }.heap.free(block.cast())?;
        Ok(0)
    })
}

/// Loads a root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_heap_root(
    heap: *mut HeapHandle,
    slot: c_uint,
    value: *mut u64,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let root = unsafe { borrow(heap)? }.heap.root(slot as usize)?;
        // SAFETY: the header asks for a pointer to write to.
        unsafe { put(value, root)? };
        Ok(0)
    })
}

/// Stores a root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_heap_set_root(
    heap: *mut HeapHandle,
    slot: c_uint,
    value: u64,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let heap = unsafe { borrow(heap)? };
        heap.heap.set_root(slot as usize, value)?;
        Ok(0)
    })
}

/// The heap's segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_heap_segment(heap: *mut HeapHandle) -> *mut Handle {
    // SAFETY: the header asks for a handle.
    call(null_mut(), || Ok(unsafe { borrow(heap)? }.segment))
}
