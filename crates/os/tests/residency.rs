//! Locked memory, in a process of its own: the lock concerns the whole process.

use pagemesh_os::region::{Region, Shape};
use pagemesh_os::residency::Residency;

fn locked() -> u64 {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("Locked:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn pages_are_locked_when_they_are_touched_and_not_before() {
    let mut residency = Residency::default();
    if let Err(error) = residency.lock() {
        eprintln!("skipped: {error}");
        return;
    }
    residency.lock().unwrap();
    let before = locked();
    assert!(before > 0, "what was there is locked");
    let shape = Shape {
        words: 0,
        bytes: 4 << 30,
    };
    let mut region = Region::create("residency", shape).unwrap();
    let mapped = locked();
    region.bytes_mut()[..64 << 20].fill(1);
    let touched = locked();
    assert!(mapped - before < 32 << 10, "{mapped} KiB after {before}");
    assert!(touched - mapped >= 60 << 10, "{touched} KiB after {mapped}");
    drop(region);
    residency.unlock().unwrap();
    assert_eq!(locked(), 0);
}
