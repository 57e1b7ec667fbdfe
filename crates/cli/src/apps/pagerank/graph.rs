//! The dependency graph, and its ranks computed by one process.

use super::packages::Packages;
use std::collections::HashMap;

/// For every package, those that depend on it.
pub(super) struct Graph {
    /// By number.
    pub(super) names: Vec<String>,
    /// Where the sources of each package begin, and one end.
    pub(super) starts: Vec<u32>,
    /// Who depends, package by package.
    pub(super) sources: Vec<u32>,
    /// One over the number of dependencies, or zero: what of its own rank a
    /// package gives to each.
    pub(super) shares: Vec<f64>,
}

impl Graph {
    pub(super) fn build(packages: &Packages) -> Self {
        let names: Vec<String> = packages.keys().cloned().collect();
        let numbers = numbers(packages);
        let mut edges = Vec::new();
        let mut shares = Vec::new();
        for (source, package) in packages.values().enumerate() {
            let first = |group: &Vec<String>| {
                let number = group.iter().find_map(|name| numbers.get(name.as_str()));
                number.copied().filter(|target| *target as usize != source)
            };
            let mut targets: Vec<u32> = package.depends.iter().filter_map(first).collect();
            targets.sort_unstable();
            targets.dedup();
            shares.push(if targets.is_empty() {
                0.0
            } else {
                1.0 / targets.len() as f64
            });
            edges.extend(targets.iter().map(|target| (*target, source as u32)));
        }
        edges.sort_unstable();
        let mut starts = vec![0; names.len() + 1];
        for (target, _) in &edges {
            starts[*target as usize + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        Self {
            names,
            starts,
            sources: edges.into_iter().map(|(_, source)| source).collect(),
            shares,
        }
    }

    /// So many rounds, by this process alone.
    pub(super) fn page_rank(&self, damping: f64, rounds: u32) -> Vec<f64> {
        let count = self.names.len();
        let mut ranks = vec![1.0 / count as f64; count];
        for _ in 0..rounds {
            let nowhere = (0..count).filter(|v| self.shares[*v] == 0.0);
            let dangling: f64 = nowhere.map(|v| ranks[v]).sum();
            let base = base(damping, dangling, count);
            ranks = (0..count)
                .map(|target| {
                    let range = self.starts[target] as usize..self.starts[target + 1] as usize;
                    let given = self.sources[range].iter().map(|source| {
                        let source = *source as usize;
                        ranks[source] * self.shares[source]
                    });
                    base + damping * given.sum::<f64>()
                })
                .collect();
        }
        ranks
    }
}

/// What every package gets: its part of the jumps, and of the rank of those
/// that depend on nothing.
pub(super) fn base(damping: f64, dangling: f64, count: usize) -> f64 {
    (1.0 - damping + damping * dangling) / count as f64
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
    use super::super::packages::Package;
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
        assert_eq!(graph.starts, [0, 1, 3, 3]);
        assert_eq!(graph.sources, [2, 0, 2]);
        assert_eq!(graph.shares, [1.0, 0.0, 0.5]);
        let ranks = graph.page_rank(0.85, 50);
        assert!((ranks.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(ranks[1] > ranks[0] && ranks[0] > ranks[2]);
    }
}
