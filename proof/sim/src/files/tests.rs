use super::*;

fn run(seed: u64, profile: Profile, planted: Option<FilesMistake>) -> Result<FilesSeen, String> {
    files(Files {
        seed,
        profile,
        planted,
    })
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

#[test]
fn no_older_version_is_read_and_no_page_of_another_file() {
    let mut all = FilesSeen::default();
    for profile in [Profile::Calm, Profile::Harsh] {
        for seed in 0..300 {
            let seen = match run(seed, profile, None) {
                Ok(seen) => seen,
                Err(why) => panic!("seed {seed}, {profile:?}:\n{}", last_lines(&why)),
            };
            all.reads += seen.reads;
            all.here += seen.here;
            all.came += seen.came;
            all.missing += seen.missing;
            all.frameless += seen.frameless;
            all.dropped += seen.dropped;
            all.stale += seen.stale;
            all.put += seen.put;
            all.kept += seen.kept;
            all.sent_on += seen.sent_on;
            all.returned += seen.returned;
            all.taken += seen.taken;
            all.changed += seen.changed;
            all.crashed += seen.crashed;
            all.left += seen.left;
        }
    }
    let often = [
        all.reads / 1000,
        all.here / 1000,
        all.came / 1000,
        all.missing / 1000,
        all.frameless / 100,
        all.dropped / 1000,
        all.stale / 10,
        all.put / 1000,
        all.kept / 1000,
        all.sent_on / 10,
        all.returned / 100,
        all.taken / 10,
        all.changed / 100,
        all.crashed / 10,
        all.left / 10,
    ];
    assert!(often.iter().all(|times| *times > 0), "{all:?}");
}

#[test]
fn on_a_good_network_a_page_is_read_from_its_file_once() {
    let mut all = FilesSeen::default();
    for seed in 1000..1100 {
        let seen = run(seed, Profile::Calm, None).unwrap_or_else(|why| panic!("{why}"));
        all.came += seen.came;
        all.missing += seen.missing;
    }
    assert!(all.came > all.missing / 4, "{all:?}");
}

#[test]
fn planted_mistakes_are_found() {
    use FilesMistake::*;
    for (mistake, word) in [
        (VersionNotNamed, "INV-shared-version"),
        (ChangeUnseen, "INV-shared-version"),
        (FrameMissed, "INV-"),
        (ReadAfterDone, "INV-"),
        (EvictForgotten, "INV-budget"),
        (SlotMissed, "INV-shared-version"),
        (LendIgnored, "INV-budget"),
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
