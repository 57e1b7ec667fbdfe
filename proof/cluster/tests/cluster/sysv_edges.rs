//! Rare uses of System V calls: walks through all objects, given addresses, signals in the middle
//! of each call, removal while all use the object, limits that change, and features that cannot
//! work across hosts.

use crate::replacement::lasting;
use crate::support::{A_WHILE, Player, eventually};
use crate::sysv::{Stage, interrupted};
use pagemesh_cli::sandbox::Plan;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

/// `SHM_RND`, `SHM_REMAP`, `SHM_EXEC`, `SHM_RDONLY`.
const RND: i32 = 0o20000;
const REMAP: i32 = 0o40000;
const EXEC: i32 = 0o100_000;
const READ_ONLY: i32 = 0o10000;

#[test]
fn walks_by_index_find_every_object_from_every_node() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let mut players = [stage.scripted_node(0), stage.scripted_node(1)];
    let gets = [
        ["shmget 41 5000 01600", "shmget 42 1 01600"],
        ["semget 41 3 01600", "semget 42 1 01600"],
        ["msgget 41 01600", "msgget 42 01600"],
    ];
    for (family, gets) in gets.iter().enumerate() {
        let made = players.iter_mut().zip(gets).map(|(player, get)| {
            let id = player.ask(get);
            id.parse::<i64>().unwrap_or_else(|_| panic!("{get}: {id}"))
        });
        let sum: i64 = made.sum();
        for player in &mut players {
            let found = player.ask(&format!("walk {family}"));
            assert_eq!(found, format!("2 objects, numbers {sum}"), "{family}");
        }
    }
}

/// `SHM_STAT` and its kin take the number of an object, too, as the kernel does.
#[test]
fn objects_are_found_by_their_number_where_a_place_is_asked_for() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let mut players = [stage.scripted_node(0), stage.scripted_node(1)];
    for (family, get) in ["shmget 0 4096 01600", "semget 0 1 01600", "msgget 0 01600"]
        .into_iter()
        .enumerate()
    {
        for maker in 0..2 {
            let id = players[maker].ask(get);
            for player in &mut players {
                for any in 0..2 {
                    let found = player.ask(&format!("stat_of {family} {id} {any}"));
                    assert_eq!(found, id, "{get}");
                }
            }
            assert_eq!(players[0].ask(&format!("rm {family} {id}")), "0");
            let gone = players[maker].ask(&format!("stat_of {family} {id} 1"));
            assert_eq!(gone, "EINVAL");
        }
    }
}

/// A segment larger than any memory is refused as the kernel refuses it, unless there is such a
/// segment.
#[test]
fn segments_larger_than_memory_are_refused() {
    const PAGES: i32 = i32::MAX;
    let Some(stage) = Stage::set(1) else {
        return;
    };
    let program = stage.program("sysv_scripted_node");
    let kernel = Player::run(Command::new(&program), "the kernel's scripted node");
    kernel.expect("ready");
    let mut players = [kernel, stage.scripted_node(0)];
    let [kernel, ours] = players.each_mut().map(|player| {
        let id = player.ask("shmget 0x5e9a7 4096 01600");
        let orders = [
            format!("shmget_pages 0 {PAGES} 01600"),
            format!("shmget_pages 0x5e9a8 {PAGES} 01600"),
            format!("shmget_pages 0x5e9a8 {PAGES} 0600"),
            format!("shmget_pages 0x5e9a7 {PAGES} 01600"),
            format!("shmget_pages 0x5e9a7 {PAGES} 03600"),
            format!("rm 0 {id}"),
        ];
        orders.map(|order| player.ask(&order))
    });
    assert_eq!(kernel, ours);
}

/// `ipcs(1)` shows the objects of the cluster, wherever they are.
#[test]
fn ipcs_shows_the_objects_of_the_cluster() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    if !Path::new("/usr/bin/ipcs").exists() {
        eprintln!("skipped: there is no ipcs(1)");
        return;
    }
    let mut players = [stage.scripted_node(0), stage.scripted_node(1)];
    let gets = [
        ("-m", "shmget 0x1235813 5000 01640"),
        ("-s", "semget 0x1235813 3 01640"),
        ("-q", "msgget 0x1235813 01640"),
    ];
    for (option, get) in gets {
        let id = players[1].ask(get);
        for node in 0..2 {
            let mut ipcs = stage.command(node, Path::new("/usr/bin/ipcs"));
            let output = ipcs.arg(option).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let line = text.lines().find(|line| line.contains("0x01235813"));
            let line = line.unwrap_or_else(|| panic!("{text}"));
            let words: Vec<_> = line.split_whitespace().collect();
            assert_eq!((words[1], words[3]), (&id[..], "640"), "{line}");
        }
    }
}

/// A time limit holds while the daemon is dead, and nothing has happened then: what the next daemon
/// would have given is given back.
#[test]
fn time_limits_hold_without_a_daemon() {
    let Some(stage) = Stage::of(lasting(2)) else {
        return;
    };
    let (mut one, mut two, set) = stage.pair(0);
    assert_eq!(two.ask(&format!("semop {set} 10 0:-1:0")), "EAGAIN");
    for _ in 0..10 {
        assert_eq!(two.ask(&format!("semctl {set} 0 12")), "0");
    }
    two.tell(&format!("semop {set} 1500 0:-1:0"));
    eventually("it waits", || one.ask(&format!("semctl {set} 0 14")) == "1");
    stage.cluster.kill(1).unwrap();
    two.expect("EAGAIN");
    stage.cluster.restart(1).unwrap();
    assert_eq!(one.ask(&format!("semop {set} -1 0:1:0")), "0");
    assert_eq!(two.ask(&format!("semctl {set} 0 12")), "1");
    assert_eq!(two.ask(&format!("semop {set} 10000 0:-1:0")), "0");
    assert_eq!(one.ask(&format!("semctl {set} 0 12")), "0");
}

#[test]
fn segments_come_where_they_are_requested() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let (mut one, mut two) = (stage.scripted_node(0), stage.scripted_node(1));
    let id = one.ask("shmget 43 4096 01700");
    let other = two.ask("shmget 44 4096 01700");
    assert_eq!(two.ask(&format!("shmat_at {id} 0 5 7")), "EINVAL");
    assert_eq!(two.ask(&format!("shmat_at {id} {RND} 5 7")), "5");
    assert_eq!(two.ask("poke 0 11"), "11");
    assert_eq!(two.ask(&format!("shmat_at {other} 0 5 0")), "EINVAL");
    assert_eq!(two.ask(&format!("shmat_at {other} {REMAP} 5 0")), "5");
    assert_eq!(two.ask("peek 0"), "0", "the other one is there now");
    assert_eq!(one.ask(&format!("nattch {id}")), "0");
    assert_eq!(one.ask(&format!("nattch {other}")), "1");
    assert_eq!(one.ask(&format!("shmat {id} 0 0")), "0");
    assert_eq!(one.ask("peek 0"), "11");
    // Code in a segment runs where the attachment is executable, and nowhere else.
    assert_eq!(one.ask("execute 1"), "signal SEGV");
    assert_eq!(two.ask("shmdt"), "0");
    let flags = EXEC | READ_ONLY;
    assert_eq!(two.ask(&format!("shmat_at {id} {flags} 9 0")), "9");
    assert_eq!(two.ask("execute 0"), "0", "written on the other node");
}

/// The rest of an attachment when `SHM_REMAP` puts another over a part of it, as in the kernel: the
/// same orders end the same there.
#[test]
fn a_segment_is_put_over_a_part_of_another() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let program = stage.program("sysv_scripted_node");
    let kernel = Player::run(Command::new(&program), "the kernel's scripted node");
    kernel.expect("ready");
    let mut players = [kernel, stage.scripted_node(1)];
    let heard = players.each_mut().map(|player| {
        let mut heard = Vec::new();
        let [large, small] =
            [16384, 4096].map(|size| player.ask(&format!("shmget 0 {size} 01600")));
        let mut order = |order: &str| {
            let named = order.replace("LARGE", &large).replace("SMALL", &small);
            heard.push(format!("{order}: {}", player.ask(&named)));
        };
        order("shmat_at LARGE 0 5 0");
        for page in 5..9 {
            order(&format!("turn {page}"));
            order(&format!("poke 0 {page}"));
        }
        let look = |order: &mut dyn FnMut(&str)| {
            for page in 4..10 {
                order(&format!("turn {page}"));
                order("peek 0");
            }
            order("nattch LARGE");
            order("nattch SMALL");
        };
        for page in [6, 5] {
            order(&format!("shmat_at SMALL {REMAP} {page} 0"));
            look(&mut order);
            order(&format!("turn {page}"));
            order("poke 0 77");
        }
        // Both began at page 5; the small one, then what is left of the large one.
        for page in [5, 5, 5, 6, 6] {
            order(&format!("shmdt_at {page}"));
            look(&mut order);
        }
        order("shmat_at LARGE 0 5 0");
        look(&mut order);
        // All of it goes, and more.
        order(&format!("shmat_at LARGE {REMAP} 4 0"));
        look(&mut order);
        order("shmdt_at 4");
        order("shmdt_at 5");
        look(&mut order);
        order("rm 0 LARGE");
        order("rm 0 SMALL");
        heard
    });
    let [kernel, ours] = heard;
    assert!(kernel.iter().any(|line| line == "peek 0: 77"), "{kernel:?}");
    assert_eq!(kernel, ours);
    // The part that was cut off is still shared with other processes.
    let [mut one, mut two] = [stage.scripted_node(0), stage.scripted_node(1)];
    let [large, small] = [("45", 16384), ("46", 4096)]
        .map(|(key, size)| one.ask(&format!("shmget {key} {size} 01600")));
    assert_eq!(two.ask(&format!("shmat_at {large} 0 5 0")), "5");
    assert_eq!(two.ask(&format!("shmat_at {small} {REMAP} 6 0")), "6");
    assert_eq!(one.ask(&format!("shmat_at {large} 0 5 0")), "5");
    for (page, seen) in [(5, "3"), (6, "0"), (7, "3"), (8, "3")] {
        assert_eq!(one.ask(&format!("turn {page}")), "0");
        assert_eq!(one.ask("poke 9 3"), "3");
        assert_eq!(two.ask(&format!("turn {page}")), "0");
        assert_eq!(two.ask("peek 9"), seen, "{page}");
    }
}

#[test]
fn semaphores_are_counted_and_awaited_at_zero_across_nodes() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let (mut one, mut two, set) = stage.pair(2);
    two.tell(&format!("semop {set} -1 0:0:0"));
    eventually("it waits for zero", || {
        one.ask(&format!("semctl {set} 0 15")) == "1"
    });
    assert_eq!(one.ask(&format!("semctl {set} 0 14")), "0");
    assert_eq!(one.ask(&format!("semop {set} -1 0:-1:0")), "0");
    two.expect_silence();
    let me = one.id().to_string();
    assert_eq!(one.ask(&format!("semctl {set} 0 11")), me);
    assert_eq!(one.ask(&format!("semop {set} -1 0:-1:0")), "0");
    two.expect("0");
    assert_eq!(one.ask(&format!("semctl {set} 0 15")), "0");
    let other = two.id().to_string();
    assert_eq!(one.ask(&format!("semctl {set} 0 11")), other);
    // To add and to wait for zero at once is never possible: it waits in vain, in time.
    assert_eq!(two.ask(&format!("semop {set} 60 0:1:0 0:0:0")), "EAGAIN");
    assert_eq!(one.ask(&format!("semctl {set} 0 12")), "0", "nothing of it");
}

/// A signal every millisecond whose handler makes a call of its own, and meanwhile each
/// of the twelve calls again and again, on both nodes.
#[test]
fn signals_harm_no_call_in_the_middle() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let mut players = [stage.scripted_node(0), stage.scripted_node(1)];
    let counted = players[0].ask("semget 45 1 01600");
    for player in &mut players {
        assert_eq!(player.ask(&format!("alarm 1 0 {counted}")), "0");
    }
    players[0].tell("each_call 1000 150 26");
    players[1].tell("each_call 2000 150 26");
    for player in &players {
        player.expect("0");
    }
    let mut signals = 0;
    for player in &mut players {
        assert_eq!(player.ask("alarm 0 0"), "0");
        signals += player.ask("signals").parse::<i32>().unwrap();
    }
    assert!(signals > 50, "{signals}");
    let calls = players[0].ask(&format!("semctl {counted} 0 12"));
    assert_eq!(calls, signals.to_string());
}

#[test]
fn who_waits_for_room_is_interrupted() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let (mut one, mut two) = (stage.scripted_node(0), stage.scripted_node(1));
    let queue = one.ask("msgget 46 01600");
    const NO_WAIT: i32 = 0o4000;
    let mut sent = 0;
    while two.ask(&format!("msgsnd {queue} 1 4000 {NO_WAIT}")) == "0" {
        sent += 1;
    }
    assert!(sent > 1, "{sent}");
    for restart in [0, 1] {
        assert_eq!(two.ask(&format!("alarm 0 {restart}")), "0");
        let send = format!("msgsnd {queue} 1 4000 0");
        assert_eq!(interrupted(&mut two, &send), "EINTR");
    }
    // Nothing had happened: there is room for one again, and for no more.
    assert_eq!(one.ask(&format!("msgrcv {queue} 4000 0 0")), "14000");
    let send = format!("msgsnd {queue} 1 4000 {NO_WAIT}");
    assert_eq!([two.ask(&send), two.ask(&send)], ["0", "EAGAIN"]);
}

/// All processes notice it, whatever they did to the object at that moment.
#[test]
fn what_all_use_is_removed() {
    let Some(stage) = Stage::set(3) else {
        return;
    };
    let mut players: Vec<Player> = (0..6).map(|rank| stage.scripted_node(rank % 3)).collect();
    let gets = [
        "shmget 47 4096 01600",
        "semget 47 1 01600",
        "msgget 47 01600",
    ];
    for round in 0..8 {
        for (family, get) in gets.iter().enumerate() {
            let id = players[round % 6].ask(get);
            for (rank, player) in players.iter_mut().enumerate().skip(1) {
                player.tell(&format!("use_up {family} {id} {rank}"));
            }
            std::thread::sleep(A_WHILE / 10);
            assert_eq!(players[0].ask(&format!("rm {family} {id}")), "0");
            for player in &players[1..] {
                let why = player.hear();
                assert!(why == "EIDRM" || why == "EINVAL", "{family}: {why}");
            }
            let without = get.replace("01600", "0");
            assert_eq!(players[1].ask(&without), "ENOENT");
        }
    }
}

/// Limits are those of the kernel at the time of the call: daemons with objects of their own (an
/// IPC namespace), where the test changes the limits.
#[test]
fn limits_are_those_of_the_moment_of_the_call() {
    let program = std::env::temp_dir().join(format!("pagemesh-apart-{}", std::process::id()));
    let apart = format!(
        "#!/bin/sh\nexec unshare --ipc {} \"$@\"\n",
        env!("CARGO_BIN_EXE_pagemesh-under-test")
    );
    // Another process makes the program: a child that another thread starts while this process has it
    // open for storing would have it open, too, and nobody could run it.
    let text = program.with_extension("text");
    std::fs::write(&text, apart).unwrap();
    let mut install = Command::new("install");
    let install = install.args(["-m", "755"]).args([&text, &program]);
    assert!(install.status().unwrap().success());
    std::fs::remove_file(text).unwrap();
    let apart = Command::new("unshare").args(["--ipc", "true"]).status();
    if !apart.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no namespace of IPC objects may be made here");
        return;
    }
    let stage = Stage::with_program(Plan::new(2), program.clone());
    let Some(stage) = stage else {
        return;
    };
    let change = |node: usize, name: &str, value: &str| {
        let daemon = stage.cluster.node(node).pid().to_string();
        let words = format!("echo {value} > /proc/sys/kernel/{name}");
        let mut enter = Command::new("nsenter");
        let enter = enter.args(["--ipc", "--target", &daemon, "sh", "-c", &words]);
        assert!(enter.status().unwrap().success(), "{words}");
    };
    let (mut one, mut two) = (stage.scripted_node(0), stage.scripted_node(1));
    change(1, "shmmax", "8192");
    assert_eq!(two.ask("shmget 51 8193 01600"), "EINVAL");
    assert_ne!(one.ask("shmget 51 8193 01600"), "EINVAL", "another host");
    change(1, "sem", "2 32000 500 32000");
    assert_eq!(two.ask("semget 51 3 01600"), "EINVAL");
    change(1, "sem", "3 32000 2 32000");
    let set = two.ask("semget 51 3 01600");
    let ops = "0:1:0 1:1:0 2:1:0";
    assert_eq!(two.ask(&format!("semop {set} -1 {ops}")), "E2BIG");
    assert_eq!(one.ask(&format!("semop {set} -1 {ops}")), "0");
    let queue = two.ask("msgget 51 01600");
    change(1, "msgmax", "10");
    assert_eq!(two.ask(&format!("msgsnd {queue} 1 11 0")), "EINVAL");
    change(1, "msgmax", "11");
    assert_eq!(two.ask(&format!("msgsnd {queue} 1 11 0")), "0");
    change(1, "msgmni", "1");
    assert_eq!(two.ask("msgget 52 01600"), "ENOSPC");
    change(1, "msgmni", "2");
    assert_ne!(two.ask("msgget 52 01600"), "ENOSPC");
    std::fs::remove_file(program).unwrap();
}

/// The mutex works among the processes of this node only, which is said once.
#[test]
fn a_mutex_in_a_segment_is_warned_of() {
    let Some(stage) = Stage::set(1) else {
        return;
    };
    for word in ["mutex", "futex"] {
        let errors = stage.cluster.directory().join(format!("{word}.errors"));
        let program = stage.program("sysv_scripted_node");
        let mut command = stage.command(0, &program);
        command.stderr(File::create(&errors).unwrap());
        let mut player = Player::run(command, word);
        player.expect("ready");
        let id = player.ask("shmget 0 4096 01600");
        assert_eq!(player.ask(&format!("shmat {id} 0 0")), "0");
        for _ in 0..3 {
            assert_eq!(player.ask(word), "0");
        }
        let said = std::fs::read_to_string(&errors).unwrap();
        let warned = said.matches("lies in a System V segment").count();
        assert_eq!(warned, 1, "{word}: {said}");
        assert!(said.contains("use System V semaphores"), "{said}");
    }
}

#[test]
fn a_bad_access_kills_by_the_right_signal() {
    let Some(stage) = Stage::set(2) else {
        return;
    };
    let (mut one, mut two) = (stage.scripted_node(0), stage.scripted_node(1));
    let id = one.ask("shmget 53 4096 01600");
    assert_eq!(two.ask(&format!("shmat {id} {READ_ONLY} 0")), "0");
    two.tell("crash 0");
    assert_eq!(two.end().signal(), Some(libc::SIGSEGV));
    // A page that only a dead node had.
    let mut lost = stage.scripted_node(1);
    let private = lost.ask("shmget 0 4096 01600");
    assert_eq!(lost.ask(&format!("shmat {private} 0 0")), "0");
    assert_eq!(lost.ask("poke 0 1"), "1");
    assert_eq!(one.ask(&format!("shmat {private} 0 0")), "0");
    stage.cluster.kill(1).unwrap();
    eventually("the loss is known", || {
        one.ask(&format!("nattch {private}")) == "EINVAL"
    });
    one.tell("crash 0");
    assert_eq!(one.end().signal(), Some(libc::SIGBUS));
}
