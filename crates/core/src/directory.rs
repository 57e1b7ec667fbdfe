//! The directory: names of segments, kept by the coordinator (F1, F12).
//!
//! A segment lives until its name is removed *and* no node has it open. The exit of a process never
//! removes a segment.

use crate::config::Quotas;
use crate::policies;
use pagemesh_wire::peer::{Credentials, Decision, Reduction, Refusal, SegmentInfo, SegmentSpec};
use pagemesh_wire::{ByteLen, CallId, NodeId, NodeSet, SegmentId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// All segments of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Directory {
    names: BTreeMap<String, SegmentId>,
    segments: BTreeMap<SegmentId, Entry>,
    serial: u64,
    /// Segments that were changed by the present input.
    touched: BTreeSet<SegmentId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Entry {
    info: SegmentInfo,
    /// The newest call by which each node changed its attachment: calls of one node may overtake
    /// each other.
    changed: BTreeMap<NodeId, CallId>,
    /// Ranges declared for reductions.
    reductions: Vec<Reduction>,
}

impl Entry {
    fn decision(&self) -> Decision {
        Decision::Segment {
            info: self.info.clone(),
            changed: self
                .changed
                .iter()
                .map(|(node, call)| (*node, *call))
                .collect(),
            reductions: self.reductions.clone(),
        }
    }
}

/// The resources that a user has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of segments.
    pub segments: u32,
    /// Bytes of all these segments, whether touched or not.
    pub bytes: u64,
}

/// Nine tenths of a quota: from here on a user is reported as near the quota.
const fn most(quota: u64) -> u64 {
    quota - quota / 10
}

/// A request to open a segment.
pub(crate) struct Opening<'a> {
    pub(crate) node: NodeId,
    pub(crate) call: CallId,
    pub(crate) name: &'a str,
    pub(crate) create: Option<&'a SegmentSpec>,
    pub(crate) exclusive: bool,
    pub(crate) write: bool,
    pub(crate) credentials: &'a Credentials,
    pub(crate) quotas: Quotas,
}

impl Directory {
    /// Creates or opens a segment, and records the node as attached.
    pub(crate) fn open(&mut self, opening: &Opening<'_>) -> Result<SegmentInfo, Refusal> {
        let id = match self.names.get(opening.name) {
            Some(_) if opening.exclusive => return Err(Refusal::Exists),
            Some(id) => *id,
            None => self.create(opening)?,
        };
        let entry = self
            .segments
            .get_mut(&id)
            .expect("a name leads to a segment");
        if !allowed(&entry.info, opening.credentials, opening.write) {
            return Err(Refusal::Permission);
        }
        policies::Policy::open(id, 0, &entry.info.spec)?.may_open(opening.node)?;
        entry.info.attached.insert(opening.node);
        let changed = entry.changed.entry(opening.node).or_default();
        *changed = (*changed).max(opening.call);
        self.touched.insert(id);
        Ok(entry.info.clone())
    }

    fn create(&mut self, opening: &Opening<'_>) -> Result<SegmentId, Refusal> {
        let spec = opening.create.ok_or(Refusal::NotFound)?;
        check_name(opening.name)?;
        check_spec(spec)?;
        self.check_quotas(opening.credentials.uid, spec, opening.quotas)?;
        self.serial += 1;
        let id = SegmentId::new(opening.node, self.serial);
        let info = SegmentInfo {
            id,
            name: opening.name.to_owned(),
            spec: spec.clone(),
            owner: (opening.credentials.uid, opening.credentials.gid),
            removed: false,
            attached: NodeSet::EMPTY,
        };
        self.names.insert(opening.name.to_owned(), id);
        self.segments.insert(
            id,
            Entry {
                info,
                changed: BTreeMap::new(),
                reductions: Vec::new(),
            },
        );
        Ok(id)
    }

    fn check_quotas(&self, uid: u32, spec: &SegmentSpec, quotas: Quotas) -> Result<(), Refusal> {
        if uid == 0 {
            return Ok(());
        }
        let Usage { segments, bytes } = self.usage(uid);
        let cure = "remove some (`pagemesh segment rm`), or raise the first node's `--quota`";
        if segments >= quotas.segments {
            let why = format!("user {uid} has {segments} segments, its quota of segments: {cure}");
            return Err(Refusal::Limit(why));
        }
        let ByteLen(quota) = quotas.bytes;
        if bytes.saturating_add(spec.size.0) > quota {
            let why = format!(
                "user {uid} has segments of {bytes} bytes, and {} more exceed its quota of \
                 {quota} bytes: {cure}",
                spec.size.0
            );
            return Err(Refusal::Limit(why));
        }
        Ok(())
    }

    /// What a user has. Segments that were removed count until every node has closed them.
    fn usage(&self, uid: u32) -> Usage {
        let infos = self.segments.values().map(|entry| &entry.info);
        let of_user = infos.filter(|info| info.owner.0 == uid);
        of_user.fold(Usage::default(), |usage, info| Usage {
            segments: usage.segments + 1,
            bytes: usage.bytes.saturating_add(info.spec.size.0),
        })
    }

    /// Users who have most of what their quotas allow, each with that.
    pub(crate) fn near_quota(&self, quotas: Quotas) -> Vec<(u32, Usage)> {
        let owners = self.segments.values().map(|entry| entry.info.owner.0);
        let users: BTreeSet<u32> = owners.filter(|uid| *uid != 0).collect();
        let near = |usage: &Usage| {
            usage.segments >= most(u64::from(quotas.segments)) as u32
                || usage.bytes >= most(quotas.bytes.0)
        };
        let usages = users.into_iter().map(|uid| (uid, self.usage(uid)));
        usages.filter(|(_, usage)| near(usage)).collect()
    }

    /// A node has the segment open no more. Returns it if nobody uses it now.
    pub(crate) fn close(&mut self, node: NodeId, call: CallId, id: SegmentId) -> Option<SegmentId> {
        let entry = self.segments.get_mut(&id)?;
        if entry
            .changed
            .get(&node)
            .is_some_and(|changed| *changed > call)
        {
            return None;
        }
        entry.changed.insert(node, call);
        entry.info.attached.remove(node);
        self.touched.insert(id);
        self.free_if_unused(id)
    }

    /// Removes a name. Returns the segment if nobody uses it now.
    pub(crate) fn remove(
        &mut self,
        name: &str,
        credentials: &Credentials,
    ) -> Result<Option<SegmentId>, Refusal> {
        let id = *self.names.get(name).ok_or(Refusal::NotFound)?;
        let entry = self
            .segments
            .get_mut(&id)
            .expect("a name leads to a segment");
        if credentials.uid != 0 && credentials.uid != entry.info.owner.0 {
            return Err(Refusal::Permission);
        }
        entry.info.removed = true;
        self.names.remove(name);
        self.touched.insert(id);
        Ok(self.free_if_unused(id))
    }

    /// Gives a segment whose name was removed a name again. If another segment has it, that one
    /// loses it if `replace`. Returns that segment if nobody uses it now.
    pub(crate) fn name(
        &mut self,
        id: SegmentId,
        name: &str,
        replace: bool,
        credentials: &Credentials,
    ) -> Result<Option<SegmentId>, Refusal> {
        check_name(name)?;
        let entry = self.segments.get(&id).ok_or(Refusal::NotFound)?;
        if credentials.uid != 0 && credentials.uid != entry.info.owner.0 {
            return Err(Refusal::Permission);
        }
        if self.names.get(name) == Some(&id) {
            return Ok(None);
        }
        if !entry.info.removed {
            let why = format!("the segment has a name already, {}", entry.info.name);
            return Err(Refusal::Invalid(why));
        }
        let taken = self.names.contains_key(name);
        if taken && !replace {
            return Err(Refusal::Exists);
        }
        let unused = match taken {
            true => self.remove(name, credentials)?,
            false => None,
        };
        let entry = self.segments.get_mut(&id).expect("it was there just now");
        entry.info.removed = false;
        name.clone_into(&mut entry.info.name);
        self.names.insert(name.to_owned(), id);
        self.touched.insert(id);
        Ok(unused)
    }

    /// A node is gone, with its attachments. Returns segments nobody uses now.
    pub(crate) fn member_gone(&mut self, node: NodeId) -> Vec<SegmentId> {
        for (id, entry) in &mut self.segments {
            if entry.info.attached.contains(node) {
                entry.info.attached.remove(node);
                self.touched.insert(*id);
            }
        }
        let all: Vec<_> = self.segments.keys().copied().collect();
        all.into_iter()
            .filter_map(|id| self.free_if_unused(id))
            .collect()
    }

    /// Frees a segment without name and attachments. Returns it if that is so.
    fn free_if_unused(&mut self, id: SegmentId) -> Option<SegmentId> {
        let info = &self.segments.get(&id)?.info;
        if !info.removed || !info.attached.is_empty() {
            return None;
        }
        self.segments.remove(&id);
        Some(id)
    }

    /// Declares a range in which nodes accumulate. Returns all of the segment.
    pub(crate) fn declare(
        &mut self,
        id: SegmentId,
        reduction: Reduction,
    ) -> Result<Vec<Reduction>, Refusal> {
        let entry = self.segments.get_mut(&id).ok_or(Refusal::NotFound)?;
        let no = |why: String| Err(Refusal::Invalid(why));
        let spec = &entry.info.spec;
        policies::Policy::open(id, 0, spec)?.declare(&[reduction])?;
        reduction.check(spec.size.0).map_err(Refusal::Invalid)?;
        if entry.reductions.contains(&reduction) {
            return Ok(entry.reductions.clone());
        }
        let mut others = entry.reductions.iter();
        if let Some(other) = others.find(|other| other.overlaps(&reduction)) {
            return no(format!(
                "{} bytes from {} are declared already, and have a byte in common with these",
                other.length, other.offset
            ));
        }
        if entry.reductions.len() >= Reduction::LIMIT {
            let limit = Reduction::LIMIT;
            return no(format!(
                "a segment has at most {limit} declared ranges; put what belongs together side by side"
            ));
        }
        entry.reductions.push(reduction);
        self.touched.insert(id);
        Ok(entry.reductions.clone())
    }

    /// Takes out the decisions of the present input.
    pub(crate) fn decisions(&mut self) -> Vec<Decision> {
        let touched = core::mem::take(&mut self.touched);
        let serial = (!touched.is_empty()).then_some(Decision::Serial(self.serial));
        let decisions = touched.into_iter().map(|id| match self.segments.get(&id) {
            Some(entry) => entry.decision(),
            None => Decision::Gone(id),
        });
        serial.into_iter().chain(decisions).collect()
    }

    /// Everything, for a copy.
    pub(crate) fn copy(&self) -> Vec<Decision> {
        let serial = core::iter::once(Decision::Serial(self.serial));
        serial
            .chain(self.segments.values().map(Entry::decision))
            .collect()
    }

    /// The segments with declared ranges, each with these.
    pub(crate) fn declared(&self) -> impl Iterator<Item = (SegmentId, Vec<Reduction>)> {
        let segments = self.segments.iter();
        let declared = segments.filter(|(_, entry)| !entry.reductions.is_empty());
        declared.map(|(id, entry)| (*id, entry.reductions.clone()))
    }

    /// In a copy: the number of the newest segment.
    pub(crate) fn restore_serial(&mut self, serial: u64) {
        self.serial = self.serial.max(serial);
    }

    /// In a copy: a segment is like this now.
    pub(crate) fn restore(
        &mut self,
        info: SegmentInfo,
        changed: Vec<(NodeId, CallId)>,
        reductions: Vec<Reduction>,
    ) {
        let id = info.id;
        self.drop_name(id);
        if !info.removed {
            self.names.insert(info.name.clone(), id);
        }
        let changed = changed.into_iter().collect();
        let entry = Entry {
            info,
            changed,
            reductions,
        };
        self.segments.insert(id, entry);
    }

    /// In a copy: a segment has ended.
    pub(crate) fn drop_segment(&mut self, id: SegmentId) {
        self.drop_name(id);
        self.segments.remove(&id);
    }

    fn drop_name(&mut self, id: SegmentId) {
        let name = self.segments.get(&id).map(|entry| &entry.info.name);
        if let Some(name) = name
            && self.names.get(name) == Some(&id)
        {
            self.names.remove(name);
        }
    }

    pub(crate) fn get(&self, id: SegmentId) -> Option<&SegmentInfo> {
        self.segments.get(&id).map(|entry| &entry.info)
    }

    pub(crate) fn stat(&self, name: &str) -> Result<SegmentInfo, Refusal> {
        let id = self.names.get(name).ok_or(Refusal::NotFound)?;
        Ok(self.segments[id].info.clone())
    }

    /// Up to `limit` segments with names after `after`.
    pub(crate) fn list(&self, after: &str, limit: usize) -> Vec<SegmentInfo> {
        use core::ops::Bound::{Excluded, Unbounded};
        let range = self.names.range::<str, _>((Excluded(after), Unbounded));
        range
            .take(limit)
            .map(|(_, id)| self.segments[id].info.clone())
            .collect()
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    let good = (1..=255).contains(&name.len()) && !name.contains(['/', '\0']);
    if good { Ok(()) } else { Err(Refusal::BadName) }
}

fn check_spec(spec: &SegmentSpec) -> Result<(), Refusal> {
    let pages = spec.size.pages().filter(|_| spec.size != ByteLen(0));
    let pages = pages.ok_or(Refusal::BadSize)?;
    if spec.mode > 0o777 {
        let why = format!(
            "mode {:o}: a segment has permission bits only, up to 777",
            spec.mode
        );
        return Err(Refusal::Invalid(why));
    }
    policies::Policy::open(SegmentId::default(), pages.0, spec).map(drop)
}

/// Owner, group, mode: as for a file. The superuser may everything.
pub(crate) fn allowed(info: &SegmentInfo, who: &Credentials, write: bool) -> bool {
    if who.uid == 0 {
        return true;
    }
    let (owner, group) = info.owner;
    let shift = if who.uid == owner {
        6
    } else if who.gid == group || who.groups.contains(&group) {
        3
    } else {
        0
    };
    let bits = (info.spec.mode >> shift) & 7;
    let needed = if write { 6 } else { 4 };
    bits & needed == needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_wire::peer::{Manager, Policy, Window};

    fn user(uid: u32) -> Credentials {
        Credentials {
            uid,
            gid: uid,
            groups: vec![],
        }
    }

    fn opening<'a>(
        name: &'a str,
        create: Option<&'a SegmentSpec>,
        who: &'a Credentials,
    ) -> Opening<'a> {
        Opening {
            node: NodeId(2),
            call: CallId(1),
            name,
            create,
            exclusive: false,
            write: true,
            credentials: who,
            quotas: Quotas {
                segments: 3,
                bytes: ByteLen(1 << 20),
            },
        }
    }

    fn spec(mode: u16) -> SegmentSpec {
        SegmentSpec {
            size: ByteLen(100),
            mode,
            policy: Policy::default(),
            replicas: 0,
        }
    }

    #[test]
    fn owner_group_and_mode_decide() {
        let mut directory = Directory::default();
        let (owner, other) = (user(10), user(11));
        let spec = spec(0o640);
        directory.open(&opening("a", Some(&spec), &owner)).unwrap();
        assert_eq!(
            directory.open(&opening("a", None, &other)),
            Err(Refusal::Permission)
        );
        let group = Credentials {
            uid: 12,
            gid: 1,
            groups: vec![10],
        };
        assert_eq!(
            directory.open(&opening("a", None, &group)),
            Err(Refusal::Permission)
        );
        let reading = Opening {
            write: false,
            ..opening("a", None, &group)
        };
        assert!(directory.open(&reading).is_ok());
        assert!(directory.open(&opening("a", None, &user(0))).is_ok());
    }

    #[test]
    fn a_removed_segment_lives_until_the_last_node_closes_it() {
        let mut directory = Directory::default();
        let who = user(0);
        let spec = spec(0o600);
        let info = directory.open(&opening("a", Some(&spec), &who)).unwrap();
        assert_eq!(directory.remove("a", &who), Ok(None));
        assert_eq!(directory.stat("a"), Err(Refusal::NotFound));
        assert_eq!(
            directory.close(NodeId(2), CallId(5), info.id),
            Some(info.id)
        );
    }

    #[test]
    fn a_copy_made_of_decisions_is_the_directory() {
        let mut directory = Directory::default();
        let mut copy = Directory::default();
        let who = user(0);
        let spec = spec(0o600);
        let apply = |copy: &mut Directory, decisions: Vec<Decision>| {
            for decision in decisions {
                match decision {
                    Decision::Serial(serial) => copy.restore_serial(serial),
                    Decision::Segment {
                        info,
                        changed,
                        reductions,
                    } => copy.restore(info, changed, reductions),
                    Decision::Gone(id) => copy.drop_segment(id),
                    other => panic!("{other:?}"),
                }
            }
        };
        let info = directory.open(&opening("a", Some(&spec), &who)).unwrap();
        directory.open(&opening("b", Some(&spec), &who)).unwrap();
        apply(&mut copy, directory.decisions());
        assert_eq!(copy, directory);
        directory.remove("a", &who).unwrap();
        directory.open(&opening("a", Some(&spec), &who)).unwrap();
        apply(&mut copy, directory.decisions());
        assert_eq!(copy, directory, "a name that was removed is given again");
        directory.name(info.id, "b", true, &who).unwrap();
        apply(&mut copy, directory.decisions());
        assert_eq!(copy, directory, "a segment has taken the name of another");
        directory.remove("b", &who).unwrap();
        apply(&mut copy, directory.decisions());
        directory.close(NodeId(2), CallId(5), info.id);
        apply(&mut copy, directory.decisions());
        assert_eq!(copy, directory, "a segment has ended");
        directory.member_gone(NodeId(2));
        apply(&mut copy, directory.decisions());
        assert_eq!(copy, directory);
        let mut late = Directory::default();
        apply(&mut late, directory.copy());
        assert_eq!(late, directory);
        assert_eq!(directory.decisions(), []);
    }

    #[test]
    fn a_close_that_was_overtaken_by_a_newer_open_does_nothing() {
        let mut directory = Directory::default();
        let who = user(0);
        let spec = spec(0o600);
        let info = directory.open(&opening("a", Some(&spec), &who)).unwrap();
        directory
            .open(&Opening {
                call: CallId(9),
                ..opening("a", None, &who)
            })
            .unwrap();
        directory.remove("a", &who).unwrap();
        assert_eq!(directory.close(NodeId(2), CallId(5), info.id), None);
        assert_eq!(
            directory.close(NodeId(2), CallId(10), info.id),
            Some(info.id)
        );
    }

    #[test]
    fn hostile_declarations_are_refused_with_the_reason() {
        use pagemesh_wire::peer::{Kind, Merge, Spread};
        let mut directory = Directory::default();
        let who = user(0);
        let spread = Spread::Lazy;
        let release = SegmentSpec {
            policy: Policy::Release { spread },
            size: ByteLen(4096),
            ..spec(0o600)
        };
        let plain = directory.open(&opening("a", Some(&spec(0o600)), &who));
        let summed = directory.open(&opening("b", Some(&release), &who));
        let (plain, summed) = (plain.unwrap().id, summed.unwrap().id);
        let range = |offset, length, merge, kind| Reduction {
            offset,
            length,
            merge,
            kind,
        };
        let good = range(8, 8, Merge::Sum, Kind::U64);
        let mut why = |id, range| match directory.declare(id, range) {
            Err(Refusal::Invalid(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(why(plain, good).contains("atomic operations"));
        assert!(why(summed, range(4090, 16, Merge::Sum, Kind::U8)).contains("beyond"));
        assert!(why(summed, range(4, 8, Merge::Sum, Kind::U64)).contains("multiple of 8"));
        assert!(why(summed, range(0, 8, Merge::Or, Kind::F64)).contains("integers"));
        let nobody = SegmentId::new(NodeId(9), 9);
        assert_eq!(directory.declare(nobody, good), Err(Refusal::NotFound));
        assert_eq!(directory.declare(summed, good), Ok(vec![good]));
        assert_eq!(directory.declare(summed, good), Ok(vec![good]), "once");
        let mut why = |range| directory.declare(summed, range).unwrap_err().to_string();
        assert!(why(range(0, 16, Merge::Max, Kind::U8)).contains("in common"));
        for number in 1..Reduction::LIMIT as u64 {
            let next = range(8 + 8 * number, 8, Merge::Min, Kind::I64);
            directory.declare(summed, next).unwrap();
        }
        let mut why = |range| directory.declare(summed, range).unwrap_err().to_string();
        assert!(why(range(4088, 8, Merge::Max, Kind::U8)).contains("at most 64"));
    }

    #[test]
    fn a_user_has_no_more_than_its_quotas_and_root_has_none() {
        let mut directory = Directory::default();
        let (one, other, root) = (user(10), user(11), user(0));
        let mut open = |name, size, who| {
            let size = ByteLen(size);
            let spec = SegmentSpec {
                size,
                ..spec(0o600)
            };
            let opened = directory.open(&opening(name, Some(&spec), who));
            opened.map(drop).map_err(|why| why.to_string())
        };
        let full = open("a", (1 << 20) + 1, &one).unwrap_err();
        assert!(full.contains("quota of 1048576 bytes"), "{full}");
        open("a", (1 << 20) - 1, &one).unwrap();
        assert!(open("b", 2, &one).unwrap_err().contains("--quota"));
        for name in ["c", "d", "e"] {
            open(name, 1, &other).unwrap();
        }
        let full = open("f", 1, &other).unwrap_err();
        assert!(full.contains("user 11 has 3 segments"), "{full}");
        open("c", 1, &other).expect("it exists");
        for name in ["g", "h", "i", "j"] {
            open(name, 1 << 20, &root).unwrap();
        }
        let quotas = opening("", None, &one).quotas;
        let near = directory.near_quota(quotas);
        let (segments, bytes) = (3, 3);
        assert_eq!(near[1..], [(11, Usage { segments, bytes })]);
        assert_eq!(near[0].0, 10);
        directory.remove("c", &other).unwrap();
        let id = *directory.names.get("d").unwrap();
        directory.remove("d", &other).unwrap();
        assert_eq!(directory.usage(11).segments, 3, "open still");
        directory.close(NodeId(2), CallId(9), id);
        assert_eq!(directory.usage(11).segments, 2);
    }

    #[test]
    fn bad_names_and_sizes_are_refused() {
        let mut directory = Directory::default();
        let who = user(0);
        let good = spec(0o600);
        for name in ["", "a/b", "a\0", &"x".repeat(256)] {
            let result = directory.open(&opening(name, Some(&good), &who));
            assert_eq!(result, Err(Refusal::BadName), "{name:?}");
        }
        for size in [0, u64::MAX] {
            let bad = SegmentSpec {
                size: ByteLen(size),
                ..good.clone()
            };
            assert_eq!(
                directory.open(&opening("a", Some(&bad), &who)),
                Err(Refusal::BadSize)
            );
        }
        assert_eq!(
            directory.open(&opening("a", None, &who)),
            Err(Refusal::NotFound)
        );
    }

    #[test]
    fn bad_modes_and_windows_are_refused_with_the_limit() {
        let mut directory = Directory::default();
        let who = user(0);
        let mut why = |bad: SegmentSpec| match directory.open(&opening("a", Some(&bad), &who)) {
            Err(Refusal::Invalid(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(why(spec(0o1000)).contains("777"));
        let policy = Policy::Sequential {
            manager: Manager::default(),
            window: Window::Nanos(10_000_000_001),
        };
        let slow = SegmentSpec {
            policy,
            ..spec(0o600)
        };
        assert!(why(slow).contains("10s"));
    }
}
