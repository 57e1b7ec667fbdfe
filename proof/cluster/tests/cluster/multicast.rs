//! Datagrams for several nodes at once, as one multicast batch.

use crate::support::views::{OLD_SHORT, share_views};
use crate::support::{
    Cluster, Joiner, Stranger, at_best, eventually, expect, load, store, stress_time,
};
use pagemesh::{Access, Mapping, Mesh, Options, View};
use pagemesh_cli::sandbox::{Netns, Plan};
use pagemesh_os::udp::Received;
use pagemesh_wire::NodeId;
use pagemesh_wire::multicast_batch::{self, MulticastBatch};
use std::net::SocketAddrV4;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Stores of one test, each to a page that all nodes have read.
const ROUNDS: u64 = 30;

/// A group that no other test of this machine listens to.
pub(crate) fn group() -> SocketAddrV4 {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let process = std::process::id();
    let address = [
        239,
        (process >> 8) as u8,
        process as u8,
        NEXT.fetch_add(1, Relaxed),
    ];
    SocketAddrV4::new(address.into(), 20_000 + (process % 10_000) as u16)
}

pub(crate) fn plan(nodes: usize, group: SocketAddrV4) -> Plan {
    let mut plan = Plan::new(nodes);
    plan.daemon_args.push(format!("--multicast={group}"));
    plan
}

/// Three nodes on one network, where strangers can join their group.
pub(crate) fn within_reach(sealed: bool) -> Option<(Cluster, SocketAddrV4)> {
    let group = group();
    let mut plan = plan(3, group);
    (plan.netns, plan.sealed) = (Netns::Never, sealed);
    Some((Cluster::of(plan)?, group))
}

/// All nodes read the value stored last, then node 0 stores. Returns by how much the counters of
/// node 0 rose by the stores.
fn stores<const N: usize>(
    cluster: &Cluster,
    maps: &[Mapping],
    rounds: u64,
    names: [&str; N],
) -> [u64; N] {
    let counted = || names.map(|name| cluster.counter(0, name));
    let mut rose = [0; N];
    for _ in 0..rounds {
        let value = load(&maps[0], 0);
        for reader in maps {
            assert_eq!(load(reader, 0), value);
        }
        let before = counted();
        store(&maps[0], 0, value + 1);
        for (rose, (before, after)) in rose.iter_mut().zip(before.into_iter().zip(counted())) {
            *rose += after - before;
        }
    }
    rose
}

/// Waits until one datagram takes back all copies.
pub(crate) fn all_hear(cluster: &Cluster, maps: &[Mapping]) {
    let readers = maps.len() as u64 - 1;
    eventually("multicast batches reach everybody", || {
        stores(cluster, maps, 1, ["multicast_batch_parts"]) >= [readers]
    });
}

/// The batches that all nodes have refused. A node that has just joined is not known to all for a
/// moment.
fn refused(cluster: &Cluster) -> u64 {
    let nodes = 0..cluster.nodes().len();
    let of =
        |node| ["multicast_batches_refused", "seal_forged"].map(|name| cluster.counter(node, name));
    nodes.flat_map(of).sum()
}

#[test]
fn seven_copies_are_taken_back_by_one_datagram() {
    for (netns, sealed) in [
        (Netns::Never, false),
        (Netns::Never, true),
        (Netns::Auto, false),
        (Netns::Auto, true),
    ] {
        let mut plan = plan(8, group());
        (plan.netns, plan.sealed) = (netns, sealed);
        let Some(cluster) = Cluster::of(plan) else {
            return;
        };
        let maps = cluster.share("read by all", 1);
        all_hear(&cluster, &maps);
        let before = refused(&cluster);
        let names = [
            "invalidations_out",
            "datagrams_out",
            "multicast_batches_out",
            "multicast_batch_parts",
            "resent",
        ];
        at_best(|| {
            let [copies, sent, multicast_batches, parts, resent] =
                stores(&cluster, &maps, ROUNDS, names);
            let what = format!("{netns:?} {sealed}: {sent} {multicast_batches} {parts} {resent}");
            let all = 7 * ROUNDS;
            // One time that runs out resends to all that have not answered.
            assert!(
                (all..=all + 7 * resent).contains(&copies),
                "{what}: {copies}"
            );
            // Now and then a heartbeat is sent, or a message to a slow node is resent.
            let by_multicast_batches =
                multicast_batches * 10 >= ROUNDS * 9 && parts * 10 >= all * 9;
            expect(by_multicast_batches && sent < ROUNDS * 3, what)
        });
        assert!(cluster.counter(7, "multicast_batches_in") > 0);
        assert_eq!(refused(&cluster), before, "{netns:?} {sealed}");
    }
}

#[test]
fn a_barrier_opens_for_all_by_one_datagram() {
    let Some(cluster) = Cluster::of(plan(4, group())) else {
        return;
    };
    let maps = cluster.share("met", 1);
    all_hear(&cluster, &maps);
    let count =
        || ["multicast_batches_out", "multicast_batch_parts"].map(|name| cluster.counter(0, name));
    at_best(|| {
        let before = count();
        std::thread::scope(|scope| {
            for memory in &maps {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        memory.segment().barrier(1, 4).wait().unwrap();
                    }
                });
            }
        });
        let [multicast_batches, parts] = [0, 1].map(|at| count()[at] - before[at]);
        // The answer to the last arrival may leave alone, with its other datagrams.
        expect(
            multicast_batches * 2 > ROUNDS && parts > ROUNDS,
            format!("{multicast_batches} with {parts} parts for {ROUNDS} barriers"),
        )
    });
}

#[test]
fn multicast_batches_that_get_lost_are_said_again_to_each() {
    for sealed in [false, true] {
        let mut plan = plan(4, group());
        (plan.impair.loss, plan.impair.dup) = (0.1, 0.05);
        (plan.impair.seed, plan.sealed) = (5, sealed);
        let Some(cluster) = Cluster::of(plan) else {
            return;
        };
        let maps = cluster.share("lossy", 2);
        all_hear(&cluster, &maps);
        let before = refused(&cluster);
        let end = Instant::now() + stress_time();
        let mut value = 0;
        while Instant::now() < end {
            for writer in &maps {
                value += 1;
                store(writer, 8, value);
                for reader in &maps {
                    assert_eq!(load(reader, 8), value);
                }
            }
        }
        let all = |name| (0..4).map(|node| cluster.counter(node, name)).sum::<u64>();
        assert!(all("multicast_batches_in") > 0 && all("resent") > 0);
        assert_eq!(refused(&cluster), before);
    }
}

#[test]
fn multicast_batches_go_with_the_switches_of_experiments() {
    let mut plan = plan(3, group());
    plan.experiment = "packet=1024,acknowledge=packet,receive=worker,tick=1ms"
        .parse()
        .unwrap();
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let maps = cluster.share("switched", 1);
    all_hear(&cluster, &maps);
    let names = ["invalidations_out", "multicast_batch_parts"];
    at_best(|| {
        let [copies, parts] = stores(&cluster, &maps, ROUNDS, names);
        expect(parts * 2 > copies, format!("{parts} of {copies}"))
    });
}

#[test]
fn a_group_that_leads_nowhere_costs_nothing() {
    let mut plan = plan(1, group());
    plan.netns = Netns::Never;
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    // Members, but each in a group of its own, or in none.
    let elsewhere = format!("--multicast={}", group());
    let others = [
        Joiner::start(&cluster, "elsewhere", &[&elsewhere]),
        Joiner::start(&cluster, "nowhere", &[]),
    ];
    eventually("all are members", || others.iter().all(Joiner::is_member));
    cluster.make_on(0, "alone", 1, Options::default());
    let mut maps = vec![cluster.map(0, "alone")];
    for other in &others {
        let mesh = Mesh::connect_to(&other.socket).unwrap();
        let segment = mesh.open("alone", Access::Writable).unwrap();
        maps.push(segment.map().unwrap());
    }
    let told = "no other node hears";
    eventually("it is said", || cluster.node(0).log().contains(told));
    let names = ["invalidations_out", "multicast_batches_out", "resent"];
    let [copies, multicast_batches, resent] = stores(&cluster, &maps, ROUNDS, names);
    let all = 2 * ROUNDS;
    assert!((all..=all + resent).contains(&copies), "{copies} {resent}");
    assert_eq!(multicast_batches, 0);
    assert!(cluster.counter(0, "multicast_batches_unheard") >= 2);
    eventually("several trials are over", || {
        cluster.counter(0, "multicast_batches_unheard") >= 6
    });
    let log = cluster.node(0).log();
    assert_eq!(log.matches(told).count(), 1, "said once: {log}");
}

/// Whether a node drops what comes to it from multicast groups, from now on.
fn deafen(cluster: &Cluster, node: usize) -> bool {
    let rules = "table ip deaf { chain in { type filter hook input priority 0; \
                 ip daddr 224.0.0.0/4 drop; }; }";
    let mut command = cluster.node(node).command("nft");
    let done = command.arg(rules).output();
    done.is_ok_and(|output| output.status.success())
}

#[test]
fn a_group_that_falls_silent_costs_one_wait() {
    let Some(cluster) = Cluster::of(plan(4, group())) else {
        return;
    };
    let maps = cluster.share("silenced", 1);
    all_hear(&cluster, &maps);
    if !cluster.isolated() || !(1..4).all(|node| deafen(&cluster, node)) {
        eprintln!("skipped: no namespaces, or no nft to spoil them with");
        return;
    }
    let names = ["resent", "multicast_batches_out"];
    // One store finds out, for all who heard.
    let [resent, lost] = stores(&cluster, &maps, ROUNDS, names);
    assert!(resent > 0, "somebody heard");
    assert!((1..ROUNDS / 3).contains(&lost), "{lost} went to nobody");
    // From then on nothing is lost, and nothing said again but for want of time.
    at_best(|| {
        let [resent, lost] = stores(&cluster, &maps, ROUNDS, names);
        assert_eq!(lost, 0, "nobody hears");
        expect(resent < ROUNDS / 3, format!("{resent} were said again"))
    });
}

#[test]
fn a_daemon_that_is_replaced_hears_on() {
    let mut plan = plan(3, group());
    plan.grace = std::time::Duration::from_secs(30);
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let maps = cluster.share("replaced", 1);
    all_hear(&cluster, &maps);
    for node in [0, 1] {
        cluster.replace(node).unwrap();
        all_hear(&cluster, &maps);
    }
}

#[test]
fn forged_multicast_batches_change_nothing() {
    for sealed in [false, true] {
        let Some((cluster, group)) = within_reach(sealed) else {
            return;
        };
        let maps = cluster.share("forged", 1);
        all_hear(&cluster, &maps);
        let stranger = Stranger::listening(group);
        let before = cluster.counter(1, "multicast_batches_refused");
        let mut forged = Vec::new();
        multicast_batch::begin(&mut forged);
        for node in 1..4 {
            multicast_batch::add(&mut forged, NodeId(node), &[0x5a; 60]);
        }
        let trial = MulticastBatch::Trial {
            number: 7,
            length: 1000,
        };
        let heard = MulticastBatch::Heard { number: 7 };
        let sent = [
            forged,
            trial.encode(),
            heard.encode(),
            b"PC\x01\x03".to_vec(),
        ];
        for _ in 0..50 {
            for bytes in &sent {
                // Datagrams for a group, and answers to trials, have no meaning at a node.
                stranger.say(&cluster, bytes);
            }
            stores(&cluster, &maps, 1, []);
        }
        eventually("all of it was refused", || {
            cluster.counter(1, "multicast_batches_refused") >= before + 200
        });
        let mut buffer = [0; 2000];
        while let Ok(Received::Datagram(length, _)) = stranger.socket.receive(&mut buffer) {
            let answer = MulticastBatch::decode(&buffer[..length]);
            assert_eq!(answer, None, "strangers get no answer");
        }
        all_hear(&cluster, &maps);
    }
}

/// Refreshes of a short page go to all readers as one multicast batch. A stranger sends them again,
/// in another order, cut off and changed, while the writer goes on: no copy goes back or has what
/// was not stored.
#[test]
fn eb4_replayed_and_forged_refreshes_change_no_copy() {
    for sealed in [false, true] {
        let Some((cluster, group)) = within_reach(sealed) else {
            return;
        };
        let warm = cluster.share("warm", 1);
        all_hear(&cluster, &warm);
        let views = share_views(&cluster, "refreshed", 1);
        let mut stranger = Stranger::listening(group);
        let refused =
            || ["multicast_batches_refused", "seal_forged"].map(|name| cluster.counter(1, name));
        let before = refused();
        let mut last = [0; 3];
        let mut value = 0;
        // A starved member is not heard to hear: its node is told by itself, and the trials begin anew.
        while value < 300 || stranger.heard.len() <= 20 {
            if value > 0 && value % 300 == 0 {
                assert!(value < 6000, "only {} batches passed", stranger.heard.len());
                all_hear(&cluster, &warm);
            }
            value += 1;
            store(views[0].view(View::default()).unwrap(), 0, value);
            views[0].publish(true, 0..8).unwrap();
            stranger.overhear();
            stranger.repeat(&cluster, value as usize, (1, 6));
            for (seen, views) in last.iter_mut().zip(&views) {
                let found = load(views.view(OLD_SHORT).unwrap(), 0);
                assert!(
                    (*seen..=value).contains(&found),
                    "{found} after {seen}, sealed {sealed}"
                );
                *seen = found;
            }
        }
        eventually("the last publication is everywhere", || {
            views
                .iter()
                .all(|views| load(views.view(OLD_SHORT).unwrap(), 0) == value)
        });
        assert!(refused() != before, "it was refused somewhere");
    }
}
