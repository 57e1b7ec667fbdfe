//! The setting of an exploration: a small cluster, a short program for each thread, and how often
//! each failure may happen.
//!
//! ```text
//! explore nodes=2 home=n1 pages=1 manager=dynamic window=0 lost=1 twice=1 late=1
//! thread n1 write 0, read 0
//! thread n2 lock 1, write 0, unlock 1
//! ```

use crate::canary::Canary;
use crate::golden::WORDS;
use crate::step::SegmentPlan;
use pagemesh_wire::peer::{Manager, Policy, Spread, Window};
use std::collections::BTreeSet;
use std::fmt;

/// An operation of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// Loads a word of a page.
    Read(u32, u8),
    /// Stores a word of a page.
    Write(u32, u8),
    /// Takes a lock.
    Lock(u64),
    /// Gives it back.
    Unlock(u64),
    /// Asks to be told before the page changes, and goes on.
    Watch(u32),
    /// Announces that it will need this many pages, from the first on.
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
    /// Of the segment.
    pub(super) replicas: u8,
    /// Kernels serve the accesses to the segment while only its home has used it.
    pub(super) traps_late: bool,
    /// Write notices a host may hold before it is time to collect.
    pub(super) notices: u32,
    pub(super) luck: Luck,
    /// Host and program of each thread.
    pub(super) threads: Vec<(usize, Vec<Op>)>,
    pub(super) canary: Option<Canary>,
}

impl Setting {
    /// Reads a setting.
    ///
    /// # Errors
    /// Names the word that makes no sense.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut setting = Self {
            nodes: 2,
            home: 0,
            pages: 1,
            policy: Policy::Sequential {
                manager: Manager::Dynamic,
                window: Window::Nanos(0),
            },
            replicas: 0,
            traps_late: false,
            notices: u32::MAX,
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
        let (mut manager, mut window) = self.policy.sequential().unwrap_or_default();
        let mut spread = None;
        for option in options.split_whitespace() {
            let (name, value) = option
                .split_once('=')
                .ok_or_else(|| format!("{option} is no option"))?;
            match name {
                "nodes" => self.nodes = number(value)?,
                "home" => self.home = host(value)?,
                "pages" => self.pages = number(value)?,
                "manager" if value == "fixed" => manager = Manager::Fixed,
                "manager" => manager = Manager::Dynamic,
                "window" => window = Window::Nanos(number(value)?),
                "policy" => spread = Some(policy(value)?),
                "replicas" => self.replicas = number(value)?,
                "notices" => self.notices = number(value)?,
                "traps" => self.traps_late = value == "late",
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
        let sequential = Policy::Sequential { manager, window };
        self.policy = spread.map_or(sequential, |spread| Policy::Release { spread });
        Ok(())
    }

    /// True if loads after a crash are checked against the stores that may be lost.
    pub(super) fn leaves_remains(&self) -> bool {
        matches!(self.policy, Policy::Release { .. }) && self.luck.crash > 0
    }

    /// True if loads after a crash are checked against the instants that a dead host may have left.
    pub(super) fn leaves_instants(&self) -> bool {
        self.policy.sequential().is_some() && self.replicas > 0 && self.luck.crash > 0
    }

    /// Whether hosts vanish while or after something is collected.
    pub(super) fn loses_what_is_collected(&self) -> bool {
        self.leaves_remains() && self.notices != u32::MAX
    }

    /// Pages asked for ahead at most: none unless a thread asks for some.
    pub(super) fn ahead(&self) -> u32 {
        let mut ops = self.threads.iter().flat_map(|(_, ops)| ops);
        let needs = ops.any(|op| matches!(op, Op::Need(_)));
        if needs { self.pages } else { 0 }
    }

    /// The last operations of every thread on a host: looks at every word that was stored, with the
    /// lock in hand if there is one.
    pub(super) fn look_around(&self) -> Vec<Op> {
        let ops = || self.threads.iter().flat_map(|(_, ops)| ops);
        let lock = ops().find_map(|op| match op {
            Op::Lock(lock) => Some(*lock),
            _ => None,
        });
        let lock = lock.filter(|_| matches!(self.policy, Policy::Release { .. }));
        let stored: BTreeSet<_> = ops()
            .filter_map(|op| match op {
                Op::Write(page, word) if *word > 0 => Some((*page, *word)),
                _ => None,
            })
            .collect();
        let first = (0..self.pages).map(|page| (page, 0));
        let reads = first.chain(stored).map(|(page, word)| Op::Read(page, word));
        let begin = lock.map(Op::Lock).into_iter();
        begin.chain(reads).chain(lock.map(Op::Unlock)).collect()
    }

    pub(super) fn segment(&self) -> SegmentPlan {
        SegmentPlan {
            name: "a".into(),
            pages: self.pages,
            policy: self.policy,
            replicas: self.replicas,
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

fn policy(text: &str) -> Result<Spread, String> {
    match text {
        "release" => Ok(Spread::Lazy),
        "eager" => Ok(Spread::Eager),
        "hybrid" => Ok(Spread::Hybrid),
        "invalidate" => Ok(Spread::Invalidate),
        _ => Err(format!("{text} is no policy")),
    }
}

/// `3` is the first word of a page, `3.2` its third.
fn place(text: &str) -> Result<(u32, u8), String> {
    let (page, word) = text.split_once('.').unwrap_or((text, "0"));
    let word = number(word)?;
    if usize::from(word) >= WORDS {
        return Err(format!("a page has {WORDS} words"));
    }
    Ok((number(page)?, word))
}

fn op(text: &str) -> Result<Op, String> {
    Ok(match text.split_once(' ').unwrap_or((text, "")) {
        ("read", at) => place(at).map(|(page, word)| Op::Read(page, word))?,
        ("write", at) => place(at).map(|(page, word)| Op::Write(page, word))?,
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
            Self::Read(page, 0) => write!(f, "read {page}"),
            Self::Write(page, 0) => write!(f, "write {page}"),
            Self::Read(page, word) => write!(f, "read {page}.{word}"),
            Self::Write(page, word) => write!(f, "write {page}.{word}"),
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
        let (nodes, home, pages) = (self.nodes, self.home + 1, self.pages);
        write!(f, "explore nodes={nodes} home=n{home} pages={pages}")?;
        f.write_str(match self.policy {
            Policy::Sequential { manager, .. } => match manager {
                Manager::Fixed => " manager=fixed",
                Manager::Dynamic => " manager=dynamic",
            },
            Policy::Release { spread } => match spread {
                Spread::Lazy => " policy=release",
                Spread::Eager => " policy=eager",
                Spread::Hybrid => " policy=hybrid",
                Spread::Invalidate => " policy=invalidate",
            },
            Policy::Views { .. } => " policy=views",
            Policy::Private { .. } | Policy::Files | Policy::Numbered(_) => {
                unreachable!("nothing that is read has such a policy")
            }
        })?;
        if let Some((_, Window::Nanos(nanos @ 1..))) = self.policy.sequential() {
            write!(f, " window={nanos}")?;
        }
        if self.replicas > 0 {
            write!(f, " replicas={}", self.replicas)?;
        }
        if self.traps_late {
            f.write_str(" traps=late")?;
        }
        if self.notices != u32::MAX {
            write!(f, " notices={}", self.notices)?;
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
        let text = "explore nodes=2 home=n1 pages=1 policy=eager replicas=1 notices=3 lost=1\n\
                    thread n1 write 0.2, read 0\n";
        let setting = Setting::parse(text).unwrap();
        assert_eq!(setting.to_string(), text);
        assert_eq!(setting.look_around(), [Op::Read(0, 0), Op::Read(0, 2)]);
        assert!(Setting::parse("thread n1 read 0.8").is_err());
        let vanishes = Setting::parse("explore policy=release crash=1 notices=1");
        assert!(vanishes.is_ok_and(|setting| setting.loses_what_is_collected()));
        assert!(Setting::parse("explore nodes=2\nthread n3 read 0").is_err());
        assert!(Setting::parse("thread n1 dance").is_err());
    }
}
