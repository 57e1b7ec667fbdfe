//! The daemon's end of the connection to its keeper.

use super::words::{Answer, OLDEST_VERSION, Order, PACKET, Tag, VERSION, decode, encode};
use super::{Keeping, socket_path};
use anyhow::{Context as _, Result, bail};
use pagemesh_os::seqpacket::Socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A keeper at work.
#[derive(Debug)]
pub(crate) struct Keeper {
    socket: Socket,
    /// The process, if it was started here.
    child: Option<Child>,
    process: i32,
}

/// An item that was kept.
#[derive(Debug)]
pub(crate) struct Held {
    /// Its name.
    pub(crate) tag: Tag,
    /// Its note.
    pub(crate) note: Vec<u8>,
    /// The thing.
    pub(crate) fd: OwnedFd,
}

/// The result of looking for a keeper.
#[derive(Debug)]
pub(crate) enum Search {
    /// None.
    Nobody,
    /// One whose daemon lives.
    Busy,
    /// One whose daemon is dead, and everything it keeps.
    Found(Keeper, Vec<Held>),
}

/// How long a keeper may take to say something.
const PATIENCE: Duration = Duration::from_secs(10);

const SILENT: &str = "the keeper of the daemon before does not answer";

impl Keeper {
    /// Starts a keeper, which keeps nothing yet, and waits until the next daemon
    /// can find it.
    pub(crate) fn start(keeping: &Keeping, socket: &Path) -> Result<Self> {
        let (ours, theirs) = Socket::pair()?;
        let path = std::path::absolute(socket_path(socket))?;
        let child = Command::new(&keeping.program)
            .arg0("pagemesh-keeper")
            .arg("keeper")
            .arg("--path")
            .arg(path)
            .arg(format!("--grace={}ns", keeping.grace.as_nanos()))
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", keeping.program.display()))?;
        ours.set_receive_timeout(PATIENCE)?;
        let heard = ours.recv_surely(&mut [0; PACKET])?;
        heard.context("it ended at once; its error is above")?;
        Ok(Self {
            socket: ours,
            process: i32::try_from(child.id()).unwrap_or(0),
            child: Some(child),
        })
    }

    /// Looks for a keeper, and takes its items if its daemon is dead.
    pub(crate) fn search(socket: &Path) -> Result<Search> {
        for version in (OLDEST_VERSION..=VERSION).rev() {
            if let Some(found) = Self::search_in(version, socket)? {
                return Ok(found);
            }
        }
        bail!(
            "the keeper of the daemon before is of another release; end its programs, then kill it \
             (`pagemesh-keeper` with --path {})",
            socket_path(socket).display()
        )
    }

    /// None if the keeper does not speak this version.
    fn search_in(version: u32, socket: &Path) -> Result<Option<Search>> {
        let link = match Socket::connect_within(&socket_path(socket), PATIENCE) {
            Ok(link) => link,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(error).context(SILENT);
            }
            Err(_) => return Ok(Some(Search::Nobody)),
        };
        let process = link.peer()?.pid;
        link.set_receive_timeout(PATIENCE)?;
        let mut held = Vec::new();
        let mut buffer = [0; PACKET];
        if link
            .send_surely(&encode(&Order::Adopt { version }), &[])
            .is_err()
        {
            return Ok(Some(Search::Nobody));
        }
        loop {
            let packet = match link.recv_surely(&mut buffer) {
                Ok(Some(packet)) => packet,
                // It ends: there is nothing to take over any more.
                Ok(None) => return Ok(Some(Search::Nobody)),
                Err(error) => {
                    return Err(error).context(SILENT);
                }
            };
            let fd = packet.fds.into_iter().next();
            match (decode(&buffer[..packet.len]), fd) {
                (Some(Answer::Item { tag, note }), Some(fd)) => held.push(Held { tag, note, fd }),
                (Some(Answer::All), None) => {
                    let child = None;
                    let keeper = Self {
                        socket: link,
                        child,
                        process,
                    };
                    return Ok(Some(Search::Found(keeper, held)));
                }
                (Some(Answer::Busy), None) => return Ok(Some(Search::Busy)),
                (Some(Answer::Foreign), None) => return Ok(None),
                _ => bail!("the keeper of the daemon before, process {process}, talks nonsense"),
            }
        }
    }

    /// Keeps something from now on.
    pub(crate) fn put(&self, tag: Tag, note: Vec<u8>, fd: BorrowedFd<'_>) {
        self.say(&Order::Put { tag, note }, &[fd]);
    }

    /// Keeps it no more.
    pub(crate) fn drop(&self, tag: Tag) {
        self.say(&Order::Drop { tag }, &[]);
    }

    /// Tells the keeper that the takeover is complete.
    pub(crate) fn settled(&self) {
        self.say(&Order::Settled, &[]);
    }

    /// Tells the keeper that no daemon goes on. Waits until the keeper has released resources that
    /// others may need, such as addresses.
    pub(crate) fn end(self) {
        self.say(&Order::End, &[]);
        let mut buffer = [0; PACKET];
        let _ = self.socket.set_receive_timeout(PATIENCE);
        let _ = self.socket.recv_surely(&mut buffer);
    }

    /// Its process.
    pub(crate) fn process(&self) -> i32 {
        self.process
    }

    /// Whether it is gone; then it is to be replaced.
    pub(crate) fn is_gone(&mut self) -> bool {
        let gone = matches!(self.socket.recv_now(&mut [0; PACKET]), Ok(None));
        if gone && let Some(child) = &mut self.child {
            let _ = child.wait();
        }
        gone
    }

    /// A keeper that is gone is noticed by its connection, and another one is
    /// given everything.
    fn say(&self, order: &Order, fds: &[BorrowedFd<'_>]) {
        match self.socket.send_surely(&encode(order), fds) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                tracing::error!(%error, "the keeper does not take something");
            }
            _ => {}
        }
    }
}

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Ends a keeper without a daemon.
pub(super) fn dismiss(path: &Path) -> io::Result<()> {
    let link = Socket::connect_within(path, PATIENCE)?;
    link.send_surely(&encode(&Order::Dismiss), &[])?;
    link.set_receive_timeout(PATIENCE)?;
    link.recv_surely(&mut [0; PACKET]).map(drop)
}
