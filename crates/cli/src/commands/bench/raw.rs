//! The raw exchange: the same bytes between the same namespaces under the same
//! waiting policy, without any PageMesh.

use super::agent::Order;
use anyhow::{Context, Result, ensure};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// A server that nobody asks for this long gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of a request, as of an ask for a page.
pub(super) const REQUEST: usize = 64;

/// Answers `count` requests with `reply` bytes each.
pub(super) fn serve(bind: SocketAddr, reply: usize, count: u32, spin: bool) -> Result<()> {
    let socket = socket(bind, spin)?;
    let (mut request, answer) = ([0; REQUEST], vec![0x5a; reply]);
    for _ in 0..count {
        let (_, from) = receive(&socket, &mut request, spin)?;
        socket.send_to(&answer, from)?;
    }
    Ok(())
}

/// Exchanges `count` requests for replies; returns the time of each.
pub(super) fn exchange(order: &Order) -> Result<Vec<u64>> {
    let Order::RawExchange {
        to,
        reply,
        count,
        spin,
    } = order
    else {
        anyhow::bail!("not an exchange");
    };
    let mut local = *to;
    local.set_ip(if to.is_ipv4() {
        [0, 0, 0, 0].into()
    } else {
        [0; 16].into()
    });
    local.set_port(0);
    let socket = socket(local, *spin)?;
    let (request, mut answer) = ([0xa5; REQUEST], vec![0; 65536]);
    let mut times = Vec::with_capacity(*count as usize);
    for _ in 0..*count {
        let start = Instant::now();
        socket.send_to(&request, to)?;
        let (length, _) = receive(&socket, &mut answer, *spin)?;
        times.push(start.elapsed().as_nanos() as u64);
        ensure!(length == *reply, "{length} bytes instead of {reply}");
    }
    Ok(times)
}

fn socket(bind: SocketAddr, spin: bool) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(bind).with_context(|| format!("cannot bind {bind}"))?;
    if spin {
        socket.set_nonblocking(true)?;
    } else {
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    Ok(socket)
}

fn receive(socket: &UdpSocket, buffer: &mut [u8], spin: bool) -> Result<(usize, SocketAddr)> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match socket.recv_from(buffer) {
            Ok(received) => return Ok(received),
            Err(error) if spin && error.kind() == std::io::ErrorKind::WouldBlock => {
                ensure!(Instant::now() < give_up, "the raw exchange got stuck");
                std::hint::spin_loop();
            }
            Err(error) => return Err(error).context("the raw exchange failed"),
        }
    }
}
