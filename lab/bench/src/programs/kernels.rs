//! The kernels and the sizes of their problems.

use super::Size;

/// A program of `lab/apps/kernels/`. Arguments are separated by blanks.
#[derive(Debug)]
pub(in super::super) struct Kernel {
    pub(in super::super) name: &'static str,
    pub(in super::super) file: &'static str,
    small: &'static str,
    full: &'static str,
}

/// In the order of tables.
pub(in super::super) const KERNELS: [Kernel; 9] = [
    Kernel {
        name: "fft",
        file: "fft",
        small: "--log=16",
        full: "--log=22",
    },
    Kernel {
        name: "lu",
        file: "lu",
        small: "--size=256",
        full: "--size=2048",
    },
    // The same matrix as one array of rows.
    Kernel {
        name: "lu-rows",
        file: "lu",
        small: "--contiguous=0 --size=256",
        full: "--contiguous=0 --size=2048",
    },
    Kernel {
        name: "radix",
        file: "radix",
        small: "--count=500000",
        full: "--count=67108864",
    },
    Kernel {
        name: "cholesky",
        file: "cholesky",
        small: "--edge=12 --layers=12 --task=100",
        full: "--edge=32 --layers=32",
    },
    Kernel {
        name: "barnes",
        file: "barnes",
        small: "--bodies=2000",
        full: "--bodies=32768",
    },
    Kernel {
        name: "water",
        file: "water",
        small: "--molecules=216",
        full: "--molecules=4096",
    },
    Kernel {
        name: "ocean",
        file: "ocean",
        small: "--cells=128",
        full: "--cells=2048",
    },
    Kernel {
        name: "raytrace",
        file: "raytrace",
        small: "--side=128 --generations=3",
        full: "--side=1024 --generations=4",
    },
];

impl Kernel {
    /// What it is told.
    pub(in super::super) fn arguments(&self, size: Size) -> Vec<String> {
        let words = match size {
            Size::Small => self.small,
            Size::Full => self.full,
        };
        words.split_whitespace().map(str::to_owned).collect()
    }
}
