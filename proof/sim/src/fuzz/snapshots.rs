//! Files of saved segments: hostile ones are refused, or have a meaning inside of their segment.
//!
//! Mutations are seldom right in their checksums. So an input is tried as it is, and once more with
//! all checksums put right: behind them everything must be checked, too.

use crate::check::{Check, ensure};
use pagemesh_snapshot::{Consistency, Form, Header, PAGE, PIECE_PAGES, Reader, Writer};
use pagemesh_wire::peer::{Policy, SegmentSpec};
use pagemesh_wire::{ByteLen, PageIndex};

/// Bytes before the header, and before the contents of a piece.
const PRELUDE: usize = 16;
const PIECE_HEAD: usize = 13;

/// Returns whether the input is a whole snapshot.
pub(super) fn snapshot_read(input: &[u8]) -> Check<bool> {
    let plain = read(input)?;
    let mended = read(&mend(input))?;
    ensure!(mended || !plain, Law, "a whole snapshot was mended");
    Ok(mended)
}

fn read(input: &[u8]) -> Check<bool> {
    let length = input.len() as u64;
    let mut reader = match Reader::new(input) {
        Ok(reader) => reader,
        Err(error) => {
            ensure!(error.offset <= length, Law, "{error} of {length} bytes");
            return Ok(false);
        }
    };
    let pages = reader.header().spec.size.pages();
    let pages = pages.map_or(0, |pages| u64::from(pages.0));
    loop {
        let piece = match reader.piece() {
            Ok(Some(piece)) => piece,
            Ok(None) => {
                let offset = reader.offset();
                ensure!(offset == length, Law, "the end is at {offset} of {length}");
                return Ok(true);
            }
            Err(error) => {
                ensure!(error.offset <= length, Law, "{error} of {length} bytes");
                ensure!(
                    matches!(reader.piece(), Ok(None)),
                    Law,
                    "a piece follows an error"
                );
                return Ok(false);
            }
        };
        let count = (piece.contents.len() / PAGE) as u64;
        let whole = piece.contents.len().is_multiple_of(PAGE);
        ensure!(
            whole && (1..=u64::from(PIECE_PAGES)).contains(&count),
            Law,
            "a piece of {} bytes",
            piece.contents.len()
        );
        let end = u64::from(piece.first.0) + count;
        ensure!(end <= pages, Law, "a piece ends at {end} of {pages} pages");
    }
}

/// The input with the checksums that its lengths lead to.
fn mend(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let number = |bytes: &[u8], at: usize| {
        let four = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(four.try_into().ok()?) as usize)
    };
    let (mut start, mut sum, mut head, mut length_at) = (0, 0u32, PRELUDE, 12);
    while let Some(length) = number(&bytes, start + length_at) {
        let Some(end) = (start + head).checked_add(length) else {
            break;
        };
        if bytes.len() < end + 4 {
            break;
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&sum.to_le_bytes());
        hasher.update(&bytes[start..end]);
        sum = hasher.finalize();
        bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
        (start, head, length_at) = (end + 4, PIECE_HEAD, 9);
    }
    bytes
}

/// Small snapshots of each kind of piece.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let header = |pages: u64, policy| Header {
        name: "grid".to_owned(),
        spec: SegmentSpec {
            size: ByteLen(pages * PAGE as u64),
            mode: 0o600,
            policy,
            replicas: 0,
        },
        page_size: PAGE as u32,
        saved: 1_700_000_000_000_000_000,
        consistency: Consistency::Lock(7),
    };
    let write = |header: &Header, pages: &[u32]| {
        let mut writer = Writer::new(Vec::new(), header, Form::Lz4).expect("memory");
        for page in pages {
            let contents = [*page as u8; PAGE];
            writer.page(PageIndex(*page), &contents).expect("memory");
        }
        writer.finish().expect("memory").0
    };
    let views = Policy::Views { prefix: 64 };
    vec![
        write(&header(1, Policy::default()), &[]),
        write(&header(9, Policy::default()), &[3, 4, 8]),
        write(&header(9, views), &[0, 1, 2, 3, 1]),
    ]
}
