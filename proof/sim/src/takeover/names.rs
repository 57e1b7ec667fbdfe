//! What programs may have been told of one name: all orders in which their calls can have been
//! executed, each once and between its beginning and its answer.

use super::setting::Op;
use crate::small::Check;
use std::collections::{BTreeMap, BTreeSet};

/// The answer to a call about the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Answer {
    /// It is now, or was found to be, the segment that this thread made.
    Of(u8),
    /// It was there before.
    Exists,
    /// There is no such segment.
    Missing,
    /// It was removed.
    Removed,
}

/// One order of calls, as far as it matters later.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Story {
    /// The thread that made the segment.
    made: Option<u8>,
    /// Calls that are open, with what they will be answered if they have been executed.
    open: BTreeMap<u8, (Call, Option<Answer>)>,
    /// Calls of which nobody hears any more, and that may be executed yet.
    loose: BTreeSet<(u8, Call)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Call {
    Create,
    Stat,
    Remove,
}

impl Story {
    fn execute(&mut self, thread: u8, call: Call) -> Answer {
        match (call, self.made) {
            (Call::Create, None) => {
                self.made = Some(thread);
                Answer::Of(thread)
            }
            (Call::Create, Some(_)) => Answer::Exists,
            (Call::Stat | Call::Remove, None) => Answer::Missing,
            (Call::Stat, Some(thread)) => Answer::Of(thread),
            (Call::Remove, Some(_)) => {
                self.made = None;
                Answer::Removed
            }
        }
    }

    /// All that may happen next.
    fn next(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for (thread, (call, answer)) in &self.open {
            if answer.is_none() {
                let mut next = self.clone();
                let answer = next.execute(*thread, *call);
                next.open.insert(*thread, (*call, Some(answer)));
                all.push(next);
            }
        }
        for (thread, call) in &self.loose {
            let mut next = self.clone();
            next.execute(*thread, *call);
            next.loose.remove(&(*thread, *call));
            all.push(next);
        }
        all
    }
}

/// Every order that agrees with all answers so far.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Names(BTreeSet<Story>);

impl Names {
    pub(super) fn new() -> Self {
        Self(BTreeSet::from([Story::default()]))
    }

    /// A thread has called.
    pub(super) fn begun(&mut self, thread: u8, op: Op) {
        let call = match op {
            Op::Create => Call::Create,
            Op::Stat => Call::Stat,
            Op::Remove => Call::Remove,
            Op::Join => return,
        };
        self.change(|mut story| {
            story.open.insert(thread, (call, None));
            Some(story)
        });
    }

    /// The call of a thread is answered.
    pub(super) fn answered(&mut self, thread: u8, found: Answer) -> Check {
        self.change(|mut story| {
            let (_, answer) = story.open.remove(&thread)?;
            (answer == Some(found)).then_some(story)
        });
        self.possible(|| format!("thread {} is told {found:?}", thread + 1))
    }

    /// The call of a thread has no answer, and may have been executed, or may be yet.
    pub(super) fn unanswered(&mut self, thread: u8) {
        self.change(|mut story| {
            if let Some((call, None)) = story.open.remove(&thread) {
                story.loose.insert((thread, call));
            }
            Some(story)
        });
    }

    /// A coordinator knows the segment as made by this thread, or knows none of this name.
    pub(super) fn seen(&mut self, made: Option<u8>) -> Check {
        self.change(|story| (story.made == made).then_some(story));
        self.possible(|| match made {
            Some(thread) => format!("it knows the name as made by thread {}", thread + 1),
            None => "it does not know the name".into(),
        })
    }

    fn possible(&self, what: impl FnOnce() -> String) -> Check {
        if self.0.is_empty() {
            return Err(format!(
                "INV-standby-knows: {}, which no order of the calls explains",
                what()
            ));
        }
        Ok(())
    }

    fn change(&mut self, change: impl Fn(Story) -> Option<Story>) {
        let stories = core::mem::take(&mut self.0);
        let mut fresh: Vec<_> = stories.into_iter().filter_map(change).collect();
        while let Some(story) = fresh.pop() {
            if !self.0.contains(&story) {
                fresh.extend(story.next());
                self.0.insert(story);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_need_an_order() {
        let mut names = Names::new();
        names.begun(0, Op::Create);
        names.begun(1, Op::Create);
        assert_eq!(names.answered(1, Answer::Of(1)), Ok(()));
        assert_eq!(names.clone().answered(0, Answer::Exists), Ok(()));
        assert!(names.clone().answered(0, Answer::Of(0)).is_err(), "both");
        names.begun(1, Op::Stat);
        assert!(names.answered(1, Answer::Missing).is_err(), "it is lost");
    }

    #[test]
    fn a_call_without_an_answer_may_be_executed_later_and_once() {
        let mut names = Names::new();
        names.begun(0, Op::Create);
        names.unanswered(0);
        assert_eq!(names.seen(None), Ok(()));
        assert_eq!(names.seen(Some(0)), Ok(()));
        names.begun(1, Op::Remove);
        assert_eq!(names.answered(1, Answer::Removed), Ok(()));
        assert!(names.seen(Some(0)).is_err(), "it was executed twice");
    }
}
