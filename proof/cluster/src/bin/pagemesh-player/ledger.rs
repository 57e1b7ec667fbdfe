//! Writing to a ledger until the host dies.

use anyhow::Result;
use clap::Args;
use pagemesh::{Access, Mesh};
use pagemesh_tests::dice::{Dice, mix};
use pagemesh_tests::ledger::Ledger;

#[derive(Args)]
pub(crate) struct Clerk {
    segment: String,
    /// Where its dice start
    #[arg(long)]
    seed: u64,
}

impl Clerk {
    pub(crate) fn play(self) -> Result<()> {
        let mesh = Mesh::connect()?;
        let memory = mesh.open(&self.segment, Access::Writable)?.map()?;
        let ledger = Ledger::new(memory);
        let mut dice = Dice::new(mix(self.seed));
        loop {
            ledger.write(&mut dice, |_, _, _| ())?;
        }
    }
}
