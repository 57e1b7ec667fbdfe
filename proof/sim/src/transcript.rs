//! Datagrams as people read them, for scenarios.

use crate::network::{Fate, is_sign_of_life, kind};
use crate::world::World;
use pagemesh_core::release::{Body, Collect, IntervalRecord, News};
use pagemesh_wire::peer::{Call, Contents, DiffName, Inheritance, Message, Reply, Subject};
use pagemesh_wire::{NodeId, PageIndex, RequestId, SegmentId, VectorTime};

impl World {
    /// Notes a datagram, if a scenario wants to see them.
    pub(crate) fn transcribe(&mut self, from: usize, to: usize, message: &Message, fate: Fate) {
        if self.traffic.transcript.is_none() || is_sign_of_life(kind(message)) {
            return;
        }
        let fate = match fate {
            Fate::Lost => " (lost)",
            Fate::Held => " (held)",
            Fate::Arrives(_, Some(_)) => " (twice)",
            Fate::Arrives(_, None) => "",
        };
        let line = format!(
            "n{}->n{} {}{fate}",
            from + 1,
            to + 1,
            say(message, &|subject| self.name(subject))
        );
        if let Some(transcript) = &mut self.traffic.transcript {
            transcript.push(line);
        }
    }

    fn name(&self, subject: Subject) -> String {
        let segment = subject.segment();
        let opened = |client: &crate::process::Client| {
            let is_it = |opened: &Option<crate::process::Opened>| {
                opened
                    .as_ref()
                    .is_some_and(|opened| opened.segment == segment)
            };
            client.open.iter().position(is_it)
        };
        let number = self.processes.clients.iter().find_map(opened);
        let name = number.map_or_else(
            || segment.to_string(),
            |number| self.setting.segments[number].name.clone(),
        );
        match subject {
            Subject::Page { page, .. } => format!("{name}:{page}"),
            Subject::Lock(key) => format!("{name}/{}", key.number),
        }
    }
}

/// One message in a few words.
pub(crate) fn say(message: &Message, name: &dyn Fn(Subject) -> String) -> String {
    let page = |segment, page| name(Subject::Page { segment, page });
    match message {
        Message::Ask(ask) => {
            let waiter = ask.waiter;
            let mut line = format!(
                "Ask {:?} {} for {}",
                waiter.access,
                name(ask.subject),
                waiter.node
            );
            if let Some(have) = waiter.have {
                line += &format!(" which has {have}");
            }
            if ask.by_library {
                line += " by library";
            }
            line
        }
        Message::AskMany(many) => {
            let pages = many.requests.iter().map(|request| request.page);
            format!(
                "AskMany {:?} {}",
                many.access,
                pages_of(many.segment, pages)
            )
        }
        Message::SendCopies(send) => {
            let pages = send.copies.iter().map(|copy| copy.page);
            format!(
                "SendCopies for {} {}",
                send.reader,
                pages_of(send.segment, pages)
            )
        }
        Message::Data(data) => format!(
            "Data {} {}{}",
            page(data.segment, data.page),
            data.version,
            bytes(data.contents)
        ),
        Message::Pass(pass) => {
            let mut line = format!(
                "Pass {} {}{}",
                name(pass.subject),
                pass.version,
                bytes(pass.contents)
            );
            if !pass.awaiting.is_empty() {
                line += &format!(" awaiting {}", list(pass.awaiting.iter()));
            }
            if !pass.queue.is_empty() {
                line += &format!(
                    " queue {}",
                    list(pass.queue.iter().map(|waiter| waiter.node))
                );
            }
            line
        }
        Message::PassAck(ack) => format!("PassAck {} {}", name(ack.subject), ack.version),
        Message::Invalidate(order) => format!(
            "Invalidate {} older than {} for {}",
            page(order.segment, order.page),
            order.version,
            order.writer
        ),
        Message::InvalidateAck(ack) => {
            format!(
                "InvalidateAck {} {}",
                page(ack.segment, ack.page),
                ack.version
            )
        }
        Message::Served(served) => {
            let clock = if served.clock.is_some() {
                ", is clock site"
            } else {
                ""
            };
            format!("Served {}{clock}", page(served.segment, served.page))
        }
        Message::Call { body, .. } => format!("Call {}", call(body)),
        Message::Reply { body, .. } => format!("Reply {}", reply(body)),
        Message::Locate(locate) => format!("Locate {}", name(locate.subject)),
        Message::Located(located) => format!("Located {}", name(located.subject)),
        Message::Lost(lost) => format!("Lost {} with {}", name(lost.subject), lost.with),
        Message::Regain(regain) => format!("Regain {}", name(regain.subject)),
        other => of_release(other, name).unwrap_or_else(|| kind(other).to_owned()),
    }
}

/// A message that only policy `release` causes.
fn of_release(message: &Message, name: &dyn Fn(Subject) -> String) -> Option<String> {
    let page = |segment, page| name(Subject::Page { segment, page });
    Some(match message {
        Message::Acquire(acquire) => {
            let known = acquire.payload.read::<VectorTime>().unwrap_or_default();
            let waiter = acquire.ask.waiter.node;
            let lock = name(acquire.ask.subject);
            format!("Acquire {lock} for {waiter} knowing {known:?}")
        }
        Message::Grant(grant) => {
            let news = grant.payload.read::<News>().unwrap_or_default();
            let pass = &grant.pass;
            format!(
                "Grant {} {}{}",
                name(pass.subject),
                pass.version,
                told(&news)
            )
        }
        Message::Diffs(diffs) => {
            let each = diffs.diffs.iter().map(|(diff, bytes)| {
                let diff = diff_name(diff);
                format!("{diff} of {bytes} bytes")
            });
            let pushed = diffs.request == RequestId::NONE;
            let pushed = if pushed { " pushed" } else { "" };
            format!("Diffs{pushed} {}", each.collect::<Vec<_>>().join(", "))
        }
        Message::Policy(said) | Message::PolicyPage(said) => match Body::read(&said.body) {
            Some(body) => body_of_release(&body, &|index| page(said.segment, index)),
            None => "Policy".into(),
        },
        _ => return None,
    })
}

fn body_of_release(body: &Body, page: &dyn Fn(PageIndex) -> String) -> String {
    let kind = body.name();
    match body {
        Body::IntervalRequest(asks) => format!("{kind} knowing {:?}", asks.time),
        Body::IntervalReply(reply) => format!("{kind}{}", told(&reply.news)),
        Body::CopyRequest(asks) => {
            let forwarded = if asks.hops > 0 { " forwarded" } else { "" };
            format!("{kind} {} for {}{forwarded}", page(asks.page), asks.reader)
        }
        Body::CopyRequests(asks) => {
            let pages = asks.copies.iter().map(|(index, _)| index.to_string());
            format!("{kind} {}", pages.collect::<Vec<_>>().join(","))
        }
        Body::CopyReply(reply) => {
            let (contents, applied) = (bytes(reply.contents), &reply.applied);
            format!("{kind} {}{contents} with {applied:?}", page(reply.page))
        }
        Body::DiffRequest(asks) => {
            let used = asks.request == RequestId::NONE;
            let used = if used { ", pushed ones are used:" } else { "" };
            format!("{kind}{used} {}", diff_names(&asks.diffs))
        }
        Body::DiffMissing(missing) => format!("{kind} {}", diff_names(&missing.diffs)),
        Body::Full(full) => {
            let leaving = if full.leaving { ", leaving" } else { "" };
            format!("{kind} from {:?} on{leaving}", full.floor)
        }
        Body::Keep(keep) => format!("{kind} up to {}{}", keep.upto, told(&keep.news)),
        Body::Kept(kept) => format!("{kind} up to {} knowing {:?}", kept.upto, kept.time),
        Body::Leaving => kind.into(),
    }
}

fn diff_names(diffs: &[DiffName]) -> String {
    diffs.iter().map(diff_name).collect::<Vec<_>>().join(", ")
}

/// The diff that a node made of a page in an interval: `p0@n1:3`.
fn diff_name(diff: &DiffName) -> String {
    let DiffName {
        page,
        node,
        interval,
    } = diff;
    format!("{page}@{node}:{interval}")
}

/// The contents of some news: the goal, and the pages that each interval names.
fn told(news: &News) -> String {
    let pages = |record: &IntervalRecord| {
        let pages = record.each_page().map(|page| page.to_string());
        pages.collect::<Vec<_>>().join(",")
    };
    let record = |record: &IntervalRecord| {
        let (node, index) = (record.node, record.index);
        format!("; {node}:{index} wrote {}", pages(record))
    };
    let records: String = news.records.iter().map(record).collect();
    format!(" knowing {:?}{records}", news.goal)
}

fn pages_of(segment: SegmentId, pages: impl Iterator<Item = PageIndex>) -> String {
    let pages = pages.map(|page| page.to_string());
    format!("{segment} {}", pages.collect::<Vec<_>>().join(","))
}

fn bytes(contents: Contents) -> &'static str {
    match contents {
        Contents::Zero => " zero",
        Contents::Same => " same",
        Contents::Bytes => " +page",
        Contents::None => "",
    }
}

fn list(nodes: impl Iterator<Item = NodeId>) -> String {
    nodes
        .map(|node| node.to_string())
        .collect::<Vec<_>>()
        .join(",")
}

fn call(call: &Call) -> String {
    match call {
        Call::Probe => "Probe".into(),
        Call::Memory => "Memory".into(),
        Call::Open { name, .. } => format!("Open {name}"),
        Call::Close { .. } => "Close".into(),
        Call::Remove { name, .. } => format!("Remove {name}"),
        Call::Stat { name } => format!("Stat {name}"),
        Call::List { .. } => "List".into(),
        Call::Members(view) => format!("Members, epoch {}", view.epoch),
        Call::Forget { .. } => "Forget".into(),
        Call::TakePart(info) => format!("TakePart in {}", info.name),
        Call::Leave => "Leave".into(),
        Call::MembersChange(change) => format!("MembersChange {}", change.view.epoch),
        Call::Revoke { node } => format!("Revoke {node}"),
        Call::Log(decisions) => format!("Log {} entries", decisions.entries.len()),
        Call::TakeOver { term } => format!("TakeOver {}", term.coordinator()),
        Call::SysvGather { after } => format!("System V gather after {after:?}"),
        Call::ForgetMember { node } => format!("ForgetMember {node}"),
        Call::Name { name, .. } => format!("Name {name}"),
        Call::Inherit(piece) => inherit(piece),
        Call::Sysv(ask) => format!("System V {:?} of {}", ask.op, ask.who.client),
        Call::SysvNews(news) => format!("System V {news:?}"),
        Call::SysvKey {
            family,
            key,
            request,
        } => format!("System V {family:?} key {key}: {request:?}"),
        Call::SysvLend { buckets } => {
            format!("System V lend {} buckets", buckets.iter().count())
        }
        Call::SysvRecall { bucket, after } => {
            format!("System V recall bucket {} after {after:?}", bucket.0)
        }
        Call::Barrier {
            key,
            parties,
            payload,
        } => {
            let barrier = format!("Barrier {} of {parties}", key.number);
            match payload.read::<News>().filter(|_| !payload.is_empty()) {
                Some(news) => format!("{barrier}{}", told(&news)),
                None => barrier,
            }
        }
        Call::Declare { reduction, .. } => format!("Declare {reduction:?}"),
        Call::Reduce { reductions, .. } => format!("Reduce, {} ranges", reductions.len()),
        Call::Policy(call) => match call.body.read::<Collect>() {
            Some(step) => format!("Collect {step:?}"),
            None => "Policy".into(),
        },
        Call::CondWait { key } => format!("CondWait {}", key.number),
        Call::CondSignal { key, all } => {
            format!(
                "CondSignal {}{}",
                key.number,
                if *all { " all" } else { "" }
            )
        }
    }
}

fn inherit(piece: &Inheritance) -> String {
    let (what, count) = match piece {
        Inheritance::Owners(owners) => ("owners", owners.len()),
        Inheritance::Arrivals(arrivals) => ("arrivals", arrivals.len()),
        Inheritance::Waiters(waiters) => ("waiters", waiters.len()),
        Inheritance::Served(served) => ("calls served", served.len()),
    };
    format!("Inherit {count} {what}")
}

fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Segment(info) => format!("Segment {}", info.name),
        Reply::SysvKey(word) => format!("System V {word:?}"),
        Reply::SysvLent(buckets) => format!("System V takes {} buckets", buckets.iter().count()),
        Reply::SysvEntries { entries, more } => {
            format!("System V {} keys, more: {more}", entries.len())
        }
        Reply::Members(view) => format!("Members, epoch {}", view.epoch),
        Reply::Reducing(info, _) => format!("Segment {} and its ranges", info.name),
        Reply::Depart(said) => match said.body.read::<News>() {
            Some(news) => format!("Depart{}", told(&news)),
            None => "Depart".into(),
        },
        Reply::Policy(said) => match said.read::<VectorTime>() {
            Some(time) => format!("Reached({time:?})"),
            None => "Policy".into(),
        },
        Reply::Segments(infos) => format!("Segments, {}", infos.len()),
        other => format!("{other:?}"),
    }
}
