//! Keys of System V objects, which live where they are made: the messages for each call, which
//! process gets a key that several ask for, and the fate of a key when its home dies.

use crate::support::{Player, at_best, eventually, expect};
use crate::sysv::Stage;
use std::path::Path;
use std::time::{Duration, Instant};

/// Makes the objects of a key, uses them, and removes them.
fn round(player: &mut Player, key: u32) {
    let set = player.ask(&format!("semget {key} 1 01600"));
    for _ in 0..5 {
        assert_eq!(player.ask(&format!("semop {set} -1 0:1:{}", 0x1000)), "0");
    }
    if key != 0 {
        assert_eq!(player.ask(&format!("semget {key} 1 03600")), "EEXIST");
    }
    let id = player.ask(&format!("shmget {key} 4096 01600"));
    assert_eq!(player.ask(&format!("shmat {id} 0 0")), "0");
    assert_eq!(player.ask("poke 0 5"), "5");
    assert_eq!(player.ask(&format!("rm 0 {id}")), "0");
    assert_eq!(player.ask("shmdt"), "0");
    assert_eq!(player.ask(&format!("nattch {id}")), "EINVAL");
    let queue = player.ask(&format!("msgget {key} 01600"));
    assert_eq!(player.ask(&format!("msgsnd {queue} 3 20 0")), "0");
    assert_eq!(player.ask(&format!("rm 2 {queue}")), "0");
    assert_eq!(player.ask(&format!("rm 1 {set}")), "0");
}

/// On whichever node: at first the keys are lent to it, then nothing is said.
#[test]
fn who_stays_on_one_node_sends_no_datagram() {
    const ROUNDS: u64 = 60;
    let Some(stage) = Stage::set(3) else {
        return;
    };
    for (node, key) in [(0, 21), (1, 0), (1, 21), (2, 0x2100_1234), (0, 22)] {
        let mut player = stage.scripted_node(node);
        round(&mut player, key);
        at_best(|| {
            let begun = Instant::now();
            let before = stage.cluster.counter(node, "datagrams_out");
            for _ in 0..ROUNDS {
                round(&mut player, key);
            }
            let sent = stage.cluster.counter(node, "datagrams_out") - before;
            // Signs of life go on: two a second from each member, and the answers.
            let signs = 4 + begun.elapsed().as_millis() as u64 / 200;
            let what = format!("node {node}, key {key}: {sent} datagrams, {signs} signs of life");
            expect(signs < ROUNDS / 2 && sent <= signs, what)
        });
        player.end();
    }
}

#[test]
fn one_of_all_who_want_a_new_object_gets_it() {
    let Some(stage) = Stage::set(3) else {
        return;
    };
    let mut players = [0, 1, 2].map(|node| stage.scripted_node(node));
    for turn in 0..60 {
        for player in &mut players {
            player.tell("semget 31 1 03600");
        }
        let heard = players.each_mut().map(|player| player.hear());
        let made: Vec<_> = heard.iter().filter(|word| *word != "EEXIST").collect();
        let [set] = made[..] else {
            panic!("turn {turn}: {heard:?}");
        };
        for player in &mut players {
            assert_eq!(&player.ask("semget 31 1 0"), set);
        }
        // Whichever process removes it, the key is free for all at once.
        let remover = turn % 3;
        assert_eq!(players[remover].ask(&format!("rm 1 {set}")), "0");
        assert_eq!(players[(turn / 3) % 3].ask("semget 31 1 0"), "ENOENT");
    }
}

#[test]
fn a_key_is_used_again_at_once_wherever_its_object_was() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let mut players = [0, 1].map(|node| stage.scripted_node(node));
    let mut last = String::new();
    for turn in 0..40 {
        let (maker, other) = (turn % 2, (turn / 2) % 2);
        let id = players[maker].ask("shmget 33 4096 03600");
        assert!(id.parse::<i32>().is_ok() && id != last, "turn {turn}: {id}");
        assert_eq!(players[1 - maker].ask("shmget 33 0 0"), id);
        assert_eq!(players[other].ask(&format!("rm 0 {id}")), "0");
        last = id;
    }
}

/// Its sleepers hear of it, and the key of what it had is free.
#[test]
fn what_is_at_home_on_a_node_goes_with_it() {
    let Some(stage) = Stage::set(3) else {
        return;
    };
    let (mut one, mut two, mut three) = (
        stage.scripted_node(0),
        stage.scripted_node(1),
        stage.scripted_node(2),
    );
    let set = three.ask("semget 41 1 03600");
    let memory = three.ask("shmget 41 4096 03600");
    assert_eq!(two.ask(&format!("shmat {memory} 0 0")), "0");
    assert_eq!(two.ask("poke 0 7"), "7");
    let mut sleepers = [stage.scripted_node(0), stage.scripted_node(1)];
    for sleeper in &mut sleepers {
        sleeper.tell(&format!("semop {set} -1 0:-1:0"));
    }
    eventually("they wait", || {
        one.ask(&format!("semctl {set} 0 14")) == "2"
    });
    stage.cluster.kill(2).unwrap();
    for sleeper in &sleepers {
        sleeper.expect("EIDRM");
    }
    assert_eq!(two.ask("peek 0"), "signal BUS", "lost, and said so");
    assert_eq!(one.ask(&format!("semop {set} -1 0:-1:0")), "EINVAL");
    let again = two.ask("semget 41 1 03600");
    assert!(again.parse::<i32>().is_ok() && again != set, "{again}");
    assert_eq!(one.ask("semget 41 1 0"), again);
    assert_eq!(one.ask("shmget 41 1 0"), "ENOENT");
}

/// `pagemesh leave` names the objects that end with the node; the next process makes them anew.
#[test]
fn a_node_that_leaves_says_which_objects_go() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let (mut one, mut two) = (stage.scripted_node(0), stage.scripted_node(1));
    let set = two.ask("semget 61 1 03600");
    let kept = one.ask("semget 62 1 03600");
    let mut sleeper = stage.scripted_node(0);
    sleeper.tell(&format!("semop {set} -1 0:-1:0"));
    eventually("it waits", || two.ask(&format!("semctl {set} 0 14")) == "1");
    let program = Path::new(env!("CARGO_BIN_EXE_pagemesh-under-test"));
    let mut leave = stage.cluster.node(1).command(program);
    let output = leave.arg("leave").output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let gone = format!("set of semaphores {set} (key 0x0000003d)");
    assert!(words.contains(&gone) && !words.contains(&kept), "{words}");
    sleeper.expect("EIDRM");
    let again = one.ask("semget 61 1 03600");
    assert!(again.parse::<i32>().is_ok() && again != set, "{again}");
    assert_eq!(one.ask(&format!("semctl {kept} 0 12")), "0");
}

/// A node is killed while it makes, removes, lends and gives back: whatever it was
/// about, the others go on with its keys.
#[test]
fn a_maker_that_dies_leaves_no_key_behind() {
    const KEYS: [u32; 3] = [51, 52, 53];
    for delay in [0, 7, 23, 61] {
        let Some(stage) = Stage::set(3) else {
            return;
        };
        let mut doomed = stage.scripted_node(2);
        let mut others = [stage.scripted_node(0), stage.scripted_node(1)];
        let storm = |player: &mut Player| {
            for key in KEYS {
                let set = player.ask(&format!("semget {key} 1 01600"));
                player.ask(&format!("rm 1 {set}"));
            }
        };
        let killed = Instant::now() + Duration::from_millis(40 + delay);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while Instant::now() < killed {
                    storm(&mut doomed);
                }
                doomed.tell("semget 51 1 01600");
            });
            for other in &mut others {
                scope.spawn(|| {
                    while Instant::now() < killed {
                        storm(other);
                    }
                });
            }
        });
        stage.cluster.kill(2).unwrap();
        let [one, two] = &mut others;
        for key in KEYS {
            // Calls for keys of the dead node wait until it is known to be dead.
            let set = one.ask(&format!("semget {key} 1 01600"));
            assert_eq!(two.ask(&format!("semget {key} 1 01600")), set, "{key}");
            assert_eq!(two.ask(&format!("semctl {set} 0 12")), "0");
            assert_eq!(two.ask(&format!("rm 1 {set}")), "0");
            assert_eq!(one.ask(&format!("semget {key} 1 0")), "ENOENT");
        }
    }
}
