//! The settings of explorations, in files that the tests explore to the last state.

use super::search::Visited;
use crate::workers::for_each;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The text files of a folder of this package, in order; there is at least one.
pub(crate) fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let files = entries.map(|entry| entry.expect("readable").path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|kind| kind == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// The settings in a folder, each with the name of its file.
pub(crate) fn settings<S>(
    folder: &str,
    parse: impl Fn(&str) -> Result<S, String>,
) -> Vec<(String, S)> {
    let parsed = files(folder).into_iter().map(|path| {
        let name = path.file_stem().unwrap_or_default().display().to_string();
        let text = std::fs::read_to_string(&path).expect("readable");
        let setting = parse(&text);
        let setting = setting.unwrap_or_else(|why| panic!("{name}: {why}"));
        (name, setting)
    });
    parsed.collect()
}

/// Explores each of the settings to the last state, of which it prints the counts. Returns how many
/// states they have together.
pub(crate) fn explore_each<S: Send>(
    settings: Vec<(String, S)>,
    explore: impl Fn(&S) -> Result<Visited, String> + Sync,
) -> usize {
    let states = AtomicUsize::new(0);
    for_each(settings, |(name, setting)| {
        let visited = explore(&setting).unwrap_or_else(|why| panic!("{name}: {why}"));
        println!("{name}: {visited}");
        assert!(visited.ends > 0, "{name} never ends");
        states.fetch_add(visited.states, Ordering::Relaxed);
    });
    states.into_inner()
}
