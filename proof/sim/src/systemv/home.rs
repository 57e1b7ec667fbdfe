//! One home under judgement: its inputs in a step, and its answers.

use super::model::{Heard, Model, Said};
use super::set::done;
use super::{Mistake, Tried};
use pagemesh_core as core;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{self, Refusal};
use pagemesh_wire::sysv::{Family, Id, Op, Outcome};
use pagemesh_wire::{CallId, ClientId, NodeId, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// Which call: of another node, or of a process of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Of(NodeId, CallId),
    Here(Ticket),
}

/// Inputs of a home in one step.
#[derive(Clone, Debug)]
pub(super) enum Cause {
    Call(Key, ClientId, Op),
    Withdrawal(Key),
    Exit(Option<Key>, ClientId),
    /// A host is gone, with these processes.
    HostGone(Vec<ClientId>),
}

/// Outputs of a home in one step.
#[derive(Clone, Debug)]
pub(super) enum Word {
    Sysv(Outcome),
    Segment,
    Waiting,
    Withdrawn,
    Done,
}

impl Word {
    /// To another node.
    pub(super) fn sent(reply: &peer::Reply) -> Option<Self> {
        Some(match reply {
            peer::Reply::Sysv(outcome) => Self::Sysv(outcome.clone()),
            peer::Reply::Segment(_) => Self::Segment,
            peer::Reply::Waiting => Self::Waiting,
            peer::Reply::Refused(Refusal::Cancelled) => Self::Withdrawn,
            peer::Reply::Done => Self::Done,
            _ => return None,
        })
    }

    /// To a process.
    pub(super) fn told(reply: &core::Reply) -> Option<Self> {
        Some(match reply {
            core::Reply::Sysv(outcome) => Self::Sysv(outcome.clone()),
            core::Reply::Segment(_) => Self::Segment,
            core::Reply::Refused(Refusal::Cancelled) => Self::Withdrawn,
            _ => return None,
        })
    }

    fn said(&self) -> Said {
        match self {
            Self::Sysv(outcome) => Said::Outcome(outcome.clone()),
            Self::Segment => Said::Attached,
            Self::Waiting => Said::Waits,
            Self::Withdrawn | Self::Done => Said::Withdrawn,
        }
    }
}

/// A call that came to this home.
#[derive(Clone, Debug)]
struct Known {
    client: ClientId,
    op: Op,
    /// It was executed.
    done: bool,
    /// The last word on it.
    said: Option<Said>,
}

/// One home.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) model: Model,
    calls: BTreeMap<Key, Known>,
    /// Exits that were heard, and calls whose withdrawal came before them.
    seen: BTreeSet<Key>,
    /// The call of each process, which makes one at a time; whether it attaches.
    last: SortedMap<ClientId, (Key, bool)>,
    /// The next answer to each process.
    pub(super) promised: SortedMap<ClientId, Said>,
    /// Objects that were removed in this step.
    pub(super) removed: Vec<(Family, Id)>,
}

type Check<T = ()> = Result<T, String>;

impl Home {
    pub(super) fn new(limit: u64, mistake: Option<Mistake>) -> Self {
        Self {
            model: Model::new(limit, mistake),
            calls: BTreeMap::new(),
            seen: BTreeSet::new(),
            last: SortedMap::new(),
            promised: SortedMap::new(),
            removed: Vec::new(),
        }
    }

    /// A process is about to make its next call.
    pub(super) fn begins(&mut self, client: ClientId) {
        self.promised.remove(&client);
        self.last.remove(&client);
    }

    /// Judges one step: these causes, in order, and all that was said.
    pub(super) fn judge(
        &mut self,
        causes: Vec<Cause>,
        words: &[(Key, Word)],
        attached: impl Fn(Id) -> bool + Copy,
        tried: &mut Tried,
    ) -> Check {
        let mut expected = Vec::new();
        for cause in causes {
            expected.extend(self.happens(cause, words, attached, tried)?);
        }
        for (key, word) in words {
            self.says(*key, word, &mut expected, tried)?;
        }
        match expected.first() {
            None => Ok(()),
            Some((client, said)) => Err(format!("{client} should hear {said:?}")),
        }
    }

    fn happens(
        &mut self,
        cause: Cause,
        words: &[(Key, Word)],
        attached: impl Fn(Id) -> bool + Copy,
        tried: &mut Tried,
    ) -> Check<Vec<Heard>> {
        let word = |key: Key| words.iter().find(|(of, _)| *of == key);
        match cause {
            Cause::Call(key, client, op) => {
                let known = self.calls.entry(key).or_insert_with(|| Known {
                    client,
                    op: op.clone(),
                    done: false,
                    said: None,
                });
                if known.done {
                    tried.repeated += 1;
                    return Ok(Vec::new());
                }
                if self.seen.contains(&key) {
                    (known.done, known.said) = (true, Some(Said::Withdrawn));
                    return Ok(Vec::new());
                }
                let Some((_, word)) = word(key).or_else(|| waits_here(key)) else {
                    // It was not taken in, and comes again.
                    return Ok(Vec::new());
                };
                if matches!(word, Word::Withdrawn) {
                    return Err(format!("{client}'s {op:?} is withdrawn by nobody"));
                }
                known.done = true;
                let attaches = matches!(op, Op::ShmAttach { .. });
                // A process that does not want its attachment any more goes on at once.
                let last = self.last.entry(client).or_insert((key, attaches));
                if !attaches {
                    let before = std::mem::replace(last, (key, false));
                    if before.0 != key && !before.1 {
                        return Err(format!("{client} calls once, {before:?} and {key:?} come"));
                    }
                }
                tried.calls += 1;
                tried.removed += u64::from(matches!(op, Op::Remove { .. }));
                let heard = self.model.call(client, &op, &word.said(), attached)?;
                if let Op::Remove { family, id } = op
                    && heard.contains(&done(client))
                {
                    self.removed.push((family, id));
                }
                let waits = heard.contains(&(client, Said::Waits));
                tried.waited += u64::from(waits);
                tried.woken += heard.len() as u64 - 1;
                if matches!(key, Key::Here(_)) {
                    // A process of this node is not told that it waits.
                    let quiet = |(_, said): &Heard| *said != Said::Waits;
                    return Ok(heard.into_iter().filter(quiet).collect());
                }
                Ok(heard)
            }
            Cause::Withdrawal(key) => {
                let Some(known) = self.calls.get(&key) else {
                    if word(key).is_some() {
                        self.seen.insert(key);
                    }
                    return Ok(Vec::new());
                };
                if known.done && known.said.is_none_or_waits() {
                    self.model.withdraw(known.client);
                    tried.withdrawn += 1;
                }
                Ok(Vec::new())
            }
            Cause::Exit(Some(key), client) => {
                if word(key).is_none() || !self.seen.insert(key) {
                    return Ok(Vec::new());
                }
                Ok(self.model.exit(client))
            }
            Cause::Exit(None, client) => Ok(self.model.exit(client)),
            Cause::HostGone(clients) => Ok(self.model.host_gone(clients)),
        }
    }

    /// Its answer must have been expected, or be a repetition.
    fn says(
        &mut self,
        key: Key,
        word: &Word,
        expected: &mut Vec<Heard>,
        tried: &mut Tried,
    ) -> Check {
        let Some(known) = self.calls.get_mut(&key) else {
            // About an exit, or a call that was withdrawn before it came.
            return Ok(());
        };
        let said = word.said();
        let client = known.client;
        if let Said::Outcome(outcome) = &said
            && known.said.is_none()
            && !self.model.stat_agrees(outcome)
        {
            return Err(format!("{client} is told {outcome:?} of {:?}", self.model));
        }
        let at = expected
            .iter()
            .position(|one| *one == (client, said.clone()));
        if let Some(at) = at {
            expected.remove(at);
        } else if known.said.as_ref() == Some(&said) {
            tried.repeated += 1;
            return Ok(());
        } else if said == Said::Withdrawn && known.said.is_none_or_waits() {
            if known.done && self.model.waits(client) {
                return Err(format!("{client} was told that it does not wait, and does"));
            }
            // Whether or not it ever came: it does not happen any more.
            known.done = true;
        } else if said == Said::Withdrawn && known.done {
            // The caller has acknowledged the reply: a call that it had withdrawn before that is
            // not known here any more. It does not wait for this.
            return Ok(());
        } else {
            return Err(format!(
                "{client} hears {said:?} of its {:?}, after {:?}; expected was {expected:?}",
                known.op, known.said
            ));
        }
        known.said = Some(said.clone());
        let last = self.last.get(&client).is_none_or(|(last, _)| *last == key);
        if said != Said::Waits && last {
            self.promised.insert(client, said);
        }
        Ok(())
    }
}

/// A process of this node that waits hears nothing.
fn waits_here(key: Key) -> Option<&'static (Key, Word)> {
    const WAITS: &(Key, Word) = &(Key::Here(Ticket(0)), Word::Waiting);
    matches!(key, Key::Here(_)).then_some(WAITS)
}

trait NoneOrWaits {
    fn is_none_or_waits(&self) -> bool;
}

impl NoneOrWaits for Option<Said> {
    fn is_none_or_waits(&self) -> bool {
        matches!(self, None | Some(Said::Waits))
    }
}
