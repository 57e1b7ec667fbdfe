//! How bad a run is.

use std::fmt;
use std::str::FromStr;

/// How bad network and faults are in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// No faults.
    Calm,
    /// Up to 10 % loss, short cuts and pauses, processes that die, hosts that leave.
    #[default]
    Mild,
    /// Up to 30 % loss, longer cuts and pauses, slow hosts, crashes.
    Harsh,
    /// As `Harsh`, and garbage on the wire, cuts so long that living hosts are declared dead, and
    /// hosts that leave under load.
    Wild,
}

impl Profile {
    pub(super) fn is_harsh(self) -> bool {
        matches!(self, Self::Harsh | Self::Wild)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Calm => "calm",
            Self::Mild => "mild",
            Self::Harsh => "harsh",
            Self::Wild => "wild",
        })
    }
}

impl FromStr for Profile {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "calm" => Ok(Self::Calm),
            "mild" => Ok(Self::Mild),
            "harsh" => Ok(Self::Harsh),
            "wild" => Ok(Self::Wild),
            _ => Err("a profile is calm, mild, harsh or wild"),
        }
    }
}
