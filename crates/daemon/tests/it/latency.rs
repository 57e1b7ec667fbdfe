//! How long a remote read fault takes, against a bare exchange of datagrams of
//! the same size in the same run. Only the ratio means anything.
//!
//! `cargo test --release -p pagemesh-daemon --test it remote -- --ignored --nocapture`

use crate::common::{Client, Process, permitted, socket, wait_for};
use pagemesh_os::udp::{Received, Udp};
use pagemesh_os::{clock, cpu};
use pagemesh_wire::local::{Reply, Request, StampKind};
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PAGES: usize = 20_000;

fn median_and_tail(mut nanos: Vec<u64>) -> (f64, f64) {
    nanos.sort_unstable();
    let at = |share: f64| nanos[(nanos.len() as f64 * share) as usize] as f64 / 1000.0;
    (at(0.5), at(0.99))
}

/// 64 bytes there, a page back, both sides spinning.
fn raw() -> Vec<u64> {
    let (here, there) = (
        Udp::bind("127.0.0.1:0".parse().unwrap()).unwrap(),
        Udp::bind("127.0.0.1:0".parse().unwrap()).unwrap(),
    );
    let (to, stop) = (there.address(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            let _ = cpu::pin(1);
            let mut buffer = vec![0; 65536];
            while !stop.load(Ordering::Relaxed) {
                if let Ok(Received::Datagram(_, from)) = there.receive(&mut buffer) {
                    there.send(from, &[0; 4160]).unwrap();
                }
            }
        });
        // Let the other thread get to its processor.
        std::thread::sleep(Duration::from_millis(10));
        let mut buffer = vec![0; 65536];
        let took = (0..PAGES)
            .map(|_| {
                let start = clock::monotonic();
                here.send(to, &[0; 64]).unwrap();
                while here.receive(&mut buffer).unwrap() == Received::Nothing {
                    std::hint::spin_loop();
                }
                clock::monotonic() - start
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        took
    })
}

/// The process whose pages are read, on the other processor.
pub(crate) fn writer(socket: &Path) {
    let _ = cpu::pin(1);
    let mut client = wait_for(socket);
    let there = client.attach("latency", PAGES, true);
    for page in 0..PAGES {
        there.store(page, 0, page as u64 + 1);
    }
    // Until the parent has seen enough.
    let _ = std::io::stdin().read(&mut [0]);
}

fn faults(waiting: &str, latency: bool) -> Vec<u64> {
    let (near, far) = (socket("near"), socket("far"));
    let latency = latency.to_string();
    let (first, mut reader) = Process::daemon(&near, &["0", waiting, &latency]);
    let address = reader.status().address;
    let (second, mut watcher) = Process::daemon(&far, &["1", waiting, &latency, &address]);
    let here = reader.attach("latency", PAGES, true);
    let writer = Process::start("latency", &far, &[]);
    while watcher.counter("ownerships_arrived") < PAGES as u64 {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(50));
    let took = (0..PAGES)
        .map(|page| {
            let start = clock::monotonic();
            assert_eq!(here.load(page, 0), page as u64 + 1);
            clock::monotonic() - start
        })
        .collect();
    journey(&mut reader, &mut watcher);
    eprintln!(
        "  in the daemon: p50 {} ns, p99 {} ns, {} sleeps, {} kernel faults, {} resent",
        reader.counter("fault_remote_p50_ns"),
        reader.counter("fault_remote_p99_ns"),
        reader.counter("sleeps"),
        reader.counter("kernel_faults"),
        reader.counter("resent"),
    );
    drop((writer, second, first));
    took
}

/// Where the time went: medians between the stamps of a page's journey.
fn journey(reader: &mut Client, writer: &mut Client) {
    let stamps = |client: &mut Client, what| {
        let mut at = vec![0; PAGES];
        let mut from = 0;
        while let Reply::Stamps(stamps) = client.ask(Request::Stamps { from }) {
            let Some(last) = stamps.last() else { break };
            from = last.number + 1;
            for stamp in stamps.iter().filter(|stamp| stamp.what == what) {
                at[stamp.tag as usize] = stamp.nanos;
            }
        }
        at
    };
    let stations = [
        ("fault", stamps(reader, StampKind::Fault)),
        ("asked", stamps(reader, StampKind::Asked)),
        ("given", stamps(writer, StampKind::Given)),
        ("arrived", stamps(reader, StampKind::Arrived)),
        ("mapped", stamps(reader, StampKind::Mapped)),
    ];
    for pair in stations.windows(2) {
        let took = (0..PAGES).map(|page| pair[1].1[page].saturating_sub(pair[0].1[page]));
        let (median, tail) = median_and_tail(took.collect());
        eprintln!(
            "  {} to {}: {median:.1} / {tail:.1} us",
            pair[0].0, pair[1].0
        );
    }
}

#[test]
#[ignore = "a measurement, not a test"]
fn remote_read_fault() {
    if !permitted() {
        return;
    }
    let _ = cpu::pin(0);
    for (name, waiting, latency) in [
        ("spin", "spin", false),
        ("block", "block", false),
        ("block, processors kept awake", "block", true),
    ] {
        let (raw, raw_tail) = median_and_tail(raw());
        let (fault, tail) = median_and_tail(faults(waiting, latency));
        eprintln!(
            "{name}: raw {raw:.1} / {raw_tail:.1} us, fault {fault:.1} / {tail:.1} us, {:.2} times",
            fault / raw
        );
    }
}
