//! The life that a node begins with, and the disk that knows of it.

use super::dice;
use crate::ledger::{Ledger, LedgerFile, Medium};
use crate::options::Options;
use anyhow::{Context as _, Result, bail, ensure};
use pagemesh_core::{KeptEntry, Life, Start};
use pagemesh_wire::ClusterId;

/// The directory for this node's state, if it has one, and how the node begins: it joins a cluster,
/// goes on with the one in the directory, or founds one.
pub(super) fn begin_or_go_on(options: &Options) -> Result<(Option<Ledger>, Start)> {
    let found = || -> Result<Start> { Ok(Start::Found(ClusterId(dice()?))) };
    let Some(directory) = &options.state else {
        let start = options.join.map_or_else(found, |to| Ok(Start::Join(to)))?;
        return Ok((None, start));
    };
    let mut file = LedgerFile::open(directory)?;
    let start = match options.join {
        Some(address) => Start::Join(address),
        None if file.kept.is_whole() => {
            let life = next_life(&mut file, options.promote)?;
            Start::Resume(Box::new(life))
        }
        None if options.promote => bail!(
            "{}: nothing is known here of a cluster: this node was not its standby",
            file.path().display()
        ),
        None => found()?,
    };
    Ok((Some(Ledger::start(Medium::File(Box::new(file)))?), start))
}

/// A coordinator begins its next life, and its disk knows that before any other node hears of it.
fn next_life(file: &mut LedgerFile, promote: bool) -> Result<Life> {
    let path = file.path();
    let path = path.display();
    ensure!(
        promote || file.kept.has_coordinated(),
        "{path}: this node was the standby: let it join (--join); or, if the coordinator's host is \
         gone for good and no member can be promoted, go on with the standby's copy (--promote)"
    );
    let next = file.kept.next_life();
    let (node, term) = next.with_context(|| {
        format!(
            "{path}: all numbers of nodes are used up; move the file away to found a new cluster"
        )
    })?;
    let entry = KeptEntry::Life {
        cluster: file.kept.cluster(),
        node,
        term,
    };
    file.append(&[entry])
        .with_context(|| format!("cannot write to {path}"))?;
    tracing::info!(
        file = %path, %node, term = term.count(), names = file.kept.names(),
        "going on from the disk: the members are asked, for 5 s at most",
    );
    let kept = file.kept.clone();
    Ok(Life { kept, node, term })
}

/// The directory of a node that goes on from its journal. What its last daemon was writing may be
/// missing there.
pub(super) fn ledger_of_another(options: &Options) -> Result<Option<Ledger>> {
    let directory = options.state.as_ref();
    let ledger = directory.map(|directory| {
        let file = LedgerFile::open(directory)?;
        Ledger::start(Medium::File(Box::new(file)))
    });
    ledger.transpose()
}
