//! Debuggers and others that look into a process from outside.

use crate::support::{Cluster, Player, load, store};
use pagemesh::{Mapping, PAGE_SIZE};
use rustix::process::Signal;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;

/// A scripted node on node 1 that has page 0 (the number 5), but not page 1 (the
/// number 6), and where its mapping is.
fn stage(cluster: &Cluster, name: &str) -> (Mapping, Player, u64) {
    let here = cluster.share(name, 2).remove(0);
    store(&here, 0, 5);
    store(&here, PAGE_SIZE, 6);
    let mut scripted_node = cluster.scripted_node(1, name);
    assert_eq!(scripted_node.ask("load 0"), "5");
    let address = scripted_node.ask("address").parse().unwrap();
    (here, scripted_node, address)
}

#[test]
fn gdb_sees_what_is_there_and_an_error_where_nothing_is() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let (_here, mut scripted_node, address) = stage(&cluster, "examined");
    let asked = cluster.counter(1, "asked");
    // As gdb reads memory.
    let memory = std::fs::File::open(format!("/proc/{}/mem", scripted_node.id())).unwrap();
    let mut word = [0; 8];
    memory.read_exact_at(&mut word, address).unwrap();
    assert_eq!(u64::from_ne_bytes(word), 5);
    let absent = memory.read_at(&mut word, address + PAGE_SIZE as u64);
    assert_eq!(absent.unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(cluster.counter(1, "asked"), asked, "it disturbs nobody");
    assert_eq!(scripted_node.ask("load 4096"), "6");
    memory
        .read_exact_at(&mut word, address + PAGE_SIZE as u64)
        .unwrap();
    assert_eq!(u64::from_ne_bytes(word), 6);
}

#[test]
fn reading_a_process_from_outside_fetches_pages_for_it() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let (_here, scripted_node, address) = stage(&cluster, "read-from-outside");
    for (page, value) in [5, 6].into_iter().enumerate() {
        let mut word = 0_u64;
        let to = libc::iovec {
            iov_base: (&raw mut word).cast(),
            iov_len: 8,
        };
        let from = libc::iovec {
            iov_base: (address as usize + page * PAGE_SIZE) as *mut libc::c_void,
            iov_len: 8,
        };
        let process = scripted_node.id().cast_signed();
        // SAFETY: `to` is a word of ours; the kernel checks `from`.
        let read =
            unsafe { libc::process_vm_readv(process, &raw const to, 1, &raw const from, 1, 0) };
        assert_eq!((read, word), (8, value));
    }
}

#[test]
fn a_core_is_dumped_at_once_although_pages_are_elsewhere() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let (here, mut scripted_node, _) = stage(&cluster, "dumped");
    cluster.signal(0, Signal::STOP).unwrap();
    scripted_node.tell("crash");
    let status = scripted_node.end();
    cluster.signal(0, Signal::CONT).unwrap();
    assert_eq!(status.signal(), Some(libc::SIGABRT));
    assert_eq!((load(&here, 0), load(&here, PAGE_SIZE)), (5, 6));
    let mut after = cluster.scripted_node(1, "dumped");
    assert_eq!(after.ask("load 4096"), "6");
}
