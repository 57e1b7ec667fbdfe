//! System calls straight on segment memory: the kernel itself takes the faults.

use crate::support::Cluster;
use pagemesh::{Mapping, PAGE_SIZE};
use std::fs::File;
use std::io::{Read as _, Write};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::UnixStream;

/// Enough for several pages, none of it aligned.
const LENGTH: usize = 5 * PAGE_SIZE + 123;
const AT: usize = 1000;

fn pattern(seed: u8) -> Vec<u8> {
    (0..LENGTH)
        .map(|i| (i / 7) as u8 ^ (i as u8).wrapping_mul(seed))
        .collect()
}

fn bytes(memory: &Mapping) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    memory.read(AT, &mut bytes).unwrap();
    bytes
}

/// All of `LENGTH` bytes by `read(2)` into the segment.
fn read_into(file: &impl AsFd, memory: &Mapping) {
    let mut done = 0;
    while done < LENGTH {
        // SAFETY: in the mapping, to which the kernel stores as any process may.
        let got = unsafe {
            let to = memory.as_ptr().add(AT + done);
            libc::read(file.as_fd().as_raw_fd(), to.cast(), LENGTH - done)
        };
        assert!(got > 0, "read: {}", std::io::Error::last_os_error());
        done += got as usize;
    }
}

/// All of `LENGTH` bytes by `write(2)` from the segment.
fn write_from(memory: &Mapping, file: &impl AsFd) {
    let mut done = 0;
    while done < LENGTH {
        // SAFETY: in the mapping, from which the kernel loads.
        let put = unsafe {
            let from = memory.as_ptr().add(AT + done);
            libc::write(file.as_fd().as_raw_fd(), from.cast(), LENGTH - done)
        };
        assert!(put > 0, "write: {}", std::io::Error::last_os_error());
        done += put as usize;
    }
}

/// Writes from one thread while another one reads.
fn carry(memory: &Mapping, mut into: impl Write + Send, from: &impl AsFd, bytes: &[u8]) {
    std::thread::scope(|scope| {
        scope.spawn(move || into.write_all(bytes).unwrap());
        read_into(from, memory);
    });
}

#[test]
fn files_are_read_into_segments_and_written_from_them() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("files", 8);
    let path = cluster.directory().join("file");
    for round in 0..6 {
        let (here, there) = (&maps[round % 2], &maps[1 - round % 2]);
        let expected = pattern(round as u8 + 1);
        std::fs::write(&path, &expected).unwrap();
        // The pages are on the other node, or nowhere yet.
        read_into(&File::open(&path).unwrap(), here);
        assert_eq!(bytes(there), expected, "round {round}");
        there.write(AT, &pattern(99)).unwrap();
        write_from(here, &File::create(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), pattern(99), "round {round}");
    }
}

#[test]
fn pipes_and_sockets_carry_segments() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let maps = cluster.share("pipes", 8);
    for round in 0..4 {
        let (here, there) = (&maps[round % 2], &maps[1 - round % 2]);
        let expected = pattern(round as u8 + 1);
        let (reader, writer) = std::io::pipe().unwrap();
        carry(here, writer, &reader, &expected);
        assert_eq!(bytes(there), expected, "by a pipe, round {round}");

        let (one, other) = UnixStream::pair().unwrap();
        there.write(AT, &pattern(50)).unwrap();
        carry(here, one, &other, &expected);
        assert_eq!(bytes(there), expected, "by a socket, round {round}");
    }
}

#[test]
fn a_segment_goes_from_one_node_to_another_without_a_copy_in_between() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let from = cluster.share("from", 8);
    let to = cluster.share("to", 8);
    from[1].write(AT, &pattern(3)).unwrap();
    let (mut one, other) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let source = &from[0];
        scope.spawn(move || {
            write_from(source, &one);
            let mut nothing = Vec::new();
            one.shutdown(std::net::Shutdown::Write).unwrap();
            one.read_to_end(&mut nothing).unwrap();
        });
        read_into(&other, &to[0]);
        drop(other);
    });
    assert_eq!(bytes(&to[1]), pattern(3));
}
