//! The switches of experiments in a build without them (feature `experiment`): types that have no
//! value, so that no code of them is compiled.

use anyhow::Result;
use pagemesh_core::Time;
use pagemesh_wire::{PageIndex, SegmentId};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// No switch is set, for there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Experiment {}

/// Nothing between seal and socket.
#[derive(Debug)]
pub(crate) enum Edge {}

/// No slow disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SlowDisk {}

/// No ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ticks {}

impl Experiment {
    /// The present edition.
    pub(crate) fn is_former(self) -> bool {
        false
    }

    /// No ticks.
    pub(crate) fn ticks(self, _now: u64) -> Option<Ticks> {
        None
    }

    /// The usual silence.
    pub(crate) fn dead_after(self) -> Option<Duration> {
        None
    }

    /// The disk is as fast as it is.
    pub(crate) fn slow_disk(self) -> Option<SlowDisk> {
        None
    }
}

impl Edge {
    pub(crate) fn new(_: Experiment) -> Result<Option<Self>> {
        Ok(None)
    }

    pub(crate) fn send(&mut self, _to: SocketAddr, _datagram: &[u8]) -> bool {
        match *self {}
    }

    pub(crate) fn packets(&mut self) -> std::iter::Empty<(SocketAddr, Vec<u8>)> {
        match *self {}
    }

    pub(crate) fn came(&mut self, _from: SocketAddr, _bytes: &[u8]) -> Option<Vec<u8>> {
        match *self {}
    }

    pub(crate) fn back(&mut self) -> Option<(SocketAddr, Option<Vec<u8>>)> {
        match *self {}
    }

    pub(crate) fn expire(&mut self, _now: u64) {
        match *self {}
    }

    pub(crate) fn due(&self) -> Option<u64> {
        match *self {}
    }

    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        match *self {}
    }
}

impl Ticks {
    pub(crate) fn time(self, _now: u64) -> Time {
        match self {}
    }

    pub(crate) fn due(self, _deadline: u64) -> u64 {
        match self {}
    }
}

impl SlowDisk {
    pub(crate) fn read(&mut self, _began: Instant, _page: (SegmentId, PageIndex)) {
        match *self {}
    }
}
