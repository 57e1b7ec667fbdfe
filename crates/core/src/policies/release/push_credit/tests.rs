use super::*;
use core::ops::Range;
use pagemesh_sorted::SortedMap;

const ME: NodeId = NodeId(1);
const READER: NodeId = NodeId(2);
const PAGE: PageIndex = PageIndex(7);

fn name(interval: u64) -> DiffName {
    DiffName {
        page: PAGE,
        node: ME,
        interval,
    }
}

/// Pushes as long as there is credit; returns how many diffs that were.
fn spend(credit: &mut PushCredit, from: u64) -> u64 {
    let pushed = (from..).take_while(|interval| {
        let may = credit.is_subscribed(READER, PAGE);
        if may {
            credit.pushed(READER, PAGE, *interval);
        }
        may
    });
    pushed.count() as u64
}

#[test]
fn credit_rises_with_each_sign_of_use_and_is_used_up_without() {
    let mut credit = PushCredit::new(Spread::Lazy);
    credit.copied(READER, PAGE, None);
    assert!(
        !credit.is_subscribed(READER, PAGE),
        "nothing was written here"
    );
    credit.copied(READER, PAGE, Some(1));
    assert_eq!(spend(&mut credit, 2), 2);
    assert_eq!(credit.seen(READER, PAGE), 3);
    for (at, most) in [(10, 8), (100, 32), (200, 64), (300, 64)] {
        credit.used_by(ME, READER, &[name(at)]);
        assert_eq!(spend(&mut credit, at), most);
    }
    credit.requested(ME, READER, &[name(900), name(901)]);
    assert_eq!(spend(&mut credit, 902), 0, "it has skipped some");
    credit.requested(ME, READER, &[name(901)]);
    assert_eq!(spend(&mut credit, 902), 0, "asked twice");
    credit.requested(ME, READER, &[name(902)]);
    assert_eq!(spend(&mut credit, 903), 2);
}

#[test]
fn a_writer_keeps_its_credit_and_an_empty_diff_costs_none() {
    let mut credit = PushCredit::new(Spread::Lazy);
    credit.written_by(READER, PAGE);
    assert!(
        !credit.is_subscribed(READER, PAGE),
        "it has requested nothing"
    );
    credit.requested(ME, READER, &[name(1)]);
    credit.pushed(READER, PAGE, 2);
    credit.written_by(READER, PAGE);
    assert_eq!(spend(&mut credit, 3), 2);
    credit.written_by(READER, PAGE);
    assert_eq!(spend(&mut credit, 5), 0, "too late");
    credit.give_back(PAGE, [READER].into_iter());
    assert_eq!(spend(&mut credit, 5), 1);
}

#[test]
fn invalidate_pushes_to_no_node() {
    let mut credit = PushCredit::new(Spread::Invalidate);
    for interval in 1..9 {
        credit.requested(ME, READER, &[name(interval)]);
        credit.copied(READER, PAGE, Some(interval));
        credit.written_by(READER, PAGE);
        credit.used_by(ME, READER, &[name(interval)]);
        assert!(!credit.is_subscribed(READER, PAGE));
    }
    assert_eq!(
        credit,
        PushCredit::new(Spread::Invalidate),
        "nothing is remembered"
    );
}

#[test]
fn eager_nodes_push_to_all_that_have_used_a_page() {
    for spread in [Spread::Eager, Spread::Hybrid] {
        let mut credit = PushCredit::new(spread);
        credit.requested(ME, READER, &[name(1), name(2)]);
        credit.written_by(NodeId(3), PAGE);
        credit.copied(NodeId(4), PAGE, None);
        for interval in 3..500 {
            credit.pushed(READER, PAGE, interval);
        }
        credit.collect(ME, &VectorTime::from_iter([(ME, 500)]));
        credit.gone(NodeId(4));
        let subscribed = |node| credit.is_subscribed(node, PAGE);
        assert!(subscribed(READER) && subscribed(NodeId(3)) && !subscribed(NodeId(4)));
        credit.came(PAGE, READER);
        assert!(!credit.is_running_out(PAGE), "{spread:?} has no bound");
    }
}

#[test]
fn a_reader_shows_its_use_just_before_its_credit_is_used_up() {
    let mut writer = PushCredit::new(Spread::Lazy);
    let mut reader = PushCredit::new(Spread::Lazy);
    writer.copied(READER, PAGE, Some(1));
    reader.fetched(PAGE);
    let mut shown = 0;
    for interval in 2..1000 {
        assert!(writer.is_subscribed(READER, PAGE), "at {interval}");
        writer.pushed(READER, PAGE, interval);
        reader.came(PAGE, ME);
        if reader.is_running_out(PAGE) {
            reader.uses(PAGE);
            let used = reader.show();
            assert_eq!(used, SortedMap::from([(ME, vec![PAGE])]));
            assert!(reader.show().is_empty() && !reader.is_running_out(PAGE));
            writer.used_by(ME, READER, &[name(interval)]);
            shown += 1;
        }
    }
    assert!((15..25).contains(&shown), "{shown} times");
    reader.came(PAGE, ME);
    reader.writes(PAGE);
    reader.uses(PAGE);
    assert!(reader.show().is_empty(), "shown by the notice");
}

#[test]
fn what_is_collected_or_gone_has_no_entry() {
    let mut credit = PushCredit::new(Spread::Lazy);
    credit.copied(READER, PAGE, Some(1));
    let upto = VectorTime::from_iter([(ME, 5)]);
    credit.collect(ME, &upto);
    assert_eq!(spend(&mut credit, 2), 2, "it has credit");
    credit.collect(ME, &upto);
    assert_eq!(credit, PushCredit::new(Spread::Lazy));
    credit.copied(READER, PAGE, Some(6));
    credit.gone(READER);
    assert!(!credit.is_subscribed(READER, PAGE));
}

#[test]
fn a_barrier_looks_at_pages_with_news_for_subscribers_only() {
    let mut credit = PushCredit::new(Spread::Lazy);
    let pages = |range: Range<u32>| range.map(PageIndex);
    for page in pages(0..100) {
        credit.copied(READER, page, Some(1));
    }
    let due = |credit: &mut PushCredit| credit.take_due().remove(&READER).unwrap_or_default();
    assert!(due(&mut credit).is_empty(), "copies have everything");
    pages(98..200).for_each(|page| credit.writes(page));
    assert_eq!(due(&mut credit), [PageIndex(98), PageIndex(99)]);
    assert!(due(&mut credit).is_empty(), "looked at before");
    credit.put_off(PageIndex(99));
    assert_eq!(due(&mut credit), [PageIndex(99)]);
    // Named while its subscriber had no credit, which it then earns.
    (2..4).for_each(|interval| credit.pushed(READER, PAGE, interval));
    credit.writes(PAGE);
    assert!(due(&mut credit).is_empty());
    credit.used_by(ME, READER, &[name(3)]);
    assert_eq!(due(&mut credit), [PAGE]);
}
