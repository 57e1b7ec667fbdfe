//! Jobs.

use std::ptr::null_mut;

use pagemesh::{Job, Mesh};

use crate::error::call;
use crate::handle::{borrow, give, take};
use crate::segment::Handle;

/// `pagemesh_job_t`: a job, and the handle of its segment.
#[derive(Debug)]
pub struct JobHandle {
    pub job: Job,
    /// A handle from [`give`], so that C may keep its address.
    segment: *mut Handle,
}

/// Joins the job that the environment describes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_job_open(mesh: *mut Mesh) -> *mut JobHandle {
    call(null_mut(), || {
        // SAFETY: the header asks for a handle.
        let job = Job::from_env(unsafe { borrow(mesh)? })?;
        let segment = give(Handle::new(job.segment().clone()));
        Ok(give(JobHandle { job, segment }))
    })
}

/// Closes the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_job_close(job: *mut JobHandle) {
    call((), || {
        // SAFETY: the header asks for handles that are not used any more.
        if let Some(JobHandle { job, segment }) = unsafe { take(job) } {
            // SAFETY: as above; it was given when the job was opened.
            drop((unsafe { take(segment) }, job));
        }
        Ok(())
    });
}

/// This process's number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_job_rank(job: *const JobHandle) -> u32 {
    // SAFETY: the header asks for a handle.
    call(0, || Ok(unsafe { borrow(job)? }.job.rank()))
}

/// The number of processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_job_size(job: *const JobHandle) -> u32 {
    // SAFETY: the header asks for a handle.
    call(0, || Ok(unsafe { borrow(job)? }.job.size()))
}

/// The job's segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_job_segment(job: *mut JobHandle) -> *mut Handle {
    // SAFETY: the header asks for a handle.
    call(null_mut(), || Ok(unsafe { borrow(job)? }.segment))
}
