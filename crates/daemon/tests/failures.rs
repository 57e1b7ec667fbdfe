//! Nodes and processes that die: what is lost is said, the rest goes on.

mod common;

use common::{Process, permitted, role, socket, wait_for};
use pagemesh_wire::local::{Reply, Request};
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

const PAGES: usize = 4;

#[test]
#[ignore = "not a test, but what other tests start"]
fn child_process() {
    let Some((role, socket)) = role() else { return };
    let mut client = wait_for(&socket);
    let segment = client.attach("mortal", PAGES, true);
    match role.as_str() {
        "writer" => {
            segment.store(0, 0, 7);
            segment.store(1, 0, 8);
            let _ = std::io::stdin().read(&mut [0]);
        }
        _ => {
            // The page that nobody else has.
            segment.load(1, 0);
        }
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_page_that_died_with_its_node_raises_sigbus() {
    if !permitted() {
        return;
    }
    let (near, far) = (socket("survivor"), socket("victim"));
    let (_first, mut one) = Process::daemon(&near, &["-", "auto", "false"]);
    let address = one.status().address;
    let (second, mut two) = Process::daemon(&far, &["-", "auto", "false", &address]);
    let segment = one.attach("mortal", PAGES, true);
    segment.store(2, 0, 9);
    let _writer = Process::start("writer", &far, &[]);
    until("the writer", || two.counter("ownerships_arrived") >= 2);
    assert_eq!(segment.load(0, 0), 7, "a copy that survives");
    drop(second);
    until("the death", || one.status().dead == 1);
    assert_eq!(segment.load(2, 0), 9, "what is here stays here");
    let mut reader = Process::start("reader", &near, &[]);
    let status = reader.0.wait().unwrap();
    assert_eq!(status.signal(), Some(rustix::process::Signal::BUS.as_raw()));
    assert!(one.counter("faults_failed") >= 1);
    assert!(
        matches!(one.ask(Request::Status), Reply::Status(_)),
        "the daemon lives on"
    );
}

#[test]
fn what_a_killed_process_wrote_stays() {
    if !permitted() {
        return;
    }
    let path = socket("daemon");
    let (_daemon, mut one) = Process::daemon(&path, &["-", "auto", "false"]);
    let segment = one.attach("mortal", PAGES, true);
    let writer = Process::start("writer", &path, &[]);
    until("the writer", || segment.load(1, 0) == 8);
    assert_eq!(one.status().clients, 2);
    drop(writer);
    until("the end of its session", || one.status().clients == 1);
    assert_eq!((segment.load(0, 0), segment.load(1, 0)), (7, 8));
    segment.store(0, 0, 70);
    assert_eq!(segment.load(0, 0), 70);
}
