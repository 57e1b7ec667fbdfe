//! What the kernel says of a process or a thread in one line.

use std::io;
use std::path::Path;

/// The fields of a file `stat` in `/proc`.
#[derive(Clone, Debug)]
pub struct ProcStat {
    state: char,
    user: u64,
    system: u64,
    started: u64,
}

impl ProcStat {
    /// Of a process.
    ///
    /// # Errors
    /// If there is none of this number, or the kernel writes something else.
    pub fn of(process: u32) -> io::Result<Self> {
        Self::read(&Path::new("/proc").join(process.to_string()))
    }

    /// Of the process or thread that this directory in `/proc` tells of.
    ///
    /// # Errors
    /// If it has ended, or the kernel writes something else.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(directory.join("stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::other("no line of a process"))
    }

    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may contain anything.
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            user: number(11)?,
            system: number(12)?,
            started: number(19)?,
        })
    }

    /// What it does, as `ps` shows it.
    #[must_use]
    pub fn state(&self) -> char {
        self.state
    }

    /// Whether it has ended, and its parent has not looked yet.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Seconds of processor time that it has used, as user and as system.
    #[must_use]
    pub fn seconds(&self) -> [f64; 2] {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        [self.user, self.system].map(|count| count as f64 / ticks)
    }

    /// When it began, in ticks since the host did: together with its number it names a process for
    /// ever.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.started
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_anything() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 15 16 17 18 4711 20";
        let stat = ProcStat::parse(&format!("7 (a) R 9 (b) {rest}\n")).unwrap();
        assert_eq!((stat.state(), stat.started()), ('S', 4711));
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(stat.seconds(), [250.0 / ticks, 50.0 / ticks]);
        assert!(ProcStat::parse("7 (a) S 1 2").is_none());
    }

    #[test]
    fn this_process_runs() {
        let stat = ProcStat::of(std::process::id()).unwrap();
        assert!(!stat.has_ended());
        assert!(ProcStat::of(u32::MAX).is_err());
    }
}
