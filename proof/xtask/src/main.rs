//! The tasks of PageMesh's builders: `cargo xtask <task>`.

use clap::{Parser, Subcommand};

mod explore;
mod fuzz;
mod replay;
mod sim;
mod soak;
mod tidy;

/// Simulated clusters are cloned and dropped all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The tasks of PageMesh's builders")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Visit every state of small clusters, whatever the order of events.
    Explore(explore::Arguments),
    /// Feed hostile bytes to decoders and to a node.
    Fuzz(fuzz::Arguments),
    /// Show what a flight recorder remembers, and check that it is repeatable.
    Replay(replay::Arguments),
    /// Run clusters in the deterministic simulator.
    Sim(sim::Arguments),
    /// Run everything that could show a fault, mixed, for so many minutes.
    Soak(soak::Arguments),
    /// Compare what the documents name with what there is.
    Tidy,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Explore(arguments) => explore::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Replay(arguments) => replay::run(&arguments),
        Task::Sim(arguments) => sim::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::Tidy => tidy::run(),
    }
}
