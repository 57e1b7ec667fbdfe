//! Sizes and policies as people write them: in options and in the environment.

use core::str::FromStr;

use crate::local::Advice;
use crate::peer::{Backing, Kind, Manager, Merge, Policy, Spread, Window};
use crate::{ByteLen, PageCount};

/// All policies by name. Whatever reads a policy reads it here.
const POLICIES: [(&str, Policy); 9] = [
    (
        "sequential",
        Policy::Sequential {
            manager: Manager::Dynamic,
            window: Window::Auto,
        },
    ),
    (
        "sequential-fixed",
        Policy::Sequential {
            manager: Manager::Fixed,
            window: Window::Auto,
        },
    ),
    (
        "release",
        Policy::Release {
            spread: Spread::Lazy,
        },
    ),
    (
        "eager",
        Policy::Release {
            spread: Spread::Eager,
        },
    ),
    (
        "hybrid",
        Policy::Release {
            spread: Spread::Hybrid,
        },
    ),
    (
        "invalidate",
        Policy::Release {
            spread: Spread::Invalidate,
        },
    ),
    (
        "views",
        Policy::Views {
            prefix: Policy::SHORT,
        },
    ),
    (
        "private",
        Policy::Private {
            local: PageCount(0),
            backing: Backing::File,
        },
    ),
    (
        "private-copies",
        Policy::Private {
            local: PageCount(0),
            backing: Backing::Copies,
        },
    ),
];

impl FromStr for Policy {
    type Err = String;

    /// Reads `sequential` or another name of a policy.
    fn from_str(text: &str) -> Result<Self, String> {
        named("policy", &POLICIES.map(|(name, _)| name), text).map(|place| POLICIES[place].1)
    }
}

/// Names of [`Merge::ALL`], [`Kind::ALL`] and [`Advice::ALL`], in their order.
const MERGES: [&str; 5] = ["sum", "min", "max", "or", "replace"];
const KINDS: [&str; 10] = [
    "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f32", "f64",
];
const ADVICE: [&str; 7] = [
    "normal",
    "sequential",
    "random",
    "willneed",
    "dontneed",
    "renew",
    "dontneed-short",
];

impl FromStr for Merge {
    type Err = String;

    /// Reads `sum`, `min`, `max`, `or` or `replace`.
    fn from_str(text: &str) -> Result<Self, String> {
        named("reduction", &MERGES, text).map(|place| Self::ALL[place])
    }
}

impl FromStr for Kind {
    type Err = String;

    /// Reads `u8`, `i32`, `f64` and so on: a letter and bits.
    fn from_str(text: &str) -> Result<Self, String> {
        named("number", &KINDS, text).map(|place| Self::ALL[place])
    }
}

impl FromStr for Advice {
    type Err = String;

    /// Reads `normal`, `sequential`, `random`, `willneed`, `dontneed`, `renew` or `dontneed-short`.
    fn from_str(text: &str) -> Result<Self, String> {
        named("advice", &ADVICE, text).map(|place| Self::ALL[place])
    }
}

/// Where a name stands among those there are.
fn named(what: &str, names: &[&str], text: &str) -> Result<usize, String> {
    let found = names.iter().position(|name| *name == text);
    found.ok_or_else(|| {
        format!(
            "no {what} is called {text:?}; there is {}",
            names.join(", ")
        )
    })
}

impl FromStr for ByteLen {
    type Err = String;

    /// Reads `4096`, `64K`, `4GiB`, `1.5G`.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            unit => {
                return Err(format!(
                    "unknown unit {unit:?}; use K, M, G, T, KiB, MiB, GiB, TiB"
                ));
            }
        };
        if let Ok(whole) = digits.parse::<u64>() {
            let bytes = whole.checked_mul(factor);
            return bytes.map(Self).ok_or_else(|| "too large".to_owned());
        }
        let number: f64 = digits
            .parse()
            .map_err(|_| "not a size; write for example 64M or 4GiB".to_owned())?;
        if !number.is_finite() || number < 0.0 {
            return Err("not a size; write for example 64M or 4GiB".to_owned());
        }
        Ok(Self((number * factor as f64) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_names() {
        assert_eq!("sequential".parse(), Ok(Policy::default()));
        let words = "sequentially".parse::<Policy>().unwrap_err();
        assert!(
            words.contains("sequential-fixed, release, eager, hybrid, invalidate, views, private"),
            "{words}"
        );
    }

    #[test]
    fn every_way_and_every_number_has_its_own_name() {
        let ways: Vec<Merge> = MERGES.iter().map(|name| name.parse().unwrap()).collect();
        assert_eq!(ways, Merge::ALL);
        let kinds: Vec<Kind> = KINDS.iter().map(|name| name.parse().unwrap()).collect();
        assert_eq!(kinds, Kind::ALL);
        let advice: Vec<Advice> = ADVICE.iter().map(|name| name.parse().unwrap()).collect();
        assert_eq!(advice, Advice::ALL);
        for (name, kind) in KINDS.iter().zip(Kind::ALL) {
            assert_eq!(name[1..].parse(), Ok(8 * kind.size()));
            let letter = match (kind.is_float(), kind.is_signed()) {
                (true, _) => "f",
                (_, true) => "i",
                _ => "u",
            };
            assert_eq!(&name[..1], letter);
        }
        let words = "soon".parse::<Advice>().unwrap_err();
        assert!(words.contains("willneed, dontneed"), "{words}");
    }
}
