//! Pages made smaller between message and seal (M20, MB2).
//!
//! A datagram whose page was packed says so in its header; its receiver unpacks it before any other
//! code looks at it, whatever the receiver packs itself. [`Compress`] decides whether pages are
//! packed at all; with `auto`, a [`Judge`] for each link decides by the pages it saw and by the
//! speed that a [`Gauge`] measured for the link.

mod gauge;
mod throughput;

use crate::counters::{Count, Counters};
use crate::options::Compress;
use gauge::{Gauge, Heard};
use pagemesh_compress::{Codec, Form, Judge, PAGE, pack_tail, unpack_tail};
use pagemesh_os::clock;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::NodeId;
use pagemesh_wire::header::{self, HEADER_SIZE, Header};
use pagemesh_wire::peer::MemberView;
use std::net::SocketAddr;

/// Packs and unpacks, and knows the links.
#[derive(Debug)]
pub(crate) struct Packing {
    compress: Compress,
    links: SortedMap<NodeId, Link>,
    /// Addresses of the members: probes from other addresses are not answered.
    members: Vec<SocketAddr>,
    epoch: u64,
}

/// Notes in the header how the page behind the first `at` bytes was packed, and counts it.
fn mark(form: Form, datagram: &mut [u8], at: usize, counters: &mut Counters) {
    match form {
        Form::Plain => counters.add(Count::PagesGivenUp, 1),
        Form::Zero => counters.add(Count::PagesElided, 1),
        Form::Runs | Form::Lz4 => counters.add(Count::PagesPacked, 1),
    }
    if form != Form::Plain {
        header::set_form(datagram, form.mark());
        counters.add(Count::PackedFrom, PAGE as u64);
        counters.add(Count::PackedTo, (datagram.len() - at) as u64);
    }
}

/// The way to one node.
#[derive(Debug, Default)]
struct Link {
    judge: Judge,
    gauge: Gauge,
    /// Pages to go until one that leaves alone counts as alone: in a walk some do.
    company: u8,
}

/// See [`Link::company`].
const WALKS: u8 = 8;

/// A page of which only so many bytes are not zero counts as a short one.
const SHORT: usize = PAGE / 4;

/// The result of handling a datagram of another form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unpacked {
    /// A datagram as it was before it was packed, of so many bytes.
    Whole(usize),
    /// An answer to be sent back.
    Answer(Vec<u8>),
    /// Nothing for the node.
    Handled,
}

impl Packing {
    /// Knows nothing of any link.
    pub(crate) fn new(compress: Compress) -> Self {
        Self {
            compress,
            links: SortedMap::new(),
            members: Vec::new(),
            epoch: 0,
        }
    }

    /// Learns where the members are.
    pub(crate) fn meet(&mut self, view: &MemberView) {
        if view.epoch != self.epoch {
            self.epoch = view.epoch;
            self.members = view.members.iter().map(|member| member.address).collect();
        }
    }

    /// Makes the page behind the first `at` bytes smaller, if that is wanted; `joins`
    /// if it would leave with others that are whole. Also returns a probe of the link
    /// that should follow.
    pub(crate) fn pack(
        &mut self,
        (to, joins): (NodeId, bool),
        datagram: &mut Vec<u8>,
        at: usize,
        counters: &mut Counters,
    ) -> Option<Vec<u8>> {
        if self.compress == Compress::Off || datagram.len() != at + PAGE {
            return None;
        }
        let mut probe = None;
        let form = match self.compress {
            Compress::Off => Form::Plain,
            Compress::Runs => pack_tail(Some(Codec::Runs), datagram, at),
            Compress::Lz4 => pack_tail(Some(Codec::Lz4), datagram, at),
            Compress::Auto => {
                let link = self.links.entry(to).or_default();
                probe = link.gauge.due(datagram);
                let form = link.judged(datagram, (at, joins), counters);
                if link.gauge.sent(datagram.len() - at) {
                    link.judge.measured(f64::INFINITY);
                }
                form
            }
        };
        if form != Form::Plain || self.compress != Compress::Auto {
            mark(form, datagram, at, counters);
        }
        probe
    }

    /// Packs a page if it is a short one: its rest is zeros. A datagram that is a small part of a
    /// whole one costs less on every link, and may share a multicast batch, so neither the link nor
    /// the page is judged. False if the page is not short, or packing is off.
    pub(crate) fn pack_short(
        &self,
        datagram: &mut Vec<u8>,
        at: usize,
        counters: &mut Counters,
    ) -> bool {
        if self.compress == Compress::Off || datagram.len() != at + PAGE {
            return false;
        }
        let (prefix, rest) = datagram[at..].split_at(SHORT);
        if rest.iter().any(|byte| *byte != 0) || prefix.iter().all(|byte| *byte == 0) {
            return false;
        }
        let form = pack_tail(Some(Codec::Runs), datagram, at);
        mark(form, datagram, at, counters);
        true
    }

    /// Makes a datagram whole that came in a form of its own; it begins at the front
    /// of `bytes` and has so many.
    pub(crate) fn unpack(
        &mut self,
        source: SocketAddr,
        bytes: &mut [u8],
        length: usize,
        counters: &mut Counters,
    ) -> Unpacked {
        let form = header::form(&bytes[..length]);
        if let Some(heard) = Heard::of(form) {
            return self.probed(heard, source, &bytes[..length], counters);
        }
        let Some(end) = whole(form, bytes, length) else {
            counters.add(Count::PagesRefused, 1);
            return Unpacked::Handled;
        };
        counters.add(Count::PagesUnpacked, 1);
        Unpacked::Whole(end)
    }

    /// A probe of a link, or the answer to one of ours.
    fn probed(
        &mut self,
        heard: Heard,
        source: SocketAddr,
        datagram: &[u8],
        counters: &mut Counters,
    ) -> Unpacked {
        if !self.members.contains(&source) {
            counters.add(Count::PagesRefused, 1);
            return Unpacked::Handled;
        }
        if heard == Heard::Probe {
            return Unpacked::Answer(gauge::answer(datagram));
        }
        let from = gauge::sender(datagram);
        let Some(link) = self.links.get_mut(&from) else {
            return Unpacked::Handled;
        };
        match link.gauge.answered(clock::monotonic(), datagram) {
            Some(next) => Unpacked::Answer(next),
            None => {
                if let Some(rate) = link.gauge.rate() {
                    link.judge.measured(rate);
                }
                Unpacked::Handled
            }
        }
    }
}

impl Link {
    /// Packs zero pages, and the pages that the judge gives reason to pack. Datagrams that leave
    /// with one call, and come with one, are of one length: unless the link is known to be slow, a
    /// page more in a call costs less than another call.
    fn judged(
        &mut self,
        datagram: &mut Vec<u8>,
        (at, joins): (usize, bool),
        counters: &mut Counters,
    ) -> Form {
        self.company = if joins {
            WALKS
        } else {
            self.company.saturating_sub(1)
        };
        if self.company > 0 && !self.gauge.is_slow() {
            return Form::Plain;
        }
        let codec = self.judge.choose();
        let Some(tried) = codec else {
            return pack_tail(None, datagram, at);
        };
        let before = clock::monotonic();
        let form = pack_tail(codec, datagram, at);
        if form != Form::Zero {
            let took = clock::monotonic().saturating_sub(before);
            self.judge.tried(tried, datagram.len() - at, took);
        }
        if form == Form::Plain {
            counters.add(Count::PagesGivenUp, 1);
        }
        form
    }
}

/// Writes the page behind the body, as if it had never been packed; returns where the datagram
/// ends. None if the bytes are not of the form they announce.
fn whole(form: u8, bytes: &mut [u8], length: usize) -> Option<usize> {
    let form = Form::of_mark(form).ok()?;
    header::set_form(bytes, 0);
    let (head, ..) = Header::split(&bytes[..length]).ok()?;
    let at = HEADER_SIZE + usize::from(head.body);
    unpack_tail(form, bytes, at, length).ok()
}

#[cfg(test)]
mod tests;
