//! The daemon while it stays awake: yields the processor, and polls for datagrams and requests.

use super::{DATAGRAMS, Daemon};
use crate::contention::GIVEN_WAY;
use crate::token::Token;
use crate::waiter::Programs;
use anyhow::Result;
use pagemesh_os::polling::Polling;
use pagemesh_os::{clock, cpu};
use pagemesh_wire::ClientId;
use pagemesh_wire::local::{Request, RequestPacket};
use std::hint::spin_loop;

/// Receive attempts in a row while a thread or process waits; some 2 µs.
const GLANCES: usize = 6;

/// Receive attempts in a row if the last yield was not used: most answers come within these.
const PATIENT: usize = 20;

/// Receive attempts in a row otherwise, on a processor without contention.
const ALONE: usize = 3;

/// Idle rounds after which all descriptors are polled although no local process ran on this
/// processor.
const ROUNDS: usize = 4;

/// Rounds in a row that serve only the expected sources before all descriptors are polled.
pub(super) const EXPECTED: u32 = 16;

/// Rounds (some 0.1 ms) after which the socket leaves the poll set: the daemon reads it itself. A
/// wakeup costs the sender some 0.3 µs.
const DEAF: u32 = 64;

/// Nanoseconds within which a process that has its answer makes its next request, if it does
/// little else.
const NEXT: u64 = 5_000;

/// State that is kept from round to round while the daemon stays awake.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Rounds since the last activity.
    idle: usize,
    /// There was activity in the last round.
    pub(super) busy: bool,
    /// Rounds in a row that served only the expected sources.
    pub(super) expected: u32,
    /// The process that sent the last request and will probably send the next.
    pub(super) asked: Option<ClientId>,
    /// Rounds since the daemon slept.
    awake: u32,
    /// No program runs, and nothing was received for long.
    quiet: bool,
    /// The socket is not in the poll set.
    deaf: bool,
    /// The poll set says when the socket is writable.
    awaits_room: bool,
    /// Whether a request in a slot is soon followed by the next.
    polling: Polling,
}

impl Daemon {
    /// One round of staying awake. First it yields the processor: to a thread just woken, a
    /// program, or another daemon of this host.
    pub(super) fn spin(&mut self, now: u64, programs: Programs) -> Result<()> {
        self.turn_deaf()?;
        let computing = self.waiter.expects(now);
        self.driver.executor.priority.expect(computing);
        self.driver.executor.sessions.request_slots.look();
        self.rounds.quiet = programs != Programs::Run && self.waiter.is_quiet(now);
        let given_way = self.give_way(now, programs);
        // A program that was just served may have run already.
        let busy = given_way || std::mem::take(&mut self.rounds.busy);
        // If all programs ran and none faulted, one of them has most likely sent a request.
        let asked = given_way && programs == Programs::Run;
        if busy && self.rounds.expected < EXPECTED {
            self.rounds.expected += 1;
            if self.request_slots(false)? {
                return Ok(());
            }
            // The thread that got the last page has probably faulted on the next.
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
            (Programs::Fault | Programs::Wait | Programs::Watch, _) if given_way => GLANCES,
            (Programs::Fault | Programs::Wait | Programs::Watch, _) => PATIENT,
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

    /// Reads the process that sent the last request: it has probably sent the next one, for another
    /// lock, and this read takes less time than a poll. Returns whether it had.
    fn next_request(&mut self) -> bool {
        let asked = self.rounds.asked.take();
        asked.is_some_and(|client| self.requests(client, wants_a_lock))
    }

    /// Polls the request slots for a moment: a process that makes one System V call after the other
    /// makes the next sooner than this daemon has looked at all else.
    pub(super) fn next_asker(&mut self) -> Option<ClientId> {
        let request_slots = &self.driver.executor.sessions.request_slots;
        if !self.waiter.spins() || !self.rounds.polling.is_worth_it() {
            return request_slots.asker();
        }
        let end = clock::monotonic() + NEXT;
        let mut asker = request_slots.asker();
        while asker.is_none() && clock::monotonic() < end {
            for _ in 0..16 {
                spin_loop();
            }
            asker = request_slots.asker();
        }
        self.rounds.polling.ended(asker.is_some());
        asker
    }

    /// Polls all descriptors, and the socket if it is not in the poll set.
    fn look_at_all(&mut self) -> Result<()> {
        self.rounds.idle = 0;
        self.poll(Some(0))?;
        if self.rounds.deaf {
            self.glance(1)?;
        }
        self.request_slots(true)?;
        Ok(())
    }

    /// Takes the socket out of the poll set if this daemon has been awake for long.
    fn turn_deaf(&mut self) -> Result<()> {
        self.rounds.awake = self.rounds.awake.saturating_add(1);
        if self.rounds.awake == DEAF {
            let executor = &self.driver.executor;
            executor.poll.remove(executor.network.udp())?;
            self.rounds.deaf = true;
        }
        Ok(())
    }

    /// Puts the socket back into the poll set; datagrams that wait already are reported.
    pub(super) fn be_told(&mut self) -> Result<()> {
        self.rounds.awake = 0;
        if std::mem::take(&mut self.rounds.deaf) {
            let executor = &self.driver.executor;
            executor
                .poll
                .add(executor.network.udp(), Token::Network.encode())?;
            self.rounds.awaits_room = false;
        }
        Ok(())
    }

    /// Has the poll set say when there is room for datagrams that wait for it, and no longer.
    pub(super) fn await_room(&mut self) -> Result<()> {
        let executor = &self.driver.executor;
        let awaits = executor.network.awaits_room();
        if awaits != self.rounds.awaits_room {
            let token = Token::Network.encode();
            executor
                .poll
                .want_write(executor.network.udp(), token, awaits)?;
            self.rounds.awaits_room = awaits;
        }
        Ok(())
    }

    /// Yields the processor; returns whether another thread used it.
    fn give_way(&mut self, now: u64, programs: Programs) -> bool {
        // Most programs have their answer sooner, and then this daemon sleeps again.
        let wait = matches!(programs, Programs::Wait | Programs::Watch);
        if !wait || self.rounds.awake > DEAF {
            self.driver.executor.priority.take_turns();
        }
        cpu::yield_now();
        let away = clock::monotonic().saturating_sub(now);
        self.waiter.gave_way(away, now + away);
        away > GIVEN_WAY
    }

    /// Accounts for a woken program that took the processor before this daemon yielded.
    pub(super) fn mind_absence(&mut self, now: u64) {
        if let Some(changed) = self.driver.executor.changed.take() {
            self.waiter.state_changed(changed);
        }
        if let Some(woke) = self.driver.executor.priority.woke() {
            self.waiter.woke(woke, now);
        }
    }

    /// Lets the thread that just got its page run before anything else is served; if it faults on
    /// the next page, that is requested at once.
    fn let_go_on(&mut self) {
        let now = clock::monotonic();
        self.mind_absence(now);
        let executor = &self.driver.executor;
        let programs = executor.sessions.programs(&executor.faults.open);
        if self.waiter.stays_awake(now, programs) && self.give_way(now, programs) {
            self.rounds.busy = true;
            if self.driver.next_fault() {
                self.came(now);
            }
        }
    }

    /// Tries `times` times to receive a datagram. If one has come, handles it and those behind it
    /// until a thread was woken that may want this processor. If other threads still wait, all
    /// datagrams are handled: threads that are woken together fault together, and their next pages
    /// are requested together. Between the attempts, deferred work is done.
    fn glance(&mut self, times: usize) -> Result<bool> {
        for _ in 0..times {
            if self.receive()? {
                let mut more = DATAGRAMS;
                while more > 0 && self.may_receive() && self.receive()? {
                    more -= 1;
                }
                if more > 0 {
                    if self.driver.executor.faults.woken {
                        self.let_go_on();
                    }
                    return Ok(true);
                }
                // Now other descriptors are served.
                break;
            }
            if self.request_slots(false)? {
                return Ok(true);
            }
            self.driver.executor.catch_up(self.rounds.quiet);
            self.driver.executor.prepare();
        }
        Ok(false)
    }

    pub(super) fn may_receive(&self) -> bool {
        let faults = &self.driver.executor.faults;
        !faults.woken || !faults.open.is_empty()
    }
}

/// True if a request may be handled before the hangups of ended processes: only one for a lock,
/// which waits anyway. A process that asks after another one's end must find it ended.
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
