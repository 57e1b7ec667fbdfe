//! Pages that leave packed arrive whole, and hostile datagrams are refused.

use super::*;
use pagemesh_wire::peer::{Contents, Data, Message};
use pagemesh_wire::{ClusterId, Incarnation, PageIndex, RequestId, SegmentId, Version};

const PEER: &str = "127.0.0.3:7450";

fn head() -> Header {
    Header {
        version: pagemesh_wire::header::PROTOCOL_VERSION,
        cluster: ClusterId(7),
        from: NodeId(1),
        to: NodeId(2),
        incarnation: Incarnation(9),
        body: 0,
        term: pagemesh_wire::Term::NONE,
        generation: 0,
    }
}

/// A message that announces a page, and the page.
fn datagram(page: &[u8; PAGE]) -> (Vec<u8>, usize) {
    let message = Message::Data(Data {
        segment: SegmentId(3),
        page: PageIndex(4),
        request: RequestId(5),
        version: Version(6),
        owner: NodeId(1),
        contents: Contents::Bytes,
    });
    let mut bytes = Vec::new();
    message.encode(head(), &mut bytes);
    let at = bytes.len();
    bytes.extend_from_slice(page);
    (bytes, at)
}

fn sparse() -> [u8; PAGE] {
    std::array::from_fn(|at| if at % 256 < 4 { 7 } else { 0 })
}

fn noise() -> [u8; PAGE] {
    let mut state = 1_u32;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
}

fn counted(counters: &Counters, name: &str) -> u64 {
    let report = counters.report();
    let found = report.iter().find(|(of, _)| of == name);
    found.expect("a counter").1
}

/// The result of receiving a datagram.
fn received(bytes: &[u8], counters: &mut Counters) -> (Unpacked, Vec<u8>) {
    let mut room = vec![0xee; 1 << 16];
    room[..bytes.len()].copy_from_slice(bytes);
    let source = PEER.parse().unwrap();
    let mut packing = Packing::new(Compress::Off);
    let got = packing.unpack(source, &mut room, bytes.len(), counters);
    (got, room)
}

#[test]
fn a_page_goes_out_smaller_and_comes_in_whole() {
    for compress in [Compress::Runs, Compress::Lz4, Compress::Auto] {
        for page in [[0; PAGE], sparse()] {
            let (whole, at) = datagram(&page);
            let mut bytes = whole.clone();
            let (mut packing, mut counters) = (Packing::new(compress), Counters::default());
            let probe = packing.pack((NodeId(2), false), &mut bytes, at, &mut counters);
            assert_eq!(probe, None);
            if compress == Compress::Auto && page != [0; PAGE] {
                assert_eq!(bytes, whole, "nothing is known of the link");
                continue;
            }
            assert!(bytes.len() < at + 1024, "{compress:?}: {}", bytes.len());
            assert_ne!(header::form(&bytes), 0);
            let (got, room) = received(&bytes, &mut counters);
            assert_eq!(got, Unpacked::Whole(whole.len()), "{compress:?}");
            assert_eq!(room[..whole.len()], whole);
            assert_eq!(counted(&counters, "pages_unpacked"), 1);
            assert_eq!(counted(&counters, "packed_from_bytes"), PAGE as u64);
        }
    }
}

#[test]
fn what_does_not_pack_and_what_is_off_goes_out_as_it_is() {
    let (whole, at) = datagram(&noise());
    let mut counters = Counters::default();
    for compress in [Compress::Off, Compress::Runs, Compress::Lz4, Compress::Auto] {
        let mut bytes = whole.clone();
        Packing::new(compress).pack((NodeId(2), false), &mut bytes, at, &mut counters);
        assert_eq!(bytes, whole, "{compress:?}");
    }
    assert_eq!(counted(&counters, "pages_given_up"), 2);
    let (whole, at) = datagram(&[0; PAGE]);
    let mut bytes = whole.clone();
    Packing::new(Compress::Off).pack((NodeId(2), false), &mut bytes, at, &mut counters);
    assert_eq!(bytes, whole);
}

/// A zero page that can leave in one call with others is sent whole, unless the link is known to be
/// slow; alone it is not sent.
#[test]
fn zeros_amid_whole_pages_stay_whole_but_on_slow_links() {
    let (whole, at) = datagram(&[0; PAGE]);
    let mut packing = Packing::new(Compress::Auto);
    let mut counters = Counters::default();
    let mut is_elided = |packing: &mut Packing, joins| {
        let mut bytes = whole.clone();
        packing.pack((NodeId(2), joins), &mut bytes, at, &mut counters);
        bytes.len() < whole.len()
    };
    assert!(is_elided(&mut packing, false));
    assert!(!is_elided(&mut packing, true), "nothing is known");
    let alone = (0..WALKS).map(|_| is_elided(&mut packing, false));
    let alone: Vec<_> = alone.collect();
    assert!(!alone[0] && alone[usize::from(WALKS) - 1], "{alone:?}");
    let link = packing.links.get_mut(&NodeId(2)).unwrap();
    link.gauge = Gauge::measured(0);
    assert!(!is_elided(&mut packing, true));
    let link = packing.links.get_mut(&NodeId(2)).unwrap();
    link.gauge = Gauge::measured(330_000);
    assert!(is_elided(&mut packing, true), "bytes matter there");
}

/// A short page is a small datagram, whatever is known of the link.
#[test]
fn e7_short_pages_leave_small_and_others_are_judged() {
    let mut short = [0; PAGE];
    for (at, byte) in short[..SHORT].iter_mut().enumerate() {
        *byte = at as u8 | 1;
    }
    let mut longer = short;
    longer[PAGE - 1] = 1;
    let mut counters = Counters::default();
    for compress in [Compress::Auto, Compress::Runs, Compress::Lz4] {
        let packing = Packing::new(compress);
        let (whole, at) = datagram(&short);
        let mut bytes = whole.clone();
        assert!(packing.pack_short(&mut bytes, at, &mut counters));
        assert!(bytes.len() < at + SHORT + 64, "{}", bytes.len());
        let (got, room) = received(&bytes, &mut counters);
        assert_eq!(got, Unpacked::Whole(whole.len()));
        assert_eq!(room[..whole.len()], whole);
        for page in [longer, [0; PAGE]] {
            let (mut other, at) = datagram(&page);
            let before = other.clone();
            assert!(!packing.pack_short(&mut other, at, &mut counters));
            assert_eq!(other, before, "it is left to the judge");
        }
    }
    let (mut off, at) = datagram(&short);
    assert!(!Packing::new(Compress::Off).pack_short(&mut off, at, &mut counters));
}

#[test]
fn hostile_pages_are_refused_and_counted() {
    let (mut good, at) = datagram(&sparse());
    let mut counters = Counters::default();
    Packing::new(Compress::Lz4).pack((NodeId(2), false), &mut good, at, &mut counters);
    let mut hostile: Vec<Vec<u8>> = Vec::new();
    let mut with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        hostile.push(bytes);
    };
    with(&|bytes| bytes.truncate(bytes.len() - 1));
    with(&|bytes| bytes.push(0));
    with(&|bytes| bytes.truncate(HEADER_SIZE));
    with(&|bytes| header::set_form(bytes, 0x11));
    with(&|bytes| header::set_form(bytes, 0x12));
    with(&|bytes| header::set_form(bytes, 0x10));
    with(&|bytes| header::set_form(bytes, 0x14));
    with(&|bytes| header::set_form(bytes, 0xff));
    with(&|bytes| header::set_body(bytes, u16::MAX));
    with(&|bytes| bytes.resize(20_000, 1));
    for (count, bytes) in hostile.iter().enumerate() {
        let (got, _) = received(bytes, &mut counters);
        assert_eq!(got, Unpacked::Handled, "{count}");
        assert_eq!(counted(&counters, "pages_refused"), count as u64 + 1);
    }
    // Whatever bytes are there, the result is a datagram with a page or none.
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x41;
        if header::form(&bytes) > 1
            && let (Unpacked::Whole(length), _) = received(&bytes, &mut counters)
        {
            assert!(length <= header::MAX_DATAGRAM);
        }
    }
}

#[test]
fn only_members_are_told_how_fast_a_link_is() {
    let mut probe = head().encode().to_vec();
    probe.extend_from_slice(&7_u64.to_le_bytes());
    header::set_form(&mut probe, 0x20);
    let (mut packing, mut counters) = (Packing::new(Compress::Off), Counters::default());
    let source: SocketAddr = PEER.parse().unwrap();
    let mut ask = |packing: &mut Packing, probe: &[u8]| {
        let mut room = probe.to_vec();
        packing.unpack(source, &mut room, probe.len(), &mut counters)
    };
    assert_eq!(ask(&mut packing, &probe), Unpacked::Handled);
    packing.members.push(source);
    let Unpacked::Answer(answer) = ask(&mut packing, &probe) else {
        panic!("no answer to a member");
    };
    assert!(answer.len() <= probe.len());
    assert_eq!(
        (gauge::sender(&answer), header::form(&answer)),
        (NodeId(2), 0x21)
    );
    assert_eq!(
        ask(&mut packing, &answer),
        Unpacked::Handled,
        "it asked nobody"
    );
    assert_eq!(counted(&counters, "pages_refused"), 1);
}
