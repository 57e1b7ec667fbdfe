//! Which object has which key: the answers to processes on all hosts must be answers that one host
//! could have given, each at some moment of its call (INV-one-key).

use pagemesh_sorted::SortedMap;
use pagemesh_wire::ClientId;
use pagemesh_wire::sysv::{Errno, Family, IPC_EXCL, IPC_PRIVATE, Id, Op, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// Moments: steps of the whole cluster.
type Step = u64;

/// The name of an object.
type Name = (Family, i32);

/// An object that a process has heard of.
#[derive(Debug)]
struct Life {
    name: Name,
    /// When a process first heard of it. It was there before.
    heard: Step,
    /// Its home removed it, or vanished.
    removed: Option<Step>,
}

/// A get under way.
#[derive(Debug)]
struct Asked {
    name: Name,
    flags: i32,
    at: Step,
}

/// The judge of gets.
#[derive(Debug, Default)]
pub(super) struct Keys {
    now: Step,
    lives: BTreeMap<(Family, Id), Life>,
    asked: SortedMap<ClientId, Asked>,
    /// Names that a process may have made an object of before it died or was interrupted, and that
    /// are otherwise unknown.
    unheard: BTreeSet<Name>,
    /// Objects that processes made that wanted a new one.
    won: BTreeSet<(Family, Id)>,
}

type Check<T = ()> = Result<T, String>;

impl Keys {
    /// Begins the next step.
    pub(super) fn step(&mut self) {
        self.now += 1;
    }

    /// A process makes a call.
    pub(super) fn asks(&mut self, client: ClientId, op: &Op) {
        if let Some((name, flags)) = get(op) {
            let at = self.now;
            self.asked.insert(client, Asked { name, flags, at });
        }
    }

    /// A process dies: answers to it do not matter any more.
    pub(super) fn dies(&mut self, client: ClientId) {
        let asked = self.asked.remove(&client);
        self.unheard.extend(asked.map(|asked| asked.name));
    }

    /// A home has removed an object, or it vanished with its home.
    pub(super) fn removed(&mut self, family: Family, id: Id) {
        if let Some(life) = self.lives.get_mut(&(family, id)) {
            life.removed.get_or_insert(self.now);
        }
    }

    /// A host has vanished.
    pub(super) fn vanished(&mut self, at_home: impl Fn(Id) -> bool) {
        for ((_, id), life) in &mut self.lives {
            if at_home(*id) {
                life.removed.get_or_insert(self.now);
            }
        }
    }

    /// A process gets the outcome of its get. True if the object is new to all processes.
    pub(super) fn hears(&mut self, client: ClientId, outcome: &Outcome) -> Check<bool> {
        let Some(asked) = self.asked.remove(&client) else {
            return Err(format!("{client} hears {outcome:?} and wanted no object"));
        };
        match outcome {
            Outcome::Number(number) => self.finds(&asked, Id(*number)),
            Outcome::Failed(Errno::ENOENT) => self.finds_none(&asked),
            Outcome::Failed(Errno::EEXIST) => self.finds_some(&asked),
            other => Err(format!("{client} wanted an object and hears {other:?}")),
        }
        .map_err(|why| format!("{client} {asked:?}: {why}"))
    }

    fn finds(&mut self, asked: &Asked, id: Id) -> Check<bool> {
        let of = (asked.name.0, id);
        if asked.flags & IPC_EXCL != 0 && !self.won.insert(of) {
            return Err(format!("{id:?} is new to two processes"));
        }
        if let Some(life) = self.lives.get(&of) {
            if life.name != asked.name || asked.name.1 == IPC_PRIVATE {
                return Err(format!("gets {id:?}, which is {life:?}"));
            }
            if life.removed.is_some_and(|removed| removed < asked.at) {
                return Err(format!("gets {id:?}, which was gone before: {life:?}"));
            }
            return Ok(false);
        }
        let private = asked.name.1 == IPC_PRIVATE;
        let other = self
            .of(asked.name)
            .find(|(_, life)| life.removed.is_none() && !private);
        if let Some((other, _)) = other {
            return Err(format!("gets {id:?}, and {other:?} has the key"));
        }
        let life = Life {
            name: asked.name,
            heard: self.now,
            removed: None,
        };
        self.lives.insert(of, life);
        Ok(true)
    }

    /// The answer is that no object has the key: at some moment of the call none had.
    fn finds_none(&self, asked: &Asked) -> Check<bool> {
        let all_along = |life: &Life| life.heard < asked.at && life.removed.is_none();
        match self.of(asked.name).find(|(_, life)| all_along(life)) {
            Some((id, _)) => Err(format!("finds nothing, and {id:?} has the key")),
            None => Ok(false),
        }
    }

    /// The answer is that an object has the key: at some moment of the call one had.
    fn finds_some(&self, asked: &Asked) -> Check<bool> {
        let there = |life: &Life| life.removed.is_none_or(|removed| removed >= asked.at);
        let known = self.of(asked.name).any(|(_, life)| there(life));
        let making = self.asked.values().any(|other| other.name == asked.name);
        if known || making || self.unheard.contains(&asked.name) {
            return Ok(false);
        }
        Err("finds something, and nobody has the key".into())
    }

    fn of(&self, name: Name) -> impl Iterator<Item = (Id, &Life)> {
        let named = self.lives.iter().filter(move |(_, life)| life.name == name);
        named.map(|((_, id), life)| (*id, life))
    }
}

/// The name and flags of a get.
pub(super) fn get(op: &Op) -> Option<(Name, i32)> {
    match *op {
        Op::ShmGet { key, flags, .. } => Some(((Family::Shm, key), flags)),
        Op::SemGet { key, flags, .. } => Some(((Family::Sem, key), flags)),
        Op::MsgGet { key, flags } => Some(((Family::Msg, key), flags)),
        _ => None,
    }
}
