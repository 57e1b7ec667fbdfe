//! A disk that is as slow as one declares, for the files of private segments: disks of today, and the
//! kernel's page cache in front of them, have another ratio to the network than the papers' had.

use pagemesh_wire::{PageIndex, SegmentId};
use std::fmt;
use std::time::{Duration, Instant};

/// The time of a read: of a page anywhere, and of the one behind the page that was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Anywhere.
    pub random: Duration,
    /// Behind the last one.
    pub next: Duration,
}

impl Disk {
    /// `350us/88us`, up to a second each.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let (random, next) = text.split_once('/')?;
        let time = |text| {
            let time = humantime::parse_duration(text).ok()?;
            (time <= Duration::from_secs(1)).then_some(time)
        };
        Some(Self {
            random: time(random)?,
            next: time(next)?,
        })
    }
}

impl fmt::Display for Disk {
    /// As in a description of an experiment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [random, next] = [self.random, self.next].map(|time| time.as_micros());
        write!(f, "disk={random}us/{next}us")
    }
}

/// The arm of such a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowDisk {
    disk: Disk,
    last: Option<(SegmentId, PageIndex)>,
}

/// A sleep may last so much longer than asked for. The rest is waited for without sleeping.
const SLACK: Duration = Duration::from_micros(70);

impl SlowDisk {
    pub(crate) fn new(disk: Disk) -> Self {
        Self { disk, last: None }
    }

    /// The disk reads a page, since `began`.
    pub(crate) fn read(&mut self, began: Instant, (segment, page): (SegmentId, PageIndex)) {
        let before = page.0.checked_sub(1).map(|page| (segment, PageIndex(page)));
        let time = match before.is_some() && self.last == before {
            true => self.disk.next,
            false => self.disk.random,
        };
        self.last = Some((segment, page));
        if let Some(rest) = time.checked_sub(began.elapsed() + SLACK) {
            std::thread::sleep(rest);
        }
        while began.elapsed() < time {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::NodeId;

    #[test]
    fn a_page_behind_the_last_one_is_quicker() {
        let disk = Disk::of("3ms/200us").unwrap();
        assert_eq!(disk.to_string(), "disk=3000us/200us");
        assert!(
            ["3ms", "2s/1us", "a/b", "3/1"]
                .map(Disk::of)
                .iter()
                .all(Option::is_none)
        );
        let mut slow = SlowDisk::new(disk);
        let mut read = |page| {
            let began = Instant::now();
            slow.read(began, (SegmentId::new(NodeId(1), 1), PageIndex(page)));
            began.elapsed()
        };
        assert!(read(7) >= disk.random);
        let next = (8..12).map(&mut read).min().unwrap();
        assert!((disk.next..disk.random).contains(&next), "{next:?}");
        assert!(read(2) >= disk.random);
    }
}
