//! Nonsense from the network, and want of everything a daemon needs: a clear
//! error, a counter, and nothing else.

use crate::common::{Client, Daemon, Process, permitted, socket, until};
use pagemesh_daemon::{Options, run};
use pagemesh_os::seqpacket::Socket;
use pagemesh_wire::header::{Header, MAX_DATAGRAM, PROTOCOL_VERSION};
use pagemesh_wire::local::{
    LOCAL_VERSION, OLDEST_LOCAL_VERSION, Reply, ReplyPacket, Request, RequestPacket,
};
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{
    Call, Credentials, Join, Message, PassAck, Policy, Refusal, Reply as Answer, SegmentSpec,
    Subject, Welcome, Window,
};
use pagemesh_wire::{
    ByteLen, CallId, ClusterId, Incarnation, NodeId, PageCount, PageIndex, Program, SegmentId,
    SyncKey, Version, Versions,
};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

/// A peer that speaks, or nearly speaks, the daemons' protocol.
struct Peer {
    socket: UdpSocket,
    daemon: SocketAddr,
    header: Header,
}

const STRANGER: Incarnation = Incarnation(0xbad);

impl Peer {
    fn of(daemon: &mut Client) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let patience = Some(Duration::from_secs(10));
        socket.set_read_timeout(patience).unwrap();
        Self {
            socket,
            daemon: daemon.status().address.parse().unwrap(),
            header: Header {
                version: pagemesh_wire::header::PROTOCOL_VERSION,
                cluster: ClusterId(0),
                from: NodeId::NONE,
                to: NodeId::NONE,
                incarnation: STRANGER,
                body: 0,
                term: pagemesh_wire::Term::NONE,
                generation: 0,
            },
        }
    }

    fn bytes(&self, message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(self.header, &mut bytes);
        bytes
    }

    fn send(&self, bytes: &[u8]) {
        self.socket.send_to(bytes, self.daemon).unwrap();
    }

    fn say(&self, message: &Message) {
        self.send(&self.bytes(message));
    }

    /// The next datagram that is not about what the way to here carries.
    fn receive(&self) -> Vec<u8> {
        loop {
            let mut buffer = vec![0; MAX_DATAGRAM];
            let (length, _) = self.socket.recv_from(&mut buffer).expect("an answer");
            buffer.truncate(length);
            if !pagemesh_path::is_packet(&buffer) {
                return buffer;
            }
        }
    }

    /// The next message that is no sign of life or member view.
    fn hear(&self) -> Message {
        loop {
            match Message::decode(&self.receive()).unwrap().1 {
                Message::Call { .. } | Message::HeartbeatAck { .. } => {}
                message => return message,
            }
        }
    }

    fn join(&self, page_size: u32) -> Message {
        Message::Join(Join {
            name: "peer".into(),
            incarnation: self.header.incarnation,
            page_size,
            advertise: Some(self.socket.local_addr().unwrap()),
            program: Program::of(Versions::SPOKEN),
        })
    }

    /// Becomes a member.
    fn become_member(&mut self) {
        self.say(&self.join(4096));
        let Message::Welcome(Welcome { node, cluster, .. }) = self.hear() else {
            panic!("not welcome");
        };
        self.header.from = node;
        self.header.to = NodeId::FIRST;
        self.header.cluster = cluster;
    }
}

#[test]
fn a_host_of_another_version_is_told_and_shown() {
    let daemon = Daemon::start(|_| {});
    let mut client = daemon.client();
    let peer = Peer::of(&mut client);
    let mut foreign = peer.bytes(&peer.join(4096));
    foreign[2] = 9;
    peer.send(&foreign);
    let expected = Notice {
        speaks: Versions::SPOKEN,
        to: STRANGER,
    };
    assert_eq!(Notice::decode(&peer.receive()), Some(expected));
    assert_eq!(client.counter("foreign_version"), 1);
    let problems = client.status().problems.join("\n");
    assert!(
        problems.starts_with("other-version: ") && problems.contains("that this one does not"),
        "{problems}"
    );
    drop(client);
    daemon.end().unwrap();
}

/// A daemon that joins a make-believe one, which gives this answer.
fn joining(answer: impl Fn(Incarnation) -> Vec<u8>) -> String {
    let host = UdpSocket::bind("127.0.0.1:0").unwrap();
    let patience = Some(Duration::from_millis(100));
    host.set_read_timeout(patience).unwrap();
    let options = Options {
        socket: socket("joining"),
        join: Some(host.local_addr().unwrap()),
        ..Options::default()
    };
    let daemon = std::thread::spawn(move || run(options));
    let mut buffer = [0; MAX_DATAGRAM];
    while !daemon.is_finished() {
        // Nothing comes once the daemon has ended.
        let Ok((length, from)) = host.recv_from(&mut buffer) else {
            continue;
        };
        let (header, _, _) = Message::decode(&buffer[..length]).unwrap();
        host.send_to(&answer(header.incarnation), from).unwrap();
    }
    format!("{:#}", daemon.join().unwrap().unwrap_err())
}

#[test]
fn a_daemon_refused_by_its_cluster_ends_with_the_reason() {
    let speaks = Versions {
        oldest: 8,
        newest: 9,
    };
    let of_version = joining(|to| Notice { speaks, to }.encode().to_vec());
    assert!(
        of_version.contains("protocol versions 8 to 9, this daemon 4 to 5"),
        "{of_version}"
    );
    assert!(of_version.contains("install a release"), "{of_version}");
    let of_pages = joining(|incarnation| {
        let why = Refusal::PageSize { theirs: 16384 };
        let header = Header {
            version: pagemesh_wire::header::PROTOCOL_VERSION,
            cluster: ClusterId(1),
            from: NodeId(1),
            to: NodeId::NONE,
            incarnation: Incarnation(1),
            body: 0,
            term: pagemesh_wire::Term::NONE,
            generation: 0,
        };
        let mut bytes = Vec::new();
        Message::Unwelcome { incarnation, why }.encode(header, &mut bytes);
        bytes
    });
    assert!(of_pages.contains("page size 16384"), "{of_pages}");
}

#[test]
fn a_host_with_other_pages_is_told() {
    let daemon = Daemon::start(|_| {});
    let mut client = daemon.client();
    let peer = Peer::of(&mut client);
    peer.say(&peer.join(65536));
    let Message::Unwelcome { incarnation, why } = peer.hear() else {
        panic!("welcome?");
    };
    assert_eq!(incarnation, STRANGER);
    assert_eq!(why, Refusal::PageSize { theirs: 65536 });
    assert_eq!(client.counter("joins_refused"), 1);
    assert_eq!(client.status().alive, 1);
    drop(client);
    daemon.end().unwrap();
}

#[test]
fn a_daemon_that_waits_for_admission_says_for_whom() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    let path = socket("hopeful");
    let words = ["-", "auto", "false", &address.to_string()];
    let _daemon = Process::start("daemon", &path, &words);
    until("its socket", || Socket::connect(&path).is_ok());
    let mut client = Client::hello(Socket::connect(&path).unwrap());
    let problems = client.status().problems.join("\n");
    assert!(
        problems.starts_with("joining: ")
            && problems.contains(&format!("{address} does not answer")),
        "{problems}"
    );
    let list = Request::List {
        after: String::new(),
    };
    assert_eq!(client.ask(list), Reply::Refused(Refusal::NotYetMember));
    assert_eq!(client.counter("requests_refused"), 1);
}

#[test]
fn a_daemon_that_nobody_admits_gives_up_in_time() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    let options = Options {
        socket: socket("hopeless"),
        join: Some(address),
        join_timeout: Duration::from_millis(700),
        ..Options::default()
    };
    let began = Instant::now();
    let why = format!("{:#}", run(options).unwrap_err());
    assert!(began.elapsed() < Duration::from_secs(10));
    let cause = format!("{address} does not answer");
    assert!(why.contains("gave up after 700ms"), "{why}");
    assert!(why.contains(&cause) && why.contains("UDP port"), "{why}");
}

#[test]
fn nonsense_datagrams_are_counted_and_change_nothing() {
    let daemon = Daemon::start(|_| {});
    let mut client = daemon.client();
    let peer = Peer::of(&mut client);
    let good = peer.bytes(&peer.join(4096));
    let expulsion = peer.bytes(&Message::Expelled);
    let mut cut = good.clone();
    cut.pop();
    let malformed: [&[u8]; 6] = [
        &[],
        b"PM",
        &[0xff; 100],
        &good[..31],
        &cut,
        &[good.clone(), vec![0; 2 * MAX_DATAGRAM]].concat(),
    ];
    for bytes in malformed {
        peer.send(bytes);
    }
    peer.send(&expulsion);
    until("all of them", || {
        client.counter("malformed") == 6 && client.counter("strangers") == 1
    });
    let status = client.status();
    assert_eq!((status.alive, status.problems.len()), (1, 0), "{status:?}");
    drop(client);
    daemon.end().unwrap();
}

#[test]
fn replayed_datagrams_do_nothing_twice() {
    let daemon = Daemon::start(|_| {});
    let mut client = daemon.client();
    let mut peer = Peer::of(&mut client);
    peer.become_member();
    let body = Call::Open {
        name: "once".into(),
        create: Some(SegmentSpec {
            size: ByteLen(4096),
            mode: 0o600,
            policy: Policy::default(),
            replicas: 0,
        }),
        exclusive: true,
        write: true,
        credentials: Credentials::root(),
    };
    let (call, floor) = (CallId(1), CallId(1));
    let open = peer.bytes(&Message::Call { call, floor, body });
    for _ in 0..3 {
        peer.send(&open);
        let Message::Reply { body, .. } = peer.hear() else {
            panic!("no reply");
        };
        assert!(
            matches!(body, Answer::Segment(_)),
            "executed once: {body:?}"
        );
    }
    let join = peer.bytes(&peer.join(4096));
    peer.send(&join);
    let ack = Message::PassAck(PassAck {
        subject: Subject::Lock(SyncKey {
            segment: SegmentId::new(NodeId(1), 7),
            number: 1,
        }),
        version: Version(3),
    });
    peer.say(&ack);
    until("the late acknowledgement", || client.counter("stale") >= 1);
    assert_eq!(client.status().alive, 2, "joining again is joining once");
}

fn open(name: &str, mode: u16, window: Window) -> Request {
    Request::Open {
        name: name.into(),
        create: Some(SegmentSpec {
            size: ByteLen(4096),
            mode,
            policy: Policy::Sequential {
                manager: pagemesh_wire::peer::Manager::Dynamic,
                window,
            },
            replicas: 0,
        }),
        exclusive: true,
        write: true,
    }
}

#[test]
fn impossible_modes_and_windows_are_refused_with_the_limit() {
    let daemon = Daemon::start(|_| {});
    let mut client = daemon.client();
    let mut why = |request| match client.ask(request) {
        Reply::Refused(Refusal::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(why(open("sticky", 0o1777, Window::Auto)).contains("777"));
    let day = Window::Nanos(86_400_000_000_000);
    assert!(why(open("slow", 0o600, day)).contains("10s"));
    drop(client);
    daemon.end().unwrap();
}

#[test]
fn impossible_announcements_are_refused() {
    let daemon = Daemon::start(|_| {});
    let mut client = daemon.client();
    let segment = client.open("announced", 4, true).0.id;
    let mut announce = |ranges: Vec<(u32, u32)>| {
        let ranges = ranges.into_iter();
        let ranges = ranges.map(|(first, count)| (PageIndex(first), PageCount(count)));
        let ranges = ranges.collect();
        client.ask(Request::WillNeed { segment, ranges })
    };
    assert_eq!(announce(vec![(3, 1), (0, 4)]), Reply::Done);
    let most = vec![(1, 1); Request::RANGES + 1];
    let nowhere = (u32::MAX, u32::MAX);
    for wrong in [
        vec![],
        vec![(0, 1), (3, 2)],
        vec![(0, 0)],
        vec![nowhere],
        most,
    ] {
        let reply = announce(wrong.clone());
        assert!(
            matches!(reply, Reply::Refused(Refusal::Invalid(_))),
            "{wrong:?}: {reply:?}"
        );
    }
    drop(client);
    daemon.end().unwrap();
}

#[test]
fn a_program_of_another_release_is_told_both_versions() {
    let daemon = Daemon::start(|_| {});
    let socket = Socket::connect(&daemon.socket).unwrap();
    let version = LOCAL_VERSION + 1;
    let program = "future".into();
    let packet = RequestPacket {
        number: 1,
        request: Request::Hello { version, program },
    };
    socket.send(&packet.encode(), &[]).unwrap();
    let mut buffer = [0; 4096];
    let got = socket.recv(&mut buffer).unwrap().unwrap();
    let reply = ReplyPacket::decode(&buffer[..got.len]).unwrap().reply;
    let Reply::Refused(Refusal::Invalid(why)) = reply else {
        panic!("{reply:?}");
    };
    assert!(why.contains("speaks versions 6 to 9"), "{why}");
    assert!(why.contains("the program version 10"), "{why}");
    daemon.end().unwrap();
}

/// A program that was started before its daemon was replaced gets replies as it knows them, also
/// after a hello in a version that the daemon does not speak.
#[test]
fn a_program_of_the_former_version_is_spoken_with() {
    let daemon = Daemon::start(|_| {});
    let socket = Socket::connect(&daemon.socket).unwrap();
    let mut buffer = [0; 4096];
    let mut ask = |number, request| {
        let packet = RequestPacket { number, request };
        socket.send(&packet.encode(), &[]).unwrap();
        let got = socket.recv(&mut buffer).unwrap().unwrap();
        ReplyPacket::decode(&buffer[..got.len]).unwrap().reply
    };
    let mut hello = |number, version| {
        let program = "former".into();
        ask(number, Request::Hello { version, program })
    };
    assert!(matches!(hello(1, LOCAL_VERSION + 1), Reply::Refused(_)));
    assert!(matches!(
        hello(2, OLDEST_LOCAL_VERSION),
        Reply::Welcome { .. }
    ));
    let Reply::Members { members, .. } = ask(3, Request::Members) else {
        panic!("not as version 6 knows it");
    };
    assert_eq!(members.len(), 1);
    let mut present = daemon.client();
    let Reply::Everyone {
        spoken, members, ..
    } = present.ask(Request::Members)
    else {
        panic!("not as version 7 knows it");
    };
    assert_eq!(spoken, PROTOCOL_VERSION);
    assert_eq!(members[0].program.speaks, Versions::SPOKEN);
    drop(present);
    daemon.end().unwrap();
}

fn limit(daemon: &Process, resource: Resource, limit: Option<u64>) -> Rlimit {
    let limits = Rlimit {
        current: limit,
        maximum: getrlimit(resource).maximum,
    };
    prlimit(Some(Pid::from_child(&daemon.0)), resource, limits).unwrap()
}

/// A limit that leaves it no descriptor but the numbers it has left out so far.
fn all_descriptors(daemon: &Process) -> u64 {
    let path = format!("/proc/{}/fd", daemon.0.id());
    let entries = std::fs::read_dir(path).unwrap().flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u64>().ok();
    entries.filter_map(number).max().unwrap() + 1
}

/// The reply to a hello.
fn greeting(path: &Path) -> (Socket, Reply) {
    let socket = Socket::connect(path).unwrap();
    let hello = RequestPacket {
        number: 1,
        request: Request::Hello {
            version: LOCAL_VERSION,
            program: "test".into(),
        },
    };
    let _ = socket.send(&hello.encode(), &[]);
    let mut buffer = [0; 4096];
    let got = socket.recv(&mut buffer).unwrap().expect("a reply");
    let reply = ReplyPacket::decode(&buffer[..got.len]).unwrap().reply;
    (socket, reply)
}

#[test]
fn a_daemon_without_descriptors_says_so_and_recovers() {
    if !permitted() {
        return;
    }
    let path = socket("poor");
    let (daemon, mut one) = Process::daemon(&path, &["-", "auto", "false"]);
    let (info, _memory, _area) = one.open("mine", 1, true);
    let before = limit(&daemon, Resource::Nofile, Some(all_descriptors(&daemon)));
    let mut others = Vec::new();
    let why = loop {
        match greeting(&path) {
            (socket, Reply::Welcome { .. }) => others.push(socket),
            (_, Reply::Refused(why)) => break why.to_string(),
            (_, other) => panic!("{other:?}"),
        }
    };
    assert!(why.contains("LimitNOFILE"), "{why}");
    assert_eq!(one.counter("sessions_turned_away"), 1);
    let map = Request::Map {
        segment: info.id,
        address: 0x7000_0000_0000,
        length: ByteLen(4096),
        offset: pagemesh_wire::ByteOffset(0),
        write: true,
    };
    let (uffd, _) = pagemesh_os::uffd::Uffd::create(None).unwrap();
    let refused = one.ask_with(map, &[uffd.into()]);
    assert!(
        matches!(refused, Reply::Refused(Refusal::Limit(_))),
        "the session goes on: {refused:?}"
    );
    limit(&daemon, Resource::Nofile, before.current);
    let segment = one.attach("mine", 1, true);
    segment.store(0, 0, 7);
    assert_eq!(segment.load(0, 0), 7);
}

#[test]
fn a_daemon_without_memory_for_a_segment_says_so_and_recovers() {
    if !permitted() {
        return;
    }
    let path = socket("full");
    let (daemon, mut one) = Process::daemon(&path, &["-", "auto", "false"]);
    let before = limit(&daemon, Resource::Fsize, Some(4096));
    let refused = one.ask(open("large", 0o600, Window::Auto));
    let Reply::Refused(why) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        why.to_string().contains("no memory for the segment"),
        "{why}"
    );
    limit(&daemon, Resource::Fsize, before.current);
    let segment = one.attach("large", 1, true);
    segment.store(0, 0, 7);
    assert_eq!(segment.load(0, 0), 7);
}

#[test]
fn a_page_that_finds_no_memory_is_not_lost() {
    if !permitted() {
        return;
    }
    let paths = ["memoryless", "giver", "taker"].map(socket);
    let (daemon, mut one) = Process::daemon(&paths[0], &["-", "auto", "false"]);
    let address = one.status().address;
    let join = ["-", "auto", "false", &address];
    let (_giver, mut two) = Process::daemon(&paths[1], &join);
    let (_taker, mut three) = Process::daemon(&paths[2], &join);
    let (_, _memory, _area) = one.open("moved", 4, true);
    let given = two.attach("moved", 4, true);
    given.store(3, 0, 7);
    let before = limit(&daemon, Resource::Fsize, Some(4096));
    let reply = two.ask(Request::Leave);
    assert_eq!(reply, Reply::Done, "the page went to a node without memory");
    let taken = three.attach("moved", 4, true);
    assert_eq!(taken.load(3, 0), 7);
    taken.store(3, 0, 8);
    limit(&daemon, Resource::Fsize, before.current);
    let here = one.attach("moved", 4, true);
    assert_eq!(here.load(3, 0), 8);
}

#[test]
fn what_a_process_said_last_is_heard_although_it_read_no_answers() {
    if !permitted() {
        return;
    }
    let path = socket("last-words");
    let (daemon, mut one) = Process::daemon(&path, &["-", "auto", "false"]);
    let (_, _memory, _area) = one.open("doomed", 1, true);
    let mut two = Client::hello(Socket::connect(&path).unwrap());
    two.send(Request::Counters, &[]);
    let unread = |two: &Client| rustix::io::ioctl_fionread(&two.socket).unwrap();
    until("an answer that nobody reads", || unread(&two) > 0);
    let process = Pid::from_child(&daemon.0);
    kill_process(process, Signal::STOP).unwrap();
    for name in ["nothing", "doomed"] {
        two.send(Request::Remove { name: name.into() }, &[]);
    }
    drop(two);
    kill_process(process, Signal::CONT).unwrap();
    let stat = Request::Stat {
        name: "doomed".into(),
    };
    until("the removal", || {
        one.ask(stat.clone()) == Reply::Refused(Refusal::NotFound)
    });
}
