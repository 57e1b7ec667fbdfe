//! Processes: this one's limits, and the end of others.

/// Every mapping takes a descriptor.
pub(crate) fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nofile);
    let to = |limit| Rlimit {
        current: limit,
        maximum: limit,
    };
    // A privileged daemon raises the hard limit, too.
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open");
    let most = most.ok().and_then(|most| most.trim().parse().ok());
    let raised = most.filter(|most| before.maximum.is_some_and(|limit| limit < *most));
    if raised.is_some_and(|most| setrlimit(Resource::Nofile, to(Some(most))).is_ok()) {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, to(before.maximum)) {
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
