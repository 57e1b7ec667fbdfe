//! Compression of pages on the wire (M20, MB2).
//!
//! A page travels in one of four [`Form`]s. [`pack`] tries to make a packed form with a [`Codec`]
//! and gives up as soon as a quarter of the page cannot be saved, as MIRAGE+ does; [`unpack`]
//! accepts hostile bytes. A [`Judge`] decides whether packing pays on a link, from its observations
//! of the pages and of the link.

#![forbid(unsafe_code)]

mod judge;
mod runs;

pub use judge::Judge;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// A page's contents.
pub type Page = [u8; PAGE];

/// The longest packed page that is sent, in bytes: three quarters of a page.
pub const LONGEST: usize = PAGE / 4 * 3;

/// How a page is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Form {
    /// The bytes are the page itself.
    Plain = 0,
    /// There are no bytes: the page is zero.
    Zero = 1,
    /// Runs of equal double words, MIRAGE+'s encoding.
    Runs = 2,
    /// An LZ4 block.
    Lz4 = 3,
}

/// Flag in a datagram's header, combined with the number of a [`Form`].
const PACKED: u8 = 0x10;

impl Form {
    /// The value in a datagram's header for a page in this form.
    #[must_use]
    pub const fn mark(self) -> u8 {
        match self {
            Self::Plain => 0,
            packed => PACKED | packed as u8,
        }
    }

    /// The form of a packed page, from the value in a datagram's header.
    ///
    /// # Errors
    /// [`Malformed`] if the value is not that of a packed page.
    pub fn of_mark(mark: u8) -> Result<Self, Malformed> {
        match Self::try_from(mark ^ PACKED)? {
            Self::Plain => Err(Malformed),
            packed => Ok(packed),
        }
    }
}

impl TryFrom<u8> for Form {
    type Error = Malformed;

    fn try_from(byte: u8) -> Result<Self, Malformed> {
        [Self::Plain, Self::Zero, Self::Runs, Self::Lz4]
            .into_iter()
            .find(|form| *form as u8 == byte)
            .ok_or(Malformed)
    }
}

/// The compression to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Runs of equal double words.
    Runs,
    /// LZ4.
    Lz4,
}

impl Codec {
    /// All codecs.
    pub const ALL: [Self; 2] = [Self::Runs, Self::Lz4];
}

/// The size of a packed page in quarters of a page: MIRAGE+'s size classes, one packet of 1 KiB
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quarters(pub u8);

impl Quarters {
    /// The class of a length in bytes; zero bytes are class 0.
    #[must_use]
    pub const fn of(bytes: usize) -> Self {
        Self(bytes.div_ceil(PAGE / 4) as u8)
    }
}

/// The bytes are not a page in this form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a packed page")]
pub struct Malformed;

/// True if a page is zero; usually decided early for a page that is not.
#[must_use]
pub fn is_zero(page: &Page) -> bool {
    let (chunks, []) = page.as_chunks::<64>() else {
        unreachable!("a page is a whole number of lines")
    };
    chunks
        .iter()
        .all(|line| line.iter().fold(0, |any, byte| any | byte) == 0)
}

/// Appends the page to `out` in a packed form of at most [`LONGEST`] bytes. [`Form::Plain`] if that
/// is not possible; then `out` is unchanged.
#[must_use]
pub fn pack(codec: Codec, page: &Page, out: &mut Vec<u8>) -> Form {
    if is_zero(page) {
        return Form::Zero;
    }
    let start = out.len();
    let form = match codec {
        Codec::Runs => runs::encode(page, out).then_some(Form::Runs),
        Codec::Lz4 => lz4(page, out).then_some(Form::Lz4),
    };
    form.unwrap_or_else(|| {
        out.truncate(start);
        Form::Plain
    })
}

/// Decodes a page.
///
/// # Errors
/// [`Malformed`] if the bytes are not exactly one page in this form; then the
/// contents of `page` are undefined.
pub fn unpack(form: Form, bytes: &[u8], page: &mut Page) -> Result<(), Malformed> {
    match form {
        Form::Plain => *page = *<&Page>::try_from(bytes).map_err(|_| Malformed)?,
        Form::Zero if bytes.is_empty() => page.fill(0),
        Form::Zero => return Err(Malformed),
        Form::Runs => runs::decode(bytes, page)?,
        Form::Lz4 => {
            let made = lz4_flex::block::decompress_into(bytes, page);
            if made.ok() != Some(PAGE) {
                return Err(Malformed);
            }
        }
    }
    Ok(())
}

/// Packs the page that starts at `at` and ends `bytes`; what is before it stays. If it does not
/// become short enough, nothing changes and the form is [`Form::Plain`]. Without a codec only zero
/// pages are packed.
///
/// # Panics
/// If the bytes from `at` on are not exactly one page.
#[must_use]
pub fn pack_tail(codec: Option<Codec>, bytes: &mut Vec<u8>, at: usize) -> Form {
    let page: &Page = bytes[at..].try_into().expect("a page follows");
    if is_zero(page) {
        bytes.truncate(at);
        return Form::Zero;
    }
    let Some(codec) = codec else {
        return Form::Plain;
    };
    let page = *page;
    bytes.truncate(at);
    let form = pack(codec, &page, bytes);
    if form == Form::Plain {
        bytes.truncate(at);
        bytes.extend_from_slice(&page);
    }
    form
}

/// Unpacks, in place, the page that [`pack_tail`] left between `at` and `end`. Returns where the
/// page ends.
///
/// # Errors
/// [`Malformed`] if the bytes are not exactly one page in this form, or if there is no room for a
/// page; then `bytes` are unchanged.
pub fn unpack_tail(
    form: Form,
    bytes: &mut [u8],
    at: usize,
    end: usize,
) -> Result<usize, Malformed> {
    let packed = bytes.get(at..end).ok_or(Malformed)?;
    let mut page = [0; PAGE];
    unpack(form, packed, &mut page)?;
    let room = bytes.get_mut(at..at + PAGE).ok_or(Malformed)?;
    room.copy_from_slice(&page);
    Ok(at + PAGE)
}

/// Appends an LZ4 block; false if it would be too long.
fn lz4(page: &Page, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.resize(start + lz4_flex::block::get_maximum_output_size(PAGE), 0);
    let made = lz4_flex::block::compress_into(page, &mut out[start..]);
    made.is_ok_and(|len| {
        out.truncate(start + len);
        len <= LONGEST
    })
}
