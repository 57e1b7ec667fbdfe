//! Which package depends on which.

use crate::packages::{Package, Packages};
use std::cmp::Reverse;
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

impl Edges<Vec<AtomicU32>> {
    /// Of the packages in the order of their numbers.
    pub(crate) fn of_lists(lists: impl Iterator<Item = Vec<u32>>) -> Self {
        let (mut starts, mut targets) = (vec![AtomicU32::new(0)], Vec::new());
        for list in lists {
            targets.extend(list.into_iter().map(AtomicU32::new));
            starts.push(AtomicU32::new(targets.len() as u32));
        }
        Self { starts, targets }
    }
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
    /// What many depend on has the smallest numbers, since nearly every search comes there: its working
    /// memory is together that way.
    pub(crate) fn build(packages: &Packages) -> Self {
        let depends = dependencies(packages);
        let mut dependents = vec![0_u32; depends.len()];
        for target in depends.iter().flatten() {
            dependents[*target as usize] += 1;
        }
        let mut order: Vec<u32> = (0..depends.len() as u32).collect();
        order.sort_by_key(|package| Reverse(dependents[*package as usize]));
        let mut numbers = vec![0; order.len()];
        for (number, package) in (0..).zip(&order) {
            numbers[*package as usize] = number;
        }
        let lists = order.iter().map(|package| &depends[*package as usize]);
        let edges = Edges::of_lists(lists.map(|list| renumbered(list, &numbers)));
        let names: Vec<&String> = packages.keys().collect();
        let names = order.iter().map(|package| names[*package as usize].clone());
        Self {
            names: names.collect(),
            edges,
        }
    }
}

fn renumbered(targets: &[u32], numbers: &[u32]) -> Vec<u32> {
    let mut targets: Vec<u32> = targets.iter().map(|old| numbers[*old as usize]).collect();
    targets.sort_unstable();
    targets
}

/// For every package those it depends on, each once; a package's number is its place here.
fn dependencies(packages: &Packages) -> Vec<Vec<u32>> {
    let numbers = numbers(packages);
    let of = |(source, package): (usize, &Package)| {
        let first = |group: &Vec<String>| {
            let number = group.iter().find_map(|name| numbers.get(name.as_str()));
            number.copied().filter(|target| *target as usize != source)
        };
        let mut targets: Vec<u32> = package.depends.iter().filter_map(first).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    };
    packages.values().enumerate().map(of).collect()
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
        assert_eq!(graph.names, ["b", "a", "c"], "two depend on b, one on a");
        let targets = |package| graph.edges.of(package).collect::<Vec<_>>();
        assert!(targets(0).is_empty());
        assert_eq!(targets(1), [0]);
        assert_eq!(targets(2), [0, 1]);
    }
}
