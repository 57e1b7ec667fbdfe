//! The package lists of Debian and its relatives.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The list of installed packages; there on every Debian.
const INSTALLED: &str = "/var/lib/dpkg/status";

/// The lists of available packages, after `apt-get update`; often compressed.
const AVAILABLE: &str = "/var/lib/apt/lists";

/// Part of apt; unpacks whatever apt packs.
const UNPACK: &str = "/usr/lib/apt/apt-helper";

/// A package's relations to others.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Package {
    /// The packages that it depends on, recommends or suggests, each with its alternatives.
    pub(crate) depends: Vec<Vec<String>>,
    /// Names it also answers to.
    pub(crate) provides: Vec<String>,
}

pub(crate) type Packages = BTreeMap<String, Package>;

/// All packages this machine knows of, by name; at most `limit` of them.
pub(crate) fn read(limit: Option<usize>) -> Result<Packages> {
    let mut packages = Packages::new();
    let installed = File::open(INSTALLED)
        .with_context(|| format!("opening {INSTALLED}; is this Debian or Ubuntu?"))?;
    parse(BufReader::new(installed), &mut packages)?;
    let lists = lists(Path::new(AVAILABLE));
    if !lists.is_empty() {
        let mut child = Command::new(UNPACK)
            .arg("cat-file")
            .args(lists)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {UNPACK}"))?;
        let text = child.stdout.take().context("no output")?;
        parse(BufReader::new(text), &mut packages)?;
        child.wait()?;
    }
    if let Some(limit) = limit {
        packages = packages.into_iter().take(limit).collect();
    }
    Ok(packages)
}

fn lists(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut lists: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.split('.').any(|part| part.ends_with("_Packages"))
        })
        .collect();
    lists.sort();
    lists
}

/// Reads stanzas; the first one of a name counts.
fn parse(text: impl BufRead, packages: &mut Packages) -> Result<()> {
    let mut name = None;
    let mut package = Package::default();
    let mut finish = |name: Option<String>, package: Package| {
        if let Some(name) = name {
            packages.entry(name).or_insert(package);
        }
    };
    // Lists are not promised to be UTF-8; what we need of them is.
    for line in text.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if line.is_empty() {
            finish(name.take(), std::mem::take(&mut package));
        } else if let Some((field, value)) = line.split_once(": ") {
            match field {
                "Package" => name = Some(value.to_owned()),
                "Depends" | "Pre-Depends" | "Recommends" | "Suggests" => {
                    package.depends.extend(relations(value))
                }
                "Provides" => package.provides.extend(relations(value).flatten()),
                _ => {}
            }
        }
    }
    finish(name, package);
    Ok(())
}

/// `a (>= 1) | b:any, c` as `[[a, b], [c]]`.
fn relations(value: &str) -> impl Iterator<Item = Vec<String>> {
    value.split(',').map(|group| {
        group
            .split('|')
            .filter_map(|one| one.split_whitespace().next())
            .map(|one| one.split([':', '(']).next().unwrap_or(one).to_owned())
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stanzas_are_read() {
        let text = "Package: a\nDepends: b (>= 1) | c:any, d\nDescription: x\n more: y\n\n\
                    Package: b\nProvides: v (= 2), w\nPre-Depends: a\nSuggests: x\n\n\
                    Package: a\n";
        let mut packages = Packages::new();
        parse(text.as_bytes(), &mut packages).unwrap();
        assert_eq!(packages.len(), 2);
        assert_eq!(packages["a"].depends, [vec!["b", "c"], vec!["d"]]);
        assert_eq!(packages["b"].provides, ["v", "w"]);
        assert_eq!(packages["b"].depends, [["a"], ["x"]]);
    }
}
