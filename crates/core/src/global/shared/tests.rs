use super::*;
use crate::effect::{Effects, Reply};
use crate::shell::Shell;
use core::time::Duration;
use pagemesh_wire::Ticket;
use pagemesh_wire::local::FileFrames;
use pagemesh_wire::peer::{EpochPlan, FileKey};

const FILE: FileKey = FileKey {
    user: 7,
    hash: [1, 2],
};

/// One of four nodes, and what it did.
struct Host {
    shell: Shell,
    shared: SharedPages,
    segment: SegmentId,
}

/// What came of a step: fills and answers at a node, and datagrams.
#[derive(Debug, Default)]
struct Done {
    filled: Vec<(NodeId, u32)>,
    answers: Vec<(NodeId, FileFrames)>,
    refused: u32,
    sent: u32,
}

struct Cluster {
    hosts: Vec<Host>,
    now: Time,
}

impl Cluster {
    fn new() -> Self {
        let host = |id: u16| {
            let me = NodeId(id);
            Host {
                shell: Shell::of_four(me),
                shared: SharedPages::default(),
                segment: SegmentId::new(me, 1),
            }
        };
        Self {
            hosts: (1..=4).map(host).collect(),
            now: Time(1_000_000),
        }
    }

    /// A step of a node, and all that follows from the datagrams it sends.
    fn step(
        &mut self,
        node: usize,
        work: impl FnOnce(&mut SharedPages, &mut Cx<'_>, SegmentId),
    ) -> Done {
        let mut done = Done::default();
        let mut effects = Effects::default();
        let host = &mut self.hosts[node];
        let mut cx = Cx {
            now: self.now,
            shell: &mut host.shell,
            effects: &mut effects,
        };
        work(&mut host.shared, &mut cx, host.segment);
        let effects: Vec<_> = effects.drain().collect();
        for effect in effects {
            self.carry_out(node, effect, &mut done);
        }
        done
    }

    fn carry_out(&mut self, node: usize, effect: Effect, done: &mut Done) {
        let me = NodeId(node as u16 + 1);
        match effect {
            Effect::Fill { pages, source } => {
                assert!(matches!(source, Source::Payload | Source::Kept(_)));
                done.filled.push((me, pages.first.0));
            }
            Effect::Reply { reply, .. } => match *reply {
                Reply::FilePages(frames) => done.answers.push((me, frames)),
                _ => done.refused += 1,
            },
            Effect::Send {
                header, message, ..
            } => {
                done.sent += 1;
                let to = usize::from(header.to.0) - 1;
                let more = self.step(to, |shared, cx, _| match *message {
                    Message::Global(message) => shared.message(cx, me, message),
                    Message::SharedPage(page) => shared.came(cx, page),
                    Message::SharedPut(put) => {
                        assert!(shared.keep(cx, &put, cx.now));
                    }
                    other => panic!("{other:?}"),
                });
                done.filled.extend(more.filled);
                done.answers.extend(more.answers);
                done.sent += more.sent;
            }
            _ => {}
        }
    }

    fn ask(&mut self, node: usize, pages: u64) -> Done {
        self.step(node, |shared, cx, segment| {
            let of = Frames { segment, count: 8 };
            shared.ask(cx, Ticket(1), of, part(pages));
        })
    }

    /// The process reads missing pages, and gives all frames back.
    fn give_back(&mut self, node: usize, frames: &FileFrames) -> Done {
        self.step(node, |shared, cx, segment| {
            let part = part(frames.all());
            shared.done(cx, segment, part, (frames.missing, &frames.frames));
        })
    }

    fn directory(&self) -> usize {
        let pod = &self.hosts[0].shared.pod;
        usize::from(pod.node((FILE, 0)).unwrap().0) - 1
    }
}

fn part(pages: u64) -> FilePart {
    FilePart {
        file: FILE,
        chunk: 0,
        pages,
    }
}

#[test]
fn a_page_is_copied_from_the_node_that_has_it() {
    let mut cluster = Cluster::new();
    for node in 0..4 {
        let done = cluster.step(node, |shared, cx, _| shared.follow_members(cx));
        assert_eq!(done.sent, 0);
    }
    // Neither is the directory node.
    let directory = cluster.directory();
    let (one, two) = ((directory + 1) % 4, (directory + 2) % 4);
    let first = cluster.ask(one, 0b11);
    let frames = &first.answers[0].1;
    assert_eq!((frames.missing, frames.all()), (0b11, 0b11), "case 3");
    cluster.give_back(one, frames);
    let second = cluster.ask(two, 0b111);
    let frames = &second.answers[0].1;
    assert_eq!((frames.came, frames.missing), (0b11, 0b100), "case 4");
    assert_eq!(second.filled.len(), 2);
    cluster.give_back(two, frames);
    let again = cluster.ask(one, 0b11);
    assert_eq!(again.answers[0].1.here, 0b11, "the original stays");
    assert_eq!(again.sent, 0);
    // A third node, and the directory node itself.
    let third = (directory + 3) % 4;
    for (node, sends) in [(third, 7), (directory, 4)] {
        let done = cluster.ask(node, 0b111);
        assert_eq!(done.answers[0].1.came, 0b111);
        assert!(done.sent <= sends, "{done:?}");
    }
}

#[test]
fn a_stale_directory_costs_a_read_and_is_corrected() {
    let mut cluster = Cluster::new();
    for node in 0..4 {
        cluster.step(node, |shared, cx, _| shared.follow_members(cx));
    }
    let directory = cluster.directory();
    let (one, two) = ((directory + 1) % 4, (directory + 2) % 4);
    let liar = NodeId(one as u16 + 1);
    cluster.step(directory, |shared, cx, _| {
        let (part, copied) = (part(0b11), false);
        shared.message(cx, liar, Global::Hold { part, copied });
    });
    let done = cluster.ask(two, 0b11);
    assert_eq!(done.answers[0].1.missing, 0b11);
    let found = &cluster.hosts[directory].shared.directory;
    assert_eq!(found.find((FILE, 0), 0b11, NodeId(9), false).missing, 0b11);
}

#[test]
fn what_was_not_asked_for_changes_no_frame() {
    let mut cluster = Cluster::new();
    let sent = |cluster: &mut Cluster, request, page| {
        let (file, page) = (FILE, PageIndex(page));
        cluster.step(0, |shared, cx, _| {
            let page = SharedPage {
                request: RequestId(request),
                file,
                page,
            };
            shared.came(cx, page);
        })
    };
    assert!(sent(&mut cluster, 1, 0).filled.is_empty());
    // A lookup whose answers are lost.
    let mut effects = Effects::default();
    let host = &mut cluster.hosts[0];
    let mut cx = Cx {
        now: cluster.now,
        shell: &mut host.shell,
        effects: &mut effects,
    };
    let of = Frames {
        segment: host.segment,
        count: 8,
    };
    host.shared.ask(&mut cx, Ticket(1), of, part(0b11));
    let Some(request) = host.shared.lookups.keys().next().copied() else {
        // This node has the directory, and knows that no node has the pages.
        return;
    };
    assert!(
        sent(&mut cluster, request.0, 7).filled.is_empty(),
        "not asked for"
    );
    assert_eq!(sent(&mut cluster, request.0, 0).filled.len(), 1);
    assert!(sent(&mut cluster, request.0, 0).filled.is_empty(), "twice");
    for page in [1, 1] {
        let _ = sent(&mut cluster, request.0, page);
    }
    assert!(cluster.hosts[0].shared.lookups.is_empty());
}

#[test]
fn a_lookup_without_an_answer_ends() {
    let mut cluster = Cluster::new();
    let mut ends = 0;
    for node in 0..4 {
        let mut effects = Effects::default();
        let host = &mut cluster.hosts[node];
        let of = Frames {
            segment: host.segment,
            count: 8,
        };
        let mut now = cluster.now;
        let mut cx = Cx {
            now,
            shell: &mut host.shell,
            effects: &mut effects,
        };
        host.shared.ask(&mut cx, Ticket(1), of, part(0b11));
        let Some(request) = host.shared.lookups.keys().next().copied() else {
            continue;
        };
        while let Some(lookup) = host.shared.lookups.get(&request) {
            now = lookup.backoff.due();
            let due = host.shell.timers.pop_due(now);
            assert_eq!(due, Some(Timer::Lookup(request)));
            let mut cx = Cx {
                now,
                shell: &mut host.shell,
                effects: &mut effects,
            };
            host.shared.lookup_due(&mut cx, request);
        }
        assert!(now.0 - cluster.now.0 <= 30_000_000, "{now:?}");
        assert_eq!(host.shell.timers.next(), None);
        let answers = effects.drain().filter(|effect| {
            matches!(effect, Effect::Reply { reply, .. } if matches!(&**reply, Reply::FilePages(frames) if frames.missing == 0b11))
        });
        ends += answers.count();
    }
    assert_eq!(ends, 3);
}

#[test]
fn impossible_pages_are_refused() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.ask(0, 0).refused, 1);
    let done = cluster.step(0, |shared, cx, _| {
        let beyond = FilePart {
            chunk: u32::MAX,
            ..part(1)
        };
        let (part, copied) = (beyond, true);
        shared.message(cx, NodeId(2), Global::Hold { part, copied });
        let (asker, request) = (NodeId(1), RequestId(1));
        let part = self::part(1);
        shared.message(
            cx,
            NodeId(2),
            Global::Fetch {
                asker,
                request,
                part,
            },
        );
        let part = self::part(u64::MAX);
        shared.done(
            cx,
            SegmentId::new(NodeId(1), 1),
            part,
            (u64::MAX, &[PageIndex(9); 64]),
        );
    });
    assert_eq!(done.sent, 0);
    assert_eq!(cluster.hosts[0].shared.directory, Directory::default());
}

/// Makes node 3 the only one that pages are sent to.
fn all_to_the_third(cluster: &mut Cluster) {
    let plan = EpochPlan {
        epoch: 1,
        min_age: u32::MAX,
        weights: vec![(NodeId(3), 100)],
        initiator: NodeId(3),
        duration: 5000,
        replacements: 100,
    };
    for (host, id) in cluster.hosts.iter_mut().zip(1..) {
        host.shell.memory.adopt(&plan, NodeId(id), Time(u64::MAX));
    }
}

#[test]
fn the_last_copy_goes_to_the_node_with_the_weight_and_comes_back() {
    let mut cluster = Cluster::new();
    all_to_the_third(&mut cluster);
    let (old, new) = (0xff, 0xff00);
    let read = |cluster: &mut Cluster, node, pages| {
        cluster.now = cluster.now + Duration::from_secs(1);
        let done = cluster.ask(node, pages);
        let frames = done.answers[0].1.clone();
        cluster.give_back(node, &frames);
        frames
    };
    let kept = |cluster: &Cluster| cluster.hosts[2].shared.kept();
    assert_eq!(read(&mut cluster, 0, old).missing, old);
    assert_eq!(read(&mut cluster, 0, new).missing, new);
    assert_eq!(
        kept(&cluster),
        8,
        "its eight frames are full: the first pages left"
    );
    // A page of another node's global memory becomes the asker's (case 1).
    assert_eq!(read(&mut cluster, 1, old).came, old);
    assert_eq!(kept(&cluster), 0);
    // It has the only copies: they leave as such. The new ones are copies, and are dropped.
    assert_eq!(read(&mut cluster, 1, new).came, new);
    assert_eq!(kept(&cluster), 8);
    assert_eq!(read(&mut cluster, 1, old).came, old);
    assert_eq!(
        kept(&cluster),
        0,
        "they are on node 2, and copies go nowhere"
    );
    // The node that keeps pages reads them itself.
    read(&mut cluster, 1, new);
    assert_eq!(kept(&cluster), 8);
    assert_eq!(read(&mut cluster, 2, old).here, old);
    assert_eq!(kept(&cluster), 0);
}
