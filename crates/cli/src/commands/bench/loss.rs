//! `bench loss`: what a bad network costs, beside TCP's loss on the same one; and
//! whether a slow node gets its turns.

use super::Waiting;
use super::agent::Order;
use super::report::{Report, Samples};
use super::stage::Stage;
use crate::sandbox::Plan;
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::io::Write;
use std::process::Stdio;

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

/// Pages touched here and there.
const RANDOM: u32 = 1000;

/// How long nodes contend for a page, and what a slow one does between two stores.
const CONTEND_MILLIS: u64 = 1000;
const SLOW_NANOS: u64 = 50_000;

impl Loss {
    pub(super) fn measure(&self) -> Result<Report> {
        let mut report = Report::new("loss");
        for lost in LOST {
            let mut stage = Stage::raise(&Plan::new(2), Waiting::Spin)?;
            if let Err(why) = lose(&stage, lost) {
                report.skip(format!("lost {lost} of 1000"), &why);
                continue;
            }
            self.stream(&mut stage, lost, &mut report)?;
            faults(&mut stage, lost, &mut report)?;
        }
        turns(&mut report)?;
        Ok(report)
    }

    fn stream(&self, stage: &mut Stage, lost: u32, report: &mut Report) -> Result<()> {
        let (mut read, mut tcp) = <(Samples, Samples)>::default();
        let pages = self.size * 256;
        let (mut repaired, mut missed) = (0, 0);
        for round in 0..=self.rounds {
            let name = format!("bench.loss.{round}");
            stage.open(&name, pages, None)?;
            stage.ask(1, &Order::Walk { pages, write: true })?;
            tcp.extend(stage.tcp(u64::from(pages) * 4096)?);
            let before = [stage.counters(0)?, stage.counters(1)?];
            read.extend(stage.ask(
                0,
                &Order::Walk {
                    pages,
                    write: false,
                },
            )?);
            let after = [stage.counters(0)?, stage.counters(1)?];
            let more = |node: usize, name| after[node].of(name) - before[node].of(name);
            repaired += more(0, "repaired") + more(0, "resent");
            missed += more(1, "datagrams_out").saturating_sub(more(0, "datagrams_in"));
            stage.remove(&name)?;
            if round == 0 {
                (read, tcp) = Default::default();
            }
        }
        let bytes = f64::from(pages) * 4096.0;
        let name = |what: &str| format!("{what}/{lost}_of_1000_lost");
        report.rate(name("read"), bytes, &read, Some(("tcp", &tcp)));
        if missed > 0 {
            let each = repaired as f64 / missed as f64;
            report.value(
                &name("asked_again_per_lost"),
                "ratio",
                each,
                missed as usize,
            );
        }
        Ok(())
    }
}

/// Faults here and there, beside requests and replies of TCP.
fn faults(stage: &mut Stage, lost: u32, report: &mut Report) -> Result<()> {
    let name = format!("bench.loss.random.{lost}");
    stage.open(&name, RANDOM, Some(0))?;
    let order = super::fault::shuffled(0..RANDOM, 3);
    stage.touch(1, &order, true)?;
    let (mut read, mut tcp) = <(Samples, Samples)>::default();
    tcp.extend(stage.tcp_exchange(RANDOM)?);
    read.extend(stage.touch(0, &order, false)?);
    let name = format!("read_fault/{lost}_of_1000_lost");
    report.row(name, "spin", &read, None);
    report.row(
        format!("tcp_exchange/{lost}_of_1000_lost"),
        "spin",
        &tcp,
        None,
    );
    Ok(())
}

/// Lets both nodes lose so many of a thousand packets that come in.
fn lose(stage: &Stage, lost: u32) -> Result<()> {
    if lost == 0 {
        return Ok(());
    }
    let rule = format!(
        "table ip loss {{ chain i {{ type filter hook input priority 0; \
         numgen random mod 1000 < {lost} counter drop\n }}\n }}\n"
    );
    for node in 0..2 {
        let mut nft = stage.command(node, "nft");
        let nft = nft
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = nft.spawn().context("no nft (Debian: nftables)")?;
        let mut rules = child.stdin.take().context("no pipe to nft")?;
        rules.write_all(rule.as_bytes())?;
        drop(rules);
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "nft: {}", said.trim());
    }
    Ok(())
}

/// A node that is slow and one that is fast store to one page: who has it how often?
fn turns(report: &mut Report) -> Result<()> {
    let mut stage = Stage::raise(&Plan::new(3), Waiting::Spin)?;
    // Nodes 1 and 2 share a processor or have one each; neither is the home.
    stage.open("bench.turns", 1, None)?;
    for (node, pause_nanos) in [(1, SLOW_NANOS), (2, 0)] {
        let millis = CONTEND_MILLIS;
        stage.tell(
            node,
            &Order::Contend {
                millis,
                pause_nanos,
            },
        )?;
    }
    let mut turns = Vec::new();
    for node in 1..=2 {
        stage.hear(node)?;
        turns.push(stage.counters(node)?.of("ownerships_arrived") as f64);
    }
    let all: f64 = turns.iter().sum();
    report.value("turns_of_the_slow", "share", turns[0] / all, all as usize);
    Ok(())
}
