//! Pipes and groups with real daemons: whole messages in order, whatever gets lost or dies.

use crate::support::{Cluster, Player, eventually};
use pagemesh::{End, Error, Group, GroupOptions, Peer, Pipe, PipeOptions};
use pagemesh_cli::sandbox::Plan;
use pagemesh_os::impair::Impairment;
use pagemesh_tests::message;
use rustix::process::Signal;
use std::time::{Duration, Instant};

const LIMIT: Option<Duration> = Some(Duration::from_secs(30));
const SOON: Option<Duration> = Some(Duration::from_millis(50));

fn options(size: usize) -> PipeOptions {
    PipeOptions {
        size,
        ..PipeOptions::default()
    }
}

fn end(cluster: &Cluster, node: usize, name: &str, size: usize) -> Pipe {
    Pipe::create(&cluster.mesh(node), name, options(size)).unwrap()
}

fn pair(cluster: &Cluster, nodes: [usize; 2], name: &str, size: usize) -> [Pipe; 2] {
    nodes.map(|node| end(cluster, node, name, size))
}

fn player(cluster: &Cluster, node: usize, name: &str) -> Player {
    let player = cluster.player(node, &format!("pipe-end {name}"));
    player.expect("ready");
    player
}

/// Lengths that travel in different ways: none, short, a page, more pages.
fn length(round: u64) -> usize {
    let lengths = [0, 8, 150, 192, 193, 1000, 4032, 4033, 20_000, 70_000];
    lengths[round as usize % lengths.len()]
}

/// Messages in both directions at once.
fn exchange([one, other]: &[Pipe; 2], rounds: u64) {
    let send = |pipe: &Pipe, base| {
        for round in 0..rounds {
            let bytes = message(base + round, length(round));
            pipe.send(&bytes, LIMIT).unwrap();
        }
    };
    let receive = |pipe: &Pipe, base| {
        for round in 0..rounds {
            let bytes = pipe.receive(LIMIT).unwrap();
            assert!(bytes == message(base + round, length(round)), "{round}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| send(one, 0));
        scope.spawn(|| send(other, 1000));
        scope.spawn(|| receive(one, 1000));
        scope.spawn(|| receive(other, 0));
    });
}

fn lossy(nodes: usize) -> Plan {
    let mut plan = Plan::new(nodes);
    plan.impair = Impairment {
        loss: 0.05,
        ..Impairment::default()
    };
    plan
}

#[test]
fn e18_messages_go_both_ways_whole_and_in_order() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    exchange(&pair(&cluster, [0, 1], "across", 70_000), 60);
    exchange(&pair(&cluster, [1, 1], "at-home", 70_000), 60);
    // Both ends are on a node that is not the pipe's home.
    let made = end(&cluster, 0, "away", 70_000);
    drop(made);
    exchange(&pair(&cluster, [1, 1], "away", 70_000), 30);
}

#[test]
fn e18_messages_are_whole_at_five_percent_loss() {
    let Some(cluster) = Cluster::of(lossy(2)) else {
        return;
    };
    exchange(&pair(&cluster, [0, 1], "lossy", 70_000), 60);
}

#[test]
fn e15_a_full_pipe_lets_its_writer_wait() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let [one, other] = pair(&cluster, [0, 1], "full", 4032);
    assert_eq!((one.end(), other.end()), (End::First, End::Second));
    one.send(b"first", SOON).unwrap();
    let began = Instant::now();
    let full = one.send(b"second", SOON);
    assert!(matches!(full, Err(Error::TimedOut)), "{full:?}");
    assert!(Some(began.elapsed()) >= SOON, "it waited");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| one.send(b"third", LIMIT));
        assert_eq!(other.receive(LIMIT).unwrap(), b"first");
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(
        other.receive(LIMIT).unwrap(),
        b"third",
        "nothing of the second was sent"
    );
    let none = other.receive(SOON);
    assert!(matches!(none, Err(Error::TimedOut)), "{none:?}");
    let long = one.send(&[0; 4033], LIMIT);
    assert!(matches!(long, Err(Error::Invalid(_))), "{long:?}");
}

#[test]
fn e19_a_pipe_is_two_pointers_and_each_end_is_open_once() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let missing = Pipe::open(&cluster.mesh(1), "pointers", End::Free);
    assert!(missing.unwrap_err().is_not_found());
    let one = end(&cluster, 0, "pointers", 100);
    assert_eq!(one.peer().unwrap(), Peer::Absent);
    let other = Pipe::open(&cluster.mesh(1), "pointers", End::Free).unwrap();
    let third = Pipe::open(&cluster.mesh(1), "pointers", End::Free);
    assert!(matches!(third, Err(Error::Invalid(_))), "{third:?}");
    let larger = Pipe::create(&cluster.mesh(1), "pointers", options(5000));
    assert!(matches!(larger, Err(Error::Invalid(_))), "{larger:?}");
    for round in 0..20_u8 {
        let length = 100 * usize::from(round);
        one.wait_writable(LIMIT).unwrap();
        let (_, write) = one.pointers();
        fill(write, length, round);
        one.write_done(length).unwrap();
        let early = one.write_done(length);
        assert!(matches!(early, Err(Error::Invalid(_))), "{early:?}");
        assert_eq!(other.wait_readable(LIMIT).unwrap(), length);
        let (read, _) = other.pointers();
        assert!(filled(read, length, round));
        other.read_done().unwrap();
        assert!(other.read_done().is_err(), "there is none");
    }
    assert_eq!(other.peer().unwrap(), Peer::Open);
    cluster.make_on(0, "no-pipe", 2, pagemesh::Options::default());
    let none = Pipe::open(&cluster.mesh(1), "no-pipe", End::Free);
    assert!(matches!(none, Err(Error::Invalid(_))), "{none:?}");
}

fn fill(write: *mut u8, length: usize, byte: u8) {
    // SAFETY: a pipe has room for so many bytes there, and its other end only reads them.
    unsafe { write.write_bytes(byte, length) };
}

fn filled(read: *const u8, length: usize, byte: u8) -> bool {
    // SAFETY: the message has so many bytes; its writer waits until it was read.
    let bytes = unsafe { std::slice::from_raw_parts(read, length) };
    bytes.iter().all(|found| *found == byte)
}

#[test]
fn a_peer_that_closed_is_told_after_its_last_message() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let [one, other] = pair(&cluster, [0, 1], "closed", 10_000);
    one.send(&message(7, 10_000), LIMIT).unwrap();
    one.close();
    assert!(other.receive(LIMIT).unwrap() == message(7, 10_000));
    let over = other.receive(LIMIT);
    assert!(matches!(over, Err(Error::PipeClosed)), "{over:?}");
    let over = other.send(b"more", LIMIT);
    assert!(matches!(over, Err(Error::PipeClosed)), "{over:?}");
    drop(other);
    // What nobody has read waits for the next process.
    let one = end(&cluster, 1, "closed", 10_000);
    one.send(b"letter", LIMIT).unwrap();
    drop(one);
    let other = Pipe::open(&cluster.mesh(0), "closed", End::Second).unwrap();
    assert_eq!(other.peer().unwrap(), Peer::Absent);
    assert_eq!(other.receive(LIMIT).unwrap(), b"letter");
    let none = other.receive(SOON);
    assert!(matches!(none, Err(Error::TimedOut)), "{none:?}");
}

#[test]
fn a_peer_whose_process_is_killed_is_told_and_followed_by_another() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    for (name, node) in [("killed-here", 0), ("killed-there", 1)] {
        let one = end(&cluster, 0, name, 4032);
        let mut victim = player(&cluster, node, name);
        assert_eq!(victim.ask("send 5 3000"), "sent");
        victim.kill();
        assert!(
            one.receive(LIMIT).unwrap() == message(5, 3000),
            "sent before"
        );
        let began = Instant::now();
        let dead = one.receive(LIMIT);
        assert!(matches!(dead, Err(Error::PeerDied)), "{dead:?}");
        assert!(
            Some(began.elapsed()) < LIMIT,
            "the death ends the wait, not its limit"
        );
        assert_eq!(one.peer().unwrap(), Peer::Dead);
        let dead = one.send(b"more", LIMIT);
        assert!(matches!(dead, Err(Error::PeerDied)), "{dead:?}");
        drop(one);
        let mut successor = player(&cluster, node, name);
        let one = end(&cluster, 0, name, 4032);
        one.send(&message(6, 100), LIMIT).unwrap();
        assert_eq!(successor.ask("receive"), "6 100");
        assert_eq!(successor.ask("close"), "closed");
    }
}

#[test]
fn a_writer_killed_between_messages_leaves_whole_ones() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    for round in 0..10 {
        let one = Pipe::create(&cluster.mesh(0), "cut", options(200_000)).unwrap();
        let mut victim = cluster.player(1, "pipe-end cut --size 200000");
        victim.expect("ready");
        victim.tell("echo 1000000");
        let mut sent = 0;
        let began = Instant::now();
        let victim_dies = std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(40 + 7 * round));
                victim.kill();
            });
            loop {
                if let Err(error) = one.send(&message(sent, 200_000), LIMIT) {
                    break error;
                }
                match one.receive(LIMIT) {
                    Ok(bytes) => assert!(bytes == message(sent, 200_000), "{sent} is torn"),
                    Err(error) => break error,
                }
                sent += 1;
            }
        });
        assert!(matches!(victim_dies, Error::PeerDied), "{victim_dies:?}");
        assert!(
            Some(began.elapsed()) < LIMIT,
            "the death ends the wait, not its limit"
        );
        let mesh = cluster.mesh(0);
        drop(one);
        mesh.remove("cut").unwrap();
    }
}

#[test]
fn a_peer_whose_node_dies_is_told() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let one = end(&cluster, 0, "node", 10_000);
    let victim = player(&cluster, 2, "node");
    one.send(&message(1, 9_000), LIMIT).unwrap();
    cluster.kill(2).unwrap();
    let dead = one.receive(LIMIT);
    assert!(matches!(dead, Err(Error::PeerDied)), "{dead:?}");
    drop((one, victim));
    let [one, other] = pair(&cluster, [0, 1], "node", 10_000);
    // The message that nobody read is still there.
    assert!(other.receive(LIMIT).unwrap() == message(1, 9_000));
    other.send(b"again", LIMIT).unwrap();
    assert_eq!(one.receive(LIMIT).unwrap(), b"again");
}

#[test]
fn a_signal_ends_a_wait() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let _one = end(&cluster, 0, "signal", 4032);
    let mut waiting = player(&cluster, 1, "signal");
    waiting.tell("receive");
    waiting.expect_silence();
    waiting.signal(Signal::INT);
    eventually("Ctrl-C ends it", || {
        waiting.state().is_none_or(|state| state == 'Z')
    });
}

#[test]
fn many_pipes_at_once() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let pairs: Vec<_> = (0..24)
        .map(|number| {
            let nodes = [number % 3, (number + 1) % 3];
            pair(&cluster, nodes, &format!("many-{number}"), 9_000)
        })
        .collect();
    std::thread::scope(|scope| {
        for (number, [one, other]) in pairs.iter().enumerate() {
            let number = number as u64;
            scope.spawn(move || {
                for round in 0..20 {
                    one.send(&message(number + round, 9_000), LIMIT).unwrap();
                }
            });
            scope.spawn(move || {
                for round in 0..20 {
                    let bytes = other.receive(LIMIT).unwrap();
                    assert!(bytes == message(number + round, 9_000));
                }
            });
        }
    });
}

fn group(cluster: &Cluster, number: u32, count: u32) -> Group {
    let nodes = cluster.nodes().len();
    let mesh = cluster.mesh(number as usize % nodes);
    let options = GroupOptions {
        size: 20_000,
        ..GroupOptions::default()
    };
    Group::join(&mesh, "group", (number, count), options).unwrap()
}

#[test]
fn e15_messages_of_a_group_are_chosen_by_kind_and_sender() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let [zero, one, two] = [0, 1, 2].map(|number| group(&cluster, number, 3));
    zero.csend(1, b"one", 1, LIMIT).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            zero.csend(2, b"two", 1, LIMIT).unwrap();
            zero.csend(1, b"three", 1, LIMIT).unwrap();
        });
        // The first one waits in the process meanwhile.
        let second = one.crecv(Some(2), None, LIMIT).unwrap();
        assert_eq!(
            (second.kind, second.from, &second.bytes[..]),
            (2, 0, &b"two"[..])
        );
        assert_eq!(one.crecv(None, None, LIMIT).unwrap().bytes, b"one");
        assert_eq!(one.crecv(Some(1), Some(0), LIMIT).unwrap().bytes, b"three");
    });
    let none = one.crecv(Some(9), None, SOON);
    assert!(matches!(none, Err(Error::TimedOut)), "{none:?}");
    assert!(zero.csend(-1, b"", 1, LIMIT).is_err());
    assert!(zero.csend(0, b"", 0, LIMIT).is_err(), "to itself");
    assert!(zero.csend(0, b"", 3, LIMIT).is_err(), "to nobody");
    two.csend(0, b"late", 1, LIMIT).unwrap();
    drop(two);
    drop(zero);
    assert_eq!(one.crecv(None, None, LIMIT).unwrap().bytes, b"late");
    let over = one.crecv(None, None, LIMIT);
    assert!(matches!(over, Err(Error::PipeClosed)), "{over:?}");
}

#[test]
fn e15_everybody_sends_to_everybody() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let (count, rounds) = (6, 8);
    let groups: Vec<_> = (0..count).map(|n| group(&cluster, n, count)).collect();
    std::thread::scope(|scope| {
        for group in &groups {
            let me = u64::from(group.number());
            let others: Vec<_> = (0..count).filter(|n| *n != group.number()).collect();
            let to = others.clone();
            scope.spawn(move || {
                for round in 0..rounds {
                    for other in &to {
                        let bytes = message(me, 20_000 / (1 + round as usize));
                        group.csend(round, &bytes, *other, LIMIT).unwrap();
                    }
                }
            });
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut from = Vec::new();
                    for _ in &others {
                        let got = group.crecv(Some(round), None, LIMIT).unwrap();
                        let length = 20_000 / (1 + round as usize);
                        assert!(got.bytes == message(got.from.into(), length));
                        from.push(got.from);
                    }
                    from.sort_unstable();
                    assert_eq!(from, others, "round {round}");
                }
            });
        }
    });
}
