//! FR5: nodes that contend for one page: how many turns they have, what is sent again, and whether a
//! slow one gets its share.

use super::super::super::Effort;
use super::super::super::agent::Order;
use super::super::super::testbed::Testbed;
use super::super::super::turns::{SLOW, Slow};
use super::super::super::{ETHERNET_JUMBO, Waiting};
use super::super::figures::Figures;
use anyhow::{Result, ensure};

/// Nodes that contend, all alike.
pub(super) const NODES: [usize; 4] = [2, 4, 8, 12];

/// The counters of all nodes together.
#[derive(Clone, Copy, Default)]
struct Counts {
    turns: u64,
    sent: u64,
    again: u64,
}

/// The turns and messages of some time of contention.
struct Contended {
    /// Of each node.
    turns: Vec<u64>,
    counts: Counts,
}

pub(super) fn measure(operations: u32, document: &mut Figures) -> Result<()> {
    let millis = u64::from(operations / 50).clamp(500, 2000);
    document.put("contention ms", millis as f64);
    for nodes in NODES {
        let effort = Effort {
            count: 0,
            rounds: 0,
            waiting: None,
            latency: false,
            mtu: ETHERNET_JUMBO,
            only: None,
        };
        let mut testbed = Testbed::dealt(nodes, &effort, Waiting::Block)?;
        let contended = contend(&mut testbed, millis, |_| 0)?;
        let least = contended.turns.iter().min().copied().unwrap_or(0);
        let even = contended.counts.turns as f64 / nodes as f64;
        let mut put = |what, value| document.put(format!("contention {nodes} {what}"), value);
        contended.put(millis, &mut put);
        put("least share of even", least as f64 / even);
    }
    for slow in Slow::ALL {
        let mut testbed = slow.testbed()?;
        let _crowd = slow.crowd()?;
        let contended = contend(&mut testbed, millis, |node| slow.pause(node))?;
        let name = slow.name();
        let share = contended.turns[SLOW] as f64 / contended.counts.turns as f64;
        let mut put = |what, value| document.put(format!("contention {name} {what}"), value);
        contended.put(millis, &mut put);
        put("share of the slow", share);
    }
    Ok(())
}

impl Contended {
    fn put(&self, millis: u64, put: &mut impl FnMut(&'static str, f64)) {
        let turns = self.counts.turns as f64;
        put("turns/s", turns / (millis as f64 / 1000.0));
        put("datagrams", self.counts.sent as f64 / turns);
        put("again", self.counts.again as f64 / turns);
    }
}

fn counts(testbed: &mut Testbed) -> Result<(Vec<u64>, Counts)> {
    let (mut turns, mut all) = (Vec::new(), Counts::default());
    for node in 0..testbed.size() {
        let counted = testbed.counters(node)?;
        turns.push(counted.of("ownerships_arrived"));
        all.turns += counted.of("ownerships_arrived");
        all.sent += counted.of("datagrams_out");
        all.again += counted.of("resent");
    }
    Ok((turns, all))
}

/// All nodes at once; a turn is an arrival of the page.
fn contend(testbed: &mut Testbed, millis: u64, pause: impl Fn(usize) -> u64) -> Result<Contended> {
    // The window as it is by default: it is what shares the page.
    testbed.open("freebsd.contention", 1, None)?;
    let (before, start) = counts(testbed)?;
    for node in (0..testbed.size()).rev() {
        let pause_nanos = pause(node);
        testbed.tell(
            node,
            &Order::Contend {
                millis,
                pause_nanos,
            },
        )?;
    }
    (0..testbed.size()).try_for_each(|node| testbed.hear(node).map(drop))?;
    let (after, end) = counts(testbed)?;
    let counts = Counts {
        turns: end.turns - start.turns,
        sent: end.sent - start.sent,
        again: end.again - start.again,
    };
    ensure!(counts.turns > 0, "nobody had a turn at the page");
    Ok(Contended {
        turns: after
            .iter()
            .zip(before)
            .map(|(one, then)| one - then)
            .collect(),
        counts,
    })
}
