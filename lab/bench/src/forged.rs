//! `bench forged`: how many forged datagrams a second a daemon survives, that is,
//! while good faults stay under twice their idle latency.

use super::agent::Order;
use super::fault::shuffled;
use super::report::{Report, Samples};
use super::testbed::Testbed;
use super::{Effort, Waiting};
use anyhow::{Context, Result};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Forged datagrams a second, as asked for.
const RATES: [u32; 8] = [
    1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 400_000,
];

/// The node that asks, the owner of the pages, and the forger.
const READER: usize = 0;
const OWNER: usize = 1;
const FORGER: usize = 2;

/// How long a flood lasts, and how long before faults begin.
const FLOOD: Duration = Duration::from_millis(500);
const LEAD: Duration = Duration::from_millis(50);

/// Datagrams are forged in bursts, one in this time.
const BEAT: Duration = Duration::from_micros(500);

/// The longest forged datagram.
const LONGEST: usize = 128;

/// Rounds of one rate, with and without a flood in turn.
const ROUNDS: u32 = 3;

pub(super) fn measure(effort: &Effort, waiting: Waiting, report: &mut Report) -> Result<()> {
    let mut testbed = Testbed::sealed(3, effort, waiting)?;
    let count = effort.count.min(1000);
    let pages = prepare(&mut testbed, "warm", count)?;
    testbed.touch(READER, &pages, false)?;
    let (mut survived, mut drowned) = (0.0_f64, false);
    for rate in RATES {
        let (mut idle, mut flooded) = <(Samples, Samples)>::default();
        let mut sent = 0;
        for round in 0..effort.rounds.min(ROUNDS) {
            let pages = prepare(&mut testbed, &format!("idle{rate}.{round}"), count)?;
            idle.extend(testbed.touch(READER, &pages, false)?);
            let pages = prepare(&mut testbed, &format!("at{rate}.{round}"), count)?;
            let to = testbed.address(READER);
            testbed.tell(FORGER, &Order::Forge { to, rate })?;
            std::thread::sleep(LEAD);
            flooded.extend(testbed.touch(READER, &pages, false)?);
            sent += testbed.hear(FORGER)?.first().copied().unwrap_or(0);
        }
        let name = format!("read_fault_forged_{rate}");
        let idle = Some(("read_fault_idle", &idle));
        let ratio = report.row(name, waiting.name(), &flooded, idle);
        drowned |= ratio >= 2.0;
        if !drowned {
            let seconds = FLOOD.as_secs_f64() * f64::from(effort.rounds.min(ROUNDS));
            survived = survived.max(sent as f64 / seconds);
        }
    }
    report.value("forged_survived", "datagrams/s", survived, 1);
    report.waited(waiting.name());
    Ok(())
}

/// Pages that the owner has written, for the reader to read. All nodes open their segment, so it
/// must be done before the flood.
fn prepare(testbed: &mut Testbed, name: &str, count: u32) -> Result<Vec<u32>> {
    let pages = shuffled(0..count, 1);
    testbed.open(&format!("bench.forged.{name}"), count, Some(0))?;
    testbed.touch(OWNER, &pages, true)?;
    Ok(pages)
}

/// Sends so many a second that pretend to be sealed: every kind of frame, the
/// rest of it made up. Returns how many left.
pub(super) fn forge(to: SocketAddr, rate: u32) -> Result<Vec<u64>> {
    let socket = UdpSocket::bind("0.0.0.0:0").context("cannot bind a socket to forge from")?;
    let start = Instant::now();
    let (mut sent, mut dice) = (0_u64, 0x9e37_79b9_7f4a_7c15_u64);
    while start.elapsed() < FLOOD {
        let due = start.elapsed().as_secs_f64() * f64::from(rate);
        while (sent as f64) < due && start.elapsed() < FLOOD {
            let mut bytes = [0; LONGEST];
            for eight in bytes.chunks_exact_mut(8) {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                eight.copy_from_slice(&dice.to_le_bytes());
            }
            // The first bytes of a datagram sealed by `pagemesh_seal`: mark, version, kind.
            bytes[..4].copy_from_slice(&[b'P', b'S', 1, (sent % 7) as u8 + 1]);
            let length = LONGEST - usize::from(bytes[LONGEST - 1] % 64);
            sent += u64::from(socket.send_to(&bytes[..length], to).is_ok());
        }
        std::thread::sleep(BEAT);
    }
    Ok(vec![sent])
}
