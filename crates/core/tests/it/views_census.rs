//! Policy `views`: the search for a consistent copy whose holder does not answer.

use crate::common::{Cluster, MAPPING};
use core::time::Duration;
use pagemesh_core::{Effect, Input, Rights};
use pagemesh_wire::peer::{Access, Message, Policy};
use pagemesh_wire::{NodeId, PageIndex};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);

const VIEWS: Policy = Policy::Views { prefix: 32 };

// First bytes of the policy's bodies.
pub(crate) const WANT: u8 = 4;
const PASS: u8 = 5;
const REFRESH: u8 = 7;
const CENSUS: u8 = 10;

/// The bytes of the policy's body.
fn body(message: &Message) -> &[u8] {
    match message {
        Message::Policy(said) | Message::PolicyPage(said) => said.body.bytes(),
        _ => &[],
    }
}

pub(crate) fn is(message: &Message, tag: u8) -> bool {
    body(message).first() == Some(&tag)
}

/// A request of this node for a page.
fn is_want_of(message: &Message, node: NodeId) -> bool {
    let asker = body(message).get(4).copied().map(u16::from);
    is(message, WANT) && asker == Some(node.0)
}

fn wants(cluster: &mut Cluster, node: NodeId) {
    let fault = Input::Fault {
        mapping: MAPPING,
        page: PageIndex(0),
        access: Access::Write,
    };
    cluster.input(node, fault);
}

/// How often a node was given the consistent copy since the last look.
fn grants(cluster: &Cluster, node: NodeId) -> usize {
    let done = cluster.done.iter();
    let granted = done.filter(|(of, effect)| {
        let writes = matches!(effect, Effect::Map { rights, .. } if *rights == Rights::Write);
        *of == node && writes
    });
    granted.count()
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The copy moves on while the home searches it, and the home hears where. What was answered before
/// that says nothing of the last move: its receiver may answer before the copy comes, and its giver
/// after it was acknowledged.
#[test]
fn a_census_counts_only_for_moves_known_when_it_began() {
    let mut cluster = Cluster::new(3);
    cluster.segment_of(VIEWS);
    cluster.touch(N2, 0, Access::Write);
    cluster.pass(ms(1));
    wants(&mut cluster, N1);
    // Node 3 answers, and node 2 is not asked yet.
    let unasked = |message: &Message| !is_want_of(message, N1);
    cluster.pass_with(ms(30), |to, message| {
        unasked(message) && !(to == N2 && is(message, CENSUS))
    });
    // Node 3 gets the copy, and node 2 wants it back: it is on its way there.
    wants(&mut cluster, N3);
    cluster.pass_with(ms(1), |to, message| {
        let hears = to == N1 && is(message, REFRESH);
        unasked(message) && !hears && !(to == N2 && is(message, CENSUS))
    });
    assert_eq!(grants(&cluster, N3), 1);
    wants(&mut cluster, N2);
    cluster.forget();
    cluster.pass_with(ms(1), |to, message| {
        unasked(message) && !(to == N2 && (is(message, CENSUS) || is(message, PASS)))
    });
    // Node 2 answers that it does not have the copy.
    cluster.pass_with(ms(300), |to, message| {
        let late = to == N2 && is(message, PASS) || to == N3 && is(message, CENSUS);
        unasked(message) && !late
    });
    assert_eq!(grants(&cluster, N2), 0);
    // It comes there, and node 3 answers that it passes nothing on.
    cluster.pass_with(ms(1500), |to, message| {
        unasked(message) && !(to == N3 && is(message, CENSUS))
    });
    assert_eq!(grants(&cluster, N2), 1);
    cluster.pass_with(ms(3000), |_, message| unasked(message));
    assert_eq!(
        grants(&cluster, N1),
        0,
        "node 2 has the only consistent copy"
    );
    cluster.pass(ms(1500));
    assert_eq!(grants(&cluster, N1), 1);
}

/// The last move led to a node that the home has not heard of yet, and does not ask.
#[test]
fn a_census_waits_for_a_holder_that_the_home_does_not_know() {
    let mut cluster = Cluster::new(2);
    cluster.segment_on([N2, N1], VIEWS, 16);
    cluster.touch(N1, 0, Access::Write);
    cluster.pass(ms(1));
    cluster.cut = Some(|from, to| from == N2 || to == N2);
    cluster.add_node(0);
    cluster.segment_on([N3], VIEWS, 16);
    wants(&mut cluster, N3);
    cluster.pass(ms(100));
    assert_eq!(grants(&cluster, N3), 1);
    cluster.forget();
    cluster.cut = Some(|from, to| [(N2, N3), (N3, N2)].contains(&(from, to)));
    wants(&mut cluster, N2);
    let is_news = |message: &Message| matches!(message, Message::Call { .. });
    cluster.pass_with(ms(1500), |to, message| to != N2 || !is_news(message));
    assert_eq!(grants(&cluster, N1) + grants(&cluster, N2), 0);
    cluster.cut = None;
    cluster.pass(ms(2500));
    assert_eq!(grants(&cluster, N2), 1);
}
