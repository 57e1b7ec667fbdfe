use super::*;
use crate::event::Event;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::Message;
use pagemesh_wire::{ClusterId, Incarnation, NodeId};

const SEGMENT: SegmentId = SegmentId(7);
const MAPPING: Mappings = Mappings::One(MappingId(1));

fn range(first: u32, count: u32) -> PageRange {
    PageRange {
        segment: SEGMENT,
        first: PageIndex(first),
        count,
    }
}

fn protect(first: u32, count: u32) -> Effect {
    let (pages, mappings) = (range(first, count), Mappings::All);
    Effect::Protect { pages, mappings }
}

fn evict(first: u32, count: u32, keep: bool) -> Effect {
    let pages = range(first, count);
    Effect::Evict { pages, keep }
}

fn fill(first: u32, count: u32, source: Source) -> Effect {
    let pages = range(first, count);
    Effect::Fill { pages, source }
}

fn map(mappings: Mappings, first: u32, count: u32, rights: Rights) -> Effect {
    let pages = range(first, count);
    Effect::Map {
        mappings,
        pages,
        rights,
    }
}

fn send(page: Option<(u32, Source)>) -> Effect {
    Effect::Send {
        address: ([127, 0, 0, 1], 1).into(),
        header: Header {
            version: pagemesh_wire::header::PROTOCOL_VERSION,
            cluster: ClusterId(1),
            from: NodeId(1),
            to: NodeId(2),
            incarnation: Incarnation(1),
            body: 0,
            term: pagemesh_wire::Term::NONE,
            generation: 0,
        },
        message: Box::new(Message::Expelled),
        page: page.map(|(page, source)| (SEGMENT, PageIndex(page), source)),
    }
}

fn emit() -> Effect {
    Effect::Emit(Event::Malformed {})
}

fn drop_stash(page: u32) -> Effect {
    Effect::DropStash {
        segment: SEGMENT,
        page: PageIndex(page),
    }
}

/// The effects of inputs, each with its effects.
fn merged<const INPUTS: usize>(inputs: [&[Effect]; INPUTS]) -> Vec<Effect> {
    let mut effects = Effects::default();
    for input in inputs {
        effects.next_input();
        input
            .iter()
            .cloned()
            .for_each(|effect| effects.push(effect));
    }
    effects.as_slice().to_vec()
}

/// The effects of one input that stay as they are.
fn stay(effects: &[Effect]) {
    assert_eq!(merged([effects]), effects);
}

#[test]
fn a_range_knows_its_pages() {
    let pages: Vec<u32> = range(4, 3).iter().map(|(_, page)| page.0).collect();
    assert_eq!(pages, [4, 5, 6]);
    let inside = [3, 4, 6, 7].map(|page| range(4, 3).contains((SEGMENT, PageIndex(page))));
    assert_eq!(inside, [false, true, true, false]);
    assert!(!range(4, 3).contains((SegmentId(8), PageIndex(4))));
    assert!(!range(u32::MAX, 1).join(range(0, 1)), "no page follows");
}

#[test]
fn effects_on_consecutive_pages_become_one() {
    let (first, second) = (
        send(Some((4, Source::Frame))),
        send(Some((5, Source::Frame))),
    );
    let pushed = [
        protect(4, 1),
        first.clone(),
        emit(),
        protect(5, 1),
        second.clone(),
        protect(6, 1),
    ];
    assert_eq!(merged([&pushed]), [protect(4, 3), first, emit(), second]);
    let pushed = [evict(1, 1, true), evict(2, 2, true), protect(3, 1)];
    assert_eq!(merged([&pushed]), [evict(1, 3, true), protect(3, 1)]);
    assert_eq!(
        merged([&[protect(1, 1)], &[emit(), protect(2, 1)]]),
        [protect(1, 2), emit()]
    );
}

#[test]
fn effects_stay_apart_where_a_node_or_program_could_tell() {
    stay(&[protect(1, 1), protect(3, 1)]);
    stay(&[protect(2, 1), protect(1, 1)]);
    stay(&[evict(1, 1, true), evict(2, 1, false)]);
    stay(&[evict(1, 1, true), protect(2, 1)]);
    // The frame of page 2 is still to be read.
    stay(&[
        evict(1, 1, true),
        send(Some((2, Source::Frame))),
        evict(2, 1, true),
    ]);
    stay(&[evict(1, 1, true), drop_stash(2), evict(2, 1, true)]);
    let one = Effect::Protect {
        pages: range(2, 1),
        mappings: MAPPING,
    };
    stay(&[protect(1, 1), one]);
    stay(&[protect(0, LONGEST), protect(LONGEST, 1)]);
}

#[test]
fn effects_of_drained_or_reordered_inputs_are_not_joined() {
    let mut effects = Effects::default();
    effects.push(protect(1, 1));
    effects.drain();
    effects.push(protect(2, 1));
    assert_eq!(effects.as_slice(), [protect(2, 1)]);
    let cut = effects.split_off(0);
    effects.push(protect(3, 1));
    assert_eq!(
        (cut, effects.as_slice()),
        (vec![protect(2, 1)], &[protect(3, 1)][..])
    );
}

/// Requests for more pages are gathered after each page that came.
#[test]
fn taking_out_what_stands_behind_does_not_part_pages() {
    let mut effects = Effects::default();
    for page in [7, 8] {
        effects.next_input();
        effects.push(fill(page, 1, Source::Payload));
        effects.push(map(MAPPING, page, 1, Rights::Read));
        let start = effects.len();
        effects.push(emit());
        assert_eq!(effects.split_off(start), [emit()]);
    }
    let placed = [
        fill(7, 2, Source::Payload),
        map(MAPPING, 7, 2, Rights::Read),
    ];
    assert_eq!(effects.as_slice(), placed);
    // An effect that was taken out is not extended by the next one.
    effects.push(protect(1, 1));
    assert_eq!(effects.split_off(2), [protect(1, 1)]);
    effects.push(protect(2, 1));
    assert_eq!(effects.as_slice()[2], protect(2, 1));
}

#[test]
fn pages_of_successive_datagrams_are_placed_together() {
    let page = |page, rights| {
        [
            fill(page, 1, Source::Payload),
            emit(),
            map(MAPPING, page, 1, rights),
        ]
    };
    let (one, two) = (page(7, Rights::Read), page(8, Rights::Read));
    let placed = [
        fill(7, 2, Source::Payload),
        emit(),
        map(MAPPING, 7, 2, Rights::Read),
        emit(),
    ];
    assert_eq!(merged([&one, &two]), placed);
    let apart = |inputs: &[&[Effect]]| {
        let mut effects = Effects::default();
        for input in inputs {
            effects.next_input();
            input
                .iter()
                .cloned()
                .for_each(|effect| effects.push(effect));
        }
        assert_eq!(effects.as_slice(), inputs.concat(), "{inputs:?}");
    };
    apart(&[&one, &page(9, Rights::Read)]);
    apart(&[&one, &[emit()], &two]);
    apart(&[&one, &[drop_stash(9)], &two]);
    // A page that no mapping gets is filled by itself.
    apart(&[&[fill(7, 1, Source::Payload)], &two]);
    let stash = fill(8, 1, Source::Stash);
    apart(&[&one, &[stash, map(MAPPING, 8, 1, Rights::Read)]]);
}

#[test]
fn other_rights_or_mappings_get_a_page_by_itself() {
    let other = Mappings::One(MappingId(2));
    for last in [
        map(other, 8, 1, Rights::Read),
        map(MAPPING, 8, 1, Rights::Write),
    ] {
        let first = map(MAPPING, 7, 1, Rights::Read);
        let inputs: [&[Effect]; 2] = [
            &[fill(7, 1, Source::Payload), first.clone()],
            &[fill(8, 1, Source::Payload), last.clone()],
        ];
        assert_eq!(merged(inputs), [fill(7, 2, Source::Payload), first, last]);
    }
    let filled = [
        map(MAPPING, 3, 1, Rights::Read),
        map(MAPPING, 4, 1, Rights::Read),
    ];
    assert_eq!(merged([&filled]), [map(MAPPING, 3, 2, Rights::Read)]);
}
