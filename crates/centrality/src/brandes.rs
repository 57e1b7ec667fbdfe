//! Betweenness centrality by Brandes' algorithm (U. Brandes, A Faster Algorithm for
//! Betweenness Centrality, 2001): one breadth-first search from each package.

use crate::graph::Edges;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Numbers that are added to: floating point, in words that may lie in a segment.
pub(crate) type Sums = [AtomicU64];

/// As many sums of zero.
pub(crate) fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// The value of a sum.
pub(crate) fn value(sum: &AtomicU64) -> f64 {
    f64::from_bits(sum.load(Ordering::Relaxed))
}

/// Adds to a sum in one atomic step: in a segment, what other nodes have added may arrive
/// at any moment.
pub(crate) fn add(sum: &AtomicU64, more: f64) {
    let mut old = sum.load(Ordering::Relaxed);
    loop {
        let new = (f64::from_bits(old) + more).to_bits();
        match sum.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => old = other,
        }
    }
}

/// One search at a time, with its working memory.
pub(crate) struct Search {
    vertices: Vec<Vertex>,
    /// The packages that were reached, the nearest first.
    order: Vec<u32>,
}

/// State of a package in the search.
#[derive(Clone, Copy)]
struct Vertex {
    /// From the source, in dependencies.
    distance: u32,
    /// Shortest paths from the source.
    paths: f64,
    /// The sum over all targets of the share of shortest paths that pass here.
    dependency: f64,
}

impl Vertex {
    const UNREACHED: Self = Self {
        distance: u32::MAX,
        paths: 0.0,
        dependency: 0.0,
    };
}

impl Search {
    /// For a graph of so many packages.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            vertices: vec![Vertex::UNREACHED; count],
            order: Vec::new(),
        }
    }

    /// Adds to each package's sum the share of the shortest paths from `source` that
    /// pass through it.
    pub(crate) fn from(&mut self, source: u32, edges: Edges<&[AtomicU32]>, sums: &Sums) {
        self.reach(source, edges);
        self.accumulate(source, edges, sums);
    }

    /// Forward: distances and numbers of paths.
    fn reach(&mut self, source: u32, edges: Edges<&[AtomicU32]>) {
        for package in self.order.drain(..) {
            self.vertices[package as usize] = Vertex::UNREACHED;
        }
        let first = &mut self.vertices[source as usize];
        (first.distance, first.paths) = (0, 1.0);
        self.order.push(source);
        let mut next = 0;
        while let Some(package) = self.order.get(next).copied() {
            next += 1;
            let Vertex {
                distance, paths, ..
            } = self.vertices[package as usize];
            for target in edges.of(package) {
                let vertex = &mut self.vertices[target as usize];
                if vertex.distance == u32::MAX {
                    vertex.distance = distance + 1;
                    self.order.push(target);
                }
                if vertex.distance == distance + 1 {
                    vertex.paths += paths;
                }
            }
        }
    }

    /// Backward: what passes through each package, the farthest first.
    fn accumulate(&mut self, source: u32, edges: Edges<&[AtomicU32]>, sums: &Sums) {
        for package in self.order.iter().rev().copied() {
            let Vertex {
                distance, paths, ..
            } = self.vertices[package as usize];
            let mut dependency = 0.0;
            for target in edges.of(package) {
                let vertex = self.vertices[target as usize];
                if vertex.distance == distance + 1 {
                    dependency += paths / vertex.paths * (1.0 + vertex.dependency);
                }
            }
            self.vertices[package as usize].dependency = dependency;
            // The ends of a path do not lie between its ends.
            if package != source && dependency > 0.0 {
                add(&sums[package as usize], dependency);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn centrality(lists: &[Vec<u32>]) -> Vec<f64> {
        let edges = Edges::of_lists(lists.iter().cloned());
        let (sums, mut search) = (zeros(lists.len()), Search::new(lists.len()));
        for source in 0..lists.len() as u32 {
            search.from(source, edges.borrowed(), &sums);
        }
        sums.iter().map(value).collect()
    }

    /// Distances and numbers of shortest paths from one package.
    fn paths(lists: &[Vec<u32>], source: usize) -> (Vec<Option<u32>>, Vec<f64>) {
        let mut distance = vec![None; lists.len()];
        let mut number = vec![0.0; lists.len()];
        (distance[source], number[source]) = (Some(0), 1.0);
        let mut waiting = VecDeque::from([source]);
        while let Some(one) = waiting.pop_front() {
            for target in lists[one].iter().map(|target| *target as usize) {
                if distance[target].is_none() {
                    distance[target] = distance[one].map(|far| far + 1);
                    waiting.push_back(target);
                }
                if distance[target] == distance[one].map(|far| far + 1) {
                    number[target] += number[one];
                }
            }
        }
        (distance, number)
    }

    /// By the definition: for each pair of ends, the share of shortest paths.
    fn by_definition(lists: &[Vec<u32>]) -> Vec<f64> {
        let all: Vec<_> = (0..lists.len())
            .map(|source| paths(lists, source))
            .collect();
        let mut sums = vec![0.0; lists.len()];
        for start in 0..lists.len() {
            for end in (0..lists.len()).filter(|end| *end != start) {
                let Some(far) = all[start].0[end] else {
                    continue;
                };
                for (middle, sum) in sums.iter_mut().enumerate() {
                    if middle == start || middle == end {
                        continue;
                    }
                    let (before, after) = (all[start].0[middle], all[middle].0[end]);
                    if before.zip(after).is_some_and(|(one, two)| one + two == far) {
                        *sum += all[start].1[middle] * all[middle].1[end] / all[start].1[end];
                    }
                }
            }
        }
        sums
    }

    #[test]
    fn the_middle_of_a_path_has_all_paths() {
        assert_eq!(centrality(&[vec![1], vec![2], vec![]]), [0.0, 1.0, 0.0]);
    }

    #[test]
    fn sums_are_those_of_the_definition() {
        // A fixed sequence of numbers, of which each is an edge.
        let mut seed = 12345_u32;
        for count in [5_u32, 12, 30] {
            let mut lists = vec![Vec::new(); count as usize];
            for _ in 0..3 * count {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (from, to) = ((seed >> 16) % count, (seed >> 8) % count);
                if from != to && !lists[from as usize].contains(&to) {
                    lists[from as usize].push(to);
                }
            }
            let expected = by_definition(&lists);
            assert!(expected.iter().any(|sum| *sum > 0.0));
            for (one, other) in centrality(&lists).iter().zip(&expected) {
                assert!((one - other).abs() < 1e-9, "{one} {other}");
            }
        }
    }
}
