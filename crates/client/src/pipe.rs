//! Pipes: messages between two processes, over two pages (E15 to E19).
//!
//! A pipe is a segment of policy `views` with an area for each end. An end stores to its own area
//! and publishes it; the other end has an inconsistent copy. A message waits in the area of the
//! end that wrote it until the other end has read it: the writer may go on when `WriteGeneration`
//! in its own area and `ReadGeneration` in the other are equal, the reader when `WriteGeneration`
//! in the other area is greater than `ReadGeneration` in its own. Both ways are alike.
//!
//! Each end holds a lock as long as it is open. So an end is open once, and the other one learns
//! of its death. `area` is the layout, `words` reads and stores it, `sleep` is the
//! waiting.

mod area;
mod sleep;
mod words;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pagemesh_wire::local::View;

use crate::bell::{Gate, after};
use crate::fork::Guarded;
use crate::mapping::{INCONSISTENT, Mapping};
use crate::segment::{Access, Options};
use crate::{Advice, Error, LockGuard, Mesh, Policy, Result, Segment};
use area::{
    CLOSED, HEAD, Head, KIND, Layout, MAGIC, MARK, NO_PIPE, READ_GENERATION, READ_SIZE, SESSION,
    WRITE_GENERATION, WRITE_SIZE,
};

pub(crate) use sleep::{Watchfulness, sleep};

/// How long opening waits for an end: its last holder may just have died, and who looks whether an
/// end is alive takes its lock for a moment.
const SEAT: Duration = Duration::from_millis(500);

/// Attempts to publish pages that another node takes meanwhile, because it leaves or was revived.
const TRIES: usize = 5;

const OLD_SHORT: View = View {
    short: true,
    ..INCONSISTENT
};

/// An end of a pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum End {
    /// One that is not open.
    #[default]
    Free,
    /// The first one.
    First,
    /// The second one.
    Second,
}

/// Options that the creator of a pipe chooses, and which end this process opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PipeOptions {
    /// Permission bits for owner, group and others, as of a file. Who opens a pipe stores to it.
    pub mode: u16,
    /// Bytes of the longest message; the rest of the last page can be used, too.
    pub size: usize,
    /// Which end.
    pub end: End,
}

impl Default for PipeOptions {
    /// Mode 0600, two pages, and an end that is free.
    fn default() -> Self {
        Self {
            mode: 0o600,
            size: pagemesh_wire::PAGE_SIZE - HEAD,
            end: End::Free,
        }
    }
}

/// The state of the process at the other end, as this end knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// No process has opened the other end yet. A message waits for it.
    Absent,
    /// It has the other end open, as far as is known.
    Open,
    /// It has closed the other end.
    Closed,
    /// It died with the other end open, or its node did.
    Dead,
}

/// One end of a pipe that this process has open. Threads may use it at once; messages of each
/// direction are sent and received one at a time.
#[derive(Debug)]
pub struct Pipe {
    segment: Segment,
    /// The consistent view; this end stores to its own area only.
    own: Mapping,
    short: Mapping,
    whole: Mapping,
    layout: Layout,
    end: usize,
    sending: Gate,
    receiving: Gate,
    /// Guards the words of the own area, which both directions publish.
    words: Guarded<()>,
    /// The session of the other end that was over when this end was opened.
    over: u64,
    /// The session of the other end to which this one talks; 0 while it is absent.
    session: AtomicU64,
    /// The session of the other end that is known to have died.
    dead: AtomicU64,
    /// Held while the end is open. Dropped last, by [`Drop`] after the other end was told.
    seat: LockGuard,
}

impl Pipe {
    /// Creates a pipe, or opens the one of this name, and takes one end of it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for messages beyond 16 MiB, if the existing pipe is for shorter ones or
    /// no pipe at all, and if the end is open already; [`Error::Refused`] as [`Mesh::create`].
    pub fn create(mesh: &Mesh, name: &str, options: PipeOptions) -> Result<Self> {
        let layout = Layout::of(options.size)?;
        let policy = Policy::Views {
            prefix: layout.prefix as u16,
        };
        let segment_options = Options {
            mode: options.mode,
            policy,
            exclusive: false,
            replicas: 0,
        };
        let segment = mesh.create(name, layout.bytes(), segment_options)?;
        let pipe = Self::over(segment, options.end)?;
        if pipe.size() < options.size {
            return Err(Error::Invalid(
                "the pipe of this name is for shorter messages: remove it, or take another name",
            ));
        }
        Ok(pipe)
    }

    /// Opens an existing pipe.
    ///
    /// # Errors
    /// As [`Mesh::open`]; else as [`Pipe::create`].
    pub fn open(mesh: &Mesh, name: &str, end: End) -> Result<Self> {
        Self::over(mesh.open(name, Access::Writable)?, end)
    }

    fn over(segment: Segment, end: End) -> Result<Self> {
        let layout = Layout::find(&segment)?;
        // Zeros do for pages that are lost with a node: an area of zeros has no session.
        segment.advise(0..segment.size(), Advice::Renew)?;
        let (end, seat) = take_seat(&segment, end)?;
        let mut pipe = Self {
            own: segment.map()?,
            short: segment.map_view(OLD_SHORT)?,
            whole: segment.map_view(INCONSISTENT)?,
            layout,
            end,
            sending: Gate::default(),
            receiving: Gate::default(),
            words: Guarded::default(),
            over: 0,
            session: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            seat,
            segment,
        };
        pipe.deal_me_in()?;
        Ok(pipe)
    }

    /// The first look at the other end (E17), and the first words of this one.
    fn deal_me_in(&mut self) -> Result<()> {
        self.purge_whole()?;
        let mark = self.theirs(MARK)?;
        if mark != 0 && mark != MAGIC {
            return Err(NO_PIPE);
        }
        let session = self.theirs(SESSION)?;
        if session != 0 && (self.is_closed()? || self.seat_is_free()?) {
            self.over = session;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_nanos() as u64);
        // The other end may have read what was lost here with a node.
        let generation = self.written()?.max(self.theirs(READ_GENERATION)?);
        let before = self.ours(SESSION)?.load(Ordering::Acquire);
        self.store(&[
            (WRITE_GENERATION, generation),
            (MARK, MAGIC),
            (SESSION, now.max(before + 1)),
        ])?;
        self.publish()
    }

    /// Bytes of the longest message.
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.segment.name()
    }

    /// Which end this is.
    #[must_use]
    pub fn end(&self) -> End {
        [End::First, End::Second][self.end]
    }

    /// The state of the other end, as this end knows it. A thread of this process that waits in
    /// the pipe notices when the other process dies.
    ///
    /// # Errors
    /// If the memory cannot be accessed.
    pub fn peer(&self) -> Result<Peer> {
        let (session, known) = (self.theirs(SESSION)?, self.session.load(Ordering::Acquire));
        if session == self.over {
            return Ok(Peer::Absent);
        }
        let known = match known {
            0 => {
                self.session.store(session, Ordering::Release);
                session
            }
            known => known,
        };
        if self.dead.load(Ordering::Acquire) == known || session != known {
            return Ok(Peer::Dead);
        }
        if self.is_closed()? {
            return Ok(Peer::Closed);
        }
        Ok(Peer::Open)
    }

    /// Sends a message: it is stored here and sent, and this returns before the other end has read
    /// it. Waits until the message before has been read. A message arrives whole, or not at all.
    ///
    /// # Errors
    /// [`Error::Invalid`] for messages that are too long; [`Error::TimedOut`] after `timeout`, with
    /// nothing sent; [`Error::Interrupted`]; [`Error::PipeClosed`] and [`Error::PeerDied`] if the
    /// other end is not open any more.
    pub fn send(&self, message: &[u8], timeout: Option<Duration>) -> Result<()> {
        self.send_as(0, message, timeout.and_then(after))
    }

    pub(crate) fn send_as(&self, kind: i64, message: &[u8], until: Option<Instant>) -> Result<()> {
        if message.len() > self.size() {
            return Err(TOO_LONG);
        }
        self.sending.enter(until)?;
        let _leave = Leave(&self.sending);
        self.wait_for_room(until)?;
        let generation = self.written()? + 1;
        let mut tries = 0;
        loop {
            self.own.write(self.data(), message)?;
            match self.put((generation, kind), message) {
                // The pages went to a node that takes over from one that leaves; they come back
                // with the next store.
                Err(Error::Refused(_)) if tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    /// Waits until a message can be stored at the write pointer ([`Pipe::pointers`]).
    ///
    /// # Errors
    /// As [`Pipe::send`].
    pub fn wait_writable(&self, timeout: Option<Duration>) -> Result<()> {
        self.wait_for_room(timeout.and_then(after))
    }

    /// Sends what was stored at the write pointer after [`Pipe::wait_writable`]; one thread does so.
    ///
    /// # Errors
    /// As [`Pipe::send`]; [`Error::Invalid`] if the message before has not been read.
    pub fn write_done(&self, length: usize) -> Result<()> {
        if length > self.size() {
            return Err(TOO_LONG);
        }
        if !self.has_room()? {
            return Err(Error::Invalid(
                "the message before has not been read: wait until the pipe is writable",
            ));
        }
        let mut message = vec![0; length];
        self.own.read(self.data(), &mut message)?;
        self.put((self.written()? + 1, 0), &message)
    }

    /// Stores the words of a message whose data are in the own area, and publishes it.
    fn put(&self, (generation, kind): (u64, i64), message: &[u8]) -> Result<()> {
        let _words = self.words.lock();
        let mut head = Head {
            generation,
            kind,
            length: message.len(),
            sum: 0,
        };
        head.sum = head.sum_of(message);
        let words = [
            (WRITE_SIZE, head.size_word()),
            (KIND, kind as u64),
            // Processes of this node see this store before the publication.
            (WRITE_GENERATION, generation),
        ];
        self.store(&words)?;
        self.publish()
    }

    /// Receives the next message.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after `timeout`, [`Error::Interrupted`]; when there is no message left:
    /// [`Error::PipeClosed`] and [`Error::PeerDied`] if the other end is not open any more.
    pub fn receive(&self, timeout: Option<Duration>) -> Result<Vec<u8>> {
        let received = self.receive_within(usize::MAX, timeout)?;
        received.map_err(|_| TOO_LONG)
    }

    /// Receives the next message if it has at most `room` bytes; otherwise it stays, and this
    /// returns its length.
    #[doc(hidden)]
    pub fn receive_within(
        &self,
        room: usize,
        timeout: Option<Duration>,
    ) -> Result<std::result::Result<Vec<u8>, usize>> {
        let until = timeout.and_then(after);
        self.receiving.enter(until)?;
        let _leave = Leave(&self.receiving);
        let (head, message) = self.wait_for_message(until)?;
        if message.len() > room {
            return Ok(Err(message.len()));
        }
        self.took(head)?;
        Ok(Ok(message))
    }

    /// The next message and its kind, if there is one.
    pub(crate) fn try_receive(&self) -> Result<Option<(i64, Vec<u8>)>> {
        self.receiving.enter(None)?;
        let _leave = Leave(&self.receiving);
        let Some((head, message)) = self.look()? else {
            return Ok(None);
        };
        self.took(head)?;
        Ok(Some((head.kind, message)))
    }

    /// Whether there is a message.
    pub(crate) fn has_news(&self) -> Result<bool> {
        Ok(self.look()?.is_some())
    }

    /// Waits until there is a message at the read pointer ([`Pipe::pointers`]), and returns its
    /// length.
    ///
    /// # Errors
    /// As [`Pipe::receive`].
    pub fn wait_readable(&self, timeout: Option<Duration>) -> Result<usize> {
        let (head, _) = self.wait_for_message(timeout.and_then(after))?;
        Ok(head.length)
    }

    /// Tells the other end that the message at the read pointer has been read: the next one may
    /// replace it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none.
    pub fn read_done(&self) -> Result<()> {
        let Some((head, _)) = self.look()? else {
            return Err(Error::Invalid(
                "there is no message: wait until the pipe is readable",
            ));
        };
        self.took(head)
    }

    /// The read pointer and the write pointer: to the data of the message that the other end has
    /// written, and to the place for the next message of this end, each [`Pipe::size`] bytes long.
    #[must_use]
    pub fn pointers(&self) -> (*const u8, *mut u8) {
        let read = self.layout.area(1 - self.end) + HEAD;
        (
            self.whole.as_ptr().wrapping_add(read).cast_const(),
            self.own.as_ptr().wrapping_add(self.data()),
        )
    }

    /// Closes the end, as dropping does. A message that has not been read stays.
    pub fn close(self) {}

    /// A message was read: `ReadDataSize`, then `ReadGeneration`.
    fn took(&self, head: Head) -> Result<()> {
        let _words = self.words.lock();
        self.store(&[
            (READ_SIZE, head.length as u64),
            (READ_GENERATION, head.generation),
        ])?;
        self.publish()
    }

    /// The next message, if it is here and whole.
    fn look(&self) -> Result<Option<(Head, Vec<u8>)>> {
        let Some(head) = self.next()? else {
            return Ok(None);
        };
        // A new process at the other end writes for the next one at this end.
        if self.peer()? == Peer::Dead
            && self.theirs(SESSION)? != self.session.load(Ordering::Acquire)
        {
            return Ok(None);
        }
        let view = match self.layout.is_short(head.length) {
            true => &self.short,
            false => &self.whole,
        };
        let mut message = vec![0; head.length];
        view.read(self.layout.area(1 - self.end) + HEAD, &mut message)?;
        let whole = head.sum_of(&message) == head.sum;
        Ok(whole.then_some((head, message)))
    }

    /// The head of the next message, if the other end has written one.
    fn next(&self) -> Result<Option<Head>> {
        let generation = self.theirs(WRITE_GENERATION)?;
        if generation <= self.ours(READ_GENERATION)?.load(Ordering::Acquire) {
            return Ok(None);
        }
        let (kind, size) = (self.theirs(KIND)?, self.theirs(WRITE_SIZE)?);
        let head = Head::from_words(generation, kind, size);
        Ok((head.length <= self.size()).then_some(head))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _words = self.words.lock();
        // The other end finds out later if this fails.
        let _ = self.ours(SESSION).and_then(|session| {
            self.store(&[(CLOSED, session.load(Ordering::Acquire))])?;
            self.publish()
        });
    }
}

/// Takes the lock of an end.
fn take_seat(segment: &Segment, end: End) -> Result<(usize, LockGuard)> {
    let until = after(SEAT);
    let ends: &[usize] = match end {
        End::Free => &[0, 1],
        End::First => &[0],
        End::Second => &[1],
    };
    loop {
        for end in ends {
            if let Some(guard) = segment.lock(*end as u64).try_lock()? {
                return Ok((*end, guard));
            }
        }
        if until.is_none_or(|until| Instant::now() >= until) {
            return Err(Error::Invalid(
                "the end of the pipe is open in another process, or in this one",
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Opens a gate at the end.
struct Leave<'g>(&'g Gate);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

const TOO_LONG: Error = Error::Invalid("the message is longer than the pipe's messages");
