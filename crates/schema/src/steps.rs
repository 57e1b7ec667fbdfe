//! Steps from each version of the schema to the next.

mod fields;

use fields::{
    Part, change_beside, has, insert, insert_wherever, map, remove_beside, remove_wherever,
};
use rmpv::Value;
use std::cell::Cell;

/// Turns the node of one version into that of the next; the error says what is missing.
pub type Step = fn(&mut Value) -> Result<(), String>;

/// The first step leads from [`OLDEST`](super::OLDEST) to the version after it.
pub(super) const STEPS: &[Step] = &[
    add_global_memory,
    add_terms,
    add_shared_pages,
    add_holds,
    add_rejoin_and_kept_pages,
    add_disk,
    add_replicas_checks_and_progress,
    add_shares,
    add_backups,
    add_programs,
    add_output_commit,
    add_election,
    add_readers,
    add_audit,
    add_trapping,
    count_releases_at_locks,
    know_mute_donors,
    answer_purges,
    count_copies,
    know_who_leaves_requests,
];

/// The steps back from the present version, the last one first: they take out what a step added.
pub(super) const BACK: &[Step] = &[
    forget_who_leaves_requests,
    drop_no_copies,
    forget_unanswered_purges,
    forget_mute_donors,
    know_of_locks_alone,
    remove_trapping,
    remove_audit,
    remove_readers,
    remove_election,
    remove_output_commit,
    remove_programs,
];

/// Version 2 has global memory: no pages are lent, no epoch has begun, no budget is known.
fn add_global_memory(node: &mut Value) -> Result<(), String> {
    let budgets = map([
        ("memory", u32::MAX.into()),
        ("lend", 0.into()),
        ("placement", "Epoch".into()),
    ]);
    let memory = map([
        ("budgets", budgets),
        ("used", 0.into()),
        ("wants_plan", false.into()),
        ("weights", Value::Array(Vec::new())),
        ("min_age", map([("secs", 0.into()), ("nanos", 0.into())])),
        ("until", 0.into()),
        ("chance", 0.into()),
        ("refusing", map([])),
    ]);
    let donor = map([("pages", map([])), ("droppable", Value::Array(Vec::new()))]);
    let epochs = map([
        ("current", Value::Nil),
        ("began", 0.into()),
        ("taken", 0.into()),
        ("collecting", Value::Nil),
        ("asked", Value::Nil),
    ]);
    insert(node, "shell", "memory", memory)?;
    insert(
        node,
        "services",
        "global",
        map([("donor", donor), ("epochs", epochs)]),
    )
}

/// Version 3 has terms of coordinators and a standby: the first node coordinates, no standby is
/// named, nothing is streamed, nothing is promised.
fn add_terms(node: &mut Value) -> Result<(), String> {
    const FIRST_TERM: u32 = 1 << 16 | 1;
    let none = || Value::Array(Vec::new());
    let directory = map([
        ("names", map([])),
        ("segments", map([])),
        ("serial", 0.into()),
    ]);
    let copy = map([
        ("next", 0.into()),
        ("directory", directory),
        ("answered", map([])),
        ("gone", none()),
    ]);
    insert(node, "services", "copy", copy)?;
    insert(node, "services", "promotion", Value::Nil)?;
    insert_wherever(
        node,
        &["epoch", "members"],
        &[("term", FIRST_TERM.into()), ("standby", 0.into())],
    );
    insert_wherever(
        node,
        &["check_races", "quotas", "pace"],
        &[("standby", true.into())],
    );
    let promised = Value::Array(vec![0.into(), 0.into()]);
    insert_wherever(
        node,
        &["standing", "coordinator_heard"],
        &[("promised", promised), ("knocked", 0.into())],
    );
    insert_wherever(
        node,
        &["directory", "heard"],
        &[
            ("log", Value::Nil),
            ("answered", none()),
            ("held", none()),
            ("welcomes", none()),
        ],
    );
    insert_wherever(
        node,
        &["names", "segments", "serial"],
        &[("touched", none())],
    );
    insert_wherever(
        node,
        &["reply", "waits", "for_home"],
        &[
            ("for_coordinator", false.into()),
            ("for_names", false.into()),
        ],
    );
    let no_nodes = Value::Array(vec![0.into(), 0.into()]);
    insert_wherever(
        node,
        &["names", "away", "waiting"],
        &[("me", 1.into()), ("missing", no_nodes)],
    );
    Ok(())
}

/// Version 4 caches pages of files: none is known.
fn add_shared_pages(node: &mut Value) -> Result<(), String> {
    let shared = map([
        (
            "pod",
            map([("members", Value::Array(vec![0.into(), 0.into()]))]),
        ),
        ("directory", map([("chunks", map([]))])),
        ("pools", map([])),
        ("lookups", map([])),
        ("announce", Value::Array(Vec::new())),
        ("announcing", false.into()),
    ]);
    let Value::Map(parts) = node else {
        return Err("the node has no parts".into());
    };
    let services = parts
        .iter_mut()
        .find(|(name, _)| name.as_str() == Some("services"));
    let Some((_, services)) = services else {
        return Err("the node has no services".into());
    };
    insert(services, "global", "shared", shared)
}

/// Version 5 has segments that are held: if nothing is there, none is.
fn add_holds(_: &mut Value) -> Result<(), String> {
    Ok(())
}

/// Version 6 joins again after it was declared dead, and keeps pages of files for other nodes.
fn add_rejoin_and_kept_pages(node: &mut Value) -> Result<(), String> {
    add_rejoin(node)?;
    add_kept_pages(node)
}

/// This node was never declared dead.
fn add_rejoin(node: &mut Value) -> Result<(), String> {
    let rejoin = map([
        ("times", 0.into()),
        ("under_way", Value::Nil),
        ("lost", map([])),
    ]);
    let doubt = map([
        ("sent", 0.into()),
        ("confirmed", 0.into()),
        ("since", Value::Nil),
    ]);
    insert(node, "services", "rejoin", rejoin)?;
    insert_wherever(
        node,
        &["check_races", "quotas", "pace"],
        &[("rejoin", true.into())],
    );
    insert_wherever(
        node,
        &["standing", "coordinator_heard"],
        &[("doubt", doubt)],
    );
    Ok(())
}

/// No page is kept, and what is kept was sent by its owner.
fn add_kept_pages(node: &mut Value) -> Result<(), String> {
    insert_wherever(
        node,
        &["version", "seal", "on_disk", "used"],
        &[("rounds", 1.into()), ("sent_on", false.into())],
    );
    let kept = map([
        ("pages", map([])),
        ("ages", Value::Array(Vec::new())),
        ("free", Value::Array(Vec::new())),
        ("fresh", 0.into()),
    ]);
    insert_wherever(
        node,
        &["pod", "directory", "pools", "lookups", "announcing"],
        &[("kept", kept)],
    );
    Ok(())
}

/// Version 7 has a disk: nothing is kept on it, and no coordinator goes on from one.
fn add_disk(node: &mut Value) -> Result<(), String> {
    let none = || Value::Array(Vec::new());
    let no_view = || Value::Array(vec![0.into(), 0.into()]);
    let disk = map([
        ("written", 0.into()),
        ("kept", 0.into()),
        ("batch", none()),
        ("view", no_view()),
        ("views", none()),
        ("kept_view", no_view()),
        ("in_role", false.into()),
        ("held", none()),
    ]);
    insert(node, "services", "disk", disk)?;
    insert(node, "services", "resumption", Value::Nil)?;
    insert_wherever(
        node,
        &["check_races", "quotas", "pace"],
        &[("keeps", false.into())],
    );
    insert_wherever(
        node,
        &["standing", "coordinator_heard"],
        &[("resumer", Value::Nil)],
    );
    insert_wherever(node, &["caller", "reply"], &[("batch", 0.into())]);
    insert_wherever(
        node,
        &["directory", "heard"],
        &[("standby_knows", 0.into())],
    );
    Ok(())
}

/// Version 8 has replicas, uses numbers again, and knows how far other nodes have come with what they
/// were asked: no segment has any, nobody has been asked which lives it names, and nothing was answered.
fn add_replicas_checks_and_progress(node: &mut Value) -> Result<(), String> {
    insert(node, "shell", "progress", map([]))?;
    insert_wherever(node, &["size", "mode", "policy"], &[("replicas", 0.into())]);
    let nobody = Value::Array(vec![0.into(), 0.into()]);
    insert_wherever(
        node,
        &["standing", "coordinator_heard"],
        &[
            ("born", 0.into()),
            ("told_names", 0.into()),
            ("forgotten", nobody),
        ],
    );
    let checks = map([
        ("under_way", Value::Nil),
        ("ended", Value::Nil),
        ("wait", map([("secs", 1.into()), ("nanos", 0.into())])),
        ("fruitless", false.into()),
    ]);
    insert_wherever(node, &["directory", "heard"], &[("checks", checks)]);
    Ok(())
}

/// Version 9 keeps pages that may be dropped by owner. What else it has is empty if nothing is there.
fn add_shares(node: &mut Value) -> Result<(), String> {
    let donor = node.part_mut("services")?.part_mut("global")?;
    let droppable = donor.part_mut("donor")?.part_mut("droppable")?;
    let mut owners: Vec<(Value, Value)> = Vec::new();
    for aged in droppable.as_array().cloned().unwrap_or_default() {
        let segment = aged[1][0].as_u64().ok_or("an aged page has no segment")?;
        let owner = Value::from(segment >> 48);
        let known = owners.iter_mut().find(|(known, _)| *known == owner);
        match known {
            Some((_, Value::Array(pages))) => pages.push(aged),
            _ => owners.push((owner, Value::Array(vec![aged]))),
        }
    }
    *droppable = Value::Map(owners);
    Ok(())
}

/// Version 10 keeps intervals of policy `release` on a backup: no token waits for that. What else it has
/// is empty if nothing is there.
fn add_backups(node: &mut Value) -> Result<(), String> {
    insert_wherever(
        node,
        &["own", "lent", "reclaiming"],
        &[("preparing", false.into())],
    );
    Ok(())
}

/// Version 11 knows which program each member is: as long as nobody says so, one of version 4.
fn add_programs(_: &mut Value) -> Result<(), String> {
    Ok(())
}

/// Back to version 10.
fn remove_programs(node: &mut Value) -> Result<(), String> {
    remove_wherever(node, &["program", "spoken", "upgrade"]);
    Ok(())
}

/// Version 12 has replicas under policy `sequential`: what is not said of them is nothing.
fn add_output_commit(_: &mut Value) -> Result<(), String> {
    Ok(())
}

/// Back to version 11.
fn remove_output_commit(node: &mut Value) -> Result<(), String> {
    remove_beside(node, &["libraries", "pin_jobs"], "replicas");
    remove_beside(node, &["denying", "denials"], "replicas");
    Ok(())
}

/// Version 13 may have its coordinator elected: it has not.
fn add_election(_: &mut Value) -> Result<(), String> {
    Ok(())
}

/// Back to version 12.
fn remove_election(node: &mut Value) -> Result<(), String> {
    remove_wherever(node, &["elected"]);
    remove_beside(node, &["ticket", "since", "asking"], "kept");
    Ok(())
}

/// Version 14 knows which readers serve each other under policy `release`, and how long pages take
/// that were asked for ahead: nothing of that is needed to go on.
fn add_readers(_: &mut Value) -> Result<(), String> {
    Ok(())
}

/// Back to version 13.
fn remove_readers(node: &mut Value) -> Result<(), String> {
    remove_wherever(node, &["last_came", "slowest_micros", "first_asked"]);
    remove_beside(node, &["page", "asked", "passed", "again"], "via");
    remove_beside(node, &["by_locks", "missed_round"], "feeds");
    remove_beside(node, &["baseless", "absent", "floor"], "readers");
    Ok(())
}

/// Version 15 asks owners which copies they count on: it begins to.
fn add_audit(_: &mut Value) -> Result<(), String> {
    Ok(())
}

/// Back to version 14.
fn remove_audit(node: &mut Value) -> Result<(), String> {
    remove_beside(node, &["pages", "droppable", "ended"], "audit");
    remove_beside(node, &["version", "place", "on_disk", "donors"], "told");
    Ok(())
}

/// Version 16 may leave the accesses to a segment to the kernel: all were trapped before.
fn add_trapping(_: &mut Value) -> Result<(), String> {
    Ok(())
}

/// Back to version 15, which knows every page that has a frame: the node has made room for it, so no
/// segment is left to the kernel.
fn remove_trapping(node: &mut Value) -> Result<(), String> {
    if has(node, ("trapped", &false.into())) {
        return Err("a segment whose accesses the kernel serves".into());
    }
    remove_wherever(
        node,
        &["trapped", "trapping", "traps_late", "frames_at_once"],
    );
    remove_beside(node, &["budgets", "wants_plan", "refusing"], "late");
    Ok(())
}

/// Version 17 counts the releases at locks since the last barrier, and knows walks through runs of
/// pages.
fn count_releases_at_locks(node: &mut Value) -> Result<(), String> {
    remove_wherever(node, &["by_locks"]);
    forget_walks(node);
    Ok(())
}

/// Version 18 knows donors that answered nothing: none so far.
fn know_mute_donors(_: &mut Value) -> Result<(), String> {
    Ok(())
}

/// Version 17 asks them.
fn forget_mute_donors(node: &mut Value) -> Result<(), String> {
    remove_beside(node, &["budgets", "wants_plan", "refusing"], "mute");
    Ok(())
}

/// Version 19 knows which purges of policy `views` no answer has followed: none so far.
fn answer_purges(_: &mut Value) -> Result<(), String> {
    Ok(())
}

/// Version 18 shows what comes after a purge, asked for or not.
fn forget_unanswered_purges(node: &mut Value) -> Result<(), String> {
    remove_beside(node, &["prefix_purged", "veiled", "orphaned"], "unanswered");
    Ok(())
}

/// Version 20 counts copies of policy `release` as memory, and drops some: none are counted so far.
fn count_copies(_: &mut Value) -> Result<(), String> {
    Ok(())
}

/// Version 19 keeps them all, whatever memory there is.
fn drop_no_copies(node: &mut Value) -> Result<(), String> {
    let counted = Cell::new(0);
    change_beside(node, &["inquiries", "collector", "copies"], &|fields| {
        let copies = fields
            .iter()
            .find(|(name, _)| name.as_str() == Some("copies"));
        let copies = copies.and_then(|(_, copies)| copies.as_u64());
        counted.set(counted.get() + copies.unwrap_or_default());
        let added = ["copies", "hand", "look_again"];
        fields.retain(|(name, _)| name.as_str().is_none_or(|name| !added.contains(&name)));
    });
    remove_beside(node, &["undiffed", "believed", "was_used"], "granted");
    let memory = node.part_mut("shell")?.part_mut("memory")?;
    let used = memory.part_mut("used")?;
    let others = used.as_u64().unwrap_or_default();
    *used = others.saturating_sub(counted.get()).into();
    Ok(())
}

/// Version 21 knows which nodes leave requests to others: none so far.
fn know_who_leaves_requests(_: &mut Value) -> Result<(), String> {
    Ok(())
}

/// Version 20 asks again, though they are on their way.
fn forget_who_leaves_requests(node: &mut Value) -> Result<(), String> {
    remove_beside(node, &["last", "sent"], "elsewhere");
    remove_beside(node, &["last", "sent"], "left");
    remove_beside(node, &["last", "sent"], "again");
    Ok(())
}

/// Back to version 16, which knows whether the last release was at a lock.
fn know_of_locks_alone(node: &mut Value) -> Result<(), String> {
    change_beside(node, &["releases_at_locks"], &|fields| {
        fields.push(("by_locks".into(), false.into()));
    });
    remove_wherever(node, &["releases_at_locks"]);
    forget_walks(node);
    Ok(())
}

/// What was seen of walks is a guess, which neither version reads from the other.
fn forget_walks(node: &mut Value) {
    change_beside(node, &["pattern", "trust", "faults"], &|fields| {
        for (name, value) in fields {
            if name.as_str() == Some("walks") {
                *value = Value::Array(Vec::new());
            }
        }
    });
}
