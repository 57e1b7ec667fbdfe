//! The memory that the host gives to the node: what its private segments may have, and what it
//! keeps for other nodes.

use crate::driver::Driver;
use crate::host::{Host, Processors};
use pagemesh_core::{Budgets, Input, Placement};
use pagemesh_wire::{ByteLen, PAGE_SIZE, PageCount};
use std::str::FromStr;

/// How much memory may be used for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// As the host has it: looked at once a second.
    Auto,
    /// None.
    None,
    /// So many bytes.
    Bytes(ByteLen),
}

impl FromStr for Amount {
    type Err = String;

    /// Reads `auto`, `none`, `2G`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            size => size.parse().map(Self::Bytes),
        }
    }
}

/// The settings for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// What private segments of this node may have together; `Auto`: half of the host's memory.
    pub memory: Amount,
    /// What is kept for other nodes at most; `Auto`: half of what the host has above a reserve.
    pub lend: Amount,
    /// How a donor is chosen.
    pub placement: Placement,
    /// Where files of private segments are made.
    pub directory: std::path::PathBuf,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            memory: Amount::Auto,
            lend: Amount::Auto,
            placement: Placement::default(),
            directory: std::path::PathBuf::from("/var/tmp"),
        }
    }
}

/// The part of the host's memory that `Auto` leaves to the host.
const RESERVE: u64 = 8;

/// The host is short of memory while less than this part of it is available.
const SHORT: u64 = 16;

/// Time between two looks at the host; and while pages are kept for others, which its own programs may
/// want back.
const LOOK: u64 = 1_000_000_000;
const LOOK_SOON: u64 = 200_000_000;

/// Time between two looks at the processors, whose kernel counts in hundredths of a second.
const COUNTED: u64 = 500_000_000;

/// The load of the processors is told when it has changed by so much, in percent.
const LOAD_STEP: u8 = 10;

/// Budgets change by no less than this part of them, so that nothing follows every small change.
const STEP: u32 = 32;

/// Watches the host's memory.
#[derive(Debug)]
pub(crate) struct Budget {
    options: MemoryOptions,
    current: Budgets,
    next: u64,
    processors: Processors,
    counted: u64,
}

fn pages(bytes: u64) -> PageCount {
    PageCount(u32::try_from(bytes / PAGE_SIZE as u64).unwrap_or(u32::MAX))
}

impl MemoryOptions {
    /// The budgets on this host, where so many pages are lent already, and segments have so many
    /// frames.
    fn budgets(&self, host: Option<Host>, borrowed: u64, frames: u64) -> Budgets {
        let memory = match (self.memory, host) {
            (Amount::Bytes(ByteLen(bytes)), _) => pages(bytes),
            (Amount::Auto, Some(host)) => pages(host.total / 2),
            (Amount::Auto, None) => PageCount(u32::MAX),
            (Amount::None, _) => PageCount(1),
        };
        // Without a fixed bound frames are too many only while the host is short of memory.
        let frames = match (self.memory, host) {
            (Amount::Auto, Some(host)) => {
                let short = (host.total / SHORT).saturating_sub(host.available);
                match short {
                    0 => PageCount(u32::MAX),
                    short => pages((frames * PAGE_SIZE as u64).saturating_sub(short)),
                }
            }
            (Amount::Auto, None) => PageCount(u32::MAX),
            _ => memory,
        };
        let lend = match (self.lend, host) {
            (Amount::Bytes(ByteLen(bytes)), _) => pages(bytes),
            (Amount::Auto, Some(host)) => {
                // What is lent now counts as available: it can be given back.
                let ours = borrowed * PAGE_SIZE as u64;
                let idle = (host.available + ours).saturating_sub(host.total / RESERVE);
                pages(idle / 2)
            }
            (Amount::None, _) | (Amount::Auto, None) => PageCount(0),
        };
        let placement = self.placement;
        Budgets {
            memory,
            frames,
            lend,
            placement,
            busy: 0,
        }
    }

    fn is_fixed(&self) -> bool {
        self.memory != Amount::Auto && self.lend != Amount::Auto
    }
}

impl Budget {
    /// Nothing is known of the host yet.
    pub(crate) fn new(options: MemoryOptions) -> Self {
        Self {
            options,
            current: Budgets::default(),
            next: 0,
            processors: Processors::default(),
            counted: 0,
        }
    }
}

impl Driver {
    /// When the host is to be looked at although nothing else happens: its programs may want memory
    /// that is kept for others.
    pub(crate) fn next_look(&self) -> Option<u64> {
        let gives_back = self.budget.options.lend == Amount::Auto && self.node.pages_borrowed() > 0;
        gives_back.then_some(self.budget.next)
    }

    /// Looks at the host's memory, if it is time to.
    pub(crate) fn look_at_memory(&mut self, now: u64) {
        if now < self.budget.next {
            return;
        }
        let borrowed = self.node.pages_borrowed();
        let budget = &mut self.budget;
        let is_fixed = budget.options.is_fixed();
        budget.next = match borrowed {
            _ if is_fixed && budget.options.lend == Amount::None => u64::MAX,
            0 => now + LOOK,
            _ if is_fixed => now + LOOK,
            _ => now + LOOK_SOON,
        };
        let host = if is_fixed { None } else { Host::ask() };
        let mut budgets = budget
            .options
            .budgets(host, borrowed, self.node.frames_used());
        if self.node.frames_used() > u64::from(budgets.frames.0) {
            self.executor.pages.changes.rest();
        }
        let current = budget.current;
        budgets.busy = current.busy;
        if budgets.lend.0 > 0 && now >= budget.counted + COUNTED {
            budget.counted = now;
            let busy = budget.processors.look();
            if busy.abs_diff(current.busy) >= LOAD_STEP {
                budgets.busy = busy;
            }
        }
        let near = |new: PageCount, old: PageCount| new.0.abs_diff(old.0) <= old.0 / STEP;
        if near(budgets.lend, current.lend)
            && near(budgets.memory, current.memory)
            && near(budgets.frames, current.frames)
            && budgets.placement == current.placement
            && budgets.busy == current.busy
        {
            return;
        }
        budget.current = budgets;
        self.feed(Input::Budgets(budgets));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HOST;

    #[test]
    fn automatic_amounts_follow_the_host_and_given_ones_do_not() {
        let auto = MemoryOptions::default();
        let gib = |pages: PageCount| pages.bytes().0 >> 30;
        let budgets = auto.budgets(Some(HOST), 0, 7);
        assert_eq!((gib(budgets.memory), gib(budgets.lend)), (4, 2));
        assert_eq!(budgets.frames, PageCount(u32::MAX));
        let short = Host {
            available: 1 << 28,
            ..HOST
        };
        // A quarter of a GiB is missing of the half that is to be available.
        let frames = auto.budgets(Some(short), 0, 1 << 18).frames;
        assert_eq!(frames.bytes().0, (1 << 30) - (1 << 28));
        let low = Host {
            available: 1 << 29,
            ..HOST
        };
        assert_eq!(auto.budgets(Some(low), 0, 7).lend, PageCount(0));
        // 2 GiB are lent: they could be given back.
        assert_eq!(gib(auto.budgets(Some(low), 1 << 19, 7).lend), 0);
        let given = MemoryOptions {
            memory: "64M".parse().unwrap(),
            lend: "none".parse().unwrap(),
            ..auto
        };
        let budgets = given.budgets(None, 7, 7);
        assert_eq!(
            (budgets.memory, budgets.frames, budgets.lend),
            (PageCount(1 << 14), PageCount(1 << 14), PageCount(0))
        );
        assert!("much".parse::<Amount>().is_err());
    }
}
