//! Processes: this one's limits, and the end of others.

/// Every mapping takes a descriptor.
pub(crate) fn raise_limits() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of descriptors stays");
    }
}

/// Ends a process by SIGBUS.
pub(crate) fn kill(process: i32) {
    if let Some(process) = rustix::process::Pid::from_raw(process)
        && process.as_raw_nonzero().get() > 0
    {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::BUS);
    }
}
