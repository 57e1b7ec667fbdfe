//! Sizes, durations and shares as people write and read them.

use pagemesh_wire::ByteLen;
use std::time::Duration;

/// Parses `4096`, `64K`, `4GiB`, `1.5G`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    text.parse::<ByteLen>().map(|length| length.0)
}

/// Parses `2ms`, `1s`; a bare `0` too.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text).map_err(|e| format!("{e}; write for example 500us or 2ms"))
}

/// Parses a probability: `0.05` or `5%`.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|p| p / 100.0),
        None => text.parse::<f64>(),
    }
    .map_err(|_| "not a probability; write for example 0.05 or 5%".to_owned())?;
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err("a probability lies between 0 and 1 (0% and 100%)".to_owned())
    }
}

/// Parses `on` or `off`, and their usual synonyms.
pub(crate) fn parse_switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Ok(true),
        "off" | "false" | "no" | "0" => Ok(false),
        _ => Err("neither on nor off".to_owned()),
    }
}

/// `4 KiB`, `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// `17.3 us`, `1.2 ms`.
pub(crate) fn nanos(nanos: u64) -> String {
    let value = nanos as f64;
    match nanos {
        0..=999 => format!("{nanos} ns"),
        1_000..=999_999 => format!("{:.1} us", value / 1e3),
        1_000_000..=999_999_999 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64K"), Ok(65536));
        assert_eq!(parse_size("4GiB"), Ok(4 << 30));
        assert_eq!(parse_size("1.5g"), Ok(3 << 29));
        assert_eq!(parse_size("1kb"), Ok(1000));
        assert!(parse_size("4 apples").is_err());
        assert!(parse_size("-1").is_err());
        assert!(parse_size("99999999T").is_err());
        assert_eq!(size(4096), "4 KiB");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(7), "7 B");
    }

    #[test]
    fn shares_and_durations_are_read() {
        assert_eq!(parse_share("5%"), Ok(0.05));
        assert_eq!(parse_share("0.05"), Ok(0.05));
        assert!(parse_share("5").is_err());
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("2ms"), Ok(Duration::from_millis(2)));
        assert!(parse_duration("2").is_err());
        assert_eq!(nanos(17_300), "17.3 us");
    }
}
