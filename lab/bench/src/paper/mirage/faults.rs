//! Faults that move pages of one kind, under switches and links.

use super::super::super::agent::Order;
use super::super::super::report::Samples;
use super::super::super::testbed::Testbed;
use super::super::super::{Waiting, fault, stream, switch};
use anyhow::Result;
use pagemesh_cli::sandbox::Plan;
use pagemesh_wire::local::{Stamp, StampKind};
use std::collections::BTreeMap;

/// Switches of the daemons, and the link between them.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) compress: &'static str,
    pub(super) experiment: &'static str,
    /// The rate of a token bucket; none: as fast as the processors.
    pub(super) rate: Option<&'static str>,
}

/// S+H, S+B, I+B, and as PageMesh is without switches.
pub(super) const SERVER_HANDSHAKE: &str = "packet=1024,acknowledge=packet,receive=worker";
pub(super) const SERVER_BLAST: &str = "packet=1024,receive=worker";
pub(super) const INTERRUPT_BLAST: &str = "packet=1024";
pub(super) const PLAIN: &str = "";

/// Two nodes under a setting.
pub(super) struct Pair {
    testbed: Testbed,
    round: u32,
}

/// The parts of a fault, in microseconds, medians of many.
pub(super) struct Parts {
    /// From the fault to the request's departure.
    pub(super) trap: f64,
    /// Until the owner has given the page away.
    pub(super) request: f64,
    /// Until it is there. What is left of the whole has no stamps: the node decides to map the page
    /// in the step in which it arrives.
    pub(super) transfer: f64,
    pub(super) total: f64,
}

impl Pair {
    pub(super) fn raise(setting: Setting) -> Result<Self> {
        Self::raise_waiting(setting, Waiting::Spin)
    }

    pub(super) fn raise_waiting(setting: Setting, waiting: Waiting) -> Result<Self> {
        let mut plan = Plan::new(2);
        plan.compress = Some(setting.compress.to_owned());
        switch(&mut plan, setting.experiment)?;
        let testbed = Testbed::raise(&plan, waiting)?;
        if let Some(rate) = setting.rate {
            let bucket = ["rate", rate, "burst", "16kb", "latency", "100ms"];
            stream::shape_to(&testbed, &bucket)?;
        }
        Ok(Self { testbed, round: 0 })
    }

    /// Stops both daemons, or lets them go on.
    pub(super) fn stand_still(&self, still: bool) -> Result<()> {
        self.testbed.stand_still(still)
    }

    /// Exchanges without any PageMesh, so many bytes back.
    pub(super) fn raw(&mut self, reply: usize, count: u32, samples: &mut Samples) -> Result<()> {
        self.testbed.raw(reply, count, samples)
    }

    /// The median of so many faults on pages of a kind, in microseconds.
    pub(super) fn fault(&mut self, kind: &str, pages: u32) -> Result<f64> {
        let mut samples = Samples::default();
        samples.extend(self.touch(kind, pages)?);
        Ok(samples.median() / 1000.0)
    }

    fn touch(&mut self, kind: &str, pages: u32) -> Result<Vec<u64>> {
        self.round += 1;
        let name = format!("bench.mirage.{}", self.round);
        self.testbed.open(&name, pages, Some(0))?;
        let kind = kind.to_owned();
        self.testbed.ask(1, &Order::Fill { pages, kind })?;
        self.testbed.ask(0, &Order::Random)?;
        let order = fault::shuffled(0..pages, self.round);
        let times = self.testbed.touch(0, &order, false)?;
        self.testbed.remove(&name)?;
        Ok(times)
    }

    /// The medians of loads that bring a page, of stores to those pages after that, and of
    /// stores that bring a page, in microseconds.
    pub(super) fn three(&mut self, pages: u32) -> Result<[f64; 3]> {
        self.round += 1;
        let name = format!("bench.mirage.{}", self.round);
        self.testbed.open(&name, 2 * pages, Some(0))?;
        let one = fault::shuffled(0..pages, self.round);
        let two = fault::shuffled(pages..2 * pages, self.round);
        for pages in [&one, &two] {
            self.testbed.touch(1, pages, true)?;
        }
        self.testbed.ask(0, &Order::Random)?;
        let mut took = [0.0; 3];
        for (took, (pages, write)) in
            took.iter_mut()
                .zip([(&one, false), (&one, true), (&two, true)])
        {
            let mut samples = Samples::default();
            samples.extend(self.testbed.touch(0, pages, write)?);
            *took = samples.median() / 1000.0;
        }
        self.testbed.remove(&name)?;
        Ok(took)
    }

    /// The parts of faults, by both daemons' time stamps.
    pub(super) fn parts(&mut self, pages: u32) -> Result<Parts> {
        let mut samples = Samples::default();
        samples.extend(self.touch("noise", pages)?);
        let [here, there] = [self.testbed.stamps(0)?, self.testbed.stamps(1)?];
        // The last of each page: rounds before had pages of the same numbers.
        let last = |stamps: &[Stamp], what: StampKind| -> BTreeMap<u64, u64> {
            let of = stamps.iter().filter(|stamp| stamp.what == what);
            of.map(|stamp| (stamp.tag, stamp.nanos)).collect()
        };
        let steps = [
            last(&here, StampKind::Fault),
            last(&here, StampKind::Asked),
            last(&there, StampKind::Given),
            last(&here, StampKind::Arrived),
        ];
        let median = |from: usize, to: usize| {
            let mut samples = Samples::default();
            let took = steps[from].iter().filter_map(|(page, begin)| {
                let end = steps[to].get(page)?;
                end.checked_sub(*begin)
            });
            samples.extend(took.collect());
            samples.median() / 1000.0
        };
        Ok(Parts {
            trap: median(0, 1),
            request: median(1, 2),
            transfer: median(2, 3),
            total: samples.median() / 1000.0,
        })
    }
}
