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
    /// The program of the paper that it is a variant of: their sequential version is the same.
    pub(super) variant_of: Option<&'static str>,
    /// What it changes of the paper's program, in the paper's size and in the larger one.
    pub(super) changes: [Option<&'static str>; 2],
    /// Another order of the same search alone: how it is called, and the argument for it. It is
    /// shown beside the base of speedups, which searches in the order of the parallel program.
    pub(super) other_order: Option<(&'static str, &'static str)>,
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

/// Those of the paper first, in its order, and behind each its variants.
pub(super) const PROGRAMS: [Program; 11] = [
    Program {
        name: "jacobi-each",
        file: Some("jacobi"),
        paper: "--halo=1",
        large: "--halo=1 --rows=12000 --columns=6000 --iterations=25",
        speedup: Some((7.4, 5.5)),
        ..PLAIN
    },
    Program {
        name: "jacobi",
        large: "--halo=13 --rows=12000 --columns=6000 --iterations=25",
        huge: Some("--halo=5 --rows=20000 --columns=10000 --iterations=10"),
        variant_of: Some("jacobi-each"),
        changes: [
            Some("a halo of 8 rows, a barrier in 8 iterations"),
            Some("a halo of 13 rows, a barrier in 13 iterations"),
        ],
        speedup: Some((7.4, 5.5)),
        ..PLAIN
    },
    Program {
        name: "tsp",
        paper: "--file=DATA/cities.txt",
        large: "--file=DATA/cities.txt --cities=21 --alone-below=19",
        huge: Some("--file=DATA/cities.txt --cities=22 --alone-below=19"),
        other_order: Some(("depth first", "--depth-first=1")),
        speedup: Some((7.2, 6.5)),
        ..PLAIN
    },
    Program {
        name: "quicksort",
        large: "--count=1048576 --bubble-below=4096 --alone-below=4096",
        huge: Some("--count=8388608 --bubble-below=4096 --alone-below=32768"),
        speedup: Some((6.3, 4.2)),
        ..PLAIN
    },
    Program {
        name: "ilink",
        paper: "--loci=DATA/families.dat --pedigrees=DATA/families.ped",
        large: "--loci=DATA/families.large.dat --pedigrees=DATA/families.ped --root=9",
        huge: Some("--loci=DATA/families.huge.dat --pedigrees=DATA/families.ped --root=9"),
        speedup: Some((5.7, 5.1)),
        ..PLAIN
    },
    Program {
        name: "water-locks",
        file: Some("water"),
        paper: "--per-lock=1",
        large: "--molecules=6859 --per-lock=49",
        huge: Some("--molecules=19683 --per-lock=49"),
        changes: [None, Some("49 molecules to a lock")],
        speedup: Some((4.0, 2.1)),
        ..PLAIN
    },
    Program {
        name: "water",
        large: "--molecules=6859",
        huge: Some("--molecules=19683"),
        variant_of: Some("water-locks"),
        changes: [Some("forces are sums, no locks"); 2],
        speedup: Some((4.0, 2.1)),
        ..PLAIN
    },
    Program {
        name: "is",
        large: "--count=16777216",
        ..PLAIN
    },
    Program {
        name: "fft",
        large: "--edge=128 --iterations=8",
        ..PLAIN
    },
    Program {
        name: "lu",
        large: "--size=2048",
        ..PLAIN
    },
    Program {
        name: "barnes",
        large: "--bodies=32768",
        ..PLAIN
    },
];

/// What most programs have: their own file, and the paper's size by default.
const PLAIN: Program = Program {
    name: "",
    file: None,
    paper: "",
    large: "",
    huge: None,
    variant_of: None,
    changes: [None; 2],
    other_order: None,
    speedup: None,
};

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

/// The program with this name.
pub(super) fn named(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.name == name)
}

/// The file of the program with this name.
pub(super) fn file_of(name: &str) -> Option<&'static str> {
    named(name).map(Program::file)
}

/// The program whose sequential version is that of the program with this name.
pub(super) fn base_of(name: &str) -> &str {
    let variant_of = named(name).and_then(|program| program.variant_of);
    variant_of.unwrap_or(name)
}

/// How tables call it, with what it changes of the paper's program.
pub(super) fn label(name: &str, large: bool) -> String {
    let changes = named(name).and_then(|program| program.changes[usize::from(large)]);
    let changes = changes.map(|changes| format!(" ({changes})"));
    let size = if large { ", larger" } else { "" };
    format!("{name}{size}{}", changes.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_follow_the_program_that_they_change() {
        for (place, program) in PROGRAMS.iter().enumerate() {
            let Some(other) = program.variant_of else {
                assert_eq!(base_of(program.name), program.name);
                continue;
            };
            assert_eq!(PROGRAMS[place - 1].name, other);
            assert_eq!(PROGRAMS[place - 1].file(), program.file());
            assert_eq!(base_of(program.name), other);
            assert!(program.changes.iter().all(Option::is_some));
            assert!(label(program.name, true).ends_with(')'));
        }
        assert_eq!(label("tsp", true), "tsp, larger");
    }
}
