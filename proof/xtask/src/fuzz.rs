//! `cargo xtask fuzz`: hostile bytes for as long as one likes.

use pagemesh_sim::{Fuzz, Target};
use std::process::exit;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these targets; all by default.
    targets: Vec<Target>,
    /// How long, all targets together.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Begin with this seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
}

/// Mutations of one seed.
const BATCH: u32 = 1000;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let targets = match arguments.targets.as_slice() {
        [] => &Target::ALL,
        some => some,
    };
    let each = Duration::from_secs_f64(arguments.minutes * 60.0 / targets.len() as f64);
    for target in targets {
        let fuzz = Fuzz::new(*target).map_err(anyhow::Error::msg)?;
        let start = Instant::now();
        let mut seed = arguments.from;
        let mut result = fuzz.replay().map(|_| ());
        while result.is_ok() && start.elapsed() < each {
            result = fuzz.mutate(seed, BATCH);
            seed += 1;
        }
        let count = (seed - arguments.from) * u64::from(BATCH);
        println!("{target}: {count} inputs, the next seed is {seed}");
        if let Err(breach) = result {
            println!("{breach}");
            println!(
                "the last line belongs into {}",
                target.corpus_file().display()
            );
            exit(1);
        }
    }
    Ok(())
}
