//! Options of a Tmk program: arguments after `--`, otherwise the environment.

use std::ffi::{CStr, c_char, c_int};

use pagemesh::HeapOptions;

/// The options given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub heap: HeapOptions,
    /// The number of processes that the program expects.
    pub processes: Option<u32>,
    pub statistics: bool,
}

/// The arguments of main(); those that are not UTF-8 are skipped.
///
/// # Safety
/// `argv` points to `argc` strings, or is NULL.
pub unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Vec<String> {
    let count = usize::try_from(argc).unwrap_or(0);
    if argv.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise. A NULL also ends the array.
    let strings = (0..count).map(|place| unsafe { *argv.add(place) });
    let strings = strings.take_while(|string| !string.is_null());
    // SAFETY: the caller's promise.
    let text = |string| unsafe { CStr::from_ptr(string) };
    strings
        .map(|string| text(string).to_string_lossy().into_owned())
        .collect()
}

/// Reads the options after the first `--`, and those not given there from the environment.
pub fn read(
    arguments: &[String],
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Options, String> {
    let mut options = Options::default();
    for (name, set) in [
        ("PAGEMESH_POLICY", policy as Set),
        ("PAGEMESH_HEAP", heap),
        ("PAGEMESH_REPLICAS", replicas),
        ("PAGEMESH_STATS", statistics),
    ] {
        if let Some(value) = variable(name).filter(|value| !value.is_empty()) {
            set(&mut options, &value).map_err(|why| format!("{name}={value}: {why}"))?;
        }
    }
    let mut words = arguments.iter().skip_while(|word| *word != "--").skip(1);
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let set: Set = match name {
            "--policy" => policy,
            "--heap" => heap,
            "--replicas" => replicas,
            "-n" => processes,
            "--stats" => {
                options.statistics = true;
                continue;
            }
            _ => return Err(format!("{word} is no option behind `--`; {KNOWN}")),
        };
        let value = value.or_else(|| words.next().cloned());
        let value = value.ok_or_else(|| format!("{name} lacks its value"))?;
        set(&mut options, &value).map_err(|why| format!("{name} {value}: {why}"))?;
    }
    Ok(options)
}

const KNOWN: &str = "there are --policy NAME, --heap SIZE, --replicas N, --stats and -n N";

type Set = fn(&mut Options, &str) -> Result<(), String>;

fn policy(options: &mut Options, value: &str) -> Result<(), String> {
    options.heap.policy = value.parse()?;
    Ok(())
}

fn heap(options: &mut Options, value: &str) -> Result<(), String> {
    options.heap.reserve = value.parse::<pagemesh::ByteLen>()?.0;
    Ok(())
}

fn replicas(options: &mut Options, value: &str) -> Result<(), String> {
    options.heap.replicas = match value {
        "0" => 0,
        "1" => 1,
        _ => return Err("0 or 1".to_owned()),
    };
    Ok(())
}

fn processes(options: &mut Options, value: &str) -> Result<(), String> {
    let number = value.parse().map_err(|_| "not a number".to_owned())?;
    options.processes = Some(number);
    Ok(())
}

fn statistics(options: &mut Options, value: &str) -> Result<(), String> {
    options.statistics = match value {
        "0" => false,
        "1" => true,
        _ => return Err("0 or 1".to_owned()),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str, variables: &[(&str, &str)]) -> Result<Options, String> {
        let arguments: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        read(&arguments, |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn what_is_before_the_dashes_is_the_programs_own() {
        assert_eq!(of("program --heap x -n 9", &[]), Ok(Options::default()));
        let options = of("program -n 9 -- --heap=1G --replicas 1 -n 2 --stats", &[]).unwrap();
        assert_eq!(options.heap.reserve, 1 << 30);
        assert_eq!(options.heap.replicas, 1);
        assert_eq!(options.processes, Some(2));
        assert!(options.statistics);
    }

    #[test]
    fn options_beat_the_environment() {
        let variables = [("PAGEMESH_HEAP", "1M"), ("PAGEMESH_STATS", "1")];
        let options = of("program -- --heap 2M", &variables).unwrap();
        assert_eq!((options.heap.reserve, options.statistics), (2 << 20, true));
        assert_eq!(of("program", &variables).unwrap().heap.reserve, 1 << 20);
    }

    #[test]
    fn mistakes_are_named() {
        for (words, expected) in [
            ("p -- -h host", "no option"),
            ("p -- --policy", "lacks its value"),
            ("p -- --policy loose", "there is sequential"),
            ("p -- --heap 9X", "unknown unit"),
            ("p -- -n two", "not a number"),
            ("p -- --replicas 2", "0 or 1"),
        ] {
            let words = of(words, &[]).unwrap_err();
            assert!(words.contains(expected), "{words}");
        }
        let words = of("p", &[("PAGEMESH_POLICY", "loose")]).unwrap_err();
        assert!(
            words.starts_with("PAGEMESH_POLICY=loose: no policy"),
            "{words}"
        );
    }
}
