//! What a mapping of a segment of policy `views` shows.

use serde::{Deserialize, Serialize};

/// The view of a mapping (E2, E7, E9). An ordinary mapping shows the consistent copies of whole
/// pages, on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct View {
    /// The consistent copy; it moves to this node at the first access. Else a copy that may be
    /// old.
    pub consistent: bool,
    /// Only the first bytes of each page are valid.
    pub short: bool,
    /// A thread that touches an absent page sends no request, and sleeps until a copy passes by. Never
    /// of a consistent view.
    pub data_driven: bool,
}

impl Default for View {
    fn default() -> Self {
        Self {
            consistent: true,
            short: false,
            data_driven: false,
        }
    }
}

impl View {
    /// Of the whole page, on demand, and perhaps old.
    pub const INCONSISTENT: Self = Self {
        consistent: false,
        short: false,
        data_driven: false,
    };

    /// Whether there can be such a view.
    #[must_use]
    pub fn is_possible(self) -> bool {
        !(self.consistent && self.data_driven)
    }
}
