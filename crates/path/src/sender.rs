//! The receiver's state for one node that sends messages in pieces.

use crate::assembly::{Assembly, Fit};
use crate::gone::Gone;
use crate::packet::Piece;
use crate::{MS, US};
use std::collections::VecDeque;

/// Partly received messages of one sender.
#[derive(Debug)]
pub(crate) struct Sender {
    /// The present stream, and the other one of the sender's last restart: packets of that which are
    /// still under way must not reset this state.
    stream: u32,
    before: Option<u32>,
    /// When the last piece of the present stream arrived.
    flowed: u64,
    gone: Gone,
    open: VecDeque<Assembly>,
    /// Messages that were completed after these pieces were requested again.
    repaired: VecDeque<(u32, u16)>,
    /// How long to wait for the next piece of a message before requesting it, in nanoseconds.
    patience: u64,
    /// When pieces are to be requested, or a message given up.
    pub(crate) due: Option<u64>,
    /// When the last packet of this sender arrived.
    pub(crate) heard: u64,
}

/// The result of receiving a piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// The message is complete.
    Whole(Vec<u8>),
    /// The message is still incomplete.
    Part,
    /// The message is not needed any more, or the piece was a duplicate.
    Late,
    /// The piece contradicts earlier pieces.
    Refused,
}

/// Maximum number of messages of one sender that are assembled at the same time.
pub(crate) const OPEN: usize = 64;

/// Initial time without a new piece after which a receiver requests missing pieces, in nanoseconds.
/// The pieces of a message are sent together and arrive together, but some networks reorder them.
pub(crate) const PATIENCE: u64 = 400 * US;

/// Maximum time to wait for pieces, in nanoseconds: on a slow link they can arrive this far apart.
const LONGEST_PATIENCE: u64 = 20 * MS;

/// Minimum time to wait for requested pieces, in nanoseconds; two round trips if they take longer.
const ANSWER: u64 = 2 * MS;

/// Requests for missing pieces of one message; after that the message is dropped. The node that
/// waits for it repeats its own message after 10 ms.
pub(crate) const ASKS: u32 = 3;

/// So long after the last piece of the present stream, in nanoseconds, the other one may take its
/// place: a receiver that began after the restart cannot know which of the two is over.
const OVER: u64 = 1_000 * MS;

/// Number of repaired messages that are remembered.
const REPAIRED: usize = 16;

impl Sender {
    pub(crate) fn new(stream: u32) -> Self {
        Self {
            stream,
            before: None,
            flowed: 0,
            gone: Gone::default(),
            open: VecDeque::new(),
            repaired: VecDeque::new(),
            patience: PATIENCE,
            due: None,
            heard: 0,
        }
    }

    /// Bytes of memory that the messages take.
    pub(crate) fn size(&self) -> usize {
        self.open.iter().map(Assembly::size).sum()
    }

    /// Receives a piece at `now`; `spare` holds buffers for reuse.
    pub(crate) fn put(&mut self, now: u64, piece: &Piece<'_>, spare: &mut Vec<Vec<u8>>) -> Put {
        self.heard = now;
        if piece.stream != self.stream {
            if self.before == Some(piece.stream) && now < self.flowed + OVER {
                return Put::Late;
            }
            let before = self.stream;
            *self = Self::new(piece.stream);
            self.before = Some(before);
            self.heard = now;
        }
        self.flowed = now;
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

    /// Requests missing pieces, and gives up messages whose pieces do not come: calls `ask` with
    /// the stream, number and pieces. Returns how many messages were given up.
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

    /// Drops the oldest incomplete message; false if there is none.
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

    /// Notes a duplicate piece. If it had been requested, the request was sent too early.
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
            // The original pieces were late, and arrive after the requested ones.
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
            // The pieces that were requested needlessly arrive after everything else.
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
    fn a_late_piece_of_a_stream_that_is_over_keeps_the_other_out_for_a_moment_only() {
        let (mut sender, mut spare) = (Sender::new(6), Vec::new());
        let present = |number, index| Piece {
            stream: 6,
            ..piece(number, index)
        };
        sender.put(1, &present(0, 0), &mut spare);
        // The receiver is a new daemon too, so this looks like a restart of the sender.
        assert_eq!(sender.put(2, &piece(7, 0), &mut spare), Put::Part);
        assert_eq!(sender.put(3, &present(1, 0), &mut spare), Put::Late);
        let later = 2 + OVER;
        for index in [0, 1] {
            assert_eq!(sender.put(later, &present(2, index), &mut spare), Put::Part);
        }
        let whole = sender.put(later, &present(2, 2), &mut spare);
        assert_eq!(whole, Put::Whole(vec![7; 9]));
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
