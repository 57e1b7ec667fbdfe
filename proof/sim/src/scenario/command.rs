//! The commands of transcripts.

use crate::network::{Meddling, Rule};
use crate::step::SegmentPlan;
use pagemesh_core::Rights;
use pagemesh_wire::peer::{Manager, Policy, Spread, Window};

/// A word of a page: `a:1.3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) segment: String,
    pub(crate) page: u32,
    pub(crate) word: usize,
}

/// A lock or barrier: `a/7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lockable {
    pub(crate) segment: String,
    pub(crate) number: u64,
}

/// An operation of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read { word: Word, expect: Option<u64> },
    Write { word: Word, value: u64 },
    Lock(Lockable),
    Watch(Word),
    Pin(Word),
    Unpin(Word),
    Hold(String),
    EndHold(String),
}

/// A condition that must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// Datagrams (of a kind) since the last command that was no expectation.
    Datagrams(usize, Option<String>),
    Rights(usize, Word, Rights),
    /// Number of threads that wait.
    Waiting(usize),
}

/// One line of a transcript.
#[derive(Debug)]
pub(crate) enum Command {
    Nodes(usize),
    /// The coordinator names a standby; before `nodes`.
    Standby,
    Promote(usize),
    Segment {
        plan: SegmentPlan,
        home: usize,
        /// Write notices that a node holds at most; policy `release`.
        notices: Option<u32>,
    },
    Operate(usize, Operation),
    Start(usize, Operation),
    Unlock(usize, Lockable),
    Barrier(Vec<usize>, Lockable),
    Meddle(Rule),
    Release,
    Cut(usize, usize, u64),
    Run(u64),
    Stabilize,
    Crash(usize),
    Leave(usize),
    Rights(Word),
    Expect(Expectation),
}

type Parsed<T> = Result<T, String>;

impl Command {
    /// The command that a line says.
    pub(crate) fn parse(line: &str) -> Parsed<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Ok(match words.as_slice() {
            ["nodes", count] => Self::Nodes(number(count)?),
            ["segment", name, options @ ..] => segment(name, options)?,
            ["start", rest @ ..] => {
                let (host, operation) = operation(rest)?;
                Self::Start(host, operation)
            }
            ["unlock", host, lock] => Self::Unlock(self::host(host)?, lockable(lock)?),
            ["barrier", hosts, barrier] => {
                let hosts: Parsed<Vec<usize>> = hosts.split(',').map(host).collect();
                Self::Barrier(hosts?, lockable(barrier)?)
            }
            [how @ ("drop" | "hold" | "twice"), path, kind, options @ ..]
                if path.contains("->") =>
            {
                meddle(how, path, kind, options)?
            }
            ["release"] => Self::Release,
            ["cut", path, length] => {
                let (from, to) = self::path(path)?;
                Self::Cut(from, to, nanos(length)?)
            }
            ["run", length] => Self::Run(nanos(length)?),
            ["stabilize"] => Self::Stabilize,
            ["crash", host] => Self::Crash(self::host(host)?),
            ["standby"] => Self::Standby,
            ["promote", host] => Self::Promote(self::host(host)?),
            ["leave", host] => Self::Leave(self::host(host)?),
            ["rights", page] => Self::Rights(word(page)?),
            ["expect", rest @ ..] => Self::Expect(expectation(rest)?),
            rest => {
                let (host, operation) = operation(rest)?;
                Self::Operate(host, operation)
            }
        })
    }
}

fn operation(words: &[&str]) -> Parsed<(usize, Operation)> {
    Ok(match words {
        ["read", host, at] => (
            self::host(host)?,
            Operation::Read {
                word: word(at)?,
                expect: None,
            },
        ),
        ["read", host, at, "expect", value] => {
            let expect = Some(number(value)?);
            (
                self::host(host)?,
                Operation::Read {
                    word: word(at)?,
                    expect,
                },
            )
        }
        ["write", host, at, value] => (
            self::host(host)?,
            Operation::Write {
                word: word(at)?,
                value: number(value)?,
            },
        ),
        ["lock", host, lock] => (self::host(host)?, Operation::Lock(lockable(lock)?)),
        ["watch", host, page] => (self::host(host)?, Operation::Watch(word(page)?)),
        ["pin", host, page] => (self::host(host)?, Operation::Pin(word(page)?)),
        ["hold", host, name] => (self::host(host)?, Operation::Hold((*name).to_owned())),
        ["endhold", host, name] => (self::host(host)?, Operation::EndHold((*name).to_owned())),
        ["unpin", host, page] => (self::host(host)?, Operation::Unpin(word(page)?)),
        _ => return Err(format!("no such command: {}", words.join(" "))),
    })
}

fn expectation(words: &[&str]) -> Parsed<Expectation> {
    Ok(match words {
        ["datagrams", count] => Expectation::Datagrams(number(count)?, None),
        ["datagrams", count, kind] => {
            Expectation::Datagrams(number(count)?, Some((*kind).to_owned()))
        }
        ["rights", host, page, rights] => {
            let rights = match *rights {
                "none" => Rights::None,
                "read" => Rights::Read,
                "write" => Rights::Write,
                other => return Err(format!("rights are none, read or write, not {other}")),
            };
            Expectation::Rights(self::host(host)?, word(page)?, rights)
        }
        ["waiting", count] => Expectation::Waiting(number(count)?),
        _ => return Err(format!("nothing one can expect: {}", words.join(" "))),
    })
}

fn segment(name: &str, options: &[&str]) -> Parsed<Command> {
    let (mut pages, mut home) = (1, 0);
    let (mut manager, mut window) = (Manager::Dynamic, Window::Nanos(0));
    let (mut spread, mut notices) = (None, None);
    for option in options {
        match option.split_once('=') {
            Some(("pages", count)) => pages = number(count)?,
            Some(("home", node)) => home = host(node)?,
            Some(("manager", "fixed")) => manager = Manager::Fixed,
            Some(("manager", "dynamic")) => manager = Manager::Dynamic,
            Some(("window", "auto")) => window = Window::Auto,
            Some(("window", length)) => window = Window::Nanos(nanos(length)?),
            Some(("policy", "release")) => spread = Some(Spread::Lazy),
            Some(("policy", "release-eager")) => spread = Some(Spread::Eager),
            Some(("policy", "release-hybrid")) => spread = Some(Spread::Hybrid),
            Some(("policy", "release-invalidate")) => spread = Some(Spread::Invalidate),
            Some(("notices", count)) => notices = Some(number(count)?),
            _ => return Err(format!("no such option: {option}")),
        }
    }
    let policy = match spread {
        Some(spread) => Policy::Release { spread },
        None => Policy::Sequential { manager, window },
    };
    let plan = SegmentPlan {
        name: name.to_owned(),
        pages,
        policy,
        replicas: 0,
    };
    Ok(Command::Segment {
        plan,
        home,
        notices,
    })
}

fn meddle(how: &str, path: &str, kind: &str, options: &[&str]) -> Parsed<Command> {
    let (from, to) = self::path(path)?;
    let times = match options {
        [] => 1,
        [times] => number(
            times
                .strip_prefix("times=")
                .ok_or("only times=N goes here")?,
        )?,
        _ => return Err("only times=N goes here".into()),
    };
    let then = match how {
        "drop" => Meddling::Drop,
        "hold" => Meddling::Hold,
        _ => Meddling::Twice,
    };
    let kind = (kind != "any").then(|| kind.to_owned());
    Ok(Command::Meddle(Rule {
        from,
        to,
        kind,
        then,
        times,
    }))
}

fn number<T: std::str::FromStr>(text: &str) -> Parsed<T> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// `n3` is the third host.
fn host(text: &str) -> Parsed<usize> {
    let place = text
        .strip_prefix('n')
        .and_then(|place| place.parse::<usize>().ok());
    place
        .and_then(|place| place.checked_sub(1))
        .ok_or_else(|| format!("{text} is no node"))
}

fn path(text: &str) -> Parsed<(usize, usize)> {
    let (from, to) = text
        .split_once("->")
        .ok_or_else(|| format!("{text} is no path nX->nY"))?;
    Ok((host(from)?, host(to)?))
}

fn word(text: &str) -> Parsed<Word> {
    let (segment, rest) = text
        .split_once(':')
        .ok_or_else(|| format!("{text} is no page"))?;
    let (page, word) = rest.split_once('.').unwrap_or((rest, "0"));
    Ok(Word {
        segment: segment.to_owned(),
        page: number(page)?,
        word: number(word)?,
    })
}

fn lockable(text: &str) -> Parsed<Lockable> {
    let (segment, number) = text
        .split_once('/')
        .ok_or_else(|| format!("{text} is no lock"))?;
    Ok(Lockable {
        segment: segment.to_owned(),
        number: self::number(number)?,
    })
}

fn nanos(text: &str) -> Parsed<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1_000,
        "ns" | "" => 1,
        other => return Err(format!("{other} is no unit of time")),
    };
    Ok(number::<u64>(digits)? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_parse() {
        assert!(matches!(Command::parse("nodes 3"), Ok(Command::Nodes(3))));
        let Ok(Command::Operate(1, Operation::Write { word, value: 7 })) =
            Command::parse("write n2 a:1.3 7")
        else {
            panic!("a write")
        };
        assert_eq!(
            word,
            Word {
                segment: "a".into(),
                page: 1,
                word: 3
            }
        );
        assert!(matches!(
            Command::parse("cut n1->n2 5ms"),
            Ok(Command::Cut(0, 1, 5_000_000))
        ));
        let Ok(Command::Meddle(rule)) = Command::parse("drop n1->n3 Data times=2") else {
            panic!("a rule")
        };
        assert_eq!((rule.from, rule.to, rule.times), (0, 2, 2));
        assert!(Command::parse("dance n1").is_err());
        assert!(Command::parse("read 1 a:1").is_err());
        assert!(Command::parse("segment a color=red").is_err());
    }
}
