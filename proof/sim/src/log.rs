//! The log: one line for each transition, and a hash over all of them.
//!
//! The hash is always computed; the text is kept only on demand, because a run can be repeated
//! from its seed.

use pagemesh_core::Time;

/// How to read the log; printed above it.
pub const LEGEND: &str = "\
time            who  what
                h1   first host; the cluster numbers its nodes (n1, ...) as they join
  >  a datagram leaves      x  and is lost        +  and comes twice     <  it arrives
  !  a thread faults        *  it is woken        r  a load              w  a store
  F  frame filled           M  mapped             P  protected           E  evicted
  D  stash dropped          Z  segment forgotten  S  SIGBUS
  ?  a process asks         =  it is answered     c  it withdraws        L  lock word changes
  u  use confirmed          e  event              @  the simulator's hand
pages are s<home>.<serial>:<page>, threads t<number>, processes p<number>;
signs of life are left out";

/// The kind of transition that a line describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Leaves,
    Lost,
    Twice,
    Arrives,
    Faults,
    Woken,
    Load,
    Store,
    Fill,
    Map,
    Protect,
    Evict,
    DropStash,
    Forget,
    Sigbus,
    Asks,
    Answered,
    Withdraws,
    Lock,
    Use,
    Event,
    Hand,
    Trap,
}

impl Mark {
    fn sign(self) -> char {
        match self {
            Self::Leaves => '>',
            Self::Lost => 'x',
            Self::Twice => '+',
            Self::Arrives => '<',
            Self::Faults => '!',
            Self::Woken => '*',
            Self::Load => 'r',
            Self::Store => 'w',
            Self::Fill => 'F',
            Self::Map => 'M',
            Self::Protect => 'P',
            Self::Evict => 'E',
            Self::DropStash => 'D',
            Self::Forget => 'Z',
            Self::Sigbus => 'S',
            Self::Asks => '?',
            Self::Answered => '=',
            Self::Withdraws => 'c',
            Self::Lock => 'L',
            Self::Use => 'u',
            Self::Event => 'e',
            Self::Trap => 'T',
            Self::Hand => '@',
        }
    }
}

/// The log of one run.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Log {
    /// An empty log, which keeps text and hash, or only the hash.
    pub(crate) fn new(keep: bool) -> Self {
        Self {
            hash: 0x9e37_79b9_7f4a_7c15,
            lines: keep.then(Vec::new),
        }
    }

    /// Adds an event to the hash that is not worth a line of text.
    pub(crate) fn hum(&mut self, now: Time, host: usize, facts: [u64; 3]) {
        self.mix(now.0);
        self.mix(host as u64);
        for fact in facts {
            self.mix(fact);
        }
    }

    /// Notes an event. `facts` go into the hash, the text only into the log.
    pub(crate) fn note(
        &mut self,
        now: Time,
        host: usize,
        mark: Mark,
        facts: [u64; 3],
        text: impl FnOnce() -> String,
    ) {
        self.hum(now, host << 8 | mark as usize, facts);
        if let Some(lines) = &mut self.lines {
            let (micros, nanos) = (now.0 / 1000, now.0 % 1000);
            lines.push(format!(
                "{micros:>11}.{nanos:03} h{:<3}{} {}",
                host + 1,
                mark.sign(),
                text()
            ));
        }
    }

    fn mix(&mut self, fact: u64) {
        self.hash = (self.hash.rotate_left(23) ^ fact).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }

    /// The hash of everything so far.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines, if they were kept.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}

/// A short fingerprint of some bytes, for the hash.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word))
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(17);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_does_not_depend_on_keeping_text() {
        let run = |keep| {
            let mut log = Log::new(keep);
            log.note(Time(5), 1, Mark::Map, [1, 2, 3], || "text".into());
            log.hash()
        };
        assert_eq!(run(true), run(false));
        let mut other = Log::new(false);
        other.note(Time(5), 1, Mark::Map, [1, 2, 4], String::new);
        assert_ne!(other.hash(), run(true));
    }
}
