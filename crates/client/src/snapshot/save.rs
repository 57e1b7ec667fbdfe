//! Saving a segment, by its policy.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pagemesh_snapshot::{PAGE, Summary};
use pagemesh_wire::PageIndex;

use super::copy::Copier;
use super::cut::cut;
use super::{Consistency, Header, SaveOptions, Saved, SnapshotResult};
use crate::{Access, Board, Error, Segment};

pub fn save(segment: &Segment, path: &Path, options: SaveOptions<'_>) -> SnapshotResult<Saved> {
    let spec = segment.info().spec.clone();
    let instant = spec.policy.sequential().is_some();
    if instant && segment.access() == Access::ReadOnly {
        let why = "a save stops stores for a moment, so the segment must be opened writable";
        return Err(Error::Invalid(why).into());
    }
    let board = Board::of(segment);
    let consistency = match &board {
        Some(_) => Consistency::Published,
        None if instant => Consistency::Instant,
        None => options.ordered.unwrap_or(Consistency::Caller),
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let header = Header {
        name: segment.name().to_owned(),
        spec,
        page_size: PAGE as u32,
        saved: since.map_or(0, |since| since.as_nanos() as u64),
        consistency,
    };
    let mut copier = Copier::new(segment, path, &header, options)?;
    let mut stopped = Duration::ZERO;
    let pages = match board {
        Some(board) => copy_board(&mut copier, &board)?,
        None if instant => {
            let (pages, time) = cut(&mut copier)?;
            stopped = time;
            pages
        }
        None => copier.copy_all()?,
    };
    let Summary { bytes, .. } = copier.finish()?;
    Ok(Saved {
        consistency,
        pages,
        bytes,
        stopped,
    })
}

/// Copies the states of a board that are whole.
fn copy_board(copier: &mut Copier<'_, '_>, board: &Board) -> SnapshotResult<u64> {
    let mut full = 0;
    for (at, bytes) in board.image()? {
        for (index, part) in (at / PAGE..).zip(bytes.chunks(PAGE)) {
            let mut page = [0; PAGE];
            page[..part.len()].copy_from_slice(part);
            copier.write(PageIndex(index as u32), &page)?;
            full += 1;
        }
    }
    copier.tell(copier.pages)?;
    Ok(full)
}
