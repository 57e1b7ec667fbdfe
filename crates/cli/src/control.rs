//! A plain conversation with a daemon: one question, one answer.
//!
//! Commands need no mappings and no threads, so they do not go through the
//! `pagemesh` library; they speak the same packets on the same socket.

use crate::exit::{Exit, Trouble};
use anyhow::{Result, bail};
use pagemesh_os::seqpacket::Socket;
use pagemesh_wire::local::{
    MAX_PACKET, NodeStatus, PathInfo, Refusal, Reply, ReplyPacket, Request, RequestPacket,
};
use pagemesh_wire::peer::{Health, Member, MemoryReport, SegmentInfo};
use pagemesh_wire::{ClientId, NodeId};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a daemon may take for an ordinary answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to a daemon.
pub struct Control {
    socket: Socket,
    path: PathBuf,
    patience: Duration,
    next: u64,
    /// The node at the other end.
    pub node: NodeId,
    /// This process, as the daemon calls it.
    pub client: ClientId,
}

impl Control {
    /// Connects and introduces itself.
    ///
    /// # Errors
    /// If no daemon listens there, it may not be asked, or it speaks another version.
    pub fn connect(path: &Path) -> Result<Self> {
        Self::connect_within(path, PATIENCE)
    }

    /// As [`Control::connect`], with a daemon that has only so long for each answer.
    ///
    /// # Errors
    /// As [`Control::connect`].
    pub fn connect_within(path: &Path, patience: Duration) -> Result<Self> {
        let socket =
            Socket::connect_within(path, patience).map_err(|error| refused(path, &error))?;
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(patience))?;
        }
        let mut control = Self {
            socket,
            path: path.to_owned(),
            patience,
            next: 0,
            node: NodeId::NONE,
            client: ClientId(0),
        };
        match control.greet()? {
            Reply::Welcome { node, client, .. } => {
                control.node = node;
                control.client = client;
                Ok(control)
            }
            other => unexpected(&other),
        }
    }

    /// Says hello in the newest version that the daemon speaks, too.
    fn greet(&mut self) -> Result<Reply> {
        let mut first = None;
        for (_, hello) in Request::hellos("pagemesh") {
            match self.answer(hello)? {
                (Reply::Refused(why @ Refusal::Invalid(_)), _) => {
                    first.get_or_insert(why);
                }
                (Reply::Refused(why), _) => return Err(refusal(&why)),
                (reply, _) => return Ok(reply),
            }
        }
        Err(refusal(&first.expect("there is a version to speak")))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// If the daemon refuses or does not answer in time.
    pub fn ask(&mut self, request: Request) -> Result<Reply> {
        // Descriptors that come along are for processes that map.
        self.exchange(request).map(|(reply, _)| reply)
    }

    /// Asks for something that comes with descriptors.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn exchange(&mut self, request: Request) -> Result<(Reply, Vec<OwnedFd>)> {
        match self.answer(request)? {
            (Reply::Refused(why), _) => Err(refusal(&why)),
            answer => Ok(answer),
        }
    }

    /// The answer to a request, which may be a refusal.
    fn answer(&mut self, request: Request) -> Result<(Reply, Vec<OwnedFd>)> {
        self.next += 1;
        let number = self.next;
        let packet = RequestPacket { number, request }.encode();
        match self.socket.send_surely(&packet, &[]) {
            // A daemon that went may have said why; that is still to be heard.
            Err(error) if is_gone(error.kind()) => {}
            sent => sent.map_err(|error| self.lost(&error))?,
        }
        loop {
            let (answer, fds) = self.receive()?;
            if answer.number != number {
                continue;
            }
            return Ok((answer.reply, fds));
        }
    }

    /// The process at the other end, as the kernel says.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        let peer = rustix::net::sockopt::socket_peercred(&self.socket).ok()?;
        u32::try_from(peer.pid.as_raw_pid()).ok()
    }

    /// The daemon's socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits as long as the daemon lives; for answers that may take their time.
    ///
    /// # Errors
    /// If the kernel will not have it.
    pub fn be_patient(&self) -> Result<()> {
        Ok(set_socket_timeout(&self.socket, Timeout::Recv, None)?)
    }

    /// Everyone who ever joined, with the epoch.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn members(&mut self) -> Result<(u64, Vec<Member>)> {
        let (epoch, _, members) = self.everyone()?;
        Ok((epoch, members))
    }

    /// Everyone who ever joined, with the epoch, and the version of the protocol in which they speak.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn everyone(&mut self) -> Result<(u64, u8, Vec<Member>)> {
        let reply = self.ask(Request::Members)?;
        reply.into_members().or_else(|other| unexpected(&other))
    }

    /// The members that are alive now.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn alive(&mut self) -> Result<Vec<Member>> {
        let (_, mut members) = self.members()?;
        members.retain(|member| member.health == Health::Alive);
        Ok(members)
    }

    /// How the node is.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn status(&mut self) -> Result<NodeStatus> {
        match self.ask(Request::Status)? {
            Reply::Status(status) => Ok(status),
            other => unexpected(&other),
        }
    }

    /// The packet lengths that the paths from there to other members carry.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn paths(&mut self) -> Result<Vec<PathInfo>> {
        match self.ask(Request::Paths)? {
            Reply::Paths(paths) => Ok(paths),
            other => unexpected(&other),
        }
    }

    /// The memory of any node.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn memory(&mut self, node: NodeId) -> Result<MemoryReport> {
        match self.ask(Request::Memory { node })? {
            Reply::Memory(report) => Ok(report),
            other => unexpected(&other),
        }
    }

    /// The counters of the node, by name.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn counters(&mut self) -> Result<Vec<(String, u64)>> {
        match self.ask(Request::Counters)? {
            Reply::Counters(counters) => Ok(counters),
            other => unexpected(&other),
        }
    }

    /// All segments, in order of their names.
    ///
    /// # Errors
    /// As [`Control::ask`].
    pub fn segments(&mut self) -> Result<Vec<SegmentInfo>> {
        let mut all: Vec<SegmentInfo> = Vec::new();
        loop {
            let after = all.last().map_or(String::new(), |info| info.name.clone());
            match self.ask(Request::List { after })? {
                Reply::Segments(some) if some.is_empty() => return Ok(all),
                Reply::Segments(some) => all.extend(some),
                other => return unexpected(&other),
            }
        }
    }

    fn receive(&self) -> Result<(ReplyPacket, Vec<OwnedFd>)> {
        let mut buffer = vec![0; MAX_PACKET];
        match self.socket.recv_surely(&mut buffer) {
            Ok(Some(packet)) => {
                let reply = ReplyPacket::decode(&buffer[..packet.len])?;
                Ok((reply, packet.fds))
            }
            Ok(None) => Err(self.lost(&ErrorKind::BrokenPipe.into())),
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn lost(&self, error: &io::Error) -> anyhow::Error {
        let path = self.path.display();
        match error.kind() {
            ErrorKind::WouldBlock => anyhow::anyhow!(
                "the daemon at {path} did not answer within {:?}; look at its log",
                self.patience
            ),
            gone if is_gone(gone) => Trouble::new(
                Exit::NO_DAEMON,
                format!("the daemon at {path} has gone away"),
            )
            .into(),
            _ => anyhow::anyhow!("socket {path}: {error}"),
        }
    }
}

fn is_gone(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// The error for an answer that does not fit the question.
///
/// # Errors
/// Always.
pub fn unexpected<T>(reply: &Reply) -> Result<T> {
    bail!("the daemon gave an answer that does not fit: {reply:?}; are both of one version?")
}

fn refused(path: &Path, error: &io::Error) -> anyhow::Error {
    let path = path.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Trouble::new(
            Exit::NO_DAEMON,
            format!(
                "no daemon listens on {path}; start one with `pagemesh daemon`, \
                 or name its socket with --socket or PAGEMESH_SOCKET"
            ),
        )
        .into(),
        ErrorKind::PermissionDenied => Trouble::new(
            Exit::NO_PERMISSION,
            format!("may not talk to the daemon on {path}; join the group that owns the socket"),
        )
        .into(),
        _ => anyhow::anyhow!("connecting to {path}: {error}"),
    }
}

fn refusal(why: &Refusal) -> anyhow::Error {
    let exit = match why {
        Refusal::Permission => Exit::NO_PERMISSION,
        Refusal::NotMember
        | Refusal::DeclaredDead { .. }
        | Refusal::NotYetMember
        | Refusal::Superseded { .. }
        | Refusal::NodeGone(_) => Exit::DEGRADED,
        _ => Exit::FAILURE,
    };
    Trouble::new(exit, why.to_string()).into()
}
