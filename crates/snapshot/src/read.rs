//! Reading a snapshot. Everything in the file is checked before it is believed.

use crate::{
    Error, Flaw, HEADER, Head, Header, Kind, MAGIC, PAGE, PIECE_HEAD, PIECE_PAGES, PRELUDE,
    VERSION, number, sum,
};
use pagemesh_wire::PageIndex;
use std::io::{self, Read};

/// Neighbouring pages of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The first page.
    pub first: PageIndex,
    /// The contents: whole pages, inside the segment.
    pub contents: &'a [u8],
}

/// A snapshot that is being read.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    /// Pages of the segment.
    end: u32,
    /// Bytes that were read.
    offset: u64,
    sum: u32,
    pieces: u32,
    pages: u32,
    over: bool,
    packed: Vec<u8>,
    contents: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Reads and checks the header.
    ///
    /// # Errors
    /// If the file is no snapshot, one of another version, or damaged here.
    pub fn new(mut input: R) -> Result<Self, Error> {
        let mut offset = 0;
        let mut bytes = vec![0; PRELUDE];
        if read(&mut input, &mut offset, &mut bytes[..MAGIC.len()]).is_err_and(is_short)
            || bytes[..MAGIC.len()] != MAGIC
        {
            return Err(at(0, Flaw::Foreign));
        }
        read(&mut input, &mut offset, &mut bytes[MAGIC.len()..])?;
        let version = number(&bytes, 8);
        if !(1..=VERSION).contains(&version) {
            return Err(at(8, Flaw::Version(version)));
        }
        let length = number(&bytes, 12);
        if length > HEADER {
            return Err(at(12, Flaw::Damaged("the header is too long")));
        }
        bytes.resize(PRELUDE + length as usize, 0);
        read(&mut input, &mut offset, &mut bytes[PRELUDE..])?;
        let sum = sum(0, &[&bytes]);
        let mut said = [0; 4];
        read(&mut input, &mut offset, &mut said)?;
        let start = PRELUDE as u64;
        let damaged = |why| at(start, Flaw::Damaged(why));
        if u32::from_le_bytes(said) != sum {
            return Err(at(0, Flaw::Damaged("the checksum of the header is wrong")));
        }
        let header = Header::decode(version, &bytes[PRELUDE..]);
        let header = header.ok_or_else(|| damaged("the header makes no sense"))?;
        if header.page_size != PAGE as u32 {
            return Err(at(start, Flaw::PageSize(header.page_size)));
        }
        let end = header.spec.size.pages().filter(|pages| pages.0 > 0);
        let end = end.ok_or_else(|| damaged("the size makes no sense"))?;
        Ok(Self {
            input,
            header,
            end: end.0,
            offset,
            sum,
            pieces: 0,
            pages: 0,
            over: false,
            packed: Vec::new(),
            contents: Vec::new(),
        })
    }

    /// What the snapshot says about its segment.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes that were read so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next piece; none at the end, which is whole. After an error there is no next piece.
    ///
    /// # Errors
    /// If the file is truncated or damaged here, or cannot be read.
    pub fn piece(&mut self) -> Result<Option<Piece<'_>>, Error> {
        if self.over {
            return Ok(None);
        }
        self.over = true;
        let start = self.offset;
        let damaged = |why| at(start, Flaw::Damaged(why));
        let mut bytes = [0; PIECE_HEAD];
        read(&mut self.input, &mut self.offset, &mut bytes)?;
        let head = Head::decode(&bytes).ok_or_else(|| damaged("no such kind of piece"))?;
        if head.length > PIECE_PAGES * PAGE as u32 {
            return Err(damaged("a piece is too long"));
        }
        self.packed.resize(head.length as usize, 0);
        read(&mut self.input, &mut self.offset, &mut self.packed)?;
        self.sum = sum(self.sum, &[&bytes, &self.packed]);
        let mut said = [0; 4];
        read(&mut self.input, &mut self.offset, &mut said)?;
        if u32::from_le_bytes(said) != self.sum {
            return Err(damaged("the checksum of a piece is wrong"));
        }
        if head.kind == Kind::End {
            return self.finish(head, start).map(|()| None);
        }
        let inside = head.first.checked_add(head.pages);
        let inside = inside.is_some_and(|end| end <= self.end);
        if head.pages == 0 || head.pages > PIECE_PAGES || !inside {
            return Err(damaged("a piece lies outside of the segment"));
        }
        self.unpack(head).map_err(damaged)?;
        self.pieces = self.pieces.wrapping_add(1);
        self.pages = self.pages.wrapping_add(head.pages);
        self.over = false;
        Ok(Some(Piece {
            first: PageIndex(head.first),
            contents: &self.contents,
        }))
    }

    fn unpack(&mut self, head: Head) -> Result<(), &'static str> {
        let length = head.pages as usize * PAGE;
        if head.kind == Kind::Plain {
            std::mem::swap(&mut self.packed, &mut self.contents);
            let whole = self.contents.len() == length;
            return whole.then_some(()).ok_or("a piece has another length");
        }
        self.contents.resize(length, 0);
        let made = lz4_flex::block::decompress_into(&self.packed, &mut self.contents);
        let whole = made.is_ok_and(|made| made == length);
        whole.then_some(()).ok_or("a piece cannot be unpacked")
    }

    /// The end says how many pieces there are, and nothing follows it.
    fn finish(&mut self, head: Head, start: u64) -> Result<(), Error> {
        let whole = head.first == self.pieces && head.pages == self.pages && head.length == 0;
        if !whole {
            return Err(at(start, Flaw::Damaged("pieces are missing")));
        }
        let mut one = [0];
        match self.input.read(&mut one) {
            Ok(0) => Ok(()),
            Ok(_) => Err(at(
                self.offset,
                Flaw::Damaged("something follows the end of the snapshot"),
            )),
            Err(error) => Err(at(self.offset, Flaw::Io(error))),
        }
    }
}

/// Fills `bytes`, and counts them.
fn read(input: &mut impl Read, offset: &mut u64, bytes: &mut [u8]) -> Result<(), Error> {
    let start = *offset;
    let mut filled = 0;
    while filled < bytes.len() {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => return Err(at(start + filled as u64, Flaw::Truncated)),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(at(start + filled as u64, Flaw::Io(error))),
        }
    }
    *offset += filled as u64;
    Ok(())
}

fn is_short(error: Error) -> bool {
    matches!(error.flaw, Flaw::Truncated)
}

fn at(offset: u64, flaw: Flaw) -> Error {
    Error { offset, flaw }
}
