//! The programs, their sizes, and the paper's figures for them.

/// A program of `lab/apps/`. Arguments are separated by blanks; DATA is a directory.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Its file, if that is called otherwise.
    pub(super) file: Option<&'static str>,
    /// Arguments for the paper's size: that is their default.
    pub(super) paper: &'static str,
    /// For a size that keeps a processor of today busy for seconds.
    pub(super) large: &'static str,
    /// For one that keeps each of 64 busy as long as each of 8 is by the former.
    pub(super) huge: Option<&'static str>,
    /// The paper's speedups with 8 processors: ATM and Ethernet.
    pub(super) speedup: Option<(f64, f64)>,
}

/// How large a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Paper,
    Large,
    Huge,
}

impl Size {
    /// Larger than the paper's.
    pub(super) fn is_large(self) -> bool {
        self != Self::Paper
    }
}

/// Those of the paper first, in its order.
pub(super) const PROGRAMS: [Program; 11] = [
    Program {
        name: "jacobi",
        file: None,
        paper: "",
        large: "--halo=13 --rows=12000 --columns=6000 --iterations=25",
        huge: Some("--halo=5 --rows=20000 --columns=10000 --iterations=10"),
        speedup: Some((7.4, 5.5)),
    },
    // With a barrier in each iteration, as in the paper.
    Program {
        name: "jacobi-each",
        file: Some("jacobi"),
        paper: "--halo=1",
        large: "--halo=1 --rows=12000 --columns=6000 --iterations=25",
        huge: None,
        speedup: Some((7.4, 5.5)),
    },
    Program {
        name: "tsp",
        file: None,
        paper: "--file=DATA/cities.txt",
        large: "--file=DATA/cities.txt --cities=21 --alone-below=19",
        huge: Some("--file=DATA/cities.txt --cities=22 --alone-below=19"),
        speedup: Some((7.2, 6.5)),
    },
    Program {
        name: "quicksort",
        file: None,
        paper: "",
        large: "--count=1048576 --bubble-below=4096 --alone-below=4096",
        huge: Some("--count=8388608 --bubble-below=4096 --alone-below=32768"),
        speedup: Some((6.3, 4.2)),
    },
    Program {
        name: "ilink",
        file: None,
        paper: "--loci=DATA/families.dat --pedigrees=DATA/families.ped",
        large: "--loci=DATA/families.large.dat --pedigrees=DATA/families.ped --root=9",
        huge: Some("--loci=DATA/families.huge.dat --pedigrees=DATA/families.ped --root=9"),
        speedup: Some((5.7, 5.1)),
    },
    Program {
        name: "water",
        file: None,
        paper: "",
        large: "--molecules=6859",
        huge: Some("--molecules=19683"),
        speedup: Some((4.0, 2.1)),
    },
    // Likewise, and the only one of the two that can be compared with its counts.
    Program {
        name: "water-locks",
        file: Some("water"),
        paper: "--per-lock=1",
        large: "--molecules=6859 --per-lock=49",
        huge: Some("--molecules=19683 --per-lock=49"),
        speedup: Some((4.0, 2.1)),
    },
    Program {
        name: "is",
        file: None,
        paper: "",
        large: "--count=16777216",
        huge: None,
        speedup: None,
    },
    Program {
        name: "fft",
        file: None,
        paper: "",
        large: "--edge=128 --iterations=8",
        huge: None,
        speedup: None,
    },
    Program {
        name: "lu",
        file: None,
        paper: "",
        large: "--size=2048",
        huge: None,
        speedup: None,
    },
    Program {
        name: "barnes",
        file: None,
        paper: "",
        large: "--bodies=32768",
        huge: None,
        speedup: None,
    },
];

impl Program {
    /// Where it is, beside the others.
    pub(super) fn file(&self) -> &'static str {
        self.file.unwrap_or(self.name)
    }

    /// Its arguments.
    pub(super) fn arguments(&self, size: Size, data: &str) -> Vec<String> {
        let words = match size {
            Size::Paper => self.paper,
            Size::Large => self.large,
            Size::Huge => self.huge.unwrap_or(self.large),
        };
        let words = words.split_whitespace();
        words.map(|word| word.replace("DATA", data)).collect()
    }
}

/// The file of the program with this name.
pub(super) fn file_of(name: &str) -> Option<&'static str> {
    let program = PROGRAMS.iter().find(|program| program.name == name);
    program.map(Program::file)
}
