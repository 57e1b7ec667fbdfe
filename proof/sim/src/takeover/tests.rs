use super::{TakeoverMistake, TakeoverSetting, explore_takeover};
use crate::workers::for_each;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More states than any exploration of the tests has.
const LIMIT: usize = 200_000;

/// The settings in `explorations/takeover`, each explored to the last state; those in
/// `explorations/takeover/large` take longer and are for `cargo xtask explore`.
fn settings(folder: &str) -> Vec<(String, TakeoverSetting)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let files = entries.map(|entry| entry.expect("readable").path());
    let mut files: Vec<_> = files.filter(|path| path.is_file()).collect();
    files.sort();
    let parsed = files.into_iter().map(|path| {
        let name = path.file_stem().unwrap_or_default().display().to_string();
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(TakeoverSetting::is_one(&text), "{name}");
        let setting = TakeoverSetting::parse(&text);
        let setting = setting.unwrap_or_else(|why| panic!("{name}: {why}"));
        (name, setting)
    });
    parsed.collect()
}

#[test]
fn every_state_of_a_takeover_holds() {
    let states = AtomicUsize::new(0);
    for_each(settings("explorations/takeover"), |(name, setting)| {
        let visited = explore_takeover(&setting, LIMIT);
        let visited = visited.unwrap_or_else(|why| panic!("{name}: {why}"));
        println!("{name}: {visited}");
        assert!(visited.ends > 0, "{name} never ends");
        states.fetch_add(visited.states, Ordering::Relaxed);
    });
    let states = states.into_inner();
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
