//! The hatches of processes that ask often (`pagemesh_os::hatch`): who has put something there,
//! and where answers go.

use pagemesh_os::hatch::Hatch;
use pagemesh_wire::ClientId;
use pagemesh_wire::local::ReplyPacket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A daemon that is awake looks at each of them all the time, so not everybody gets one.
const MOST: usize = 16;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Hatches {
    all: Vec<(ClientId, Hatch)>,
    /// Whether this daemon looks by itself.
    look: bool,
    /// Who is looked at first, so that nobody has to wait for another one that asks all the time.
    first: usize,
}

impl Hatches {
    /// A hatch for a process; `None` if there are too many.
    pub(crate) fn open(&mut self, client: ClientId) -> io::Result<Option<OwnedFd>> {
        if self.get(client).is_none() {
            if self.all.len() == MOST {
                return Ok(None);
            }
            let hatch = Hatch::create()?;
            hatch.look(self.look);
            self.all.push((client, hatch));
        }
        let hatch = self.get(client).expect("just opened");
        hatch.as_fd().try_clone_to_owned().map(Some)
    }

    /// Goes on with one that the daemon before has opened.
    pub(crate) fn restore(&mut self, client: ClientId, memory: OwnedFd) -> io::Result<()> {
        let hatch = Hatch::map(memory)?;
        hatch.restore();
        hatch.look(self.look);
        self.all.push((client, hatch));
        Ok(())
    }

    /// The process is gone. Whether it had one.
    pub(crate) fn close(&mut self, client: ClientId) -> bool {
        let place = self.place(client);
        place
            .map(|place| self.all.remove(place).1.close())
            .is_some()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// All of them, to keep for the next daemon.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, BorrowedFd<'_>)> {
        self.all
            .iter()
            .map(|(client, hatch)| (*client, hatch.as_fd()))
    }

    /// From now on looks by itself.
    pub(crate) fn look(&mut self) {
        if !self.look {
            self.set(true);
        }
    }

    /// Looks no more: this daemon is about to sleep. False if it must not, since somebody has
    /// asked meanwhile.
    pub(crate) fn look_away(&mut self) -> bool {
        if self.look {
            self.set(false);
        }
        self.asker().is_none()
    }

    fn set(&mut self, look: bool) {
        self.look = look;
        for (_, hatch) in &self.all {
            hatch.look(look);
        }
    }

    /// Somebody who has asked.
    #[inline]
    pub(crate) fn asker(&self) -> Option<ClientId> {
        let (before, behind) = self.all.split_at(self.first.min(self.all.len()));
        let mut all = behind.iter().chain(before);
        all.find(|(_, hatch)| hatch.has_post())
            .map(|(client, _)| *client)
    }

    /// Whether the process has asked.
    pub(crate) fn has_asked(&self, client: ClientId) -> bool {
        self.get(client).is_some_and(Hatch::has_post)
    }

    /// What the process has asked, copied; how long that is.
    pub(crate) fn request(&self, client: ClientId, into: &mut [u8]) -> Option<usize> {
        self.get(client)?.posted(into)
    }

    /// What the process has asked is handled: it may ask again, after the others.
    pub(crate) fn handled(&mut self, client: ClientId) {
        if let Some(place) = self.place(client) {
            self.all[place].1.clear();
            self.first = place + 1;
        }
    }

    /// Answers, if that is where the answer is to come.
    pub(crate) fn answer(&self, client: ClientId, packet: &ReplyPacket) -> bool {
        let hatch = self.get(client);
        let hatch = hatch.filter(|hatch| hatch.is_awaited(packet.number));
        hatch.is_some_and(|hatch| hatch.answer(packet.number, &packet.encode()))
    }

    fn get(&self, client: ClientId) -> Option<&Hatch> {
        self.place(client).map(|place| &self.all[place].1)
    }

    fn place(&self, client: ClientId) -> Option<usize> {
        self.all.iter().position(|(of, _)| *of == client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_os::hatch::{Answer, ROOM};
    use pagemesh_wire::local::Reply;

    const ONE: ClientId = ClientId(1);
    const TWO: ClientId = ClientId(2);

    fn with(clients: &[ClientId]) -> (Hatches, Vec<Hatch>) {
        let mut hatches = Hatches::default();
        let lend = |client| hatches.open(client).unwrap().unwrap();
        let fds: Vec<_> = clients.iter().copied().map(lend).collect();
        let theirs = fds.into_iter().map(|fd| Hatch::map(fd).unwrap());
        (hatches, theirs.collect())
    }

    #[test]
    fn everybody_has_a_turn() {
        let (mut hatches, theirs) = with(&[ONE, TWO]);
        assert_eq!(hatches.asker(), None);
        let mut turns = Vec::new();
        for number in 1..=3 {
            assert!(theirs[0].post(number, &[1]) && theirs[1].post(number, &[2; 3]));
            for _ in 0..2 {
                let asker = hatches.asker().unwrap();
                let mut room = [0; ROOM];
                let length = hatches.request(asker, &mut room).unwrap();
                assert_eq!(
                    room[..length],
                    if asker == ONE { vec![1] } else { vec![2; 3] }
                );
                hatches.handled(asker);
                turns.push(asker.0);
            }
            assert_eq!(hatches.asker(), None);
        }
        assert_eq!(turns, [1, 2, 1, 2, 1, 2]);
        hatches.close(ONE);
        assert!(theirs[1].post(4, &[]));
        assert_eq!(hatches.asker(), Some(TWO));
        hatches.close(TWO);
        assert_eq!(hatches.asker(), None);
    }

    #[test]
    fn nobody_is_missed_who_asks_when_the_daemon_goes_to_sleep() {
        let (mut hatches, theirs) = with(&[ONE]);
        assert!(!theirs[0].looks() && hatches.look_away());
        hatches.look();
        assert!(theirs[0].looks() && theirs[0].post(1, &[]));
        assert!(!hatches.look_away(), "somebody has asked");
        assert!(!theirs[0].looks(), "from now on they knock");
        hatches.handled(ONE);
        assert!(hatches.look_away());
        hatches.look();
        let late = hatches.open(TWO).unwrap().unwrap();
        assert!(Hatch::map(late).unwrap().looks());
    }

    #[test]
    fn there_are_not_too_many() {
        let mut hatches = Hatches::default();
        for client in 1..=MOST as u32 {
            assert!(hatches.open(ClientId(client)).unwrap().is_some());
        }
        assert!(hatches.open(ClientId(99)).unwrap().is_none());
        assert!(hatches.open(ONE).unwrap().is_some(), "the one it has");
        hatches.close(ONE);
        assert!(hatches.open(ClientId(99)).unwrap().is_some());
    }

    #[test]
    fn answers_go_where_they_are_awaited() {
        let (hatches, theirs) = with(&[ONE, TWO]);
        let packet = ReplyPacket {
            number: 7,
            reply: Reply::Locked { recovered: false },
        };
        assert!(!hatches.answer(ONE, &packet), "nobody waits for it here");
        theirs[0].expect(7);
        assert!(!hatches.answer(TWO, &packet) && hatches.answer(ONE, &packet));
        assert_eq!(theirs[0].take(7), Answer::Here(packet.encode()));
        theirs[0].expect(8);
        let long = ReplyPacket {
            number: 8,
            reply: Reply::Counters(vec![("x".repeat(ROOM), 1)]),
        };
        assert!(!hatches.answer(ONE, &long));
        assert_eq!(theirs[0].take(8), Answer::Elsewhere);
    }
}
