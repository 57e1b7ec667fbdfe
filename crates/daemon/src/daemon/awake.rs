//! A daemon that stays awake: who goes first, and who is looked at.

use super::{DATAGRAMS, Daemon};
use crate::crowd::GIVEN_WAY;
use crate::token::Token;
use crate::waiter::Programs;
use anyhow::Result;
use pagemesh_os::{clock, cpu};
use pagemesh_wire::ClientId;
use pagemesh_wire::local::{Request, RequestPacket};

/// Looks for a datagram in a row while somebody waits for one: some 2 µs.
const GLANCES: usize = 6;

/// As many where nobody else took the processor when last offered: most answers come within these.
const PATIENT: usize = 20;

/// Looks for a datagram in a row otherwise, on a processor nobody else wants.
const ALONE: usize = 3;

/// Rounds of staying awake after which everything is looked at, though no local
/// process ran on this processor.
const ROUNDS: usize = 4;

/// Rounds in a row that serve only what was expected, before anything else is looked at.
pub(super) const EXPECTED: u32 = 16;

/// Rounds of staying awake, some 0.1 ms, after which the kernel need not tell that a datagram has
/// come: the daemon looks itself. Being told costs whoever sends it, some 0.3 µs.
const DEAF: u32 = 64;

/// What a daemon that stays awake remembers from one round to the next.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Those since something came.
    idle: usize,
    /// Something came in the last one.
    pub(super) busy: bool,
    /// Those in a row that served only what was expected.
    pub(super) expected: u32,
    /// Who asked last, and will probably ask next.
    pub(super) asked: Option<ClientId>,
    /// Those since the daemon slept.
    awake: u32,
    /// Nobody wants this processor, and nothing has come for long.
    quiet: bool,
    /// The kernel does not tell of datagrams.
    deaf: bool,
}

impl Daemon {
    /// One round of staying awake. Whoever else wants this processor gets it
    /// first: a thread just woken, a client, another daemon of this host.
    pub(super) fn spin(&mut self, now: u64, programs: Programs) -> Result<()> {
        self.turn_deaf()?;
        let computing = self.waiter.expects(now);
        self.driver.hands.rank.expect(computing);
        self.driver.hands.sessions.hatches.look();
        self.rounds.quiet = programs != Programs::Run && self.waiter.is_quiet(now);
        let given_way = self.give_way(now, programs);
        // Whoever was served may have run already.
        let busy = given_way || std::mem::take(&mut self.rounds.busy);
        // Where all ran and none came to a page, one has asked for something, most likely.
        let asked = given_way && programs == Programs::Run;
        if busy && self.rounds.expected < EXPECTED {
            self.rounds.expected += 1;
            if self.hatches(false)? {
                return Ok(());
            }
            // Who got the last page has probably come to the next.
            if self.driver.next_fault() || asked && self.next_request() {
                self.came(now);
                return Ok(());
            }
        }
        self.rounds.expected = 0;
        if asked {
            return self.look_at_all();
        }
        let glances = match (programs, busy) {
            (Programs::Fault | Programs::Wait, _) if given_way => GLANCES,
            (Programs::Fault | Programs::Wait, _) => PATIENT,
            (Programs::Absent | Programs::Run, false) => ALONE,
            (Programs::Absent | Programs::Run, true) => 1,
        };
        if self.glance(glances)? {
            return Ok(());
        }
        self.rounds.idle += 1;
        if !busy && self.rounds.idle < ROUNDS {
            return Ok(());
        }
        self.look_at_all()
    }

    /// Who asked last has probably asked again, for another lock: looking there takes less time than
    /// asking the kernel where something happened. Whether that was so.
    fn next_request(&mut self) -> bool {
        let asked = self.rounds.asked.take();
        asked.is_some_and(|client| self.requests(client, wants_a_lock))
    }

    /// Asks the kernel what has happened, and looks for a datagram if it does not tell of those.
    fn look_at_all(&mut self) -> Result<()> {
        self.rounds.idle = 0;
        self.poll(Some(0))?;
        if self.rounds.deaf {
            self.glance(1)?;
        }
        self.hatches(true)?;
        Ok(())
    }

    /// The kernel need not tell of datagrams any more, if this daemon has been awake for long.
    fn turn_deaf(&mut self) -> Result<()> {
        self.rounds.awake = self.rounds.awake.saturating_add(1);
        if self.rounds.awake == DEAF {
            let hands = &self.driver.hands;
            hands.poll.remove(&hands.network.udp)?;
            self.rounds.deaf = true;
        }
        Ok(())
    }

    /// The kernel tells of datagrams, those included that have come already.
    pub(super) fn be_told(&mut self) -> Result<()> {
        self.rounds.awake = 0;
        if std::mem::take(&mut self.rounds.deaf) {
            let hands = &self.driver.hands;
            hands
                .poll
                .add(&hands.network.udp, Token::Network.encode())?;
        }
        Ok(())
    }

    /// Whoever else wants this processor gets it; whether somebody did.
    fn give_way(&mut self, now: u64, programs: Programs) -> bool {
        // Most have their answer sooner, and then this daemon sleeps again.
        if programs != Programs::Wait || self.rounds.awake > DEAF {
            self.driver.hands.rank.take_turns();
        }
        cpu::yield_now();
        let away = clock::monotonic().saturating_sub(now);
        self.waiter.gave_way(away, now + away);
        away > GIVEN_WAY
    }

    /// Who was woken may have taken the processor before this daemon gave way.
    pub(super) fn mind_absence(&mut self, now: u64) {
        if let Some(woke) = self.driver.hands.rank.woke() {
            self.waiter.woke(woke, now);
        }
    }

    /// The thread that got its page just now goes on at once, before anything else is
    /// looked at, and if it comes to the next page, that is asked for at once.
    fn let_go_on(&mut self) {
        let now = clock::monotonic();
        self.mind_absence(now);
        let programs = self.driver.programs();
        if self.waiter.stays_awake(now, programs) && self.give_way(now, programs) {
            self.rounds.busy = true;
            if self.driver.next_fault() {
                self.came(now);
            }
        }
    }

    /// Looks for a datagram so often. If one has come, it and those behind it are
    /// handled, until a thread was woken that may want this processor. If others still
    /// wait, all are handled: threads that are woken together stop together, and what
    /// they need next is asked for together. In between there is time.
    fn glance(&mut self, times: usize) -> Result<bool> {
        for _ in 0..times {
            if self.receive()? {
                let mut more = DATAGRAMS;
                while more > 0 && self.may_receive() && self.receive()? {
                    more -= 1;
                }
                if more > 0 {
                    if self.driver.has_woken() {
                        self.let_go_on();
                    }
                    return Ok(true);
                }
                // Everything else has its turn now.
                break;
            }
            if self.hatches(false)? {
                return Ok(true);
            }
            self.driver.hands.catch_up(self.rounds.quiet);
            self.driver.hands.prepare();
        }
        Ok(false)
    }

    fn may_receive(&self) -> bool {
        !self.driver.has_woken() || self.driver.is_waited_for()
    }
}

/// Whether a request may be handled before it is known who has ended: a process that asks after
/// another's end must find that. For a lock it waits anyway.
pub(super) fn wants_a_lock(packet: &[u8]) -> bool {
    RequestPacket::decode(packet).is_ok_and(|packet| matches!(packet.request, Request::Lock { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::{NodeId, SegmentId, SyncKey};

    #[test]
    fn only_who_wants_a_lock_goes_before_who_has_ended() {
        let key = SyncKey {
            segment: SegmentId::new(NodeId(1), 2),
            number: 3,
        };
        let wants = |request| wants_a_lock(&RequestPacket { number: 1, request }.encode());
        assert!(wants(Request::Lock { key }));
        assert!(!wants(Request::Unlock { key }) && !wants(Request::Members));
        assert!(!wants_a_lock(&[]) && !wants_a_lock(&[255; 40]));
    }
}
