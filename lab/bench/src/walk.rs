//! The walks through memory of `bench stream`, run by an agent.

use anyhow::Result;
use pagemesh::Mapping;
use pagemesh_os::region::{Region, Shape};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// The byte that the next walk stores, another one each time: a store of what is there already is no
/// change under policy `release`.
static STORED: AtomicU8 = AtomicU8::new(1);

/// Loads or stores every byte of the first pages, from front to back.
pub(super) fn walk(mapping: &Mapping, pages: u32, write: bool) -> Result<Vec<u64>> {
    let stored = STORED.fetch_add(u8::from(write), Ordering::Relaxed);
    let mut page = vec![stored; 4096];
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

/// Stores every byte of so many new pages of a memfd.
pub(super) fn fill_memfd(pages: u32) -> Result<Vec<u64>> {
    let bytes = pages as usize * 4096;
    let mut memfd = Region::create("pagemesh-bench", Shape { words: 0, bytes })?;
    let page = [1; 4096];
    let start = Instant::now();
    for room in memfd.bytes_mut().chunks_exact_mut(page.len()) {
        room.copy_from_slice(&page);
    }
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

/// Works again and again, with pauses; returns how often.
pub(super) fn contend(
    millis: u64,
    pause_nanos: u64,
    mut work: impl FnMut() -> Result<()>,
) -> Result<Vec<u64>> {
    let (start, mut often) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(millis) {
        work()?;
        often += 1;
        let done = Instant::now();
        while done.elapsed() < Duration::from_nanos(pause_nanos) {
            std::hint::spin_loop();
        }
    }
    Ok(vec![often])
}
