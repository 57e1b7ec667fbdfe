//! The page protocol of policy `release` as a table: every state meets every event, on the real
//! code, and the result is what `docs/design/page-states-release.md` says. Run with `UPDATE=1` to
//! rewrite the page.

use super::messages::{
    CopyReply, CopyRequest, CopyRequests, DiffRequest, IntervalRecord, IntervalReply, News, PageRun,
};
use super::page::Copy;
use super::*;
use crate::effect::{Afterwards, DiffWork, Effect, Effects, Rights};
use crate::policies::hooks::{Due, Hooks, SyncHooks, Who};
use crate::shell::Shell;
use crate::time::Time;
use core::fmt::Write as _;
use core::time::Duration;
use pagemesh_wire::peer::{Access, Contents, DiffName, Diffs, Spread};
use pagemesh_wire::{ClientId, MappingId, PageIndex, RequestId, VectorTime};

const ME: NodeId = NodeId(2);
const HOME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(3);
const PAGE: PageIndex = PageIndex(0);
const WHO: Who = Who {
    mapping: MappingId(1),
    client: ClientId(1),
    pages: 1,
};

fn segment() -> SegmentId {
    SegmentId::new(HOME, 1)
}

/// One node with one page, and what it did last.
struct Bench {
    shell: Shell,
    policy: Release,
    now: Time,
    effects: Effects,
    /// The last request that was sent.
    asked: RequestId,
    done: Vec<String>,
}

impl Bench {
    fn new() -> Self {
        let spread = Spread::Lazy;
        let chosen = Policy::Release { spread };
        Self {
            shell: Shell::of_four(ME),
            policy: Release::open(segment(), 16, chosen).unwrap().unwrap(),
            now: Time(1_000_000),
            effects: Effects::default(),
            asked: RequestId::NONE,
            done: Vec::new(),
        }
    }

    fn with(&mut self, work: impl FnOnce(&mut Release, &mut Cx<'_>)) {
        let mut cx = Cx {
            now: self.now,
            shell: &mut self.shell,
            effects: &mut self.effects,
        };
        work(&mut self.policy, &mut cx);
        let effects: Vec<_> = self.effects.drain().collect();
        for effect in &effects {
            let word = self.word(effect);
            self.done.extend(word);
        }
    }

    /// An effect in a few words, if it is about the page.
    fn word(&mut self, effect: &Effect) -> Option<String> {
        Some(match effect {
            Effect::Send {
                message, header, ..
            } => {
                let said = match &**message {
                    Message::Policy(said) | Message::PolicyPage(said) => &said.body,
                    other => panic!("no message of this policy: {other:?}"),
                };
                let body = Body::read(said).expect("it was just written");
                self.asked = match &body {
                    Body::IntervalRequest(asks) => asks.request,
                    Body::CopyRequest(asks) => asks.request,
                    Body::DiffRequest(asks) => asks.request,
                    _ => self.asked,
                };
                format!("{}→{}", body.name(), header.to)
            }
            Effect::Fill { source, .. } => format!("fill({source:?})").to_lowercase(),
            Effect::Map { rights, .. } => format!("map({rights:?})").to_lowercase(),
            Effect::Protect { .. } => "protect".into(),
            Effect::Evict { keep: true, .. } => "evict to stash".into(),
            Effect::Evict { keep: false, .. } => "evict".into(),
            Effect::DropStash { .. } => "drop stash".into(),
            Effect::Diffs(DiffWork::Twin { .. }) => "make twin".into(),
            Effect::Diffs(DiffWork::DropTwin { .. }) => "drop twin".into(),
            Effect::Diffs(DiffWork::Diff { then, .. }) => match then {
                Afterwards::Drop => "make diff, drop twin".into(),
                Afterwards::Refresh => "make diff, refresh twin".into(),
            },
            Effect::Diffs(DiffWork::Keep { .. }) => "keep diff".into(),
            Effect::Diffs(DiffWork::Merge { source, .. }) => {
                format!("merge diffs({source:?})").to_lowercase()
            }
            Effect::Diffs(DiffWork::Update { .. }) => "merge diff in place".into(),
            Effect::Diffs(DiffWork::Send { header, .. }) => format!("diffs→{}", header.to),
            Effect::Diffs(DiffWork::Forget { .. }) => "forget diffs".into(),
            _ => return None,
        })
    }

    fn fault(&mut self, access: Access) {
        self.with(|policy, cx| policy.fault(cx, WHO, PAGE, access));
    }

    fn message(&mut self, from: NodeId, body: &Body) {
        let said = envelope(segment(), body);
        let bytes = matches!(body, Body::CopyReply(copy) if copy.contents == Contents::Bytes);
        let message = if bytes {
            Message::PolicyPage(said)
        } else {
            Message::Policy(said)
        };
        self.with(|policy, cx| policy.message(cx, from, message));
    }

    /// A node tells of intervals.
    fn tell(&mut self, from: NodeId, request: RequestId, records: Vec<IntervalRecord>) {
        let mut goal = VectorTime::ZERO;
        for record in &records {
            goal.raise(record.node, record.index);
        }
        let news = News {
            floor: VectorTime::ZERO,
            goal,
            records,
        };
        self.message(from, &Body::IntervalReply(IntervalReply { request, news }));
    }

    /// The next interval of the other node.
    fn next(&self) -> u64 {
        self.policy.intervals.history.time().get(OTHER) + 1
    }

    /// The other node has written the page.
    fn notice(&mut self) {
        let first = PAGE;
        let record = IntervalRecord {
            node: OTHER,
            index: self.next(),
            time: VectorTime::ZERO,
            pages: vec![PageRun { first, count: 1 }],
        };
        self.tell(OTHER, RequestId::NONE, vec![record]);
    }

    /// The home has told what happened before the first access.
    fn sync(&mut self) {
        self.with(|policy, cx| policy.initial_sync(cx));
        self.tell(HOME, self.asked, Vec::new());
    }

    /// A lock goes to the other node.
    fn release(&mut self) {
        let known = Payload::of(&VectorTime::ZERO);
        self.with(|policy, cx| drop(policy.release(cx, OTHER, &known)));
    }

    fn copy(&mut self) {
        let applied = VectorTime::from_iter([(OTHER, self.next() - 1)]);
        let copy = CopyReply {
            page: PAGE,
            request: self.asked,
            contents: Contents::Bytes,
            applied,
        };
        self.message(OTHER, &Body::CopyReply(copy));
    }

    fn diffs(&mut self, request: RequestId, interval: u64) {
        let name = DiffName {
            page: PAGE,
            node: OTHER,
            interval,
        };
        let diffs = Diffs {
            segment: segment(),
            request,
            diffs: vec![(name, 8)],
        };
        self.with(|policy, cx| policy.message(cx, OTHER, Message::Diffs(diffs)));
    }

    /// The other node requests the last diff of this one.
    fn diff_requested(&mut self) {
        let interval = self.policy.intervals.history.time().get(ME);
        let diffs = vec![DiffName {
            page: PAGE,
            node: ME,
            interval,
        }];
        let request = RequestId(7);
        self.message(OTHER, &Body::DiffRequest(DiffRequest { request, diffs }));
    }

    fn copy_requested(&mut self) {
        let request = CopyRequest {
            page: PAGE,
            reader: OTHER,
            request: RequestId(7),
            floor: VectorTime::ZERO,
            hops: 0,
        };
        self.message(OTHER, &Body::CopyRequest(request));
    }

    /// Everything known is collected.
    fn collect(&mut self) {
        let time = self.policy.intervals.history.time().clone();
        self.with(|policy, cx| policy.forget(cx, &time));
    }
}

/// The name of the page's state.
fn state(bench: &Bench) -> &'static str {
    let Some(page) = bench.policy.memory.pages.get(&PAGE) else {
        return "unknown";
    };
    match (page.copy, page.miss.is_some(), page.twin, page.undiffed) {
        (Copy::None, false, ..) => "no copy",
        (Copy::None, true, ..) => "awaiting a copy",
        (Copy::Stash, false, ..) => "out of sight",
        (Copy::Stash, true, ..) => "awaiting diffs",
        (Copy::Frame, _, false, _) if page.rights == Rights::None => "whole, not mapped",
        (Copy::Frame, _, false, _) => "clean",
        (Copy::Frame, _, true, None) if bench.policy.memory.pages.is_kept_writable(PAGE) => {
            "kept writable"
        }
        (Copy::Frame, _, true, None) if page.returns > 0 => "dirty again",
        (Copy::Frame, _, true, None) => "dirty",
        (Copy::Frame, _, true, Some(_)) if page.is_given() => "given",
        (Copy::Frame, _, true, Some(_)) => "named",
    }
}

type Step = (&'static str, fn(&mut Bench));

/// Every state, with the way into it.
const STATES: &[Step] = &[
    ("unknown", Bench::sync),
    ("no copy", |bench| {
        bench.sync();
        bench.notice();
    }),
    ("awaiting a copy", |bench| {
        bench.sync();
        bench.notice();
        bench.fault(Access::Read);
    }),
    ("clean", |bench| {
        bench.sync();
        bench.fault(Access::Read);
    }),
    ("dirty", dirty),
    ("named", named),
    ("given", |bench| {
        named(bench);
        bench.copy_requested();
    }),
    ("dirty again", |bench| {
        named(bench);
        bench.diff_requested();
        bench.fault(Access::Write);
    }),
    ("kept writable", |bench| {
        named(bench);
        bench.diff_requested();
        bench.fault(Access::Write);
        bench.release();
    }),
    ("out of sight", |bench| {
        bench.sync();
        bench.fault(Access::Read);
        bench.notice();
    }),
    ("awaiting diffs", |bench| {
        bench.sync();
        bench.fault(Access::Read);
        bench.notice();
        bench.fault(Access::Read);
    }),
];

fn dirty(bench: &mut Bench) {
    bench.sync();
    bench.fault(Access::Write);
}

fn named(bench: &mut Bench) {
    dirty(bench);
    bench.release();
}

/// Every event.
const EVENTS: &[Step] = &[
    ("local load", |bench| bench.fault(Access::Read)),
    ("local store", |bench| bench.fault(Access::Write)),
    ("release: a lock goes to n3", Bench::release),
    ("write notice of n3", Bench::notice),
    ("pushed diff, then its write notice", |bench| {
        let next = bench.next();
        bench.diffs(RequestId::NONE, next);
        bench.notice();
    }),
    ("diff request", Bench::diff_requested),
    ("copy request", Bench::copy_requested),
    ("requested copy", Bench::copy),
    ("requested diff", |bench| {
        let (asked, last) = (bench.asked, bench.next() - 1);
        bench.diffs(asked, last);
    }),
    ("collection of all that is known", Bench::collect),
    ("time passes", |bench| {
        bench.now = bench.now + Duration::from_secs(1);
        bench.with(|policy, cx| policy.due(cx, Due::Page(PAGE, None)));
    }),
];

fn render() -> String {
    let mut page = String::from(
        "# States of a page under `release`, spread `lazy`\n\n\
         Generated from the code by `UPDATE=1 cargo test -p pagemesh-core page_states`; a test fails when it is stale.\n\
         This node is n2, the home n1, the peer in question n3. A cell says what is done, then the new state if it changes.\n\
         *Dirty*: the page has a twin, and the present interval will name it. *Named*: a former interval names it, and its\n\
         diff is not made yet. *Given*: another node has got the page with these changes, and it is protected: the diff is made\n\
         when it is requested, or before the next store. *Dirty again*: its diff was made before, so the next one leaves the page *kept\n\
         writable*: its twin is refreshed, and the present interval will name it. *Out of sight*: the contents are in the stash,\n\
         and diffs are missing.\n",
    );
    for (from, enter) in STATES {
        let head = "| event | done | new state |\n|---|---|---|";
        writeln!(page, "\n## {from}\n\n{head}").expect("a string");
        for (event, happen) in EVENTS {
            let mut bench = Bench::new();
            enter(&mut bench);
            assert_eq!(state(&bench), *from, "the way into the state");
            bench.done.clear();
            happen(&mut bench);
            let to = state(&bench);
            let to = if to == *from { "" } else { to };
            let done = match bench.done.as_slice() {
                [] => "–".into(),
                done => done.join(", "),
            };
            writeln!(page, "| {event} | {done} | {to} |").expect("a string");
        }
    }
    page
}

#[test]
fn page_states() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/design/page-states-release.md"
    );
    let now = render();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &now).expect("docs are writable");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        written, now,
        "stale: run with UPDATE=1 and look at the difference"
    );
}

/// The page is named, its diff is not made, and the next diff would leave it writable.
fn named_to_stay(bench: &mut Bench) {
    named(bench);
    bench.diff_requested();
    for _ in 0..8 {
        bench.fault(Access::Write);
        bench.release();
        if state(bench) == "named" {
            return;
        }
    }
    panic!("diffs are pushed for ever: {:?}", bench.done);
}

#[test]
fn a_copy_of_a_page_that_stays_writable_makes_no_diff() {
    let mut bench = Bench::new();
    named_to_stay(&mut bench);
    let page = bench
        .policy
        .memory
        .pages
        .get(&PAGE)
        .expect("it was stored to");
    assert!(page.stays_writable() && page.rights == Rights::Write);
    bench.done.clear();
    bench.copy_requested();
    assert_eq!(bench.done, ["protect", "CopyReply→n3"]);
    assert_eq!(state(&bench), "given");
    bench.done.clear();
    bench.diff_requested();
    assert_eq!(bench.done, ["make diff, drop twin", "diffs→n3"]);
    let mut bench = Bench::new();
    named_to_stay(&mut bench);
    bench.done.clear();
    bench.diff_requested();
    assert_eq!(bench.done, ["make diff, refresh twin", "diffs→n3"]);
    assert_eq!(state(&bench), "kept writable");
}

/// A hot page whose copies cost its writer a fault each is kept writable soon; where a walk stores to
/// pages, it is not.
#[test]
fn copies_of_a_hot_page_do_not_cost_a_fault_each() {
    let mut bench = Bench::new();
    named_to_stay(&mut bench);
    let mut done = Vec::new();
    for _ in 0..4 {
        bench.done.clear();
        bench.copy_requested();
        done.push((bench.done.join(", "), state(&bench)));
        if state(&bench) == "given" {
            bench.fault(Access::Write);
        }
        bench.release();
    }
    let given = ("protect, CopyReply→n3".to_owned(), "given");
    let kept = (
        "make diff, refresh twin, CopyReply→n3".to_owned(),
        "kept writable",
    );
    assert_eq!(done, [given.clone(), given, kept.clone(), kept]);
    // One of many that became writable by the fault of another.
    let page = |bench: &mut Bench| bench.policy.memory.pages.page(PAGE).clone();
    let mut of_walk = page(&mut bench);
    (of_walk.undiffed, of_walk.rights) = (Some(1), Rights::Read);
    of_walk.is_stored_to(false);
    assert!(!of_walk.stays_writable_for_copies());
}

#[test]
fn all_pages_of_a_request_are_protected_before_the_first_is_sent() {
    let mut bench = Bench::new();
    named(&mut bench);
    let other = PageIndex(9);
    bench.with(|policy, cx| policy.fault(cx, WHO, other, Access::Write));
    bench.release();
    bench.done.clear();
    let copies = vec![(PAGE, RequestId(7)), (other, RequestId(8))];
    let floor = VectorTime::ZERO;
    bench.message(OTHER, &Body::CopyRequests(CopyRequests { floor, copies }));
    assert_eq!(
        bench.done,
        ["protect", "protect", "CopyReply→n3", "CopyReply→n3"]
    );
}

/// The backup gets a diff of every page that an interval names.
#[test]
fn where_there_are_replicas_pages_kept_writable_are_looked_at_first() {
    for (replicas, looked_at) in [(false, vec![]), (true, vec![PAGE])] {
        let mut bench = Bench::new();
        named_to_stay(&mut bench);
        if replicas {
            bench.policy.keep_replicas(1).expect("the policy has them");
        }
        bench.diff_requested();
        assert_eq!(state(&bench), "kept writable");
        assert_eq!(bench.policy.kept_writable().others, looked_at);
        // A look that finds it unchanged spares it; without one it is named.
        let untouched = looked_at.iter().copied().collect();
        let named = bench.policy.memory.pages.written(&untouched);
        assert_eq!(named.contains(&PAGE), !replicas);
    }
}
