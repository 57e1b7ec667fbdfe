//! `cargo xtask replay FILE`: the contents of a flight recorder, a line a transition.

use anyhow::{Context as _, Result, bail};
use pagemesh_core::{Effect, Input, Time};
use pagemesh_recorder::{Dump, Transition, Verdict};
use pagemesh_wire::PageIndex;
use pagemesh_wire::peer::Message;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

/// How to read it.
const LEGEND: &str = "\
time, then what happened and what was done about it:
  <- a datagram arrived       ! a thread faulted          . a deadline came
  -> a datagram left          e an event                  others by their names";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A file of `pagemesh debug dump`, or one that a broken daemon left.
    file: PathBuf,
    /// Only what happened so many seconds before the end, or later.
    #[arg(long, value_name = "SECONDS")]
    last: Option<f64>,
    /// Only from this time on, in microseconds as printed.
    #[arg(long, value_name = "MICROSECONDS")]
    from: Option<f64>,
    /// Only up to this time.
    #[arg(long, value_name = "MICROSECONDS")]
    to: Option<f64>,
    /// Only what names this page.
    #[arg(long)]
    page: Option<u32>,
    /// Only lines with this text.
    #[arg(long, value_name = "TEXT")]
    find: Option<String>,
    /// Only whether the same state comes out.
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let name = arguments.file.display();
    let bytes = std::fs::read(&arguments.file).with_context(|| format!("cannot read {name}"))?;
    let dump = Dump::from_bytes(&bytes).with_context(|| name.to_string())?;
    let mut out = BufWriter::new(io::stdout().lock());
    if !arguments.quiet {
        writeln!(out, "{LEGEND}\n")?;
    }
    let filter = Filter::new(arguments, &dump)?;
    let (mut transitions, mut written) = (0_u64, Ok(()));
    let verdict = dump.replay(|transition| {
        transitions += 1;
        if written.is_ok() && !arguments.quiet {
            written = filter.print(transition, &mut out);
        }
    })?;
    match written.and_then(|()| out.flush()) {
        // The reader closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
        other => other?,
    }
    drop(out);
    eprintln!(
        "{transitions} transitions, version {}, build {:x}; saved because: {}; {} effects of the \
         last input were carried out",
        dump.version, dump.fingerprint, dump.why, dump.done
    );
    conclude(verdict)
}

fn conclude(verdict: Verdict) -> Result<()> {
    match verdict {
        Verdict::Same(digest) => eprintln!("the same state as was dumped: {digest:016x}"),
        Verdict::Unknown(digest) => {
            eprintln!("state {digest:016x}; the broken daemon did not say its own");
        }
        Verdict::Damaged(damage) => bail!("it ends here: {damage}"),
        Verdict::SnapshotDiffers => bail!("the first log does not lead to the second snapshot"),
        Verdict::Different { dumped, replayed } => bail!(
            "state {replayed:016x}, but {dumped:016x} was dumped: something was not recorded, or \
             the node is not deterministic"
        ),
    }
    Ok(())
}

/// Which transitions to print.
struct Filter {
    from: Time,
    to: Time,
    texts: Vec<String>,
}

impl Filter {
    fn new(arguments: &Arguments, dump: &Dump) -> Result<Self> {
        let time = |micros: f64| Time((micros * 1e3) as u64);
        let mut from = arguments.from.map_or(Time::ZERO, time);
        if let Some(seconds) = arguments.last {
            let mut end = Time::ZERO;
            dump.replay(|transition| end = transition.now)?;
            from = from.max(Time(end.0.saturating_sub((seconds * 1e9) as u64)));
        }
        let page = arguments.page.map(|page| format!("{:?}", PageIndex(page)));
        Ok(Self {
            from,
            to: arguments.to.map_or(Time(u64::MAX), time),
            texts: page.into_iter().chain(arguments.find.clone()).collect(),
        })
    }

    fn print(&self, transition: &Transition<'_>, out: &mut impl Write) -> io::Result<()> {
        if transition.now < self.from || transition.now > self.to {
            return Ok(());
        }
        let line = line(transition);
        if self.texts.iter().all(|text| line.contains(text)) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

fn line(transition: &Transition<'_>) -> String {
    let Time(nanos) = transition.now;
    let mut line = format!("{:>12}.{:03} ", nanos / 1000, nanos % 1000);
    line.push_str(&input(transition.input));
    for (index, effect) in transition.effects.iter().enumerate() {
        line.push_str(if index == 0 { " => " } else { "; " });
        line.push_str(&done(effect));
    }
    line
}

fn input(input: &Input<'_>) -> String {
    match input {
        Input::Datagram { source, bytes, .. } => match Message::decode(bytes) {
            Ok((header, message, _)) => format!("<- {} {message:?}", header.from),
            Err(error) => format!("<- {source} {} bytes: {error}", bytes.len()),
        },
        Input::Fault {
            mapping,
            page,
            access,
        } => format!("! {mapping} {page:?} {access:?}"),
        Input::Faults { mapping, faults } => format!("! {mapping} {faults:?}"),
        Input::Deadline => ".".to_owned(),
        other => format!("{other:?}"),
    }
}

fn done(effect: &Effect) -> String {
    match effect {
        Effect::Send {
            header, message, ..
        } => format!("-> {} {message:?}", header.to),
        Effect::Emit(event) => format!("e {event:?}"),
        other => format!("{other:?}"),
    }
}
