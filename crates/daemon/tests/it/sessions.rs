//! Processes that misbehave do not harm others.

use crate::common::{self, Client, Daemon, Process, permitted, until};
use pagemesh_daemon::{Options, run};
use pagemesh_os::area::LockArea;
use pagemesh_os::request_slot::{Answer, ROOM, RequestSlot};
use pagemesh_os::seqpacket::Socket;
use pagemesh_wire::local::{Reply, ReplyPacket, Request, RequestPacket};
use pagemesh_wire::lockword::LockWord;
use pagemesh_wire::peer::Refusal;
use pagemesh_wire::sysv::{Op, Outcome};
use pagemesh_wire::{ByteLen, ByteOffset, PageIndex, SegmentId, SyncKey};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

fn is_cut_off(socket: &Socket) -> bool {
    let mut buffer = [0; 4096];
    socket.recv(&mut buffer).map_or(true, |got| got.is_none())
}

/// The error of a send to a daemon that has closed its end.
fn is_hang_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
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
    let generous = Client::hello(connect());
    let gift = good.socket.as_fd();
    generous.socket.send(&packet.encode(), &[gift]).unwrap();
    assert!(is_cut_off(&generous.socket), "descriptors nobody asked for");

    assert_eq!(good.counter("sessions_refused"), 3);
    assert_eq!(good.status().clients, 1);
    daemon.end().unwrap();
}

/// The answer that comes through a request slot.
fn answer_in(request_slot: &RequestSlot, number: u64) -> ReplyPacket {
    loop {
        match request_slot.take(number) {
            Answer::Here(bytes) => return ReplyPacket::decode(&bytes).unwrap(),
            Answer::ToCome => std::thread::yield_now(),
            Answer::Elsewhere => panic!("it is to come here"),
        }
    }
}

/// Shared memory does not name the caller of a System V call: the kernel must have done so before.
#[test]
fn system_v_calls_through_a_request_slot_wait_for_the_kernels_word() {
    let daemon = Daemon::start(|_| {});
    let mut client = daemon.client();
    let request_slot = client.request_slot();
    let get = || {
        Request::Sysv(Op::SemGet {
            key: 0,
            count: 1,
            flags: 0o1600,
        })
    };
    let ask = |client: &mut Client, number| {
        request_slot.expect(number);
        let request = get();
        assert!(request_slot.post(number, &RequestPacket { number, request }.encode()));
        client.send(Request::Knock, &[]);
        answer_in(&request_slot, number).reply
    };
    let made = |reply: &Reply| matches!(reply, Reply::Sysv(Outcome::Number(_)));
    assert_eq!(ask(&mut client, 1_001), Reply::Unproven);
    assert!(made(&client.ask(get())));
    assert!(made(&ask(&mut client, 1_002)));
    daemon.end().unwrap();
}

#[test]
fn nonsense_in_a_request_slot_ends_the_session_and_nothing_else() {
    let daemon = Daemon::start(|_| {});
    let mut good = daemon.client();
    let packet = |number, request| RequestPacket { number, request }.encode();
    let not_brief = packet(9, Request::Status);
    for bytes in [vec![0xff; ROOM], not_brief, Vec::new()] {
        let mut rude = daemon.client();
        let request_slot = rude.request_slot();
        assert!(request_slot.post(9, &bytes));
        // A daemon that polls the slot may have ended the session already.
        let knock = packet(10, Request::Knock);
        match rude.socket.send(&knock, &[]) {
            Err(error) if is_hang_up(&error) => {}
            sent => sent.unwrap(),
        }
        assert!(is_cut_off(&rude.socket));
    }
    assert_eq!(good.counter("sessions_refused"), 3);

    let before = good.counter("requests_by_request_slot");
    let request_slot = good.request_slot();
    let key = SyncKey {
        segment: SegmentId(7),
        number: 1,
    };
    request_slot.expect(1_000);
    assert!(request_slot.post(1_000, &packet(1_000, Request::LockSlot { key })));
    good.send(Request::Knock, &[]);
    let answer = answer_in(&request_slot, 1_000);
    assert!(answer.number == 1_000 && matches!(answer.reply, Reply::Refused(_)));
    assert_eq!(good.counter("requests_by_request_slot"), before + 1);
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
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
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

/// Runs `act` in this thread as another user.
fn as_user<T>(uid: u32, act: impl FnOnce() -> T) -> T {
    use rustix::thread::set_thread_res_uid;
    let [user, root] = [uid, 0].map(rustix::process::Uid::from_raw);
    set_thread_res_uid(root, user, root).unwrap();
    let done = act();
    set_thread_res_uid(root, root, root).unwrap();
    done
}

/// The reason for which a segment cannot be opened, or made.
fn refusal(client: &mut Client, request: Request) -> Option<String> {
    match client.ask(request) {
        Reply::Refused(Refusal::Limit(why)) => Some(why),
        Reply::Opened { .. } | Reply::Slot { .. } => None,
        other => panic!("{other:?}"),
    }
}

fn make(name: &str) -> Request {
    Request::Open {
        name: name.into(),
        create: Some(pagemesh_wire::peer::SegmentSpec {
            size: ByteLen(4096),
            mode: 0o600,
            policy: pagemesh_wire::peer::Policy::default(),
            replicas: 0,
        }),
        exclusive: false,
        write: true,
    }
}

const STRANGER: u32 = 4242;

#[test]
fn a_daemon_of_an_ordinary_user_says_what_programs_lack() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let opens = |path: &str| std::fs::File::open(path).is_ok();
    if as_user(STRANGER, || opens("/dev/userfaultfd")) {
        eprintln!("skipped: every user may open /dev/userfaultfd here");
        return;
    }
    let daemon = as_user(STRANGER, || Daemon::start(|_| {}));
    let problems = daemon.client().status().problems;
    let told = |line: &String| line.starts_with("userfaultfd: cannot open /dev/userfaultfd");
    assert!(problems.iter().any(told), "{problems:?}");
}

#[test]
fn a_user_whose_processes_fill_the_log_is_told_of() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let daemon = Daemon::start(|options| {
        options.quota = "log=1".parse().unwrap();
    });
    for _ in 0..3 {
        let garbage = as_user(STRANGER, || Socket::connect(&daemon.socket).unwrap());
        garbage.send(&[0xff; 100], &[]).unwrap();
        assert!(is_cut_off(&garbage));
    }
    let mut root = daemon.client();
    until("lines are left out", || {
        let problems = root.status().problems;
        problems
            .iter()
            .any(|line| line.starts_with("log-quota: 2 lines"))
    });
}

#[test]
fn a_user_has_its_quotas_of_segments_and_locks_and_hears_which_it_has_used_up() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let daemon = Daemon::start(|options| {
        options.quota = "segments=3,locks=2".parse().unwrap();
    });
    let mut user = as_user(STRANGER, || daemon.client());
    let mut root = daemon.client();
    for name in ["a", "b", "c"] {
        assert_eq!(refusal(&mut user, make(name)), None);
        assert_eq!(refusal(&mut root, make(&format!("root-{name}"))), None);
    }
    let why = refusal(&mut user, make("d")).unwrap();
    assert!(
        why.contains("user 4242 has 3 segments") && why.contains("--quota"),
        "{why}"
    );
    assert_eq!(refusal(&mut root, make("root-d")), None, "others go on");
    let problems = root.status().problems;
    assert!(
        problems
            .iter()
            .any(|line| line.starts_with("quota: user 4242 has 3 segments")),
        "{problems:?}"
    );
    let remove = Request::Remove { name: "a".into() };
    assert_eq!(user.ask(remove), Reply::Done);

    let (info, _memory, _area) = user.open("b", 1, true);
    let segment = info.id;
    let slot = |number| Request::LockSlot {
        key: SyncKey { segment, number },
    };
    for number in [1, 2, 1] {
        assert_eq!(refusal(&mut user, slot(number)), None);
    }
    let why = refusal(&mut user, slot(3)).unwrap();
    assert!(why.contains("quota of locks"), "{why}");
    let key = SyncKey { segment, number: 4 };
    let why = refusal(&mut user, Request::Lock { key });
    assert!(
        why.is_some_and(|why| why.contains("quota of locks")),
        "asked for without a slot"
    );
    daemon.end().unwrap();
}

/// Descriptors of a process.
fn descriptors(process: &std::process::Child) -> usize {
    let path = format!("/proc/{}/fd", process.id());
    std::fs::read_dir(path).unwrap().count()
}

#[test]
fn a_user_gets_half_of_the_descriptors_and_closed_segments_give_theirs_back() {
    if !rustix::process::geteuid().is_root() || !permitted() {
        return;
    }
    let path = common::socket("crowded");
    let (daemon, mut root) = Process::daemon(&path, &["-", "auto", "false"]);
    let hello = || Client::hello(Socket::connect(&path).unwrap());
    let mut user = as_user(STRANGER, hello);
    let pid = Pid::from_child(&daemon.0);
    let all = Rlimit {
        current: Some(512),
        maximum: Some(512),
    };
    prlimit(Some(pid), Resource::Nofile, all).unwrap();
    let before = descriptors(&daemon.0);
    let full = (0..512).find_map(|number| refusal(&mut user, make(&format!("s{number}"))));
    let full = full.expect("a quota");
    assert!(full.contains("no user gets more than half"), "{full}");
    assert!(full.contains("LimitNOFILE"), "{full}");
    let mut others = Vec::new();
    for number in 0..20 {
        let name = format!("root{number}");
        others.push(root.attach(&name, 1, true));
        others[number].store(0, 0, 7);
    }
    assert!(descriptors(&daemon.0) > before + 200);
    drop(others);
    // A process that ends closes all it has.
    drop(user);
    drop(root);
    let mut root = hello();
    until("descriptors that come back", || {
        root.status();
        // Those of root have a page each; nothing else is left of 140 segments.
        descriptors(&daemon.0) <= before + 20
    });
    let again = root.attach("root3", 1, true);
    assert_eq!(again.load(0, 0), 7, "what had a page is there still");
    let (info, _memory, _area) = root.open("root4", 1, true);
    let key = SyncKey {
        segment: info.id,
        number: 9,
    };
    let locked = root.ask(Request::Lock { key });
    assert!(
        matches!(locked, Reply::Locked { recovered: false }),
        "{locked:?}"
    );
}

#[test]
fn locks_of_a_segment_that_was_closed_meanwhile_are_free_and_were_held_by_nobody_who_died() {
    if !permitted() {
        return;
    }
    let one = Daemon::start(|_| {});
    let other = Daemon::joining(&one, |_| {});
    let mut stays = other.client();
    let (info, _memory, area) = stays.open("shared", 1, true);
    let words_there = LockArea::map(area).unwrap();
    let key = SyncKey {
        segment: info.id,
        number: 9,
    };
    for _ in 0..3 {
        let mut here = one.client();
        let (_, _memory, area) = here.open("shared", 1, true);
        assert_eq!(
            here.ask(Request::Lock { key }),
            Reply::Locked { recovered: false }
        );
        let Reply::Slot { index } = here.ask(Request::LockSlot { key }) else {
            panic!()
        };
        let words = LockArea::map(area).unwrap();
        let word = words.word(index).unwrap();
        word.swap(LockWord::Free);
        assert_eq!(here.ask(Request::Close { segment: info.id }), Reply::Done);
        assert_eq!(
            word.load(),
            LockWord::Absent,
            "given back when the segment was closed"
        );
        // The token is there still, lent to no process.
        assert_eq!(
            stays.ask(Request::Lock { key }),
            Reply::Locked { recovered: false }
        );
        let Reply::Slot { index } = stays.ask(Request::LockSlot { key }) else {
            panic!()
        };
        words_there.word(index).unwrap().swap(LockWord::Free);
    }
    other.end().unwrap();
    one.end().unwrap();
}
