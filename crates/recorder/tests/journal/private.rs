//! How a segment of policy `private` is written.

use super::pair::{MAPPING, Pair};
use pagemesh_core::{Budgets, Effect, Input};
use pagemesh_recorder::schema;
use pagemesh_wire::header::Header;
use pagemesh_wire::peer::{Access, Backing, EpochPlan, Global, Message, Policy};
use pagemesh_wire::{NodeId, PageCount, PageIndex, PublicKey};
use rmpv::Value;

/// A segment of which two pages fit into memory.
const POLICY: Policy = Policy::Private {
    local: PageCount(2),
    backing: Backing::File,
};

fn fault(pair: &mut Pair, page: u32, access: Access) {
    let fault = Input::Fault {
        mapping: MAPPING,
        page: PageIndex(page),
        access,
    };
    pair.input(0, fault, &mut |_, _, _| {});
}

/// The header of the last datagram that the second node sent.
fn header_of_second(pair: &mut Pair) -> Header {
    let mut last = None;
    pair.work(4, &mut |side, _, effects| {
        for effect in effects {
            if let Effect::Send { header, .. } = effect
                && side.node.id() == Some(header.from)
                && header.from == NodeId(2)
            {
                last = Some(*header);
            }
        }
    });
    last.expect("it said something")
}

/// The second node begins an epoch in which it takes pages.
fn donor(pair: &mut Pair, header: Header) {
    let plan = EpochPlan {
        epoch: 1,
        min_age: u32::MAX,
        weights: vec![(NodeId(2), 100)],
        initiator: NodeId(2),
        duration: 5000,
        replacements: 100,
    };
    let mut datagram = Vec::new();
    Message::Global(Global::Begin(plan)).encode(header, &mut datagram);
    let begin = Input::Datagram {
        source: ([127, 0, 0, 1], 1001).into(),
        key: PublicKey::NONE,
        bytes: &datagram,
    };
    pair.input(0, begin, &mut |_, _, _| {});
}

/// The value of a field of this map.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let mut fields = value.as_map()?.iter();
    let (_, value) = fields.find(|(key, _)| key.as_str() == Some(name))?;
    Some(value)
}

/// The state of the segment: its specification is called `Private`, too, and fetches nothing.
fn state(value: &Value) -> Option<&Value> {
    let here = field(value, "Private").filter(|found| field(found, "fetches").is_some());
    here.or_else(|| match value {
        Value::Array(values) => values.iter().find_map(state),
        Value::Map(fields) => fields.iter().find_map(|(_, value)| state(value)),
        _ => None,
    })
}

/// With `UPDATE_GOLDEN=1` it writes down what it sees instead of comparing.
#[test]
fn a_private_segment_is_written_as_before() {
    let mut pair = Pair::new();
    let header = header_of_second(&mut pair);
    pair.input(
        1,
        Input::Budgets(Budgets {
            lend: PageCount(100),
            ..Budgets::default()
        }),
        &mut |_, _, _| {},
    );
    donor(&mut pair, header);
    pair.open(0, ("private", POLICY), &mut |_, _, _| {});
    for page in 0..6 {
        fault(&mut pair, page, Access::Write);
        pair.settle(&mut |_, _, _| {});
    }
    // The request for the first page, and the page that leaves to make room, are not delivered.
    fault(&mut pair, 0, Access::Read);
    let document = schema::write(&pair.sides[0].node, b"");
    let document = rmpv::decode::read_value(&mut &document[..]).expect("a document");
    let private = state(&document).expect("it is open");
    for name in ["pages", "mapped", "fetches", "outgoing"] {
        let part = field(private, name).expect("a field");
        assert!(part.to_string().len() > 4, "{name} is empty: {part}");
    }
    let now = private.to_string().replace(", \"", ",\n\"") + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/journal/private.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, now).expect("writable");
        return;
    }
    let before = std::fs::read_to_string(path).expect("readable");
    assert!(before == now, "{path} is written otherwise now:\n{now}");
}
