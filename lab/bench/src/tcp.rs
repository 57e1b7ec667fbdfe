//! TCP beside PageMesh: streams, and requests with replies.

use super::raw::REQUEST;
use super::testbed::Testbed;
use anyhow::{Context, Result, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Bytes given to TCP at once.
const CHUNK: usize = 256 << 10;

/// How long a server may take until it listens, and a peer that spins to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection that sends at once, and waits as it is told.
pub(super) struct Line {
    stream: TcpStream,
    spin: bool,
}

impl Line {
    fn new(stream: TcpStream, spin: bool) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(spin)?;
        Ok(Self { stream, spin })
    }

    /// Connects to a server that may not listen yet.
    pub(super) fn to(server: SocketAddr, spin: bool) -> Result<Self> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect(server) {
                Ok(stream) => return Self::new(stream, spin),
                Err(_) if Instant::now() < give_up => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(error).with_context(|| format!("cannot reach {server}")),
            }
        }
    }

    /// Sends all of it.
    pub(super) fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let sent = Self::again(self.spin, || self.stream.write(bytes))?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Receives so much that the buffer is full.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<()> {
        let mut got = 0;
        while got < buffer.len() {
            got += self.some(&mut buffer[got..])?;
        }
        Ok(())
    }

    /// Receives the bytes there are, at least one.
    pub(super) fn some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let got = Self::again(self.spin, || self.stream.read(buffer))?;
        ensure!(got > 0, "the peer closed the connection");
        Ok(got)
    }

    fn again(spin: bool, mut call: impl FnMut() -> std::io::Result<usize>) -> Result<usize> {
        let mut give_up = None;
        loop {
            match call() {
                Ok(done) => return Ok(done),
                Err(error) if spin && error.kind() == ErrorKind::WouldBlock => {
                    let now = Instant::now();
                    ensure!(
                        now < *give_up.get_or_insert(now + PATIENCE),
                        "the peer does not answer"
                    );
                    std::hint::spin_loop();
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Answers requests with a page each.
pub(super) fn answer(bind: SocketAddr, count: u32, spin: bool) -> Result<Vec<u64>> {
    let (stream, _) = listen(bind)?.accept()?;
    let mut line = Line::new(stream, spin)?;
    let (mut request, page) = ([0; REQUEST], [0x5a; Testbed::PAGE_REPLY]);
    for _ in 0..count {
        line.receive(&mut request)?;
        line.send(&page)?;
    }
    Ok(Vec::new())
}

/// Asks for a page again and again.
pub(super) fn exchange(to: SocketAddr, count: u32, spin: bool) -> Result<Vec<u64>> {
    let mut line = Line::to(to, spin)?;
    let (request, mut page) = ([0xa5; REQUEST], [0; Testbed::PAGE_REPLY]);
    let mut times = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = Instant::now();
        line.send(&request)?;
        line.receive(&mut page)?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(times)
}

/// Sends so many bytes to the first who connects.
pub(super) fn serve(bind: SocketAddr, bytes: u64) -> Result<Vec<u64>> {
    let (mut peer, _) = listen(bind)?.accept()?;
    let chunk = vec![0x5a; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(CHUNK as u64) as usize;
        peer.write_all(&chunk[..now])?;
        left -= now as u64;
    }
    Ok(Vec::new())
}

/// Receives so many bytes.
pub(super) fn fetch(to: SocketAddr, bytes: u64) -> Result<Vec<u64>> {
    let mut line = Line::to(to, false)?;
    let mut chunk = vec![0; CHUNK];
    let (start, mut got) = (Instant::now(), 0);
    while got < bytes {
        got += line.some(&mut chunk)? as u64;
    }
    Ok(vec![start.elapsed().as_nanos() as u64])
}

fn listen(bind: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(bind).with_context(|| format!("cannot bind {bind}"))
}
