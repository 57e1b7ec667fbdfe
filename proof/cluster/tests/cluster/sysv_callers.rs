//! In whose name System V calls are made that go through memory shared with the daemon, and
//! by programs that become another user.

use crate::support::Player;
use crate::sysv::Stage;

/// A stage, if this test may become another user there.
fn of_root() -> Option<Stage> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return None;
    }
    Stage::set(1)
}

/// Enough calls for a request slot, and some through it.
fn raise(player: &mut Player, set: &str, times: u64) {
    for _ in 0..times {
        assert_eq!(player.ask(&format!("semop {set} -1 0:1:0")), "0");
    }
}

#[test]
fn programs_that_become_another_user_reach_the_daemon() {
    let Some(stage) = of_root() else {
        return;
    };
    let mut root = stage.scripted_node(0);
    let set = root.ask("semget 61 1 01600");
    let open = root.ask("semget 62 1 01666");
    let mut other = stage.scripted_node(0);
    assert_eq!(other.ask("setuid 1234"), "0");
    // Its first call: it connects as that user.
    assert_eq!(other.ask(&format!("semop {set} -1 0:1:0")), "EACCES");
    raise(&mut other, &open, 10);
    assert_eq!(root.ask(&format!("semctl {open} 0 12")), "10");
    let own = other.ask("shmget 0 4096 01600");
    assert_eq!(other.ask(&format!("shmat {own} 0 0")), "0");
    assert_eq!(other.ask("poke 0 5"), "5");
}

#[test]
fn the_request_slot_of_a_process_lends_it_no_rights_that_it_gave_up() {
    let Some(stage) = of_root() else {
        return;
    };
    let mut one = stage.scripted_node(0);
    let set = one.ask("semget 63 1 01600");
    raise(&mut one, &set, 20);
    assert_eq!(one.ask("setuid 1234"), "0");
    for _ in 0..10 {
        assert_eq!(one.ask(&format!("semop {set} -1 0:1:0")), "EACCES");
    }
    let own = one.ask("semget 64 1 01600");
    raise(&mut one, &own, 20);
}

#[test]
fn children_have_a_request_slot_of_their_own() {
    let Some(stage) = Stage::set(1) else {
        return;
    };
    let mut player = stage.scripted_node(0);
    let set = player.ask("semget 65 1 01600");
    raise(&mut player, &set, 20);
    assert_eq!(player.ask("fork"), "0");
    raise(&mut player, &set, 20);
    let child = player.ask(&format!("semctl {set} 0 11"));
    assert_ne!(child, player.id().to_string(), "its own process did that");
    assert_eq!(player.ask("exit 0"), "0");
    raise(&mut player, &set, 20);
    assert_eq!(
        player.ask(&format!("semctl {set} 0 11")),
        player.id().to_string()
    );
    assert_eq!(player.ask(&format!("semctl {set} 0 12")), "60");
}

/// Messages of all lengths, short ones through the request slot, long ones through the socket, in the
/// order in which they were sent.
#[test]
fn messages_of_all_lengths_keep_their_order() {
    let Some(stage) = Stage::set(1) else {
        return;
    };
    let mut player = stage.scripted_node(0);
    let queue = player.ask("msgget 66 01600");
    let lengths = [0, 1, 100, 140, 150, 160, 170, 180, 190, 200, 300, 3000];
    for round in 0..3 {
        for length in lengths {
            let send = format!("msgsnd {queue} {} {length} 0", round + 1);
            assert_eq!(player.ask(&send), "0", "{length}");
        }
        for length in lengths {
            let got = player.ask(&format!("msgrcv {queue} 9000 0 0"));
            assert_eq!(got, ((round + 1) * 10000 + length).to_string());
        }
    }
}
