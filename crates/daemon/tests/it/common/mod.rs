//! Daemons in threads of the test, and a client that speaks their protocol
//! with nothing between.

#![allow(dead_code, missing_docs, reason = "not every test uses everything")]

use pagemesh_daemon::{Options, Waiting, run};
use pagemesh_os::memfd::PAGE;
use pagemesh_os::netns::die_with_parent;
use pagemesh_os::request_slot::RequestSlot;
use pagemesh_os::seqpacket::Socket;
use pagemesh_os::uffd::{Kind, Uffd};
use pagemesh_wire::local::{
    LOCAL_VERSION, MAX_PACKET, NodeStatus, Reply, ReplyPacket, Request, RequestPacket,
};
use pagemesh_wire::peer::{Policy, SegmentInfo, SegmentSpec};
use pagemesh_wire::{ByteLen, ByteOffset, ClientId, MappingId};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A daemon in a thread.
pub struct Daemon {
    pub socket: PathBuf,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

/// Whether this machine lets us test; says why not.
pub fn permitted() -> bool {
    let permitted = Uffd::create(None).is_ok();
    if !permitted {
        eprintln!("skipped: userfaultfd is not permitted here (run as root)");
    }
    permitted
}

static SERIAL: AtomicU32 = AtomicU32::new(0);

impl Daemon {
    pub fn start(change: impl FnOnce(&mut Options)) -> Self {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let socket = socket(&serial.to_string());
        let mut options = Options {
            name: format!("node{serial}"),
            socket: socket.clone(),
            waiting: Waiting::Auto,
            ..Options::default()
        };
        change(&mut options);
        let thread = std::thread::spawn(move || run(options));
        let daemon = Self {
            socket,
            thread: Some(thread),
        };
        daemon.wait_until_admitted();
        daemon
    }

    pub fn joining(first: &Self, change: impl FnOnce(&mut Options)) -> Self {
        let address = first.client().status().address.parse().unwrap();
        Self::start(|options| {
            options.join = Some(address);
            change(options);
        })
    }

    fn wait_until_admitted(&self) {
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            if let Ok(socket) = Socket::connect(&self.socket)
                && Client::hello(socket).status().node.is_valid()
            {
                return;
            }
            if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the daemon did not start");
    }

    pub fn client(&self) -> Client {
        Client::hello(Socket::connect(&self.socket).unwrap())
    }

    /// Leaves in order and ends.
    pub fn end(mut self) -> anyhow::Result<()> {
        assert_eq!(self.client().ask(Request::Leave), Reply::Done);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Daemons and programs that are processes of their own. Dropped, they are
/// killed. Processes that share a page table would interrupt each other at every
/// change of it; and a thread cannot be killed.
pub struct Process(pub std::process::Child);

impl Process {
    /// The test named `child_process` of this very binary, in another process.
    pub fn start(role: &str, socket: &Path, words: &[&str]) -> Self {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child_process", "--ignored", "--nocapture"])
            .env("PAGEMESH_TEST_ROLE", role)
            .env("PAGEMESH_TEST_SOCKET", socket)
            .env("PAGEMESH_TEST_WORDS", words.join(" "))
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        die_with_parent(&mut command);
        Self(command.spawn().unwrap())
    }

    /// A daemon; waits until it is a member. Words: processor or `-`, `spin` or
    /// `block`, whether to keep processors awake, and whom to join.
    pub fn daemon(socket: &Path, words: &[&str]) -> (Self, Client) {
        let process = Self::start("daemon", socket, words);
        (process, wait_for(socket))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In a `child_process`: plays the daemon, or says which other role to play.
pub fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var("PAGEMESH_TEST_ROLE").ok()?;
    let socket = PathBuf::from(std::env::var("PAGEMESH_TEST_SOCKET").unwrap());
    if role != "daemon" {
        return Some((role, socket));
    }
    let words = std::env::var("PAGEMESH_TEST_WORDS").unwrap();
    let words: Vec<_> = words.split(' ').collect();
    let options = Options {
        name: role,
        socket,
        cpu: words[0].parse().ok(),
        waiting: match words[1] {
            "spin" => Waiting::Spin,
            "block" => Waiting::Block,
            _ => Waiting::Auto,
        },
        latency: words[2] == "true",
        join: words.get(3).and_then(|address| address.parse().ok()),
        ..Options::default()
    };
    run(options).unwrap();
    None
}

/// The prefix of the names of all sockets of these tests; then comes their process.
const PREFIX: &str = "pagemesh-test-";

/// A path for a socket of this test.
pub fn socket(name: &str) -> PathBuf {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(sweep);
    std::env::temp_dir().join(format!("{PREFIX}{}-{name}.sock", std::process::id()))
}

/// Daemons that were killed, or ended with their test, left their sockets behind.
fn sweep() {
    let found = std::fs::read_dir(std::env::temp_dir())
        .into_iter()
        .flatten();
    for entry in found.flatten() {
        let name = entry.file_name();
        let ours = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let of = ours.and_then(|rest| rest.split('-').next());
        if of.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Connects to a daemon that is about to become a member.
pub fn wait_for(socket: &Path) -> Client {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if let Ok(socket) = Socket::connect(socket) {
            let mut client = Client::hello(socket);
            if client.status().node.is_valid() {
                return client;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the daemon did not start");
}

/// Waits for something that happens soon.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process, as far as a daemon can tell.
pub struct Client {
    pub socket: Socket,
    pub id: ClientId,
    number: u64,
    fds: Vec<OwnedFd>,
    /// `/dev/userfaultfd`, lent by the daemon.
    device: Option<OwnedFd>,
}

impl Client {
    pub fn hello(socket: Socket) -> Self {
        let mut client = Self {
            socket,
            id: ClientId(0),
            number: 0,
            fds: Vec::new(),
            device: None,
        };
        let hello = Request::Hello {
            version: LOCAL_VERSION,
            program: "test".into(),
        };
        match client.ask(hello) {
            Reply::Welcome { client: id, .. } => {
                client.id = id;
                client.device = client.fds.pop();
            }
            other => panic!("{other:?}"),
        }
        client
    }

    pub fn send(&mut self, request: Request, fds: &[OwnedFd]) -> u64 {
        self.number += 1;
        let packet = RequestPacket {
            number: self.number,
            request,
        };
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        self.socket.send(&packet.encode(), &fds).unwrap();
        self.number
    }

    pub fn receive(&mut self) -> Option<ReplyPacket> {
        let mut buffer = vec![0; MAX_PACKET];
        let received = self.socket.recv(&mut buffer).unwrap()?;
        self.fds = received.fds;
        Some(ReplyPacket::decode(&buffer[..received.len]).unwrap())
    }

    /// Asks and waits for the answer; for tests that ask one thing at a time.
    pub fn ask(&mut self, request: Request) -> Reply {
        self.ask_with(request, &[])
    }

    pub fn ask_with(&mut self, request: Request, fds: &[OwnedFd]) -> Reply {
        let number = self.send(request, fds);
        let packet = self.receive().expect("the daemon answers");
        assert_eq!(packet.number, number);
        packet.reply
    }

    pub fn status(&mut self) -> NodeStatus {
        match self.ask(Request::Status) {
            Reply::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    pub fn request_slot(&mut self) -> RequestSlot {
        assert_eq!(self.ask(Request::RequestSlot), Reply::RequestSlot);
        RequestSlot::map(self.fds.pop().expect("its memory")).unwrap()
    }

    pub fn counter(&mut self, name: &str) -> u64 {
        match self.ask(Request::Counters) {
            Reply::Counters(counters) => counters.iter().find(|(of, _)| of == name).unwrap().1,
            other => panic!("{other:?}"),
        }
    }

    /// Creates or opens a segment, and maps all of it.
    pub fn attach(&mut self, name: &str, pages: usize, write: bool) -> Segment {
        let (info, memory, area) = self.open(name, pages, write);
        self.map(Segment::new(info, memory, area, write), write)
    }

    /// Maps the segment whose descriptors have just come.
    pub fn map_lent(&mut self, info: SegmentInfo, write: bool) -> Segment {
        let [memory, area] = self.lent().try_into().expect("two descriptors");
        self.map(Segment::new(info, memory, area, write), write)
    }

    fn map(&mut self, mut segment: Segment, write: bool) -> Segment {
        let (reply, uffd) = self.ask_to_map(segment.request(write));
        segment.uffd = Some(uffd);
        match reply {
            Reply::Mapped { mapping } => segment.mapping = mapping,
            other => panic!("{other:?}"),
        }
        segment
    }

    /// Asks for a mapping to be served, by this userfaultfd.
    pub fn ask_to_map(&mut self, request: Request) -> (Reply, OwnedFd) {
        let device = self.device.as_ref().map(AsFd::as_fd);
        let (uffd, kind) = Uffd::create(device).unwrap();
        assert_eq!(kind, Kind::Device);
        let uffd = OwnedFd::from(uffd);
        let kept = uffd.try_clone().unwrap();
        (self.ask_with(request, &[uffd]), kept)
    }

    /// The descriptors that came with the last answer.
    pub fn lent(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }

    pub fn open(
        &mut self,
        name: &str,
        pages: usize,
        write: bool,
    ) -> (SegmentInfo, OwnedFd, OwnedFd) {
        let create = SegmentSpec {
            size: ByteLen((pages * PAGE) as u64),
            mode: 0o600,
            policy: Policy::default(),
            replicas: 0,
        };
        let open = Request::Open {
            name: name.into(),
            create: Some(create),
            exclusive: false,
            write,
        };
        match self.ask(open) {
            Reply::Opened { info } => {
                let area = self.fds.pop().unwrap();
                (info, self.fds.pop().unwrap(), area)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A mapped segment.
pub struct Segment {
    pub info: SegmentInfo,
    pub memory: OwnedFd,
    pub area: OwnedFd,
    pub mapping: MappingId,
    uffd: Option<OwnedFd>,
    base: *mut std::ffi::c_void,
    length: usize,
}

// SAFETY: the memory is shared by nature, and accessed only atomically.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    fn new(info: SegmentInfo, memory: OwnedFd, area: OwnedFd, write: bool) -> Self {
        let length = info.spec.size.pages().unwrap().bytes().0 as usize;
        let (rights, flags) = if write {
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
        } else {
            (ProtFlags::READ, MapFlags::PRIVATE)
        };
        // SAFETY: a new mapping at a place the kernel chooses.
        let base =
            unsafe { mmap(std::ptr::null_mut(), length, rights, flags, &memory, 0) }.unwrap();
        Self {
            info,
            memory,
            area,
            mapping: MappingId(0),
            uffd: None,
            base,
            length,
        }
    }

    pub fn request(&self, write: bool) -> Request {
        Request::Map {
            segment: self.info.id,
            address: self.base as u64,
            length: ByteLen(self.length as u64),
            offset: ByteOffset(0),
            write,
        }
    }

    pub fn word(&self, page: usize, word: usize) -> &AtomicU64 {
        assert!((page + 1) * PAGE <= self.length && word < PAGE / 8);
        // SAFETY: inside the mapping, aligned, and only ever used atomically.
        unsafe { AtomicU64::from_ptr(self.base.cast::<u64>().add(page * PAGE / 8 + word)) }
    }

    pub fn load(&self, page: usize, word: usize) -> u64 {
        self.word(page, word).load(Ordering::SeqCst)
    }

    pub fn store(&self, page: usize, word: usize, value: u64) {
        self.word(page, word).store(value, Ordering::SeqCst);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; words borrow from `self`.
        let _ = unsafe { munmap(self.base, self.length) };
    }
}
