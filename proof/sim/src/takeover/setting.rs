//! The setting of an exploration of takeovers.
//!
//! ```text
//! takeover die=1 pause=0 cut=0 promote=1 lost=1 late=1 twice=0 hasty=0
//! thread n3 create, stat
//! ```
//!
//! The first host coordinates and the second one is its standby. The third one is a member, too,
//! unless it begins with `join`.

use std::str::FromStr;

/// A step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    /// Its host asks for admission.
    Join,
    /// Creates the segment, which must not exist.
    Create,
    /// Looks whether there is such a segment, whose it is, and who may open it.
    Stat,
    /// Removes its name.
    Remove,
}

/// How often each thing may go wrong in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Luck {
    /// The coordinator dies.
    pub(super) die: u8,
    /// It stands still and goes on, any time later.
    pub(super) pause: u8,
    /// It is cut off from the standby, from the third host or from both, and back any time later.
    pub(super) cut: u8,
    /// The standby finds the coordinator silent, and is promoted, whatever is under way.
    pub(super) promote: u8,
    /// Datagrams that are never seen again.
    pub(super) lost: u8,
    /// Datagrams that come a second time, whenever.
    pub(super) twice: u8,
    /// Datagrams that are overtaken by all others, as long as they like.
    pub(super) late: u8,
    /// A node finds another one silent whose datagrams are under way.
    pub(super) hasty: u8,
    /// Repetitions that a late datagram outlasts.
    pub(super) patience: u8,
}

/// A mistake that is planted, and must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TakeoverMistake {
    /// Datagrams of an old coordinator are taken for those of a member in the present term.
    FenceIgnored,
    /// A member answers that it believes no older coordinator, and forgets it.
    PromiseForgotten,
    /// The standby acknowledges decisions, and forgets them.
    LogForgotten,
    /// The old coordinator takes no notice of newer terms, and of being put out.
    NewsIgnored,
}

impl TakeoverMistake {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::FenceIgnored,
        Self::PromiseForgotten,
        Self::LogForgotten,
        Self::NewsIgnored,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::FenceIgnored => "fence-ignored",
            Self::PromiseForgotten => "promise-forgotten",
            Self::LogForgotten => "log-forgotten",
            Self::NewsIgnored => "news-ignored",
        }
    }
}

impl FromStr for TakeoverMistake {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|known| known.name() == name);
        found.ok_or_else(|| format!("there is no mistake {name}"))
    }
}

/// A takeover to explore.
#[derive(Clone, Debug)]
pub struct TakeoverSetting {
    pub(super) luck: Luck,
    /// Host and program of each thread.
    pub(super) threads: Vec<(usize, Vec<Op>)>,
    pub(super) mistake: Option<TakeoverMistake>,
}

impl TakeoverSetting {
    /// Whether a text is a setting of this kind.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.lines().any(|line| line.starts_with("takeover "))
    }

    /// The same with a mistake planted.
    #[must_use]
    pub fn with(mut self, mistake: Option<TakeoverMistake>) -> Self {
        self.mistake = mistake.or(self.mistake);
        self
    }

    /// Reads a setting.
    ///
    /// # Errors
    /// Names the word that makes no sense.
    pub fn parse(text: &str) -> Result<Self, String> {
        let luck = Luck {
            promote: 1,
            patience: 1,
            ..Luck::default()
        };
        let mut setting = Self {
            luck,
            threads: Vec::new(),
            mistake: None,
        };
        for line in text.lines() {
            match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
                ("takeover", options) => setting.choose(options)?,
                ("thread", rest) => setting.threads.push(thread(rest)?),
                ("" | "#", _) => {}
                (other, _) => return Err(format!("a setting has no line '{other} ...'")),
            }
        }
        Ok(setting)
    }

    fn choose(&mut self, options: &str) -> Result<(), String> {
        for option in options.split_whitespace() {
            let parts = option.split_once('=');
            let (name, value) = parts.ok_or_else(|| format!("{option} is no option"))?;
            if name == "mistake" {
                self.mistake = Some(value.parse()?);
                continue;
            }
            let luck = &mut self.luck;
            let field = match name {
                "die" => &mut luck.die,
                "pause" => &mut luck.pause,
                "cut" => &mut luck.cut,
                "promote" => &mut luck.promote,
                "lost" => &mut luck.lost,
                "twice" => &mut luck.twice,
                "late" => &mut luck.late,
                "hasty" => &mut luck.hasty,
                "patience" => &mut luck.patience,
                _ => return Err(format!("a setting has no option {name}")),
            };
            let value = value.parse();
            *field = value.map_err(|_| format!("{option} has no number"))?;
        }
        Ok(())
    }
}

fn thread(text: &str) -> Result<(usize, Vec<Op>), String> {
    let (at, ops) = text.split_once(' ').unwrap_or((text, ""));
    let host = ["n1", "n2", "n3"].iter().position(|name| *name == at);
    let host = host.ok_or_else(|| format!("{at} is no node; there are n1, n2 and n3"))?;
    let ops = ops.split(',').map(str::trim).filter(|op| !op.is_empty());
    let ops = ops.map(|op| match op {
        "join" if host == 2 => Ok(Op::Join),
        "create" => Ok(Op::Create),
        "stat" => Ok(Op::Stat),
        "remove" => Ok(Op::Remove),
        _ => Err(format!("no thread of {at} can {op}")),
    });
    Ok((host, ops.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_nonsense_is_named() {
        let setting = TakeoverSetting::parse(
            "# A comment.\ntakeover die=1 late=2 mistake=log-forgotten\nthread n3 join, stat\n",
        )
        .unwrap();
        assert_eq!((setting.luck.die, setting.luck.late), (1, 2));
        assert_eq!(setting.mistake, Some(TakeoverMistake::LogForgotten));
        assert_eq!(setting.threads, [(2, vec![Op::Join, Op::Stat])]);
        for wrong in [
            "takeover die",
            "takeover die=x",
            "takeover fly=1",
            "takeover mistake=none",
            "thread n4 stat",
            "thread n2 join",
            "explore nodes=2",
        ] {
            assert!(TakeoverSetting::parse(wrong).is_err(), "{wrong}");
        }
    }
}
