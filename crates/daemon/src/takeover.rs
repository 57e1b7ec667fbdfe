//! Going on where another daemon stopped, whatever the reason.
//!
//! The keeper has its descriptors, the journal its node: replayed to the last input. The effects of
//! that input that were not carried out are carried out now, then queued inputs are handled. Then
//! threads that wait for pages are woken: their faults may have been read by the dead daemon, and
//! come again (docs/design/kernel.md, "A daemon that dies").

use crate::diff_store::Changes;
use crate::diff_store::DiffStore;
use crate::driver::{About, Driver};
use crate::edition::Edition;
use crate::executor::DaemonExecutor;
use crate::forks::WELCOME;
use crate::keeper::{Held, Keeper, Search, Tag, Whole, decode};
use crate::lending::Lending;
use crate::locks::Locks;
use crate::mapping::Mapping;
use crate::network::Network;
use crate::options::Options;
use crate::pages::Pages;
use crate::receive_batch::ReceiveBatch;
use crate::recorder::Recorder;
use crate::serve::Descriptors;
use crate::stash::Stash;
use anyhow::{Context as _, Result, anyhow, bail};
use pagemesh_os::memfd::Memfd;
use pagemesh_os::poll::Poll;
use pagemesh_os::seqpacket::{Listener, Socket};
use pagemesh_os::udp::Udp;
use pagemesh_os::uffd::Uffd;
use pagemesh_recorder::Note;
use pagemesh_recorder::{Recovered, schema};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::local::{MAX_PACKET, Refusal, Reply, ReplyPacket, Request, RequestPacket};
use pagemesh_wire::{ClientId, MappingId, SegmentId};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// A daemon that was just killed may take so long to be gone: on a busy host its last
/// threads end some time after the signal.
const DYING: Duration = Duration::from_secs(2);

/// How long a daemon may take to make room for the next one.
const PATIENCE: Duration = Duration::from_secs(20);

/// The state that a daemon left.
pub(crate) struct TakeoverState {
    keeper: Keeper,
    singles: SortedMap<Tag, OwnedFd>,
    sessions: SortedMap<ClientId, Socket>,
    request_slots: SortedMap<ClientId, OwnedFd>,
    memory: SortedMap<SegmentId, OwnedFd>,
    locks: SortedMap<SegmentId, OwnedFd>,
    files: SortedMap<SegmentId, OwnedFd>,
    mappings: SortedMap<MappingId, (Whole, OwnedFd)>,
}

/// The part of it that needs no node.
pub(crate) struct Ground {
    pub(crate) listener: Listener,
    pub(crate) udp: Udp,
    pub(crate) pages: Pages,
    pub(crate) receive_batch: ReceiveBatch,
    pub(crate) identity: Option<OwnedFd>,
    /// Lent pages, and files of private segments.
    pub(crate) lending: Lending,
}

/// Looks for what a daemon left at this socket, having it leave if so ordered.
///
/// # Errors
/// If a daemon lives there.
pub(crate) fn find(options: &Options) -> Result<Option<TakeoverState>> {
    let Some(keeping) = &options.keeping else {
        return Ok(None);
    };
    let socket = &options.socket;
    let (start, mut asked) = (Instant::now(), false);
    loop {
        match Keeper::search(socket)? {
            Search::Nobody => return Ok(None),
            Search::Found(keeper, held) => return TakeoverState::sort(keeper, held).map(Some),
            Search::Busy if !keeping.replace && start.elapsed() > DYING => bail!(
                "another daemon listens at {} already; stop that daemon, let this one take its \
                 place (--replace), or give this one another --socket",
                socket.display()
            ),
            Search::Busy if start.elapsed() > PATIENCE => {
                bail!("the daemon at {} does not make room", socket.display())
            }
            Search::Busy if keeping.replace && !asked => {
                ask_for_room(socket, &Edition::of(options.experiment))
                    .with_context(|| format!("the daemon at {}", socket.display()))?;
                asked = true;
            }
            Search::Busy => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Asks a daemon to end without leaving.
fn ask_for_room(path: &Path, edition: &Edition) -> Result<()> {
    let socket = Socket::connect_within(path, PATIENCE)?;
    socket.set_receive_timeout(PATIENCE)?;
    let mut why = None;
    for (_, hello) in Request::hellos("pagemesh daemon --replace") {
        why = ask(&socket, 1, hello)?;
        if why.is_none() {
            break;
        }
    }
    if why.is_none() {
        let (oldest, newest) = (schema::OLDEST, edition.schema);
        why = ask(&socket, 2, Request::Handover { oldest, newest })?;
    }
    why.map_or(Ok(()), |why| {
        Err(anyhow!(why).context("it does not make room"))
    })
}

/// Asks a daemon, and returns why it refuses, if it does.
fn ask(socket: &Socket, number: u64, request: Request) -> Result<Option<Refusal>> {
    socket.send_surely(&RequestPacket { number, request }.encode(), &[])?;
    let mut buffer = vec![0; MAX_PACKET];
    let packet = socket
        .recv_surely(&mut buffer)?
        .context("it ended by itself")?;
    match ReplyPacket::decode(&buffer[..packet.len])?.reply {
        Reply::Refused(why) => Ok(Some(why)),
        _ => Ok(None),
    }
}

impl TakeoverState {
    fn sort(keeper: Keeper, held: Vec<Held>) -> Result<Self> {
        let mut takeover_state = Self {
            keeper,
            singles: SortedMap::new(),
            sessions: SortedMap::new(),
            request_slots: SortedMap::new(),
            memory: SortedMap::new(),
            locks: SortedMap::new(),
            files: SortedMap::new(),
            mappings: SortedMap::new(),
        };
        for Held { tag, note, fd } in held {
            match tag {
                Tag::Session(client) => drop(takeover_state.sessions.insert(client, fd.into())),
                Tag::RequestSlot(client) => drop(takeover_state.request_slots.insert(client, fd)),
                Tag::Memory(segment) => drop(takeover_state.memory.insert(segment, fd)),
                Tag::Locks(segment) => drop(takeover_state.locks.insert(segment, fd)),
                Tag::Backing(segment) => drop(takeover_state.files.insert(segment, fd)),
                Tag::Mapping(id) => {
                    let whole = decode(&note).context("what is known of a mapping is nonsense")?;
                    takeover_state.mappings.insert(id, (whole, fd));
                }
                tag => drop(takeover_state.singles.insert(tag, fd)),
            }
        }
        Ok(takeover_state)
    }

    /// The node, as it was.
    ///
    /// # Errors
    /// If it cannot be had again.
    pub(crate) fn recover(&mut self) -> Result<(Recorder, Recovered)> {
        Recorder::adopt(self.single(Tag::Journal)?)
    }

    /// Sockets and memory.
    ///
    /// # Errors
    /// If something is missing.
    pub(crate) fn ground(&mut self, options: &Options) -> Result<Ground> {
        Ok(Ground {
            listener: Listener::adopt(self.single(Tag::Listener)?, &options.socket),
            udp: Udp::adopt(self.single(Tag::Network)?)?,
            pages: Pages::new(Stash::adopt(self.single(Tag::Stash)?)?, self.changes()?),
            receive_batch: ReceiveBatch::adopt(self.single(Tag::Datagram)?)?,
            identity: self.singles.remove(&Tag::Identity),
            lending: self.lending(options)?,
        })
    }

    fn lending(&mut self, options: &Options) -> Result<Lending> {
        let directory = &options.memory.directory;
        let secret = self.single(Tag::PageSecret)?;
        let files = std::mem::take(&mut self.files);
        Lending::adopt(secret, files, directory)
    }

    fn changes(&mut self) -> Result<Changes> {
        let (diff_store, found) = DiffStore::adopt(self.single(Tag::Twins)?)?;
        Ok(Changes::adopt(diff_store, found))
    }

    fn single(&mut self, tag: Tag) -> Result<OwnedFd> {
        let found = self.singles.remove(&tag);
        found.with_context(|| format!("the daemon before left no {tag:?}"))
    }

    /// No daemon goes on: the processes get errors, from the keeper.
    pub(crate) fn give_up(self) {
        self.keeper.end();
    }

    /// The whole state except the node, as it was.
    ///
    /// # Errors
    /// If something is missing that the node knows.
    pub(crate) fn executor(
        self,
        poll: Poll,
        network: Network,
        pages: Pages,
        recorder: Recorder,
        (lending, recovered): (Lending, &mut Recovered),
    ) -> Result<DaemonExecutor> {
        let mut executor = DaemonExecutor::new(poll, network, pages, recorder, lending);
        executor.keeper.by(self.keeper);
        let sessions = self.sessions.keys().copied().map(Tag::Session);
        let mappings = self.mappings.keys().copied().map(Tag::Mapping);
        let request_slots = self.request_slots.keys().copied().map(Tag::RequestSlot);
        let kept: Vec<_> = sessions.chain(mappings).chain(request_slots).collect();
        for (client, socket) in self.sessions {
            executor.sessions.restore(client, socket, &executor.poll)?;
        }
        for (client, memory) in self.request_slots {
            if executor.sessions.get(client).is_some() {
                executor.sessions.request_slots.restore(client, memory)?;
            }
        }
        let mut locks = self.locks;
        for (id, memory) in self.memory {
            let locks = locks.remove(&id).map(Locks::adopt).transpose()?;
            let memory = Memfd::adopt(memory);
            executor.pages.segments.restore(id, memory, locks)?;
        }
        let known = recovered.node.segments().map(|info| info.id);
        executor.pages.segments.known(known);
        executor.keep_segments();
        for (id, (whole, uffd)) in self.mappings {
            let mapping =
                Mapping::restore(whole, Uffd::adopt(uffd)?).map_err(|why| anyhow!(why))?;
            executor.pages.mappings.restore(id, mapping);
        }
        let registry = std::mem::take(&mut recovered.registry);
        if !registry.is_empty() {
            let notes = Note::read_all(&registry).context("the daemon before left nonsense")?;
            notes.into_iter().for_each(|note| executor.apply(note));
        }
        for note in std::mem::take(&mut recovered.notes) {
            executor.apply(Note::decode(&note).context("a note is nonsense")?);
        }
        if let Some(id) = executor.pages.mappings.missing() {
            bail!("nobody kept mapping {id}");
        }
        if executor.pages.waiting.noted() > 0 {
            bail!(
                "{} pages waited for memory and are lost",
                executor.pages.waiting.noted()
            );
        }
        executor.join_mappings()?;
        executor.drop_needless(&kept);
        executor.life.takeovers += 1;
        let times = executor.life.takeovers;
        executor.note(&Note::TakenOver { times });
        Ok(executor)
    }
}

impl DaemonExecutor {
    /// Gives every mapping to its segment and its process.
    fn join_mappings(&mut self) -> Result<()> {
        let all = self.pages.mappings.iter();
        let mut all: Vec<_> = all
            .map(|(id, mapping)| (id, mapping.segment, mapping.client))
            .collect();
        all.sort_unstable();
        for (id, segment, client) in all {
            let segment = self.pages.segments.get_mut(segment);
            let segment = segment.with_context(|| format!("mapping {id} has no segment"))?;
            segment.mappings.push(id);
            let session = self.sessions.get_mut(client);
            let session = session.with_context(|| format!("mapping {id} has no process"))?;
            session.mappings.push(id);
        }
        self.pages.mappings.drop_doubtful();
        Ok(())
    }

    /// The daemon before may have ended before it could say that it needs these
    /// no more.
    fn drop_needless(&self, kept: &[Tag]) {
        let needless = |tag: &Tag| match tag {
            Tag::Session(client) | Tag::RequestSlot(client) => self.sessions.get(*client).is_none(),
            Tag::Mapping(id) => self.pages.mappings.get(*id).is_none(),
            _ => false,
        };
        for tag in kept.iter().filter(|tag| needless(tag)) {
            self.keeper.drop(*tag);
        }
    }
}

impl Driver {
    /// Goes on with a node that another daemon drove.
    ///
    /// # Errors
    /// If a descriptor cannot be polled.
    pub(crate) fn go_on(
        recovered: Recovered,
        executor: DaemonExecutor,
        about: About,
        receive_batch: &ReceiveBatch,
    ) -> Result<Self> {
        let mut driver = Self::with(recovered.node, executor, about);
        driver.executor.network.meet(&driver.node);
        for (id, _) in driver.executor.pages.mappings.iter() {
            driver.poll_mapping(id)?;
        }
        driver.executor.pages.again = true;
        if let Some(pagemesh_core::Input::LockReturned { key, .. }) = recovered.last
            && recovered.done == 0
        {
            driver.executor.take_back(key);
        }
        driver.redo(
            recovered.effects,
            recovered.done,
            recovered.queue,
            receive_batch.left(&recovered.turn)?,
        );
        let (device, executor) = (driver.about.device.as_ref(), &mut driver.executor);
        executor
            .sessions
            .lend_again(device, &executor.pages.segments, &executor.poll);
        driver.take_up_requests();
        driver.executor.pages.again = false;
        for (_, mapping) in driver.executor.pages.mappings.iter() {
            let (address, length) = mapping.place.range();
            mapping.uffd.wake(address, length);
        }
        Ok(driver)
    }

    /// The request at which the daemon before ended may have been acted upon:
    /// then it is taken out, and answered in case it was not. Any other one is
    /// handled as it comes; the first of each process at once, since it might be
    /// done by half.
    fn take_up_requests(&mut self) {
        let sessions = self.executor.sessions.iter();
        let all: Vec<_> = sessions
            .map(|(client, session)| (client, session.handled.clone()))
            .collect();
        let mut buffer = vec![0; MAX_PACKET];
        for (client, handled) in all {
            self.take_up_request_slot(client, handled.as_ref(), &mut buffer);
            self.take_up_packet(client, handled.as_ref(), &mut buffer);
        }
        self.cut_off();
    }

    fn take_up_request_slot(
        &mut self,
        client: ClientId,
        handled: Option<&Handled>,
        buffer: &mut [u8],
    ) {
        let Some(length) = self.executor.sessions.request_slots.request(client, buffer) else {
            return;
        };
        let bytes = &buffer[..length];
        let request = RequestPacket::decode(bytes).ok();
        if !was_handled(&mut self.executor, client, request.as_ref(), handled) {
            self.through_request_slot(client, bytes);
        }
        self.executor.sessions.request_slots.handled(client);
    }

    fn take_up_packet(&mut self, client: ClientId, handled: Option<&Handled>, buffer: &mut [u8]) {
        let Some(session) = self.executor.sessions.get(client) else {
            return;
        };
        let Ok(Some(packet)) = session.socket.peek_now(buffer) else {
            return;
        };
        let bytes = &buffer[..packet.len];
        let request = RequestPacket::decode(bytes).ok();
        if !was_handled(&mut self.executor, client, request.as_ref(), handled) {
            let fds = Descriptors {
                fds: packet.fds,
                lost: packet.fds_lost,
                sender: packet.sender,
            };
            self.packet(client, bytes, fds);
        }
        self.executor.sessions.took_packet(client);
    }
}

/// Whether this is what was acted upon last. It is answered once more then, if that is not the
/// node's business.
fn was_handled(
    executor: &mut DaemonExecutor,
    client: ClientId,
    request: Option<&RequestPacket>,
    handled: Option<&Handled>,
) -> bool {
    let (Some(request), Some((number, reply))) = (request, handled) else {
        return false;
    };
    if request.number != *number {
        return false;
    }
    match reply {
        // That one is for the child.
        Some(Reply::Welcome { client: child, .. }) if request.request == Request::Fork => {
            let reply = reply.clone().expect("just seen");
            executor.reply(*child, WELCOME, reply, Vec::new());
        }
        Some(reply) => executor.reply(client, *number, reply.clone(), Vec::new()),
        None => {}
    }
    true
}

/// The number of the request that was acted upon last, and its answer.
type Handled = (u64, Option<Reply>);
