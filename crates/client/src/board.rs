//! Boards: state that one process publishes and many watch, whole and always the newest.
//!
//! A board is a segment of policy `views`: one page that describes it, and some slots, each of
//! which has one state with its number. A publication fills the slot whose turn it is and sends its
//! pages as one; readers never wait for the writer, nor the writer for readers. A checksum shows a
//! reader a slot that is being written.

mod layout;
mod turn;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pagemesh_wire::local::{Request, View};
use pagemesh_wire::{NodeId, PageCount, PageIndex};

use layout::{HEAD, HISTORY, Head, LARGEST, Layout, SPARE};
use turn::{TURN, WRITERS};

use crate::bell::after;
use crate::mapping::{INCONSISTENT, Mapping};
use crate::segment::{Access, Options};
use crate::views::publish;
use crate::{Advice, Error, LockGuard, Mesh, Policy, Result, Segment};

/// Locks by which readers see whether the process of a writer is alive: each writer holds one.
const PRESENCE: std::ops::RangeInclusive<u32> = 1..=16;

/// How long a reader looks whether such a lock is free.
const GLANCE: Duration = Duration::from_millis(20);

/// Attempts to copy a state that is being overwritten; each finds a newer one.
const TRIES: usize = 1000;

/// Options that the creator of a board chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BoardOptions {
    /// Permission bits for owner, group and others, as of a file.
    pub mode: u16,
    /// States that stay readable, the newest included.
    pub history: u32,
    /// Other nodes that have the states, so that they outlive the node of their writer: 0 or 1.
    pub replicas: u8,
}

impl Default for BoardOptions {
    /// Mode 0600, only the newest state, and no replicas.
    fn default() -> Self {
        Self {
            mode: 0o600,
            history: 1,
            replicas: 0,
        }
    }
}

/// A state of a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its number; the first state has number 1.
    pub number: u64,
    /// The state.
    pub bytes: Vec<u8>,
    /// The node that published it.
    pub writer: NodeId,
    /// When it was published, by the clock of that node.
    pub published: SystemTime,
    /// States that this reader has not read between the last one it read and this one.
    pub missed: u64,
    /// This reader had read newer states, which are lost with the nodes that had them; their numbers
    /// are given again.
    pub went_back: bool,
    /// The lock that its writer holds; 0 if there was none left.
    presence: u32,
}

impl State {
    /// Time since it was published. Compares two hosts' clocks; zero if this one is behind.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.published.elapsed().unwrap_or_default()
    }
}

/// A board that this process has open.
#[derive(Debug)]
pub struct Board {
    segment: Segment,
    reader: Mapping,
    writer: Option<Mapping>,
    layout: Layout,
    /// The number of the state read last, and of the one that this writer published last.
    read: u64,
    written: u64,
    /// What was read last, without its bytes.
    shown: Option<State>,
    /// The lock that shows that this writer is alive, from its first publication on.
    presence: Option<(u32, LockGuard)>,
}

impl Board {
    /// Creates a board for states of at most `size` bytes, or opens the one of this name, to
    /// publish and to read.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sizes beyond 16 MiB, a history beyond 1024, or if the existing board
    /// is for smaller states or no board at all; [`Error::Refused`] as [`Mesh::create`].
    pub fn create(mesh: &Mesh, name: &str, size: usize, options: BoardOptions) -> Result<Self> {
        if size == 0 || size as u64 > LARGEST {
            return Err(Error::Invalid("a board has states of 1 byte to 16 MiB"));
        }
        if options.history == 0 || options.history > HISTORY {
            return Err(Error::Invalid("a board keeps 1 to 1024 states"));
        }
        let history = u64::from(options.history);
        let layout = Layout {
            size,
            slots: history + SPARE,
            history,
        };
        let policy = Policy::Views {
            prefix: layout.prefix(),
        };
        let segment_options = Options {
            mode: options.mode,
            policy,
            exclusive: false,
            replicas: options.replicas,
        };
        let segment = mesh.create(name, layout.bytes(), segment_options)?;
        let memory = segment.map()?;
        renew(&segment)?;
        let mut head = [0; 32];
        memory.read(0, &mut head)?;
        if head == [0; 32] {
            // Its creator is at work, or has died at it; a second creator writes the same.
            let _turn = segment.lock(WRITERS).lock_surely(Some(TURN))?;
            memory.read(0, &mut head)?;
            if head == [0; 32] {
                memory.write(0, &layout.encode())?;
                publish(&segment, false, &(0..32))?;
            }
        }
        let board = Self::over(segment, Some(memory))?;
        if board.layout.size < size {
            return Err(Error::Invalid(
                "the board of this name is for smaller states: remove it, or take another name",
            ));
        }
        Ok(board)
    }

    /// Opens a board.
    ///
    /// # Errors
    /// As [`Mesh::open`]; [`Error::Invalid`] if the segment is no board.
    pub fn open(mesh: &Mesh, name: &str, access: Access) -> Result<Self> {
        let segment = mesh.open(name, access)?;
        let writer = match access {
            Access::Writable => Some(segment.map()?),
            Access::ReadOnly => None,
        };
        Self::over(segment, writer)
    }

    fn over(segment: Segment, writer: Option<Mapping>) -> Result<Self> {
        if !segment.has_views() {
            return Err(Error::Invalid("this segment is no board"));
        }
        let memory = segment.map_view(INCONSISTENT)?;
        renew(&segment)?;
        let mut head = [0; 32];
        memory.read(0, &mut head)?;
        let layout = Layout::decode(&head, &segment)?;
        let view = View {
            short: layout.short(),
            ..INCONSISTENT
        };
        let reader = segment.map_view(view)?;
        Ok(Self {
            segment,
            reader,
            writer,
            layout,
            read: 0,
            written: 0,
            shown: None,
            presence: None,
        })
    }

    /// Bytes of the largest state.
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout.size
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.segment.name()
    }

    /// Publishes a state: it is sent to all nodes with readers, and this returns its number. Waits
    /// for no reader, only for other writers, which take turns. If one of them does not end its turn
    /// within a second (its process is stopped, say), this one goes on without it; the number that
    /// the stopped one has taken counts as missed.
    ///
    /// # Errors
    /// [`Error::Invalid`] for states larger than the board's, and for boards opened read-only;
    /// [`Error::TimedOut`] after two seconds, if two writers are stopped.
    pub fn publish(&mut self, state: &[u8]) -> Result<u64> {
        if self.writer.is_none() {
            return Err(Error::Invalid("the board was opened read-only"));
        }
        if state.len() > self.layout.size {
            return Err(Error::Invalid(
                "the state is larger than the board's states",
            ));
        }
        let turn = self.turn()?;
        let presence = self.show()?;
        let Some(memory) = &self.writer else {
            return Err(Error::Invalid("the board was opened read-only"));
        };
        let (number, bypass) = self.next(memory, &turn)?;
        let head = Head {
            number,
            nanos: nanos(),
            length: state.len() as u32,
            writer: self.segment.mesh().node().0,
            sum: 0,
            presence,
        };
        let sum = head.sum_of(state);
        let at = self.layout.at(number);
        memory.write(at + HEAD, state)?;
        memory.write(at, &Head { sum, ..head }.encode())?;
        let bytes = at as u64..(at + HEAD + state.len()) as u64;
        publish(&self.segment, self.layout.short(), &bytes)?;
        drop((turn, bypass));
        self.written = number;
        Ok(number)
    }

    /// Takes a lock that no other writer holds, for as long as the board is open; returns its number.
    fn show(&mut self) -> Result<u32> {
        let held = self.presence.as_ref().filter(|(_, guard)| guard.is_held());
        if let Some((number, _)) = held {
            return Ok(*number);
        }
        for number in PRESENCE {
            match self.segment.lock(number.into()).try_lock() {
                Ok(Some(guard)) => {
                    self.presence = Some((number, guard));
                    return Ok(number);
                }
                // Held, or the node with the lock is being given up.
                Ok(None) | Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }

    /// The newest whole state on this node; none if nothing was published yet. It is never older
    /// than the one read before, unless that one is lost with the nodes that had it: then
    /// [`State::went_back`] says so.
    ///
    /// # Errors
    /// If the memory cannot be accessed.
    pub fn read(&mut self) -> Result<Option<State>> {
        for _ in 0..TRIES {
            let numbers = self.numbers()?;
            let Some(newest) = numbers.first() else {
                return Ok(None);
            };
            // If the newest one is being overwritten, there is a newer one soon; meanwhile the one
            // before is whole.
            for number in numbers.iter().take(2) {
                if let Some(state) = self.state(*number)? {
                    if state.number < self.read && *newest >= self.read {
                        continue;
                    }
                    let state = State {
                        missed: state.number.saturating_sub(self.read + 1),
                        went_back: state.number < self.read,
                        ..state
                    };
                    self.read = state.number;
                    self.shown = Some(State {
                        bytes: Vec::new(),
                        number: state.number,
                        writer: state.writer,
                        published: state.published,
                        missed: state.missed,
                        went_back: state.went_back,
                        presence: state.presence,
                    });
                    return Ok(Some(state));
                }
            }
            if *newest == 0 {
                return Ok(None);
            }
            std::thread::yield_now();
        }
        Ok(None)
    }

    /// The last states, the oldest first: as many as the creator of the board wished to keep.
    ///
    /// # Errors
    /// If the memory cannot be accessed.
    pub fn history(&self) -> Result<Vec<State>> {
        let mut states = Vec::new();
        for number in self.numbers()? {
            if (states.len() as u64) < self.layout.history
                && let Some(state) = self.state(number)?
            {
                states.push(state);
            }
        }
        states.reverse();
        Ok(states)
    }

    /// The board in this segment, if it is one, for reading.
    pub(crate) fn of(segment: &Segment) -> Option<Self> {
        let board = || Self::over(segment.clone(), None).ok();
        segment.has_views().then(board).flatten()
    }

    /// The memory of the board with the states that are whole, each with its place.
    pub(crate) fn image(&self) -> Result<Vec<(usize, Vec<u8>)>> {
        let mut image = vec![(0, self.layout.encode().to_vec())];
        for _ in 0..TRIES {
            image.truncate(1);
            let numbers = self.numbers()?;
            for number in &numbers {
                if let Some(slot) = self.slot(*number)? {
                    image.push((self.layout.at(*number), slot));
                }
            }
            // While the newest state is overwritten the others are old: a newer one follows soon.
            if numbers.is_empty() || image.len() > 1 {
                break;
            }
            std::thread::yield_now();
        }
        image.sort_unstable_by_key(|(at, _)| *at);
        Ok(image)
    }

    /// The memory of a slot, if it is whole: its head, and its state.
    fn slot(&self, number: u64) -> Result<Option<Vec<u8>>> {
        let Some(state) = self.state(number)? else {
            return Ok(None);
        };
        let nanos = state.published.duration_since(UNIX_EPOCH);
        let head = Head {
            number,
            nanos: nanos.map_or(0, |since| since.as_nanos() as u64),
            length: state.bytes.len() as u32,
            writer: state.writer.0,
            sum: 0,
            // In another cluster, its writer holds no lock.
            presence: 0,
        };
        let sum = head.sum_of(&state.bytes);
        let mut slot = Head { sum, ..head }.encode().to_vec();
        slot.extend(state.bytes);
        Ok(Some(slot))
    }

    /// Numbers of the states in the slots, the newest first.
    fn numbers(&self) -> Result<Vec<u64>> {
        let slots = 0..self.layout.slots;
        let numbers = slots.map(|slot| self.reader.load_u64(self.layout.at(slot)));
        let mut numbers = numbers.collect::<Result<Vec<_>>>()?;
        numbers.retain(|number| *number > 0);
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        Ok(numbers)
    }

    /// The state of this number, if its slot has it and is whole.
    fn state(&self, number: u64) -> Result<Option<State>> {
        let at = self.layout.at(number);
        let mut bytes = [0; HEAD];
        self.reader.read(at, &mut bytes)?;
        let head = Head::decode(&bytes);
        if head.number != number || head.length as usize > self.layout.size {
            return Ok(None);
        }
        let mut state = vec![0; head.length as usize];
        self.reader.read(at + HEAD, &mut state)?;
        let whole = head.sum_of(&state) == head.sum;
        Ok(whole.then(|| State {
            number,
            bytes: state,
            writer: NodeId(head.writer),
            published: UNIX_EPOCH + Duration::from_nanos(head.nanos),
            missed: 0,
            went_back: false,
            presence: head.presence,
        }))
    }

    /// Sleeps until there is a state with a greater number than `newer_than`, or the state read last
    /// is lost ([`State::went_back`]), and returns the newest number.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after `timeout`, [`Error::Interrupted`].
    pub fn wait(&self, newer_than: u64, timeout: Option<Duration>) -> Result<u64> {
        let until = timeout.and_then(after);
        loop {
            if let Some(number) = self.newer(newer_than)? {
                return Ok(number);
            }
            self.sleep(newer_than, until)?;
        }
    }

    fn newer(&self, than: u64) -> Result<Option<u64>> {
        let newest = self.numbers()?.first().copied();
        Ok(newest.filter(|number| *number > than || *number < self.read))
    }

    fn sleep(&self, newer_than: u64, until: Option<Instant>) -> Result<()> {
        let watch = Request::WatchRange {
            segment: self.segment.id(),
            first: PageIndex(1),
            count: PageCount((self.layout.slots * self.layout.pages()) as u32),
        };
        let mut changed = || Ok(self.newer(newer_than)?.is_some());
        crate::watch::sleep(&self.segment, watch, until, &mut changed)
    }

    /// [`Board::writer_is_gone`] of the state that was read last; false if none was read yet.
    ///
    /// # Errors
    /// As there.
    pub fn last_writer_is_gone(&self) -> Result<bool> {
        let shown = self.shown.as_ref();
        shown.map_or(Ok(false), |state| self.writer_is_gone(state))
    }

    /// Whether the process that published a state is gone: it died, or its node did, or it has
    /// closed the board. Its last state stays. Of more than 16 writers at once only the deaths of
    /// nodes are seen of some; and while a new writer has not published yet, it may stand for the
    /// one before.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn writer_is_gone(&self, state: &State) -> Result<bool> {
        let members = self.segment.mesh().members()?;
        let mut alive = members.members.iter();
        let alive = alive.any(|member| {
            member.id == state.writer && member.health == pagemesh_wire::peer::Health::Alive
        });
        if !alive || !PRESENCE.contains(&state.presence) {
            return Ok(!alive);
        }
        match self
            .segment
            .lock(state.presence.into())
            .lock_surely(Some(GLANCE))
        {
            Ok(_) => Ok(true),
            Err(Error::TimedOut) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A board tells by numbers and checksums what a slot has, so that zeros do for lost pages.
fn renew(segment: &Segment) -> Result<()> {
    segment.advise(0..segment.size(), Advice::Renew)
}

/// Nanoseconds since 1970.
fn nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}
