//! What `pagemesh borrow` asks for, by variables of the environment.

use std::sync::OnceLock;

/// No allocation below this is large: it is made before there is an environment to be asked.
pub const SMALLEST: usize = 64 << 10;

/// The settings of this process.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes from which on an allocation is large.
    pub threshold: usize,
    /// Bytes of all large allocations together.
    pub size: usize,
    /// Bytes of them in frames of this host; none: as many as its daemon's memory allows.
    pub local: Option<usize>,
    /// The most bytes that a fork may copy; none: what memory is available.
    pub fork_limit: Option<usize>,
}

/// Reads them, once.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings {
        threshold: number("PAGEMESH_BORROW_THRESHOLD")
            .unwrap_or(1 << 20)
            .max(SMALLEST),
        size: number("PAGEMESH_BORROW_SIZE").unwrap_or(16 << 30),
        local: number("PAGEMESH_BORROW_LOCAL"),
        fork_limit: number("PAGEMESH_BORROW_FORK_LIMIT"),
    })
}

/// A number of bytes, as `pagemesh borrow` writes it.
fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}
