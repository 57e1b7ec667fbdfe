//! Requests of programs, from their request slots and their sockets.

use super::{Daemon, awake};
use crate::serve::Descriptors;
use anyhow::Result;
use pagemesh_os::clock;
use pagemesh_wire::ClientId;
use std::io;

/// Request packets of one process handled in a row before others are served.
const PACKETS: usize = 16;

/// Requests from request slots handled in a row before others are served.
const IN_A_ROW: usize = 16;

impl Daemon {
    /// Handles requests from request slots: one, if there is any, and those that come soon after.
    pub(super) fn request_slots(&mut self, ends_are_heard: bool) -> Result<bool> {
        let Some(client) = self.driver.executor.sessions.request_slots.asker() else {
            return Ok(false);
        };
        self.serve_slot(client, ends_are_heard)?;
        for _ in 1..IN_A_ROW {
            let Some(client) = self.next_asker() else {
                break;
            };
            self.serve_slot(client, false)?;
        }
        Ok(true)
    }

    /// Handles a request from a request slot. With several processes, a request other than for a
    /// lock is handled only after the hangups of processes that ended before it.
    fn serve_slot(&mut self, client: ClientId, ends_are_heard: bool) -> Result<()> {
        let alone = self.driver.executor.sessions.is_one();
        if !ends_are_heard && !alone && !self.is_for_a_lock(client) {
            self.poll(Some(0))?;
        }
        self.take_from_request_slot(client);
        self.came(clock::monotonic());
        Ok(())
    }

    fn is_for_a_lock(&mut self, client: ClientId) -> bool {
        let request_slots = &self.driver.executor.sessions.request_slots;
        let length = request_slots.request(client, &mut self.packet);
        length.is_some_and(|length| awake::wants_a_lock(&self.packet[..length]))
    }

    /// Handles the request in a process's slot and removes it only then: the successor finds it if
    /// this daemon ends in between.
    pub(super) fn take_from_request_slot(&mut self, client: ClientId) {
        let request_slots = &self.driver.executor.sessions.request_slots;
        if let Some(length) = request_slots.request(client, &mut self.packet) {
            self.driver
                .through_request_slot(client, &self.packet[..length]);
            self.driver.executor.sessions.request_slots.handled(client);
            self.driver.cut_off();
        }
    }

    /// Handles requests of a process up to the first that is not `wanted`. Returns whether there
    /// was one.
    pub(super) fn requests(&mut self, client: ClientId, wanted: fn(&[u8]) -> bool) -> bool {
        let mut any = false;
        for _ in 0..PACKETS {
            let Some(session) = self.driver.executor.sessions.get(client) else {
                return any;
            };
            // The packet is removed after it was handled, so that no request is lost if this daemon
            // ends in between.
            match session.socket.peek_now(&mut self.packet) {
                Ok(Some(packet)) => {
                    let bytes = &self.packet[..packet.len];
                    if !wanted(bytes) {
                        return any;
                    }
                    if self
                        .driver
                        .executor
                        .sessions
                        .request_slots
                        .has_asked(client)
                    {
                        // The request in the slot is older than this packet.
                        self.take_from_request_slot(client);
                        any = true;
                        continue;
                    }
                    let fds = Descriptors {
                        fds: packet.fds,
                        lost: packet.fds_lost,
                        sender: packet.sender,
                    };
                    let alone = self.driver.packet(client, bytes, fds);
                    self.driver.executor.sessions.took_packet(client);
                    self.driver.cut_off();
                    any = true;
                    self.rounds.asked = Some(client);
                    if alone {
                        return any;
                    }
                }
                Ok(None) => {
                    self.driver.hung_up(client);
                    return any;
                }
                Err(error) => {
                    self.trouble(client, &error);
                    return any;
                }
            }
        }
        any
    }

    fn trouble(&mut self, client: ClientId, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
            io::ErrorKind::InvalidData => self.driver.refuse_session(client, &error.to_string()),
            _ => self.driver.hung_up(client),
        }
    }
}
