use super::explore::suffer;
use super::{ViewsMistake, ViewsRun, ViewsSeen, ViewsSetting, explore_views, views};
use crate::plan::Profile;
use crate::small::settings::{self, explore_each};

fn seeds(seeds: std::ops::Range<u64>, profile: Profile, replicas: u8) -> ViewsSeen {
    let mut all = ViewsSeen::default();
    for seed in seeds {
        let run = views(ViewsRun {
            seed,
            profile,
            replicas,
            planted: None,
        });
        let seen = run.unwrap_or_else(|why| panic!("{why}\nseed {seed}, {profile:?}"));
        all.loads += seen.loads;
        all.moves += seen.moves;
        all.locked += seen.locked;
        all.runs += seen.runs;
        all.left += seen.left;
        all.crashed += seen.crashed;
        all.regained += seen.regained;
        all.lost += seen.lost;
        all.waited += seen.waited;
        all.survived += seen.survived;
    }
    all
}

#[test]
fn e1_to_e9_hold_where_nothing_gets_lost_for_long() {
    let seen = seeds(0..150, Profile::Calm, 0);
    assert!(
        seen.loads > 1_000 && seen.moves > 500 && seen.runs > 100 && seen.locked > 50,
        "{seen:?}"
    );
}

#[test]
fn eb4_they_hold_under_loss_and_deaths() {
    let seen = seeds(0..150, Profile::Harsh, 0);
    assert!(
        seen.crashed > 10 && seen.left > 10 && seen.regained > 5,
        "{seen:?}"
    );
}

/// Seed 13288: its welcome is lost until the coordinator declares it dead.
#[test]
fn a_node_that_is_dead_before_it_is_welcome_is_told() {
    let seen = seeds(13288..13289, Profile::Harsh, 0);
    assert!(seen.left > 0, "{seen:?}");
}

#[test]
fn what_is_published_survives_a_death() {
    let calm = seeds(0..100, Profile::Calm, 1);
    assert!(calm.waited > 200 && calm.runs > 50, "{calm:?}");
    let seen = seeds(0..300, Profile::Harsh, 1);
    let survived = seen.survived > 100 && seen.waited > 300;
    assert!(survived && seen.crashed > 20, "{seen:?}");
}

/// Whether one of so many seeds shows a mistake that is planted, by an error with this name.
fn shows(
    planted: ViewsMistake,
    seeds: u64,
    (profile, replicas): (Profile, u8),
    name: &str,
) -> bool {
    (0..seeds).any(|seed| {
        let run = ViewsRun {
            seed,
            profile,
            replicas,
            planted: Some(planted),
        };
        views(run).is_err_and(|why| why.contains(name))
    })
}

#[test]
fn a_replica_that_is_purged_is_found() {
    let name = "INV-published-survives";
    let harsh = (Profile::Harsh, 1);
    assert!(shows(ViewsMistake::ReplicaPurged, 200, harsh, name));
}

#[test]
fn a_purge_that_drops_nothing_is_found() {
    let name = "INV-purge-finds";
    let calm = (Profile::Calm, 0);
    assert!(shows(ViewsMistake::PurgeForgotten, 40, calm, name));
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
        assert!(shows(planted, 40, (Profile::Calm, 0), ""), "{planted:?}");
    }
}

/// More states than any exploration of the tests has.
const LIMIT: usize = 300_000;

/// The settings in `explorations/views`, each explored to the last state; those in
/// `explorations/views/large` take longer and are for `cargo xtask explore`.
fn settings(folder: &str) -> Vec<(String, ViewsSetting)> {
    settings::settings(folder, ViewsSetting::parse)
}

#[test]
fn every_state_of_three_nodes_with_a_view_holds() {
    let settings_of_tests = settings("explorations/views");
    let states = explore_each(settings_of_tests, |one| explore_views(one, LIMIT));
    assert!(states > 50_000, "{states}: the explorations have shrunk");
    assert!(!settings("explorations/views/large").is_empty());
}

/// Walks for the two tests below.
fn walks(forged: bool) -> usize {
    let text = "views lost=2 late=2 twice=2 early=2 crash=1\n\
                thread n1 store, publish, load, look\n\
                thread n2 look, purge, store, publish-short, glance\n\
                thread n3 glance, store, load, purge, look";
    let setting = ViewsSetting::parse(text).expect("a setting");
    let came = (0..60).map(|seed| {
        let came = suffer(&setting, seed, forged);
        came.unwrap_or_else(|why| panic!("seed {seed}: {why}"))
    });
    came.sum()
}

#[test]
fn replayed_messages_change_no_copy() {
    assert!(walks(false) > 1_000);
}

#[test]
fn forged_messages_break_no_node() {
    assert!(walks(true) > 500);
}
