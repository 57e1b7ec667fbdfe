use super::messages::{Phase, Phases};
use super::{Broadcast, NUMBER, Open, PAGES};
use pagemesh_wire::peer::Policy;
use pagemesh_wire::{NodeId, SegmentId};

fn broadcast() -> Broadcast {
    let segment = SegmentId::new(NodeId(1), 1);
    Broadcast::open(segment, 3, NUMBER).unwrap().unwrap()
}

#[test]
fn a_segment_is_refused_that_has_more_pages_than_a_number_has_bits() {
    let open = |pages, chosen| Broadcast::open(SegmentId::default(), pages, chosen);
    assert!(open(PAGES, NUMBER).unwrap().is_ok());
    assert!(open(PAGES + 1, NUMBER).unwrap().is_err());
    assert!(open(1, Policy::default()).is_none(), "another policy");
}

#[test]
fn what_the_home_tells_twice_or_too_early_is_remembered_once_and_in_order() {
    let mut policy = broadcast();
    let phase = |number| Phase {
        node: NodeId(2),
        number,
        pages: 0b101,
    };
    let phases = |from, numbers: std::ops::Range<u64>| Phases {
        from,
        total: 9,
        list: numbers.map(phase).collect(),
    };
    policy.told(&phases(2, 3..5));
    assert!(policy.next.is_empty(), "the first two are not known");
    policy.told(&phases(0, 1..4));
    policy.told(&phases(2, 3..6));
    let numbers: Vec<_> = policy.next.iter().map(|phase| phase.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    let pages: Vec<_> = phase(7).diffs().map(|name| name.page.0).collect();
    assert_eq!(pages, [0, 2]);
}

#[test]
fn arrivals_that_overtake_each_other_do_not_change_the_order() {
    let mut home = broadcast();
    let node = NodeId(2);
    let phase = |number, pages| Phase {
        node,
        number,
        pages,
    };
    let (first, second) = (phase(1, 0b1), phase(2, 0b11));
    home.arrived(node, 0, &[first, second]);
    home.arrived(node, 0, &[first]);
    assert_eq!(home.phases, [first, second]);
    // Not of the sender, and beyond the end.
    home.arrived(NodeId(3), 0, &[phase(3, 0b1)]);
    home.arrived(node, 0, &[phase(3, 0b1000)]);
    assert_eq!(home.phases, [first, second]);
}
