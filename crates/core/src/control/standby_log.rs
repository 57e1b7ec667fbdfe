//! The back end of the control plane that is built in: a log that is streamed to one other node.

use super::{DecisionLog, HeldAnswer};
use crate::limits::{LOG_BYTES, LOG_KEPT};
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{Decision, Decisions, Reply};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The log of a coordinator, from the first entry that its receiver has not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct StandbyLog {
    /// The receiver.
    pub(crate) node: NodeId,
    /// The member view names the receiver as the standby: it may take over, so answers wait for
    /// its acknowledgement. Before that it is given a copy, and answers do not wait.
    pub(crate) named: bool,
    /// The number of the first entry in `entries`.
    first: u64,
    entries: VecDeque<Vec<Decision>>,
    /// Entries at the front that are under way.
    sent: usize,
    /// Answers, each with the number of the entry that must be acknowledged.
    held: VecDeque<(u64, HeldAnswer)>,
}

impl StandbyLog {
    /// Begins with a copy of everything.
    pub(crate) fn begin(node: NodeId, copy: Vec<Decision>) -> Self {
        let mut log = Self {
            node,
            named: false,
            first: 0,
            entries: VecDeque::from([vec![Decision::Anew]]),
            sent: 0,
            held: VecDeque::new(),
        };
        log.append(copy);
        log
    }

    /// Appends decisions as entries that fit into a datagram. Decisions of one call fit into one.
    fn append(&mut self, decisions: Vec<Decision>) {
        let (mut entry, mut bytes) = (Vec::new(), 0);
        for decision in decisions {
            let size = size(&decision);
            if bytes + size > LOG_BYTES && !entry.is_empty() {
                self.entries.push_back(core::mem::take(&mut entry));
                bytes = 0;
            }
            bytes += size;
            entry.push(decision);
        }
        if !entry.is_empty() {
            self.entries.push_back(entry);
        }
    }

    /// The entries to send now; none while others are under way.
    pub(crate) fn send(&mut self) -> Option<Decisions> {
        if self.sent > 0 {
            return None;
        }
        let mut bytes = 0;
        let fits = |entry: &&Vec<Decision>| {
            let first = bytes == 0;
            bytes += entry.iter().map(size).sum::<usize>().max(1);
            first || bytes <= LOG_BYTES
        };
        let entries: Vec<_> = self.entries.iter().take_while(fits).cloned().collect();
        self.sent = entries.len();
        let first = self.first;
        (!entries.is_empty()).then_some(Decisions { first, entries })
    }

    /// The receiver has acknowledged what was under way.
    pub(crate) fn acknowledged(&mut self) {
        self.first += self.sent as u64;
        self.entries.drain(..self.sent);
        self.sent = 0;
    }

    /// Whether the receiver has everything.
    pub(crate) fn is_complete(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a copy under way has become so long that a new one is shorter.
    pub(crate) fn is_too_long(&self) -> bool {
        !self.named && self.sent == 0 && self.entries.len() > LOG_KEPT
    }

    /// The receiver is gone: no answer has to wait for it.
    pub(crate) fn give_up(self) -> Vec<HeldAnswer> {
        self.held.into_iter().map(|(_, answer)| answer).collect()
    }
}

impl DecisionLog for StandbyLog {
    fn decide(&mut self, decisions: Vec<Decision>, answers: Vec<HeldAnswer>) {
        self.append(decisions);
        let next = self.first + self.entries.len() as u64;
        self.held
            .extend(answers.into_iter().map(|answer| (next, answer)));
    }

    fn safe(&mut self) -> Vec<HeldAnswer> {
        let mut safe = Vec::new();
        while let Some((next, _)) = self.held.front()
            && (!self.named || *next <= self.first)
        {
            safe.extend(self.held.pop_front().map(|(_, answer)| answer));
        }
        safe
    }

    fn behind(&self) -> u64 {
        self.entries.len() as u64
    }
}

/// No less than the bytes of an encoded decision.
fn size(decision: &Decision) -> usize {
    /// A segment without its list of nodes and ranges: its name and some numbers.
    const SEGMENT: usize = 400;
    match decision {
        Decision::Anew | Decision::Serial(_) | Decision::Gone(_) => 16,
        Decision::Segment {
            changed,
            reductions,
            ..
        } => SEGMENT + 16 * changed.len() + 32 * reductions.len(),
        Decision::Answered { reply, .. } => match reply {
            Reply::Reducing(_, reductions) => SEGMENT + 32 * reductions.len(),
            _ => SEGMENT,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Caller;
    use pagemesh_wire::{CallId, SegmentId};

    const NODE: NodeId = NodeId(2);

    fn answer(call: u64) -> HeldAnswer {
        let caller = Caller {
            node: NodeId(3),
            call: CallId(call),
        };
        HeldAnswer {
            caller,
            reply: Reply::Done,
            batch: 0,
        }
    }

    fn named() -> StandbyLog {
        let mut log = StandbyLog::begin(NODE, vec![]);
        log.send().unwrap();
        log.acknowledged();
        log.named = true;
        log
    }

    #[test]
    fn answers_wait_until_a_standby_has_acknowledged() {
        let mut log = named();
        log.decide(vec![Decision::Serial(1)], vec![answer(1)]);
        assert_eq!(log.send().unwrap().first, 1);
        log.decide(vec![Decision::Serial(2)], vec![answer(2)]);
        assert_eq!(log.send(), None, "one call at a time");
        assert_eq!((log.safe(), log.behind()), (vec![], 2));
        log.acknowledged();
        assert_eq!((log.safe(), log.behind()), (vec![answer(1)], 1));
        assert_eq!(log.send().unwrap().first, 2);
        assert_eq!(log.give_up(), [answer(2)]);
    }

    #[test]
    fn an_answer_without_decisions_waits_for_earlier_ones_only() {
        let mut log = named();
        log.decide(vec![], vec![answer(1)]);
        assert_eq!(log.safe(), [answer(1)]);
        log.decide(vec![Decision::Serial(1)], vec![]);
        log.decide(vec![], vec![answer(2)]);
        assert_eq!(log.safe(), []);
    }

    #[test]
    fn while_a_copy_is_made_no_answer_waits() {
        let mut log = StandbyLog::begin(NODE, vec![Decision::Serial(1)]);
        log.decide(vec![Decision::Serial(2)], vec![answer(1)]);
        assert_eq!(log.safe(), [answer(1)]);
        assert!(!log.is_complete());
    }

    #[test]
    fn entries_leave_in_pieces_that_fit() {
        let gone = |serial| Decision::Gone(SegmentId(serial));
        let many = LOG_BYTES / 16 * 3;
        let mut log = StandbyLog::begin(NODE, (0..many as u64).map(gone).collect());
        let mut heard = Vec::new();
        while let Some(said) = log.send() {
            let decisions: Vec<_> = said.entries.into_iter().flatten().collect();
            assert!(decisions.iter().map(size).sum::<usize>() <= LOG_BYTES + 16);
            heard.extend(decisions);
            log.acknowledged();
        }
        assert_eq!(heard.len(), many + 1);
        assert_eq!(heard[1], gone(0));
    }
}
