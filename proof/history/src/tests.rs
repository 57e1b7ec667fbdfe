//! The quick judge against one that tries every order.

use super::*;

fn store(value: u64, began: u64, ended: u64) -> Access<u8> {
    Access {
        place: 0,
        store: true,
        value,
        began,
        ended: Some(ended),
    }
}

fn load(value: u64, began: u64, ended: u64) -> Access<u8> {
    Access {
        store: false,
        ..store(value, began, ended)
    }
}

#[test]
fn what_one_memory_can_do_is_accepted() {
    let accept = |history: &[Access<u8>]| assert_eq!(check(history), Ok(1));
    accept(&[load(0, 0, 9)]);
    accept(&[store(1, 0, 5), load(0, 1, 2), load(1, 3, 4), load(1, 6, 7)]);
    accept(&[store(1, 0, 9), store(2, 0, 9), load(2, 1, 3), load(1, 4, 6)]);
    // A store whose process died may have happened, or not.
    let mut unknown = store(1, 2, 0);
    unknown.ended = None;
    accept(&[unknown, load(0, 8, 9)]);
    accept(&[unknown, load(0, 5, 6), load(1, 8, 9)]);
}

#[test]
fn what_none_can_do_is_rejected() {
    let reject = |history: &[Access<u8>]| check(history).unwrap_err();
    assert!(matches!(
        reject(&[load(7, 0, 1)]),
        Contradiction::NeverStored(_)
    ));
    assert!(matches!(
        reject(&[load(1, 0, 1), store(1, 2, 3)]),
        Contradiction::TooEarly(_)
    ));
    assert!(matches!(
        reject(&[store(1, 0, 1), store(1, 2, 3)]),
        Contradiction::StoredTwice(_)
    ));
    // Stale after the store, after another load, and after a newer store.
    reject(&[store(1, 0, 1), load(0, 2, 3)]);
    reject(&[store(1, 0, 9), load(1, 1, 2), load(0, 3, 4)]);
    reject(&[store(1, 0, 1), store(2, 2, 3), load(1, 4, 5)]);
    // Two readers see two orders.
    let both = [store(1, 0, 9), store(2, 0, 9)];
    let one = [load(1, 1, 2), load(2, 3, 4)];
    let other = [load(2, 1, 2), load(1, 3, 4)];
    reject(&[both, one, other].concat());
}

#[test]
fn places_do_not_mix() {
    let mut elsewhere = load(0, 2, 3);
    assert!(check(&[store(1, 0, 1), elsewhere]).is_err());
    elsewhere.place = 1;
    assert_eq!(check(&[store(1, 0, 1), elsewhere]), Ok(2));
}

/// Whether some order of the rest, begun with this value, fits.
fn fits(value: u64, rest: &[Access<u8>]) -> bool {
    let first_end = rest.iter().filter_map(|access| access.ended).min();
    rest.is_empty()
        || rest.iter().enumerate().any(|(at, next)| {
            let others = [&rest[..at], &rest[at + 1..]].concat();
            let may_be_next = first_end.is_none_or(|end| next.began <= end);
            let seen = next.store || next.value == value;
            may_be_next && seen && fits(next.value, &others)
        })
}

#[test]
fn the_judge_agrees_with_trying_every_order() {
    let mut dice = 1_u64;
    let mut throw = |limit: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (dice >> 33) % limit
    };
    let mut verdicts = [0; 2];
    for _ in 0..20_000 {
        let stores = 1 + throw(3);
        let mut history = Vec::new();
        let moments = |throw: &mut dyn FnMut(u64) -> u64| {
            let began = throw(12);
            (began, began + throw(6))
        };
        for value in 1..=stores {
            let (began, ended) = moments(&mut throw);
            history.push(store(value, began, ended));
        }
        for _ in 0..1 + throw(4) {
            let (began, ended) = moments(&mut throw);
            history.push(load(throw(stores + 1), began, ended));
        }
        let possible = fits(INITIAL, &history);
        assert_eq!(check(&history).is_ok(), possible, "{history:?}");
        verdicts[usize::from(possible)] += 1;
    }
    assert!(verdicts.iter().all(|count| *count > 1000), "{verdicts:?}");
}
