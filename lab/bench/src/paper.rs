//! `bench paper`: what a paper measured, measured here, beside its figures.

mod claims;
mod figures;
mod freebsd;
mod gms;
mod mether;
mod mirage;
mod origin;
mod treadmarks;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use pagemesh_cli::Exit;
use pagemesh_cli::Global;
use std::path::Path;

/// What a paper measured, beside its figures
#[derive(Args)]
pub(super) struct Paper {
    #[command(subcommand)]
    which: Which,
}

#[derive(Subcommand)]
enum Which {
    /// TreadMarks, 1994: nine programs on 1 and 2 nodes, and on 8 slow ones
    Treadmarks(Box<treadmarks::Treadmarks>),
    /// MIRAGE+, 1994: faults by every switch, compression, Battleship, matrix multiply
    Mirage(mirage::Mirage),
    /// GMS, 1995: idle memory of other nodes before the disk
    Gms(gms::Gms),
    /// The FreeBSD DSM, 1997: faults, copies, contention, bad networks
    Freebsd(freebsd::Freebsd),
    /// Mether, 1993: two processes count by five protocols, and a sparse solver
    Mether(mether::Mether),
}

impl Paper {
    pub(super) fn run(self, global: &Global) -> Result<Exit> {
        match self.which {
            Which::Treadmarks(command) => command.run(global),
            Which::Mirage(command) => command.run(global),
            Which::Gms(command) => command.run(global),
            Which::Freebsd(command) => command.run(global),
            Which::Mether(command) => command.run(global),
        }
    }
}

/// Writes a report, or the figures of one.
fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::claims::{Claim, Verdict};
    use std::collections::BTreeMap;
    use std::ops::RangeInclusive;
    use std::path::{Path, PathBuf};

    /// Where the reports are.
    pub(super) fn papers() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/papers")
    }

    /// A report in `docs/papers` is what the command makes of the figures kept beside it, which
    /// `UPDATE_REPORTS=1` writes.
    pub(super) fn is_shipped(file: &str, made: &str) {
        let path = papers().join(file);
        if std::env::var_os("UPDATE_REPORTS").is_some() {
            std::fs::write(&path, made).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).unwrap() == made,
            "docs/papers/{file} differs from what is made of its JSON: UPDATE_REPORTS=1 cargo test -p pagemesh-bench --lib paper"
        );
    }

    /// Each of these codes has a claim.
    pub(super) fn all_have_claims(letters: &str, numbers: RangeInclusive<u32>, claims: &[Claim]) {
        for number in numbers {
            let code = format!("{letters}{number}");
            assert!(claims.iter().any(|claim| claim.code == code), "{code}");
        }
    }

    pub(super) fn none_is_judged(claims: &[Claim]) {
        let judged = |claim: &Claim| claim.verdict != Verdict::NotShown;
        assert!(!claims.iter().any(judged));
    }

    /// The word for all claims of one code together.
    fn together(verdicts: &[Verdict]) -> &'static str {
        let all = |verdict| verdicts.iter().all(|one| *one == verdict);
        match () {
            () if all(Verdict::Reproduced) => "reproduced",
            () if all(Verdict::Not) => "not reproduced",
            () if all(Verdict::NotShown) => "not shown here",
            () => "in part",
        }
    }

    /// The page on all papers says of each code what the claims of the shipped figures say.
    #[test]
    fn the_page_of_the_papers_says_what_their_reports_say() {
        let page = std::fs::read_to_string(papers().join("README.md")).unwrap();
        let mut claims: Vec<Claim> = super::mirage::shipped_claims();
        claims.extend(super::treadmarks::shipped_claims());
        claims.extend(super::gms::shipped_claims());
        claims.extend(super::freebsd::shipped_claims());
        claims.extend(super::mether::shipped_claims());
        let mut codes: BTreeMap<&str, Vec<Verdict>> = BTreeMap::new();
        for claim in &claims {
            codes.entry(claim.code).or_default().push(claim.verdict);
        }
        assert!(codes.len() > 15, "{codes:?}");
        for (code, verdicts) in codes {
            let begin = format!("| {code} |");
            let row = page.lines().find(|line| line.starts_with(&begin));
            let row = row.unwrap_or_else(|| panic!("docs/papers/README.md has no row for {code}"));
            let says = row.split('|').nth(3).unwrap().trim();
            let word = together(&verdicts);
            assert!(
                says.starts_with(word),
                "{code} is \"{word}\", and the page says \"{says}\""
            );
        }
    }

    /// Tables and figures of each paper, by its title in the list of them.
    const NUMBERED: [(&str, u32, u32); 5] = [
        ("MIRAGE+", 7, 7),
        ("Mether", 0, 9),
        ("TreadMarks", 0, 12),
        ("GMS", 5, 13),
        ("FreeBSD DSM", 2, 6),
    ];

    /// The faults of the list of tables and figures: numbers without a row, and rows that name a section
    /// which no report has.
    fn faults_of_list(list: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let mut faults = Vec::new();
        for (paper, tables, figures) in NUMBERED {
            let part = list.split_once(&format!("## {paper}\n"));
            let part = part.map_or("", |(_, rest)| rest);
            let part = part.split("\n## ").next().unwrap_or_default();
            let numbers = (1..=tables).map(|n| format!("| Table {n} |"));
            for number in numbers.chain((1..=figures).map(|n| format!("| Figure {n} |"))) {
                let fault = fault_of_number(part, &number, &read);
                faults.extend(fault.map(|fault| format!("{paper}: {fault}")));
            }
        }
        faults
    }

    /// The fault of one number, if it has any: there is one row, with a section or a reason.
    fn fault_of_number(
        part: &str,
        number: &str,
        read: impl Fn(&str) -> Option<String>,
    ) -> Option<String> {
        let rows = part.lines().filter(|line| line.starts_with(number));
        let rows: Vec<_> = rows.collect();
        let [row] = rows[..] else {
            return Some(format!("{} rows {number}", rows.len()));
        };
        let here = row.split('|').nth(3).unwrap_or_default().trim();
        if here.starts_with("not measured: ") {
            return None;
        }
        let link = here
            .split_once('(')
            .and_then(|(_, rest)| rest.split_once(')'));
        let title = here.split('"').nth(1).unwrap_or_default();
        let text = link.and_then(|(file, _)| read(file)).unwrap_or_default();
        let found = !title.is_empty() && text.contains(&format!("\n## {title}"));
        (!found).then(|| format!("{number} has no section {here}"))
    }

    #[test]
    fn every_table_and_figure_of_the_papers_has_its_place() {
        let read = |file: &str| std::fs::read_to_string(papers().join(file)).ok();
        let list = read("tables.md").unwrap();
        assert_eq!(faults_of_list(&list, read), [""; 0]);
        let without = list.replace("| Figure 13 |", "| Figure 14 |");
        let faults = faults_of_list(&without, read);
        assert_eq!(faults, ["GMS: 0 rows | Figure 13 |"]);
        let elsewhere = list.replace("GR5, Table 5", "GR5, Table 6");
        assert_eq!(faults_of_list(&elsewhere, read).len(), 1);
    }
}
