//! FR3, FR4: the copies of a page are taken back, by real nodes; F21, F22: by the messages alone of
//! both ways to do it.

use super::super::super::fault::{WINDOW, shuffled};
use super::super::super::report::Samples;
use super::super::super::testbed::Testbed;
use super::super::super::{ETHERNET_JUMBO, Effort, Waiting};
use super::super::figures::Figures;
use super::bounce::sent;
use anyhow::Result;
use pagemesh_cli::sandbox::Plan;
use std::time::Duration;

/// Copies that are taken back: those of the paper.
pub(super) const COPIES: std::ops::RangeInclusive<usize> = 2..=11;

/// Members beside the writer where most of them have no copy.
pub(super) const MEMBERS: usize = 11;

/// Copies of those.
pub(super) const FEW: usize = 2;

/// For use at one site; the nodes have a network of their own.
const GROUP: &str = "239.77.7.8:7452";

/// Daemons measure the multicast reach every second.
const TRIALS: Duration = Duration::from_millis(1500);

/// The effort, by how many operations were asked for.
fn count(operations: u32) -> u32 {
    (operations / 500).clamp(20, 200)
}

pub(super) fn measure(operations: u32, document: &mut Figures) -> Result<()> {
    let count = count(operations);
    document.put("copies operations", f64::from(count * ROUNDS));
    let nodes = COPIES.end() + 1;
    let mut testbed = Testbed::raise(&Plan::new(nodes), Waiting::Block)?;
    for copies in COPIES {
        for (name, owner) in [("writer", 1), ("owner", 0)] {
            let (took, datagrams) = taken_back(&mut testbed, copies, owner, count)?;
            document.put(format!("copies {copies} {name} us"), took);
            document.put(format!("copies {copies} {name} datagrams"), datagrams);
        }
    }
    drop(testbed);
    multicast(nodes, count, document)
}

/// Rounds that count, after one to warm up.
const ROUNDS: u32 = 3;

/// Node 0 stores to pages of which it has a copy and `copies` others have one, the owner's counted
/// unless it is node 0 itself. The median in microseconds, and the datagrams of a store.
fn taken_back(
    testbed: &mut Testbed,
    copies: usize,
    owner: usize,
    count: u32,
) -> Result<(f64, f64)> {
    let mut samples = Samples::default();
    let mut datagrams = Vec::new();
    for round in 0..=ROUNDS {
        let name = format!("freebsd.copies.{copies}.{owner}.{round}");
        testbed.open(&name, count, WINDOW)?;
        let pages = shuffled(0..count, round);
        testbed.touch(owner, &pages, true)?;
        for reader in (0..=copies).filter(|reader| *reader != owner) {
            testbed.touch(reader, &pages, false)?;
        }
        let before = sent(testbed)?;
        let times = testbed.touch(0, &pages, true)?;
        if round > 0 {
            datagrams.push((sent(testbed)? - before) as f64 / f64::from(count));
            samples.extend(times);
        }
        testbed.remove(&name)?;
    }
    datagrams.sort_by(f64::total_cmp);
    Ok((samples.median() / 1000.0, datagrams[datagrams.len() / 2]))
}

/// Plain sockets: the writer asks all members, as in the paper; or the owner, who asks the holders.
pub(super) fn ways(operations: u32, document: &mut Figures) -> Result<()> {
    let count = count(operations);
    let mut testbed = Testbed::raise(&Plan::new(COPIES.end() + 1), Waiting::Block)?;
    for copies in COPIES {
        let ways = [
            ("asks all", Some(copies)),
            ("by owner", None),
            ("asks members", Some(MEMBERS)),
        ];
        let mut samples = ways.map(|_| Samples::default());
        // In turn, with another one first each time.
        for turn in 0..ROUNDS as usize * ways.len() {
            let at = (turn + turn / ways.len()) % ways.len();
            testbed.raw_take_back(copies, ways[at].1, count, &mut samples[at])?;
        }
        for ((name, _), samples) in ways.iter().zip(&samples) {
            let mut put = |what: &str, nanos: f64| {
                document.put(format!("ways {copies} {name} {what} us"), nanos / 1000.0);
            };
            put("least", samples.least());
            put("median", samples.median());
        }
    }
    Ok(())
}

/// Datagrams where those that leave for several nodes at one moment leave as one.
fn multicast(nodes: usize, count: u32, document: &mut Figures) -> Result<()> {
    let effort = Effort {
        count,
        rounds: ROUNDS,
        waiting: Some(Waiting::Block),
        latency: false,
        mtu: ETHERNET_JUMBO,
        only: None,
    };
    let group = format!("--multicast={GROUP}");
    let mut testbed = Testbed::with(nodes, &effort, Waiting::Block, &[&group])?;
    std::thread::sleep(TRIALS);
    let copies = *COPIES.end();
    let (took, datagrams) = taken_back(&mut testbed, copies, 1, count)?;
    document.put(format!("copies {copies} multicast us"), took);
    document.put(format!("copies {copies} multicast datagrams"), datagrams);
    Ok(())
}

/// The line that fits the times best: its constant, its slope, and the correlation.
pub(super) fn line(points: &[(f64, f64)]) -> (f64, f64, f64) {
    let n = points.len() as f64;
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    let (x, y) = (sum(&|p| p.0) / n, sum(&|p| p.1) / n);
    let xy = sum(&|p| (p.0 - x) * (p.1 - y));
    let (xx, yy) = (sum(&|p| (p.0 - x).powi(2)), sum(&|p| (p.1 - y).powi(2)));
    let slope = xy / xx;
    (y - slope * x, slope, xy / (xx * yy).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found() {
        let points: Vec<_> = (2..=11)
            .map(|x| (f64::from(x), 1.3 + 0.4 * f64::from(x)))
            .collect();
        let (constant, slope, correlation) = line(&points);
        assert!((constant - 1.3).abs() < 1e-9 && (slope - 0.4).abs() < 1e-9);
        assert!((correlation - 1.0).abs() < 1e-9);
    }
}
