use super::*;
use crate::effect::Effects;
use crate::policies::hooks::{Due, Gone, Hooks as _, ProgramRequest, Who};
use crate::shell::Shell;
use core::time::Duration;
use pagemesh_wire::local::Advice;
use pagemesh_wire::peer::{Backing, DonorReply, EpochPlan, Got, LentPage, Message, PageSeal, Put};
use pagemesh_wire::{ClientId, NodeId, PageCount, Ticket, Version};

pub(super) const ME: NodeId = NodeId(1);
pub(super) const DONOR: NodeId = NodeId(2);
const OTHER: NodeId = NodeId(3);

/// A private segment of some pages, of which two fit into memory.
struct Bench {
    shell: Shell,
    policy: Private,
    now: Time,
    /// What was done, in few words.
    done: Vec<String>,
    disk_takes: bool,
}

fn segment() -> SegmentId {
    SegmentId::new(ME, 1)
}

fn lent(page: u32, version: u64) -> LentPage {
    LentPage {
        segment: segment(),
        page: PageIndex(page),
        version: Version(version),
    }
}

/// The first epoch's plan, by which pages of any age go to these donors alike.
fn plan(donors: &[NodeId]) -> EpochPlan {
    EpochPlan {
        epoch: 1,
        min_age: u32::MAX,
        weights: donors.iter().map(|node| (*node, 1)).collect(),
        initiator: DONOR,
        duration: 5000,
        replacements: 100,
    }
}

/// A node that knows this plan.
pub(super) fn with_donors(donors: &[NodeId]) -> Shell {
    let mut shell = Shell::of_four(ME);
    shell.memory.adopt(&plan(donors), ME, Time(u64::MAX));
    shell
}

impl Bench {
    fn new(backing: Backing, donors: &[NodeId]) -> Self {
        let chosen = Policy::Private {
            local: PageCount(2),
            backing,
        };
        Self {
            shell: with_donors(donors),
            policy: Private::open(segment(), 9, chosen).unwrap().unwrap(),
            now: Time(1_000_000),
            done: Vec::new(),
            disk_takes: true,
        }
    }

    /// A segment whose pages all fit into memory.
    fn roomy() -> Self {
        let chosen = Policy::Private {
            local: PageCount(1 << 16),
            backing: Backing::File,
        };
        Self {
            policy: Private::open(segment(), 9, chosen).unwrap().unwrap(),
            ..Self::new(Backing::File, &[])
        }
    }

    /// A segment of which so many pages fit into memory.
    fn with_room(pages: u32, donors: &[NodeId]) -> Self {
        let chosen = Policy::Private {
            local: PageCount(pages),
            backing: Backing::File,
        };
        Self {
            policy: Private::open(segment(), 1 << 16, chosen).unwrap().unwrap(),
            ..Self::new(Backing::File, donors)
        }
    }

    /// From now on pages of others are dropped for pages that are sent.
    fn be_scarce(&mut self) {
        let plan = EpochPlan {
            epoch: 2,
            min_age: 1 << 20,
            ..plan(&[DONOR])
        };
        self.shell.memory.adopt(&plan, ME, Time(u64::MAX));
    }

    /// Calls the policy and carries out its effects.
    fn with(&mut self, work: impl Fn(&mut Private, &mut Cx<'_>)) -> Vec<String> {
        self.act(&work)
    }

    /// Hears of pages that came with one turn of datagrams.
    fn got_together(&mut self, from: NodeId, pages: &[u32]) -> Vec<Effect> {
        let mut effects = Effects::default();
        for page in pages {
            effects.next_input();
            let mut cx = Cx {
                now: self.now,
                shell: &mut self.shell,
                effects: &mut effects,
            };
            let (lent, seal) = (lent(*page, 1), PageSeal::default());
            let message = Message::Got(Got { lent, seal });
            self.policy.message(&mut cx, from, message);
        }
        effects.drain().collect()
    }

    fn act(&mut self, work: &dyn Fn(&mut Private, &mut Cx<'_>)) -> Vec<String> {
        self.now = self.now + Duration::from_micros(10);
        let mut effects = Effects::default();
        let mut cx = Cx {
            now: self.now,
            shell: &mut self.shell,
            effects: &mut effects,
        };
        work(&mut self.policy, &mut cx);
        let mut stored = Vec::new();
        for effect in effects.drain() {
            self.done.extend(word(&effect));
            if let Effect::Store { pages } = effect {
                stored.push(pages);
            }
        }
        for pages in stored {
            let done = self.disk_takes;
            let rest = self.act(&|policy, cx| policy.stored(cx, pages, done));
            self.done.extend(rest);
        }
        core::mem::take(&mut self.done)
    }

    fn fault(&mut self, page: u32, access: Access) -> Vec<String> {
        self.fault_of(9, page, access)
    }

    /// A fault in a segment of so many pages.
    fn fault_of(&mut self, pages: u32, page: u32, access: Access) -> Vec<String> {
        let who = Who {
            mapping: MappingId(1),
            client: ClientId(1),
            pages,
        };
        self.with(|policy, cx| policy.fault(cx, who, PageIndex(page), access))
    }

    fn hear(&mut self, from: NodeId, message: Message) -> Vec<String> {
        self.with(|policy, cx| policy.message(cx, from, message.clone()))
    }

    fn got(&mut self, from: NodeId, page: u32, version: u64) -> Vec<String> {
        let seal = PageSeal::default();
        let lent = lent(page, version);
        self.hear(from, Message::Got(Got { lent, seal }))
    }

    fn kept(&mut self, from: NodeId, page: u32, version: u64) -> Vec<String> {
        let reply = DonorReply::Kept(lent(page, version));
        self.hear(from, Message::DonorReply(reply))
    }

    /// The timer of a page, again and again.
    fn wait(&mut self, page: u32, times: usize) -> Vec<String> {
        let mut done = Vec::new();
        for _ in 0..times {
            self.now = self.now + Duration::from_secs(2);
            done.extend(self.with(|policy, cx| policy.due(cx, Due::Page(PageIndex(page), None))));
        }
        done
    }
}

fn word(effect: &Effect) -> Option<String> {
    Some(match effect {
        Effect::Send {
            header, message, ..
        } => match &**message {
            Message::Put(Put { lent, .. }) => {
                format!("put {} v{}→{}", lent.page.0, lent.version.0, header.to)
            }
            Message::Global(pagemesh_wire::peer::Global::Get { pages, .. }) => {
                let pages: Vec<_> = pages.iter().map(|(page, _)| page.0).collect();
                format!("get {pages:?}→{}", header.to)
            }
            Message::Global(pagemesh_wire::peer::Global::Drop { .. }) => {
                format!("drop→{}", header.to)
            }
            other => format!("{other:?}"),
        },
        Effect::Fill { pages, source } => format!("fill {} {source:?}", pages.first.0),
        Effect::Map { pages, rights, .. } => format!("map {} {rights:?}", pages.first.0),
        Effect::Evict { pages, keep } => {
            let how = if *keep { "stage" } else { "drop" };
            format!("{how} {}", pages.first.0)
        }
        Effect::DropStash { page, .. } => format!("leave {}", page.0),
        Effect::Store { pages } => {
            format!("store {}+{}", pages.first.0, pages.count)
        }
        Effect::Stow { page, .. } => format!("keep {}", page.0),
        Effect::Fail { page, .. } => format!("fail {}", page.0),
        _ => return None,
    })
}

#[test]
fn a_page_that_does_not_fit_goes_to_the_disk_and_to_a_donor_and_comes_back() {
    let mut bench = Bench::new(Backing::File, &[DONOR]);
    assert_eq!(
        bench.fault(0, Access::Write),
        ["fill 0 Zero", "map 0 Write"]
    );
    assert_eq!(
        bench.fault(1, Access::Write),
        ["fill 1 Zero", "map 1 Write"]
    );
    let third = bench.fault(2, Access::Write);
    let expected = [
        "stage 0",
        "store 0+1",
        "put 0 v1→n2",
        "leave 0",
        "fill 2 Zero",
        "map 2 Write",
    ];
    assert_eq!(third, expected);
    // It comes back, and something else leaves before.
    let asked = bench.fault(0, Access::Read);
    assert_eq!(
        asked,
        [
            "stage 1",
            "store 1+1",
            "put 1 v1→n2",
            "leave 1",
            "get [0]→n2"
        ]
    );
    assert_eq!(bench.got(DONOR, 0, 1), ["fill 0 Payload", "map 0 Read"]);
    // It was only read: its donor still has it, and it leaves without a message and the disk.
    bench.fault(3, Access::Write);
    let again = bench.fault(4, Access::Write);
    let about_it = |word: &&String| word.contains(" 0");
    assert_eq!(
        again.iter().filter(about_it).collect::<Vec<_>>(),
        ["stage 0", "leave 0"]
    );
    assert_eq!(bench.fault(0, Access::Write).last().unwrap(), "get [0]→n2");
    bench.got(DONOR, 0, 1);
    // Stored to: the donor of the older version gets the new one.
    bench.fault(5, Access::Write);
    let again = bench.fault(6, Access::Write);
    assert!(again.contains(&"put 0 v2→n2".to_owned()), "{again:?}");
}

#[test]
fn while_memory_is_scarce_a_donor_forgets_what_it_sends_back() {
    let mut bench = Bench::new(Backing::File, &[DONOR]);
    bench.be_scarce();
    for page in [0, 1, 2, 0] {
        bench.fault(page, Access::Write);
    }
    bench.got(DONOR, 0, 1);
    assert!(bench.policy.memory.pages[&PageIndex(0)].donors.is_empty());
    bench.fault(3, Access::Read);
    let again = bench.fault(4, Access::Read);
    assert!(again.contains(&"put 0 v2→n2".to_owned()), "{again:?}");
}

#[test]
fn zeros_that_were_only_read_cost_nothing_to_drop() {
    let mut bench = Bench::new(Backing::File, &[DONOR]);
    bench.fault(0, Access::Read);
    bench.fault(1, Access::Read);
    assert_eq!(
        bench.fault(2, Access::Read),
        ["drop 0", "fill 2 Zero", "map 2 Read"]
    );
    assert_eq!(
        bench.fault(0, Access::Read),
        ["drop 1", "fill 0 Zero", "map 0 Read"]
    );
}

#[test]
fn a_donor_that_has_nothing_says_nothing_or_is_gone_means_the_disk() {
    for how in 0..4 {
        let mut bench = Bench::new(Backing::File, &[DONOR]);
        for page in 0..3 {
            bench.fault(page, Access::Write);
        }
        assert_eq!(bench.fault(0, Access::Write).last().unwrap(), "get [0]→n2");
        let done = match how {
            3 => bench.hear(DONOR, Message::DonorReply(DonorReply::Spoiled(lent(0, 1)))),
            0 => bench.hear(DONOR, Message::DonorReply(DonorReply::Missing(lent(0, 1)))),
            1 => bench.wait(0, 3),
            _ => bench.with(|policy, cx| policy.gone(cx, Gone::Member(DONOR))),
        };
        let end = &done[done.len() - 2..];
        assert_eq!(end, ["fill 0 Disk", "map 0 Write"], "{how}: {done:?}");
        assert_eq!(
            bench.got(DONOR, 0, 1),
            [""; 0],
            "what comes late is not taken"
        );
    }
}

#[test]
fn a_page_that_was_sent_on_is_asked_for_where_it_is() {
    let mut bench = Bench::new(Backing::File, &[DONOR]);
    for page in 0..3 {
        bench.fault(page, Access::Write);
    }
    let moved = |page, to| Message::DonorReply(DonorReply::Moved(lent(page, 1), to));
    // Only a donor of the page is believed.
    assert_eq!(bench.hear(OTHER, moved(0, NodeId(4))), [""; 0]);
    assert_eq!(bench.fault(0, Access::Write).last().unwrap(), "get [0]→n2");
    assert_eq!(bench.hear(DONOR, moved(0, OTHER)), ["get [0]→n3"]);
    assert_eq!(bench.got(OTHER, 0, 1), ["fill 0 Payload", "map 0 Write"]);
    // A node that is none means the disk.
    bench.hear(DONOR, moved(1, NodeId(40)));
    let done = bench.fault(1, Access::Read);
    assert!(done.contains(&"fill 1 Disk".into()), "{done:?}");
}

#[test]
fn an_older_version_is_never_taken() {
    let mut bench = Bench::new(Backing::File, &[DONOR]);
    for page in [0, 1, 2, 0] {
        bench.fault(page, Access::Write);
    }
    bench.got(DONOR, 0, 1);
    // Stored to since: version two.
    for page in [3, 4, 0] {
        bench.fault(page, Access::Write);
    }
    assert_eq!(bench.got(DONOR, 0, 1), [""; 0]);
    assert_eq!(bench.got(DONOR, 0, 3), [""; 0], "nor one that never was");
    assert_eq!(bench.got(DONOR, 0, 2), ["fill 0 Payload", "map 0 Write"]);
}

#[test]
fn two_donors_must_say_that_they_keep_a_page_before_it_leaves() {
    let mut bench = Bench::new(Backing::Copies, &[DONOR, OTHER]);
    bench.fault(0, Access::Write);
    bench.fault(1, Access::Write);
    let sent = bench.fault(2, Access::Write);
    assert!(sent.contains(&"put 0 v1→n2".into()) && sent.contains(&"put 0 v1→n3".into()));
    assert!(!sent.contains(&"leave 0".into()) && !sent.contains(&"fill 2 Zero".into()));
    assert_eq!(bench.kept(DONOR, 0, 1), [""; 0]);
    assert_eq!(bench.kept(DONOR, 0, 1), [""; 0], "twice is not two");
    assert_eq!(
        bench.wait(0, 1),
        ["put 0 v1→n3"],
        "only the other is asked again"
    );
    let done = bench.kept(OTHER, 0, 1);
    assert_eq!(
        done[..3],
        ["leave 0", "fill 2 Zero", "map 2 Write"],
        "{done:?}"
    );
}

#[test]
fn a_page_does_not_wait_for_ever_for_a_donor_that_is_silent() {
    let mut bench = Bench::new(Backing::Copies, &[DONOR, OTHER]);
    for page in 0..3 {
        bench.fault(page, Access::Write);
    }
    bench.kept(OTHER, 0, 1);
    let mut asked = 0;
    let done = loop {
        let done = bench.wait(0, 1);
        if done != ["put 0 v1→n2"] {
            break done;
        }
        asked += 1;
    };
    assert!((4..9).contains(&asked), "{asked} times");
    assert!(done.contains(&"leave 0".into()), "{done:?}");
    assert!(done.contains(&"map 2 Write".into()), "{done:?}");
    // The next page does not wait for it at all.
    let next = bench.fault(3, Access::Write);
    assert!(next.contains(&"leave 1".into()), "{next:?}");
}

/// As where the coordinator's host is gone: it is not declared dead.
#[test]
fn the_disk_is_read_while_a_donor_answers_nothing() {
    let mut bench = Bench::new(Backing::File, &[DONOR]);
    for page in 0..6 {
        bench.fault(page, Access::Write);
        bench.kept(DONOR, page, 1);
    }
    let asked = bench.fault(0, Access::Read);
    assert!(asked.contains(&"get [0]→n2".into()), "{asked:?}");
    let done = bench.wait(0, 3);
    assert!(done.contains(&"fill 0 Disk".into()), "{done:?}");
    let next = bench.fault(1, Access::Read);
    assert!(next.contains(&"fill 1 Disk".into()), "{next:?}");
    // After a while the donor is asked again: it may have been starved.
    bench.now = bench.now + Duration::from_secs(2);
    let next = bench.fault(2, Access::Read);
    assert!(next.contains(&"get [2]→n2".into()), "{next:?}");
}

#[test]
fn the_other_donor_is_asked_first_where_one_let_a_request_wait() {
    let mut bench = Bench::new(Backing::Copies, &[DONOR, OTHER]);
    for page in 0..4 {
        bench.fault(page, Access::Write);
        for lent in 0..2 {
            bench.kept(DONOR, lent, 1);
            bench.kept(OTHER, lent, 1);
        }
    }
    // There is room for both again.
    bench.policy.memory.rules.local = 4;
    let asked = bench.fault(0, Access::Read);
    let (one, other) = match &*asked[0] {
        "get [0]→n2" => (DONOR, OTHER),
        "get [0]→n3" => (OTHER, DONOR),
        _ => panic!("{asked:?}"),
    };
    assert_eq!(bench.wait(0, 1), [format!("get [0]→{other}")]);
    let next = bench.fault(1, Access::Read);
    assert_eq!(next, [format!("get [1]→{other}")], "{one} let one wait");
}

/// A node that has lent page 0 to two of three donors, and these.
fn lent_twice() -> (Bench, Vec<NodeId>) {
    let mut bench = Bench::new(Backing::Copies, &[DONOR, OTHER, NodeId(4)]);
    for page in 0..3 {
        bench.fault(page, Access::Write);
    }
    let donors: Vec<_> = bench.policy.memory.pages[&PageIndex(0)]
        .donors
        .all()
        .iter()
        .collect();
    for node in &donors {
        bench.kept(*node, 0, 1);
    }
    (bench, donors)
}

#[test]
fn a_copy_that_is_lost_with_its_donor_is_made_again() {
    let (mut bench, donors) = lent_twice();
    let (gone, left) = (donors[0], donors[1]);
    // The repair needs room.
    bench.policy.memory.rules.local = 3;
    bench.shell.alive.remove(gone);
    let asked = bench.with(|policy, cx| policy.gone(cx, Gone::Member(gone)));
    assert!(asked.contains(&format!("get [0]→{left}")), "{asked:?}");
    let done = bench.got(left, 0, 1);
    assert_eq!(done[0], "keep 0", "{done:?}");
    let third = [DONOR, OTHER, NodeId(4)]
        .into_iter()
        .find(|node| !donors.contains(node));
    let (third, again) = (third.unwrap(), bench.with(|policy, cx| policy.tend(cx, 2)));
    let put = format!("put 0 v1→{third}");
    assert!(
        done.contains(&put) || again.contains(&put),
        "{done:?} {again:?}"
    );
}

#[test]
fn a_donor_that_leaves_keeps_a_page_until_its_owner_has_it_again() {
    let (mut bench, donors) = lent_twice();
    let leaver = donors[1];
    bench.policy.memory.rules.local = 3;
    bench.shell.memory.leaves(leaver);
    let pages = [(PageIndex(0), Version(1)), (PageIndex(7), Version(4))];
    let done = bench.with(|policy, cx| policy.take_back(cx, leaver, &pages));
    assert!(
        done.iter().any(|word| word.starts_with("get [0]")),
        "{done:?}"
    );
    // It may drop what this node does not know, and keeps the other page.
    assert!(done.contains(&format!("drop→{leaver}")), "{done:?}");
    // It says so again, because messages get lost: the page is neither asked for again nor dropped.
    let again = bench.with(|policy, cx| policy.take_back(cx, leaver, &pages[..1]));
    let more = |word: &String| word.starts_with("get") || word.starts_with("drop→");
    assert!(!again.iter().any(more), "{again:?}");
    let came = bench.got(donors[0], 0, 1);
    assert_eq!(came[0], "keep 0", "{came:?}");
    assert!(came.contains(&format!("drop→{leaver}")), "{came:?}");
    let known = bench.policy.memory.pages[&PageIndex(0)].donors.all();
    assert!(!known.contains(leaver), "{known:?}");
}

/// What the node answers a donor that keeps a copy of page 0.
fn counts_on(bench: &mut Bench, donor: NodeId, version: u64) -> bool {
    let answer = core::cell::Cell::new(false);
    bench.with(|policy, cx| {
        let unwanted = policy.unwanted(cx, donor, &[(PageIndex(0), Version(version))]);
        answer.set(unwanted.is_empty());
    });
    answer.get()
}

#[test]
fn a_copy_that_was_forgotten_ends_or_takes_the_place_of_a_lost_one() {
    let (mut bench, donors) = lent_twice();
    let all = [DONOR, OTHER, NodeId(4)];
    let third = all.into_iter().find(|node| !donors.contains(node)).unwrap();
    assert!(counts_on(&mut bench, donors[0], 1));
    assert!(!counts_on(&mut bench, third, 0), "an older version");
    bench.policy.memory.rules.local = 3;
    bench.shell.alive.remove(donors[1]);
    bench.with(|policy, cx| policy.gone(cx, Gone::Member(donors[1])));
    assert!(counts_on(&mut bench, third, 1));
    let known = bench.policy.memory.pages[&PageIndex(0)].donors;
    assert!(known.sure().contains(third), "{known:?}");
}

#[test]
fn a_donor_that_may_drop_a_version_is_not_sent_it_again() {
    let (mut bench, donors) = lent_twice();
    let all = [DONOR, OTHER, NodeId(4)];
    let third = all.into_iter().find(|node| !donors.contains(node)).unwrap();
    bench.policy.memory.rules.local = 3;
    bench.fault(0, Access::Read);
    bench.got(donors[0], 0, 1);
    assert!(!counts_on(&mut bench, third, 1), "the page is here");
    let known = bench.policy.memory.pages[&PageIndex(0)];
    assert_eq!(known.version, Version(2));
    assert!(known.donors.sure().is_empty(), "{known:?}");
    // The page is with two others: it becomes another version when it comes.
    let (mut bench, donors) = lent_twice();
    bench.policy.memory.rules.local = 3;
    let third = all.into_iter().find(|node| !donors.contains(node)).unwrap();
    assert!(!counts_on(&mut bench, third, 1));
    bench.fault(0, Access::Read);
    let came = bench.got(donors[0], 0, 1);
    assert!(came.contains(&"map 0 Read".into()), "{came:?}");
    assert_eq!(bench.policy.memory.pages[&PageIndex(0)].version, Version(2));
    // Two donors are to keep a page, and one of them goes: the other is told to drop what it may
    // have got, and the page goes to the disk, which is full. It will be sent as another version.
    let mut bench = Bench::new(Backing::Copies, &[DONOR, OTHER]);
    bench.disk_takes = false;
    for page in 0..3 {
        bench.fault(page, Access::Write);
    }
    assert_eq!(bench.policy.memory.pages[&PageIndex(0)].version, Version(1));
    bench.shell.alive.remove(OTHER);
    bench.with(|policy, cx| policy.gone(cx, Gone::Member(OTHER)));
    let due = bench.with(|policy, cx| policy.due(cx, Due::Segment));
    assert_eq!(
        bench.policy.memory.pages[&PageIndex(0)].version,
        Version(2),
        "{due:?}"
    );
}

#[test]
fn a_full_disk_keeps_pages_here_until_there_is_room_or_patience_ends() {
    let mut bench = Bench::new(Backing::File, &[DONOR]);
    bench.fault(0, Access::Write);
    bench.fault(1, Access::Write);
    bench.disk_takes = false;
    let blocked = bench.fault(2, Access::Write);
    assert!(
        !blocked.iter().any(|word| word.starts_with("leave")),
        "{blocked:?}"
    );
    assert_eq!(bench.policy.blocked.len(), 1);
    let due = |bench: &mut Bench, millis| {
        bench.now = bench.now + Duration::from_millis(millis);
        bench.with(|policy, cx| policy.due(cx, Due::Segment))
    };
    let tried = due(&mut bench, 300);
    assert!(tried.contains(&"store 0+1".into()), "{tried:?}");
    let failed = due(&mut bench, 11_000);
    assert!(failed.contains(&"fail 2".into()), "{failed:?}");
    // The page is still here, and the disk takes it when it can.
    assert_eq!(bench.fault(0, Access::Read)[0], "fill 0 Stash");
    bench.disk_takes = true;
    bench.now = bench.now + Duration::from_secs(1);
    let done = bench.fault(3, Access::Write);
    assert!(done.contains(&"fill 3 Zero".into()), "{done:?}");
}

#[test]
fn only_the_home_may_open_it_and_no_child_inherits_it() {
    let bench = Bench::new(Backing::File, &[]);
    assert_eq!(bench.policy.may_open(ME), Ok(()));
    let why = bench.policy.may_open(DONOR).unwrap_err().to_string();
    assert!(why.contains("only n1"), "{why}");
    assert!(!bench.policy.is_inherited());
}

#[test]
fn a_walk_through_new_memory_stops_once_in_a_few_pages() {
    let mut bench = Bench::roomy();
    bench.fault(0, Access::Write);
    bench.fault(1, Access::Write);
    let third = bench.fault(2, Access::Write);
    let ahead = ["fill 2 Zero", "map 2 Write", "fill 4 Zero", "map 4 Write"];
    assert_eq!(third, ahead);
    assert_eq!(bench.policy.memory.held, 6, "pages 4 to 6 have frames");
    let next = bench.fault(3, Access::Write);
    let ahead = ["fill 3 Zero", "map 3 Write", "fill 8 Zero", "map 8 Write"];
    assert_eq!(next, ahead);
    // A thread that goes backward, and only loads.
    let mut bench = Bench::roomy();
    for page in [8, 7, 6] {
        bench.fault(page, Access::Read);
    }
    let here = bench.policy.memory.pages.keys().map(|page| page.0);
    assert_eq!(here.collect::<Vec<_>>(), [2, 3, 4, 6, 7, 8]);
}

/// A segment of 160 pages that were all stored to; the last 64 of them are here.
fn filled(donors: &[NodeId]) -> Bench {
    let mut bench = Bench::with_room(64, donors);
    for page in 0..160 {
        bench.fault_of(160, page, Access::Write);
    }
    bench
}

/// A walk's pages that came with one turn of datagrams are placed by one call of the kernel.
#[test]
fn pages_of_a_walk_that_came_together_are_placed_together() {
    let mut bench = filled(&[DONOR]);
    for page in 0..4 {
        bench.fault_of(160, page, Access::Read);
        bench.got_together(DONOR, &[page]);
    }
    let asked: Vec<_> = bench.policy.fetches.keys().map(|page| page.0).collect();
    // A fault at the first one is to be seen: it is not mapped.
    assert!(asked.len() > 2, "{asked:?}");
    let done = bench.got_together(DONOR, &asked[1..]);
    let placed: Vec<_> = done.iter().filter_map(word).collect();
    let first = asked[1];
    assert_eq!(
        placed,
        [format!("fill {first} Payload"), format!("map {first} Read")]
    );
}

/// What a walk brought and no thread stored to is with its donor, and on the disk: the next pages
/// of the walk take its frames, and the stash gets nothing.
#[test]
fn pages_of_a_walk_leave_without_a_copy_on_this_node() {
    let mut bench = filled(&[DONOR]);
    let mut left = Vec::new();
    for page in 0..96 {
        left.extend(bench.fault_of(160, page, Access::Read));
        let asked: Vec<_> = bench.policy.fetches.keys().map(|page| page.0).collect();
        let done = bench.got_together(DONOR, &asked);
        left.extend(done.iter().filter_map(word));
    }
    let dropped = left.iter().filter(|word| word.starts_with("drop ")).count();
    let staged = left
        .iter()
        .filter(|word| word.starts_with("stage "))
        .count();
    assert!(dropped > 2 && staged < 40, "{dropped} {staged} {left:?}");
    assert!(
        bench.policy.memory.held <= 64,
        "{}",
        bench.policy.memory.held
    );
}

/// Announced pages, wherever they lie, are asked for together; those for which there is no room wait
/// for it.
#[test]
fn announced_pages_are_asked_for_together_as_soon_as_there_is_room() {
    let mut bench = filled(&[DONOR]);
    let announced = [1, 5, 8, 13, 40, 70, 90, 95];
    let ranges = announced.map(|page| (PageIndex(page), PageCount(1)));
    let done = bench.with(|policy, cx| {
        let (advice, mapping) = (Advice::WillNeed, Some(MappingId(1)));
        let announced = ProgramRequest::Advise(ranges.into(), advice, mapping);
        policy.request(cx, (Ticket(1), ClientId(1)), announced);
    });
    let gets = done.iter().filter(|word| word.starts_with("get "));
    assert!(gets.count() < announced.len(), "{done:?}");
    let asked = bench.policy.fetches.keys().map(|page| page.0);
    assert_eq!(asked.collect::<Vec<_>>(), announced);
}
