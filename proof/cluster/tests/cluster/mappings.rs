//! Where and how segments are mapped.

use crate::support::{Cluster, PAGE, load, store};
use pagemesh::{Access, Error, Options, PAGE_SIZE};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use std::ptr::null_mut;

/// Free in every process: far from where the kernel puts things by itself.
const WISHED: usize = 0x1000_0000_0000;

#[test]
fn all_processes_may_ask_for_one_address() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    cluster.make_on(0, "placed", 4, Options::default());
    let mut one = cluster.scripted_node(0, &format!("placed --at {WISHED}"));
    let mut two = cluster.scripted_node(1, &format!("placed --at {WISHED}"));
    let target = 2 * PAGE_SIZE + 8;
    one.ask(&format!("store {target} 1234"));
    one.ask(&format!("store 0 {}", WISHED + target));
    assert_eq!(
        two.ask("follow 0"),
        "1234",
        "pointers mean the same everywhere"
    );
}

#[test]
fn what_is_mapped_already_is_never_replaced() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let segment = cluster.make_on(0, "careful", 2, Options::default());
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory, wherever the kernel likes.
    let taken = unsafe { mmap_anonymous(null_mut(), PAGE_SIZE, rights, MapFlags::PRIVATE) };
    let taken = taken.unwrap().cast::<u64>();
    // SAFETY: the page was just mapped.
    unsafe { taken.write_volatile(5) };
    let wished = segment.map_at(Some(taken as usize), 0, PAGE, true);
    assert!(matches!(wished, Err(Error::AddressTaken(at)) if at == taken as usize));
    // SAFETY: the page is still mapped, or this test fails by a crash.
    assert_eq!(unsafe { taken.read_volatile() }, 5);
    // SAFETY: no code refers to the page.
    unsafe { munmap(taken.cast(), PAGE_SIZE) }.unwrap();
}

#[test]
fn impossible_mappings_are_refused() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let segment = cluster.make_on(0, "bounds", 4, Options::default());
    let refuse = |address, offset, length| {
        let result = segment.map_at(address, offset, length, true);
        assert!(matches!(result, Err(Error::Invalid(_))), "{result:?}");
    };
    refuse(Some(WISHED + 1), 0, PAGE);
    refuse(Some(0), 0, PAGE);
    refuse(None, 100, PAGE);
    refuse(None, 0, 0);
    refuse(None, 0, 4 * PAGE + 1);
    refuse(None, 3 * PAGE, 2 * PAGE);
    refuse(None, u64::MAX - PAGE + 1, PAGE);
    let whole = segment.map().unwrap();
    assert!(whole.load_u64(4 * PAGE_SIZE - 7).is_err());
    assert!(whole.load_u64(4).is_err(), "not aligned");
    assert!(whole.write(4 * PAGE_SIZE - 1, b"ab").is_err());
}

#[test]
fn a_part_of_a_segment_is_mapped_alone() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let whole = &cluster.share("parts", 8)[0];
    let segment = cluster.mesh(1).open("parts", Access::Writable).unwrap();
    let part = segment.map_at(None, 3 * PAGE, 2 * PAGE, true).unwrap();
    assert_eq!((part.len(), part.offset()), (2 * PAGE_SIZE, 3 * PAGE));
    store(whole, 3 * PAGE_SIZE, 33);
    store(whole, 5 * PAGE_SIZE - 8, 44);
    assert_eq!(load(&part, 0), 33);
    assert_eq!(load(&part, 2 * PAGE_SIZE - 8), 44);
    store(&part, PAGE_SIZE, 55);
    assert_eq!(load(whole, 4 * PAGE_SIZE), 55);
    assert!(part.load_u64(2 * PAGE_SIZE).is_err(), "beyond the part");
}

#[test]
fn the_last_page_of_an_odd_size_is_shared_too() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let size = PAGE + 100;
    let made = cluster
        .mesh(0)
        .create("odd", size, Options::default())
        .unwrap();
    let (one, two) = (made.map().unwrap(), cluster.map(1, "odd"));
    assert_eq!(two.len(), size as usize);
    one.write(PAGE_SIZE + 99, &[7]).unwrap();
    let mut last = [0];
    two.read(PAGE_SIZE + 99, &mut last).unwrap();
    assert_eq!(last, [7]);
    assert!(one.write(PAGE_SIZE + 100, &[7]).is_err());
}

#[test]
fn two_mappings_in_one_process_are_one_memory() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("twice", 4);
    let again = maps[0].segment().map().unwrap();
    let part = maps[0].segment().map_at(None, PAGE, PAGE, true).unwrap();
    for round in 1..=20 {
        store(&maps[0], PAGE_SIZE, round);
        assert_eq!((load(&again, PAGE_SIZE), load(&part, 0)), (round, round));
        store(&maps[1], PAGE_SIZE + 8, round);
        assert_eq!(
            (load(&part, 8), load(&again, PAGE_SIZE + 8)),
            (round, round)
        );
        store(&part, 16, round);
        assert_eq!(load(&maps[1], PAGE_SIZE + 16), round);
    }
    drop(again);
    store(&maps[1], PAGE_SIZE, 99);
    assert_eq!(load(&part, 0), 99, "the others go on");
}

#[test]
fn a_reader_sees_every_store_and_makes_none() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let writer = &cluster.share("looked-at", 2)[0];
    for node in 0..2 {
        let segment = cluster
            .mesh(node)
            .open("looked-at", Access::ReadOnly)
            .unwrap();
        let reader = segment.map().unwrap();
        assert!(!reader.is_writable());
        for round in 1..=50 {
            store(writer, 0, round);
            assert_eq!(load(&reader, 0), round);
        }
        assert!(matches!(reader.write(0, b"x"), Err(Error::Invalid(_))));
        assert!(matches!(reader.atomic_u64(0), Err(Error::Invalid(_))));
        assert!(matches!(
            segment.map_at(None, 0, PAGE, true),
            Err(Error::Invalid(_))
        ));
        assert!(segment.write_lock(0..8).is_err());
    }
}

#[test]
fn a_store_through_a_read_only_mapping_ends_the_process() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let writer = &cluster.share("guarded", 1)[0];
    store(writer, 0, 1);
    for node in 0..2 {
        let mut reader = cluster.scripted_node(node, "guarded --read-only");
        assert_eq!(reader.ask("load 0"), "1");
        reader.tell("store 0 2");
        let status = std::os::unix::process::ExitStatusExt::signal(&reader.end());
        assert_eq!(status, Some(Signal::SEGV.as_raw()));
    }
    assert_eq!(load(writer, 0), 1);
}

#[test]
fn a_reader_that_forces_a_store_harms_only_itself() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("forced", 1);
    store(&maps[0], 0, 1);
    for node in 0..2 {
        let mut reader = cluster.scripted_node(node, "forced --read-only");
        assert_eq!(reader.ask("load 0"), "1");
        assert_eq!(reader.ask("unprotect"), "done");
        assert_eq!(reader.ask("store 0 666"), "done");
        assert_eq!(reader.ask("load 0"), "666", "a copy of its own");
        assert_eq!((load(&maps[0], 0), load(&maps[1], 0)), (1, 1));
    }
    store(&maps[1], 0, 2);
    assert_eq!(load(&maps[0], 0), 2);
}

#[test]
fn sixty_four_gigabytes_cost_what_is_touched() {
    const SIZE: usize = 64 << 30;
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let before: Vec<_> = (0..2)
        .map(|node| resident(cluster.node(node).pid()))
        .collect();
    let maps = cluster.share("huge", SIZE as u64 / PAGE);
    let places = [0, SIZE / 2, SIZE - PAGE_SIZE];
    for (number, at) in places.into_iter().enumerate() {
        store(&maps[number % 2], at, number as u64 + 1);
    }
    for (number, at) in places.into_iter().enumerate() {
        assert_eq!(load(&maps[0], at), number as u64 + 1);
        assert_eq!(load(&maps[1], at), number as u64 + 1);
    }
    for (node, before) in before.into_iter().enumerate() {
        let known = cluster.mesh(node).inspect("huge", 0, 100).unwrap().known;
        assert_eq!(known, places.len() as u64);
        let grown = resident(cluster.node(node).pid()).saturating_sub(before);
        assert!(
            grown < 8 << 20,
            "the daemon of node {node} grew by {grown} bytes"
        );
    }
}

/// Bytes of memory that a process really has.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() * 1024
}

#[test]
fn a_daemon_without_descriptors_says_so() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let segment = cluster.make_on(0, "many", 1, Options::default());
    let mut maps = vec![segment.map().unwrap()];
    let pid = cluster.node(0).pid();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let numbers = open.map(|fd| fd.unwrap().file_name().to_str().unwrap().parse::<u64>());
    let highest = numbers.map(Result::unwrap).max().unwrap();
    let limit = Rlimit {
        current: Some(highest + 2),
        maximum: Some(highest + 2),
    };
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    prlimit(pid, Resource::Nofile, limit).unwrap();
    let refused = loop {
        match segment.map() {
            Ok(map) => maps.push(map),
            Err(error) => break error.to_string(),
        }
        assert!(maps.len() < 1000, "every mapping takes a descriptor");
    };
    assert!(refused.contains("file descriptors"), "{refused}");
    store(&maps[0], 0, 5);
    assert_eq!(load(maps.last().unwrap(), 0), 5);
}
