//! What a cluster has in etcd.
//!
//! ```text
//! PREFIX/term                          the newest term that was claimed
//! PREFIX/claim                         the same, with a lease that the coordinator renews
//! PREFIX/asked/NODE                    the newest term when this node asked for the claim in vain
//! PREFIX/head                          which generation of records counts
//! PREFIX/records/GENERATION/RECORD.PIECE  what the coordinator decided
//! ```
//!
//! A coordinator writes records on the condition that `term` is its own, and a node claims a term on
//! the condition that no other has claimed one since it looked. So a coordinator that was replaced
//! writes nothing more. The lease says when its holder has last renewed it, and renewing it writes
//! nothing into etcd's history.

use crate::members::Members;
use crate::refusal::Failure;
use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, Error, GetOptions, KeyValue, PutOptions, Txn, TxnOp,
};
use pagemesh_wire::etcd::{Answer, Request, Seen};
use pagemesh_wire::{NodeId, Term};

/// The seconds of a lease. Etcd knows how many are left, in whole seconds.
const LEASE: i64 = 10;

/// Bytes of one value. Etcd takes requests of 1.5 MiB.
const PIECE: usize = 1 << 20;

/// Bytes of everything, which is read at once.
const ALL: usize = 1 << 28;

type Done<T> = Result<T, Error>;

/// Answers a request.
pub(crate) async fn answer(members: &Members, request: Request) -> Result<Answer, Failure> {
    let keys = &Keys(members.prefix());
    match request {
        Request::Look => {
            let look = async |client| Ok(Answer::Seen(look(client, keys).await?.seen));
            members.ask(look).await
        }
        Request::Found => members.ask(async |client| found(client, keys).await).await,
        Request::Claim { node, fence, after } => {
            let claim = async |client| claim(client, keys, (node, fence, after)).await;
            members.ask(claim).await
        }
        Request::Asked { term } => {
            let asked = async |client| asked(client, keys, term).await;
            members.ask(asked).await
        }
        Request::Renew { term } => {
            let renew = async |client| renew(client, keys, term).await;
            members.ask(renew).await
        }
        Request::Keep {
            term,
            generation,
            record,
            bytes,
        } => {
            let place = (term, generation, record);
            let keep = async |client| keep(client, keys, place, &bytes).await;
            members.ask(keep).await
        }
    }
}

/// The names of all keys.
struct Keys<'a>(&'a str);

impl Keys<'_> {
    fn term(&self) -> String {
        format!("{}/term", self.0)
    }

    fn claim(&self) -> String {
        format!("{}/claim", self.0)
    }

    fn asked(&self) -> String {
        format!("{}/asked/", self.0)
    }

    fn head(&self) -> String {
        format!("{}/head", self.0)
    }

    fn records(&self) -> String {
        format!("{}/records/", self.0)
    }

    /// The beginning of the keys of one generation.
    fn generation(&self, term: Term, generation: u32) -> String {
        format!("{}{:08x}.{generation:08x}/", self.records(), term.0)
    }
}

/// What was seen, and when its keys were last written.
struct Look {
    seen: Seen,
    term_at: i64,
    claim_at: i64,
}

async fn look(mut client: Client, keys: &Keys<'_>) -> Done<Look> {
    let all = GetOptions::new().with_prefix();
    let mut store = client.kv_client().max_decoding_message_size(ALL);
    let found = store.get(format!("{}/", keys.0), Some(all)).await?;
    let kvs = found.kvs();
    let one = |key: String| kvs.iter().find(|kv| kv.key() == key.as_bytes());
    let (term, claim, head) = (one(keys.term()), one(keys.claim()), one(keys.head()));
    let head = head.map_or(&[][..], KeyValue::value);
    // In the order of their keys, which is that of the records.
    let records = kvs
        .iter()
        .filter(|kv| !head.is_empty() && kv.key().starts_with(head))
        .flat_map(|kv| kv.value().iter().copied())
        .collect();
    let lease = claim.map_or(0, KeyValue::lease);
    let silent = match lease {
        0 => None,
        lease => silent(&mut client, lease).await?,
    };
    let seen = Seen {
        term: term.map_or(Ok(Term::NONE), read_term)?,
        silent,
        records,
    };
    Ok(Look {
        seen,
        term_at: term.map_or(0, KeyValue::mod_revision),
        claim_at: claim.map_or(0, KeyValue::mod_revision),
    })
}

fn read_term(kv: &KeyValue) -> Done<Term> {
    let number = kv.value_str()?.parse().map(Term);
    number.map_err(|_| Error::Internal("etcd has a term there that is no number".into()))
}

/// For how many whole seconds a lease was not renewed; none if it has run out.
async fn silent(client: &mut Client, lease: i64) -> Done<Option<u8>> {
    let lease = client.lease_time_to_live(lease, None).await?;
    if lease.ttl() < 0 {
        return Ok(None);
    }
    // Of the seconds left the fraction is missing.
    let silent = lease.granted_ttl() - 1 - lease.ttl();
    Ok(Some(u8::try_from(silent.max(0)).unwrap_or(u8::MAX)))
}

/// Puts the claim of a term, if nothing was written since it was looked.
async fn put_claim(client: &mut Client, keys: &Keys<'_>, look: &Look, term: Term) -> Done<bool> {
    let lease = client.lease_grant(LEASE, None).await?.id();
    let leased = PutOptions::new().with_lease(lease);
    let value = term.0.to_string();
    let unchanged = |key, at| Compare::mod_revision(key, CompareOp::Equal, at);
    let txn = Txn::new()
        .when([
            unchanged(keys.term(), look.term_at),
            unchanged(keys.claim(), look.claim_at),
        ])
        .and_then([
            TxnOp::put(keys.term(), value.clone(), None),
            TxnOp::put(keys.claim(), value, Some(leased)),
        ]);
    Ok(client.txn(txn).await?.succeeded())
}

async fn found(mut client: Client, keys: &Keys<'_>) -> Done<Answer> {
    let look = look(client.clone(), keys).await?;
    // A daemon that claimed the first term, and has not renewed that for a while, is gone.
    let tried = look.seen.silent.is_some_and(|silent| silent < 3);
    let free = look.seen.records.is_empty() && !tried;
    if !free || !put_claim(&mut client, keys, &look, Term::FIRST).await? {
        return Ok(Answer::Held);
    }
    Ok(Answer::Claimed(look.seen))
}

async fn claim(
    mut client: Client,
    keys: &Keys<'_>,
    (node, fence, after): (NodeId, Term, u8),
) -> Done<Answer> {
    let before = look(client.clone(), keys).await?;
    if before.seen.silent.is_some_and(|silent| silent < after) {
        return held(client, keys, node, before.seen.term).await;
    }
    let Some(term) = before.seen.term.max(fence).next(node) else {
        return Err(Error::Internal("all terms are used up".into()));
    };
    if !put_claim(&mut client, keys, &before, term).await? {
        return held(client, keys, node, before.seen.term).await;
    }
    // Only now nobody else can write any more.
    let after = look(client, keys).await?;
    match after.seen.term == term {
        true => Ok(Answer::Claimed(after.seen)),
        false => Ok(Answer::Held),
    }
}

/// The claim is another node's: whoever has it can see that this node lives. Members ask only while
/// they do not hear their coordinator, so this does not fill etcd's history.
async fn held(mut client: Client, keys: &Keys<'_>, node: NodeId, term: Term) -> Done<Answer> {
    let key = format!("{}{}", keys.asked(), node.0);
    client.put(key, term.0.to_string(), None).await?;
    Ok(Answer::Held)
}

/// The nodes that have asked for the claim in vain since it was taken in this term.
async fn asked(mut client: Client, keys: &Keys<'_>, term: Term) -> Done<Answer> {
    let found = client.get(keys.claim(), None).await?;
    let claim = found.kvs().first();
    let by = claim.map_or(Ok(Term::NONE), read_term)?;
    if by != term {
        return Ok(Answer::Fenced(by));
    }
    let taken = claim.map_or(0, KeyValue::mod_revision);
    let all = GetOptions::new()
        .with_prefix()
        .with_min_mod_revision(taken + 1);
    let asked = client.get(keys.asked(), Some(all)).await?;
    let nodes = asked.kvs().iter().filter_map(|kv| {
        let number = kv.key_str().ok()?.strip_prefix(&keys.asked())?;
        number.parse().ok().map(NodeId)
    });
    let nodes = nodes.filter(|node| node.is_valid()).collect();
    Ok(Answer::Asked(nodes))
}

async fn renew(mut client: Client, keys: &Keys<'_>, term: Term) -> Done<Answer> {
    let kvs = [keys.term(), keys.claim()].map(|key| TxnOp::get(key, None));
    let mut got = client
        .txn(Txn::new().and_then(kvs))
        .await?
        .op_responses()
        .into_iter();
    let mut next = || match got.next() {
        Some(etcd_client::TxnOpResponse::Get(mut got)) => got.take_kvs().pop(),
        _ => None,
    };
    let (newest, claim) = (next(), next());
    let there = newest.as_ref().map_or(Ok(Term::NONE), read_term)?;
    if there != term {
        return Ok(Answer::Fenced(there));
    }
    if let Some(claim) = &claim
        && client.lease_keep_alive(claim.lease()).await.is_ok()
    {
        return Ok(Answer::Done);
    }
    // The lease has run out, and nobody has taken the claim.
    let look = Look {
        seen: Seen::default(),
        term_at: newest.map_or(0, |kv| kv.mod_revision()),
        claim_at: claim.map_or(0, |kv| kv.mod_revision()),
    };
    match put_claim(&mut client, keys, &look, term).await? {
        true => Ok(Answer::Done),
        false => Ok(Answer::Held),
    }
}

async fn keep(
    mut client: Client,
    keys: &Keys<'_>,
    (term, generation, record): (Term, u32, u32),
    bytes: &[u8],
) -> Done<Answer> {
    let mine = || {
        let value = term.0.to_string();
        Compare::value(keys.term(), CompareOp::Equal, value)
    };
    let beginning = keys.generation(term, generation);
    let mut pieces: Vec<&[u8]> = bytes.chunks(PIECE).collect();
    let last = pieces.pop().unwrap_or_default();
    let key = |piece: usize| format!("{beginning}{record:08x}.{piece:04x}");
    for (at, piece) in pieces.iter().enumerate() {
        let put = TxnOp::put(key(at), *piece, None);
        if !client
            .txn(Txn::new().when([mine()]).and_then([put]))
            .await?
            .succeeded()
        {
            return fenced(client, keys).await;
        }
    }
    let mut ops = vec![TxnOp::put(key(pieces.len()), last, None)];
    let mut conditions = vec![mine()];
    if record == 0 {
        // A member that stood still may carry out what was given up and repeated: too late, if
        // another generation counts by then.
        let head = client.get(keys.head(), None).await?;
        let at = head.kvs().first().map_or(0, KeyValue::mod_revision);
        conditions.push(Compare::mod_revision(keys.head(), CompareOp::Equal, at));
        ops.push(TxnOp::put(keys.head(), beginning.clone(), None));
        ops.extend(others(keys, &beginning));
    }
    let txn = Txn::new().when(conditions).and_then(ops);
    match client.txn(txn).await?.succeeded() {
        true => Ok(Answer::Done),
        false => match fenced(client, keys).await? {
            Answer::Fenced(by) if by == term => Err(Error::Internal("another was written".into())),
            fenced => Ok(fenced),
        },
    }
}

/// Removes all other generations.
fn others(keys: &Keys<'_>, beginning: &str) -> [TxnOp; 2] {
    /// The character behind the slash.
    const BEHIND: char = '0';
    let behind = |prefix: &str| format!("{}{BEHIND}", prefix.trim_end_matches('/'));
    let records = keys.records();
    let range =
        |from: String, to: String| TxnOp::delete(from, Some(DeleteOptions::new().with_range(to)));
    [
        range(records.clone(), beginning.to_owned()),
        range(behind(beginning), behind(&records)),
    ]
}

async fn fenced(mut client: Client, keys: &Keys<'_>) -> Done<Answer> {
    let found = client.get(keys.term(), None).await?;
    let by = found.kvs().first().map_or(Ok(Term::NONE), read_term)?;
    Ok(Answer::Fenced(by))
}
