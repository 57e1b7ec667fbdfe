//! Hosts, programs, files and the network between them, in one queue of events.

use super::{Files, FilesMistake, FilesSeen};
use crate::dice::Dice;
use crate::network::{Network, kind, legible};
use crate::plan::{pace, weather};
use crate::small::{self, Check, Log, Queue};
use pagemesh_core::{Budgets, Input, Node, Pace, Placement, Reply, Time};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::header::Header;
use pagemesh_wire::local::FileFrames;
use pagemesh_wire::peer::{FilePart, Message, Refusal};
use pagemesh_wire::{ClusterId, PageCount, PageIndex, PublicKey, SegmentId, Ticket};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

mod program;

/// One daemon with its program.
pub(super) struct Host {
    pub(super) node: Node,
    frames: BTreeMap<(SegmentId, u32), u64>,
    /// Pages kept for others, by slot.
    pub(super) stash: BTreeMap<u32, u64>,
    program: Program,
    budget: u32,
    lend: u32,
    placement: Placement,
    gone: bool,
    deadline: Option<Time>,
}

/// A program that has up to one request open.
struct Program {
    segment: Option<SegmentId>,
    /// Frames of its segment.
    frames: u32,
    /// Parts still to be read.
    left: u32,
    ticket: Ticket,
    asked: Option<Asked>,
    /// What it got and reads from, the oldest first.
    got: VecDeque<(Asked, FileFrames)>,
    leaves: bool,
    /// Versions of files as they were opened.
    opened: SortedMap<usize, u64>,
}

/// A part of a file that was asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    file: usize,
    /// The version of the file when it was opened.
    version: u64,
    part: FilePart,
    at: Time,
}

/// The events, in order of time and then of scheduling.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrival {
        to: usize,
        source: SocketAddr,
        bytes: Vec<u8>,
    },
    Deadline(usize),
    /// The program goes on.
    Run(usize),
    Crash(usize),
    Return(usize),
    Leave(usize),
    Budget(usize, u32),
    Change(usize),
}

/// All of it.
pub(super) struct Cluster {
    queue: Queue<Happening>,
    pub(super) hosts: Vec<Host>,
    /// The versions of files.
    files: Vec<u64>,
    network: Network,
    dice: Dice,
    options: Files,
    cluster: ClusterId,
    pace: Pace,
    last: u64,
    log: Log,
    pub(super) seen: FilesSeen,
}

/// Steps that are remembered for reports.
const LINES: usize = 4_000;

/// Far more than any run needs: nodes send the same again and again.
const STORM: u64 = 2_000_000;

/// Far longer than a lookup may take.
const PATIENCE: u64 = 20_000_000_000;

/// Far longer than any run needs: something hangs.
const END: Time = Time(900_000_000_000);

/// The contents of a page: no two pages and no two versions have the same.
fn contents(file: usize, version: u64, page: PageIndex) -> u64 {
    (file as u64) << 56 | version << 32 | u64::from(page.0)
}

impl Cluster {
    pub(super) fn new(options: Files) -> Self {
        let mut dice = Dice::stream(options.seed, "files");
        let weather = weather(&mut dice, options.profile);
        let hosts = dice.between(2, 5) as usize;
        let files = dice.between(1, 4) as usize;
        let pace = pace(&mut dice);
        let mut cluster = Self {
            queue: Queue::new(),
            hosts: Vec::new(),
            files: vec![1; files],
            network: Network::new(options.seed, weather, None),
            cluster: ClusterId(dice.number() | 1),
            pace,
            dice,
            options,
            last: 0,
            log: Log::new(LINES),
            seen: FilesSeen::default(),
        };
        for host in 0..hosts {
            let new = cluster.new_host(host);
            cluster.hosts.push(new);
            let late = host > 0 && cluster.dice.chance(300);
            let joins = if late {
                cluster.dice.between(1_000_000, 900_000_000)
            } else {
                1_000 + host as u64
            };
            cluster.schedule(Time(joins), Happening::Deadline(host));
            let at = joins + cluster.dice.between(10_000_000, 60_000_000);
            cluster.schedule(Time(at), Happening::Run(host));
        }
        cluster.plan_misfortune(hosts);
        cluster
    }

    /// Hosts vanish, come back and leave, budgets shrink and grow, files are changed.
    fn plan_misfortune(&mut self, hosts: usize) {
        for _ in 0..self.dice.below(3) {
            let host = 1 + self.dice.index(hosts - 1);
            let at = self.dice.between(20_000_000, 1_500_000_000);
            if self.dice.chance(300) {
                self.schedule(Time(at), Happening::Leave(host));
                continue;
            }
            self.schedule(Time(at), Happening::Crash(host));
            if self.dice.chance(700) {
                let back = at + self.dice.between(1_000_000, 9_000_000_000);
                self.schedule(Time(back), Happening::Return(host));
            }
        }
        for _ in 0..self.dice.below(6) {
            let host = self.dice.index(hosts);
            let at = self.dice.between(20_000_000, 2_000_000_000);
            let budget = *self.dice.pick(&[0, 3, 20, u32::MAX]);
            self.schedule(Time(at), Happening::Budget(host, budget));
        }
        for _ in 0..self.dice.below(30) {
            let file = self.dice.index(self.files.len());
            let at = self.dice.between(20_000_000, 2_000_000_000);
            self.schedule(Time(at), Happening::Change(file));
        }
    }

    fn new_host(&mut self, host: usize) -> Host {
        let incarnation = self.dice.number() | 1;
        let config = small::config(host, self.cluster, incarnation, self.pace);
        Host {
            node: Node::new(config),
            frames: BTreeMap::new(),
            stash: BTreeMap::new(),
            lend: *self.dice.pick(&[0, 3, 40, 100]),
            placement: *self.dice.pick(&[
                Placement::Epoch,
                Placement::Epoch,
                Placement::Random,
                Placement::NChance,
                Placement::None,
            ]),
            program: Program {
                segment: None,
                frames: *self.dice.pick(&[2, 9, 30, 200]),
                left: self.dice.between(30, 200) as u32,
                ticket: Ticket(0),
                asked: None,
                got: VecDeque::new(),
                leaves: false,
                opened: SortedMap::new(),
            },
            budget: u32::MAX,
            gone: false,
            deadline: None,
        }
    }

    fn schedule(&mut self, at: Time, event: Happening) {
        self.queue.schedule(at, event);
    }

    pub(super) fn time(&self) -> Time {
        self.queue.now()
    }

    pub(super) fn note(&mut self, host: usize, what: impl FnOnce() -> String) {
        self.log.note(self.queue.now(), host, what);
    }

    pub(super) fn plants(&self, mistake: FilesMistake) -> bool {
        self.options.planted == Some(mistake)
    }

    pub(super) fn run(mut self) -> Result<FilesSeen, String> {
        while let Some(event) = self.queue.next() {
            let mut result = self.happen(event);
            if self.queue.scheduled() > STORM {
                result = Err("INV-progress: a storm".into());
            }
            if self.time() > END {
                result = Err("INV-progress: a program hangs".into());
            }
            if let Err(why) = result {
                return Err(format!("{}\n{why}", self.log.lines()));
            }
            let idle = |host: &Host| host.gone || host.program.left == 0;
            if self.hosts.iter().all(idle) {
                return Ok(self.seen);
            }
        }
        Err("nothing will ever happen again".into())
    }

    fn happen(&mut self, event: Happening) -> Check {
        let host = match &event {
            Happening::Arrival { to: host, .. }
            | Happening::Deadline(host)
            | Happening::Run(host)
            | Happening::Crash(host)
            | Happening::Return(host)
            | Happening::Leave(host)
            | Happening::Budget(host, _) => *host,
            Happening::Change(file) => {
                self.files[*file] += 1;
                self.seen.changed += 1;
                return Ok(());
            }
        };
        if self.hosts[host].gone && !matches!(event, Happening::Return(_)) {
            return Ok(());
        }
        match event {
            Happening::Arrival { source, bytes, .. } => self.arrive(host, source, &bytes),
            // Another one was scheduled since.
            Happening::Deadline(_)
                if self.hosts[host]
                    .deadline
                    .is_some_and(|at| at != self.time()) =>
            {
                Ok(())
            }
            Happening::Deadline(_) => {
                self.hosts[host].deadline = None;
                small::input(self, host, Input::Deadline)
            }
            Happening::Run(_) => self.step(host),
            Happening::Crash(_) => {
                self.note(host, || "vanishes".into());
                self.hosts[host].gone = true;
                self.seen.crashed += 1;
                Ok(())
            }
            Happening::Return(_) => {
                if self.hosts[host].gone {
                    self.note(host, || "is back, without memory".into());
                    self.hosts[host] = self.new_host(host);
                    self.schedule(self.time(), Happening::Deadline(host));
                    let soon = Time(self.time().0 + 50_000_000);
                    self.schedule(soon, Happening::Run(host));
                }
                Ok(())
            }
            Happening::Leave(_) => {
                self.hosts[host].program.leaves = true;
                Ok(())
            }
            Happening::Budget(_, budget) => {
                self.note(host, || format!("has {budget} pages of memory"));
                self.hosts[host].budget = budget;
                if self.dice.chance(300) {
                    self.hosts[host].lend = *self.dice.pick(&[0, 3, 40]);
                }
                self.tell_budgets(host)
            }
            Happening::Change(_) => Ok(()),
        }
    }

    /// What the host gives to its node.
    fn tell_budgets(&mut self, host: usize) -> Check {
        let ignored = u32::from(self.plants(FilesMistake::LendIgnored));
        let state = &self.hosts[host];
        let budgets = Budgets {
            memory: PageCount(state.budget),
            lend: PageCount(state.lend + 50 * ignored),
            placement: state.placement,
            ..Budgets::default()
        };
        small::input(self, host, Input::Budgets(budgets))
    }

    fn arrive(&mut self, host: usize, source: SocketAddr, bytes: &[u8]) -> Check {
        let (_, message, _) = Message::decode(bytes).map_err(|why| why.to_string())?;
        self.note(host, || format!("<- {}", legible(&message)));
        let input = Input::Datagram {
            source,
            key: PublicKey::NONE,
            bytes,
        };
        small::input(self, host, input)
    }

    /// The node of a host wants to be called at this time.
    pub(super) fn call_at(&mut self, host: usize, due: Time) {
        let state = &mut self.hosts[host];
        if state.deadline.is_none_or(|at| due < at) {
            let at = due.max(Time(self.queue.now().0 + 1));
            state.deadline = Some(at);
            self.schedule(at, Happening::Deadline(host));
        }
    }

    /// INV-budget: no more frames have contents than the segment has frames, and no more than the
    /// host has memory for, but for frames that the program reads from or waits for.
    pub(super) fn budget_holds(&self, host: usize) -> Check {
        let state = &self.hosts[host];
        let program = &state.program;
        let (kept, lend) = (state.stash.len(), state.lend as usize);
        if kept > lend {
            return Err(format!(
                "INV-budget: {kept} pages kept for others, {lend} lent"
            ));
        }
        let full = state.frames.len();
        let got = program.got.iter().map(|(_, frames)| frames.frames.len());
        let asked = program
            .asked
            .map_or(0, |asked| asked.part.pages.count_ones());
        let pinned = got.sum::<usize>() + asked as usize;
        let most = pinned.max(state.budget as usize);
        if full > most.min(program.frames as usize) {
            return Err(format!(
                "INV-budget: {full} frames have contents, {} there are, {most} are allowed",
                program.frames
            ));
        }
        Ok(())
    }

    pub(super) fn transmit(
        &mut self,
        host: usize,
        (to, header): (usize, Header),
        message: &Message,
        behind: &[u8],
    ) {
        let mut bytes = Vec::new();
        message.encode(header, &mut bytes);
        bytes.extend_from_slice(behind);
        self.seen.datagrams += 1;
        self.note(host, || format!("-> h{} {}", to + 1, legible(message)));
        let source = small::address(host);
        let now = self.time();
        let fate = self.network.fate(now, host, to, kind(message));
        for at in fate.arrivals(now) {
            let bytes = bytes.clone();
            self.schedule(at, Happening::Arrival { to, source, bytes });
        }
    }

    pub(super) fn frame(&self, host: usize, segment: SegmentId, frame: u32) -> Option<u64> {
        self.hosts[host].frames.get(&(segment, frame)).copied()
    }

    pub(super) fn put(&mut self, host: usize, segment: SegmentId, frame: u32, value: u64) {
        self.hosts[host].frames.insert((segment, frame), value);
    }

    pub(super) fn empty(&mut self, host: usize, segment: SegmentId, frame: u32) {
        self.hosts[host].frames.remove(&(segment, frame));
    }

    pub(super) fn lose(&mut self, host: usize, segment: SegmentId) {
        self.hosts[host].frames.retain(|(of, _), _| *of != segment);
        if segment == SegmentId::KEPT_FILES {
            self.hosts[host].stash.clear();
        }
    }

    pub(super) fn replied(&mut self, host: usize, ticket: Ticket, reply: Reply) -> Check {
        let again = Time(self.time().0 + 1 + self.dice.below(3_000_000));
        let is_out = self.hosts[host].node.out().is_some();
        let program = &mut self.hosts[host].program;
        if ticket != program.ticket {
            // Of giving frames back.
            return Ok(());
        }
        match reply {
            Reply::Segment(info) => program.segment = Some(info.id),
            Reply::Refused(Refusal::NotYetMember) => {}
            Reply::Refused(_) if is_out => program.left = 0,
            Reply::Refused(Refusal::NotMember) | Reply::Done => {
                program.left = 0;
                self.seen.left += 1;
            }
            Reply::FilePages(frames) => {
                let asked = program.asked.take().ok_or("nothing was asked for")?;
                self.check_reply(host, &asked, &frames)?;
                self.hosts[host].program.got.push_back((asked, frames));
                self.check_contents(host)?;
            }
            other => return Err(format!("an answer without sense: {other:?}")),
        }
        self.schedule(again, Happening::Run(host));
        Ok(())
    }

    /// An answer names a frame for each page, no frame twice, and comes in time.
    fn check_reply(&mut self, host: usize, asked: &Asked, frames: &FileFrames) -> Check {
        let all = frames.all();
        let sets = [frames.here, frames.came, frames.missing];
        let ones: u32 = sets.iter().map(|set| set.count_ones()).sum();
        let mut numbers = frames.frames.clone();
        numbers.sort_unstable();
        numbers.dedup();
        let count = all.count_ones();
        if ones != count || all & !asked.part.pages != 0 || numbers.len() != count as usize {
            return Err(format!("INV-shared-frames: {frames:?} answers {asked:?}"));
        }
        let took = self.time().0 - asked.at.0;
        if took > PATIENCE {
            return Err(format!(
                "INV-progress: a lookup took {took} ns on h{}",
                host + 1
            ));
        }
        let bits = |set: u64| u64::from(set.count_ones());
        self.seen.reads += bits(asked.part.pages);
        self.seen.here += bits(frames.here);
        self.seen.came += bits(frames.came);
        self.seen.missing += bits(frames.missing);
        self.seen.frameless += bits(asked.part.pages & !all);
        Ok(())
    }

    /// INV-shared-version: frames that a program reads from have the contents of the version that
    /// it opened.
    fn check_contents(&self, host: usize) -> Check {
        let program = &self.hosts[host].program;
        let Some(segment) = program.segment else {
            return Ok(());
        };
        for (asked, frames) in &program.got {
            for page in asked.part.with(frames.here | frames.came).each() {
                let frame = frames.frame(page.0 % FilePart::PAGES).ok_or("no frame")?;
                let value = self.frame(host, segment, frame.0);
                let wanted = contents(asked.file, asked.version, page);
                if value != Some(wanted) {
                    return Err(format!(
                        "INV-shared-version: h{} reads {value:x?} of {page} from {frame}, where \
                         {wanted:x} is",
                        host + 1
                    ));
                }
            }
        }
        Ok(())
    }
}
