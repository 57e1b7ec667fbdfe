//! `bench loss`: the cost of a bad network, beside TCP on the same one, in time and datagrams.

use super::Waiting;
use super::agent::Order;
use super::report::{Report, Samples};
use super::testbed::Testbed;
use anyhow::{Context, Result, ensure};
use clap::Args;
use pagemesh_cli::sandbox::Plan;
use std::process::Command;
use std::time::Duration;

/// What lost datagrams cost, beside a TCP stream that loses as many
#[derive(Args, Clone, Debug)]
pub(crate) struct Loss {
    /// MiB that are read
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    size: u32,
    /// Rounds, TCP and PageMesh in turn, after one to warm up
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// Lost of a thousand, in each direction.
const LOST: [u32; 4] = [0, 1, 10, 100];

/// How long datagrams may be under way.
const SETTLE: Duration = Duration::from_millis(50);

/// Pages touched here and there.
const RANDOM: u32 = 1000;

impl Loss {
    pub(super) fn measure(&self) -> Result<Report> {
        let mut report = Report::new("loss");
        for lost in LOST {
            let mut testbed = Testbed::raise(&Plan::new(2), Waiting::Spin)?;
            if let Err(why) = lose(&testbed, lost) {
                report.skip(format!("lost {lost} of 1000"), &why);
                continue;
            }
            self.stream(&mut testbed, lost, &mut report)?;
            faults(&mut testbed, lost, &mut report)?;
        }
        Ok(report)
    }

    /// Reads a segment from front to back.
    fn stream(&self, testbed: &mut Testbed, lost: u32, report: &mut Report) -> Result<()> {
        let (mut read, mut tcp) = <(Samples, Samples)>::default();
        let pages = self.size * 256;
        let mut datagrams = Datagrams::default();
        for round in 0..=self.rounds {
            let name = format!("bench.loss.{round}");
            testbed.open(&name, pages, None)?;
            testbed.ask(1, &Order::Walk { pages, write: true })?;
            tcp.extend(testbed.tcp(u64::from(pages) * 4096)?);
            let before = Datagrams::of(testbed)?;
            let write = false;
            read.extend(testbed.ask(0, &Order::Walk { pages, write })?);
            // Datagrams under way still arrive.
            std::thread::sleep(SETTLE);
            datagrams.add(&before, &Datagrams::of(testbed)?);
            testbed.remove(&name)?;
            if round == 0 {
                (read, tcp) = Default::default();
            }
        }
        let bytes = f64::from(pages) * 4096.0;
        let name = |what: &str| format!("{what}/{lost}_of_1000_lost");
        report.rate(name("read"), bytes, &read, Some(("tcp", &tcp)));
        let each = datagrams.sent as f64 / (f64::from(pages) * f64::from(self.rounds + 1));
        report.value(&name("datagrams_per_page"), "datagrams", each, read.len());
        if datagrams.missed > 0 {
            let n = datagrams.missed as usize;
            let missed = datagrams.missed as f64;
            let again = datagrams.again as f64 / missed;
            report.value(&name("asked_again_per_lost"), "pages", again, n);
        }
        Ok(())
    }
}

/// The counters of both daemons.
#[derive(Default)]
struct Datagrams {
    sent: u64,
    /// Sent and not received.
    missed: u64,
    /// Pages asked for again, and other resends. One datagram asks for many.
    again: u64,
}

impl Datagrams {
    fn of(testbed: &mut Testbed) -> Result<Self> {
        let counted = [testbed.counters(0)?, testbed.counters(1)?];
        let all = |name| counted.iter().map(|node| node.of(name)).sum::<u64>();
        let (sent, came) = (all("datagrams_out"), all("datagrams_in"));
        Ok(Self {
            sent,
            missed: sent.saturating_sub(came),
            again: all("repaired") + all("resent"),
        })
    }

    fn add(&mut self, before: &Self, after: &Self) {
        self.sent += after.sent - before.sent;
        self.missed += after.missed.saturating_sub(before.missed);
        self.again += after.again - before.again;
    }
}

/// Faults here and there, beside requests and replies of TCP.
fn faults(testbed: &mut Testbed, lost: u32, report: &mut Report) -> Result<()> {
    let name = format!("bench.loss.random.{lost}");
    testbed.open(&name, RANDOM, Some(0))?;
    let order = super::fault::shuffled(0..RANDOM, 3);
    testbed.touch(1, &order, true)?;
    let (mut read, mut tcp) = <(Samples, Samples)>::default();
    // A lost datagram stops TCP for 200 ms.
    let count = if lost < 100 { RANDOM } else { RANDOM / 5 };
    tcp.extend(testbed.tcp_exchange(count)?);
    read.extend(testbed.touch(0, &order, false)?);
    let name = format!("read_fault/{lost}_of_1000_lost");
    report.row(name, "spin", &read, Some(("tcp_exchange", &tcp)));
    Ok(())
}

/// Lets both nodes lose so many of a thousand packets that come in.
fn lose(testbed: &Testbed, lost: u32) -> Result<()> {
    if lost == 0 {
        return Ok(());
    }
    ensure!(
        testbed.isolated(),
        "nodes have no namespaces of their own here: packets of the whole host would be lost"
    );
    for node in 0..2 {
        drop_incoming(lost, || testbed.command(node, "tc"))?;
    }
    Ok(())
}

/// A program of the classic packet filter: draws a number, and drops (2) or lets pass (0).
fn filter(lost: u32) -> String {
    const RANDOM: u32 = 0xffff_f000 + 56;
    format!("5,32 0 0 {RANDOM},148 0 0 1000,53 0 1 {lost},6 0 0 0,6 0 0 2")
}

/// Makes a node drop so many of a thousand packets that come in. Segments of TCP or datagrams of a
/// burst that come together are one packet and are dropped together. `tc` is the tool on that node.
pub(super) fn drop_incoming(lost: u32, tc: impl Fn() -> Command) -> Result<()> {
    let filter = filter(lost);
    let steps: [&[&str]; 2] = [
        &["qdisc", "replace", "dev", "mesh0", "clsact"],
        &[
            "filter", "add", "dev", "mesh0", "ingress", "bpf", "da", "bytecode", &filter,
        ],
    ];
    steps.iter().try_for_each(|step| succeed(tc().args(*step)))
}

/// Runs a program to its end; what it complains of is the error.
pub(super) fn succeed(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let output = output
        .with_context(|| format!("no {name} (Debian has tc and ip in iproute2, cc in gcc)"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}", said.trim());
    Ok(())
}
