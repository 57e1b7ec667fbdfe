//! The records of a failed test's daemons, kept for the search for the cause.

use pagemesh_cli::control::Control;
use pagemesh_cli::sandbox::Sandbox;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where a node's socket and log are.
pub(super) struct Place {
    socket: PathBuf,
    pub(super) log: PathBuf,
}

/// Counters of served waits: as long as one rises, the test does not hang.
const PROGRESS: [&str; 3] = ["faults_served", "locks", "barriers"];

/// Counters that rise only where a page was not as the core believed, or could not be placed.
const SUSPICIOUS: [&str; 5] = [
    "frames_overwritten",
    "frames_punched",
    "frames_waited",
    "placing_failed",
    "pages_refused",
];

/// How long a daemon may take to say how far it is.
const ANSWER: Duration = Duration::from_secs(2);

/// How much the daemons have done for threads that waited. Daemons that say nothing
/// have done nothing.
pub(super) fn progress(places: &[Place]) -> u64 {
    let counters = places.iter().filter_map(counters).flatten();
    let counted = counters.filter(|(name, _)| PROGRESS.contains(&name.as_str()));
    counted.map(|(_, count)| count).sum()
}

/// The counters of a daemon that tell of a fault. None if it says nothing.
pub(super) fn suspicious(place: &Place) -> Option<Vec<(String, u64)>> {
    let tells = |(name, count): &(String, u64)| SUSPICIOUS.contains(&name.as_str()) && *count > 0;
    Some(counters(place)?.into_iter().filter(tells).collect())
}

fn counters(place: &Place) -> Option<Vec<(String, u64)>> {
    let mut control = Control::connect_within(&place.socket, ANSWER).ok()?;
    control.counters().ok()
}

/// The places of all nodes.
pub(super) fn places(sandbox: &Sandbox) -> Vec<Place> {
    let directory = sandbox.directory();
    let nodes = sandbox.nodes().iter().enumerate();
    nodes
        .map(|(number, node)| Place {
            socket: node.socket().to_owned(),
            log: directory.join(format!("{number}.log")),
        })
        .collect()
}

/// Copies logs and flight recorders to the directory that `PAGEMESH_KEEP` names,
/// if it names one: `cargo xtask soak` does.
pub(super) fn keep(places: &[Place]) {
    let Some(directory) = std::env::var_os("PAGEMESH_KEEP") else {
        return;
    };
    let directory = Path::new(&directory);
    for (number, place) in places.iter().enumerate() {
        // Files that are gone cannot be kept.
        let _ = std::fs::copy(&place.log, directory.join(format!("node{number}.log")));
        let _ = Command::new(env!("CARGO_BIN_EXE_pagemesh-under-test"))
            .arg("--socket")
            .arg(&place.socket)
            .args(["debug", "dump"])
            .arg(directory.join(format!("node{number}.dump")))
            .stdin(Stdio::null())
            .status();
    }
}
