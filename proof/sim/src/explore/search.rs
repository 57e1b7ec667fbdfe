//! Every state that can be reached, breadth first, so that the first path to a
//! failure is a shortest one; then, from which of them the end can be reached.

use super::lab::Lab;
use super::setting::Setting;
use super::state::{State, Step};
use super::tale;
use super::timeless::digest;
use crate::check::{Check, Invariant, Violation};
use crate::network::kind;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Exploration {
    /// Different states of the cluster.
    pub states: usize,
    /// Steps from one to another.
    pub steps: usize,
    /// Steps from the first state to the farthest.
    pub depth: usize,
    /// States in which all is over.
    pub ends: usize,
    /// Different states of a host.
    pub host_states: usize,
    /// The broken invariant, and the shortest path to it as a transcript.
    pub failure: Option<(Violation, String)>,
}

impl fmt::Display for Exploration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            states,
            steps,
            depth,
            ends,
            host_states,
            failure: _,
        } = self;
        write!(
            f,
            "{states} states ({host_states} of a host), {steps} steps, depth {depth}, {ends} ends"
        )
    }
}

/// A search under way.
struct Search {
    lab: Lab,
    numbers: HashMap<u128, u32>,
    /// How each state was reached first: from where, by which step.
    ways: Vec<(u32, Step)>,
    edges: Vec<(u32, u32)>,
    ends: Vec<u32>,
    depth: usize,
    read_out: HashSet<u128>,
}

/// A broken invariant, and where: after this state, by this step.
struct Broken {
    violation: Violation,
    state: u32,
    step: Option<Step>,
}

/// Explores a setting, up to so many states.
#[must_use]
pub fn explore(setting: &Setting, limit: usize) -> Exploration {
    let mut search = Search::new(setting);
    let result = match State::first(&mut search.lab) {
        Ok(first) => search.run(first, limit),
        Err(violation) => Err(Broken {
            violation,
            state: 0,
            step: None,
        }),
    };
    let failure = result.as_ref().err().map(|broken| {
        let path = search.path(broken);
        (broken.violation.clone(), tale::tell(setting, &path))
    });
    Exploration {
        states: search.ways.len(),
        steps: search.edges.len(),
        depth: search.depth,
        ends: search.ends.len(),
        host_states: search.lab.host_states(),
        failure,
    }
}

/// Every datagram of an exploration: its sender, its kind, its bytes.
pub(crate) fn overheard(setting: &Setting) -> Vec<(usize, &'static str, Vec<u8>)> {
    let mut search = Search::new(setting);
    if let Ok(first) = State::first(&mut search.lab) {
        let _ = search.run(first, usize::MAX);
    }
    let packets = search.lab.packets().iter();
    packets
        .map(|packet| (packet.from, kind(&packet.message), packet.bytes.clone()))
        .collect()
}

impl Search {
    fn new(setting: &Setting) -> Self {
        Self {
            lab: Lab::new(setting.clone()),
            numbers: HashMap::new(),
            ways: Vec::new(),
            edges: Vec::new(),
            ends: Vec::new(),
            depth: 0,
            read_out: HashSet::new(),
        }
    }

    fn run(&mut self, first: State, limit: usize) -> Result<(), Broken> {
        let mut frontier = VecDeque::new();
        self.note(&first, 0, Step::Wait);
        frontier.push_back((0, 0, first));
        while let Some((number, depth, state)) = frontier.pop_front() {
            self.depth = depth;
            let mut stirs = false;
            for step in state.steps() {
                let broken = |violation| Broken {
                    violation,
                    state: number,
                    step: Some(step),
                };
                let Some(next) = state.after(&mut self.lab, step).map_err(broken)? else {
                    continue;
                };
                stirs |= step == Step::Wait;
                let (to, new) = self.note(&next, number, step);
                self.edges.push((number, to));
                if new {
                    frontier.push_back((to, depth + 1, next));
                }
            }
            if state.is_over() && !stirs {
                self.ends.push(number);
                self.read_out(&state).map_err(|violation| Broken {
                    violation,
                    state: number,
                    step: None,
                })?;
            }
            if self.ways.len() > limit {
                return Err(self.too_many(limit));
            }
        }
        self.all_can_end()
    }

    /// Perhaps there is no end of states; the last one found may tell why.
    fn too_many(&self, limit: usize) -> Broken {
        Broken {
            violation: Violation {
                invariant: Invariant::Progress,
                detail: format!("there are more than {limit} states; this is the way to the last"),
            },
            state: self.ways.len() as u32 - 1,
            step: None,
        }
    }

    /// A state's number, and whether it is new.
    fn note(&mut self, state: &State, from: u32, step: Step) -> (u32, bool) {
        let next = self.ways.len() as u32;
        let number = *self.numbers.entry(digest(state)).or_insert(next);
        if number == next {
            self.ways.push((from, step));
        }
        (number, number == next)
    }

    fn read_out(&mut self, state: &State) -> Check {
        let mut bare = state.clone();
        bare.luck = Default::default();
        if self.read_out.insert(digest(&bare)) {
            return state.read_out(&mut self.lab);
        }
        Ok(())
    }

    /// *INV-progress*: from every state some path leads to an end.
    fn all_can_end(&self) -> Result<(), Broken> {
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); self.ways.len()];
        for (from, to) in &self.edges {
            before[*to as usize].push(*from);
        }
        let mut ends = vec![false; self.ways.len()];
        let mut known = self.ends.clone();
        while let Some(state) = known.pop() {
            if !std::mem::replace(&mut ends[state as usize], true) {
                known.extend(&before[state as usize]);
            }
        }
        match ends.iter().position(|ends| !ends) {
            None => Ok(()),
            Some(state) => Err(Broken {
                violation: Violation {
                    invariant: Invariant::Progress,
                    detail: "from here on there is no way to an end".into(),
                },
                state: state as u32,
                step: None,
            }),
        }
    }

    fn path(&self, broken: &Broken) -> Vec<Step> {
        let mut path: Vec<Step> = broken.step.into_iter().collect();
        let mut at = broken.state;
        while at != 0 {
            let (from, step) = self.ways[at as usize];
            path.push(step);
            at = from;
        }
        path.reverse();
        path
    }
}
