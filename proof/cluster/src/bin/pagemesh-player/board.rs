//! A board that one process publishes on and others follow, until its last state.

use crate::say;
use anyhow::{Result, bail, ensure};
use clap::Args;
use pagemesh::{Access, Board, BoardOptions, Error, Mesh};
use std::time::{Duration, Instant};

#[derive(Args)]
pub(crate) struct BoardEnd {
    name: String,
    /// Be the one that publishes, for so long
    #[arg(long)]
    seconds: Option<f64>,
}

/// Bytes of a state: more than a page.
const SIZE: usize = 6000;

/// Between two states.
const PAUSE: Duration = Duration::from_millis(5);

/// A state must come within this time.
const PATIENCE: Duration = Duration::from_secs(30);

impl BoardEnd {
    pub(crate) fn play(self) -> Result<()> {
        let mesh = Mesh::connect()?;
        let last = match self.seconds {
            Some(seconds) => {
                let board = Board::create(&mesh, &self.name, SIZE, BoardOptions::default())?;
                say("ready")?;
                publish(board, Duration::from_secs_f64(seconds))?
            }
            None => {
                let board = Board::open(&mesh, &self.name, Access::ReadOnly)?;
                say("ready")?;
                follow(board)?
            }
        };
        say(&last.to_string())?;
        // Stays until its input ends: else its readers could not get the last state from it.
        let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new());
        Ok(())
    }
}

/// A state that shows which it is, everywhere in it, and whether it is the last one.
fn state(number: u64, last: bool) -> Vec<u8> {
    let word = |at: usize| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at as u64;
    let mut bytes = vec![u8::from(last)];
    bytes.extend((0..SIZE / 8 - 1).flat_map(|at| word(at).to_le_bytes()));
    bytes
}

fn publish(mut board: Board, time: Duration) -> Result<u64> {
    let end = Instant::now() + time;
    let mut number = 0;
    loop {
        let last = Instant::now() >= end;
        number += 1;
        let published = board.publish(&state(number, last))?;
        ensure!(published == number, "{published} is not {number}");
        if last {
            return Ok(number);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Every state is whole, and none is older than the one before.
fn follow(mut board: Board) -> Result<u64> {
    let (mut seen, mut heard) = (0, Instant::now());
    loop {
        match board.wait(seen, Some(Duration::from_millis(100))) {
            Ok(_) | Err(Error::TimedOut) => {}
            Err(error) => bail!(error),
        }
        let Some(found) = board.read()? else { continue };
        ensure!(found.number >= seen, "{} after {seen}", found.number);
        let last = found.bytes.first() == Some(&1);
        let whole = found.bytes == state(found.number, last);
        ensure!(whole && !found.went_back, "{} is torn", found.number);
        if found.number > seen {
            heard = Instant::now();
        }
        seen = found.number;
        if last {
            return Ok(seen);
        }
        ensure!(heard.elapsed() < PATIENCE, "no state after {seen}");
    }
}
