//! The page protocol as a table: every state meets every event, on the real
//! code, and the result is what `docs/design/page-states.md` says of the dynamic
//! manager and `page-states-fixed.md` of the fixed one. Run with `UPDATE=1` to rewrite the pages.

use super::page::Page;
use super::*;
use crate::effect::{Effect, Effects, Rights};
use crate::policies::hooks::{Due, Hooks as _, ProgramRequest, Who};
use crate::shell::{Cx, Shell};
use crate::time::Time;
use core::fmt::Write as _;
use core::time::Duration;
use pagemesh_wire::local::PageState;
use pagemesh_wire::peer::{
    Access, Ask, Contents, Data, Invalidate, InvalidateAck, Located, Manager, Message, Pass,
    PassAck, Placement, Spare, Subject, Waiter,
};
use pagemesh_wire::{ClientId, MappingId, NodeId, NodeSet, PageIndex, RequestId, Ticket, Version};

const ME: NodeId = NodeId(2);
const HOME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(3);
const PAGE: PageIndex = PageIndex(0);
const HERE: MappingId = MappingId(1);
const WHO: Who = Who {
    mapping: HERE,
    client: ClientId(1),
    pages: 1,
};

fn watch(policy: &mut Sequential, cx: &mut Cx<'_>) {
    policy.request(cx, (Ticket(1), WHO.client), ProgramRequest::Watch(PAGE));
}

fn segment() -> SegmentId {
    SegmentId::new(HOME, 1)
}

/// One node with one page, and what it did last.
struct Bench {
    manager: Manager,
    shell: Shell,
    policy: Sequential,
    now: Time,
    effects: Effects,
}

impl Bench {
    fn new(manager: Manager) -> Self {
        let window = Window::Nanos(0);
        let chosen = Policy::Sequential { manager, window };
        let policy = Sequential::open(segment(), 16, chosen).unwrap().unwrap();
        Self {
            manager,
            shell: Shell::of_four(ME),
            policy,
            now: Time(1_000_000),
            effects: Effects::default(),
        }
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut Sequential, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx {
            now: self.now,
            shell: &mut self.shell,
            effects: &mut self.effects,
        };
        work(&mut self.policy, &mut cx)
    }

    fn fault(&mut self, access: Access) {
        self.with(|policy, cx| policy.fault(cx, WHO, PAGE, access));
        self.use_up();
    }

    fn message(&mut self, from: NodeId, message: Message) {
        self.with(|policy, cx| policy.message(cx, from, message));
    }

    /// The thread that waited runs at once.
    fn use_up(&mut self) {
        for page in self.policy.memory.pages.pages_mut() {
            page.unused = false;
        }
    }

    fn page(&self) -> &Page {
        self.policy.memory.pages.get(PAGE).unwrap()
    }

    fn request(&self) -> RequestId {
        self.page()
            .own
            .want()
            .map_or(RequestId(999), |want| want.waiter.request)
    }

    fn version(&self) -> Version {
        self.page().own.version
    }

    fn data(&mut self) {
        let request = self.request();
        let version = self.version();
        let contents = Contents::Bytes;
        let data = Data {
            segment: segment(),
            page: PAGE,
            request,
            version,
            owner: HOME,
            contents,
        };
        self.message(HOME, Message::Data(data));
        self.use_up();
    }

    fn pass(&mut self, contents: Contents, awaiting: NodeSet) {
        let subject = Subject::Page {
            segment: segment(),
            page: PAGE,
        };
        let pass = Pass {
            contents,
            awaiting,
            ..crate::ownership::grant(subject, self.request(), self.version().next())
        };
        self.message(HOME, Message::Pass(pass));
        self.use_up();
    }

    fn asked(&mut self, access: Access, have: Option<Version>) {
        let waiter = Waiter {
            node: OTHER,
            request: RequestId(7),
            access,
            have,
        };
        let ask = Ask {
            subject: Subject::Page {
                segment: segment(),
                page: PAGE,
            },
            waiter,
            since: Version(0),
            hops: 0,
            by_library: self.manager == Manager::Fixed,
        };
        // The library site of a fixed manager sends every request on itself.
        let from = match self.manager {
            Manager::Fixed => HOME,
            Manager::Dynamic => OTHER,
        };
        self.message(from, Message::Ask(ask));
    }
}

/// The name of the page's state.
fn state(bench: &Bench) -> &'static str {
    let page = bench.page();
    let busy = page.own.busy();
    let want = busy
        .and_then(|busy| busy.want.as_ref())
        .map(|want| want.waiter.access);
    if busy.is_some_and(|busy| busy.more.gather.is_some()) {
        return "gathering";
    }
    if busy.is_some_and(|busy| busy.more.deferred.is_some()) {
        return "reader, told to drop";
    }
    match (page.own.hint == ME, page.rights, want) {
        (true, Rights::None, _) => "owner, idle",
        (true, Rights::Read, _) if page.copies.is_empty() => "owner, reading alone",
        (true, Rights::Read, _) => "owner, reading with others",
        (true, Rights::Write, _) => "owner, writing",
        (false, Rights::None, None) if page.own.passing().is_some() => "given, unacknowledged",
        (false, Rights::None, None) => "absent",
        (false, Rights::None, Some(Access::Read)) => "awaiting a copy",
        (false, Rights::None, Some(Access::Write)) => "awaiting ownership",
        (false, _, None) => "reader",
        (false, _, Some(_)) => "reader, awaiting ownership",
    }
}

type Step = (&'static str, fn(&mut Bench));

/// Every state, with the way into it.
const STATES: &[Step] = &[
    ("absent", |bench| {
        bench.fault(Access::Read);
        bench.data();
        drop_copy(bench);
    }),
    ("awaiting a copy", |bench| bench.fault(Access::Read)),
    ("awaiting ownership", |bench| bench.fault(Access::Write)),
    ("reader", |bench| {
        bench.fault(Access::Read);
        bench.data();
    }),
    ("reader, awaiting ownership", |bench| {
        bench.fault(Access::Read);
        bench.data();
        bench.fault(Access::Write);
    }),
    ("reader, told to drop", |bench| {
        bench.fault(Access::Read);
        bench.data();
        bench
            .policy
            .memory
            .pages
            .page(PAGE, || unreachable!("known"))
            .hold_for(Duration::from_millis(1));
        drop_copy(bench);
    }),
    ("gathering", |bench| {
        bench.fault(Access::Write);
        bench.pass(Contents::Bytes, NodeSet::only(OTHER));
    }),
    ("owner, writing", writing),
    ("owner, reading alone", |bench| {
        writing(bench);
        bench.with(watch);
    }),
    ("owner, reading with others", |bench| {
        writing(bench);
        let waiter = Waiter {
            node: NodeId(4),
            request: RequestId(5),
            access: Access::Read,
            have: None,
        };
        bench.with(|policy, cx| {
            policy.memory.at(cx, PAGE, |context| {
                context.here.page.own.enqueue(waiter);
                context.serve();
            });
        });
    }),
    ("owner, idle", |bench| {
        bench.fault(Access::Read);
        bench.data();
        drop_copy(bench);
        bench.pass(Contents::Bytes, NodeSet::EMPTY);
    }),
    ("given, unacknowledged", |bench| {
        writing(bench);
        bench.asked(Access::Write, None);
    }),
];

fn writing(bench: &mut Bench) {
    bench.fault(Access::Write);
    bench.pass(Contents::Bytes, NodeSet::EMPTY);
}

fn drop_copy(bench: &mut Bench) {
    let version = bench.version().next();
    let invalidate = Invalidate {
        segment: segment(),
        page: PAGE,
        version,
        writer: OTHER,
    };
    bench.message(HOME, Message::Invalidate(invalidate));
}

/// Every event.
const EVENTS: &[Step] = &[
    ("local load", |bench| bench.fault(Access::Read)),
    ("local store", |bench| bench.fault(Access::Write)),
    ("ask: read", |bench| bench.asked(Access::Read, None)),
    ("ask: write", |bench| bench.asked(Access::Write, None)),
    ("data", Bench::data),
    ("pass with bytes", |bench| {
        bench.pass(Contents::Bytes, NodeSet::EMPTY)
    }),
    ("pass, copy is current", |bench| {
        bench.pass(Contents::Same, NodeSet::EMPTY)
    }),
    ("pass-ack", |bench| {
        let version = bench.version();
        let subject = Subject::Page {
            segment: segment(),
            page: PAGE,
        };
        bench.message(OTHER, Message::PassAck(PassAck { subject, version }));
    }),
    ("invalidate", drop_copy),
    ("old invalidate", |bench| {
        let version = bench.version();
        let invalidate = Invalidate {
            segment: segment(),
            page: PAGE,
            version,
            writer: OTHER,
        };
        bench.message(HOME, Message::Invalidate(invalidate));
    }),
    ("invalidate-ack", |bench| {
        let version = bench.version();
        let ack = InvalidateAck {
            segment: segment(),
            page: PAGE,
            version,
        };
        bench.message(OTHER, Message::InvalidateAck(ack));
    }),
    ("no memory", |bench| {
        bench.shell.memory.budgets.frames.0 = 0;
        bench.shell.memory.budgets.placement = Placement::Random;
        bench.with(|policy, cx| policy.pressed(cx));
    }),
    ("time passes", |bench| {
        bench.now = bench.now + Duration::from_millis(20);
        bench.with(|policy, cx| policy.due(cx, Due::Page(PAGE, None)));
    }),
];

/// The effects of the last input, in a few words.
fn deeds(bench: &mut Bench) -> String {
    let words: Vec<String> = bench
        .effects
        .drain()
        .filter_map(|effect| match effect {
            Effect::Send {
                message, header, ..
            } => {
                let name = match *message {
                    Message::Ask(_) => "ask",
                    Message::Data(_) => "data",
                    Message::Pass(_) => "pass",
                    Message::PassAck(_) => "pass-ack",
                    Message::Invalidate(_) => "invalidate",
                    Message::InvalidateAck(_) => "invalidate-ack",
                    Message::Served(_) => "served",
                    other => panic!("no page message: {other:?}"),
                };
                Some(format!("{name}→{}", header.to))
            }
            Effect::Fill { source, .. } => Some(format!("fill({source:?})").to_lowercase()),
            Effect::Map { rights, .. } => Some(format!("map({rights:?})").to_lowercase()),
            Effect::Protect { .. } => Some("protect".into()),
            Effect::Evict { keep: true, .. } => Some("evict to stash".into()),
            Effect::Evict { keep: false, .. } => Some("evict".into()),
            Effect::DropStash { .. } => Some("drop stash".into()),
            Effect::ConfirmUse { .. } => Some("confirm use".into()),
            Effect::Reply { .. } => Some("tell watcher".into()),
            _ => None,
        })
        .collect();
    if words.is_empty() {
        "–".into()
    } else {
        words.join(", ")
    }
}

fn render(manager: Manager) -> String {
    let name = match manager {
        Manager::Fixed => "fixed manager",
        Manager::Dynamic => "dynamic manager",
    };
    let mut page = format!(
        "# States of a page under `sequential`, {name}\n\n\
         Generated from the code by `UPDATE=1 cargo test -p pagemesh-core page_states`; a test fails when it is stale.\n\
         This node is n2, the home n1, the peer in question n3. A cell says what is done, then the new state if it changes.\n\
         Window Δ = 0, every page counted as used.\n",
    );
    if manager == Manager::Fixed {
        page += "The home is the library site: every request comes from it.\n";
    }
    for (from, enter) in STATES {
        writeln!(
            page,
            "\n## {from}\n\n| event | done | new state |\n|---|---|---|"
        )
        .expect("a string");
        for (event, happen) in EVENTS {
            let mut bench = Bench::new(manager);
            enter(&mut bench);
            assert_eq!(state(&bench), *from, "the way into the state");
            bench.effects.drain();
            happen(&mut bench);
            let to = state(&bench);
            let to = if to == *from { "" } else { to };
            writeln!(page, "| {event} | {} | {to} |", deeds(&mut bench)).expect("a string");
        }
    }
    page
}

fn compare(file: &str, manager: Manager) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design");
    let path = format!("{folder}/{file}");
    let now = render(manager);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &now).expect("docs are writable");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        written, now,
        "stale: run with UPDATE=1 and look at the difference"
    );
}

#[test]
fn page_states() {
    compare("page-states.md", Manager::Dynamic);
}

#[test]
fn page_states_of_the_fixed_manager() {
    compare("page-states-fixed.md", Manager::Fixed);
}

/// A process that saves a segment copies a page once if its version is still the same: equal versions
/// mean equal bytes. While copies are gathered for a store, the version is that of the store.
#[test]
fn no_version_is_told_of_a_store_that_is_to_come() {
    let told = |bench: &Bench| bench.policy.states(ME, PAGE, 1)[0];
    for (name, way) in STATES {
        let mut bench = Bench::new(Manager::Dynamic);
        way(&mut bench);
        let readable = name.starts_with("reader") || name.starts_with("owner, reading");
        let version = matches!(told(&bench), PageState::Version(_));
        assert_eq!(version, readable, "{name}");
    }
    let shared = STATES
        .iter()
        .find(|(name, _)| *name == "owner, reading with others");
    let mut bench = Bench::new(Manager::Dynamic);
    shared.unwrap().1(&mut bench);
    bench.fault(Access::Write);
    assert_eq!(
        (state(&bench), bench.page().rights),
        ("gathering", Rights::Read)
    );
    assert_eq!(told(&bench), PageState::Unsure);
}

/// A node that answers a search need not know the segment, so it gets no pages unasked.
#[test]
fn who_answers_a_search_is_not_met() {
    let mut bench = Bench::new(Manager::Dynamic);
    bench.shell.memory.budgets.frames.0 = 1;
    let subject = Subject::Page {
        segment: segment(),
        page: PAGE,
    };
    let located = Located {
        subject,
        request: RequestId(1),
        version: Version(0),
        owner: HOME,
        spare: Spare::None,
        passing: false,
    };
    bench.message(OTHER, Message::Located(located));
    assert_eq!(bench.policy.pressure.met, NodeSet::EMPTY);
    let version = Version(0);
    bench.message(OTHER, Message::PassAck(PassAck { subject, version }));
    assert_eq!(bench.policy.pressure.met, NodeSet::only(OTHER));
}
