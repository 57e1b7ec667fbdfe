//! The pages that a donor keeps, drops and sends on.

use super::*;
use crate::effect::Effects;
use crate::shell::Shell;
use pagemesh_wire::{PageCount, RequestId};

const OWNER: NodeId = NodeId(2);

/// Node 1 of four, which keeps two pages for others under N-chance.
struct Bench {
    shell: Shell,
    donor: Donor,
    files: SharedPages,
    now: Time,
}

fn put(page: u32, version: u64) -> Put {
    Put {
        lent: LentPage {
            segment: SegmentId::new(OWNER, 1),
            page: PageIndex(page),
            version: Version(version),
        },
        seal: PageSeal::default(),
        on_disk: true,
        answer: false,
        age: 5000,
    }
}

fn on(page: u32, version: u64) -> Forward {
    Forward {
        put: put(page, version),
        rounds: 1,
    }
}

impl Bench {
    fn new() -> Self {
        let mut shell = Shell::of_four(NodeId(1));
        shell.memory.budgets.lend = PageCount(2);
        shell.memory.budgets.placement = Placement::NChance;
        Self {
            shell,
            donor: Donor::default(),
            files: SharedPages::default(),
            now: Time(10_000_000_000),
        }
    }

    /// The messages that a step sends.
    fn with(
        &mut self,
        work: impl Fn(&mut Donor, &mut Cx<'_>, &mut SharedPages),
    ) -> Vec<(NodeId, Message)> {
        self.now = self.now + Duration::from_secs(1);
        let mut effects = Effects::default();
        let mut cx = Cx {
            now: self.now,
            shell: &mut self.shell,
            effects: &mut effects,
        };
        work(&mut self.donor, &mut cx, &mut self.files);
        effects.drain_sent()
    }

    fn put(&mut self, put: Put) -> Vec<(NodeId, Message)> {
        self.with(|donor, cx, files| {
            let _ = donor.put(cx, OWNER, &put, files);
        })
    }

    fn sent_on(&mut self, on: Forward) -> Vec<(NodeId, Message)> {
        self.with(|donor, cx, files| donor.sent_on(cx, &on, files))
    }

    fn has(&self, page: u32, version: u64) -> bool {
        let name = (SegmentId::new(OWNER, 1), PageIndex(page));
        let held = self.donor.pages.get(&name);
        held.is_some_and(|held| held.version == Version(version))
    }
}

#[test]
fn a_donor_without_room_sends_its_oldest_page_on_and_tells_the_owner() {
    let mut bench = Bench::new();
    assert!(bench.put(put(0, 1)).is_empty() && bench.put(put(1, 1)).is_empty());
    // The one that came last is the youngest, whatever its age.
    let sent = bench.put(put(2, 1));
    let [
        (to, Message::Forward(forward)),
        (owner, Message::DonorReply(moved)),
    ] = &sent[..]
    else {
        panic!("{sent:?}");
    };
    assert_eq!((forward.put.lent, forward.rounds), (put(0, 1).lent, 1));
    assert!(*to != OWNER && *to != NodeId(1), "{to}");
    assert_eq!(
        (*owner, *moved),
        (OWNER, DonorReply::Moved(put(0, 1).lent, *to))
    );
    assert!(!bench.has(0, 1) && bench.has(2, 1) && bench.donor.len() == 2);
    // What was sent on once is dropped.
    let mut bench = Bench::new();
    bench.sent_on(on(0, 1));
    bench.put(put(1, 1));
    assert!(bench.put(put(2, 1)).is_empty() && !bench.has(0, 1));
    // When the host wants its memory back nothing is sent.
    bench.shell.memory.budgets.lend = PageCount(0);
    assert!(
        bench
            .with(|donor, cx, files| donor.shrink(cx, files))
            .is_empty()
    );
    assert_eq!(bench.donor.len(), 0);
}

#[test]
fn a_page_that_comes_after_its_segment_has_ended_is_not_kept() {
    let mut bench = Bench::new();
    let segment = SegmentId::new(OWNER, 1);
    bench.put(put(0, 1));
    bench.with(|donor, cx, _| donor.ended(cx, segment));
    assert_eq!(bench.donor.len(), 0);
    let answer = Put {
        answer: true,
        ..put(1, 1)
    };
    assert!(bench.put(answer).is_empty() && bench.donor.len() == 0);
    bench.sent_on(on(0, 1));
    assert_eq!(bench.donor.len(), 0);
    // The life of its owner is over: nothing names it any more.
    bench.with(|donor, cx, _| donor.owner_gone(cx, OWNER));
    assert_eq!(bench.donor, Donor::default());
}

/// The questions of a donor, after a while: their numbers and pages.
fn questions(bench: &mut Bench, seconds: u64) -> Vec<(RequestId, Vec<u32>)> {
    bench.now = bench.now + Duration::from_secs(seconds);
    let sent = bench.with(|donor, cx, _| donor.audit(cx));
    let asked = sent.into_iter().map(|(to, message)| match message {
        Message::Global(Global::Wanted {
            question, pages, ..
        }) if to == OWNER => (question, pages.iter().map(|(page, _)| page.0).collect()),
        other => panic!("{other:?} is sent to {to}"),
    });
    asked.collect()
}

#[test]
fn owners_are_asked_in_rounds_about_what_may_not_be_dropped() {
    let mut bench = Bench::new();
    bench.shell.memory.budgets.lend = PageCount(200);
    let only_here = |page| Put {
        on_disk: false,
        ..put(page, 1)
    };
    bench.put(put(500, 1));
    assert!(questions(&mut bench, 60).is_empty(), "it may be dropped");
    for page in 0..100 {
        bench.put(only_here(page));
    }
    let pages = |asked: &[(RequestId, Vec<u32>)]| asked.first().map(|asked| asked.1.clone());
    let first = questions(&mut bench, 0);
    assert_eq!(pages(&first), Some((0..64).collect()));
    let second = questions(&mut bench, 1);
    assert_eq!(pages(&second), Some((64..100).collect()));
    assert!(second[0].0 != first[0].0);
    assert!(questions(&mut bench, 1).is_empty(), "the round is over");
    assert!(questions(&mut bench, 10).is_empty(), "nor so soon again");
    assert_eq!(pages(&questions(&mut bench, 30)), Some((0..64).collect()));
}

#[test]
fn what_an_owner_does_not_count_on_goes_unless_it_came_again_since() {
    let mut bench = Bench::new();
    bench.shell.memory.budgets.lend = PageCount(9);
    for page in 0..4 {
        bench.put(Put {
            on_disk: false,
            ..put(page, 1)
        });
    }
    let asked = questions(&mut bench, 0);
    let question = asked[0].0;
    let pages = [0, 1, 2].map(PageIndex);
    let answer = |bench: &mut Bench, from, question| {
        let about = SegmentId::new(OWNER, 1);
        bench.with(|donor, cx, _| donor.unwanted(cx, from, question, (about, &pages)))
    };
    answer(&mut bench, NodeId(3), question);
    answer(&mut bench, OWNER, RequestId(question.0 + 1));
    assert_eq!(bench.donor.len(), 4, "only the owner, and to this question");
    bench.put(Put {
        on_disk: false,
        ..put(1, 1)
    });
    answer(&mut bench, OWNER, question);
    let left: Vec<_> = (0..4).filter(|page| bench.has(*page, 1)).collect();
    assert_eq!(left, [1, 3]);
    bench.put(put(0, 1));
    answer(&mut bench, OWNER, question);
    assert!(bench.has(0, 1), "an answer counts once");
}

#[test]
fn a_node_with_busy_processors_counts_as_one_with_less_memory() {
    let bench = Bench::new();
    let free = |busy| {
        let mut ages = AgeSummary::default();
        let files = SharedPages::default();
        bench
            .donor
            .summarize(bench.now, (1000, busy), &files, &mut ages);
        ages.free
    };
    assert_eq!([0, 25, 95, 100].map(free), [1000, 750, 100, 100]);
}

#[test]
fn what_another_donor_sent_on_gives_way_to_the_owner() {
    let mut bench = Bench::new();
    bench.sent_on(on(0, 9));
    assert!(bench.has(0, 9));
    bench.put(put(0, 2));
    assert!(bench.has(0, 2), "the owner knows what is new");
    bench.sent_on(on(0, 9));
    assert!(bench.has(0, 2), "and another donor does not");
    // What makes no sense is not kept.
    for wrong in [
        Forward {
            rounds: 2,
            ..on(1, 1)
        },
        Forward {
            rounds: 0,
            ..on(1, 1)
        },
        Forward {
            put: Put {
                on_disk: false,
                ..put(1, 1)
            },
            rounds: 1,
        },
    ] {
        bench.sent_on(wrong);
        assert!(!bench.has(1, 1));
    }
}
