//! Which parts of this process's address space map a file. The kernel is asked, since a program can
//! unmap or replace any memory by a bare system call. Allocates nothing, so that it can be called
//! just before a fork.

use linux_raw_sys::general::procmap_query;
use rustix::fs::{Mode, OFlags, fstat, major, minor, open};
use rustix::io::{Errno, read};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const QUERY: Opcode = opcode::read_write::<procmap_query>(b'f', 17);
const COVERING_OR_NEXT: u64 = 0x10;

/// A mapped file, with the address where the file's byte 0 would be if all of it were mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct File {
    device: (u32, u32),
    inode: u64,
    origin: usize,
}

/// A virtual memory area.
#[derive(Clone, Debug)]
struct Area {
    range: Range<usize>,
    file: File,
}

/// Calls `each` with every part of `range`, in order, that maps `memory` such that byte `offset` of
/// the memory lies at the start of the range.
///
/// # Errors
/// As fstat(2), and open(2) and read(2) of `/proc/self/maps`.
pub fn each_mapped(
    memory: BorrowedFd<'_>,
    offset: u64,
    range: &Range<usize>,
    mut each: impl FnMut(Range<usize>),
) -> io::Result<()> {
    let stat = fstat(memory)?;
    let wanted = File {
        device: (major(stat.st_dev), minor(stat.st_dev)),
        inode: stat.st_ino,
        origin: range.start.wrapping_sub(offset as usize),
    };
    let maps = open(
        "/proc/self/maps",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut visit = |area: &Area| {
        let start = area.range.start.max(range.start);
        let end = area.range.end.min(range.end);
        if start < end && area.file == wanted {
            each(start..end);
        }
    };
    match query(&maps, range, &mut visit) {
        // The ioctl is missing before Linux 6.11.
        Err(Errno::NOTTY | Errno::INVAL) => Ok(scan(&maps, range, &mut visit)?),
        done => Ok(done?),
    }
}

/// Queries one area after the other by ioctl.
fn query(maps: &OwnedFd, range: &Range<usize>, visit: &mut impl FnMut(&Area)) -> Result<(), Errno> {
    let mut at = range.start;
    while at < range.end {
        // SAFETY: the structure consists of integers, for which zero is a value.
        let mut asked: procmap_query = unsafe { std::mem::zeroed() };
        asked.size = size_of::<procmap_query>() as u64;
        asked.query_flags = COVERING_OR_NEXT;
        asked.query_addr = at as u64;
        // SAFETY: the opcode's argument is this structure, whose size it has; it contains no
        // pointer.
        match unsafe { ioctl(maps.as_fd(), Updater::<QUERY, _>::new(&mut asked)) } {
            Err(Errno::NOENT) => return Ok(()),
            done => done?,
        }
        let area = Area {
            range: asked.vma_start as usize..asked.vma_end as usize,
            file: File {
                device: (asked.dev_major, asked.dev_minor),
                inode: asked.inode,
                origin: (asked.vma_start as usize).wrapping_sub(asked.vma_offset as usize),
            },
        };
        visit(&area);
        at = area.range.end;
    }
    Ok(())
}

/// Reads the whole text table, line by line.
fn scan(maps: &OwnedFd, range: &Range<usize>, visit: &mut impl FnMut(&Area)) -> Result<(), Errno> {
    let mut buffer = [0; 4096];
    let mut filled = 0;
    // True while the rest of a line is skipped whose beginning, with all that is needed, was
    // parsed.
    let mut skip = false;
    loop {
        let count = match read(maps, &mut buffer[filled..]) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        };
        filled += count;
        let mut done = 0;
        while let Some(length) = buffer[done..filled].iter().position(|byte| *byte == b'\n') {
            let line = &buffer[done..done + length];
            if let Some(area) = Some(line).filter(|_| !skip).and_then(parse) {
                visit(&area);
                if area.range.start >= range.end {
                    return Ok(());
                }
            }
            skip = false;
            done += length + 1;
        }
        if done == 0 && filled == buffer.len() {
            // The line has a path longer than the buffer; the numbers come before it.
            if let Some(area) = Some(&buffer[..]).filter(|_| !skip).and_then(parse) {
                visit(&area);
            }
            skip = true;
            done = filled;
        }
        buffer.copy_within(done..filled, 0);
        filled -= done;
    }
}

/// `start-end rights offset major:minor inode path`
fn parse(line: &[u8]) -> Option<Area> {
    // The path may contain any bytes; the fields before it are ASCII.
    let mut words = line.split(|byte| *byte == b' ');
    let mut word = || str::from_utf8(words.next()?).ok();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = word()?.split_once('-')?;
    let _rights = word()?;
    let offset = hex(word()?)?;
    let (major, minor) = word()?.split_once(':')?;
    let inode = word()?.parse().ok()?;
    let start = usize::try_from(hex(start)?).ok()?;
    Some(Area {
        range: start..usize::try_from(hex(end)?).ok()?,
        file: File {
            device: (
                u32::from_str_radix(major, 16).ok()?,
                u32::from_str_radix(minor, 16).ok()?,
            ),
            inode,
            origin: start.wrapping_sub(offset as usize),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfd::{Memfd, PAGE};
    use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
    use std::ptr::{null_mut, without_provenance_mut};

    const PAGES: usize = 8;

    /// The parts that map pages 2.. of `memory` at `range`, which both methods must report.
    fn parts(memory: BorrowedFd<'_>, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        each_mapped(memory, 2 * PAGE as u64, range, |part| found.push(part)).unwrap();
        let stat = fstat(memory).unwrap();
        let wanted = File {
            device: (major(stat.st_dev), minor(stat.st_dev)),
            inode: stat.st_ino,
            origin: range.start - 2 * PAGE,
        };
        let maps = open("/proc/self/maps", OFlags::RDONLY, Mode::empty()).unwrap();
        let mut scanned = Vec::new();
        let mut visit = |area: &Area| {
            let start = area.range.start.max(range.start);
            let end = area.range.end.min(range.end);
            if start < end && area.file == wanted {
                scanned.push(start..end);
            }
        };
        scan(&maps, range, &mut visit).unwrap();
        assert_eq!(found, scanned);
        found
    }

    #[test]
    fn what_was_unmapped_or_replaced_is_not_found() {
        let memory = Memfd::create("test", 16 * PAGE as u64).unwrap();
        let other = Memfd::create("test", 16 * PAGE as u64).unwrap();
        let rights = ProtFlags::READ;
        let at = |start: usize, page: usize| without_provenance_mut(start + page * PAGE);
        let fixed = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: fresh memory of this test alone, of which only pages inside are replaced.
        unsafe {
            let offset = 2 * PAGE as u64;
            let length = PAGES * PAGE;
            let base = mmap(
                null_mut(),
                length,
                rights,
                MapFlags::SHARED,
                memory.as_fd(),
                offset,
            );
            let base = base.unwrap() as usize;
            let pages = |range: Range<usize>| base + range.start * PAGE..base + range.end * PAGE;
            let range = pages(0..PAGES);
            let find = || parts(memory.as_fd(), &range);
            assert_eq!(find(), [pages(0..8)]);
            munmap(at(base, 1), PAGE).unwrap();
            assert_eq!(find(), [pages(0..1), pages(2..8)]);
            // Other memory, other bytes of the same memory, another file.
            let anonymous = MapFlags::PRIVATE | MapFlags::FIXED;
            mmap_anonymous(at(base, 2), PAGE, rights, anonymous).unwrap();
            mmap(at(base, 4), PAGE, rights, fixed, memory.as_fd(), 0).unwrap();
            mmap(
                at(base, 6),
                PAGE,
                rights,
                fixed,
                other.as_fd(),
                8 * PAGE as u64,
            )
            .unwrap();
            let left = [pages(0..1), pages(3..4), pages(5..6), pages(7..8)];
            assert_eq!(find(), left);
            munmap(at(base, 0), length).unwrap();
            assert_eq!(find(), []);
        }
    }

    #[test]
    fn lines_are_read_whatever_their_path_is() {
        let line = b"7f00deadb000-7f00deadd000 rw-s 00002000 00:01 4711    /memfd:\xff x (deleted)";
        let area = parse(line).unwrap();
        assert_eq!(area.range, 0x7f00_dead_b000..0x7f00_dead_d000);
        let file = File {
            device: (0, 1),
            inode: 4711,
            origin: 0x7f00_dead_9000,
        };
        assert_eq!(area.file, file);
        assert!(parse(b"").is_none() && parse(b"x-y rw-s 0 0:0 0").is_none());
    }
}
