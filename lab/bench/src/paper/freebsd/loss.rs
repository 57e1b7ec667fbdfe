//! FR6: nodes on a network that loses, doubles and reorders datagrams have one memory, and what that
//! takes. The impairment is that of the sandbox: between the daemons' seals and their sockets.

use super::super::super::Waiting;
use super::super::super::agent::Order;
use super::super::super::fault::{WINDOW, shuffled};
use super::super::super::report::Samples;
use super::super::super::testbed::Testbed;
use super::super::figures::Figures;
use super::bounce::sent;
use anyhow::{Context, Result};
use pagemesh_cli::sandbox::Plan;

/// Networks, by the names of their figures.
pub(super) const NETWORKS: [&str; 7] = [
    "loss=0%",
    "loss=1%",
    "loss=5%",
    "loss=10%",
    "dup=5%",
    "reorder=10%",
    "loss=10%,dup=5%,reorder=10%",
];

/// Nodes that add to the same words.
pub(super) const NODES: usize = 4;

/// Words, each in a page of its own.
const PAGES: u32 = 50;

/// Times that each node adds to each word, at most.
const TIMES: u32 = 20;

pub(super) fn measure(operations: u32, document: &mut Figures) -> Result<()> {
    let count = (operations / 100).clamp(50, 1000);
    let times = (operations / 1000).clamp(2, TIMES);
    for network in NETWORKS {
        let mut plan = Plan::new(NODES);
        plan.impair = network.parse().context("an impairment")?;
        let mut testbed = Testbed::raise(&plan, Waiting::Block)?;
        alone(&mut testbed, network, count, document)?;
        together(&mut testbed, network, times, document)?;
    }
    Ok(())
}

fn resent(testbed: &mut Testbed) -> Result<u64> {
    let mut all = 0;
    for node in 0..testbed.size() {
        all += testbed.counters(node)?.of("resent");
    }
    Ok(all)
}

/// Reads and writes without contention, and what is sent again for each.
fn alone(testbed: &mut Testbed, network: &str, count: u32, document: &mut Figures) -> Result<()> {
    testbed.open("freebsd.alone", count, WINDOW)?;
    testbed.ask(0, &Order::Random)?;
    let pages = shuffled(0..count, 1);
    testbed.touch(1, &pages, true)?;
    for (name, is_store) in [("read", false), ("write", true)] {
        let (before, again) = (sent(testbed)?, resent(testbed)?);
        let mut samples = Samples::default();
        samples.extend(testbed.touch(0, &pages, is_store)?);
        let again = (resent(testbed)? - again) as f64 / f64::from(count);
        let all = (sent(testbed)? - before) as f64 / f64::from(count) + again;
        let mut put = |what, value| document.put(format!("loss {network} {name} {what}"), value);
        put("median us", samples.median() / 1000.0);
        put("mean us", samples.mean() / 1000.0);
        put("datagrams", all);
        put("again", again);
    }
    testbed.remove("freebsd.alone")
}

/// All nodes add to all words at once; a word that has not the sum in the end is wrong.
fn together(
    testbed: &mut Testbed,
    network: &str,
    times: u32,
    document: &mut Figures,
) -> Result<()> {
    testbed.open("freebsd.together", PAGES, None)?;
    for node in 0..NODES {
        let pages = (0..times)
            .flat_map(|time| shuffled(0..PAGES, time * 7 + node as u32))
            .collect();
        testbed.tell(node, &Order::Add { pages })?;
    }
    let mut samples = Samples::default();
    for node in 0..NODES {
        samples.extend(testbed.hear(node)?);
    }
    let due = u64::from(times) * NODES as u64;
    let mut wrong = 0;
    for node in 0..NODES {
        let words = testbed.ask(
            node,
            &Order::Words {
                pages: (0..PAGES).collect(),
            },
        )?;
        wrong += words.iter().filter(|word| **word != due).count();
    }
    let mut put = |what, value| document.put(format!("loss {network} {what}"), value);
    put("additions", samples.len() as f64);
    put("wrong words", wrong as f64);
    testbed.remove("freebsd.together")
}
