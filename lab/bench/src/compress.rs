//! `bench compress`: the time to pack and unpack a page, and its packed size, beside a copy of the
//! page: the pages of MIRAGE+'s `EachN`, `UptoN` and `RandN` (MR11), and some of everyday (MB2).
//! Then the cost of faults that move such pages between daemons that compress, beside daemons that
//! do not, on a link as fast as the processors and on one of 100 Mbit/s.

mod links;

use super::Effort;
use super::report::{Report, Samples};
use anyhow::Result;
use pagemesh_compress::{Codec, Form, PAGE, Page, pack, unpack};
use rand::seq::index::sample;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Dice;
use std::hint::black_box;
use std::time::Instant;

/// Pages in one measurement: they fit a second-level cache.
const PAGES: usize = 32;
const SEED: u64 = 1994;
const EACH: [usize; 5] = [8, 10, 11, 16, 64];
const UP_TO: [usize; 4] = [512, 1024, 2048, 3064];
const RANDOM: [usize; 4] = [100, 300, 600, 700];

pub(super) fn measure(effort: &Effort) -> Result<Report> {
    let mut report = Report::new("compress");
    if effort.wants(&["pack_", "unpack_", "length_"]) {
        codecs(effort, &mut report);
    }
    links::measure(effort, &mut report)?;
    Ok(report)
}

/// The codecs alone.
fn codecs(effort: &Effort, report: &mut Report) {
    let mut dice = Dice::seed_from_u64(SEED);
    for (name, pages) in contents(&mut dice) {
        let copy = copies(&pages, effort);
        for codec in Codec::ALL {
            let name = format!("{codec:?}_{name}").to_lowercase();
            let packed = Packed::new(codec, &pages);
            let beside = Some(("copy", &copy));
            report.row(
                format!("pack_{name}"),
                "none",
                &packed.packing(&pages, effort),
                beside,
            );
            if packed.form != Form::Plain {
                report.row(
                    format!("unpack_{name}"),
                    "none",
                    &packed.unpacking(effort),
                    beside,
                );
            }
            report.value(&format!("length_{name}"), "B", packed.length() as f64, 1);
        }
    }
}

/// Pages of one kind, the same in every process.
pub(super) fn of_kind(kind: &str) -> Option<Vec<Page>> {
    let mut dice = Dice::seed_from_u64(SEED);
    if kind == "mixed" {
        return Some(mixed(&mut dice));
    }
    let (program, n) = kind.rsplit_once('_').unwrap_or_default();
    if let Ok(n) = n.parse::<usize>() {
        return of_program(&mut dice, program, n);
    }
    let all = contents(&mut dice);
    let found = all.into_iter().find(|(name, _)| name == kind)?;
    Some(found.1)
}

/// Noise, of which every third page was never written.
fn mixed(dice: &mut Dice) -> Vec<Page> {
    let mut pages = pages(dice, |dice, _| dice.random());
    pages.iter_mut().step_by(3).for_each(|page| page.fill(0));
    pages
}

/// The pages that are packed, by kind.
fn contents(dice: &mut Dice) -> Vec<(String, Vec<Page>)> {
    let mut all = vec![
        ("zeros".into(), vec![[0; PAGE]; PAGES]),
        ("noise".into(), pages(dice, |dice, _| dice.random())),
        ("text".into(), pages(dice, text)),
        ("doubles".into(), doubles(dice)),
    ];
    for n in EACH {
        let each = pages(dice, |dice, at| if at % n == 0 { byte(dice) } else { 0 });
        all.push((format!("each_{n}"), each));
    }
    for n in UP_TO {
        let up_to = pages(dice, |dice, at| if at < n { byte(dice) } else { 0 });
        all.push((format!("up_to_{n}"), up_to));
    }
    for n in RANDOM {
        all.push((
            format!("random_{n}"),
            (0..PAGES).map(|_| random(dice, n)).collect(),
        ));
    }
    all
}

/// The pages of one of MIRAGE+'s programs.
fn of_program(dice: &mut Dice, program: &str, n: usize) -> Option<Vec<Page>> {
    let some = |dice: &mut Dice, wanted: bool| if wanted { byte(dice) } else { 0 };
    match program {
        "each" => Some(pages(dice, |dice, at| some(dice, at % n.max(1) == 0))),
        "up_to" => Some(pages(dice, |dice, at| some(dice, at < n))),
        "random" => Some((0..PAGES).map(|_| random(dice, n.min(PAGE))).collect()),
        _ => None,
    }
}

fn pages(dice: &mut Dice, byte: impl Fn(&mut Dice, usize) -> u8) -> Vec<Page> {
    let page = |_| std::array::from_fn(|at| byte(dice, at));
    (0..PAGES).map(page).collect()
}

/// A byte that differs from the former one.
fn byte(dice: &mut impl Rng) -> u8 {
    dice.random_range(1..=u8::MAX)
}

fn text(dice: &mut Dice, at: usize) -> u8 {
    const WORDS: &[u8] = b"page owner copyset home manager interval write notice twin diff epoch ";
    // Words in no order, so that matches are short.
    if at.is_multiple_of(7) {
        *b" ,.;aeiou".get(dice.random_range(0..9)).unwrap_or(&b' ')
    } else {
        WORDS[(at * 31 + at / 64) % WORDS.len()]
    }
}

/// One of twenty double words of the page is a number, the rest zero.
fn doubles(dice: &mut Dice) -> Vec<Page> {
    let mut pages = vec![[0; PAGE]; PAGES];
    for page in &mut pages {
        for double in page.as_chunks_mut::<8>().0.iter_mut().step_by(20) {
            *double = dice.random::<f64>().to_le_bytes();
        }
    }
    pages
}

fn random(dice: &mut Dice, n: usize) -> Page {
    let mut page = [0; PAGE];
    for at in sample(dice, PAGE, n) {
        page[at] = byte(dice);
    }
    page
}

fn copies(pages: &[Page], effort: &Effort) -> Samples {
    let mut room = pages.to_vec();
    samples(effort, |at| room[at] = *black_box(&pages[at]))
}

/// All pages of one kind, packed.
struct Packed {
    codec: Codec,
    form: Form,
    bytes: Vec<Vec<u8>>,
}

impl Packed {
    fn new(codec: Codec, pages: &[Page]) -> Self {
        let mut form = Form::Plain;
        let mut bytes = vec![Vec::new(); PAGES];
        for (page, bytes) in pages.iter().zip(&mut bytes) {
            form = pack(codec, page, bytes);
        }
        Self { codec, form, bytes }
    }

    fn length(&self) -> usize {
        match self.form {
            Form::Plain => PAGE,
            _ => self.bytes.iter().map(Vec::len).sum::<usize>() / PAGES,
        }
    }

    fn packing(&self, pages: &[Page], effort: &Effort) -> Samples {
        let mut room = Vec::with_capacity(2 * PAGE);
        samples(effort, |at| {
            room.clear();
            black_box(pack(self.codec, black_box(&pages[at]), &mut room));
        })
    }

    /// Only for pages that were packed.
    fn unpacking(&self, effort: &Effort) -> Samples {
        let mut room = [0; PAGE];
        samples(effort, |at| {
            let made = unpack(self.form, black_box(&self.bytes[at]), &mut room);
            debug_assert!(made.is_ok() || self.bytes[at].is_empty());
        })
    }
}

/// Nanoseconds a page, again and again.
fn samples(effort: &Effort, mut work: impl FnMut(usize)) -> Samples {
    let mut samples = Samples::default();
    for _ in 0..effort.count * effort.rounds {
        let start = Instant::now();
        (0..PAGES).for_each(&mut work);
        samples.extend(vec![start.elapsed().as_nanos() as u64 / PAGES as u64]);
    }
    samples
}
