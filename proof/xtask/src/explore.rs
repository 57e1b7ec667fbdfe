//! `cargo xtask explore`: every state of a small cluster.

use anyhow::Context;
use pagemesh_sim::{
    Setting, TakeoverSetting, ViewsSetting, Visited, explore, explore_takeover, explore_views,
    replay,
};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The setting to explore; see proof/sim/src/explore/setting.rs, views/explore/setting.rs and
    /// takeover/setting.rs.
    #[arg(required_unless_present = "replay")]
    settings: Vec<PathBuf>,
    /// Play a path that was printed, instead.
    #[arg(long, conflicts_with = "settings")]
    replay: Option<PathBuf>,
    /// Plant a bug that must be found.
    #[arg(long)]
    canary: Option<pagemesh_sim::Canary>,
    /// Give up beyond so many states.
    #[arg(long, default_value_t = 50_000_000)]
    limit: usize,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(path) = &arguments.replay {
        let script = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        print!("{}", replay(&script).map_err(anyhow::Error::msg)?);
        return Ok(());
    }
    let mut failed = false;
    for path in &arguments.settings {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let start = Instant::now();
        if let Some(found) = explore_another(&text, arguments.limit) {
            failed |= !told(path, start, found.map_err(anyhow::Error::msg)?);
            continue;
        }
        let setting = Setting::parse(&text)
            .map_err(anyhow::Error::msg)?
            .with(arguments.canary);
        let found = explore(&setting, arguments.limit);
        print!("{setting}");
        println!("{found}, {:.1} s", start.elapsed().as_secs_f64());
        failed |= found.failure.is_some();
        if let Some((violation, tale)) = &found.failure {
            println!("{violation}\n{tale}");
        }
    }
    if failed {
        exit(1);
    }
    Ok(())
}

/// What an exploration has found.
type Found = Result<Visited, String>;

/// Explores a setting of policy `views`, or of takeovers; none if it is neither. An error says why it
/// is no setting.
fn explore_another(text: &str, limit: usize) -> Option<Result<Found, String>> {
    if ViewsSetting::is_one(text) {
        let setting = ViewsSetting::parse(text);
        return Some(setting.map(|setting| explore_views(&setting, limit)));
    }
    TakeoverSetting::is_one(text).then(|| {
        let setting = TakeoverSetting::parse(text);
        setting.map(|setting| explore_takeover(&setting, limit))
    })
}

/// Prints what was found. True if all holds.
fn told(path: &Path, start: Instant, found: Found) -> bool {
    let took = start.elapsed().as_secs_f64();
    println!("{}", path.display());
    match &found {
        Ok(visited) => println!("{visited}, {took:.1} s"),
        Err(why) => println!("{why}, {took:.1} s"),
    }
    found.is_ok()
}
