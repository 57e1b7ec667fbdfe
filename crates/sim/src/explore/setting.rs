//! What is explored: a small cluster, a short program for each thread, and how
//! often what may go wrong.
//!
//! ```text
//! explore nodes=2 home=n1 pages=1 manager=dynamic window=0 lost=1 twice=1 late=1
//! thread n1 write 0, read 0
//! thread n2 lock 1, write 0, unlock 1
//! ```

use crate::canary::Canary;
use crate::step::SegmentPlan;
use pagemesh_wire::peer::{Manager, Policy, Window};
use std::fmt;

/// What one thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// Loads from a page.
    Read(u32),
    /// Stores to a page.
    Write(u32),
    /// Takes a lock.
    Lock(u64),
    /// Gives it back.
    Unlock(u64),
    /// Asks to be told before the page changes, and goes on.
    Watch(u32),
    /// Says that it will need this many pages, from the first on.
    Need(u32),
    /// Its process is killed.
    Die,
    /// Its host leaves the cluster.
    Leave,
}

/// How often each thing may go wrong in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Luck {
    /// Datagrams that are never seen again.
    pub(super) lost: u8,
    /// Datagrams that come a second time, whenever.
    pub(super) twice: u8,
    /// Datagrams that are overtaken by all others, as long as they like.
    pub(super) late: u8,
    /// Repetitions that a datagram outlasts which comes some time.
    pub(super) patience: u8,
    /// Clocks that run ahead while datagrams are still under way.
    pub(super) early: u8,
    /// Hosts that vanish; never the first.
    pub(super) crash: u8,
}

/// A cluster to explore.
#[derive(Clone, Debug)]
pub struct Setting {
    pub(super) nodes: usize,
    pub(super) home: usize,
    pub(super) pages: u32,
    pub(super) policy: Policy,
    pub(super) luck: Luck,
    /// Host and program of each thread.
    pub(super) threads: Vec<(usize, Vec<Op>)>,
    pub(super) canary: Option<Canary>,
}

impl Setting {
    /// Reads a setting.
    ///
    /// # Errors
    /// Says which word makes no sense.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut setting = Self {
            nodes: 2,
            home: 0,
            pages: 1,
            policy: Policy::Sequential {
                manager: Manager::Dynamic,
                window: Window::Nanos(0),
            },
            luck: Luck {
                patience: 2,
                ..Luck::default()
            },
            threads: Vec::new(),
            canary: None,
        };
        for line in text.lines() {
            match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
                ("explore", options) => setting.choose(options)?,
                ("thread", rest) => setting.threads.push(thread(rest)?),
                ("" | "#", _) => {}
                (other, _) => return Err(format!("a setting has no line '{other} ...'")),
            }
        }
        let nodes = setting.nodes;
        if setting.home >= nodes || setting.threads.iter().any(|(host, _)| *host >= nodes) {
            return Err(format!("there are only {nodes} nodes"));
        }
        Ok(setting)
    }

    /// The same setting with a bug planted.
    #[must_use]
    pub fn with(mut self, canary: Option<Canary>) -> Self {
        self.canary = canary;
        self
    }

    fn choose(&mut self, options: &str) -> Result<(), String> {
        let Policy::Sequential { manager, window } = &mut self.policy else {
            unreachable!("settings are parsed from a sequential one");
        };
        for option in options.split_whitespace() {
            let (name, value) = option
                .split_once('=')
                .ok_or_else(|| format!("{option} is no option"))?;
            match name {
                "nodes" => self.nodes = number(value)?,
                "home" => self.home = host(value)?,
                "pages" => self.pages = number(value)?,
                "manager" if value == "fixed" => *manager = Manager::Fixed,
                "manager" => *manager = Manager::Dynamic,
                "window" => *window = Window::Nanos(number(value)?),
                "lost" => self.luck.lost = number(value)?,
                "twice" => self.luck.twice = number(value)?,
                "late" => self.luck.late = number(value)?,
                "patience" => self.luck.patience = number(value)?,
                "early" => self.luck.early = number(value)?,
                "crash" => self.luck.crash = number(value)?,
                "canary" => self.canary = Some(value.parse()?),
                other => return Err(format!("there is no option {other}")),
            }
        }
        Ok(())
    }

    /// Pages asked for ahead at most: none unless a thread asks for some.
    pub(super) fn ahead(&self) -> u32 {
        let mut ops = self.threads.iter().flat_map(|(_, ops)| ops);
        let needs = ops.any(|op| matches!(op, Op::Need(_)));
        if needs { self.pages } else { 0 }
    }

    pub(super) fn segment(&self) -> SegmentPlan {
        SegmentPlan {
            name: "a".into(),
            pages: self.pages,
            policy: self.policy,
        }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// `n3` is the third host.
fn host(text: &str) -> Result<usize, String> {
    let place = text
        .strip_prefix('n')
        .and_then(|place| place.parse::<usize>().ok());
    place
        .and_then(|place| place.checked_sub(1))
        .ok_or_else(|| format!("{text} is no node"))
}

fn thread(text: &str) -> Result<(usize, Vec<Op>), String> {
    let (at, ops) = text.split_once(' ').unwrap_or((text, ""));
    let ops = ops.split(',').map(str::trim).filter(|op| !op.is_empty());
    Ok((host(at)?, ops.map(op).collect::<Result<_, _>>()?))
}

fn op(text: &str) -> Result<Op, String> {
    Ok(match text.split_once(' ').unwrap_or((text, "")) {
        ("read", page) => Op::Read(number(page)?),
        ("write", page) => Op::Write(number(page)?),
        ("lock", lock) => Op::Lock(number(lock)?),
        ("unlock", lock) => Op::Unlock(number(lock)?),
        ("watch", page) => Op::Watch(number(page)?),
        ("need", pages) => Op::Need(number(pages)?),
        ("die", "") => Op::Die,
        ("leave", "") => Op::Leave,
        _ => return Err(format!("a thread cannot {text}")),
    })
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(page) => write!(f, "read {page}"),
            Self::Write(page) => write!(f, "write {page}"),
            Self::Lock(lock) => write!(f, "lock {lock}"),
            Self::Unlock(lock) => write!(f, "unlock {lock}"),
            Self::Watch(page) => write!(f, "watch {page}"),
            Self::Need(pages) => write!(f, "need {pages}"),
            Self::Die => f.write_str("die"),
            Self::Leave => f.write_str("leave"),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (manager, window) = self.policy.sequential().unwrap_or_default();
        let manager = match manager {
            Manager::Fixed => "fixed",
            Manager::Dynamic => "dynamic",
        };
        let (nodes, home, pages) = (self.nodes, self.home + 1, self.pages);
        write!(
            f,
            "explore nodes={nodes} home=n{home} pages={pages} manager={manager}"
        )?;
        if let Window::Nanos(nanos @ 1..) = window {
            write!(f, " window={nanos}")?;
        }
        let Luck {
            lost,
            twice,
            late,
            patience,
            early,
            crash,
        } = self.luck;
        if patience != 2 {
            write!(f, " patience={patience}")?;
        }
        let luck = [
            ("lost", lost),
            ("twice", twice),
            ("late", late),
            ("early", early),
            ("crash", crash),
        ];
        for (name, times) in luck.iter().filter(|(_, times)| *times > 0) {
            write!(f, " {name}={times}")?;
        }
        if let Some(canary) = self.canary {
            write!(f, " canary={canary}")?;
        }
        writeln!(f)?;
        for (host, ops) in &self.threads {
            let ops: Vec<String> = ops.iter().map(Op::to_string).collect();
            writeln!(f, "thread n{} {}", host + 1, ops.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_written() {
        let text = "explore nodes=3 home=n2 pages=2 manager=fixed window=5 lost=1 crash=1 canary=lock-stolen\n\
                    thread n1 write 0, read 1\nthread n3 lock 4, unlock 4, watch 0, need 2, die\n";
        assert_eq!(Setting::parse(text).unwrap().to_string(), text);
        assert!(Setting::parse("explore nodes=2\nthread n3 read 0").is_err());
        assert!(Setting::parse("thread n1 dance").is_err());
    }
}
