//! Figures of the paper, in milliseconds unless they say else: i486 at 25 MHz,
//! 10 Mbit/s Ethernet, pages of 4 KiB in packets of 1 KiB.

/// MR1.
pub(super) const PROBE: f64 = 5.5;
pub(super) const SHORT: f64 = 2.7;
pub(super) const LONG_EXCHANGE: f64 = 6.7;
pub(super) const LONG: f64 = 4.0;

/// MR3 and MR4: the steps of a fault, each on the user site, in communication and on the library
/// site.
pub(super) const STEPS: [&str; 7] = [
    "1. transfer request",
    "2. process request",
    "3.1 transfer page, part 1",
    "3.2 part 2",
    "3.3 part 3",
    "3.4 part 4",
    "4. installing page",
];
pub(super) const HANDSHAKE_PARTS: [[f64; 3]; 7] = [
    [0.3, 2.7, 0.0],
    [0.0, 0.0, 1.4],
    [0.2, 6.7, 0.3],
    [0.2, 6.7, 0.3],
    [0.2, 6.7, 0.3],
    [0.2, 4.7, 0.3],
    [0.5, 0.0, 0.0],
];
pub(super) const BLAST_PARTS: [[f64; 3]; 7] = [
    [0.3, 2.7, 0.0],
    [0.0, 0.0, 1.4],
    [0.2, 4.0, 0.6],
    [0.2, 2.7, 0.3],
    [0.2, 2.7, 0.3],
    [0.2, 3.6, 0.3],
    [0.5, 0.0, 0.0],
];

/// Their sums as the paper has them, which differ from those of its columns: of each step, and of
/// each place.
pub(super) const HANDSHAKE_SUMS: ([f64; 7], [f64; 3]) =
    ([3.0, 1.4, 7.2, 7.2, 7.2, 5.2, 0.5], [1.6, 27.5, 2.6]);
pub(super) const BLAST_SUMS: ([f64; 7], [f64; 3]) =
    ([3.0, 1.4, 4.3, 3.3, 3.3, 4.1, 0.5], [1.6, 15.7, 2.6]);

/// MR5: read request; its transmission, receipt and processing; the page's transmission; general
/// overhead; all: of Mirage, of MIRAGE+ by handshake and by blasting.
pub(super) const COMPARED: [(&str, [f64; 3]); 5] = [
    ("1a read request", [2.5, 0.3, 0.3]),
    (
        "1b, 1c, 2 request transmitted, received, processed",
        [9.9, 4.0, 4.0],
    ),
    ("3 page transmitted", [15.0, 26.8, 15.0]),
    (
        "4 general overhead; here what is left of the fault",
        [0.0, 0.5, 0.5],
    ),
    ("all, as measured", [27.5, 31.7, 19.9]),
];
/// Of Mirage: a short message and its answer, and one of 1 KiB with a short answer.
pub(super) const MIRAGE_EXCHANGES: [f64; 2] = [12.9, 21.5];

/// Faults: Mirage, and MIRAGE+ by its switches.
pub(super) const MIRAGE: f64 = 27.5;
pub(super) const SERVER_HANDSHAKE: f64 = 31.7;
pub(super) const SERVER_BLAST: f64 = 19.9;
pub(super) const INTERRUPT_BLAST: f64 = 16.7;

/// MR7: one to four further sites.
pub(super) const INVALIDATION: [f64; 4] = [4.6, 6.8, 7.0, 8.2];

/// MR17: Battleship and matrix multiply of 60 x 60 in seconds, under S+B, I+B, S+B+C and I+B+C.
pub(super) const BATTLESHIP: [f64; 4] = [48.0, 42.0, 36.0, 35.0];
pub(super) const MATRIX_60: [f64; 4] = [2.4, 2.0, 1.9, 1.8];

/// MR9: by packets needed; the times of packing, unpacking and faults.
pub(super) const COMPRESSING: [f64; 4] = [0.5, 0.9, 1.0, 1.3];
pub(super) const DECOMPRESSING: [f64; 4] = [0.4, 0.5, 0.7, 0.0];
pub(super) const COMPRESSED: [f64; 4] = [10.5, 13.5, 17.1, 21.3];
pub(super) const COMPRESSED_INTERRUPT: [f64; 4] = [10.5, 13.5, 16.5, 18.5];

/// MR13, in seconds for 789 turns of each player.
pub(super) const ONE_SITE: f64 = 490.0;
pub(super) const ONE_SITE_YIELD: f64 = 4.0;
pub(super) const WINDOW_20_MS: f64 = 81.0;
pub(super) const LOCKED: f64 = 48.0;

/// MR15: rows and columns, then seconds on 2 to 7 sites, without and with compression.
pub(super) type Matrix = (u32, [f64; 6], [f64; 6]);
pub(super) const MATRIX: [Matrix; 8] = [
    (
        60,
        [2.4, 1.3, 1.3, 2.4, 2.6, 3.7],
        [1.9, 1.3, 0.8, 0.7, 0.7, 0.7],
    ),
    (
        120,
        [13.9, 7.3, 5.2, 5.8, 5.3, 5.8],
        [13.4, 7.0, 5.8, 3.7, 3.5, 2.7],
    ),
    (
        180,
        [46.9, 24.2, 16.7, 14.2, 13.0, 12.7],
        [46.1, 23.5, 15.9, 12.2, 10.1, 8.5],
    ),
    (
        240,
        [108.8, 55.6, 37.7, 30.3, 25.8, 23.4],
        [107.7, 54.8, 36.7, 27.9, 22.6, 19.4],
    ),
    (
        300,
        [221.6, 113.4, 77.3, 60.4, 50.5, 43.4],
        [218.2, 111.3, 74.7, 53.4, 46.1, 38.8],
    ),
    (
        360,
        [378.9, 193.3, 131.4, 101.4, 82.7, 70.0],
        [376.4, 191.3, 128.3, 97.1, 78.3, 66.1],
    ),
    (
        420,
        [596.2, 305.9, 206.9, 157.8, 128.0, 108.8],
        [596.2, 302.9, 202.9, 152.8, 123.3, 103.4],
    ),
    (
        480,
        [892.2, 453.7, 305.1, 232.1, 182.8, 159.1],
        [889.8, 451.9, 301.5, 226.8, 182.8, 152.6],
    ),
];
