//! Pages that travel smaller than they are.

use crate::support::{Cluster, eventually};
use pagemesh::{Manager, Options, PAGE_SIZE, Policy, Window};
use pagemesh_cli::sandbox::{Netns, Plan};
use pagemesh_wire::header::{HEADER_SIZE, Header, set_form};
use pagemesh_wire::{ClusterId, Incarnation, NodeId};
use std::net::UdpSocket;

/// Pages of one test: zero, sparse, text and noise in turn.
const PAGES: usize = 64;

fn contents(page: usize) -> Vec<u8> {
    let mut state = page as u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    match page % 4 {
        0 => vec![0; PAGE_SIZE],
        1 => (0..PAGE_SIZE)
            .map(|at| u8::from(at % 128 == page % 128))
            .collect(),
        2 => b"to be packed or not "
            .iter()
            .copied()
            .cycle()
            .skip(page)
            .take(PAGE_SIZE)
            .collect(),
        _ => (0..PAGE_SIZE).map(|_| noise()).collect(),
    }
}

fn plan(compress: &str) -> Plan {
    let mut plan = Plan::new(2);
    plan.compress = Some(compress.to_owned());
    plan
}

/// A page after the other, but for `auto` no walk: where pages leave together on a fast
/// link it leaves zeros as they are.
fn order(compress: &str) -> impl Iterator<Item = usize> {
    let straight = compress != "auto";
    (0..PAGES).map(move |page| {
        if straight {
            page
        } else {
            page * (page + 1) / 2 % PAGES
        }
    })
}

/// One node writes all pages, the other reads them, and back. Which counters of the
/// writer have grown.
fn there_and_back(compress: &str, sealed: bool) -> Option<[u64; 4]> {
    let mut plan = plan(compress);
    plan.sealed = sealed;
    let cluster = Cluster::of(plan)?;
    let maps = cluster.share("packed", PAGES as u64);
    for (writer, reader, shift) in [(0, 1, 0), (1, 0, 1)] {
        for page in 0..PAGES {
            let bytes = contents(page + shift);
            maps[writer].write(page * PAGE_SIZE, &bytes).unwrap();
        }
        for page in order(compress) {
            let mut bytes = vec![0xee; PAGE_SIZE];
            maps[reader].read(page * PAGE_SIZE, &mut bytes).unwrap();
            assert_eq!(bytes, contents(page + shift), "{compress} page {page}");
        }
    }
    assert_eq!(cluster.counter(1, "pages_refused"), 0);
    let packed = cluster.counter(0, "pages_packed") + cluster.counter(0, "pages_elided");
    // A resent page may still be on its way, or have come when it was not needed any more.
    let again = cluster.counter(0, "resent") + cluster.counter(1, "resent");
    eventually("all that was packed is unpacked", || {
        let unpacked = cluster.counter(1, "pages_unpacked");
        (packed..=packed + again).contains(&(unpacked + again))
    });
    Some(
        [
            "pages_elided",
            "pages_packed",
            "packed_from_bytes",
            "packed_to_bytes",
        ]
        .map(|name| cluster.counter(0, name)),
    )
}

#[test]
fn pages_arrive_as_they_were_however_they_travel() {
    for (compress, sealed) in [
        ("off", false),
        ("runs", false),
        ("lz4", true),
        ("auto", false),
    ] {
        let Some([elided, packed, from, to]) = there_and_back(compress, sealed) else {
            return;
        };
        let quarter = PAGES as u64 / 4;
        match compress {
            "off" => assert_eq!((elided, packed, from, to), (0, 0, 0, 0)),
            "auto" => assert!(elided >= quarter, "{elided}"),
            _ => {
                assert!(elided >= quarter, "{compress}: {elided}");
                assert!(packed >= quarter, "{compress}: {packed}");
                assert!(to < from / 4, "{compress}: {to} of {from}");
            }
        }
    }
}

#[test]
fn what_is_no_packed_page_is_refused_and_counted() {
    let mut plan = plan("auto");
    // A network on which a host that is no member reaches the nodes.
    plan.netns = Netns::Never;
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let maps = cluster.share("hostile", 1);
    maps[0].write(0, &contents(2)).unwrap();
    let stranger = UdpSocket::bind("0.0.0.0:0").unwrap();
    let mut datagram = Header {
        version: pagemesh_wire::header::PROTOCOL_VERSION,
        cluster: ClusterId(1),
        from: NodeId(1),
        to: NodeId(2),
        incarnation: Incarnation(1),
        body: 0,
        term: pagemesh_wire::Term::FIRST,
        generation: 0,
    }
    .encode()
    .to_vec();
    datagram.extend_from_slice(&[0x55; 700]);
    let to = cluster.node(1).address();
    let before = cluster.counter(1, "pages_refused");
    let sent = (2..=u8::MAX).filter(|form| {
        set_form(&mut datagram, *form);
        let length = HEADER_SIZE + usize::from(*form) * 2;
        stranger.send_to(&datagram[..length], to).is_ok()
    });
    let sent = sent.count() as u64;
    assert_eq!(sent, 254);
    eventually("all of it was refused", || {
        cluster.counter(1, "pages_refused") == before + sent
    });
    let mut bytes = vec![0; PAGE_SIZE];
    maps[1].read(0, &mut bytes).unwrap();
    assert_eq!(bytes, contents(2));
}

/// Packets, acknowledgements, reception, compression (M25); in each cluster then windows
/// and write locks.
#[test]
fn every_switch_goes_with_every_other() {
    for experiment in [
        "packet=1024",
        "packet=1024,acknowledge=packet",
        "receive=worker",
        "packet=512,acknowledge=packet,receive=worker",
    ] {
        for (compress, sealed) in [
            ("off", true),
            ("runs", true),
            ("lz4", false),
            ("auto", false),
        ] {
            let mut plan = plan(compress);
            plan.sealed = sealed;
            plan.experiment = experiment.parse().unwrap();
            let Some(cluster) = Cluster::of(plan) else {
                return;
            };
            for window in [Window::Nanos(0), Window::Auto, Window::Nanos(2_000_000)] {
                for locks in [false, true] {
                    let what = format!("{experiment} {compress} {window:?} {locks}");
                    switched(&cluster, (window, locks), &what);
                }
            }
            if compress == "off" && experiment.starts_with("packet=1024") {
                let (sent, pages) = (
                    cluster.counter(0, "datagrams_out"),
                    cluster.counter(0, "pages_out"),
                );
                assert!(sent >= 4 * pages, "{experiment}: {sent} for {pages}");
            }
        }
    }
}

/// Pages go to and fro, some stored to under a write lock.
fn switched(cluster: &Cluster, (window, locks): (Window, bool), what: &str) {
    const FEW: usize = PAGES / 4;
    let manager = Manager::default();
    let options = Options {
        policy: Policy::Sequential { manager, window },
        ..Options::default()
    };
    let name = what.replace(|letter: char| !letter.is_ascii_alphanumeric(), ".");
    let maps = cluster.share_with(&name, FEW as u64, options);
    for (writer, reader, shift) in [(0, 1, 0), (1, 0, 1)] {
        for page in 0..FEW {
            let at = page * PAGE_SIZE;
            let held = locks.then(|| maps[writer].write_lock(at..at + PAGE_SIZE).unwrap());
            maps[writer].write(at, &contents(page + shift)).unwrap();
            drop(held);
        }
        for page in 0..FEW {
            let mut bytes = vec![0xee; PAGE_SIZE];
            maps[reader].read(page * PAGE_SIZE, &mut bytes).unwrap();
            assert_eq!(bytes, contents(page + shift), "{what} page {page}");
        }
    }
}
