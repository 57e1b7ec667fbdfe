//! Capabilities (E19), as a hostile process would use them.

use crate::common::{Client, Daemon, permitted};
use pagemesh_wire::local::{Reply, Request};
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::{PageCount, PageIndex};
use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};
use std::os::fd::{AsRawFd as _, OwnedFd};

/// The same file, opened anew.
fn reopened(fd: &OwnedFd, how: OFlags) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    open(path, how, Mode::empty()).unwrap()
}

fn capability(client: &mut Client, segment: &crate::common::Segment, write: bool) -> Reply {
    let segment = segment.info.id;
    client.ask(Request::Capability { segment, write })
}

#[test]
fn e19_what_is_no_capability_opens_nothing() {
    if !permitted() {
        return;
    }
    let daemon = Daemon::start(|_| {});
    let mut owner = daemon.client();
    let segment = owner.attach("secret", 2, true);
    let forged = memfd_create("pagemesh:secret", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&forged, 8192).unwrap();
    let (pipe, _writer) = std::io::pipe().unwrap();
    let none = [
        forged,
        pipe.into(),
        segment.area.try_clone().unwrap(),
        reopened(&segment.memory, OFlags::PATH),
        reopened(&segment.memory, OFlags::WRONLY),
    ];
    let mut thief = daemon.client();
    for fd in none {
        let reply = thief.ask_with(Request::Redeem, &[fd]);
        let invalid = matches!(&reply, Reply::Refused(Refusal::Invalid(_)));
        assert!(invalid, "{reply:?}");
    }
    let refused = Reply::Refused(Refusal::Invalid(
        "the process has not opened the segment".into(),
    ));
    assert_eq!(capability(&mut thief, &segment, false), refused);
    // No descriptor, or two, are no request.
    for fds in [vec![], vec![&segment.memory, &segment.memory]] {
        let mut thief = daemon.client();
        let fds: Vec<_> = fds.iter().map(|fd| fd.try_clone().unwrap()).collect();
        thief.send(Request::Redeem, &fds);
        assert!(thief.receive().is_none(), "cut off");
    }
    daemon.end().unwrap();
}

#[test]
fn e19_a_capability_for_loads_permits_loads_only() {
    if !permitted() {
        return;
    }
    let daemon = Daemon::start(|_| {});
    let mut owner = daemon.client();
    let segment = owner.attach("secret", 2, true);
    segment.store(0, 0, 7);
    let write = false;
    let id = segment.info.id;
    let given = capability(&mut owner, &segment, write);
    assert_eq!(given, Reply::Capability { segment: id, write });
    let loads = owner.lent().pop().unwrap();

    let mut other = daemon.client();
    let Reply::Opened { info } = other.ask_with(Request::Redeem, &[loads]) else {
        panic!("it is a capability");
    };
    let reading = other.map_lent(info, false);
    assert_eq!(reading.load(0, 0), 7);
    let (storing, _uffd) = other.ask_to_map(reading.request(true));
    assert_eq!(storing, Reply::Refused(Refusal::Permission));
    let (first, count) = (PageIndex(0), PageCount(1));
    let pin = Request::Pin {
        segment: id,
        first,
        count,
    };
    assert_eq!(other.ask(pin), Reply::Refused(Refusal::Permission));
    assert_eq!(
        capability(&mut other, &reading, true),
        Reply::Refused(Refusal::Permission)
    );
    daemon.end().unwrap();
}
