//! `cargo xtask explore`: every state of a small cluster.

use anyhow::Context;
use pagemesh_sim::{Setting, ViewsSetting, explore, explore_views, replay};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The setting to explore; see proof/sim/src/explore/setting.rs, and views/explore/setting.rs.
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
        if ViewsSetting::is_one(&text) {
            failed |= !explore_views_of(&text, path, arguments.limit)?;
            continue;
        }
        let setting = Setting::parse(&text)
            .map_err(anyhow::Error::msg)?
            .with(arguments.canary);
        let start = Instant::now();
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

/// Explores a setting of policy `views`. True if all holds.
fn explore_views_of(text: &str, path: &Path, limit: usize) -> anyhow::Result<bool> {
    let setting = ViewsSetting::parse(text).map_err(anyhow::Error::msg)?;
    let start = Instant::now();
    let found = explore_views(&setting, limit);
    let took = start.elapsed().as_secs_f64();
    println!("{}", path.display());
    match &found {
        Ok(visited) => println!("{visited}, {took:.1} s"),
        Err(why) => println!("{why}, {took:.1} s"),
    }
    Ok(found.is_ok())
}
