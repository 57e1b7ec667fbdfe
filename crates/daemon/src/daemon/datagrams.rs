//! Datagrams that come: alone, or in one turn with those received with them.

use super::Daemon;
use crate::counters::Count;
use crate::network::Got;
use crate::payload::may_bring_diffs;
use anyhow::{Context as _, Result};
use pagemesh_os::clock;
use pagemesh_wire::PublicKey;
use std::net::SocketAddr;
use std::ops::Range;

impl Daemon {
    /// Handles one datagram and those received with it in one system call; false if there was none.
    pub(super) fn receive(&mut self) -> Result<bool> {
        let mut any = self.receive_one()?;
        while self.driver.executor.network.has_more() {
            any |= self.receive_one()?;
        }
        self.act();
        let executor = &mut self.driver.executor;
        executor.network.depart(&mut executor.counters);
        Ok(any)
    }

    fn receive_one(&mut self) -> Result<bool> {
        let executor = &mut self.driver.executor;
        let room = self.receive_batch.room();
        let got = executor.network.receive(room, &mut executor.counters);
        match got.context("the socket to other daemons is broken")? {
            Got::Datagram(at, from, key) => {
                let more = executor.network.has_more();
                self.handle((from, key), at, more);
                Ok(true)
            }
            Got::Nothing => Ok(false),
            Got::Handled => Ok(true),
        }
    }

    /// Handles a datagram: alone, or in one turn with those received with it.
    fn handle(&mut self, whose: (SocketAddr, PublicKey), at: Range<usize>, more: bool) {
        let room = &mut self.receive_batch.room()[at.clone()];
        let at = match self.driver.executor.lending.open(room) {
            None => at,
            Some(spoiled) => {
                self.driver.executor.count(Count::PagesForged, 1);
                at.start..at.start + spoiled
            }
        };
        let heard = self.driver.heard();
        let alone = heard == 0 && !more;
        if alone || may_bring_diffs(self.receive_batch.at(at.clone())) {
            self.act();
            let now = clock::monotonic();
            self.came(now);
            let bytes = self.receive_batch.take(at);
            return self.driver.datagram(now, whose, bytes);
        }
        // All datagrams of one turn have the same time.
        if heard == 0 {
            let now = clock::monotonic();
            self.came(now);
            self.driver.begin_to_hear(now);
        }
        self.receive_batch.sort(heard, at.clone());
        let bytes = self.receive_batch.take(at);
        if !self.driver.hear(whose, bytes) {
            self.act();
        }
    }

    /// Carries out the effects of the datagrams of this turn.
    pub(super) fn act(&mut self) {
        if self.driver.heard() > 0 {
            self.driver.act(&self.receive_batch);
        }
    }
}
