//! What a paper claims, and whether a run shows it: the verdict is computed.

use serde::Serialize;

/// Whether a run shows what the paper claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Verdict {
    Not,
    NotShown,
    Reproduced,
}

/// One claim of a paper beside a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) code: &'static str,
    pub(super) claim: String,
    pub(super) ours: String,
    pub(super) verdict: Verdict,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::Not => "**not reproduced**",
            Self::NotShown => "not shown here",
            Self::Reproduced => "reproduced",
        }
    }
}

impl Claim {
    /// A claim of which the run has what it needs (`Some`), with the verdict, or has not.
    pub(super) fn of(
        code: &'static str,
        claim: impl Into<String>,
        found: Option<(String, bool)>,
    ) -> Self {
        let (ours, verdict) = match found {
            None => ("this run has nothing of it".to_owned(), Verdict::NotShown),
            Some((ours, true)) => (ours, Verdict::Reproduced),
            Some((ours, false)) => (ours, Verdict::Not),
        };
        Self {
            code,
            claim: claim.into(),
            ours,
            verdict,
        }
    }

    /// A claim that this benchmark cannot show, with the reason.
    pub(super) fn unshown(code: &'static str, claim: &str, why: &str) -> Self {
        Self {
            code,
            claim: claim.to_owned(),
            ours: why.to_owned(),
            verdict: Verdict::NotShown,
        }
    }
}

/// The section of a report: what does not reproduce comes first.
pub(super) fn section(mut claims: Vec<Claim>) -> String {
    // Stable: the order of the codes within a verdict.
    claims.sort_by_key(|claim| claim.verdict);
    let count = |verdict| claims.iter().filter(|one| one.verdict == verdict).count();
    let mut text = format!(
        "\n## What reproduces, and what does not\n\nOf {} claims of the paper {} do not reproduce, {} are not shown \
         here and {} reproduce. Verdicts and figures are computed from the tables below.\n\n\
         | CODE | THE PAPER | HERE | VERDICT |\n|---|---|---|---|\n",
        claims.len(),
        count(Verdict::Not),
        count(Verdict::NotShown),
        count(Verdict::Reproduced),
    );
    for one in &claims {
        text += &format!(
            "| {} | {} | {} | {} |\n",
            one.code,
            one.claim,
            one.ours,
            one.verdict.words()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_reproduce_is_said_first() {
        let text = section(vec![
            Claim::of("T1", "one", Some(("1".to_owned(), true))),
            Claim::unshown("T2", "two", "no disk"),
            Claim::of("T3", "three", Some(("3".to_owned(), false))),
            Claim::of("T4", "four", None),
        ]);
        let codes: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("| T"))
            .map(|line| &line[2..4])
            .collect();
        assert_eq!(codes, ["T3", "T2", "T4", "T1"]);
        assert!(text.contains("Of 4 claims of the paper 1 do not reproduce, 2 are not shown"));
    }
}
