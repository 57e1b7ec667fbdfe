//! The request slots of processes that ask often (`pagemesh_os::request_slot`): which of them hold
//! a request, and where answers go.

use pagemesh_os::request_slot::RequestSlot;
use pagemesh_wire::ClientId;
use pagemesh_wire::local::ReplyPacket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Slots at most: a daemon that is awake polls each of them all the time.
const MOST: usize = 16;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct RequestSlots {
    all: Vec<(ClientId, RequestSlot)>,
    /// Whether this daemon looks by itself.
    look: bool,
    /// The slot that is polled first, so that a process that asks all the time does not delay
    /// others.
    first: usize,
}

impl RequestSlots {
    /// A request slot for a process; `None` if there are too many.
    pub(crate) fn open(&mut self, client: ClientId) -> io::Result<Option<OwnedFd>> {
        if self.get(client).is_none() {
            if self.all.len() == MOST {
                return Ok(None);
            }
            let request_slot = RequestSlot::create()?;
            request_slot.look(self.look);
            request_slot.tell_changes(true);
            self.all.push((client, request_slot));
        }
        let request_slot = self.get(client).expect("just opened");
        request_slot.as_fd().try_clone_to_owned().map(Some)
    }

    /// Goes on with one that the daemon before has opened.
    pub(crate) fn restore(&mut self, client: ClientId, memory: OwnedFd) -> io::Result<()> {
        let request_slot = RequestSlot::map(memory)?;
        request_slot.restore();
        request_slot.look(self.look);
        // Threads look again: the daemon before may have ended between a change and its count.
        request_slot.tell_changes(true);
        self.all.push((client, request_slot));
        Ok(())
    }

    /// The process is gone. Whether it had one.
    pub(crate) fn close(&mut self, client: ClientId) -> bool {
        let place = self.place(client);
        place
            .map(|place| self.all.remove(place).1.close())
            .is_some()
    }

    /// This daemon ends, and its successor may be of a release that does not count changes.
    pub(crate) fn tell_no_changes(&self) {
        for (_, request_slot) in &self.all {
            request_slot.tell_changes(false);
        }
    }

    /// Whether a thread of the process sleeps until states change.
    pub(crate) fn is_watched(&self, client: ClientId) -> bool {
        self.get(client).is_some_and(RequestSlot::is_watched)
    }

    /// Tells processes that states changed. Whether a thread had waited for that.
    pub(crate) fn changed(&self, concerns: impl Fn(ClientId) -> bool) -> bool {
        let concerned = self.all.iter().filter(|(client, _)| concerns(*client));
        concerned.fold(false, |waited, (_, request_slot)| {
            let waits = request_slot.is_watched();
            request_slot.changed();
            waited | waits
        })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// All of them, to keep for the next daemon.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, BorrowedFd<'_>)> {
        self.all
            .iter()
            .map(|(client, request_slot)| (*client, request_slot.as_fd()))
    }

    /// From now on looks by itself.
    pub(crate) fn look(&mut self) {
        if !self.look {
            self.set(true);
        }
    }

    /// Stops polling: this daemon is about to sleep. False if it must not, since a process has
    /// asked meanwhile.
    pub(crate) fn look_away(&mut self) -> bool {
        if self.look {
            self.set(false);
        }
        self.asker().is_none()
    }

    fn set(&mut self, look: bool) {
        self.look = look;
        for (_, request_slot) in &self.all {
            request_slot.look(look);
        }
    }

    /// A process that has asked.
    #[inline]
    pub(crate) fn asker(&self) -> Option<ClientId> {
        let (before, behind) = self.all.split_at(self.first.min(self.all.len()));
        let mut all = behind.iter().chain(before);
        all.find(|(_, request_slot)| request_slot.has_post())
            .map(|(client, _)| *client)
    }

    /// Whether the process has asked.
    pub(crate) fn has_asked(&self, client: ClientId) -> bool {
        self.get(client).is_some_and(RequestSlot::has_post)
    }

    /// Copies the request of the process; returns its length.
    pub(crate) fn request(&self, client: ClientId, into: &mut [u8]) -> Option<usize> {
        self.get(client)?.posted(into)
    }

    /// The request of the process is handled: it may ask again, after the others.
    pub(crate) fn handled(&mut self, client: ClientId) {
        if let Some(place) = self.place(client) {
            self.all[place].1.clear();
            self.first = place + 1;
        }
    }

    /// Answers, if that is where the answer is to come.
    pub(crate) fn answer(&self, client: ClientId, packet: &ReplyPacket) -> bool {
        let request_slot = self.get(client);
        let request_slot =
            request_slot.filter(|request_slot| request_slot.is_awaited(packet.number));
        request_slot
            .is_some_and(|request_slot| request_slot.answer(packet.number, &packet.encode()))
    }

    fn get(&self, client: ClientId) -> Option<&RequestSlot> {
        self.place(client).map(|place| &self.all[place].1)
    }

    fn place(&self, client: ClientId) -> Option<usize> {
        self.all.iter().position(|(of, _)| *of == client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_os::request_slot::{Answer, ROOM};
    use pagemesh_wire::local::Reply;

    const ONE: ClientId = ClientId(1);
    const TWO: ClientId = ClientId(2);

    fn with(clients: &[ClientId]) -> (RequestSlots, Vec<RequestSlot>) {
        let mut request_slots = RequestSlots::default();
        let lend = |client| request_slots.open(client).unwrap().unwrap();
        let fds: Vec<_> = clients.iter().copied().map(lend).collect();
        let theirs = fds.into_iter().map(|fd| RequestSlot::map(fd).unwrap());
        (request_slots, theirs.collect())
    }

    #[test]
    fn everybody_has_a_turn() {
        let (mut request_slots, theirs) = with(&[ONE, TWO]);
        assert_eq!(request_slots.asker(), None);
        let mut turns = Vec::new();
        for number in 1..=3 {
            assert!(theirs[0].post(number, &[1]) && theirs[1].post(number, &[2; 3]));
            for _ in 0..2 {
                let asker = request_slots.asker().unwrap();
                let mut room = [0; ROOM];
                let length = request_slots.request(asker, &mut room).unwrap();
                assert_eq!(
                    room[..length],
                    if asker == ONE { vec![1] } else { vec![2; 3] }
                );
                request_slots.handled(asker);
                turns.push(asker.0);
            }
            assert_eq!(request_slots.asker(), None);
        }
        assert_eq!(turns, [1, 2, 1, 2, 1, 2]);
        request_slots.close(ONE);
        assert!(theirs[1].post(4, &[]));
        assert_eq!(request_slots.asker(), Some(TWO));
        request_slots.close(TWO);
        assert_eq!(request_slots.asker(), None);
    }

    #[test]
    fn nobody_is_missed_who_asks_when_the_daemon_goes_to_sleep() {
        let (mut request_slots, theirs) = with(&[ONE]);
        assert!(!theirs[0].looks() && request_slots.look_away());
        request_slots.look();
        assert!(theirs[0].looks() && theirs[0].post(1, &[]));
        assert!(!request_slots.look_away(), "somebody has asked");
        assert!(!theirs[0].looks(), "from now on they knock");
        request_slots.handled(ONE);
        assert!(request_slots.look_away());
        request_slots.look();
        let late = request_slots.open(TWO).unwrap().unwrap();
        assert!(RequestSlot::map(late).unwrap().looks());
    }

    #[test]
    fn changes_are_told_to_those_that_they_concern() {
        let (request_slots, theirs) = with(&[ONE, TWO]);
        let seen = theirs[0].watch().unwrap();
        assert!(request_slots.is_watched(ONE) && !request_slots.is_watched(TWO));
        assert!(!request_slots.changed(|client| client == TWO));
        assert_eq!(theirs[0].watch(), Some(seen));
        assert!(request_slots.changed(|client| client == ONE));
        assert_eq!(theirs[0].watch(), Some(seen + 1));
        let kept = request_slots.get(ONE).unwrap().as_fd();
        let kept = kept.try_clone_to_owned().unwrap();
        request_slots.tell_no_changes();
        assert_eq!(theirs[0].watch(), None, "the successor may be older");
        let mut successor = RequestSlots::default();
        successor.restore(ONE, kept).unwrap();
        assert!(theirs[0].watch() > Some(seen + 1), "it may have missed one");
    }

    #[test]
    fn there_are_not_too_many() {
        let mut request_slots = RequestSlots::default();
        for client in 1..=MOST as u32 {
            assert!(request_slots.open(ClientId(client)).unwrap().is_some());
        }
        assert!(request_slots.open(ClientId(99)).unwrap().is_none());
        assert!(request_slots.open(ONE).unwrap().is_some(), "the one it has");
        request_slots.close(ONE);
        assert!(request_slots.open(ClientId(99)).unwrap().is_some());
    }

    #[test]
    fn answers_go_where_they_are_awaited() {
        let (request_slots, theirs) = with(&[ONE, TWO]);
        let packet = ReplyPacket {
            number: 7,
            reply: Reply::Locked { recovered: false },
        };
        assert!(
            !request_slots.answer(ONE, &packet),
            "nobody waits for it here"
        );
        theirs[0].expect(7);
        assert!(!request_slots.answer(TWO, &packet) && request_slots.answer(ONE, &packet));
        assert_eq!(theirs[0].take(7), Answer::Here(packet.encode()));
        theirs[0].expect(8);
        let long = ReplyPacket {
            number: 8,
            reply: Reply::Counters(vec![("x".repeat(ROOM), 1)]),
        };
        assert!(!request_slots.answer(ONE, &long));
        assert_eq!(theirs[0].take(8), Answer::Elsewhere);
    }
}
