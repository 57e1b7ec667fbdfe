//! The settings of a sandbox.

use super::Netns;
use pagemesh_os::impair::Impairment;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of a sandbox.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many nodes; 1 to 127.
    pub nodes: usize,
    /// How daemons wait: `spin`, `block` or `auto`; their own default if `None`.
    pub waiting: Option<String>,
    /// Whether daemons make pages smaller: `off`, `runs`, `lz4` or `auto`; their own
    /// default if `None`.
    pub compress: Option<String>,
    /// Switches for a measurement, as daemons with the feature `experiment` read them; none if
    /// empty.
    pub experiment: String,
    /// Impairment of every datagram that a node sends.
    pub impair: Impairment,
    /// Only the daemon of this node has it; every daemon if `None`.
    pub impaired: Option<usize>,
    /// Network namespaces or loopback addresses.
    pub netns: Netns,
    /// Largest packet between the namespaces.
    pub mtu: u32,
    /// Datagrams between the nodes are sealed.
    pub sealed: bool,
    /// Daemons keep idle processors awake.
    pub latency: bool,
    /// How long processes wait for another daemon should theirs be killed.
    pub grace: Duration,
    /// Daemons have directories for their state, so that the first one can be started again.
    pub state: bool,
    /// An etcd of three members, one on each of the first three nodes, has what the coordinator
    /// decides, and elects it.
    pub etcd: bool,
    /// The URL of an etcd that runs already and does the same, as `pagemesh daemon --control` takes it.
    pub control: Option<String>,
    /// Further arguments for every daemon.
    pub daemon_args: Vec<String>,
    /// Further arguments for single daemons, by node; none for those beyond its end.
    pub own_args: Vec<Vec<String>>,
    /// The program `pagemesh`; found beside this one if `None`.
    pub program: Option<PathBuf>,
}

impl Plan {
    /// As many nodes, with default settings.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes,
            waiting: None,
            compress: None,
            experiment: String::new(),
            impair: Impairment::default(),
            impaired: None,
            netns: Netns::Auto,
            mtu: 9000,
            sealed: false,
            latency: false,
            grace: Duration::ZERO,
            state: false,
            etcd: false,
            control: None,
            daemon_args: Vec::new(),
            own_args: Vec::new(),
            program: None,
        }
    }
}

/// As the daemon's `--impair` reads it. Each node gets a seed of its own.
pub(super) fn impairment_spec(impair: &Impairment, index: usize) -> Option<String> {
    if (Impairment { seed: 0, ..*impair }) == Impairment::default() {
        return None;
    }
    Some(format!(
        "loss={},dup={},reorder={},delay={}ns,seed={}",
        impair.loss,
        impair.dup,
        impair.reorder,
        impair.delay.as_nanos(),
        impair.seed.wrapping_add(index as u64 + 1)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impairments_reach_the_daemon_as_it_reads_them() {
        assert_eq!(impairment_spec(&Impairment::default(), 3), None);
        let impair: Impairment = "loss=5%,delay=1500us,seed=7".parse().unwrap();
        let read: Impairment = impairment_spec(&impair, 1).unwrap().parse().unwrap();
        assert_eq!(read, Impairment { seed: 9, ..impair });
    }
}
