//! A process of a test: runs on a node, plays the role its arguments name, prints the values that
//! the test needs, and ends with an exit code that is true. Errors are on its error output.

mod board;
mod count;
mod family;
mod labelled;
mod ledger;
mod litmus;
mod phases;
mod pipe;
mod queue;
mod record;
mod rewrite;
mod rounds;
mod scripted_node;
mod stress;

use anyhow::Result;
use clap::Parser;
use std::io::Write as _;
use std::process::ExitCode;

/// The roles.
#[derive(Parser)]
enum Role {
    /// Do what the lines of the input say
    ScriptedNode(scripted_node::ScriptedNode),
    /// Publish on a board, or follow it
    Board(board::BoardEnd),
    /// Count in a way that must not lose a step
    Count(count::Count),
    /// Fork children, which fork children, while threads work
    Family(family::Family),
    /// Anything at random that locks and barriers put in order
    Labelled(labelled::Labelled),
    /// Write to a ledger
    Ledger(ledger::Clerk),
    /// Go through phases divided by a barrier
    Phases(phases::Phases),
    /// Rewrites pages phase by phase
    Rewrite(rewrite::Rewrite),
    /// Put numbers into a queue
    Produce(queue::Produce),
    /// Take numbers out of a queue
    Consume(queue::Consume),
    /// Have one end of a pipe
    PipeEnd(pipe::PipeEnd),
    /// Use everything but plain memory, with another one
    Rounds(rounds::Rounds),
    /// Everything at random
    Stress(stress::Stress),
    /// Write down what is loaded and stored, and when
    Record(record::Record),
    /// Run one thread of a litmus test
    Litmus(litmus::Player),
}

fn main() -> ExitCode {
    leave_no_core();
    let played = match Role::parse() {
        Role::ScriptedNode(scripted_node) => scripted_node.play(),
        Role::Board(board) => board.play(),
        Role::Count(count) => count.play(),
        Role::Family(family) => family.play(),
        Role::Labelled(labelled) => labelled.play(),
        Role::Ledger(clerk) => clerk.play(),
        Role::Phases(phases) => phases.play(),
        Role::Rewrite(rewrite) => rewrite.play(),
        Role::Produce(produce) => produce.play(),
        Role::Consume(consume) => consume.play(),
        Role::PipeEnd(pipe) => pipe.play(),
        Role::Rounds(rounds) => rounds.play(),
        Role::Stress(stress) => stress.play(),
        Role::Record(record) => record.play(),
        Role::Litmus(player) => player.play(),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pagemesh-player: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// One line for the test, at once.
fn say(line: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()?;
    Ok(())
}

/// Some players are meant to crash.
fn leave_no_core() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let none = Rlimit {
        current: Some(0),
        ..getrlimit(Resource::Core)
    };
    let _ = setrlimit(Resource::Core, none);
}
