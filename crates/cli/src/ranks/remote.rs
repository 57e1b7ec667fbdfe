//! A copy that runs on a node of the cluster, by way of this node's daemon.

use super::{Copy, Event, Events, Stream};
use crate::exit::{Exit, Trouble};
use anyhow::{Context, Result};
use pagemesh_daemon::launch::{Frame, Order, Said, read_frame, write_frame};
use rustix::process::Signal;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The connection that keeps the copy alive.
pub(crate) struct RemoteCopy(UnixStream);

impl RemoteCopy {
    /// Orders the copy of rank `rank` at the daemon that listens for orders there.
    pub(crate) fn start(
        rank: usize,
        orders: &Path,
        order: &Order,
        node: &str,
        events: &Events,
    ) -> Result<Self> {
        let mut stream = UnixStream::connect(orders).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                anyhow::Error::from(Trouble::new(
                    Exit::NO_DAEMON,
                    format!(
                        "nobody takes orders on {}; is the daemon of an older version?",
                        orders.display()
                    ),
                ))
            }
            _ => anyhow::anyhow!("connecting to {}: {error}", orders.display()),
        })?;
        write_frame(&mut stream, order).with_context(|| format!("ordering rank {rank}"))?;
        let ear = stream.try_clone()?;
        let (node, events) = (node.to_owned(), events.clone());
        std::thread::Builder::new()
            .name(format!("rank-{rank}"))
            .spawn(move || listen(rank, ear, &node, &events))?;
        Ok(Self(stream))
    }
}

impl Copy for RemoteCopy {
    fn signal(&self, signal: Signal) {
        let _ = write_frame(&mut &self.0, &Frame::Signal(signal.as_raw()));
    }
}

fn listen(rank: usize, mut stream: UnixStream, node: &str, events: &Events) {
    let (code, why) = loop {
        let event = match read_frame::<Said>(&mut stream) {
            Ok(Some(Said::Started { pid })) => {
                tracing::debug!(rank, node, pid, "started");
                continue;
            }
            Ok(Some(Said::Out(bytes))) => Event::Said(rank, Stream::Out, bytes),
            Ok(Some(Said::Err(bytes))) => Event::Said(rank, Stream::Err, bytes),
            Ok(Some(Said::Ended { code, why })) => break (code, why),
            Ok(Some(Said::Refused(why))) => {
                break (Exit::FAILURE.0, Some(format!("on {node}: {why}")));
            }
            Ok(None) => {
                break (
                    Exit::FAILURE.0,
                    Some(format!("the connection to {node} was lost")),
                );
            }
            Err(error) => {
                break (
                    Exit::FAILURE.0,
                    Some(format!("connection to {node}: {error}")),
                );
            }
        };
        if events.send(event).is_err() {
            return;
        }
    };
    // One connection carries both outputs, in order: nothing can follow.
    for stream in [Stream::Out, Stream::Err] {
        let _ = events.send(Event::Closed(rank, stream));
    }
    let _ = events.send(Event::Ended(rank, code, why));
}
