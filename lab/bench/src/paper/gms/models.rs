//! GR7 to GR11 by the model of frames.

use super::super::figures::Figures;
use super::model::{Outcome, Part, Placing, Plan, run};

/// Frames of a node, and pages that a client uses: OO7 had twice the memory of its node.
const FRAMES: usize = 256;
const NEED: usize = 256;

/// Uses of pages by a client.
const USES: u64 = 6_000;

/// Numbers of nodes for GR7.
pub(super) const SIZES: [usize; 6] = [5, 10, 15, 20, 100, 1000];

/// Of eight nodes so many have the larger part of the idle memory: the paper's three skews.
pub(super) const SKEWS: [(usize, f64, &str); 3] = [
    (2, 0.75, "25 % of the nodes have 75 %"),
    (3, 0.625, "37.5 % have 62.5 %"),
    (4, 0.5, "50 % have 50 %"),
];

/// Idle memory, to what the client needs.
pub(super) const IDLE: [f64; 3] = [1.0, 1.5, 2.0];

/// Seconds between switches for GR8.
pub(super) const SWITCHES: [u64; 6] = [1, 2, 5, 10, 20, 30];

pub(super) fn measure(document: &mut Figures) {
    sizes(document);
    switches(document);
    for (busy, kind) in [(false, "skew"), (true, "interference")] {
        for (nodes, share, name) in SKEWS {
            for idle in IDLE {
                skew(document, (kind, busy), (nodes, share, name), idle);
            }
        }
    }
}

fn client(first: u32) -> Part {
    let count = (FRAMES + NEED) as u32;
    Part {
        frames: FRAMES,
        pages: (first..first + count).collect(),
        uses: Some(USES),
    }
}

fn idle(frames: usize) -> Part {
    Part {
        frames,
        ..Part::default()
    }
}

/// A program that goes through its node's memory without an end: half of its pages are used on all
/// nodes.
fn busy(number: usize, local: usize, frames: usize) -> Part {
    const SHARED: u32 = 1 << 24;
    let own = (1 << 25) + (number as u32) * 4096;
    let half = local / 2;
    let shared = (0..half as u32).map(|page| SHARED + page);
    let own = (0..(local - half) as u32).map(|page| own + page);
    Part {
        frames,
        pages: shared.chain(own).collect(),
        uses: None,
    }
}

/// GR7: of five nodes two are idle and have what the others need.
fn sizes(document: &mut Figures) {
    for count in SIZES {
        let part = |node: usize| match node % 5 {
            0 | 1 => idle(NEED * 3 / 2 + NEED / 4),
            _ => client((node as u32) << 12),
        };
        let plan = Plan {
            parts: (0..count).map(part).collect(),
            switch: None,
        };
        let [disk, epoch] = [Placing::Disk, Placing::Epoch].map(|placing| run(&plan, placing));
        let speedup = disk.time / epoch.time;
        document.put(format!("model nodes {count}"), speedup);
    }
}

/// GR8: four of eight nodes have most of the idle memory, one and a half times what is needed; every
/// X seconds one of them changes with another.
fn switches(document: &mut Figures) {
    let frames = NEED * 3 / 2 / 4;
    for seconds in SWITCHES {
        let others = (0..8).map(|node| match node % 2 {
            0 => idle(frames),
            _ => busy(node, frames, frames),
        });
        let plan = Plan {
            parts: std::iter::once(client(0)).chain(others).collect(),
            switch: Some((seconds * 1_000_000, vec![(1, 2), (3, 4), (5, 6), (7, 8)])),
        };
        let [disk, epoch] = [Placing::Disk, Placing::Epoch].map(|placing| run(&plan, placing));
        document.put(format!("model switch {seconds}"), disk.time / epoch.time);
    }
}

/// GR9 to GR11: one client, and idle memory at eight other nodes, in skewed parts.
fn skew(
    document: &mut Figures,
    (kind, is_busy): (&str, bool),
    (nodes, share, name): (usize, f64, &str),
    factor: f64,
) {
    let all = NEED as f64 * factor;
    let part = |node: usize| {
        let free = match node < nodes {
            true => all * share / nodes as f64,
            false => all * (1.0 - share) / (8 - nodes) as f64,
        } as usize;
        match node < nodes {
            true => idle(free),
            // Its program uses the rest of its memory.
            false if is_busy => busy(node, FRAMES, FRAMES + free),
            false => idle(free),
        }
    };
    let plan = Plan {
        parts: std::iter::once(client(0)).chain((0..8).map(part)).collect(),
        switch: None,
    };
    let [disk, epoch, chance] =
        [Placing::Disk, Placing::Epoch, Placing::NChance].map(|placing| run(&plan, placing));
    let mut put = |placing: &str, outcome: Outcome| {
        let at = |what: &str| format!("model {kind} {name} {factor} {placing} {what}");
        document.put(at("speedup"), disk.time / outcome.time);
        document.put(at("slowdown"), outcome.slowdown / disk.slowdown.max(1e-9));
        document.put(at("transfers"), outcome.transfers as f64);
        document.put(at("disk"), outcome.disk as f64);
    };
    put("epoch", epoch);
    put("n-chance", chance);
}
