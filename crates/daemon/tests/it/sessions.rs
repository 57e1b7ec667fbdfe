//! Processes that misbehave harm nobody else.

use crate::common::{Client, Daemon, permitted};
use pagemesh_daemon::{Options, run};
use pagemesh_os::hatch::{Answer, Hatch, ROOM};
use pagemesh_os::seqpacket::Socket;
use pagemesh_wire::local::{Reply, ReplyPacket, Request, RequestPacket};
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::sysv::{Op, Outcome};
use pagemesh_wire::{ByteLen, ByteOffset, PageIndex, SegmentId, SyncKey};
use std::os::fd::{AsFd, OwnedFd};

fn is_cut_off(socket: &Socket) -> bool {
    let mut buffer = [0; 4096];
    socket.recv(&mut buffer).map_or(true, |got| got.is_none())
}

#[test]
fn nonsense_ends_the_session_and_nothing_else() {
    let daemon = Daemon::start(|_| {});
    let mut good = daemon.client();
    let connect = || Socket::connect(&daemon.socket).unwrap();

    let garbage = connect();
    garbage.send(&[0xff; 100], &[]).unwrap();
    assert!(is_cut_off(&garbage));
    let rude = connect();
    let packet = pagemesh_wire::local::RequestPacket {
        number: 1,
        request: Request::Status,
    };
    rude.send(&packet.encode(), &[]).unwrap();
    assert!(is_cut_off(&rude), "a request before hello");
    let generous = Client::greet(connect());
    let gift = good.socket.as_fd();
    generous.socket.send(&packet.encode(), &[gift]).unwrap();
    assert!(is_cut_off(&generous.socket), "descriptors nobody asked for");

    assert_eq!(good.counter("sessions_refused"), 3);
    assert_eq!(good.status().clients, 1);
    daemon.end().unwrap();
}

/// The answer that comes through a hatch.
fn answer_in(hatch: &Hatch, number: u64) -> ReplyPacket {
    loop {
        match hatch.take(number) {
            Answer::Here(bytes) => return ReplyPacket::decode(&bytes).unwrap(),
            Answer::ToCome => std::thread::yield_now(),
            Answer::Elsewhere => panic!("it is to come here"),
        }
    }
}

/// Memory does not say who makes a System V call: that the kernel must have said before.
#[test]
fn system_v_calls_through_a_hatch_wait_for_the_kernels_word() {
    let daemon = Daemon::start(|_| {});
    let mut client = daemon.client();
    let hatch = client.hatch();
    let get = || {
        Request::Sysv(Op::SemGet {
            key: 0,
            count: 1,
            flags: 0o1600,
        })
    };
    let ask = |client: &mut Client, number| {
        hatch.expect(number);
        let request = get();
        assert!(hatch.post(number, &RequestPacket { number, request }.encode()));
        client.send(Request::Knock, &[]);
        answer_in(&hatch, number).reply
    };
    let made = |reply: &Reply| matches!(reply, Reply::Sysv(Outcome::Number(_)));
    assert_eq!(ask(&mut client, 1_001), Reply::Unproven);
    assert!(made(&client.ask(get())));
    assert!(made(&ask(&mut client, 1_002)));
    daemon.end().unwrap();
}

#[test]
fn nonsense_in_a_hatch_ends_the_session_and_nothing_else() {
    let daemon = Daemon::start(|_| {});
    let mut good = daemon.client();
    let packet = |number, request| RequestPacket { number, request }.encode();
    let not_brief = packet(9, Request::Status);
    for bytes in [vec![0xff; ROOM], not_brief, Vec::new()] {
        let mut rude = daemon.client();
        let hatch = rude.hatch();
        assert!(hatch.post(9, &bytes));
        rude.send(Request::Knock, &[]);
        assert!(is_cut_off(&rude.socket));
    }
    assert_eq!(good.counter("sessions_refused"), 3);

    let before = good.counter("requests_by_hatch");
    let hatch = good.hatch();
    let key = SyncKey {
        segment: SegmentId(7),
        number: 1,
    };
    hatch.expect(1_000);
    assert!(hatch.post(1_000, &packet(1_000, Request::LockSlot { key })));
    good.send(Request::Knock, &[]);
    let answer = answer_in(&hatch, 1_000);
    assert!(answer.number == 1_000 && matches!(answer.reply, Reply::Refused(_)));
    assert_eq!(good.counter("requests_by_hatch"), before + 1);
    assert_eq!(good.status().clients, 1);
    daemon.end().unwrap();
}

#[test]
fn a_client_that_never_reads_is_cut_off() {
    let daemon = Daemon::start(|_| {});
    let lazy = daemon.client();
    lazy.socket.set_nonblocking(true).unwrap();
    let packet = pagemesh_wire::local::RequestPacket {
        number: 1,
        request: Request::Counters,
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut cut = false;
    while !cut && std::time::Instant::now() < end {
        match lazy.socket.send_now(&packet.encode(), &[]) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::yield_now();
            }
            Err(_) => cut = true,
            Ok(()) => {}
        }
    }
    assert!(cut);
    assert_eq!(daemon.client().status().clients, 1);
    daemon.end().unwrap();
}

#[test]
fn a_process_gets_only_what_it_opened() {
    if !permitted() {
        return;
    }
    let daemon = Daemon::start(|_| {});
    let (mut owner, mut other) = (daemon.client(), daemon.client());
    let segment = owner.attach("mine", 4, true);
    let map = |id: SegmentId, pages: u64, write| Request::Map {
        segment: id,
        address: 0x7000_0000_0000,
        length: ByteLen(pages * 4096),
        offset: ByteOffset(0),
        write,
    };
    let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let id = segment.info.id;
    let invalid = |reply: Reply| matches!(reply, Reply::Refused(Refusal::Invalid(_)));
    assert!(
        invalid(other.ask_with(map(id, 4, true), &[file()])),
        "not opened"
    );
    let (_, _, _) = other.open("mine", 4, false);
    let refused = other.ask_with(map(id, 4, true), &[file()]);
    assert_eq!(refused, Reply::Refused(Refusal::Permission));
    assert!(
        invalid(other.ask_with(map(id, 5, false), &[file()])),
        "too long"
    );
    assert!(
        invalid(other.ask_with(map(id, 4, false), &[file()])),
        "no userfaultfd"
    );
    assert!(invalid(other.ask(Request::Unmap {
        mapping: segment.mapping
    })));
    let pin = Request::Pin {
        segment: id,
        first: PageIndex(0),
        count: pagemesh_wire::PageCount(1),
    };
    assert_eq!(other.ask(pin), Reply::Refused(Refusal::Permission));
    assert!(
        invalid(owner.ask(Request::Close { segment: id })),
        "still mapped"
    );
    assert_eq!(other.ask(Request::Close { segment: id }), Reply::Done);
    assert!(invalid(other.ask(Request::Close { segment: id })));
    drop(segment);
    drop(owner);
    daemon.end().unwrap();
}

#[test]
fn one_daemon_per_socket() {
    let daemon = Daemon::start(|_| {});
    let second = Options {
        socket: daemon.socket.clone(),
        ..Options::default()
    };
    let error = format!("{:#}", run(second).unwrap_err());
    assert!(error.contains("another daemon"), "{error}");
    assert!(daemon.client().status().node.is_valid());
    daemon.end().unwrap();
}
