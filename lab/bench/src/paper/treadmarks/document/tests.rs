//! A kept document, and what follows from it.

use super::*;

/// A run of which only this is of interest.
pub(in super::super) fn run(program: &str, nodes: usize, seconds: f64) -> Run {
    Run {
        program: program.to_owned(),
        large: false,
        policy: "release".to_owned(),
        nodes,
        seconds,
        rounds: 1,
        measured: String::new(),
        crowd_seconds: None,
        paper_speedup: None,
        whole_seconds: seconds,
        barriers: 0,
        locks: 0,
        messages: 0,
        bytes: 0,
        pages: 0,
        diffs: 0,
        lock_wait: None,
        barrier_wait: None,
        fault_wait: None,
        shares: Shares {
            computation: 1.0,
            kernel: 0.0,
            pagemesh: 0.0,
            idle: 0.0,
        },
    }
}

/// A sequential program of the paper's size.
pub(in super::super) fn alone(program: &str, seconds: f64) -> Alone {
    Alone {
        program: program.to_owned(),
        large: false,
        slow: false,
        order: None,
        seconds,
        measured: String::new(),
    }
}

#[test]
fn a_speedup_has_the_best_sequential_program_of_its_order_as_base() {
    let mut document = Document::new();
    document.add_alone(alone("jacobi", 6.0));
    document.add_alone(alone("jacobi-each", 4.0));
    document.add_alone(alone("jacobi", 5.0));
    let variant = run("jacobi", 2, 2.0);
    assert_eq!(document.speedup(&variant), Some(2.0));
    assert_eq!(document.efficiency(&run("jacobi-each", 2, 2.0)), Some(1.0));
    document.add_alone(Alone {
        order: Some("depth first".to_owned()),
        ..alone("tsp", 9.0)
    });
    assert_eq!(document.speedup(&run("tsp", 2, 1.0)), None, "another order");
    document.add_alone(Alone {
        slow: true,
        ..alone("tsp", 8.0)
    });
    assert_eq!(document.speedup(&run("tsp", 2, 1.0)), None, "a slow node");
    document.add_limited(run("tsp", 4, 2.0), 4.0);
    assert_eq!(document.slow_speedup(&document.limited[0]), Some(4.0));
    // What is measured later replaces what was measured before, even if it is longer.
    document.date = "2030-01-01T00:00:00Z".to_owned();
    document.add_alone(alone("jacobi", 8.0));
    assert_eq!(document.base("jacobi", false, false), Some(8.0));
}

#[test]
fn what_is_measured_again_replaces_what_was_kept() {
    let mut document = Document::new();
    document.add(run("tsp", 2, 1.0));
    document.add(run("jacobi", 2, 2.0));
    document.add_limited(run("tsp", 8, 5.0), 7.0);
    document.add_alone(alone("tsp", 3.0));
    let path = std::env::temp_dir().join(format!("pagemesh-kept-{}", std::process::id()));
    std::fs::write(&path, serde_json::to_string(&document).unwrap()).unwrap();
    let mut again = Document::kept(Some(&path)).unwrap();
    again.add(run("tsp", 2, 4.0));
    again.add_limited(run("tsp", 8, 6.0), 7.0);
    again.date = "2030-01-01T00:00:00Z".to_owned();
    again.add_alone(alone("tsp", 4.0));
    again.sort(|name| usize::from(name == "tsp"));
    let seconds: Vec<_> = again.runs.iter().map(|run| run.seconds).collect();
    assert_eq!(seconds, [2.0, 4.0]);
    assert_eq!(
        (again.limited.len(), again.limited[0].run.seconds),
        (1, 6.0)
    );
    assert_eq!((again.alone.len(), again.alone[0].seconds), (1, 4.0));
    let large = Run {
        large: true,
        ..run("tsp", 2, 9.0)
    };
    again.add(large);
    assert_eq!(again.runs.len(), 3, "larger problems stand beside");
    std::fs::write(&path, "nonsense").unwrap();
    assert!(Document::kept(Some(&path)).is_err());
    std::fs::remove_file(&path).unwrap();
    assert!(Document::kept(Some(&path)).unwrap().runs.is_empty());
}
