//! Sizes and policies as people write them: in options and in the environment.

use core::str::FromStr;

use crate::ByteLen;
use crate::peer::{Manager, Policy, Spread, Window};

/// All policies by name. Whatever reads a policy reads it here.
const POLICIES: [(&str, Policy); 5] = [
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
];

impl FromStr for Policy {
    type Err = String;

    /// Reads `sequential` or another name of a policy.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = POLICIES.iter().find(|(name, _)| *name == text);
        found.map(|(_, policy)| *policy).ok_or_else(|| {
            let names: Vec<_> = POLICIES.iter().map(|(name, _)| *name).collect();
            format!(
                "no policy is called {text:?}; there is {}",
                names.join(", ")
            )
        })
    }
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
            words.contains("sequential-fixed, release, eager, hybrid"),
            "{words}"
        );
    }
}
