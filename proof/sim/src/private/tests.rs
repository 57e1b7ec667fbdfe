use super::explore::{Misfortune, explore};
use super::*;
use pagemesh_wire::peer::{Access, Backing};

fn run(seed: u64, profile: Profile, planted: Option<PrivateMistake>) -> Result<Remote, String> {
    private(Private {
        seed,
        profile,
        planted,
    })
}

fn last_lines(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains("Heartbeat"));
    let lines: Vec<_> = lines.collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

#[test]
fn no_page_is_lost_and_no_older_one_comes_back() {
    let mut all = Remote::default();
    for profile in [Profile::Calm, Profile::Harsh] {
        for seed in 0..150 {
            let remote = match run(seed, profile, None) {
                Ok(remote) => remote,
                Err(why) => panic!("seed {seed}, {profile:?}:\n{}", last_lines(&why)),
            };
            all.loads += remote.loads;
            all.lent += remote.lent;
            all.fetched += remote.fetched;
            all.read += remote.read;
            all.soft += remote.soft;
            all.forged += remote.forged;
            all.full += remote.full;
            all.epochs += remote.epochs;
            all.dropped += remote.dropped;
            all.sent_on += remote.sent_on;
            all.crashed += remote.crashed;
            all.left += remote.left;
        }
    }
    let often = [
        all.loads / 100,
        all.lent / 100,
        all.fetched / 100,
        all.read / 100,
        all.soft / 100,
        all.forged / 10,
        all.full,
        all.epochs / 10,
        all.dropped / 10,
        all.sent_on / 10,
        all.crashed / 10,
        all.left / 10,
    ];
    assert!(often.iter().all(|times| *times > 0), "{all:?}");
}

#[test]
fn planted_mistakes_are_found() {
    use PrivateMistake::*;
    for (mistake, word) in [
        (VersionNotSealed, "INV-private-version"),
        (StoreForgotten, "INV-private-kept"),
        (StaleEvicted, "INV-private-version"),
        (BudgetIgnored, "INV-budget"),
        (LeavesAtOnce, "INV-private-kept"),
    ] {
        let found = (0..300).find_map(|seed| run(seed, Profile::Harsh, Some(mistake)).err());
        let why = found.unwrap_or_else(|| panic!("{mistake:?} is not found"));
        assert!(
            why.lines().last().unwrap().contains(word),
            "{mistake:?}: {}",
            last_lines(&why)
        );
    }
}

/// Three nodes, two pages, one of which fits into memory: every order of events.
#[test]
fn every_order_of_events_of_a_small_cluster_is_right() {
    use Access::{Read, Write};
    let script = [(0, Write), (1, Write), (0, Read), (1, Read)];
    let quiet = Misfortune {
        lost: 0,
        twice: 0,
        crashes: 0,
        early: 0,
        full: 0,
    };
    let mut all = 0;
    for backing in [Backing::File, Backing::Copies] {
        for left in [
            Misfortune { lost: 1, ..quiet },
            Misfortune { twice: 1, ..quiet },
            Misfortune {
                crashes: 1,
                ..quiet
            },
            Misfortune { early: 1, ..quiet },
            Misfortune { full: 1, ..quiet },
        ] {
            let states = explore(backing, &script, left);
            all += states.unwrap_or_else(|why| panic!("{backing:?}, {left:?}: {why}"));
        }
    }
    assert!(all > 500, "{all} states");
}
