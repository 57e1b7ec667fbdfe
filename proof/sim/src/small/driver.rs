//! The executor of all small simulators: it hands each effect to its world.

use super::{Check, host_at};
use core::net::SocketAddr;
use pagemesh_core::{
    At, DiffWork, Effect, EffectExecutor, Effects, Event, Input, Mappings, Next, Node, PageRange,
    Reclaimed, Reply, Rights, Source, Time,
};
use pagemesh_wire::header::Header;
use pagemesh_wire::notice::Notice;
use pagemesh_wire::peer::{Message, Refusal};
use pagemesh_wire::{ClientId, MappingId, SegmentId, SyncKey, Ticket};

/// The host whose node handles an input, and the datagram, if that is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) host: usize,
    pub(crate) message: Option<&'a Message>,
    /// The bytes behind the message: a page, or none.
    pub(crate) behind: &'a [u8],
}

/// A world whose hosts carry out the effects of their nodes. An effect that most policies never have
/// is refused unless the world says otherwise.
pub(crate) trait Driver: Sized {
    fn now(&self) -> Time;

    /// The node of a host; none if the host is gone.
    fn node(&mut self, host: usize) -> Option<&mut Node>;

    fn send(
        &mut self,
        turn: Turn<'_>,
        to: (usize, Header),
        message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check;

    fn fill(&mut self, turn: Turn<'_>, pages: PageRange, source: Source) -> Check;

    fn map(&mut self, host: usize, who: Mappings, pages: PageRange, rights: Rights) -> Check;

    fn evict(&mut self, host: usize, pages: PageRange, keep: bool) -> Check;

    fn drop_stash(&mut self, host: usize, at: At) -> Check;

    fn fail(&mut self, host: usize, mapping: MappingId, at: At, why: Refusal) -> Check;

    fn reply(&mut self, host: usize, ticket: Ticket, reply: Reply) -> Check;

    fn protect(&mut self, _host: usize, _who: Mappings, _pages: PageRange) -> Check {
        Ok(())
    }

    fn stow(&mut self, _turn: Turn<'_>, at: At) -> Check {
        Err(format!("{at:?} is stowed, where nothing waits"))
    }

    fn store(&mut self, _host: usize, pages: PageRange) -> Check<bool> {
        Err(format!("no segment here is private: {pages:?}"))
    }

    fn forget(&mut self, _host: usize, _segment: SegmentId) -> Check {
        Ok(())
    }

    fn lend_lock(&mut self, _host: usize, key: SyncKey, _by: (ClientId, bool)) -> Check {
        Err(format!("no program asked for {key}"))
    }

    fn reclaim_lock(&mut self, _host: usize, key: SyncKey) -> Check<Reclaimed> {
        Err(format!("no program has {key}"))
    }

    fn diff_work(_executor: &mut Executor<'_, Self>, work: DiffWork) -> Check {
        Err(format!("no segment here has diffs: {work:?}"))
    }

    fn trap(&mut self, _host: usize, segment: SegmentId) -> Check<Vec<PageRange>> {
        Err(format!("the kernel serves no access to {segment}"))
    }

    fn emit(&mut self, _host: usize, _event: Event) -> Check {
        Ok(())
    }

    /// Whether the threads that waited for a page have run since it was mapped.
    fn has_run(&mut self, _host: usize, _at: At) -> bool {
        true
    }

    /// An effect other than a datagram or an event is about to be carried out.
    fn about_to(&mut self, _host: usize, _effect: &Effect) {}

    /// An effect was carried out.
    fn did(&mut self, _host: usize) {}

    /// An input was handled, with all that followed: invariants are checked here.
    fn handled(&mut self, _host: usize) -> Check {
        Ok(())
    }

    /// The node wants to be called at this time.
    fn arm(&mut self, _host: usize, _due: Time) {}
}

/// A node handles one input and its immediate consequences.
pub(crate) fn input<D: Driver>(driver: &mut D, host: usize, input: Input<'_>) -> Check {
    let decoded = match &input {
        Input::Datagram { bytes, .. } => Message::decode(bytes).ok(),
        _ => None,
    };
    let turn = Turn {
        host,
        message: decoded.as_ref().map(|(_, message, _)| message),
        behind: decoded.as_ref().map_or(&[], |(.., behind)| *behind),
    };
    let mut effects = Effects::default();
    let now = driver.now();
    let Some(node) = driver.node(host) else {
        return Ok(());
    };
    node.handle(now, input, &mut effects);
    let mut executor = Executor {
        driver,
        turn,
        follow: Vec::new(),
    };
    executor.execute_all(&mut effects)?;
    let follow = executor.follow;
    for next in follow {
        self::input(driver, host, next)?;
    }
    driver.handled(host)?;
    if let Some(due) = driver.node(host).and_then(|node| node.next_deadline()) {
        driver.arm(host, due);
    }
    Ok(())
}

/// Carries out the effects of one input of a host.
pub(crate) struct Executor<'a, D> {
    pub(crate) driver: &'a mut D,
    pub(crate) turn: Turn<'a>,
    /// Inputs that effects gave rise to.
    follow: Vec<Input<'static>>,
}

impl<D: Driver> EffectExecutor for Executor<'_, D> {
    type Error = String;

    fn send(
        &mut self,
        address: SocketAddr,
        header: Header,
        message: Box<Message>,
        page: Option<(At, Source)>,
    ) -> Check {
        let to = (host_at(address), header);
        self.driver.send(self.turn, to, message, page)
    }

    /// Strangers, of whom there are none here, get them.
    fn send_notice(&mut self, _: SocketAddr, _: Notice) -> Check {
        Ok(())
    }

    fn fill(&mut self, pages: PageRange, source: Source) -> Check {
        self.driver.fill(self.turn, pages, source)
    }

    fn map(&mut self, mappings: Mappings, pages: PageRange, rights: Rights) -> Check {
        self.driver.map(self.turn.host, mappings, pages, rights)
    }

    fn protect(&mut self, mappings: Mappings, pages: PageRange) -> Check {
        self.driver.protect(self.turn.host, mappings, pages)
    }

    fn evict(&mut self, pages: PageRange, keep: bool) -> Check {
        self.driver.evict(self.turn.host, pages, keep)
    }

    fn stow(&mut self, at: At) -> Check {
        self.driver.stow(self.turn, at)
    }

    fn drop_stash(&mut self, at: At) -> Check {
        self.driver.drop_stash(self.turn.host, at)
    }

    fn fail(&mut self, mapping: MappingId, at: At, why: Refusal) -> Check {
        self.driver.fail(self.turn.host, mapping, at, why)
    }

    fn has_run(&mut self, at: At) -> Check<bool> {
        Ok(self.driver.has_run(self.turn.host, at))
    }

    fn forget(&mut self, segment: SegmentId) -> Check {
        self.driver.forget(self.turn.host, segment)
    }

    fn lend_lock(&mut self, key: SyncKey, by: ClientId, wanted: bool) -> Check {
        self.driver.lend_lock(self.turn.host, key, (by, wanted))
    }

    fn reclaim_lock(&mut self, key: SyncKey) -> Check<Reclaimed> {
        self.driver.reclaim_lock(self.turn.host, key)
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply) -> Check {
        self.driver.reply(self.turn.host, ticket, reply)
    }

    fn diff_work(&mut self, work: DiffWork) -> Check {
        D::diff_work(self, work)
    }

    fn store(&mut self, pages: PageRange) -> Check<bool> {
        self.driver.store(self.turn.host, pages)
    }

    fn trap(&mut self, segment: SegmentId) -> Check<Vec<PageRange>> {
        self.driver.trap(self.turn.host, segment)
    }

    fn emit(&mut self, event: Event) -> Check {
        self.driver.emit(self.turn.host, event)
    }

    fn follow(&mut self, input: Input<'static>) {
        self.follow.push(input);
    }

    fn before(&mut self, _: usize, rest: &[Effect]) -> Next {
        if let [effect, ..] = rest
            && !matches!(effect, Effect::Emit(_) | Effect::Send { .. })
        {
            self.driver.about_to(self.turn.host, effect);
        }
        Next::Execute
    }

    fn after(&mut self, _: usize) {
        self.driver.did(self.turn.host);
    }
}
