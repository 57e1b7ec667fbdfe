//! The protocols by which the program counts.

use super::literature::{self, Paper};

/// A way of counting together.
pub(super) struct Protocol {
    /// The code of the paper's figures.
    pub(super) code: &'static str,
    pub(super) name: &'static str,
    /// What the program is told.
    pub(super) words: &'static [&'static str],
    pub(super) place: Place,
    /// Pages that it takes.
    pub(super) pages: u32,
    pub(super) paper: Paper,
}

/// Where the processes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// One process, without a daemon.
    Alone,
    /// Two processes of one node.
    OneNode,
    TwoNodes,
}

pub(super) const PROTOCOLS: [Protocol; 9] = [
    Protocol {
        code: "ER0",
        name: "one process",
        words: &["--protocol=alone"],
        place: Place::Alone,
        pages: 0,
        paper: literature::ALONE,
    },
    Protocol {
        code: "ER0",
        name: "two processes, one host",
        words: &["--protocol=full"],
        place: Place::OneNode,
        pages: 1,
        paper: literature::ONE_HOST,
    },
    Protocol {
        code: "ER1",
        name: "1: full page",
        words: &["--protocol=full"],
        place: Place::TwoNodes,
        pages: 1,
        paper: literature::FULL,
    },
    Protocol {
        code: "ER2",
        name: "2: short page",
        words: &["--protocol=short"],
        place: Place::TwoNodes,
        pages: 1,
        paper: literature::SHORT,
    },
    Protocol {
        code: "ER3",
        name: "3: two pages, purge after each loss",
        words: &["--protocol=disjoint", "--purge=1"],
        place: Place::TwoNodes,
        pages: 2,
        paper: literature::DISJOINT,
    },
    Protocol {
        code: "ER3",
        name: "3: the same, purge after 100 losses",
        words: &["--protocol=disjoint", "--purge=100"],
        place: Place::TwoNodes,
        pages: 2,
        paper: literature::NOTHING,
    },
    Protocol {
        code: "ER3",
        name: "3: the same, purge after 10,000 losses",
        words: &["--protocol=disjoint", "--purge=10000"],
        place: Place::TwoNodes,
        pages: 2,
        paper: literature::HYSTERESIS,
    },
    Protocol {
        code: "ER4",
        name: "4: short page, data-driven",
        words: &["--protocol=data"],
        place: Place::TwoNodes,
        pages: 1,
        paper: literature::DATA,
    },
    Protocol {
        code: "ER5",
        name: "5: two pages, one data-driven",
        words: &["--protocol=final"],
        place: Place::TwoNodes,
        pages: 2,
        paper: literature::FINAL,
    },
];

/// Their places in the list.
pub(super) const ONE_PROCESS: usize = 0;
pub(super) const ONE_HOST: usize = 1;
pub(super) const FULL: usize = 2;
pub(super) const SHORT: usize = 3;
pub(super) const DISJOINT: usize = 4;
pub(super) const DATA: usize = 7;
pub(super) const FINAL: usize = 8;
