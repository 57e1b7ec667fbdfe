//! Which package depends on which.

use crate::packages::Packages;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// The packages by number, and for each those it depends on.
pub(crate) struct Graph {
    pub(crate) names: Vec<String>,
    pub(crate) edges: Edges<Vec<AtomicU32>>,
}

/// For every package those it depends on: in memory of this process, or in a segment.
#[derive(Clone, Copy)]
pub(crate) struct Edges<Numbers> {
    /// Where the targets of each package begin, and one end.
    pub(crate) starts: Numbers,
    /// The packages that others depend on, package by package.
    pub(crate) targets: Numbers,
}

impl<Numbers: AsRef<[AtomicU32]>> Edges<Numbers> {
    /// How many packages there are.
    pub(crate) fn count(&self) -> usize {
        self.starts.as_ref().len() - 1
    }

    /// The packages that this one depends on.
    pub(crate) fn of(&self, package: u32) -> impl Iterator<Item = u32> {
        let start = |package: usize| self.starts.as_ref()[package].load(Ordering::Relaxed);
        let package = package as usize;
        let range = start(package) as usize..start(package + 1) as usize;
        let targets = &self.targets.as_ref()[range];
        targets.iter().map(|target| target.load(Ordering::Relaxed))
    }

    /// The same, without its own copy.
    pub(crate) fn borrowed(&self) -> Edges<&[AtomicU32]> {
        Edges {
            starts: self.starts.as_ref(),
            targets: self.targets.as_ref(),
        }
    }
}

impl Graph {
    pub(crate) fn build(packages: &Packages) -> Self {
        let names: Vec<String> = packages.keys().cloned().collect();
        let numbers = numbers(packages);
        let mut starts = vec![AtomicU32::new(0)];
        let mut all = Vec::new();
        for (source, package) in packages.values().enumerate() {
            let first = |group: &Vec<String>| {
                let number = group.iter().find_map(|name| numbers.get(name.as_str()));
                number.copied().filter(|target| *target as usize != source)
            };
            let mut targets: Vec<u32> = package.depends.iter().filter_map(first).collect();
            targets.sort_unstable();
            targets.dedup();
            all.extend(targets.into_iter().map(AtomicU32::new));
            starts.push(AtomicU32::new(all.len() as u32));
        }
        let edges = Edges {
            starts,
            targets: all,
        };
        Self { names, edges }
    }
}

/// Numbers by name; a name that is only provided means its first provider.
fn numbers(packages: &Packages) -> HashMap<&str, u32> {
    let mut numbers = HashMap::new();
    for (number, name) in packages.keys().enumerate() {
        numbers.insert(name.as_str(), number as u32);
    }
    for (number, package) in packages.values().enumerate() {
        for name in &package.provides {
            numbers.entry(name.as_str()).or_insert(number as u32);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::Package;

    fn package(depends: &[&[&str]], provides: &[&str]) -> Package {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Package {
            depends: depends.iter().map(|group| own(group)).collect(),
            provides: own(provides),
        }
    }

    #[test]
    fn alternatives_provisions_and_repetitions_make_one_edge() {
        let mut packages = Packages::new();
        packages.insert(
            "a".into(),
            package(&[&["missing", "b"], &["virtual"], &["b"]], &[]),
        );
        packages.insert("b".into(), package(&[], &["virtual"]));
        packages.insert("c".into(), package(&[&["b"], &["a"], &["c"]], &[]));
        let graph = Graph::build(&packages);
        assert_eq!(graph.edges.count(), 3);
        let targets = |package| graph.edges.of(package).collect::<Vec<_>>();
        assert_eq!(targets(0), [1]);
        assert!(targets(1).is_empty());
        assert_eq!(targets(2), [0, 1]);
    }
}
