//! How a daemon begins whose cluster is in etcd: it founds the cluster, joins it where etcd says that
//! the coordinator is, or goes on with it if no coordinator lives.

use super::{Elections, EtcdProgram, EtcdRecords, is_refusal};
use crate::ledger::{Ledger, Medium, file};
use anyhow::{Context as _, Result, bail};
use pagemesh_core::{Kept, KeptEntry, Life, Start};
use pagemesh_wire::etcd::{Answer, Hello, Request, Seen};
use pagemesh_wire::{ClusterId, NodeId, Term};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A coordinator that has not renewed its claim for so many seconds, while members would have taken
/// it after one, has no members.
const GONE: u8 = 3;

/// The claim of a coordinator that has just died looks like that of one that lives: who lives renews
/// it for longer than this.
const RENEWED: Duration = Duration::from_millis(1_200);

/// Between two looks.
const AGAIN: Duration = Duration::from_millis(200);

/// How long etcd may be out of reach at the start.
const PATIENCE: Duration = Duration::from_secs(20);

/// The means of a node whose cluster is in etcd.
pub(crate) type Means = (Ledger, Elections);

/// The means of a node that goes on from its journal.
///
/// # Errors
/// If the program that speaks to etcd is not installed.
pub(crate) fn go_on(hello: &Hello, generation: u32) -> Result<Means> {
    means(&Arc::new(EtcdProgram::find(hello.clone())?), generation)
}

fn means(program: &Arc<EtcdProgram>, generation: u32) -> Result<Means> {
    let records = EtcdRecords::new(Arc::clone(program), generation);
    let ledger = Ledger::start(Medium::Etcd(Box::new(records)))?;
    Ok((ledger, Elections::start(Arc::clone(program))?))
}

/// The means of a new node, and how it begins; `fresh` is the number of a cluster that it founds.
///
/// # Errors
/// If etcd is out of reach for long, or what it has is none of ours.
pub(crate) fn begin(hello: &Hello, generation: u32, fresh: ClusterId) -> Result<(Means, Start)> {
    let program = Arc::new(EtcdProgram::find(hello.clone())?);
    let (mut reached, mut alive) = (Instant::now(), None);
    let mut said = String::new();
    let start = loop {
        match decide(&program, fresh) {
            Ok(Decided::Start(start)) => break start,
            Ok(Decided::Join(term, address)) => {
                reached = Instant::now();
                let (known, since) = *alive.get_or_insert((term, reached));
                if known != term {
                    alive = None;
                } else if since.elapsed() > RENEWED {
                    break Start::Join(address);
                }
            }
            Ok(Decided::Wait) => (reached, alive) = (Instant::now(), None),
            Err(why) if is_refusal(why.as_ref()) || reached.elapsed() > PATIENCE => {
                return Err(why.context("cannot begin"));
            }
            Err(why) => {
                let why = format!("{why:#}");
                if why != said {
                    tracing::warn!("trying again for {} s: {why}", PATIENCE.as_secs());
                    said = why;
                }
            }
        }
        thread::sleep(AGAIN);
    };
    Ok((means(&program, generation)?, start))
}

/// What a new node does.
enum Decided {
    /// To begin like this.
    Start(Start),
    /// To join the coordinator of this term, at this address, if it goes on renewing its claim.
    Join(Term, SocketAddr),
    /// To look again.
    Wait,
}

fn decide(program: &EtcdProgram, fresh: ClusterId) -> Result<Decided> {
    let Answer::Seen(seen) = program.ask(&Request::Look)? else {
        bail!("an odd answer of pagemesh-etcd");
    };
    if seen.records.is_empty() {
        let won = matches!(program.ask(&Request::Found)?, Answer::Claimed(_));
        return Ok(match won {
            true => Decided::Start(Start::Found(fresh)),
            false => Decided::Wait,
        });
    }
    Ok(match next(&seen)? {
        Next::Join(term, address) => Decided::Join(term, address),
        Next::Wait => Decided::Wait,
        Next::GoOn(kept) => go_on_with(program, &kept)?,
    })
}

/// The next step of a host that is not a member, by what etcd has.
pub(super) enum Next {
    /// To join the coordinator of this term, at this address, if it lives.
    Join(Term, SocketAddr),
    /// To look again.
    Wait,
    /// To go on with this: nobody coordinates.
    GoOn(Box<Kept>),
}

/// # Errors
/// If what etcd has is none of ours.
pub(super) fn next(seen: &Seen) -> Result<Next> {
    let kept = file::read_whole(&seen.records)?;
    Ok(match seen.silent {
        // One that was elected just now may not have written yet where it is.
        Some(0) => coordinator(&kept, seen.term),
        Some(1..GONE) => Next::Wait,
        _ => Next::GoOn(Box::new(kept)),
    })
}

fn coordinator(kept: &Kept, term: Term) -> Next {
    let member = kept.view().member(term.coordinator());
    match member.filter(|_| kept.view().term == term) {
        Some(member) => Next::Join(term, member.address),
        None => Next::Wait,
    }
}

/// No coordinator lives, and no member has taken its place: this node goes on with what there is.
fn go_on_with(program: &EtcdProgram, kept: &Kept) -> Result<Decided> {
    let next = |kept: &Kept| -> Result<NodeId> {
        let next = kept.next_life();
        let (node, _) = next.context("all numbers of nodes are used up: found a new cluster")?;
        Ok(node)
    };
    let node = next(kept)?;
    let answer = program.ask(&Request::Claim {
        node,
        fence: kept.view().term,
        after: GONE,
    })?;
    let Answer::Claimed(Seen { term, records, .. }) = answer else {
        return Ok(Decided::Wait);
    };
    let mut kept = file::read_whole(&records)?;
    if next(&kept)? != node {
        return Ok(Decided::Wait);
    }
    kept.apply(KeptEntry::Life {
        cluster: kept.cluster(),
        node,
        term,
    });
    tracing::info!(
        %node, term = term.count(), names = kept.names(),
        "going on with what etcd has: the members are asked, for 5 s at most",
    );
    let life = Box::new(Life { kept, node, term });
    Ok(Decided::Start(Start::Resume(life)))
}
