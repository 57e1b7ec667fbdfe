//! Which pages pack, how far, and that they unpack to the same bytes.

use pagemesh_compress::{
    Codec, Form, LONGEST, Malformed, PAGE, Page, Quarters, pack, pack_tail, unpack, unpack_tail,
};
use proptest::prelude::*;
use rand::seq::index::sample;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Dice;

/// A byte that never equals its neighbours' and is not zero.
fn scramble(at: usize) -> u8 {
    (at as u8).wrapping_mul(151) | 1
}

/// A page of zeros, scrambled where the function says.
fn scrambled(hits: impl Fn(usize) -> bool) -> Page {
    std::array::from_fn(|at| if hits(at) { scramble(at) } else { 0 })
}

fn length(codec: Codec, page: &Page) -> usize {
    let mut bytes = vec![7];
    let form = pack(codec, page, &mut bytes);
    assert_eq!(bytes[0], 7, "what was there stays");
    let packed = &bytes[1..];
    let mut again = [0xee; PAGE];
    if form == Form::Plain {
        assert!(packed.is_empty());
        return PAGE;
    }
    assert!(packed.len() <= LONGEST);
    assert_eq!(unpack(form, packed, &mut again), Ok(()));
    assert!(again == *page, "another page came out");
    packed.len()
}

/// MR11, figure 4 (a).
#[test]
fn each_nth_byte_packs_from_eleven_on() {
    let each = |n| length(Codec::Runs, &scrambled(|at| at % n == 0));
    for n in 1..=10 {
        assert_eq!(each(n), PAGE, "every {n}th byte");
    }
    assert_eq!(Quarters::of(each(11)), Quarters(3));
    assert_eq!(Quarters::of(each(24)), Quarters(2));
    assert_eq!(Quarters::of(each(64)), Quarters(1));
}

/// MR11, figure 4 (b).
#[test]
fn up_to_three_kibibytes_pack_into_three_quarters() {
    let up_to = |n| length(Codec::Runs, &scrambled(|at| at < n));
    assert_eq!(up_to(0), 0, "a zero page needs no byte");
    for (bytes, quarters) in [(1000, 1), (2000, 2), (3000, 3), (3064, 3)] {
        assert_eq!(Quarters::of(up_to(bytes)), Quarters(quarters), "{bytes}");
    }
    assert_eq!(up_to(3080), PAGE);
}

/// MR11, figure 4 (c): the paper gives up between 600 and 700.
#[test]
fn some_650_random_bytes_are_the_limit() {
    let mut dice = Dice::seed_from_u64(1);
    let mut packs = |n| {
        let hits = sample(&mut dice, PAGE, n).into_vec();
        length(Codec::Runs, &scrambled(|at| hits.contains(&at))) < PAGE
    };
    assert!((0..20).all(|_| packs(580)));
    assert!((0..20).all(|_| !packs(760)));
}

#[test]
fn noise_stays_whole() {
    let mut dice = Dice::seed_from_u64(2);
    let page = std::array::from_fn(|_| dice.random());
    for codec in Codec::ALL {
        assert_eq!(length(codec, &page), PAGE);
    }
}

#[test]
fn a_repeated_word_needs_a_few_bytes() {
    let page = std::array::from_fn(|at| b"mesh"[at % 4]);
    assert_eq!(length(Codec::Runs, &page), 6);
    assert!(length(Codec::Lz4, &page) < 64);
}

#[test]
fn what_is_no_packed_page_is_refused() {
    let refused = |form, bytes: &[u8]| {
        assert_eq!(
            unpack(form, bytes, &mut [0; PAGE]),
            Err(Malformed),
            "{form:?} {bytes:?}"
        );
    };
    refused(Form::Plain, &[0; PAGE - 1]);
    refused(Form::Plain, &[0; PAGE + 1]);
    refused(Form::Zero, &[0]);
    refused(Form::Runs, &[]);
    let whole = (1024 << 2 | 1_u16).to_le_bytes();
    assert_eq!(unpack(Form::Runs, &whole, &mut [1; PAGE]), Ok(()));
    refused(Form::Runs, &[whole.as_slice(), &[0]].concat());
    refused(Form::Runs, &(1025 << 2 | 1_u16).to_le_bytes());
    refused(Form::Runs, &1_u16.to_le_bytes());
    refused(Form::Runs, &(1024 << 2 | 3_u16).to_le_bytes());
    refused(Form::Runs, &(1024 << 2 | 2_u16).to_le_bytes());
    refused(Form::Runs, &(1024_u16 << 2).to_le_bytes());
    refused(Form::Lz4, &[]);
    refused(Form::Lz4, &[0; 32]);
    assert_eq!(Form::try_from(4), Err(Malformed));
}

#[test]
fn the_page_behind_a_message_is_packed_in_its_place() {
    let sparse: Page = std::array::from_fn(|at| u8::from(at % 512 == 0));
    let noise: Page =
        std::array::from_fn(|at| (at * at / 7 + at * 31 % 251) as u8 ^ (at >> 4) as u8);
    for codec in [None, Some(Codec::Runs), Some(Codec::Lz4)] {
        for page in [[0; PAGE], sparse, noise] {
            let whole = [b"head".as_slice(), &page].concat();
            let mut bytes = whole.clone();
            let form = pack_tail(codec, &mut bytes, 4);
            assert_eq!(form == Form::Plain, bytes == whole, "{codec:?} {form:?}");
            assert!(form == Form::Plain || bytes.len() <= 4 + LONGEST);
            assert_eq!(form == Form::Zero, page == [0; PAGE]);
            let end = bytes.len();
            bytes.resize(8192, 0xee);
            assert_eq!(unpack_tail(form, &mut bytes, 4, end), Ok(whole.len()));
            assert_eq!(bytes[..whole.len()], whole);
        }
    }
    let mut small = *b"head";
    assert_eq!(
        unpack_tail(Form::Zero, &mut small, 4, 4),
        Err(Malformed),
        "no room"
    );
    assert_eq!(unpack_tail(Form::Zero, &mut small, 4, 3), Err(Malformed));
    assert_eq!(&small, b"head");
}

proptest! {
    #[test]
    fn any_page_comes_out_as_it_went_in(
        words in proptest::collection::vec((any::<[u8; 4]>(), 1_usize..64), 16..400),
    ) {
        let words = words.iter().flat_map(|(word, times)| word.repeat(*times));
        let mut page = [0; PAGE];
        for (byte, value) in page.iter_mut().zip(words) {
            *byte = value;
        }
        for codec in Codec::ALL {
            length(codec, &page);
        }
    }

    #[test]
    fn any_bytes_are_taken(form in 0_u8..4, bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        let form = Form::try_from(form).unwrap();
        let _ = unpack(form, &bytes, &mut [0; PAGE]);
    }
}
