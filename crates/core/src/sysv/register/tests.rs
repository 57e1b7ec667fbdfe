use super::*;
use pagemesh_wire::CallId;
use pagemesh_wire::sysv::Family;

const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);

fn caller(node: NodeId, call: u64) -> Caller {
    let call = CallId(call);
    Caller { node, call }
}

fn find(offer: Option<Id>) -> KeyRequest {
    KeyRequest::Find { offer }
}

fn word(steps: &Steps) -> Word {
    match &steps.replies[..] {
        [(_, Reply::SysvKey(word))] => *word,
        other => panic!("{other:?}"),
    }
}

/// Another key of the bucket that `key` falls into.
fn neighbour(key: i32) -> i32 {
    let same = |other: &i32| *other != key && Bucket::of(*other) == Bucket::of(key);
    (1..).find(same).expect("buckets are large")
}

#[test]
fn a_key_has_one_object() {
    let mut register = Register::default();
    let name = (Family::Sem, 7);
    let [mine, yours] = [1, 2].map(|count| Id::new(NodeId::FIRST, 0, count));
    let first = register.ask(caller(NodeId::FIRST, 1), name, find(Some(mine)));
    assert_eq!(word(&first), Word::Yours);
    assert!(first.lend.is_empty(), "it is here anyway");
    let second = register.ask(caller(NodeId::FIRST, 2), name, find(Some(yours)));
    assert_eq!(word(&second), Word::Theirs(mine));
    let other = register.ask(caller(TWO, 1), (Family::Shm, 7), find(None));
    assert_eq!(
        word(&other),
        Word::Nobodys,
        "families have keys of their own"
    );
    let stranger = register.ask(caller(TWO, 2), name, KeyRequest::Drop { id: mine });
    assert_eq!(stranger.replies, [(caller(TWO, 2), Reply::Done)]);
    let still = register.ask(caller(TWO, 3), name, find(None));
    assert_eq!(
        word(&still),
        Word::Theirs(mine),
        "only its home strikes it out"
    );
    register.ask(
        caller(NodeId::FIRST, 3),
        name,
        KeyRequest::Drop { id: mine },
    );
    let gone = register.ask(caller(TWO, 4), name, find(None));
    assert_eq!(word(&gone), Word::Nobodys);
}

#[test]
fn who_has_all_keys_is_lent_everything_and_gives_back_what_others_want() {
    let mut register = Register::default();
    let (key, wanted) = (7, neighbour(7));
    let id = Id::new(TWO, 0, 1);
    let first = register.ask(caller(TWO, 1), (Family::Sem, key), find(Some(id)));
    assert_eq!(word(&first), Word::Yours);
    assert_eq!(first.lend, [(TWO, Buckets::ALL)]);
    // Questions wait while it is not known which node decides.
    let asks = register.ask(caller(THREE, 1), (Family::Sem, wanted), find(None));
    assert_eq!(asks, Steps::default());
    let bucket = Bucket::of(key);
    let recall = register.lent(TWO, Buckets::ALL, Buckets::ALL);
    assert_eq!(recall.recall, [(TWO, bucket, None)]);
    assert!(recall.replies.is_empty());
    let entry = Entry {
        family: Family::Sem,
        key,
        id,
    };
    let forged = Entry {
        id: Id::new(THREE, 0, 1),
        family: Family::Msg,
        ..entry
    };
    let more = register.returned(TWO, bucket, (&[forged], true));
    assert_eq!(more.recall, [(TWO, bucket, Some((Family::Msg, key)))]);
    let back = register.returned(TWO, bucket, (&[entry], false));
    assert_eq!(word(&back), Word::Nobodys);
    let known = register.ask(caller(THREE, 2), (Family::Sem, key), find(None));
    assert_eq!(word(&known), Word::Theirs(id));
    let unknown = register.ask(caller(THREE, 3), (Family::Msg, key), find(None));
    assert_eq!(word(&unknown), Word::Nobodys, "nobody speaks for others");
    // Two nodes have keys of this bucket: it is not lent.
    let mine = Id::new(THREE, 0, 2);
    let other = register.ask(caller(THREE, 4), (Family::Sem, wanted), find(Some(mine)));
    assert_eq!((word(&other), other.lend), (Word::Yours, vec![]));
    let dropped = KeyRequest::Drop { id };
    register.ask(caller(TWO, 2), (Family::Sem, key), dropped);
    let again = Id::new(THREE, 1, 3);
    let alone = register.ask(caller(THREE, 5), (Family::Sem, key), find(Some(again)));
    assert_eq!(alone.lend, [(THREE, [bucket].into_iter().collect())]);
}

#[test]
fn what_a_node_does_not_take_stays_here() {
    let mut register = Register::default();
    let (name, id) = ((Family::Sem, 7), Id::new(TWO, 0, 1));
    register.ask(caller(TWO, 1), name, find(Some(id)));
    register.lent(TWO, Buckets::ALL, Buckets::NONE);
    let known = register.ask(caller(THREE, 1), name, find(None));
    assert_eq!(word(&known), Word::Theirs(id));
}

#[test]
fn the_keys_of_the_dead_are_free_whatever_was_under_way() {
    let name = (Family::Sem, 7);
    let bucket = Bucket::of(7);
    let id = Id::new(TWO, 0, 1);
    let lent = || {
        let mut register = Register::default();
        register.ask(caller(TWO, 1), name, find(Some(id)));
        register
    };
    // The node may go while it is being lent something, when it has it, or while it returns it.
    for far in 0..3 {
        let mut register = lent();
        if far > 0 {
            register.lent(TWO, Buckets::ALL, Buckets::ALL);
        }
        if far > 1 {
            let asks = register.ask(caller(THREE, 1), name, find(None));
            assert_eq!(asks.recall.len(), 1);
        }
        register.member_gone(TWO);
        let over = match far {
            0 => register.lent(TWO, Buckets::ALL, Buckets::NONE),
            2 => register.returned(TWO, bucket, (&[], false)),
            _ => Steps::default(),
        };
        assert_eq!(over.replies.len(), usize::from(far == 2));
        let free = register.ask(caller(THREE, 2), name, find(None));
        assert_eq!(word(&free), Word::Nobodys, "{far}");
    }
}
