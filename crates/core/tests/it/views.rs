//! Policy `views`, one message at a time: what each access costs, and who is served when.

use crate::common::{CLIENT, Cluster, Late, MAPPING};
use core::time::Duration;
use pagemesh_core::{Effect, Input, Reply, Request, Rights, Source};
use pagemesh_wire::local::{Advice, View};
use pagemesh_wire::peer::{Access, Message, Policy, Refusal};
use pagemesh_wire::{MappingId, NodeId, PageCount, PageIndex, SegmentId, Ticket};

/// Mappings of each node besides the ordinary, consistent one.
const OLD: MappingId = MappingId(2);
const OLD_SHORT: MappingId = MappingId(3);
const NEXT_SHORT: MappingId = MappingId(4);

const HOME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);
const THIRD: NodeId = NodeId(3);

fn cluster() -> (Cluster, SegmentId) {
    let mut cluster = Cluster::new(3);
    let segment = cluster.segment_of(Policy::Views { prefix: 32 }).id;
    for node in [HOME, OTHER, THIRD] {
        for (mapping, short, data_driven) in [
            (OLD, false, false),
            (OLD_SHORT, true, false),
            (NEXT_SHORT, true, true),
        ] {
            let view = View {
                consistent: false,
                short,
                data_driven,
            };
            let client = CLIENT;
            cluster.input(
                node,
                Input::MappedView {
                    mapping,
                    segment,
                    client,
                    view,
                },
            );
        }
    }
    cluster.settle();
    cluster.forget();
    (cluster, segment)
}

fn fault(cluster: &mut Cluster, node: NodeId, mapping: MappingId) {
    let page = PageIndex(0);
    let access = Access::Read;
    let fault = Input::Fault {
        mapping,
        page,
        access,
    };
    cluster.input(node, fault);
}

fn touch(cluster: &mut Cluster, node: NodeId, mapping: MappingId) {
    fault(cluster, node, mapping);
    cluster.settle();
}

fn purge(cluster: &mut Cluster, node: NodeId, segment: SegmentId, short: bool) {
    let (first, count) = (PageIndex(0), PageCount(1));
    let request = Request::Purge {
        segment,
        first,
        count,
        short,
    };
    let ticket = cluster.ask(node, request);
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
}

fn ask_to_publish(cluster: &mut Cluster, node: NodeId, segment: SegmentId, count: u32) -> Ticket {
    let (first, count) = (PageIndex(0), PageCount(count));
    let short = false;
    let request = Request::Publish {
        segment,
        first,
        count,
        short,
        waits: false,
    };
    cluster.ask(node, request)
}

fn publish(cluster: &mut Cluster, node: NodeId, segment: SegmentId, count: u32) -> Option<Reply> {
    let ticket = ask_to_publish(cluster, node, segment, count);
    cluster.settle();
    cluster.reply(ticket).cloned()
}

#[test]
fn a_publication_has_pages() {
    let (mut cluster, segment) = cluster();
    let reply = publish(&mut cluster, HOME, segment, 0);
    let refused = matches!(reply, Some(Reply::Refused(Refusal::Limit(_))));
    assert!(refused, "{reply:?}");
    assert_eq!(cluster.sent.len(), 0);
}

/// The rights that a mapping of a node was given since the last look.
fn given(cluster: &Cluster, node: NodeId, mapping: MappingId) -> Vec<Rights> {
    let done = cluster.done.iter().filter(|(of, _)| *of == node);
    let rights = done.filter_map(|(_, effect)| match effect {
        Effect::Map {
            mappings, rights, ..
        } if mappings.contains(mapping) => Some(*rights),
        _ => None,
    });
    rights.collect()
}

#[test]
fn e8_a_demand_driven_read_takes_two_datagrams() {
    let (mut cluster, _) = cluster();
    touch(&mut cluster, OTHER, OLD);
    assert_eq!((cluster.sent.len(), cluster.pages_sent()), (2, 1));
    assert_eq!(given(&cluster, OTHER, OLD), [Rights::Read]);
    cluster.forget();
    touch(&mut cluster, OTHER, OLD_SHORT);
    assert_eq!(cluster.sent.len(), 0, "E11: the prefix is part of the page");
    assert_eq!(given(&cluster, OTHER, OLD_SHORT), [Rights::Read]);
}

#[test]
fn e9_a_data_driven_access_sends_nothing_and_wakes_when_the_page_passes() {
    let (mut cluster, segment) = cluster();
    touch(&mut cluster, OTHER, NEXT_SHORT);
    assert_eq!(cluster.sent.len(), 0);
    assert!(given(&cluster, OTHER, NEXT_SHORT).is_empty());
    assert_eq!(publish(&mut cluster, HOME, segment, 1), Some(Reply::Done));
    assert_eq!(cluster.sent.len(), 2, "one to each listener");
    assert_eq!(given(&cluster, OTHER, NEXT_SHORT), [Rights::Read]);
}

#[test]
fn e2_e3_the_consistent_copy_moves_and_the_others_see_it_pass() {
    let (mut cluster, _) = cluster();
    touch(&mut cluster, THIRD, OLD);
    cluster.forget();
    cluster.touch(OTHER, 0, Access::Write);
    // The request, the copy, its acknowledgement, and a refresh for the third node.
    assert_eq!((cluster.sent.len(), cluster.pages_sent()), (4, 2));
    assert!(cluster.mapped(OTHER));
    cluster.forget();
    cluster.touch(OTHER, 0, Access::Write);
    assert_eq!(cluster.sent.len(), 0, "it is here");
    touch(&mut cluster, HOME, OLD);
    assert_eq!(
        cluster.sent.len(),
        0,
        "the giver keeps an inconsistent copy"
    );
}

#[test]
fn e4_e11_a_purge_drops_copies_and_a_short_one_leaves_the_page() {
    let (mut cluster, segment) = cluster();
    touch(&mut cluster, OTHER, OLD);
    purge(&mut cluster, OTHER, segment, true);
    cluster.forget();
    touch(&mut cluster, OTHER, OLD);
    assert_eq!(cluster.sent.len(), 0, "supersets are not affected");
    touch(&mut cluster, OTHER, OLD_SHORT);
    assert_eq!(cluster.sent.len(), 2, "the prefix is fetched");
    purge(&mut cluster, OTHER, segment, false);
    cluster.forget();
    touch(&mut cluster, OTHER, OLD);
    assert_eq!(cluster.sent.len(), 2);
}

fn lock(cluster: &mut Cluster, short: bool, segment: SegmentId) -> Option<Reply> {
    let (first, count) = (PageIndex(0), PageCount(1));
    let request = match short {
        true => Request::PinShort {
            segment,
            first,
            count,
        },
        false => Request::Pin {
            segment,
            first,
            count,
        },
    };
    let ticket = cluster.ask(OTHER, request);
    cluster.settle();
    cluster.reply(ticket).cloned()
}

#[test]
fn e12_a_lock_fails_where_the_copy_is_not_and_marks_it_wanted() {
    for short in [false, true] {
        let (mut cluster, segment) = cluster();
        let refused = lock(&mut cluster, short, segment);
        assert!(matches!(refused, Some(Reply::Refused(_))));
        let done = lock(&mut cluster, short, segment);
        assert_eq!(done, Some(Reply::Done), "it has come");
        cluster.forget();
        cluster.touch(THIRD, 0, Access::Write);
        assert!(!cluster.mapped(THIRD), "it is locked");
    }
}

/// A copy of the prefix is no page: the lock needs the consistent copy, which is always whole.
#[test]
fn e12_a_lock_fails_where_only_a_prefix_is_and_marks_the_page_wanted() {
    let (mut cluster, segment) = cluster();
    touch(&mut cluster, OTHER, OLD_SHORT);
    let refused = lock(&mut cluster, true, segment);
    assert!(matches!(refused, Some(Reply::Refused(_))));
    cluster.forget();
    cluster.touch(OTHER, 0, Access::Write);
    assert!(cluster.sent.is_empty(), "the superset was wanted, and came");
}

#[test]
fn e12_a_short_lock_takes_whole_pages_out_of_views_and_leaves_short_ones() {
    let (mut cluster, segment) = cluster();
    cluster.touch(OTHER, 0, Access::Write);
    touch(&mut cluster, OTHER, OLD);
    touch(&mut cluster, OTHER, OLD_SHORT);
    cluster.forget();
    assert_eq!(lock(&mut cluster, false, segment), Some(Reply::Done));
    let evicts = |cluster: &Cluster| {
        let done = cluster.done.iter();
        done.filter(|(node, effect)| *node == OTHER && matches!(effect, Effect::Evict { .. }))
            .count()
    };
    assert_eq!(evicts(&cluster), 0, "a whole page has no superset");
    assert_eq!(lock(&mut cluster, true, segment), Some(Reply::Done));
    assert_eq!(evicts(&cluster), 1);
    assert_eq!(given(&cluster, OTHER, OLD_SHORT), [Rights::Read]);
    assert!(given(&cluster, OTHER, OLD).is_empty(), "unmapped");
    assert!(cluster.sent.is_empty(), "it is present");
    touch(&mut cluster, OTHER, OLD);
    assert_eq!(
        given(&cluster, OTHER, OLD),
        [Rights::Read],
        "all subsets are present"
    );
    assert!(cluster.sent.is_empty());
}

#[test]
fn states_that_come_often_put_off_the_reminders_of_those_before() {
    let (mut cluster, segment) = cluster();
    for _ in 0..3 {
        assert_eq!(publish(&mut cluster, HOME, segment, 1), Some(Reply::Done));
        let due = cluster.node(HOME).next_deadline().unwrap();
        assert!(due > cluster.now + Duration::from_millis(11), "{due:?}");
        cluster.pass(Duration::from_millis(10));
    }
    cluster.forget();
    cluster.pass(Duration::from_millis(10));
    let sent = cluster.sent.iter();
    assert_eq!(sent.count(), 2, "both other nodes hear which is the newest");
}

#[test]
fn a_run_is_published_only_where_all_of_it_is() {
    let (mut cluster, segment) = cluster();
    cluster.touch(OTHER, 1, Access::Write);
    let refused = publish(&mut cluster, HOME, segment, 2);
    assert!(matches!(refused, Some(Reply::Refused(_))), "{refused:?}");
    cluster.touch(HOME, 1, Access::Write);
    // The other node keeps it for a moment, so that its thread can use it.
    cluster.pass(Duration::from_millis(1));
    cluster.forget();
    assert_eq!(publish(&mut cluster, HOME, segment, 2), Some(Reply::Done));
    assert_eq!(
        cluster.pages_sent(),
        4,
        "two pages to each of two listeners"
    );
    cluster.forget();
    touch(&mut cluster, OTHER, OLD);
    assert_eq!(cluster.sent.len(), 0, "it came");
}

/// Whether the message is a copy for this node, which tests let come late.
fn is_copy_for(node: NodeId) -> impl Fn(NodeId, &Message) -> bool {
    move |to, message| to == node && matches!(message, Message::PolicyPage(_))
}

/// Delivers all but copies for this node; the last one of those comes when a test wants it.
fn hold_back(cluster: &mut Cluster, node: NodeId) -> Late {
    let is_copy = is_copy_for(node);
    cluster.deliver(|to, message| !is_copy(to, message));
    cluster.lost.pop().expect("it was asked for")
}

/// The second node gives the consistent copy to the third one, and nobody gets it.
fn give_in_vain(cluster: &mut Cluster) {
    cluster.touch(OTHER, 0, Access::Write);
    fault(cluster, THIRD, MAPPING);
    cluster.pass_with(Duration::from_millis(1), |_, message| {
        !matches!(message, Message::PolicyPage(_))
    });
    cluster.forget();
}

/// What a node has given away is the newest copy that is left if it did not arrive: a purge hides it.
#[test]
fn a_purge_leaves_what_did_not_arrive() {
    for hears_first in [false, true] {
        let (mut cluster, segment) = cluster();
        give_in_vain(&mut cluster);
        cluster.kill(THIRD);
        if hears_first {
            let asks = |message: &Message| matches!(message, Message::Policy(_));
            cluster.pass_with(Duration::from_secs(8), |to, message| {
                to != HOME || !asks(message)
            });
        }
        purge(&mut cluster, OTHER, segment, false);
        cluster.pass(Duration::from_secs(8));
        touch(&mut cluster, HOME, MAPPING);
        assert_eq!(cluster.fills(HOME), [Source::Payload], "{hears_first}");
    }
}

/// Once it has arrived, it is a copy like others.
#[test]
fn what_a_purge_has_hidden_is_dropped_when_it_arrives() {
    let (mut cluster, segment) = cluster();
    give_in_vain(&mut cluster);
    purge(&mut cluster, OTHER, segment, false);
    let dropped = |cluster: &Cluster| {
        let dropped = |effect: &Effect| matches!(effect, Effect::Evict { keep: false, .. });
        let mut done = cluster.done.iter();
        done.any(|(node, effect)| *node == OTHER && dropped(effect))
    };
    assert!(!dropped(&cluster));
    cluster.pass(Duration::from_secs(1));
    assert!(dropped(&cluster));
    assert!(cluster.mapped(THIRD));
}

/// A node leaves after what it has given away is where others find it.
#[test]
fn a_node_leaves_after_what_did_not_arrive_has_a_holder() {
    let (mut cluster, _) = cluster();
    give_in_vain(&mut cluster);
    cluster.kill(THIRD);
    let ticket = cluster.ask(OTHER, Request::Leave);
    cluster.pass(Duration::from_secs(8));
    assert_eq!(cluster.reply(ticket), Some(&Reply::Done));
    assert_eq!(cluster.fills(HOME), [Source::Payload]);
    touch(&mut cluster, HOME, MAPPING);
    assert!(cluster.mapped(HOME));
}

/// A request that was repeated has two answers. The second one was made before what another node
/// stored before the purge.
#[test]
fn e4_an_answer_from_before_a_purge_serves_no_access_after_it() {
    for mapping in [OLD, OLD_SHORT] {
        let (mut cluster, segment) = cluster();
        let is_answer = is_copy_for(OTHER);
        fault(&mut cluster, OTHER, mapping);
        cluster.pass_with(Duration::from_millis(100), |to, message| {
            !is_answer(to, message)
        });
        let late = core::mem::take(&mut cluster.lost);
        assert!(late.len() >= 2, "it was repeated");
        cluster.deliver_late(&late[0]);
        assert_eq!(given(&cluster, OTHER, mapping), [Rights::Read]);
        purge(&mut cluster, OTHER, segment, mapping == OLD_SHORT);
        cluster.forget();
        fault(&mut cluster, OTHER, mapping);
        let answer = hold_back(&mut cluster, OTHER);
        for late in &late[1..] {
            cluster.deliver_late(late);
        }
        assert!(given(&cluster, OTHER, mapping).is_empty());
        cluster.deliver_late(&answer);
        assert_eq!(given(&cluster, OTHER, mapping), [Rights::Read]);
    }
}

/// A thread waits, and another one purges the page: what the first one has asked for may be older than
/// what the second one must find.
#[test]
fn e4_a_purge_asks_anew_for_what_others_wait_for() {
    let (mut cluster, segment) = cluster();
    fault(&mut cluster, OTHER, OLD);
    let late = hold_back(&mut cluster, OTHER);
    purge(&mut cluster, OTHER, segment, false);
    let answer = hold_back(&mut cluster, OTHER);
    cluster.deliver_late(&late);
    assert!(given(&cluster, OTHER, OLD).is_empty());
    cluster.deliver_late(&answer);
    assert_eq!(given(&cluster, OTHER, OLD), [Rights::Read]);
}

/// A publication that passes by after a purge may be older than the purge. A data-driven view takes it;
/// a demand-driven one waits for an answer, though the copy here is newer than what was purged.
#[test]
fn e4_a_publication_serves_no_access_on_demand_after_a_purge() {
    let (mut cluster, segment) = cluster();
    touch(&mut cluster, OTHER, OLD);
    purge(&mut cluster, OTHER, segment, false);
    fault(&mut cluster, OTHER, NEXT_SHORT);
    publish(&mut cluster, HOME, segment, 1);
    cluster.forget();
    touch(&mut cluster, OTHER, NEXT_SHORT);
    assert_eq!(cluster.sent.len(), 0);
    assert_eq!(given(&cluster, OTHER, NEXT_SHORT), [Rights::Read]);
    touch(&mut cluster, OTHER, OLD);
    assert_eq!(cluster.sent.len(), 2, "it is asked for");
    cluster.forget();
    for mapping in [OLD, OLD_SHORT] {
        touch(&mut cluster, OTHER, mapping);
        assert_eq!(given(&cluster, OTHER, mapping), [Rights::Read]);
    }
    assert_eq!(cluster.sent.len(), 0);
}

/// A purge of the prefix says nothing of the whole page.
#[test]
fn e11_after_a_short_purge_a_publication_serves_whole_views() {
    let (mut cluster, segment) = cluster();
    touch(&mut cluster, OTHER, OLD);
    purge(&mut cluster, OTHER, segment, true);
    publish(&mut cluster, HOME, segment, 1);
    cluster.forget();
    touch(&mut cluster, OTHER, OLD);
    touch(&mut cluster, OTHER, NEXT_SHORT);
    assert_eq!(cluster.sent.len(), 0);
    touch(&mut cluster, OTHER, OLD_SHORT);
    assert_eq!(cluster.sent.len(), 2, "the prefix is asked for");
    assert_eq!(given(&cluster, OTHER, OLD_SHORT), [Rights::Read]);
}

/// A newer publication that overtakes the answer has what the answer has.
#[test]
fn e4_an_answer_that_a_publication_overtakes_serves_what_waits() {
    for mapping in [OLD, OLD_SHORT] {
        let (mut cluster, segment) = cluster();
        purge(&mut cluster, OTHER, segment, false);
        fault(&mut cluster, OTHER, mapping);
        let answer = hold_back(&mut cluster, OTHER);
        publish(&mut cluster, HOME, segment, 1);
        cluster.forget();
        cluster.deliver_late(&answer);
        assert_eq!(given(&cluster, OTHER, mapping), [Rights::Read]);
        assert!(cluster.fills(OTHER).is_empty(), "it is older");
    }
}

/// An answer of the prefix makes the rest of the page no newer.
#[test]
fn e4_a_whole_page_is_not_served_by_an_answer_of_its_prefix() {
    let (mut cluster, segment) = cluster();
    let is_copy = is_copy_for(OTHER);
    ask_to_publish(&mut cluster, HOME, segment, 1);
    cluster.deliver(|to, message| !is_copy(to, message));
    purge(&mut cluster, OTHER, segment, false);
    fault(&mut cluster, OTHER, OLD_SHORT);
    cluster.deliver(|to, message| !is_copy(to, message));
    // The publication, which is whole, and the prefix, which was asked for later.
    let came = core::mem::take(&mut cluster.lost);
    assert_eq!(came.len(), 2);
    came.iter().for_each(|late| cluster.deliver_late(late));
    assert_eq!(given(&cluster, OTHER, OLD_SHORT), [Rights::Read]);
    fault(&mut cluster, OTHER, OLD);
    assert!(given(&cluster, OTHER, OLD).is_empty());
    cluster.forget();
    cluster.settle();
    assert_eq!(given(&cluster, OTHER, OLD), [Rights::Read]);
}

/// What was announced after a purge is asked for once.
#[test]
fn e4_pages_announced_after_a_purge_are_here_at_the_access() {
    let (mut cluster, segment) = cluster();
    touch(&mut cluster, OTHER, OLD);
    purge(&mut cluster, OTHER, segment, false);
    publish(&mut cluster, HOME, segment, 1);
    cluster.forget();
    page_out(&mut cluster, OTHER, segment, Advice::WillNeed);
    assert_eq!(cluster.sent.len(), 2);
    touch(&mut cluster, OTHER, OLD);
    assert_eq!(given(&cluster, OTHER, OLD), [Rights::Read]);
    assert_eq!(cluster.sent.len(), 2);
}

/// A run of three pages is under way when its first page is published anew: the two other pages come
/// all the same, and nobody asks for ever for a publication that its sender no longer has.
#[test]
fn a_run_that_a_shorter_publication_overtakes_is_asked_for_no_more() {
    let (mut cluster, segment) = cluster();
    ask_to_publish(&mut cluster, HOME, segment, 3);
    let mut pages = 0;
    cluster.deliver(|to, message| {
        let is_page = to == OTHER && matches!(message, Message::PolicyPage(_));
        pages += u32::from(is_page);
        !is_page || pages == 2
    });
    assert_eq!(pages, 3);
    assert_eq!(publish(&mut cluster, HOME, segment, 1), Some(Reply::Done));
    cluster.pass(Duration::from_millis(500));
    cluster.forget();
    cluster.pass(Duration::from_secs(3));
    let said = |(from, _, message): &&(NodeId, NodeId, Message)| {
        *from == OTHER && matches!(message, Message::Policy(_))
    };
    let said: Vec<_> = cluster.sent.iter().filter(said).collect();
    assert!(said.is_empty(), "{said:?}");
    cluster.forget();
    for page in (0..3).map(PageIndex) {
        let (mapping, access) = (OLD, Access::Read);
        let fault = Input::Fault {
            mapping,
            page,
            access,
        };
        cluster.input(OTHER, fault);
        assert!(cluster.sent.is_empty(), "{page} came");
    }
    assert_eq!(given(&cluster, OTHER, OLD).len(), 3);
}

fn page_out(cluster: &mut Cluster, node: NodeId, segment: SegmentId, advice: Advice) {
    let (first, count) = (PageIndex(0), PageCount(1));
    cluster.ask(
        node,
        Request::Advise {
            segment,
            first,
            count,
            advice,
        },
    );
    cluster.settle();
}

#[test]
fn e13_a_page_out_keeps_the_consistent_copy_and_drops_others() {
    let (mut cluster, segment) = cluster();
    cluster.touch(HOME, 0, Access::Write);
    touch(&mut cluster, OTHER, OLD);
    cluster.forget();
    page_out(&mut cluster, HOME, segment, Advice::DontNeed);
    assert!(cluster.sent.is_empty(), "it leaves memory, not the node");
    let evicts = |(node, effect): &&(NodeId, Effect)| {
        *node == HOME && matches!(effect, Effect::Evict { keep: true, .. })
    };
    assert_eq!(cluster.done.iter().filter(evicts).count(), 1);
    cluster.touch(HOME, 0, Access::Write);
    assert!(cluster.sent.is_empty(), "the consistent copy is here");
    page_out(&mut cluster, OTHER, segment, Advice::DontNeed);
    cluster.forget();
    touch(&mut cluster, OTHER, OLD);
    assert_eq!(cluster.sent.len(), 2, "a copy is dropped, and asked for");
}

#[test]
fn e11_a_short_page_out_drops_the_prefix_and_leaves_the_page_unmapped() {
    let (mut cluster, segment) = cluster();
    touch(&mut cluster, OTHER, OLD);
    touch(&mut cluster, OTHER, OLD_SHORT);
    page_out(&mut cluster, OTHER, segment, Advice::DontNeedShort);
    let evicts = |(node, effect): &&(NodeId, Effect)| {
        *node == OTHER && matches!(effect, Effect::Evict { keep: true, .. })
    };
    assert_eq!(cluster.done.iter().filter(evicts).count(), 1, "unmapped");
    cluster.forget();
    touch(&mut cluster, OTHER, OLD);
    assert_eq!(given(&cluster, OTHER, OLD), [Rights::Read]);
    assert!(cluster.sent.is_empty(), "the superset was left paged in");
    touch(&mut cluster, OTHER, OLD_SHORT);
    assert_eq!(cluster.sent.len(), 2, "the subset is fetched");
}

#[test]
fn e11_a_short_page_out_of_a_short_page_drops_it() {
    let (mut cluster, segment) = cluster();
    touch(&mut cluster, OTHER, OLD_SHORT);
    page_out(&mut cluster, OTHER, segment, Advice::DontNeedShort);
    cluster.forget();
    touch(&mut cluster, OTHER, OLD_SHORT);
    assert_eq!(cluster.sent.len(), 2);
}

#[test]
fn e11_a_short_page_out_keeps_the_consistent_copy() {
    let (mut cluster, segment) = cluster();
    cluster.touch(HOME, 0, Access::Write);
    page_out(&mut cluster, HOME, segment, Advice::DontNeedShort);
    cluster.forget();
    cluster.touch(HOME, 0, Access::Write);
    assert!(cluster.sent.is_empty());
    assert!(cluster.mapped(HOME), "it is mapped again");
}

/// Fig. 1: all subsets are purged, and paged out, with their superset.
#[test]
fn e11_a_page_out_of_the_whole_page_takes_its_prefix_along() {
    let (mut cluster, segment) = cluster();
    touch(&mut cluster, OTHER, OLD);
    page_out(&mut cluster, OTHER, segment, Advice::DontNeed);
    cluster.forget();
    touch(&mut cluster, OTHER, OLD_SHORT);
    assert_eq!(cluster.sent.len(), 2);
}
