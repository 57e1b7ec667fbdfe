//! What the paper claims (TR1 to TR9), beside a run.

use super::super::claims::Claim;
use super::document::{BARRIER, Document, FAULT, LOCK_OF_LAST, LOCK_OF_THIRD, Run};
use super::literature::{COMMUNICATION, KERNEL_TO_TREADMARKS, MOST_TREADMARKS};
use super::program::{PROGRAMS, Program, label};
use super::tables::eight_slow;

/// Times that differ by less are called even.
const EVEN: f64 = 0.03;

pub(super) fn claims(document: &Document) -> Vec<Claim> {
    let mut all = basics(document);
    all.extend(paper_programs().flat_map(|program| speedup(document, program)));
    all.push(Claim::unshown(
        "TR2",
        "speedups decline on a 10 Mbit/s Ethernet",
        "no run on a network of another rate; Water at a greater distance is TR7",
    ));
    all.extend(shares(document));
    all.push(networks(document));
    all.extend(lazy_and_eager(document));
    all.push(diffs(document));
    all.push(Claim::unshown(
        "TR9",
        "a remote fault of 2.8 ms beside 11 ms (SSVM), 1.75 ms (DSVM6K) and 3.82 ms (Shiva)",
        "none of the three runs on a machine of today; [other systems](../performance.md#beside-others) stand beside us elsewhere",
    ));
    all
}

/// Programs of the paper as they are there.
fn paper_programs() -> impl Iterator<Item = &'static Program> {
    let programs = PROGRAMS.iter();
    programs.filter(|program| program.speedup.is_some() && program.variant_of.is_none())
}

/// TR1, under the paper's policy.
fn basics(document: &Document) -> Vec<Claim> {
    let of = |name: &str| {
        let mut all = document.basics.iter();
        all.find(|one| one.name == name && one.policy.as_deref() == Some("release"))
            .map(|one| one.ours)
    };
    let [from, third, barrier, fault] = [LOCK_OF_LAST, LOCK_OF_THIRD, BARRIER, FAULT].map(of);
    let locks = from
        .zip(third)
        .map(|(from, third)| (format!("{from:.1} and {third:.1} us"), third > from));
    let order = barrier.zip(fault).map(|(barrier, fault)| {
        (
            format!("fault {fault:.1}, barrier {barrier:.1} us"),
            fault > barrier,
        )
    });
    vec![
        Claim::of(
            "TR1",
            "a lock costs more if a third processor had it last (1149 us) than if the manager had (827 us)",
            locks,
        ),
        Claim::of(
            "TR1",
            "a page fault (2792 us) is dearer than a barrier of eight (2186 us)",
            order,
        ),
    ]
}

/// TR2: eight slow nodes and a forecast, of both sizes.
fn speedup(document: &Document, program: &'static Program) -> Vec<Claim> {
    let Some((atm, _)) = program.speedup else {
        return Vec::new();
    };
    [false, true]
        .map(|large| {
            let slow = |policy| eight_slow(document, program.name, large, policy);
            let others = ["eager", "sequential"].map(|policy| {
                let speedup = slow(policy).and_then(|one| document.slow_speedup(one));
                speedup.map_or_else(String::new, |it| format!(", under `{policy}` {it:.1}"))
            });
            let slow =
                slow("release").and_then(|one| Some((document.slow_speedup(one)?, one.ceiling)));
            let forecast = document
                .forecast(program.name, large, 8)
                .and_then(super::document::Forecast::speedup);
            let ours = slow.map(|(speedup, ceiling)| {
                let also = forecast.map_or_else(String::new, |it| format!(", forecast {it:.1}"));
                let words = format!(
                    "{speedup:.1} on slow nodes, where {ceiling:.1} is the most{also}{}",
                    others.concat()
                );
                (
                    words,
                    speedup / ceiling * 8.0 >= atm && forecast.is_none_or(|it| it >= atm),
                )
            });
            let name = label(program.name, large);
            let claim = format!("{name}: a speedup of {atm} on eight processors (ATM)");
            Claim::of("TR2", claim, ours)
        })
        .into()
}

/// Runs of the paper's programs under the lazy policy on the most nodes.
fn lazy(document: &Document) -> Vec<&Run> {
    let most = document.runs.iter().map(|run| run.nodes).max().unwrap_or(0);
    let names: Vec<&str> = paper_programs().map(|program| program.name).collect();
    let runs = document.runs.iter();
    runs.filter(|run| {
        most > 1
            && run.nodes == most
            && !run.large
            && run.policy == "release"
            && names.contains(&&*run.program)
    })
    .collect()
}

/// TR4 to TR6.
fn shares(document: &Document) -> Vec<Claim> {
    let runs = lazy(document);
    let largest = runs
        .iter()
        .max_by(|one, other| one.shares.pagemesh.total_cmp(&other.shares.pagemesh))
        .map(|run| {
            let percent = 100.0 * run.shares.pagemesh;
            let words = format!("{percent:.1} % ({}, {} nodes)", run.program, run.nodes);
            (words, percent <= MOST_TREADMARKS)
        });
    let kernel = runs
        .iter()
        .filter(|run| run.shares.pagemesh > 0.0)
        .map(|run| (run.shares.kernel / run.shares.pagemesh, run))
        .min_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(ratio, run)| {
            let words = format!("{ratio:.1} times at least ({})", run.program);
            (words, ratio >= KERNEL_TO_TREADMARKS)
        });
    let names: Vec<&str> = runs.iter().map(|run| &*run.program).collect();
    let divided: Vec<_> = document
        .divided
        .iter()
        .filter(|one| !one.large && one.policy == "release" && names.contains(&&*one.program))
        .collect();
    let communication = divided
        .iter()
        .map(|one| {
            let all = one.kernel_communication + one.kernel_memory + one.kernel_other;
            (100.0 * one.kernel_communication / all, one)
        })
        .min_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(percent, one)| {
            let words = format!("{percent:.0} % at least ({})", one.program);
            (words, percent >= COMMUNICATION)
        });
    let memory = (!divided.is_empty()).then(|| {
        let behind: Vec<&str> = divided
            .iter()
            .filter(|one| one.memory < one.consistency)
            .map(|one| &*one.program)
            .collect();
        let words = match behind[..] {
            [] => "memory management is the larger one everywhere".to_owned(),
            _ => format!("consistency is the larger one in {}", behind.join(", ")),
        };
        (words, behind.is_empty())
    });
    vec![
        Claim::of(
            "TR4",
            "TreadMarks' own code takes 2.9 % at most (Water)",
            largest,
        ),
        Claim::of(
            "TR4",
            "the kernel takes at least three times as much as TreadMarks",
            kernel,
        ),
        Claim::of(
            "TR5",
            "at least 80 % of the kernel's time is communication",
            communication,
        ),
        Claim::of(
            "TR6",
            "memory management takes more of TreadMarks' time than consistency",
            memory,
        ),
    ]
}

/// TR7.
fn networks(document: &Document) -> Claim {
    let seconds = |name: &str| {
        let mut all = document.substrates.iter();
        let found = all.find(|one| one.name == name && one.run.policy == "release");
        found.map(|one| one.run.seconds)
    };
    let [plain, sealed, far] = ["plain", "sealed", "200 us further"].map(seconds);
    let found = plain.zip(sealed).zip(far).map(|((plain, sealed), far)| {
        let words = format!("plain {plain:.3} s, sealed {sealed:.3} s, 200 us further {far:.3} s");
        (words, plain <= sealed && sealed < far)
    });
    Claim::of(
        "TR7",
        "a dearer protocol and a slower network lengthen Water: 15.0, 17.5, 27.5 s",
        found,
    )
}

/// The run of another policy on as many nodes.
fn beside<'d>(document: &'d Document, lazy: &Run, policy: &str) -> Option<&'d Run> {
    let mut runs = document.runs.iter();
    runs.find(|run| {
        (&*run.policy, &run.program, run.nodes, run.large)
            == (policy, &lazy.program, lazy.nodes, lazy.large)
    })
}

/// The run of the paper's protocol, which pushes no diffs, and its name; of ours if it was not measured.
fn pure<'d>(document: &'d Document, lazy: &'d Run) -> (&'d Run, &'static str) {
    match beside(document, lazy, "invalidate") {
        Some(paper) => (paper, "`invalidate`"),
        None => (lazy, "our lazy policy"),
    }
}

/// TR8: diffs of Jacobi.
fn diffs(document: &Document) -> Claim {
    let ours = lazy(document)
        .into_iter()
        .find(|run| run.program == "jacobi-each");
    let found = ours.and_then(|lazy| {
        let eager = beside(document, lazy, "eager")?;
        let (paper, name) = pure(document, lazy);
        let words = format!(
            "{} diffs under {name}, {} under eager",
            paper.diffs, eager.diffs
        );
        Some((words, paper.diffs as f64 <= 0.8 * eager.diffs as f64))
    });
    Claim::of(
        "TR8",
        "LRC creates 25 % fewer diffs than ERC for Jacobi",
        found,
    )
}

/// TR8: the quicker policy of each program, by the text of the paper.
fn lazy_and_eager(document: &Document) -> Vec<Claim> {
    [
        (
            "water-locks",
            "LRC is quicker than ERC for Water",
            Some(true),
        ),
        (
            "quicksort",
            "LRC is quicker than ERC for Quicksort",
            Some(true),
        ),
        (
            "jacobi-each",
            "LRC is slightly quicker than ERC for Jacobi",
            Some(true),
        ),
        ("ilink", "LRC and ERC are even for ILINK", None),
        ("tsp", "ERC is quicker than LRC for TSP", Some(false)),
    ]
    .map(|(program, claim, lazy_wins)| {
        let runs = lazy(document);
        let lazy = runs.into_iter().find(|run| run.program == program);
        let eager = lazy.and_then(|lazy| beside(document, lazy, "eager"));
        let found = lazy.zip(eager).map(|(lazy, eager)| {
            let (paper, name) = pure(document, lazy);
            let gain = eager.seconds / paper.seconds - 1.0;
            let words = format!(
                "{name} {:.3} s, eager {:.3} s ({:+.0} %) on {} nodes; less than {:.0} % is even",
                paper.seconds,
                eager.seconds,
                100.0 * gain,
                lazy.nodes,
                100.0 * EVEN
            );
            let shown = match lazy_wins {
                None => gain.abs() < EVEN,
                Some(true) => gain >= EVEN,
                Some(false) => gain <= -EVEN,
            };
            (words, shown)
        });
        Claim::of("TR8", claim, found)
    })
    .into()
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::{alone, run};
    use super::*;
    use crate::paper::claims::Verdict;

    fn verdict(document: &Document, code: &str, word: &str) -> Verdict {
        let mut all = claims(document).into_iter();
        all.find(|one| one.code == code && one.claim.contains(word))
            .unwrap()
            .verdict
    }

    #[test]
    fn a_run_that_has_nothing_shows_nothing() {
        let all = claims(&Document::new());
        assert!(all.iter().all(|one| one.verdict == Verdict::NotShown));
    }

    #[test]
    fn verdicts_follow_the_figures() {
        let mut document = Document::new();
        let eager = |seconds| Run {
            policy: "eager".to_owned(),
            ..run("tsp", 2, seconds)
        };
        document.add(run("tsp", 2, 2.0));
        document.add(eager(1.0));
        assert_eq!(verdict(&document, "TR8", "TSP"), Verdict::Reproduced);
        document.add(eager(2.01));
        assert_eq!(verdict(&document, "TR8", "TSP"), Verdict::Not, "even");
        document.add_alone(super::super::document::Alone {
            slow: true,
            ..alone("tsp", 8.0)
        });
        document.add_limited(run("tsp", 8, 1.0), 8.0);
        assert_eq!(verdict(&document, "TR2", "tsp:"), Verdict::Reproduced);
        document.add_limited(run("tsp", 8, 1.3), 8.0);
        assert_eq!(verdict(&document, "TR2", "tsp:"), Verdict::Not);
        assert_eq!(verdict(&document, "TR2", "tsp, larger:"), Verdict::NotShown);
    }
}
