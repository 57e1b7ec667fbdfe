//! Packs pages on the wire as real daemons do. The contents of a page choose its codec, so that
//! all forms occur and runs are repeatable.

use pagemesh_compress::{Codec, Form, pack_tail, unpack_tail};
use pagemesh_wire::PAGE_SIZE;
use pagemesh_wire::header::{self, HEADER_SIZE, Header};
use pagemesh_wire::notice::Notice;
use std::borrow::Cow;

/// Packs the page behind the first `body` bytes, or leaves it unpacked.
pub(crate) fn pack(datagram: &mut Vec<u8>, body: usize, choice: u64) {
    let codec = match choice % 4 {
        0 => return,
        1 => None,
        2 => Some(Codec::Runs),
        _ => Some(Codec::Lz4),
    };
    let form = pack_tail(codec, datagram, body);
    header::set_form(datagram, form.mark());
}

/// Restores the datagram as it was before packing; none if its header says that it is packed and
/// it is not. A notice is not packed.
pub(crate) fn unpack(datagram: Cow<'_, [u8]>) -> Option<Cow<'_, [u8]>> {
    let mark = header::form(&datagram);
    if mark <= Notice::MARK {
        return Some(datagram);
    }
    let form = Form::of_mark(mark).ok()?;
    let mut bytes = datagram.into_owned();
    header::set_form(&mut bytes, 0);
    let (head, ..) = Header::split(&bytes).ok()?;
    let (at, end) = (HEADER_SIZE + usize::from(head.body), bytes.len());
    bytes.resize(end.max(at + PAGE_SIZE), 0);
    let end = unpack_tail(form, &mut bytes, at, end).ok()?;
    bytes.truncate(end);
    Some(bytes.into())
}
