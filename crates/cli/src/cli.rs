//! The command line: every command, and the flags all of them share.

use crate::commands::{
    app, bench, board, borrow, cache, completions, counters, daemon, debug, demo, doctor, export,
    ipc, keeper, key, leave, members, memory, probe, promote, run, sandbox, segment, status, swap,
    version,
};
use crate::exit::Exit;
use crate::global::Global;
use anyhow::Result;
use clap::{Parser, Subcommand};

/// Shared memory between the processes of several hosts.
#[derive(Parser)]
#[command(
    name = "pagemesh",
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 done, 1 failure, 2 usage, 3 daemon not running, 4 degraded, \
                  77 no permission, 78 bad configuration.\n\
                  Start with: pagemesh doctor, pagemesh sandbox 3, pagemesh demo"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the daemon of this node in the foreground
    Daemon(Box<daemon::Daemon>),
    /// Keep what a daemon holds, for the next one
    #[command(hide = true)]
    Keeper(keeper::Keeper),
    /// Hand over all pages and leave the cluster
    Leave(leave::Leave),
    /// List the nodes of the cluster
    Members(members::Members),
    /// Make this node the coordinator in the place of one that is dead
    Promote(promote::Promote),
    /// Show the memory of each node: its budget, what is lent, what is borrowed
    Memory(memory::Memory),
    /// Say whether all is well, and what to do if not
    Status(status::Status),
    /// Make, show and rotate the keys by which nodes know each other
    #[command(subcommand)]
    Key(key::Key),
    /// Create, list, look into and remove segments
    #[command(subcommand)]
    Segment(segment::Segment),
    /// Read and write boards: state that one process publishes and many watch
    #[command(subcommand)]
    Board(board::Board),
    /// List System V segments, semaphores and queues of the cluster
    Ipcs(ipc::Ipcs),
    /// Remove System V objects of the cluster
    Ipcrm(ipc::Ipcrm),
    /// Run a program on the nodes of the cluster
    Run(run::Run),
    /// Run a program whose large allocations lie in memory of the cluster
    Borrow(borrow::Borrow),
    /// Offer memory of the cluster as a block device, by the NBD protocol
    Export(export::Export),
    /// Mount a view of a directory whose files all nodes cache for each other
    Cache(cache::Cache),
    /// Use memory of the cluster as swap space of this host
    Swap(swap::Swap),
    /// Bring up N nodes on this machine, for a program or for a look
    Sandbox(sandbox::SandboxCommand),
    /// Find what keeps PageMesh from working here, and how to cure it
    Doctor(doctor::Doctor),
    /// Measure this machine and network, with the program pagemesh-bench
    Bench(bench::Bench),
    /// See it work: which of this machine's packages lie between the others, on four nodes
    Demo(demo::Demo),
    /// Take part in one of the programs that come with PageMesh
    #[command(subcommand, hide = true)]
    App(app::App),
    /// Measure the round trip to a node through every layer
    Probe(probe::Probe),
    /// Show the counters of this node
    Counters(counters::Counters),
    /// Look into a daemon
    #[command(subcommand)]
    Debug(debug::Debug),
    /// Print a completion script for a shell
    Completions(completions::Completions),
    /// Print the version
    Version(version::Version),
}

impl Command {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        match self {
            Self::Daemon(command) => command.run(global),
            Self::Keeper(command) => command.run(),
            Self::Leave(command) => command.run(global),
            Self::Members(command) => command.run(global),
            Self::Promote(command) => command.run(global),
            Self::Memory(command) => command.run(global),
            Self::Status(command) => command.run(global),
            Self::Key(command) => command.run(global),
            Self::Segment(command) => command.run(global),
            Self::Board(command) => command.run(global),
            Self::Ipcs(command) => command.run(global),
            Self::Ipcrm(command) => command.run(global),
            Self::Run(command) => command.run(global),
            Self::Borrow(command) => command.run(global),
            Self::Export(command) => command.run(global),
            Self::Cache(command) => command.run(global),
            Self::Swap(command) => command.run(global),
            Self::Sandbox(command) => command.run(global),
            Self::Doctor(command) => command.run(global),
            Self::Bench(command) => command.run(global),
            Self::Demo(command) => command.run(global),
            Self::App(command) => command.run(),
            Self::Probe(command) => command.run(global),
            Self::Counters(command) => command.run(global),
            Self::Debug(command) => command.run(global),
            Self::Completions(command) => command.run(global),
            Self::Version(command) => command.run(global),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
