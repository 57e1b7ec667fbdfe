use super::{Fit, ReleaseCosts, Trace, replay};
use core::time::Duration;
use pagemesh_wire::peer::Spread;

pub(super) fn costs() -> ReleaseCosts {
    let [round_trip, lock, fault] = [10, 25, 25].map(Duration::from_micros);
    ReleaseCosts::of(round_trip, lock, fault)
}

/// Bands of so many pages; each process computes, and reads its neighbour's last page.
pub(super) fn bands(processes: u32, rounds: u32) -> Vec<Trace> {
    let band = |rank: u32| {
        let mut lines = vec!["b 0".to_owned(), "n".to_owned()];
        for _ in 0..rounds {
            if rank > 0 {
                lines.push(format!("l {}", rank * 4 - 1));
            }
            lines.push(format!("w {}", 8_000_000 / processes));
            lines.push("b 1".to_owned());
            let stores = (rank * 4..rank * 4 + 4).map(|page| format!("s {page} 2000"));
            lines.extend(stores);
            lines.push("b 2".to_owned());
        }
        lines.push("n".to_owned());
        Trace::parse(&lines.join("\n")).unwrap()
    };
    (0..processes).map(band).collect()
}

#[test]
fn a_program_of_phases_is_quicker_on_more_hosts() {
    let took = |hosts| {
        let traces = bands(hosts, 20);
        replay(&costs(), Fit::NONE, Spread::Lazy, &traces).unwrap()
    };
    let (one, two, eight) = (took(1), took(2), took(8));
    assert!(one.part >= Duration::from_millis(160), "{one:?}");
    assert!(one.part < Duration::from_millis(170), "{one:?}");
    let speedup = one.part.as_secs_f64() / two.part.as_secs_f64();
    assert!((1.7..2.0).contains(&speedup), "{two:?}");
    let speedup = one.part.as_secs_f64() / eight.part.as_secs_f64();
    assert!((3.0..8.0).contains(&speedup), "{eight:?}");
    assert!(two.diffs >= 19 && two.messages > 80, "{two:?}");
}

/// Its daemon answers late while its program computes.
#[test]
fn a_page_that_is_read_in_each_phase_is_asked_for_only_at_first() {
    let took = |rounds| replay(&costs(), Fit::NONE, Spread::Lazy, &bands(2, rounds)).unwrap();
    let (short, long) = (took(10), took(300));
    assert_eq!(short.fault_waits.len(), long.fault_waits.len());
    assert!(long.faults > short.faults, "{long:?}");
}

#[test]
fn locks_pass_and_conditions_are_waited_for() {
    let first = "n\na 7\ns 0 8\nr 7\na 7\nc 7 1\nl 0\nr 7\nb 0\nn";
    let second = "w 1000000\na 7\nl 0\ns 0 8\ng 7\nr 7\nb 0";
    let traces = [first, second].map(|text| Trace::parse(text).unwrap());
    let took = replay(&costs(), Fit::NONE, Spread::Lazy, &traces).unwrap();
    assert!(took.part >= Duration::from_millis(1), "{took:?}");
    assert!(took.part < Duration::from_micros(1_400), "{took:?}");
}

#[test]
fn what_costs_more_takes_longer_and_is_done_again_the_same() {
    let traces = bands(4, 5);
    let cheap = replay(&costs(), Fit::NONE, Spread::Lazy, &traces).unwrap();
    let slow = Fit {
        all: 4.0,
        cold: 1.0,
    };
    let dear = replay(&costs(), slow, Spread::Lazy, &traces).unwrap();
    assert!(dear.part > cheap.part, "{dear:?} {cheap:?}");
    assert_eq!(
        cheap,
        replay(&costs(), Fit::NONE, Spread::Lazy, &traces).unwrap()
    );
}

/// More than a node remembers notices of before it wants them collected, in each phase.
#[test]
fn pages_that_only_their_writer_uses_stop_it_seldom_however_many_they_are() {
    const EACH: u32 = 12_000;
    let band = |rank: u32| {
        let stores = (rank * EACH..(rank + 1) * EACH).map(|page| format!("s {page} 4000"));
        let phase = stores.chain(["b 1".to_owned()]).collect::<Vec<_>>();
        let lines = vec![phase.join("\n"); 5].join("\n");
        Trace::parse(&format!("b 0\nn\n{lines}\nn")).unwrap()
    };
    let took = replay(&costs(), Fit::NONE, Spread::Lazy, &[band(0), band(1)]).unwrap();
    // A walk of stores gets the right to many pages in one fault. Where one band ends, it was given
    // the right to pages of the other, too.
    assert!(took.faults < u64::from(2 * EACH) / 100, "{took:?}");
    assert!(took.diffs < 100, "{took:?}");
}

#[test]
fn what_a_process_does_adds_up_to_its_time() {
    let took = replay(&costs(), Fit::NONE, Spread::Lazy, &bands(1, 20)).unwrap();
    let spent = took.spent;
    let all = spent.computing + spent.daemon + spent.pages + spent.barriers;
    assert_eq!((spent.locks, spent.conditions), (0, 0));
    assert_eq!(spent.computing, 20 * 8_000_000);
    assert_eq!(Duration::from_nanos(all), took.part);
    assert!((spent.shares().iter().sum::<f64>() - 1.0).abs() < 1e-9);
    let two = replay(&costs(), Fit::NONE, Spread::Lazy, &bands(2, 20)).unwrap();
    assert_eq!(two.spent.computing, spent.computing);
    assert!(
        two.spent.pages > 0 && two.spent.barriers > spent.barriers,
        "{two:?}"
    );
}

#[test]
fn nonsense_is_refused_with_its_line() {
    for line in [
        "x",
        "l",
        "l 1 2",
        "s 1",
        "s 1 70000",
        "l 99999999",
        "w -1",
        "b 1 2 3",
    ] {
        let why = Trace::parse(&format!("n\n{line}")).unwrap_err().to_string();
        assert!(why.contains("line 2"), "{why}");
    }
}
