use super::{TakeoverMistake, TakeoverSetting, explore_takeover};
use crate::small::settings::{self, explore_each};

/// More states than any exploration of the tests has.
const LIMIT: usize = 200_000;

/// The settings in `explorations/takeover`, each explored to the last state; those in
/// `explorations/takeover/large` take longer and are for `cargo xtask explore`.
fn settings(folder: &str) -> Vec<(String, TakeoverSetting)> {
    settings::settings(folder, |text| {
        assert!(TakeoverSetting::is_one(text), "{text}");
        TakeoverSetting::parse(text)
    })
}

#[test]
fn every_state_of_a_takeover_holds() {
    let settings_of_tests = settings("explorations/takeover");
    let states = explore_each(settings_of_tests, |one| explore_takeover(one, LIMIT));
    assert!(states > 100_000, "{states}: the explorations have shrunk");
    assert!(!settings("explorations/takeover/large").is_empty());
}

/// Where each planted mistake is to be found, and as what.
const TRAPS: [(TakeoverMistake, &str, &str); 4] = [
    (TakeoverMistake::FenceIgnored, "late", "INV-fenced"),
    (TakeoverMistake::PromiseForgotten, "late", "INV-fenced"),
    (TakeoverMistake::LogForgotten, "lost", "INV-standby-knows"),
    (TakeoverMistake::NewsIgnored, "pause", "INV-progress"),
];

#[test]
fn planted_mistakes_are_found() {
    let settings = settings("explorations/takeover");
    for mistake in TakeoverMistake::ALL {
        let trap = TRAPS.iter().find(|(planted, ..)| *planted == mistake);
        let (_, name, invariant) = trap.expect("each is found somewhere");
        let (_, setting) = settings
            .iter()
            .find(|(known, _)| known == name)
            .expect("it is there");
        let found = explore_takeover(&setting.clone().with(Some(mistake)), LIMIT);
        let why = found.expect_err("it is found");
        assert!(why.starts_with(invariant), "{mistake:?}: {why}");
    }
}
