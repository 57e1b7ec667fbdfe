//! The raw exchange: the same bytes between the same namespaces under the same
//! waiting policy, without any PageMesh.

use super::agent::Order;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

mod takeback;

pub(super) use takeback::{Holder, Writer};

/// A server without requests for this long gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server may not be there yet: time between hellos until it answers.
const GREETING: Duration = Duration::from_millis(10);

/// Bytes of a request, as of an ask for a page.
pub(super) const REQUEST: usize = 64;

/// How a raw exchange waits, as daemons do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wait {
    /// Ask again and again.
    Spin,
    /// The same, and let others have the processor in between.
    Share,
    /// Sleep.
    Block,
}

/// Answers `count` requests with `reply` bytes each.
pub(super) fn serve(bind: SocketAddr, reply: usize, count: u32, wait: Wait) -> Result<Vec<u64>> {
    let socket = socket(bind, wait)?;
    let (mut request, answer) = ([0; REQUEST], vec![0x5a; reply]);
    for _ in 0..count {
        let from = request_from(&socket, &mut request, wait)?;
        socket.send_to(&answer, from)?;
    }
    Ok(Vec::new())
}

/// Asks all of them and waits for every answer, `count` times; returns the time of each. This is
/// the cost of invalidations without pages and a protocol.
pub(super) fn gather(from: &[SocketAddr], count: u32, wait: Wait) -> Result<Vec<u64>> {
    let first = from.first().context("nobody to ask")?;
    let socket = socket(anywhere(first), wait)?;
    let (request, mut answer) = ([0xa5; REQUEST], [0; REQUEST]);
    from.iter().try_for_each(|to| greet(&socket, to, wait))?;
    let mut times = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = Instant::now();
        for to in from {
            socket.send_to(&request, to)?;
        }
        for _ in from {
            answer_to(&socket, &mut answer, wait)?;
        }
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(times)
}

/// Lets the others go on when all of them have asked, `count` times; returns the time of each. This
/// is the cost of a barrier without daemons.
pub(super) fn meet(bind: SocketAddr, others: u32, count: u32, wait: Wait) -> Result<Vec<u64>> {
    let socket = socket(bind, wait)?;
    let mut request = [0; REQUEST];
    let mut times = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = Instant::now();
        let arrived: Result<Vec<SocketAddr>> = (0..others)
            .map(|_| request_from(&socket, &mut request, wait))
            .collect();
        for other in arrived? {
            socket.send_to(&request, other)?;
        }
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(times)
}

/// Exchanges `count` requests for replies; returns the time of each.
pub(super) fn exchange(order: &Order) -> Result<Vec<u64>> {
    let Order::RawExchange {
        to,
        reply,
        count,
        wait,
    } = order
    else {
        anyhow::bail!("not an exchange");
    };
    let socket = socket(anywhere(to), *wait)?;
    let (request, mut answer) = ([0xa5; REQUEST], vec![0; 65536]);
    greet(&socket, to, *wait)?;
    let mut times = Vec::with_capacity(*count as usize);
    for _ in 0..*count {
        let start = Instant::now();
        socket.send_to(&request, to)?;
        let length = answer_to(&socket, &mut answer, *wait)?;
        times.push(start.elapsed().as_nanos() as u64);
        ensure!(length == *reply, "{length} bytes instead of {reply}");
    }
    Ok(times)
}

/// Waits until the other end answers. An empty datagram is a hello, and a process that waits for
/// requests answers it with another.
fn greet(socket: &UdpSocket, to: &SocketAddr, wait: Wait) -> Result<()> {
    socket.set_nonblocking(true)?;
    let give_up = Instant::now() + PATIENCE;
    while Instant::now() < give_up {
        socket.send_to(&[], to)?;
        let again = Instant::now() + GREETING;
        while Instant::now() < again {
            if let Ok((0, from)) = socket.recv_from(&mut [0; REQUEST])
                && from == *to
            {
                return Ok(socket.set_nonblocking(wait != Wait::Block)?);
            }
            pagemesh_os::cpu::yield_now();
        }
    }
    anyhow::bail!("nobody answers at {to}")
}

/// Waits for the next request, and answers hellos.
fn request_from(socket: &UdpSocket, buffer: &mut [u8], wait: Wait) -> Result<SocketAddr> {
    loop {
        let (length, from) = receive(socket, buffer, wait)?;
        if length > 0 {
            return Ok(from);
        }
        socket.send_to(&[], from)?;
    }
}

/// Waits for the next answer that is no hello; its length.
fn answer_to(socket: &UdpSocket, buffer: &mut [u8], wait: Wait) -> Result<usize> {
    loop {
        let (length, _) = receive(socket, buffer, wait)?;
        if length > 0 {
            return Ok(length);
        }
    }
}

/// Any address of this node from which the other can be reached.
fn anywhere(to: &SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0; 16], 0).into(),
    }
}

fn socket(bind: SocketAddr, wait: Wait) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(bind).with_context(|| format!("cannot bind {bind}"))?;
    match wait {
        Wait::Block => socket.set_read_timeout(Some(PATIENCE))?,
        Wait::Spin | Wait::Share => socket.set_nonblocking(true)?,
    }
    Ok(socket)
}

fn receive(socket: &UdpSocket, buffer: &mut [u8], wait: Wait) -> Result<(usize, SocketAddr)> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match socket.recv_from(buffer) {
            Ok(received) => return Ok(received),
            Err(error) if wait != Wait::Block && error.kind() == ErrorKind::WouldBlock => {
                ensure!(Instant::now() < give_up, "the raw exchange got stuck");
                match wait {
                    Wait::Share => pagemesh_os::cpu::yield_now(),
                    _ => std::hint::spin_loop(),
                }
            }
            Err(error) => return Err(error).context("the raw exchange failed"),
        }
    }
}
