//! What moves state from one process to many.

use clap::ValueEnum;
use serde::Serialize;

/// A way to move state, in its best documented setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(super) enum System {
    /// Plain UDP multicast by a C program; the kernel splits datagrams (GSO), and joins them (GRO).
    Floor,
    /// A board of PageMesh, by a C program.
    Board,
    /// The same in Python.
    BoardPy,
    /// A segment of policy sequential, by a C program.
    Sequential,
    /// The same in Python.
    SequentialPy,
    /// PUBLISH and SUBSCRIBE; nothing is written to disk.
    RedisPubsub,
    /// SET, CLIENT TRACKING, and GET when the key has changed.
    RedisTracking,
    /// Mosquitto: quality of service 0, the last state retained, TCP_NODELAY.
    Mqtt,
    /// UDP multicast; a queue of one.
    Lcm,
    /// Peer to peer, real-time priority, express, drops when congested.
    Zenoh,
    /// Reliable, keeps the last state, also for who comes late.
    Cyclonedds,
}

/// A program that all talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broker {
    Redis,
    Mosquitto,
}

impl System {
    pub(super) const ALL: [Self; 11] = [
        Self::Floor,
        Self::Board,
        Self::BoardPy,
        Self::Sequential,
        Self::SequentialPy,
        Self::RedisPubsub,
        Self::RedisTracking,
        Self::Mqtt,
        Self::Lcm,
        Self::Zenoh,
        Self::Cyclonedds,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Board => "board",
            Self::BoardPy => "board_py",
            Self::Sequential => "sequential",
            Self::SequentialPy => "sequential_py",
            Self::RedisPubsub => "redis_pubsub",
            Self::RedisTracking => "redis_tracking",
            Self::Mqtt => "mqtt",
            Self::Lcm => "lcm",
            Self::Zenoh => "zenoh",
            Self::Cyclonedds => "cyclonedds",
        }
    }

    /// The C program, if it is one: its own source.
    pub(super) fn source(self) -> Option<&'static str> {
        match self {
            Self::Floor => Some(include_str!("../../../apps/boards/floor.c")),
            Self::Board => Some(include_str!("../../../apps/boards/board.c")),
            Self::Sequential => Some(include_str!("../../../apps/boards/sequential.c")),
            _ => None,
        }
    }

    /// Whether it is ours: the nodes' daemons work for it.
    pub(super) fn is_ours(self) -> bool {
        matches!(
            self,
            Self::Board | Self::BoardPy | Self::Sequential | Self::SequentialPy
        )
    }

    /// What its Python must be able to import, beside numpy.
    pub(super) fn import(self) -> Option<&'static str> {
        match self {
            Self::BoardPy => Some("from pagemesh import Board"),
            Self::SequentialPy => Some("import pagemesh"),
            Self::Mqtt => Some("import paho.mqtt.client"),
            Self::Lcm => Some("import lcm"),
            Self::Zenoh => Some("import zenoh"),
            Self::Cyclonedds => Some("import cyclonedds.domain"),
            _ => None,
        }
    }

    pub(super) fn broker(self) -> Option<Broker> {
        match self {
            Self::RedisPubsub | Self::RedisTracking => Some(Broker::Redis),
            Self::Mqtt => Some(Broker::Mosquitto),
            _ => None,
        }
    }
}

impl Broker {
    /// Its program, which is Debian's package too; in a directory for servers, sometimes.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Mosquitto => "mosquitto",
        }
    }
}
