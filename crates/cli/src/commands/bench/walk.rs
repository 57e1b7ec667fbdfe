//! What an agent of `bench stream` does: walks through memory, and TCP.

use anyhow::{Context, Result, ensure};
use pagemesh::Mapping;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes given to TCP at once.
const CHUNK: usize = 256 << 10;

/// Loads or stores every byte of the first pages, from front to back.
pub(super) fn walk(mapping: &Mapping, pages: u32, write: bool) -> Result<Vec<u64>> {
    let mut page = vec![0xa5; 4096];
    let mut sum = 0_u64;
    let start = Instant::now();
    for index in 0..pages as usize {
        if write {
            page[0] = index as u8;
            mapping.write(index * 4096, &page)?;
        } else {
            mapping.read(index * 4096, &mut page)?;
            sum += u64::from(page[0]);
        }
    }
    std::hint::black_box(sum);
    Ok(vec![start.elapsed().as_nanos() as u64])
}

/// Loads one word of each page, every thread of its share.
pub(super) fn crowd(mapping: &Mapping, pages: &[u32], threads: u32) -> Result<Vec<u64>> {
    let share = pages.len().div_ceil(threads as usize);
    let load = |share: &[u32]| -> Result<()> {
        for page in share {
            std::hint::black_box(
                mapping
                    .atomic_u64(*page as usize * 4096)?
                    .load(Ordering::Relaxed),
            );
        }
        Ok(())
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        let running: Vec<_> = pages
            .chunks(share)
            .map(|share| scope.spawn(|| load(share)))
            .collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().expect("it only loads"))
    })?;
    Ok(vec![start.elapsed().as_nanos() as u64])
}

/// Stores to the first page again and again.
pub(super) fn contend(mapping: &Mapping, millis: u64, pause_nanos: u64) -> Result<Vec<u64>> {
    let word = mapping.atomic_u64(0)?;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(millis) {
        word.fetch_add(1, Ordering::Relaxed);
        let stored = Instant::now();
        while stored.elapsed() < Duration::from_nanos(pause_nanos) {
            std::hint::spin_loop();
        }
    }
    Ok(Vec::new())
}

/// Answers requests with a page each.
pub(super) fn answer_tcp(bind: SocketAddr, count: u32) -> Result<Vec<u64>> {
    let listener = TcpListener::bind(bind).with_context(|| format!("cannot bind {bind}"))?;
    let (mut peer, _) = listener.accept()?;
    peer.set_nodelay(true)?;
    let (mut request, page) = ([0; 64], [0x5a; 4096]);
    for _ in 0..count {
        peer.read_exact(&mut request)?;
        peer.write_all(&page)?;
    }
    Ok(Vec::new())
}

/// Asks for a page again and again.
pub(super) fn exchange_tcp(to: SocketAddr, count: u32) -> Result<Vec<u64>> {
    let mut peer = TcpStream::connect(to).with_context(|| format!("cannot reach {to}"))?;
    peer.set_nodelay(true)?;
    let (request, mut page) = ([0xa5; 64], [0; 4096]);
    let mut times = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let start = Instant::now();
        peer.write_all(&request)?;
        peer.read_exact(&mut page)?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(times)
}

/// Sends so many bytes to the first who connects.
pub(super) fn serve_tcp(bind: SocketAddr, bytes: u64) -> Result<Vec<u64>> {
    let listener = TcpListener::bind(bind).with_context(|| format!("cannot bind {bind}"))?;
    let (mut peer, _) = listener.accept()?;
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
pub(super) fn fetch_tcp(to: SocketAddr, bytes: u64) -> Result<Vec<u64>> {
    let mut peer = TcpStream::connect(to).with_context(|| format!("cannot reach {to}"))?;
    let mut chunk = vec![0; CHUNK];
    let (start, mut got) = (Instant::now(), 0);
    while got < bytes {
        let now = peer.read(&mut chunk)?;
        ensure!(now > 0, "the stream ended after {got} bytes");
        got += now as u64;
    }
    Ok(vec![start.elapsed().as_nanos() as u64])
}
