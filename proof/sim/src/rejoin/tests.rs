use super::*;

fn run(seed: u64, profile: Profile, planted: Option<RejoinMistake>) -> Result<RejoinSeen, String> {
    rejoin(RejoinRun {
        seed,
        profile,
        planted,
        churn: None,
    })
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(80)..].join("\n")
}

#[test]
fn programs_of_a_node_that_was_declared_dead_go_on_or_are_told() {
    holds(0..40);
}

#[test]
#[ignore = "minutes"]
fn many_programs_of_nodes_that_were_declared_dead_go_on_or_are_told() {
    holds(1_000..3_000);
}

fn holds(seeds: std::ops::Range<u64>) {
    let mut all = RejoinSeen::default();
    for profile in [Profile::Calm, Profile::Mild, Profile::Harsh] {
        for seed in seeds.clone() {
            let seen = match run(seed, profile, None) {
                Ok(seen) => seen,
                Err(why) => panic!("seed {seed}, {profile:?}:\n{}", last_lines(&why)),
            };
            all.accesses += seen.accesses;
            all.unheard += seen.unheard;
            all.rejoined += seen.rejoined;
            all.kept += seen.kept;
            all.lost += seen.lost;
            all.readers_kept += seen.readers_kept;
            all.readers_lost += seen.readers_lost;
            all.locked += seen.locked;
            all.failed += seen.failed;
        }
    }
    let often = [
        all.accesses / 1000,
        all.unheard / 100,
        all.rejoined / 50,
        all.kept / 10,
        all.lost / 10,
        all.readers_kept / 10,
        all.locked / 100,
        all.failed / 10,
    ];
    assert!(often.iter().all(|times| *times > 0), "{all:?}");
    println!("{all:?}");
}

#[test]
fn numbers_are_used_again_and_again() {
    for (seed, profile) in [
        (1, Profile::Calm),
        (2, Profile::Mild),
        (3, Profile::Harsh),
        (4, Profile::Mild),
    ] {
        let seen = rejoin(RejoinRun {
            seed,
            profile,
            planted: None,
            churn: Some(500),
        });
        let seen = match seen {
            Ok(seen) => seen,
            Err(why) => panic!("seed {seed}, {profile:?}:\n{}", last_lines(&why)),
        };
        println!("{seed}: {seen:?}");
        assert!(seen.joined >= 500 && seen.freed > 3, "{seen:?}");
        assert!(seen.left > 300 && seen.vanished > 2, "{seen:?}");
        assert!(seen.most_members < 127 && seen.locked > 100, "{seen:?}");
    }
}

#[test]
fn planted_mistakes_are_found() {
    use RejoinMistake::*;
    for (mistake, word) in [
        (EvictForgotten, "INV-"),
        (HeldLockReturned, "INV-mutual-exclusion"),
    ] {
        let found = (0..200).find_map(|seed| run(seed, Profile::Calm, Some(mistake)).err());
        let why = found.unwrap_or_else(|| panic!("{mistake:?} is not found"));
        assert!(
            why.lines().last().unwrap().contains(word),
            "{mistake:?}: {}",
            last_lines(&why)
        );
    }
}
