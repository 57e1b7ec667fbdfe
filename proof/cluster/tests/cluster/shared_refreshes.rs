//! Refreshes of whole pages, and of many, that leave once for all readers.

use crate::multicast::{all_hear, group, plan, within_reach};
use crate::sealing_keys::key;
use crate::support::{Cluster, Stranger, at_best, eventually, expect};
use pagemesh::{Access, Board, BoardOptions};
use pagemesh_os::udp::{Group, Udp};
use std::thread::sleep;
use std::time::Duration;

/// A state that shows which it is, everywhere in it.
fn state(number: u64, size: usize) -> Vec<u8> {
    let words = (0..size as u64 / 8).flat_map(|word| (number << 32 | word).to_le_bytes());
    words.collect()
}

fn write_on(cluster: &Cluster, node: usize, size: usize) -> Board {
    Board::create(&cluster.mesh(node), "state", size, BoardOptions::default()).unwrap()
}

fn read_on(cluster: &Cluster, node: usize) -> Board {
    Board::open(&cluster.mesh(node), "state", Access::ReadOnly).unwrap()
}

/// The newest state: whole, and none before `last`.
fn newest(reader: &mut Board, last: &mut u64) {
    if let Some(found) = reader.read().unwrap() {
        let size = reader.size();
        assert!(
            found.bytes == state(found.number, size),
            "{} is torn",
            found.number
        );
        assert!(found.number >= *last, "{} after {last}", found.number);
        *last = found.number;
    }
}

fn is_everywhere(readers: &mut [Board], number: u64) {
    for reader in readers {
        eventually("the last state is everywhere", || {
            let found = reader.read().unwrap();
            found.is_some_and(|found| found.number == number)
        });
    }
}

/// Three datagrams to a page, one set of them for seven readers.
#[test]
fn eb4_a_large_refresh_leaves_once_however_many_read() {
    let (size, rounds) = (64 << 10, 20);
    for sealed in [false, true] {
        let mut plan = plan(8, group());
        plan.sealed = sealed;
        let Some(cluster) = Cluster::of(plan) else {
            return;
        };
        all_hear(&cluster, &cluster.share("warm", 1));
        let mut writer = write_on(&cluster, 0, size);
        let mut readers: Vec<_> = (1..8).map(|node| read_on(&cluster, node)).collect();
        let mut number = 0;
        let mut publish = || {
            number += 1;
            assert_eq!(writer.publish(&state(number, size)).unwrap(), number);
            number
        };
        // The readers listen, and know the writer's key.
        for _ in 0..8 {
            is_everywhere(&mut readers, publish());
        }
        at_best(|| {
            let count = || cluster.counter(0, "datagrams_out");
            let (before, parts) = (count(), cluster.counter(0, "multicast_batch_parts"));
            let mut last = 0;
            for _ in 0..rounds {
                last = publish();
                sleep(Duration::from_millis(4));
            }
            let (sent, pages) = (count() - before, rounds * 17);
            let parts = cluster.counter(0, "multicast_batch_parts") - parts;
            is_everywhere(&mut readers, last);
            // Heartbeats, trials, and what was lost.
            let few = sent < pages * 3 * 3 / 2 && parts >= pages * 7;
            expect(
                few,
                format!("sealed {sealed}: {sent} datagrams for {pages} pages, {parts} parts"),
            )
        });
    }
}

/// A stranger sends pieces of refreshes again, in another order, cut off and changed, to the group
/// and to a node.
#[test]
fn eb4_hostile_pieces_of_refreshes_tear_no_state() {
    let size = 20_000;
    for sealed in [false, true] {
        let Some((cluster, group)) = within_reach(sealed) else {
            return;
        };
        all_hear(&cluster, &cluster.share("warm", 1));
        let mut writer = write_on(&cluster, 0, size);
        let mut readers = [1, 2].map(|node| read_on(&cluster, node));
        let mut stranger = Stranger::listening(group);
        let refused = || cluster.counter(1, "multicast_batches_refused");
        let before = refused();
        let mut last = [0; 2];
        let mut number = 0;
        // A node that is late to acknowledge is out of reach for a while: refreshes are shared later.
        at_best(|| {
            for _ in 0..200 {
                number += 1;
                assert_eq!(writer.publish(&state(number, size)).unwrap(), number);
                stranger.overhear();
                stranger.repeat(&cluster, number as usize, (3, 8));
                for (reader, last) in readers.iter_mut().zip(&mut last) {
                    newest(reader, last);
                }
            }
            is_everywhere(&mut readers, number);
            let shared = cluster.counter(0, "multicast_batch_parts");
            expect(shared > 200, format!("only {shared} refreshes were shared"))
        });
        assert!(refused() > before, "it was refused");
    }
}

/// A writer is revoked. What it had shared is sent again from its address: no copy changes, and the
/// others go on under keys that it does not have.
#[test]
fn eb4_a_revoked_writer_refreshes_no_copy() {
    let size = 20_000;
    let Some((cluster, group)) = within_reach(true) else {
        return;
    };
    all_hear(&cluster, &cluster.share("warm", 1));
    let mut stranger = Stranger::listening(group);
    let mut readers = [0, 1].map(|node| write_on(&cluster, node, size));
    let mut revoked = write_on(&cluster, 2, size);
    let mut number = 0;
    // A node that is late to acknowledge is out of reach for a while: refreshes are shared later.
    at_best(|| {
        for _ in 0..60 {
            number += 1;
            assert_eq!(revoked.publish(&state(number, size)).unwrap(), number);
            stranger.overhear();
            sleep(Duration::from_millis(2));
        }
        is_everywhere(&mut readers, number);
        let shared = cluster.counter(2, "multicast_batch_parts");
        expect(shared > 60, format!("only {shared} refreshes were shared"))
    });
    key(&cluster, &["revoke", "3"]);
    eventually("it knows itself", || {
        cluster
            .node(2)
            .log()
            .contains("not a member of the cluster")
    });
    assert!(revoked.publish(&state(number + 1, size)).is_err());
    let mut last = [number; 2];
    for _ in 0..60 {
        number += 1;
        assert_eq!(readers[0].publish(&state(number, size)).unwrap(), number);
        for (reader, last) in readers.iter_mut().zip(&mut last) {
            newest(reader, last);
        }
    }
    let address = cluster.node(2).address();
    drop(revoked);
    cluster.kill(2).unwrap();
    let mut again = None;
    eventually("its address is free", || {
        again = Udp::bind(address).ok();
        again.is_some()
    });
    let again = again.unwrap();
    let refusals = [
        "multicast_batches_refused",
        "seal_unknown",
        "seal_replayed",
        "seal_forged",
    ];
    let refused = || {
        refusals
            .map(|name| cluster.counter(1, name))
            .iter()
            .sum::<u64>()
    };
    let before = refused();
    let _same_link = Group::join(group, &again).unwrap();
    for bytes in &stranger.heard {
        stranger.say_from(&again, &cluster, bytes);
        for (reader, last) in readers.iter_mut().zip(&mut last) {
            newest(reader, last);
        }
    }
    eventually("it was refused", || {
        refused() > before + stranger.heard.len() as u64 / 2
    });
    is_everywhere(&mut readers, number);
    number += 1;
    assert_eq!(readers[0].publish(&state(number, size)).unwrap(), number);
    is_everywhere(&mut readers, number);
}
