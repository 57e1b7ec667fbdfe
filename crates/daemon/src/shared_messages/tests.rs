use super::*;
use pagemesh_wire::peer::Member;
use pagemesh_wire::{Incarnation, Term};

fn at(node: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8], 7450))
}

fn key(node: u16) -> PublicKey {
    PublicKey([node as u8; 32])
}

fn view(epoch: u64, nodes: &[u16]) -> MemberView {
    let member = |node: &u16| Member {
        id: NodeId(*node),
        name: String::new(),
        address: at(*node),
        incarnation: Incarnation(u64::from(*node)),
        key: key(*node),
        health: Health::Alive,
        program: pagemesh_wire::Program::default(),
    };
    MemberView {
        epoch,
        members: nodes.iter().map(member).collect(),
        term: Term::FIRST,
        standby: NodeId::NONE,
        generation: 0,
        deaths: 0,
    }
}

/// Nodes 1, 2 and 3, which have not shared anything yet.
fn nodes(sealed: bool) -> [SharedMessages; 3] {
    [1, 2, 3].map(|node| {
        let mut shared = SharedMessages::new(sealed, at(node), 1472);
        shared.meet(&view(1, &[1, 2, 3]));
        shared
    })
}

const BOTH: [(u16, u16); 2] = [(2, 2), (3, 3)];

fn both() -> Vec<(SocketAddr, NodeId)> {
    let nodes = BOTH.iter();
    nodes
        .map(|(place, node)| (at(*place), NodeId(*node)))
        .collect()
}

/// The datagrams of a message that node 1 shares with the two others.
fn shared(sender: &mut SharedMessages, message: &[u8]) -> Vec<Vec<u8>> {
    let mut set = NodeSet::only(NodeId(2));
    set.insert(NodeId(3));
    let mut sent = Vec::new();
    assert!(sender.cut(set, message, |bytes| sent.push(bytes.to_vec())));
    sent
}

fn is_whole(came: &SharedCame) -> bool {
    matches!(came, SharedCame::Whole(_))
}

#[test]
fn a_page_is_three_datagrams_however_many_get_it() {
    let message: Vec<u8> = (0..4200_u32).map(|byte| (byte * 7) as u8).collect();
    for sealed in [false, true] {
        let [mut one, mut two, mut three] = nodes(sealed);
        for (_, node, told) in one.tell(&both()) {
            let receiver = if node == NodeId(2) {
                &mut two
            } else {
                &mut three
            };
            assert_eq!(receiver.told(key(1), &told), Some(None));
        }
        assert!(one.tell(&both()).is_empty(), "told once");
        let sent = shared(&mut one, &message);
        assert_eq!(sent.len(), 3);
        assert!(sent.iter().all(|datagram| datagram.len() <= 1472));
        for receiver in [&mut two, &mut three] {
            let came = sent
                .iter()
                .rev()
                .map(|bytes| receiver.came(0, at(1), bytes));
            let whole: Vec<_> = came.map(|came| is_whole(&came)).collect();
            assert_eq!(whole, [false, false, true]);
            assert_eq!(receiver.whole(), message);
        }
    }
}

#[test]
fn hostile_pieces_make_nothing_whole() {
    let message = vec![5; 4200];
    for sealed in [false, true] {
        let [mut one, mut two, _] = nodes(sealed);
        for (_, _, told) in one.tell(&both()) {
            two.told(key(1), &told);
        }
        let sent = shared(&mut one, &message);
        for datagram in &sent[..2] {
            assert_eq!(two.came(0, at(1), datagram), SharedCame::Handled);
            // Replayed, from strangers, torn.
            assert!(!is_whole(&two.came(0, at(1), datagram)));
            assert_eq!(two.came(0, at(9), datagram), SharedCame::Refused);
            assert!(!is_whole(&two.came(
                0,
                at(1),
                &datagram[..datagram.len() / 2]
            )));
        }
        if sealed {
            for at_byte in 0..sent[2].len() {
                let mut bad = sent[2].clone();
                bad[at_byte] ^= 1;
                assert!(!is_whole(&two.came(0, at(1), &bad)), "{at_byte}");
            }
            // Of another member, whose key it is not.
            assert!(!is_whole(&two.came(0, at(3), &sent[2])));
            // As it would be in a cluster without keys.
            let [mut open, ..] = nodes(false);
            for datagram in shared(&mut open, &message) {
                assert!(!is_whole(&two.came(0, at(1), &datagram)));
            }
        }
        assert!(is_whole(&two.came(0, at(1), &sent[2])));
        assert_eq!(two.whole(), message);
        assert!(!is_whole(&two.came(0, at(1), &sent[2])));
    }
}

#[test]
fn pieces_that_contradict_each_other_and_floods_stay_bounded() {
    let [mut one, mut two, _] = nodes(false);
    let piece = |number, total, bytes| {
        let nodes = NodeSet::only(NodeId(2));
        let (count, index) = (2, 0);
        MulticastBatch::Shared(SharedPiece {
            nodes,
            number,
            total,
            count,
            index,
            bytes,
        })
        .encode()
    };
    assert_eq!(
        two.came(0, at(1), &piece(1, 5, b"abc")),
        SharedCame::Handled
    );
    for bad in [piece(1, 5, b"abd"), piece(1, 6, b"abc")] {
        assert_eq!(two.came(0, at(1), &bad), SharedCame::Refused);
    }
    for number in 0..10_000 {
        two.came(0, at(1), &piece(number, 5, b"abc"));
    }
    assert_eq!(two.arriving[&at(1)].len(), KEPT);
    let message = vec![1; 3000];
    let sent = shared(&mut one, &message);
    let whole = sent
        .iter()
        .filter(|bytes| is_whole(&two.came(0, at(1), bytes)));
    assert_eq!(whole.count(), 1);
}

#[test]
fn a_lost_key_is_asked_for_and_one_of_a_revoked_node_is_replaced() {
    let [mut one, mut two, mut three] = nodes(true);
    let told = one.tell(&both());
    assert_eq!(told.len(), 2);
    three.told(key(1), &told[1].2);
    let sent = shared(&mut one, b"first");
    let SharedCame::Ask(node, wanted) = two.came(100, at(1), &sent[0]) else {
        panic!("it knows no key");
    };
    assert_eq!(node, NodeId(1));
    let again = two.came(101, at(1), &sent[0]);
    assert_eq!(
        again,
        SharedCame::Sealed(Refused::Unknown),
        "asked just now"
    );
    let Some(Some((to, answer))) = one.told(key(2), &wanted) else {
        panic!("a member is answered");
    };
    assert_eq!(to, NodeId(2));
    assert_eq!(one.told(key(9), &wanted), None, "a stranger is not");
    assert_eq!(one.told(PublicKey::NONE, &wanted), None);
    assert_eq!(two.told(key(1), &answer), Some(None));
    let sent = shared(&mut one, b"second");
    assert!(is_whole(&two.came(0, at(1), &sent[0])));

    // Node 3 is revoked: it has the key, and nobody uses that any more.
    let number = |bytes: &[u8]| SharedOpener::number(bytes);
    let before = number(&sent[0]);
    one.meet(&view(2, &[1, 2]));
    two.meet(&view(2, &[1, 2]));
    let told = one.tell(&both());
    assert_eq!(told.len(), 1, "only the member that is left");
    two.told(key(1), &told[0].2);
    let sent = shared(&mut one, b"third");
    assert_ne!(number(&sent[0]), before);
    assert!(is_whole(&two.came(0, at(1), &sent[0])));
    assert!(
        !is_whole(&three.came(0, at(1), &sent[0])),
        "it cannot read on"
    );
    // What it shares itself counts for nothing.
    let forged = shared(&mut three, b"forged");
    assert_eq!(two.came(0, at(3), &forged[0]), SharedCame::Refused);
    assert!(!is_whole(&two.came(0, at(1), &forged[0])));
}
