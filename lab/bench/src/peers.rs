//! `bench peers`: our faults, locks and barriers beside other systems at the same work, between the
//! same two namespaces, in turn in the same run (TB1).

pub(super) mod install;
mod mpi;
mod ours;
pub(super) mod redis;
mod server;

use super::Waiting;
use super::cpu_slots::CpuSlots;
use super::report::{Report, Samples};
use super::testbed::Testbed;
use anyhow::Result;
use clap::Args;
use pagemesh_cli::sandbox::Plan;
use std::collections::BTreeMap;

/// Faults, locks and barriers beside MPI's one-sided operations, a Redis and TCP
#[derive(Args, Clone, Debug)]
pub(crate) struct Peers {
    /// Measurements of each kind per round
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=4000))]
    count: u32,
    /// Rounds, everybody in turn, after one to warm up
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Only with every process on a processor of its own, or only wherever the kernel puts it
    #[arg(long, value_enum)]
    placing: Option<CpuSlots>,
    /// Keep idle processors awake (`/dev/cpu_dma_latency`), for the peers too
    #[arg(long)]
    latency: bool,
    /// Install the peers that are missing, by apt-get
    #[arg(long)]
    install: bool,
}

/// The measurements of one system in one round: nanoseconds of each operation, by kind of work.
type Times = Vec<(String, Vec<u64>)>;

/// Our work, and the work of peers that stands beside it.
const BESIDE: [(&str, &str); 9] = [
    ("read_fault", "get"),
    ("read_again", "get"),
    ("write_fault", "put"),
    ("fetch_add", "fetch_add"),
    ("counter", "counter"),
    ("lock_handover", "lock_only"),
    ("lock_again", "lock_only"),
    ("locked_word", "lock"),
    ("barrier", "barrier"),
];

/// The peers, in the order of turns.
const PEERS: [&str; 5] = ["mpich", "openmpi_ucx", "openmpi_tcp", "redis", "tcp"];

/// A system that is measured beside PageMesh.
trait Peer {
    fn measure(&mut self, testbed: &mut Testbed, count: u32) -> Result<Times>;
}

/// Requests that are answered with a page.
struct Tcp;

impl Peer for Tcp {
    fn measure(&mut self, testbed: &mut Testbed, count: u32) -> Result<Times> {
        Ok(vec![("get".to_owned(), testbed.tcp_exchange(count)?)])
    }
}

/// All measurements: by name and kind of work.
#[derive(Default)]
struct Found(BTreeMap<(&'static str, String), Samples>);

impl Found {
    fn add(&mut self, who: &'static str, times: Times) {
        for (what, times) in times {
            self.0.entry((who, what)).or_default().extend(times);
        }
    }

    fn of(&self, who: &'static str, what: &str) -> Option<&Samples> {
        self.0.get(&(who, what.to_owned()))
    }
}

/// Our own name among those who measure.
const US: &str = "pagemesh";

impl Peers {
    pub(super) fn measure(&self) -> Result<Report> {
        let mut report = Report::new("peers");
        if self.install {
            install::all()?;
        }
        for cpu_slots in [CpuSlots::Apart, CpuSlots::Anywhere] {
            if self.placing.is_none_or(|one| one == cpu_slots) {
                self.beside(cpu_slots, &mut report)?;
            }
        }
        Ok(report)
    }

    fn beside(&self, cpu_slots: CpuSlots, report: &mut Report) -> Result<()> {
        let mut plan = Plan::new(2);
        plan.latency = self.latency;
        let mut testbed = Testbed::seated(&plan, Waiting::Spin, cpu_slots)?;
        let skip = |report: &mut Report, who: &str, why: &anyhow::Error| {
            report.skip(format!("{who}/{}", cpu_slots.name()), why);
        };
        let mut peers = Vec::new();
        for who in PEERS {
            match prepare(who, &testbed, cpu_slots) {
                Ok(peer) => peers.push((who, peer)),
                Err(why) => skip(report, who, &why),
            }
        }
        let mut found = Found::default();
        for round in 0..=self.rounds {
            found.add(US, ours::measure(&mut testbed, round, self.count)?);
            peers.retain_mut(|(who, peer)| match peer.measure(&mut testbed, self.count) {
                Ok(times) => {
                    found.add(who, times);
                    true
                }
                Err(why) => {
                    skip(report, who, &why);
                    false
                }
            });
            if round == 0 {
                found = Found::default();
            }
        }
        tell(&found, cpu_slots, report);
        Ok(())
    }
}

fn prepare(who: &str, testbed: &Testbed, cpu_slots: CpuSlots) -> Result<Box<dyn Peer>> {
    Ok(match who {
        "tcp" => Box::new(Tcp),
        "redis" => Box::new(server::Server::start(testbed, cpu_slots)?),
        mpi => Box::new(mpi::Mpi::prepare(mpi, testbed, cpu_slots)?),
    })
}

/// A row for each of our works and each peer that does the like.
fn tell(found: &Found, cpu_slots: CpuSlots, report: &mut Report) {
    for (work, theirs) in BESIDE {
        let Some(ours) = found.of(US, work) else {
            continue;
        };
        for who in PEERS {
            if let Some(samples) = found.of(who, theirs) {
                let name = format!("{work}/{who}/{}", cpu_slots.name());
                report.versus(name, Waiting::Spin.name(), ours, (who, samples));
            }
        }
    }
}
