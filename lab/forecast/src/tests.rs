use super::*;
use core::time::Duration;
use pagemesh_wire::peer::Window;

const MICRO: Duration = Duration::from_micros(1);

/// About the measurements of this project's first machine.
fn steps() -> Steps {
    Steps {
        ask: MICRO * 5,
        request: MICRO * 9,
        transfer: MICRO * 5,
        install: Duration::ZERO,
        total: MICRO * 25,
        short: MICRO * 4,
        page: MICRO * 5,
    }
}

fn near(one: Duration, other: Duration) -> bool {
    one.abs_diff(other) < Duration::from_nanos(50)
}

#[test]
fn a_fault_takes_what_was_measured() {
    let costs = Costs::of(&steps());
    let took = fault(&costs).unwrap();
    assert!(near(took, steps().total), "{took:?}");
}

#[test]
fn nonsense_is_no_panic() {
    let zero = Steps {
        request: Duration::ZERO,
        total: Duration::ZERO,
        ..steps()
    };
    assert!(fault(&Costs::of(&zero)).is_ok());
    // An answer that is always late is an end all the same, or a word of it.
    let mut never = Costs::of(&steps());
    never.rate = Some(1);
    assert!(fault(&never).is_err());
}

#[test]
fn a_slow_line_takes_its_time() {
    let mut costs = Costs::of(&steps());
    (costs.rate, costs.header_bytes, costs.packet_bytes) = (Some(10_000_000), 54, 1024);
    // Request, page, four headers and one: the line carries 1.25 bytes a microsecond.
    let full = fault(&costs).unwrap();
    let bytes = 40 + 54 + 40 + 4096 + 4 * 54;
    let expected = steps().total + Duration::from_nanos(bytes * 800);
    assert!(near(full, expected), "{full:?} {expected:?}");
    costs.page_bytes = 1024;
    let packed = fault(&costs).unwrap();
    let saved = Duration::from_nanos((3072 + 3 * 54) * 800);
    assert!(near(full - packed, saved), "{packed:?}");
}

#[test]
fn an_upgrade_moves_no_page_and_more_readers_take_longer() {
    let costs = Costs::of(&steps());
    assert!(upgrade(&costs).unwrap() < fault(&costs).unwrap());
    let all: Vec<_> = (1..=7)
        .map(|readers| invalidation(&costs, readers).unwrap())
        .collect();
    assert!(all.is_sorted(), "{all:?}");
    assert!(all[6] > all[0] + MICRO * 12, "{all:?}");
}

#[test]
fn a_turn_of_battleship_is_a_read_fault_an_upgrade_and_a_page() {
    let game = Battleship {
        turns: 100,
        look: MICRO,
        window: Window::Nanos(0),
    };
    let played = battleship(&Costs::of(&steps()), &game).unwrap();
    for count in [played.read_faults, played.upgrades, played.pages] {
        assert!((0.98..1.03).contains(&count), "{played:?}");
    }
    assert!(played.took < MICRO * 100 * 2 * 60, "{played:?}");
    // Δ is waited for, twice in a turn.
    let window = Window::Nanos(1_000_000);
    let slow = battleship(&Costs::of(&steps()), &Battleship { window, ..game }).unwrap();
    assert!(slow.took > MICRO * 100 * 2 * 1000, "{slow:?}");
}

#[test]
fn auto_learns_that_a_store_follows_the_load() {
    let game = Battleship {
        turns: 300,
        look: MICRO,
        window: Window::Auto,
    };
    // Also where a daemon waits for its processor.
    for preempt in [0, 20] {
        let mut costs = Costs::of(&steps());
        costs.preempt = MICRO * preempt;
        let auto = battleship(&costs, &game).unwrap();
        let window = Window::Nanos(0);
        let zero = battleship(&costs, &Battleship { window, ..game }).unwrap();
        assert!(auto.took * 10 < zero.took * 8, "{auto:?} {zero:?}");
        assert!(auto.upgrades < 0.1 && auto.pages < 1.1, "{auto:?}");
    }
}

#[test]
fn many_multiply_faster_until_there_is_too_little_to_multiply() {
    let of = |n: u32, sites| {
        let matrix = Matrix {
            n,
            padding: true,
            sites,
            alone: Duration::from_nanos(u64::from(n).pow(3)),
            nap: MICRO * 270,
            window: Window::Nanos(0),
        };
        super::matrix(&Costs::of(&steps()), &matrix).unwrap()
    };
    let (two, seven) = (of(480, 2), of(480, 7));
    assert!(two > Duration::from_nanos(480_u64.pow(3)));
    assert!(seven * 5 < two * 2, "{two:?} {seven:?}");
    // Padding makes nothing slower where the program needs none.
    assert!(of(60, 7) * 2 > of(60, 2));
}

/// A program that pauses finds daemons asleep; a page that is taken away takes its owner longer
/// than one that is shared.
#[test]
fn daemons_are_roused_and_pages_are_taken_away() {
    let awake = Costs::of(&steps());
    let sleepy = Costs {
        rouse: MICRO * 5,
        ..awake
    };
    // Both daemons sleep, for there is nothing to do before.
    let took = fault(&sleepy).unwrap() - fault(&awake).unwrap();
    assert!(near(took, MICRO * 10), "{took:?}");
    let costs = Costs {
        evict: MICRO * 4,
        ..awake
    };
    assert_eq!(fault(&costs).unwrap(), fault(&awake).unwrap());
    let took = upgrade(&costs).unwrap() - upgrade(&awake).unwrap();
    assert!(near(took, MICRO * 4), "{took:?}");
}

#[test]
fn the_same_costs_give_the_same_figure() {
    let game = Battleship {
        turns: 50,
        look: MICRO,
        window: Window::Auto,
    };
    let play = || battleship(&Costs::of(&steps()), &game).unwrap().took;
    assert_eq!(play(), play());
}
