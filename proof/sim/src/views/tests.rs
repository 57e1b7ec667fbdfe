use super::{ViewsMistake, ViewsRun, ViewsSeen, views};
use crate::plan::Profile;

fn seeds(seeds: std::ops::Range<u64>, profile: Profile) -> ViewsSeen {
    let mut all = ViewsSeen::default();
    for seed in seeds {
        let run = views(ViewsRun {
            seed,
            profile,
            planted: None,
        });
        let seen = run.unwrap_or_else(|why| panic!("{why}\nseed {seed}, {profile:?}"));
        all.loads += seen.loads;
        all.moves += seen.moves;
        all.runs += seen.runs;
        all.left += seen.left;
        all.crashed += seen.crashed;
        all.regained += seen.regained;
    }
    all
}

#[test]
fn e1_to_e9_hold_where_nothing_gets_lost_for_long() {
    let seen = seeds(0..150, Profile::Calm);
    assert!(
        seen.loads > 1_000 && seen.moves > 500 && seen.runs > 100,
        "{seen:?}"
    );
}

#[test]
fn eb4_they_hold_under_loss_and_deaths() {
    let seen = seeds(0..150, Profile::Harsh);
    assert!(
        seen.crashed > 10 && seen.left > 10 && seen.regained > 5,
        "{seen:?}"
    );
}

#[test]
fn planted_mistakes_are_found() {
    let mistakes = [
        ViewsMistake::StaysWritable,
        ViewsMistake::StashForgotten,
        ViewsMistake::OneByOne,
        ViewsMistake::PrefixFillsAll,
    ];
    for planted in mistakes {
        let found = (0..40).any(|seed| {
            let planted = Some(planted);
            let profile = Profile::Calm;
            views(ViewsRun {
                seed,
                profile,
                planted,
            })
            .is_err()
        });
        assert!(found, "{planted:?}");
    }
}
