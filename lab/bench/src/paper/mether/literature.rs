//! Figures of the paper: Sun 3/50s under SunOS 4.0, Ethernet, pages of 8 KiB, 1024 additions.

/// What the paper says of a protocol, as far as it does.
#[derive(Clone, Copy)]
pub(super) struct Paper {
    pub(super) wall: Option<f64>,
    pub(super) user: Option<f64>,
    pub(super) system: Option<f64>,
    /// Thousand bytes a second.
    pub(super) load: Option<f64>,
    /// Context switches for an addition.
    pub(super) switches: Option<f64>,
    /// Milliseconds.
    pub(super) latency: Option<f64>,
    /// Losses for a win.
    pub(super) losses: Option<f64>,
    /// Bytes of the whole run.
    pub(super) bytes: Option<f64>,
}

pub(super) const NOTHING: Paper = Paper {
    wall: None,
    user: None,
    system: None,
    load: None,
    switches: None,
    latency: None,
    losses: None,
    bytes: None,
};

pub(super) const ALONE: Paper = Paper {
    wall: Some(0.05),
    ..NOTHING
};

/// 37 s of processor in all.
pub(super) const ONE_HOST: Paper = Paper {
    wall: Some(81.0),
    ..NOTHING
};

pub(super) const FULL: Paper = Paper {
    wall: Some(128.0),
    user: Some(10.0),
    system: Some(30.0),
    load: Some(66.0),
    switches: Some(4.0),
    latency: Some(120.0),
    losses: Some(500.0),
    bytes: Some(8e6),
};

pub(super) const SHORT: Paper = Paper {
    wall: Some(68.0),
    user: Some(3.0),
    system: Some(17.0),
    load: Some(2.2),
    switches: Some(4.0),
    latency: Some(68.0),
    losses: Some(134.0),
    bytes: Some(146e3),
};

/// It never finished.
pub(super) const DISJOINT: Paper = Paper {
    losses: Some(10_000.0),
    ..NOTHING
};

pub(super) const HYSTERESIS: Paper = Paper {
    wall: Some(77.0),
    user: Some(19.0),
    system: Some(50.0),
    load: Some(1.0),
    switches: Some(5.0),
    latency: Some(45.0),
    losses: Some(80.0),
    bytes: None,
};

pub(super) const DATA: Paper = Paper {
    wall: Some(68.0),
    user: Some(7.0),
    system: Some(50.0),
    load: Some(1.0),
    switches: Some(10.0),
    latency: Some(65.0),
    losses: Some(400.0),
    bytes: None,
};

pub(super) const FINAL: Paper = Paper {
    wall: Some(57.0),
    user: Some(0.7),
    system: Some(6.0),
    load: Some(0.5),
    switches: Some(5.0),
    latency: Some(20.0),
    losses: Some(3.0),
    bytes: None,
};

/// How many processors the solver had, and its speedup was linear.
pub(super) const SOLVER: usize = 4;
