//! The versions of the protocol between daemons that a program speaks, and which program that is.

use crate::header::{OLDEST_VERSION, PROTOCOL_VERSION};
use core::fmt;
use serde::{Deserialize, Serialize};

/// Versions of the protocol, from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Versions {
    /// The oldest.
    pub oldest: u8,
    /// The newest.
    pub newest: u8,
}

impl Versions {
    /// Those of this program.
    pub const SPOKEN: Self = Self {
        oldest: OLDEST_VERSION,
        newest: PROTOCOL_VERSION,
    };

    /// One version and no other.
    #[must_use]
    pub const fn only(version: u8) -> Self {
        Self {
            oldest: version,
            newest: version,
        }
    }

    /// Whether these can be the versions of a program: hosts may say anything.
    #[must_use]
    pub fn is_range(self) -> bool {
        (1..=self.newest).contains(&self.oldest)
    }

    /// Whether a version is one of them.
    #[must_use]
    pub fn contains(self, version: u8) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// The versions that are among these and among others, if there are any.
    #[must_use]
    pub fn common(self, others: Self) -> Option<Self> {
        let both = Self {
            oldest: self.oldest.max(others.oldest),
            newest: self.newest.min(others.newest),
        };
        both.is_range().then_some(both)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.oldest, self.newest) {
            (oldest, newest) if oldest == newest => write!(f, "{newest}"),
            (oldest, newest) => write!(f, "{oldest} to {newest}"),
        }
    }
}

/// A release of PageMesh, and a build of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Release {
    /// Major, minor and patch version.
    pub version: (u16, u16, u16),
    /// Distinguishes builds from different sources.
    pub build: u32,
}

impl Release {
    /// Of a program that does not say.
    pub const UNKNOWN: Self = Self {
        version: (0, 0, 0),
        build: 0,
    };

    /// The release of these sources.
    ///
    /// # Panics
    /// Never: cargo makes the version.
    #[must_use]
    pub fn here(build: u32) -> Self {
        let part = |text: &str| text.parse().expect("a version is made of numbers");
        let version = (
            part(env!("CARGO_PKG_VERSION_MAJOR")),
            part(env!("CARGO_PKG_VERSION_MINOR")),
            part(env!("CARGO_PKG_VERSION_PATCH")),
        );
        Self { version, build }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::UNKNOWN {
            return f.write_str("unknown");
        }
        let (major, minor, patch) = self.version;
        write!(f, "{major}.{minor}.{patch}-{:08x}", self.build)
    }
}

/// The program of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Program {
    /// The versions of the protocol that it speaks.
    pub speaks: Versions,
    /// Its release.
    pub release: Release,
}

impl Program {
    /// A program that does not say what it is: it speaks version 4, the last without that message.
    pub const SILENT: Self = Self::of(Versions::only(4));

    /// A program of which only this is known.
    #[must_use]
    pub const fn of(speaks: Versions) -> Self {
        Self {
            speaks,
            release: Release::UNKNOWN,
        }
    }
}

impl Default for Program {
    fn default() -> Self {
        Self::SILENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(oldest: u8, newest: u8) -> Versions {
        Versions { oldest, newest }
    }

    #[test]
    fn programs_have_versions_in_common_or_not() {
        assert_eq!(versions(4, 6).common(versions(5, 9)), Some(versions(5, 6)));
        assert_eq!(versions(4, 5).common(versions(6, 9)), None);
        assert_eq!(versions(4, 5).common(versions(9, 2)), None);
        assert!(Versions::SPOKEN.is_range() && !versions(9, 2).is_range());
        assert!(!versions(0, 255).is_range(), "there is no version 0");
    }

    #[test]
    fn people_read_them() {
        assert_eq!(versions(4, 5).to_string(), "4 to 5");
        assert_eq!(Versions::only(4).to_string(), "4");
        assert_eq!(Release::UNKNOWN.to_string(), "unknown");
        let here = Release::here(0x1a2b).to_string();
        assert_eq!(here, concat!(env!("CARGO_PKG_VERSION"), "-00001a2b"));
    }
}
