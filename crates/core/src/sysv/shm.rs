//! Shared memory: all state of segments except their pages, which are like those of other segments.

use super::table::{Body, EXECUTE, Keyed, Object, READ, Table, WRITE, new_perm};
use super::{Asker, Count, Unused};
use pagemesh_sorted::SortedMap;
use pagemesh_wire::peer::{Policy, SegmentInfo, SegmentSpec};
use pagemesh_wire::sysv::{self, Change, Errno, Id, Perm, Pick, SHM_DEST, SHM_LOCKED, ShmStat};
use pagemesh_wire::{ByteLen, CallId, NodeId, NodeSet, PAGE_SIZE, SegmentId};
use serde::{Deserialize, Serialize};

/// All segments whose home is this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Shms {
    table: Table<Shm>,
    serial: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Shm {
    segment: SegmentId,
    size: u64,
    atime: u64,
    dtime: u64,
    ctime: u64,
    cpid: i32,
    lpid: i32,
    there: SortedMap<NodeId, There>,
}

/// The attachments on one node. Calls of the node may overtake each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct There {
    /// The number that the node told last, including attachments under way to it.
    count: u32,
    /// The call that told it.
    said: CallId,
    /// Later calls that attached.
    given: Vec<CallId>,
}

/// A request to attach.
pub(super) struct Attaching {
    pub(super) id: Id,
    pub(super) write: bool,
    pub(super) exec: bool,
}

/// News of a node's attachments.
pub(super) struct Told {
    pub(super) node: NodeId,
    pub(super) call: CallId,
    pub(super) id: Id,
    pub(super) count: u32,
    pub(super) pid: i32,
    pub(super) detached: bool,
}

impl Shms {
    /// The segment of this key, if it is here.
    pub(super) fn find(
        &self,
        asker: &Asker<'_>,
        (key, size, flags): (i32, u64, i32),
    ) -> Result<Option<Id>, Errno> {
        let fits = |shm: &Shm| size <= shm.size;
        self.table.find(key, flags, asker.who, fits)
    }

    /// Makes a segment that is not published.
    pub(super) fn offer(
        &mut self,
        asker: &Asker<'_>,
        (key, size, flags): (i32, u64, i32),
    ) -> Result<Id, Errno> {
        let limits = asker.limits;
        let wanted = ByteLen(size)
            .pages()
            .filter(|_| (1..=limits.shmmax).contains(&size));
        let wanted = u64::from(wanted.ok_or(Errno::EINVAL)?.0);
        if self.table.parts().saturating_add(wanted) > limits.shmall {
            return Err(Errno::ENOSPC);
        }
        self.serial += 1;
        let segment = sysv::segment(asker.me, self.serial);
        let shm = |_| Shm {
            segment,
            size,
            atime: 0,
            dtime: 0,
            ctime: asker.now,
            cpid: asker.pid,
            lpid: 0,
            there: SortedMap::new(),
        };
        let perm = new_perm(key, flags, asker.who);
        self.table.offer(asker.me, perm, limits.shmmni, shm)
    }

    pub(super) fn table(&self) -> &dyn Keyed {
        &self.table
    }

    pub(super) fn table_mut(&mut self) -> &mut dyn Keyed {
        &mut self.table
    }

    /// The description of the segment that holds the pages.
    pub(super) fn info(&self, id: Id) -> Option<SegmentInfo> {
        let object = self.table.get(id).ok()?;
        Some(info(id, object.perm, &object.body))
    }

    pub(super) fn attach(
        &mut self,
        asker: &Asker<'_>,
        request: &Attaching,
    ) -> Result<SegmentInfo, Errno> {
        let mut wanted = READ;
        wanted |= if request.write { WRITE } else { 0 };
        wanted |= if request.exec { EXECUTE } else { 0 };
        let object = self.table.permitted(request.id, asker.who, wanted)?;
        let shm = &mut object.body;
        let there = shm.there.entry(asker.caller.node).or_default();
        if asker.caller.call > there.said {
            there.given.push(asker.caller.call);
        }
        shm.atime = asker.now;
        shm.lpid = asker.pid;
        Ok(info(request.id, object.perm, shm))
    }

    /// A node tells how many attachments it has. Returns the segment if it is removed now.
    pub(super) fn told(&mut self, told: &Told, now: u64) -> Option<Unused> {
        let object = self.table.get_mut(told.id).ok()?;
        let shm = &mut object.body;
        let there = shm.there.entry(told.node).or_default();
        if told.call <= there.said {
            return None;
        }
        there.said = told.call;
        there.count = told.count;
        there.given.retain(|given| *given > told.call);
        if told.detached {
            shm.dtime = now;
        } else {
            shm.atime = now;
        }
        if told.pid != 0 {
            shm.lpid = told.pid;
        }
        self.free_if_unused(told.id)
    }

    /// Removes a segment that is marked for removal and has no attachment left.
    fn free_if_unused(&mut self, id: Id) -> Option<Unused> {
        let object = self.table.get(id).ok()?;
        if object.perm.mode & SHM_DEST == 0 || object.body.attachments() > 0 {
            return None;
        }
        let shm = self.table.remove(id)?.body;
        Some(shm.unused())
    }

    pub(super) fn lock(&mut self, asker: &Asker<'_>, id: Id, lock: bool) -> Result<(), Errno> {
        let object = self.table.owned(id, asker.who)?;
        let locked = if lock { SHM_LOCKED } else { 0 };
        object.perm.mode = object.perm.mode & !SHM_LOCKED | locked;
        Ok(())
    }

    pub(super) fn stat(&self, asker: &Asker<'_>, pick: Pick) -> Result<ShmStat, Errno> {
        let object = self.table.pick(pick, asker.who)?;
        let shm = &object.body;
        Ok(ShmStat {
            id: object.id,
            perm: object.perm,
            size: shm.size,
            atime: shm.atime,
            dtime: shm.dtime,
            ctime: shm.ctime,
            cpid: shm.cpid,
            lpid: shm.lpid,
            nattch: shm.attachments(),
            site: asker.me,
        })
    }

    pub(super) fn change(
        &mut self,
        asker: &Asker<'_>,
        id: Id,
        change: &Change,
    ) -> Result<(), Errno> {
        self.table.change(id, asker, change).map(drop)
    }

    /// Marks a segment for removal, so that no get finds it. Returns the segment if it is removed
    /// now.
    pub(super) fn remove(&mut self, asker: &Asker<'_>, id: Id) -> Result<Option<Unused>, Errno> {
        let object = self.table.owned(id, asker.who)?;
        object.perm.mode |= SHM_DEST;
        self.table.unname(id);
        Ok(self.free_if_unused(id))
    }

    /// The highest slot in use, and the number of segments and pages.
    pub(super) fn count(&self) -> Count {
        let pages = pages(self.table.iter());
        (self.table.highest(), self.table.len(), pages, 0)
    }

    /// A node is gone, with its attachments. Returns the segments that are removed now.
    pub(super) fn member_gone(&mut self, node: NodeId) -> Vec<Unused> {
        let mut left = Vec::new();
        for object in self.table.iter_mut() {
            if object.body.there.remove(&node).is_some() {
                left.push(object.id);
            }
        }
        left.into_iter()
            .filter_map(|id| self.free_if_unused(id))
            .collect()
    }

    /// All segments, which are removed when this node leaves.
    pub(super) fn all(&self) -> Vec<Unused> {
        let kept = self.table.iter().map(|object| &object.body);
        kept.map(Shm::unused).collect()
    }
}

impl Body for Shm {
    fn ctime(&mut self) -> &mut u64 {
        &mut self.ctime
    }

    fn parts(&self) -> u64 {
        self.size.div_ceil(PAGE_SIZE as u64)
    }
}

impl Shm {
    fn unused(&self) -> Unused {
        Unused {
            segment: self.segment,
            there: self.there.keys().copied().collect::<NodeSet>(),
        }
    }

    fn attachments(&self) -> u64 {
        let count = |there: &There| u64::from(there.count) + there.given.len() as u64;
        self.there.values().map(count).sum()
    }
}

fn pages<'a>(all: impl Iterator<Item = &'a Object<Shm>>) -> u64 {
    all.map(|object| object.body.parts()).sum()
}

fn info(id: Id, perm: Perm, shm: &Shm) -> SegmentInfo {
    let there = shm.there.keys().copied();
    SegmentInfo {
        id: shm.segment,
        name: sysv::segment_name(id),
        spec: SegmentSpec {
            size: ByteLen(shm.size),
            mode: perm.mode & 0o777,
            policy: Policy::default(),
            replicas: 0,
        },
        owner: (perm.uid, perm.gid),
        removed: perm.mode & SHM_DEST != 0,
        attached: there.collect::<NodeSet>(),
    }
}
