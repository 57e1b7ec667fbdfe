//! `pagemesh ipcs` and `ipcrm`: System V objects of the cluster.

use crate::control::Control;
use crate::exit::{Exit, Trouble};
use crate::global::{Format, Global};
use crate::output::{self, Table};
use anyhow::{Result, bail, ensure};
use clap::{ArgGroup, Args};
use pagemesh_wire::NodeId;
use pagemesh_wire::local::{Reply, Request};
use pagemesh_wire::sysv::{Errno, Family, IPC_PRIVATE, Id, Op, Outcome, Perm, Pick, Usage};
use serde_json::{Value, json};

/// List System V segments, semaphores and queues of the cluster
#[derive(Args)]
#[command(
    after_help = "SITE is the node where the object was created and is at home: for a segment, the \
                  library site. Objects go when that node does."
)]
pub(crate) struct Ipcs {
    /// Shared memory segments
    #[arg(short = 'm', long)]
    shmems: bool,
    /// Sets of semaphores
    #[arg(short = 's', long)]
    semaphores: bool,
    /// Message queues
    #[arg(long)]
    queues: bool,
}

/// Remove System V objects of the cluster
#[derive(Args)]
#[command(group(ArgGroup::new("what").required(true).multiple(true)))]
pub(crate) struct Ipcrm {
    /// A segment, by its number
    #[arg(short = 'm', long, value_name = "ID", group = "what")]
    shmem_id: Vec<i32>,
    /// A segment, by its key
    #[arg(short = 'M', long, value_name = "KEY", group = "what", value_parser = key, allow_negative_numbers = true)]
    shmem_key: Vec<i32>,
    /// A set of semaphores, by its number
    #[arg(short = 's', long, value_name = "ID", group = "what")]
    semaphore_id: Vec<i32>,
    /// A set of semaphores, by its key
    #[arg(short = 'S', long, value_name = "KEY", group = "what", value_parser = key, allow_negative_numbers = true)]
    semaphore_key: Vec<i32>,
    /// A queue, by its number
    #[arg(long, value_name = "ID", group = "what")]
    queue_id: Vec<i32>,
    /// A queue, by its key
    #[arg(short = 'Q', long, value_name = "KEY", group = "what", value_parser = key, allow_negative_numbers = true)]
    queue_key: Vec<i32>,
}

impl Ipcs {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        let all = !(self.shmems || self.semaphores || self.queues);
        let mut document = serde_json::Map::new();
        for (wanted, family) in [
            (self.shmems, Family::Shm),
            (self.semaphores, Family::Sem),
            (self.queues, Family::Msg),
        ] {
            if !wanted && !all {
                continue;
            }
            let objects = list(&mut control, family)?;
            if global.output == Format::Json {
                let objects: Vec<_> = objects.iter().map(describe).collect();
                document.insert(title(family).0.into(), objects.into());
            } else {
                let wide = global.output == Format::Wide;
                output::lines([title(family).1])?;
                table(family, &objects, wide).print()?;
                output::lines([""])?;
            }
        }
        if global.output == Format::Json {
            output::json(Value::Object(document))?;
        }
        Ok(Exit::OK)
    }
}

impl Ipcrm {
    pub(crate) fn run(self, global: &Global) -> Result<Exit> {
        let mut control = super::connect(global)?;
        let families = [
            (Family::Shm, self.shmem_id, self.shmem_key),
            (Family::Sem, self.semaphore_id, self.semaphore_key),
            (Family::Msg, self.queue_id, self.queue_key),
        ];
        for (family, ids, keys) in families {
            for id in ids {
                remove(
                    &mut control,
                    family,
                    id,
                    &format!("{} {id}", title(family).2),
                )?;
            }
            for key in keys {
                ensure!(
                    key != 0,
                    "key 0 is that of all private objects; name the number"
                );
                let what = format!("{} with key {key:#010x}", title(family).2);
                let id = find(&mut control, family, key, &what)?;
                remove(&mut control, family, id, &what)?;
            }
        }
        Ok(Exit::OK)
    }
}

/// Names of a family: in documents, over tables, in sentences.
fn title(family: Family) -> (&'static str, &'static str, &'static str) {
    match family {
        Family::Shm => ("segments", "Shared memory segments", "segment"),
        Family::Sem => ("semaphores", "Sets of semaphores", "set of semaphores"),
        Family::Msg => ("queues", "Message queues", "queue"),
    }
}

fn ask(control: &mut Control, op: Op) -> Result<Outcome> {
    match control.ask(Request::Sysv(op))? {
        Reply::Sysv(outcome) => Ok(outcome),
        _ => bail!("the daemon answers something else; is it of another version?"),
    }
}

/// Objects that a node takes along when it leaves, in words.
pub(crate) fn at_home(control: &mut Control, node: NodeId) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for family in [Family::Shm, Family::Sem, Family::Msg] {
        // Other nodes are not asked: a node that leaves need not wait for them.
        let here = |place: &i32| Id::home_at(*place) == Some(node);
        let places = 0..=highest(control, Op::InfoHere { family })?;
        for object in objects(control, family, places.filter(here))? {
            let Some((id, _, perm, _)) = common(&object) else {
                continue;
            };
            let key = match perm.key {
                IPC_PRIVATE => "private".to_owned(),
                key => format!("key {key:#010x}"),
            };
            found.push(format!("{} {} ({key})", title(family).2, id.0));
        }
    }
    Ok(found)
}

/// All objects of the cluster.
fn list(control: &mut Control, family: Family) -> Result<Vec<Outcome>> {
    let members: Vec<_> = control.alive()?.iter().map(|member| member.id).collect();
    let there = |place: &i32| Id::home_at(*place).is_some_and(|home| members.contains(&home));
    let places = 0..=highest(control, Op::Info { family })?;
    objects(control, family, places.filter(there))
}

/// The highest place that is taken.
fn highest(control: &mut Control, info: Op) -> Result<i32> {
    match ask(control, info)? {
        Outcome::Usage(Usage { highest, .. }) => Ok(highest),
        _ => bail!("the daemon does not say what there is"),
    }
}

fn objects(
    control: &mut Control,
    family: Family,
    places: impl Iterator<Item = i32>,
) -> Result<Vec<Outcome>> {
    let mut objects = Vec::new();
    for place in places {
        let pick = Pick::IndexAny(place);
        match ask(control, Op::Stat { family, pick })? {
            // Nothing is there, or not any more.
            Outcome::Failed(_) => {}
            object => objects.push(object),
        }
    }
    Ok(objects)
}

fn find(control: &mut Control, family: Family, key: i32, what: &str) -> Result<i32> {
    let flags = 0;
    let get = match family {
        Family::Shm => Op::ShmGet {
            key,
            size: 0,
            flags,
        },
        Family::Sem => Op::SemGet {
            key,
            count: 0,
            flags,
        },
        Family::Msg => Op::MsgGet { key, flags },
    };
    match ask(control, get)? {
        Outcome::Number(id) => Ok(id),
        outcome => Err(failed(&outcome, what)),
    }
}

fn remove(control: &mut Control, family: Family, id: i32, what: &str) -> Result<()> {
    let id = Id(id);
    match ask(control, Op::Remove { family, id })? {
        Outcome::Number(_) => Ok(()),
        outcome => Err(failed(&outcome, what)),
    }
}

fn failed(outcome: &Outcome, what: &str) -> anyhow::Error {
    match outcome {
        Outcome::Failed(Errno::EPERM | Errno::EACCES) => Trouble::new(
            Exit::NO_PERMISSION,
            format!("{what}: only its owner, its creator and root may remove it"),
        )
        .into(),
        _ => anyhow::anyhow!("there is no {what}; `pagemesh ipcs` shows what there is"),
    }
}

fn table(family: Family, objects: &[Outcome], wide: bool) -> Table {
    let mut header = vec!["KEY", "ID", "SITE", "OWNER", "GROUP", "MODE"];
    header.extend(match family {
        Family::Shm => vec!["BYTES", "ATTACHED", "STATUS"],
        Family::Sem => vec!["SEMAPHORES"],
        Family::Msg => vec!["BYTES", "MESSAGES"],
    });
    if wide {
        header.extend(["CREATOR", "CHANGED"]);
    }
    let mut table = Table::new(&header);
    for object in objects {
        let Some((id, site, perm, changed)) = common(object) else {
            continue;
        };
        let mut row = vec![
            format!("{:#010x}", perm.key),
            id.0.to_string(),
            site.to_string(),
            perm.uid.to_string(),
            perm.gid.to_string(),
            format!("{:03o}", perm.mode & 0o777),
        ];
        match object {
            Outcome::Shm(stat) => {
                let removed = perm.mode & pagemesh_wire::sysv::SHM_DEST != 0;
                row.push(stat.size.to_string());
                row.push(stat.nattch.to_string());
                row.push(if removed { "removed" } else { "" }.to_owned());
            }
            Outcome::Sem(stat) => row.push(stat.nsems.to_string()),
            Outcome::Msg(stat) => {
                row.push(stat.cbytes.to_string());
                row.push(stat.qnum.to_string());
            }
            _ => {}
        }
        if wide {
            row.extend([perm.cuid.to_string(), changed.to_string()]);
        }
        table.row(row);
    }
    table
}

/// The fields that objects of all families have.
fn common(object: &Outcome) -> Option<(Id, NodeId, Perm, u64)> {
    match object {
        Outcome::Shm(stat) => Some((stat.id, stat.site, stat.perm, stat.ctime)),
        Outcome::Sem(stat) => Some((stat.id, stat.site, stat.perm, stat.ctime)),
        Outcome::Msg(stat) => Some((stat.id, stat.site, stat.perm, stat.ctime)),
        _ => None,
    }
}

fn describe(object: &Outcome) -> Value {
    let Some((id, site, perm, changed)) = common(object) else {
        return Value::Null;
    };
    let mut document = json!({
        "id": id.0,
        "key": perm.key,
        "site": site.0,
        "private": perm.key == IPC_PRIVATE,
        "uid": perm.uid,
        "gid": perm.gid,
        "cuid": perm.cuid,
        "cgid": perm.cgid,
        "mode": format!("{:03o}", perm.mode & 0o777),
        "changed": changed,
    });
    let more = match object {
        Outcome::Shm(stat) => json!({
            "bytes": stat.size,
            "attached": stat.nattch,
            "removed": perm.mode & pagemesh_wire::sysv::SHM_DEST != 0,
            "creator_pid": stat.cpid,
            "last_pid": stat.lpid,
        }),
        Outcome::Sem(stat) => json!({ "semaphores": stat.nsems, "last_operation": stat.otime }),
        Outcome::Msg(stat) => json!({
            "bytes": stat.cbytes,
            "messages": stat.qnum,
            "room": stat.qbytes,
            "last_sender_pid": stat.lspid,
            "last_receiver_pid": stat.lrpid,
        }),
        _ => json!({}),
    };
    if let (Value::Object(all), Value::Object(more)) = (&mut document, more) {
        all.extend(more);
    }
    document
}

/// A key as `ipcs` prints it, or as a number.
fn key(text: &str) -> Result<i32> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let number = match hex {
        Some(digits) => u32::from_str_radix(digits, 16).ok().map(u32::cast_signed),
        None => text.parse().ok(),
    };
    match number {
        Some(number) => Ok(number),
        None => bail!("a key is a number of 32 bits, such as 0x1234 or 4660"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_printed() {
        assert_eq!(key("0x0000abcd").unwrap(), 0xabcd);
        assert_eq!(key("0xffffffff").unwrap(), -1);
        assert_eq!(key("-7").unwrap(), -7);
        assert!(key("abc").is_err() && key("0x100000000").is_err());
    }
}
