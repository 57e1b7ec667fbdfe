//! Writing a snapshot, piece by piece.

use crate::{Head, Header, Kind, MAGIC, PAGE, PIECE_PAGES, VERSION, sum};
use pagemesh_wire::PageIndex;
use std::io::{self, Write};

/// How contents are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// As they are.
    #[default]
    Plain,
    /// As LZ4 blocks, where that saves a quarter at least.
    Lz4,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Pages in all pieces; a page that was written twice counts twice.
    pub pages: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// A snapshot that is being written.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    form: Form,
    sum: u32,
    pieces: u32,
    summary: Summary,
    /// The pages of the next piece, and the index of the first.
    first: PageIndex,
    pending: Vec<u8>,
    packed: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn new(mut out: W, header: &Header, form: Form) -> io::Result<Self> {
        let header = postcard::to_allocvec(header).map_err(io::Error::other)?;
        let length = header.len() as u32;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend(header);
        let sum = sum(0, &[&bytes]);
        bytes.extend(sum.to_le_bytes());
        out.write_all(&bytes)?;
        Ok(Self {
            out,
            form,
            sum,
            pieces: 0,
            summary: Summary {
                pages: 0,
                bytes: bytes.len() as u64,
            },
            first: PageIndex(0),
            pending: Vec::with_capacity(PIECE_PAGES as usize * PAGE),
            packed: Vec::new(),
        })
    }

    /// Writes a page. It counts instead of any that was written under its index before.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn page(&mut self, index: PageIndex, contents: &[u8; PAGE]) -> io::Result<()> {
        let waiting = (self.pending.len() / PAGE) as u32;
        let follows = self.first.0.checked_add(waiting) == Some(index.0);
        if !follows || waiting == PIECE_PAGES {
            self.flush()?;
            self.first = index;
        }
        self.pending.extend_from_slice(contents);
        Ok(())
    }

    /// Writes the end. Returns what the pieces were written to.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(mut self) -> io::Result<(W, Summary)> {
        self.flush()?;
        let head = Head {
            kind: Kind::End,
            first: self.pieces,
            pages: self.summary.pages as u32,
            length: 0,
        };
        self.piece(head, Contents::None)?;
        self.out.flush()?;
        Ok((self.out, self.summary))
    }

    /// Writes the pages that wait, as one piece.
    fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pages = (self.pending.len() / PAGE) as u32;
        let packed = self.form == Form::Lz4 && self.pack();
        let (kind, contents, length) = match packed {
            true => (Kind::Lz4, Contents::Packed, self.packed.len()),
            false => (Kind::Plain, Contents::Pending, self.pending.len()),
        };
        let head = Head {
            kind,
            first: self.first.0,
            pages,
            length: length as u32,
        };
        self.piece(head, contents)?;
        self.pieces = self.pieces.wrapping_add(1);
        self.summary.pages += u64::from(pages);
        self.pending.clear();
        Ok(())
    }

    /// Packs the pages that wait. False if that does not save a quarter.
    fn pack(&mut self) -> bool {
        let room = lz4_flex::block::get_maximum_output_size(self.pending.len());
        self.packed.resize(room, 0);
        let length = lz4_flex::block::compress_into(&self.pending, &mut self.packed);
        let length = length.unwrap_or(room);
        self.packed.truncate(length);
        length <= self.pending.len() / 4 * 3
    }

    fn piece(&mut self, head: Head, contents: Contents) -> io::Result<()> {
        let head = head.encode();
        let contents: &[u8] = match contents {
            Contents::None => &[],
            Contents::Pending => &self.pending,
            Contents::Packed => &self.packed,
        };
        self.sum = sum(self.sum, &[&head, contents]);
        self.out.write_all(&head)?;
        self.out.write_all(contents)?;
        self.out.write_all(&self.sum.to_le_bytes())?;
        self.summary.bytes += (head.len() + contents.len() + size_of::<u32>()) as u64;
        Ok(())
    }
}

/// Where the contents of a piece are.
#[derive(Clone, Copy)]
enum Contents {
    None,
    Pending,
    Packed,
}
