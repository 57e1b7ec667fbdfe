//! Programs that unmap an attached segment without shmdt(2), or map something else over it: it is
//! attached no more, and what is there instead is the program's own, also in its children.

use crate::support::Player;
use crate::sysv::Stage;
use std::process::Command;
use std::time::{Duration, Instant};

/// How the scripted node replaces memory: by `munmap`, by the bare system call, by `mmap` and `mremap`
/// over it; `SHRINK` by `mremap`, `REUSE` by the bare system call and a mapping into the hole.
const MUNMAP: u8 = 0;
const BARE: u8 = 1;
const MMAP: u8 = 2;
const MREMAP: u8 = 3;
const SHRINK: u8 = 4;
const REUSE: u8 = 5;

const A_MOMENT: Duration = Duration::from_millis(10);
const A_LONG_TIME: Duration = Duration::from_secs(5);

/// Gives orders to a player and notes what came of them.
struct Orders<'p> {
    player: &'p mut Player,
    id: String,
    heard: Vec<String>,
}

impl Orders<'_> {
    fn give(&mut self, order: &str) {
        let answer = self.player.ask(&order.replace("ID", &self.id));
        self.heard.push(format!("{order}: {answer}"));
    }

    /// The value of each page, and how often the segment is attached.
    fn look(&mut self) {
        for page in 4..10 {
            self.give(&format!("turn {page}"));
            self.give("peek 0");
        }
        self.give("nattch ID");
    }

    /// The same in a child, and what is attached when that has ended.
    fn look_in_child(&mut self) {
        let attached = self.attached();
        self.give("fork");
        self.look();
        // Its parent answers.
        self.give("exit 3");
        // A daemon hears of the end of a process from the kernel, after its parent.
        let end = Instant::now() + A_LONG_TIME;
        while self.attached() != attached && Instant::now() < end {
            std::thread::sleep(A_MOMENT);
        }
        self.give("nattch ID");
    }

    fn attached(&mut self) -> String {
        self.player.ask(&format!("nattch {}", self.id))
    }

    /// Attaches four pages with a byte in each.
    fn attach(&mut self) {
        self.give("shmat_at ID 0 5 0");
        for page in 5..9 {
            self.give(&format!("turn {page}"));
            self.give(&format!("poke 0 {page}"));
        }
    }
}

/// The same orders end the same with the kernel's own segments. After each the memory is looked at,
/// here and in a forked child.
#[test]
fn what_is_unmapped_is_attached_no_more_and_stays_the_programs_own() {
    let Some(stage) = Stage::set(1) else {
        return;
    };
    let program = stage.program("sysv_scripted_node");
    let kernel = Player::run(Command::new(&program), "the kernel's scripted node");
    kernel.expect("ready");
    let mut players = [kernel, stage.scripted_node(0)];
    let [kernel, ours] = players.each_mut().map(|player| {
        let id = player.ask("shmget 0 16384 01600");
        let heard = Vec::new();
        let mut orders = Orders { player, id, heard };
        for (how, page, pages) in [
            (MUNMAP, 5, 4),
            (BARE, 5, 4),
            (MMAP, 5, 4),
            (MREMAP, 5, 4),
            (REUSE, 5, 4),
            (MUNMAP, 4, 6),
            (REUSE, 4, 6),
            (MUNMAP, 5, 1),
            (MUNMAP, 6, 1),
            (BARE, 6, 2),
            (MMAP, 7, 2),
            (MREMAP, 8, 1),
            (REUSE, 6, 1),
        ] {
            orders.attach();
            orders.give(&format!("replace {how} {page} {pages} 77"));
            orders.look_in_child();
            orders.look();
            orders.give("shmdt_at 5");
            orders.look();
            orders.give(&format!("replace {BARE} 4 6 0"));
        }
        orders.attach();
        orders.give(&format!("replace {SHRINK} 5 4 3"));
        orders.look_in_child();
        orders.give("shmdt_at 5");
        orders.give("rm 0 ID");
        orders.heard
    });
    for (kernel, ours) in kernel.iter().zip(&ours) {
        assert_eq!(kernel, ours);
    }
    assert_eq!(kernel.len(), ours.len());
    assert!(kernel.iter().any(|line| line == "peek 0: 77"), "{kernel:?}");
}

/// A move to a place where faults would not be served is refused, and has no effect.
#[test]
fn segments_are_not_moved() {
    let Some(stage) = Stage::set(1) else {
        return;
    };
    let mut player = stage.scripted_node(0);
    let id = player.ask("shmget 0 16384 01600");
    assert_eq!(player.ask(&format!("shmat_at {id} 0 5 0")), "5");
    assert_eq!(player.ask("poke 0 9"), "9");
    assert_eq!(player.ask(&format!("replace {SHRINK} 5 4 5")), "EINVAL");
    assert_eq!(player.ask("peek 0"), "9");
    assert_eq!(player.ask(&format!("nattch {id}")), "1");
}
