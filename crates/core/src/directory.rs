//! The directory: names of segments, kept by the coordinator (F1, F12).
//!
//! A segment lives until its name is removed *and* no node has it open. The exit of a process never
//! removes a segment.

mod calls;

pub(crate) use calls::{forget_everywhere, no_names};

use crate::config::Quotas;
use crate::policies;
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{Credentials, Decision, Reduction, Refusal, SegmentInfo, SegmentSpec};
use pagemesh_wire::{ByteLen, CallId, NodeId, NodeSet, SegmentId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// All segments of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Directory {
    names: SortedMap<String, SegmentId>,
    segments: SortedMap<SegmentId, Entry>,
    serial: u64,
    /// Segments that were changed by the present input.
    touched: BTreeSet<SegmentId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Entry {
    info: SegmentInfo,
    /// The newest call by which each node changed its attachment: calls of one node may overtake
    /// each other.
    changed: SortedMap<NodeId, CallId>,
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
                changed: SortedMap::new(),
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

    /// Forgets the calls of lives that are over: none of them comes any more.
    pub(crate) fn forget_names(&mut self, over: &NodeSet) {
        for entry in self.segments.values_mut() {
            entry.changed.retain(|node, _| !over.contains(*node));
        }
    }

    /// In a copy that is older than the members say: this life is over, and everybody has forgotten
    /// it. So the segments of which it was the home are gone, too.
    pub(crate) fn life_forgotten(&mut self, node: NodeId) {
        let home = |id: &SegmentId| id.home() == node;
        let gone: Vec<_> = self.segments.keys().copied().filter(home).collect();
        for id in gone {
            self.drop_segment(id);
        }
        for entry in self.segments.values_mut() {
            entry.changed.remove(&node);
            entry.info.attached.remove(node);
        }
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
mod tests;
