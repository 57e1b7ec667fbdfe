//! Every state of a small world, breadth first, so that the first path to a failure is a shortest
//! one; then, whether the end can be reached from each of them.

use super::Check;
use std::collections::{HashMap, VecDeque};

/// A state of a world, from which others follow.
pub(crate) trait State: Clone {
    /// Equal for states that nothing tells apart.
    fn digest(&self) -> u128;

    /// All that may happen next, and where it leads.
    fn next(&self) -> Vec<(String, Check<Self>)>;

    /// Whether all that the programs were to do is done.
    fn is_over(&self) -> bool;
}

/// What a search has visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// Different states.
    pub states: usize,
    /// Steps from one to another.
    pub steps: usize,
    /// Steps from the first state to the farthest.
    pub depth: usize,
    /// States in which all is over.
    pub ends: usize,
}

impl core::fmt::Display for Visited {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self {
            states,
            steps,
            depth,
            ends,
        } = self;
        write!(
            f,
            "{states} states, {steps} steps, depth {depth}, {ends} ends"
        )
    }
}

/// How each state was reached first: from where, by what.
struct Ways(Vec<(usize, String)>);

impl Ways {
    fn to(&self, mut state: usize) -> Vec<&str> {
        let mut path = Vec::new();
        while state > 0 {
            path.push(self.0[state].1.as_str());
            state = self.0[state].0;
        }
        path.reverse();
        path
    }
}

/// Visits every state, `limit` at most.
///
/// # Errors
/// What broke, and the shortest path to it; INV-progress if the end cannot be reached from a state.
pub(crate) fn every_state<S: State>(first: S, limit: usize) -> Check<Visited> {
    let mut visited = Visited::default();
    let mut numbers = HashMap::from([(first.digest(), 0)]);
    let mut ways = Ways(vec![(0, String::new())]);
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut ends = Vec::new();
    let mut open = VecDeque::from([(0, 0, first)]);
    while let Some((number, depth, state)) = open.pop_front() {
        visited.depth = depth;
        if state.is_over() {
            ends.push(number);
        }
        for (what, next) in state.next() {
            visited.steps += 1;
            let next = match next {
                Ok(next) => next,
                Err(why) => {
                    let path = ways.to(number).join("\n  ");
                    return Err(format!("{why}\nafter\n  {path}\n  {what}"));
                }
            };
            let new = ways.0.len();
            let to = *numbers.entry(next.digest()).or_insert(new);
            if to == new {
                ways.0.push((number, what));
                before.push(Vec::new());
                open.push_back((to, depth + 1, next));
            }
            before[to].push(number);
        }
        if ways.0.len() > limit {
            let path = ways.to(ways.0.len() - 1).join("\n  ");
            return Err(format!(
                "there are more than {limit} states; this is the way to the last:\n  {path}"
            ));
        }
    }
    visited.states = ways.0.len();
    visited.ends = ends.len();
    all_can_end(&ways, &before, ends)?;
    Ok(visited)
}

fn all_can_end(ways: &Ways, before: &[Vec<usize>], ends: Vec<usize>) -> Check {
    let mut can = vec![false; before.len()];
    let mut open = ends;
    while let Some(state) = open.pop() {
        if !core::mem::replace(&mut can[state], true) {
            open.extend(&before[state]);
        }
    }
    match can.iter().position(|can| !can) {
        None => Ok(()),
        Some(state) => {
            let path = ways.to(state).join("\n  ");
            Err(format!(
                "INV-progress: a program waits for ever after\n  {path}"
            ))
        }
    }
}
