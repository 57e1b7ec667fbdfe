//! The tasks of PageMesh's builders: `cargo xtask <task>`.

use clap::{Parser, Subcommand};

mod sim;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The tasks of PageMesh's builders")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run clusters in the deterministic simulator.
    Sim(sim::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Sim(arguments) => sim::run(&arguments),
    }
}
