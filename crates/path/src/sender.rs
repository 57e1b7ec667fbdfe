//! One node that sends messages in pieces, as their receiver sees it.

use crate::assembly::{Assembly, Fit};
use crate::gone::Gone;
use crate::packet::Piece;
use crate::{MS, US};
use std::collections::VecDeque;

/// What came of one sender in part.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Since its start; and before that, lest what was under way then undoes this.
    stream: u32,
    before: Option<u32>,
    gone: Gone,
    open: VecDeque<Assembly>,
    /// Messages that came whole after somebody asked for these pieces.
    repaired: VecDeque<(u32, u16)>,
    /// Pieces of a message come within this time of each other.
    patience: u64,
    /// When somebody is to be asked, or something given up.
    pub(crate) due: Option<u64>,
    /// When anything came.
    pub(crate) heard: u64,
}

/// What became of a piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// The message is whole.
    Whole(Vec<u8>),
    /// It is not.
    Part,
    /// Nobody needs it any more; it may have come twice.
    Late,
    /// It says something else than what came before.
    Refused,
}

/// Messages of one sender that are put together at a time.
pub(crate) const OPEN: usize = 64;

/// Who misses pieces asks for them after this time without any. Pieces leave together
/// and come together, but not from all networks in order.
pub(crate) const PATIENCE: u64 = 400 * US;

/// A slow link may bring one piece so long after another.
const LONGEST_PATIENCE: u64 = 20 * MS;

/// An answer takes so long, or two rounds.
const ANSWER: u64 = 2 * MS;

/// So often missing pieces are asked for; then the message is given up. Whoever waits
/// for it repeats what made it come, after 10 ms.
pub(crate) const ASKS: u32 = 3;

/// Repaired messages of which it is remembered that they were.
const REPAIRED: usize = 16;

impl Sender {
    pub(crate) fn new(stream: u32) -> Self {
        Self {
            stream,
            before: None,
            gone: Gone::default(),
            open: VecDeque::new(),
            repaired: VecDeque::new(),
            patience: PATIENCE,
            due: None,
            heard: 0,
        }
    }

    /// Bytes of memory for messages.
    pub(crate) fn size(&self) -> usize {
        self.open.iter().map(Assembly::size).sum()
    }

    /// A piece came at `now`; `spare` is memory to use.
    pub(crate) fn put(&mut self, now: u64, piece: &Piece<'_>, spare: &mut Vec<Vec<u8>>) -> Put {
        self.heard = now;
        if piece.stream != self.stream {
            if self.before == Some(piece.stream) {
                return Put::Late;
            }
            let before = self.stream;
            *self = Self::new(piece.stream);
            self.before = Some(before);
            self.heard = now;
        }
        if self.gone.has(piece.number) {
            self.came_twice(piece);
            return Put::Late;
        }
        let known = self.open.iter().rposition(|one| one.number == piece.number);
        let at = known.unwrap_or_else(|| self.begin(piece, spare));
        let assembly = &mut self.open[at];
        match assembly.add(piece) {
            Fit::Again => Put::Late,
            Fit::Contradicts => Put::Refused,
            Fit::New => {
                let gap = now.saturating_sub(assembly.last);
                if assembly.asked == 0 {
                    if assembly.last > 0 && gap > self.patience / 4 {
                        self.patience = (4 * gap).min(LONGEST_PATIENCE);
                    }
                    assembly.due = now + self.patience;
                }
                assembly.last = now;
                self.due = Some(self.due.map_or(assembly.due, |due| due.min(assembly.due)));
                Put::Part
            }
            Fit::Last => Put::Whole(self.finish(at)),
        }
    }

    /// Asks for what is missing, and gives up what nobody sends: `ask` is told the
    /// stream, number and pieces. Says how many messages were given up.
    pub(crate) fn act(&mut self, now: u64, round: u64, mut ask: impl FnMut(u32, u32, u16)) -> u64 {
        let mut given_up = 0;
        let mut at = 0;
        while at < self.open.len() {
            let assembly = &mut self.open[at];
            if assembly.due > now {
                at += 1;
            } else if assembly.asked >= ASKS {
                self.gone.note(assembly.number);
                self.open.remove(at);
                given_up += 1;
            } else {
                ask(self.stream, assembly.number, assembly.missing());
                assembly.wanted |= assembly.missing();
                let answer = ANSWER.max(2 * round).min(LONGEST_PATIENCE);
                assembly.due = now + (answer << assembly.asked);
                assembly.asked += 1;
                at += 1;
            }
        }
        self.due = self.open.iter().map(|assembly| assembly.due).min();
        given_up
    }

    /// Drops the oldest message; false if there is none.
    pub(crate) fn drop_oldest(&mut self, spare: &mut Vec<Vec<u8>>) -> bool {
        let Some(oldest) = self.open.pop_front() else {
            return false;
        };
        self.gone.note(oldest.number);
        spare.push(oldest.into_bytes());
        self.due = self.open.iter().map(|assembly| assembly.due).min();
        true
    }

    fn begin(&mut self, piece: &Piece<'_>, spare: &mut Vec<Vec<u8>>) -> usize {
        if self.open.len() >= OPEN {
            self.drop_oldest(spare);
        }
        let bytes = spare.pop().unwrap_or_default();
        let assembly = Assembly::new(piece.number, piece.cut, bytes);
        self.open.push_back(assembly);
        self.open.len() - 1
    }

    fn finish(&mut self, at: usize) -> Vec<u8> {
        let assembly = self.open.remove(at).expect("it is there");
        self.gone.note(assembly.number);
        if assembly.asked > 0 {
            if self.repaired.len() == REPAIRED {
                self.repaired.pop_front();
            }
            self.repaired.push_back((assembly.number, assembly.wanted));
        } else {
            self.patience -= (self.patience - PATIENCE) / 16;
        }
        self.due = self.open.iter().map(|assembly| assembly.due).min();
        assembly.into_bytes()
    }

    /// A piece came that had been there. If it had been asked for, that was too early.
    fn came_twice(&mut self, piece: &Piece<'_>) {
        let asked = |one: &(u32, u16)| one.0 == piece.number && one.1 & (1 << piece.index) != 0;
        if let Some(at) = self.repaired.iter().position(asked) {
            self.repaired.remove(at);
            self.patience = (self.patience + self.patience / 2).min(LONGEST_PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Cut;

    fn piece(number: u32, index: u8) -> Piece<'static> {
        Piece {
            stream: 5,
            number,
            cut: Cut::new(9, 3).unwrap(),
            index,
            bytes: &[7; 3],
        }
    }

    fn asks(sender: &mut Sender, now: u64) -> Vec<(u32, u16)> {
        let mut asked = Vec::new();
        sender.act(now, 0, |_, number, pieces| asked.push((number, pieces)));
        asked
    }

    #[test]
    fn what_is_missing_is_asked_for_a_few_times() {
        let (mut sender, mut spare) = (Sender::new(5), Vec::new());
        assert_eq!(sender.put(1, &piece(0, 0), &mut spare), Put::Part);
        assert_eq!(sender.put(1, &piece(1, 1), &mut spare), Put::Part);
        assert_eq!(sender.due, Some(1 + PATIENCE));
        assert_eq!(asks(&mut sender, PATIENCE), []);
        assert_eq!(asks(&mut sender, 1 + PATIENCE), [(0, 0b110), (1, 0b101)]);
        for index in [1, 2] {
            sender.put(2, &piece(0, index), &mut spare);
        }
        let mut total = 1;
        while let Some(due) = sender.due {
            total += asks(&mut sender, due).len();
        }
        assert_eq!(total, ASKS as usize);
        assert_eq!(sender.put(3, &piece(1, 0), &mut spare), Put::Late);
    }

    #[test]
    fn who_asks_in_vain_gets_more_patient() {
        let (mut sender, mut spare) = (Sender::new(5), Vec::new());
        for number in 0..40 {
            let now = u64::from(number) * 100 * MS + 1;
            sender.put(now, &piece(number, 0), &mut spare);
            let asked = asks(&mut sender, now + PATIENCE).len();
            assert_eq!(asked, usize::from(number < 1), "{number}");
            // The others were late, and come again after what was asked for.
            for index in [1, 2, 1, 2] {
                sender.put(now + PATIENCE + 9, &piece(number, index), &mut spare);
            }
        }
    }

    #[test]
    fn slow_links_are_waited_for() {
        let (mut sender, mut spare) = (Sender::new(5), Vec::new());
        let (mut now, mut total) = (1, 0);
        for number in 0..40 {
            let mut asked = 0;
            for index in 0..3 {
                sender.put(now, &piece(number, index), &mut spare);
                let due = sender.due.filter(|due| *due < now + 2 * MS);
                asked += due.map_or(0, |due| asks(&mut sender, due).len());
                now += 2 * MS;
            }
            // What was asked for in vain comes behind everything else.
            if asked > 0 {
                sender.put(now, &piece(number, 2), &mut spare);
            }
            total += asked;
        }
        assert!(total <= 8, "{total}");
    }

    #[test]
    fn a_new_start_begins_anew_and_the_old_does_not_come_back() {
        let (mut sender, mut spare) = (Sender::new(5), Vec::new());
        sender.put(1, &piece(0, 0), &mut spare);
        let new = |index| Piece {
            stream: 6,
            ..piece(0, index)
        };
        assert_eq!(sender.put(2, &new(0), &mut spare), Put::Part);
        assert_eq!(sender.put(3, &piece(0, 1), &mut spare), Put::Late);
        assert_eq!(sender.put(4, &new(1), &mut spare), Put::Part);
        assert_eq!(sender.put(5, &new(2), &mut spare), Put::Whole(vec![7; 9]));
    }

    #[test]
    fn so_many_at_a_time() {
        let (mut sender, mut spare) = (Sender::new(5), Vec::new());
        for number in 0..1000 {
            sender.put(1, &piece(number, 0), &mut spare);
            assert!(sender.size() <= OPEN * 9 && spare.len() <= 1);
        }
        assert_eq!(sender.put(2, &piece(0, 1), &mut spare), Put::Late);
    }
}
