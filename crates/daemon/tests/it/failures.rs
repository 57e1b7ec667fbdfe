//! Nodes and processes that die: what is lost is said, the rest goes on.

use crate::common::{Process, permitted, socket, until, wait_for};
use pagemesh_wire::local::{Reply, Request};
use pagemesh_wire::peer::Refusal;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

const PAGES: usize = 4;

/// The part of a process that a test started.
pub(crate) fn program(role: &str, socket: &Path) {
    if role == "nobody" {
        return nobody(socket);
    }
    let mut client = wait_for(socket);
    let segment = client.attach("mortal", PAGES, true);
    match role {
        "writer" => {
            segment.store(0, 0, 7);
            segment.store(1, 0, 8);
            let _ = std::io::stdin().read(&mut [0]);
        }
        _ => {
            // The page that no other node has.
            segment.load(1, 0);
        }
    }
}

/// A program of a user without rights on this host shares memory all the same.
fn nobody(socket: &Path) {
    // SAFETY: plain numbers; glibc changes all threads.
    unsafe {
        assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
        assert_eq!(libc::setgid(65534), 0);
        assert_eq!(libc::setuid(65534), 0);
    }
    let mut client = wait_for(socket);
    let stranger = Request::Open {
        name: "mortal".into(),
        create: None,
        exclusive: false,
        write: false,
    };
    assert_eq!(client.ask(stranger), Reply::Refused(Refusal::Permission));
    assert_eq!(
        client.ask(Request::Leave),
        Reply::Refused(Refusal::Permission)
    );
    let segment = client.attach("nobodys", PAGES, true);
    segment.store(3, 0, 5);
    assert_eq!(segment.load(3, 0), 5);
    // The kernel reads into an absent page on the program's behalf.
    let zero = std::fs::File::open("/proc/self/stat").unwrap();
    let into = std::ptr::from_ref(segment.word(1, 0)).cast_mut().cast();
    // SAFETY: 8 bytes inside the mapping, used by no other code now.
    let read = unsafe { libc::read(zero.as_raw_fd(), into, 8) };
    assert_eq!(read, 8);
    assert_ne!(segment.load(1, 0), 0);
}

#[test]
fn anybody_may_share_what_is_his() {
    if !permitted() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become nobody");
        return;
    }
    let path = socket("everybody");
    let (_daemon, mut one) = Process::daemon(&path, &["-", "auto", "false"]);
    let segment = one.attach("mortal", PAGES, true);
    segment.store(0, 0, 1);
    let mut nobody = Process::start("nobody", &path, &[]);
    let status = nobody.0.wait().unwrap();
    assert!(status.success(), "{status}");
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
