//! What a process says of its use of pages.

use serde::{Deserialize, Serialize};

/// How a process will use pages. Changes how soon loads return, not what they see; only
/// [`Advice::Renew`] changes what happens to lost pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Advice {
    /// Nothing special; walks are recognised. Holds for the whole segment.
    Normal,
    /// From front to back: more is asked for ahead, and sooner. Holds for the whole segment.
    Sequential,
    /// Here and there: nothing is asked for ahead. Holds for the whole segment.
    Random,
    /// These pages will be read soon: fetches them.
    WillNeed,
    /// These pages are not needed for a while: drops copies of what others own.
    DontNeed,
    /// This process knows from the contents what a page is: under policy `views`, pages that are
    /// lost begin anew with zeros instead of failing. Holds for the whole segment, on this node, as
    /// long as a process here maps it.
    Renew,
    /// The short pages of these are not needed for a while: under policy `views`, drops copies of
    /// prefixes. Whole copies stay on this node, and leave all views until they are touched.
    DontNeedShort,
}

impl Advice {
    /// All of them, in the order of their numbers in C.
    pub const ALL: [Self; 7] = [
        Self::Normal,
        Self::Sequential,
        Self::Random,
        Self::WillNeed,
        Self::DontNeed,
        Self::Renew,
        Self::DontNeedShort,
    ];
}
