//! The setting of an exploration of policy `views`.
//!
//! ```text
//! views nodes=3 home=n1 lost=1 late=1 twice=0 crash=0 early=0 renew=0 replicas=0
//! thread n1 store, publish
//! thread n2 look, purge, look
//! ```

use core::fmt;

/// A step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    /// Stores the next value to the consistent copy.
    Store,
    /// Loads from the consistent copy.
    Load,
    /// Loads the whole page of a demand-driven inconsistent view.
    Look,
    /// Loads from the prefix, demand-driven.
    Glance,
    /// Loads from the prefix, data-driven.
    Await,
    /// Purges the page; only its prefix, if so.
    Purge(bool),
    /// Publishes the page; only its prefix, if so.
    Publish(bool),
}

const OPS: [(&str, Op); 9] = [
    ("store", Op::Store),
    ("load", Op::Load),
    ("look", Op::Look),
    ("glance", Op::Glance),
    ("await", Op::Await),
    ("purge", Op::Purge(false)),
    ("purge-short", Op::Purge(true)),
    ("publish", Op::Publish(false)),
    ("publish-short", Op::Publish(true)),
];

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = OPS.iter().find(|(_, op)| op == self).map(|(name, _)| name);
        f.write_str(name.unwrap_or(&"?"))
    }
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
    /// Hosts that vanish; never the first.
    pub(super) crash: u8,
    /// Clocks that run ahead while datagrams are under way.
    pub(super) early: u8,
    /// Repetitions that a late datagram outlasts.
    pub(super) patience: u8,
}

/// A cluster to explore.
#[derive(Clone, Debug)]
pub struct ViewsSetting {
    pub(super) nodes: usize,
    pub(super) home: usize,
    pub(super) luck: Luck,
    /// The programs take zeros for lost pages.
    pub(super) renews: bool,
    /// Of the segment; publications wait for them.
    pub(super) replicas: u8,
    /// Host and program of each thread.
    pub(super) threads: Vec<(usize, Vec<Op>)>,
}

impl ViewsSetting {
    /// Whether a text is a setting of this kind.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.lines().any(|line| line.starts_with("views "))
    }

    /// Reads a setting.
    ///
    /// # Errors
    /// Names the word that makes no sense.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut setting = Self {
            nodes: 3,
            home: 0,
            luck: Luck {
                patience: 2,
                ..Luck::default()
            },
            renews: false,
            replicas: 0,
            threads: Vec::new(),
        };
        for line in text.lines() {
            match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
                ("views", options) => setting.choose(options)?,
                ("thread", rest) => setting.threads.push(thread(rest)?),
                ("" | "#", _) => {}
                (other, _) => return Err(format!("a setting has no line '{other} ...'")),
            }
        }
        let nodes = setting.nodes;
        let outside = |(host, _): &(usize, Vec<Op>)| *host >= nodes;
        if nodes > 4 || setting.home >= nodes || setting.threads.iter().any(outside) {
            return Err(format!(
                "there are only {nodes} nodes, and never more than 4"
            ));
        }
        Ok(setting)
    }

    fn choose(&mut self, options: &str) -> Result<(), String> {
        for option in options.split_whitespace() {
            let (name, value) = option
                .split_once('=')
                .ok_or_else(|| format!("{option} is no option"))?;
            if name == "home" {
                self.home = host(value)?;
                continue;
            }
            let value = value
                .parse::<u8>()
                .map_err(|_| format!("{value} is no number"))?;
            match name {
                "nodes" => self.nodes = usize::from(value),
                "lost" => self.luck.lost = value,
                "twice" => self.luck.twice = value,
                "late" => self.luck.late = value,
                "crash" => self.luck.crash = value,
                "early" => self.luck.early = value,
                "renew" => self.renews = value > 0,
                "replicas" => self.replicas = value,
                "patience" => self.luck.patience = value,
                _ => return Err(format!("a setting has no option {name}")),
            }
        }
        Ok(())
    }
}

fn thread(text: &str) -> Result<(usize, Vec<Op>), String> {
    let (at, ops) = text.split_once(' ').unwrap_or((text, ""));
    let ops = ops.split(',').map(str::trim).filter(|op| !op.is_empty());
    let op = |name: &str| {
        let known = OPS.iter().find(|(known, _)| *known == name);
        known
            .map(|(_, op)| *op)
            .ok_or_else(|| format!("no thread can {name}"))
    };
    Ok((host(at)?, ops.map(op).collect::<Result<_, _>>()?))
}

fn host(text: &str) -> Result<usize, String> {
    let number = text.strip_prefix('n').and_then(|text| text.parse().ok());
    let host = number.and_then(|number: usize| number.checked_sub(1));
    host.ok_or_else(|| format!("{text} is no node; n1 is the first"))
}
