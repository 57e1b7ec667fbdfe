//! Answers of the core, on their way to the process that asked.

use crate::executor::DaemonExecutor;
use anyhow::Context as _;
use pagemesh_core::{Input, Reply};
use pagemesh_os::clock;
use pagemesh_recorder::{Kind, Note, Pending};
use pagemesh_wire::local::{self, FileFrames, MAX_PACKET};
use pagemesh_wire::peer::{Refusal, SegmentInfo};
use pagemesh_wire::{ByteLen, ClientId, Ticket};
use std::os::fd::OwnedFd;

const _: () = assert!(
    MAX_PACKET >= 32 * 1024,
    "a list of segments fits in a packet"
);

impl DaemonExecutor {
    /// The core answers a request.
    pub(crate) fn answer(&mut self, ticket: Ticket, reply: Reply) {
        let Some(pending) = self.tickets.get(ticket) else {
            return;
        };
        if reply != Reply::Waiting {
            let watched = self.tickets.close(ticket);
            if let Some(client) = pending.client {
                self.sessions.count_waiting(client, -1);
                self.sessions.count_watching(client, -isize::from(watched));
            }
            if watched {
                self.changed = Some(clock::monotonic());
            }
            self.note(&Note::Answered { ticket });
        }
        if pending.kind == Kind::Leave {
            self.has_left(pending.client.is_none(), &reply);
        }
        if let (Kind::HandOver { schema }, Reply::Done) = (pending.kind, &reply) {
            self.life.handed_over = Some(schema);
        }
        let Some(client) = pending.client else {
            return;
        };
        if let Reply::FilePages(frames) = &reply
            && self.has_unplaced(client, frames)
        {
            tracing::error!(%client, "no memory for pages of files; their cache ends");
            return self.sessions.doom(client);
        }
        let (reply, fds) = match (pending.kind, reply) {
            (Kind::Open { write }, Reply::Segment(info)) => self.opened(client, info, write),
            (_, reply) => (to_local(reply), Vec::new()),
        };
        self.tell(client, pending, reply, fds);
    }

    /// Whether the kernel had no memory for one of the frames. The process would read other contents
    /// there.
    fn has_unplaced(&self, client: ClientId, frames: &FileFrames) -> bool {
        let session = self.sessions.get(client);
        let open = session.into_iter().flat_map(|session| session.open.keys());
        let mut all = open.flat_map(|segment| frames.frames.iter().map(|frame| (*segment, *frame)));
        !self.pages.waiting.is_empty() && all.any(|at| self.pages.waiting.get(at).is_some())
    }

    fn tell(&mut self, client: ClientId, to: Pending, reply: local::Reply, fds: Vec<OwnedFd>) {
        self.reply(client, to.number, reply, fds);
    }

    /// The segment exists and is open; gives the process what it needs to map it.
    fn opened(
        &mut self,
        client: ClientId,
        info: SegmentInfo,
        write: bool,
    ) -> (local::Reply, Vec<OwnedFd>) {
        match self.lend(client, &info, write) {
            Ok(fds) => {
                let session = self.sessions.get(client);
                let opening = session.and_then(|session| session.open.get(&info.id));
                let mut opening = opening.copied().unwrap_or_default();
                opening.count += 1;
                opening.write |= write;
                opening.size = whole_pages(info.spec.size);
                self.set_opening(client, info.id, opening);
                (local::Reply::Opened { info }, fds)
            }
            Err(error) => {
                if self.may_log(client, clock::monotonic()) {
                    tracing::error!(segment = %info.name, "cannot open: {error:#}");
                }
                let segment = info.id;
                self.follow(Input::Closed { segment, client });
                let why = match error.downcast() {
                    Ok(refusal) => refusal,
                    Err(error) => Refusal::Limit(format!("{error:#}")),
                };
                (local::Reply::Refused(why), Vec::new())
            }
        }
    }

    fn lend(
        &mut self,
        client: ClientId,
        info: &SegmentInfo,
        write: bool,
    ) -> anyhow::Result<Vec<OwnedFd>> {
        let session = self.sessions.get(client);
        let uid = session.map_or(0, |session| session.caller.credentials.uid);
        if self.pages.segments.get(info.id).is_none() {
            self.check_descriptors(uid, 2)?;
        }
        self.pages.segments.open(info)?;
        // Kept before it is lent: else its user and the next daemon would each
        // have one of their own.
        self.keep_segments();
        let segment = self.pages.segments.get(info.id).context("just opened")?;
        Ok(segment.lend(write)?)
    }

    /// A request to leave was answered. A daemon told to end ends anyway.
    fn has_left(&mut self, must_end: bool, reply: &Reply) {
        match reply {
            Reply::Refused(why) if must_end => {
                tracing::warn!(%why, "ending without having left in order");
                self.life.left = true;
            }
            Reply::Refused(_) => {}
            _ => self.life.left = true,
        }
    }
}

fn whole_pages(size: ByteLen) -> ByteLen {
    size.pages().map_or(size, |pages| pages.bytes())
}

fn to_local(reply: Reply) -> local::Reply {
    match reply {
        Reply::Done => local::Reply::Done,
        Reply::Segment(info) => local::Reply::Segment(info),
        Reply::Segments(infos) => local::Reply::Segments(infos),
        Reply::Woken(count) => local::Reply::Woken(count),
        Reply::Locked { recovered } => local::Reply::Locked { recovered },
        Reply::Waiting => local::Reply::Waiting,
        Reply::Changed => local::Reply::Changed,
        Reply::Refused(why) => local::Reply::Refused(why),
        Reply::Sysv(outcome) => local::Reply::Sysv(outcome),
        Reply::FilePages(frames) => local::Reply::FilePages(frames),
        Reply::Memory(report) => local::Reply::Memory(report),
    }
}
