//! A process that computes and does nothing else: the ceiling of speedups where
//! processors are limited.

use anyhow::Result;
use clap::Args;
use pagemesh_cli::Exit;
use pagemesh_cli::output;
use std::hint::black_box;
use std::time::Instant;

/// Compute, and say how many seconds it took
#[derive(Args)]
pub(super) struct Burn {
    /// Rounds of arithmetic
    rounds: u64,
    /// Give the processor away after each round
    #[arg(long)]
    give_way: bool,
}

impl Burn {
    pub(super) fn run(&self) -> Result<Exit> {
        let start = Instant::now();
        let mut number = 1_u64;
        for round in 0..self.rounds {
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005) ^ round);
            if self.give_way {
                pagemesh_os::cpu::yield_now();
            }
        }
        output::lines([format!("{:.6}", start.elapsed().as_secs_f64())])?;
        Ok(Exit::OK)
    }
}
