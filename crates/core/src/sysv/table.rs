//! Objects of one family by number, slot and key, and their permissions.

use super::Asker;
use pagemesh_sorted::{LongMap, SortedMap};
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::Credentials;
use pagemesh_wire::sysv::keys::{Bucket, Buckets};
use pagemesh_wire::sysv::{
    Change, Errno, IPC_CREAT, IPC_EXCL, IPC_PRIVATE, Id, OBJECTS, Perm, Pick,
};
use serde::{Deserialize, Serialize};

/// Bits of a mode for reading.
pub(super) const READ: i32 = 0o444;
/// Bits of a mode for writing.
pub(super) const WRITE: i32 = 0o222;
/// Bits of a mode for execution.
pub(super) const EXECUTE: i32 = 0o111;

/// All objects of one family whose home is this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Table<T> {
    slots: LongMap<u16, Object<T>>,
    /// Objects that are made, but not published until the register of keys has agreed.
    offered: LongMap<u16, Object<T>>,
    keys: SortedMap<i32, u16>,
    /// Number of objects made so far; it is part of their numbers, so that numbers are reused late.
    made: u16,
    /// No slot before this one is free.
    full: u16,
    /// The parts of all objects, including offered ones, which count towards limits.
    parts: u64,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Object<T> {
    pub(super) id: Id,
    pub(super) perm: Perm,
    pub(super) body: T,
}

/// Fields that objects of all families have.
pub(super) trait Body {
    /// When the object was last changed, in seconds since 1970.
    fn ctime(&mut self) -> &mut u64;
    /// The number of the object's parts, which never changes: pages, semaphores.
    fn parts(&self) -> u64;
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            slots: LongMap::new(),
            offered: LongMap::new(),
            keys: SortedMap::new(),
            made: 0,
            full: 0,
            parts: 0,
        }
    }
}

impl<T: Body> Table<T> {
    /// The object of this key, if the flags and its mode allow; none if no object here has the key.
    /// `fits` checks that the object is as large as the caller wants.
    pub(super) fn find(
        &self,
        key: i32,
        flags: i32,
        who: &Credentials,
        fits: impl FnOnce(&T) -> bool,
    ) -> Result<Option<Id>, Errno> {
        let slot = self.keys.get(&key).filter(|_| key != IPC_PRIVATE);
        let Some(object) = slot.map(|slot| &self.slots[slot]) else {
            return Ok(None);
        };
        if flags & IPC_CREAT != 0 && flags & IPC_EXCL != 0 {
            return Err(Errno::EEXIST);
        }
        if !fits(&object.body) {
            return Err(Errno::EINVAL);
        }
        check(&object.perm, who, flags)?;
        Ok(Some(object.id))
    }

    /// Makes a new object of this home, which is not published until `show`.
    pub(super) fn offer(
        &mut self,
        home: NodeId,
        perm: Perm,
        limit: u32,
        body: impl FnOnce(Id) -> T,
    ) -> Result<Id, Errno> {
        // An identifier has no room for a far number.
        let full = self.slots.len() + self.offered.len() >= limit.min(OBJECTS) as usize;
        if full || !home.is_near() {
            return Err(Errno::ENOSPC);
        }
        let free = |slot: &u16| !self.slots.contains_key(slot) && !self.offered.contains_key(slot);
        let slot = (self.full..=u16::MAX).find(free).ok_or(Errno::ENOSPC)?;
        self.full = slot.saturating_add(1);
        self.made = self.made.wrapping_add(1);
        let id = Id::new(home, slot, self.made);
        let body = body(id);
        self.parts += body.parts();
        self.offered.insert(slot, Object { id, perm, body });
        Ok(id)
    }

    pub(super) fn get(&self, id: Id) -> Result<&Object<T>, Errno> {
        let object = self.slots.get(&id.slot());
        object.filter(|object| object.id == id).ok_or(Errno::EINVAL)
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Result<&mut Object<T>, Errno> {
        let object = self.slots.get_mut(&id.slot());
        object.filter(|object| object.id == id).ok_or(Errno::EINVAL)
    }

    /// The object, if its mode permits this use.
    pub(super) fn permitted(
        &mut self,
        id: Id,
        who: &Credentials,
        wanted: i32,
    ) -> Result<&mut Object<T>, Errno> {
        let object = self.get_mut(id)?;
        check(&object.perm, who, wanted)?;
        Ok(object)
    }

    /// The object, if the caller owns it.
    pub(super) fn owned(&mut self, id: Id, who: &Credentials) -> Result<&mut Object<T>, Errno> {
        let object = self.get_mut(id)?;
        let owner = [object.perm.uid, object.perm.cuid].contains(&who.uid);
        if owner || who.uid == 0 {
            Ok(object)
        } else {
            Err(Errno::EPERM)
        }
    }

    /// The object that a caller wants to inspect.
    pub(super) fn pick(&self, pick: Pick, who: &Credentials) -> Result<&Object<T>, Errno> {
        let at = |index: i32| {
            let slot = Id::slot_at(index).ok_or(Errno::EINVAL)?;
            let object = self.slots.get(&slot);
            object
                .filter(|object| object.id.index() == index)
                .ok_or(Errno::EINVAL)
        };
        let object = match pick {
            Pick::Id(id) => self.get(id)?,
            Pick::Index(index) => at(index)?,
            Pick::IndexAny(index) => return at(index),
        };
        check(&object.perm, who, READ)?;
        Ok(object)
    }

    /// Changes the fields that `IPC_SET` may change, if the caller owns the object.
    pub(super) fn change(
        &mut self,
        id: Id,
        asker: &Asker<'_>,
        change: &Change,
    ) -> Result<&mut Object<T>, Errno> {
        let object = self.owned(id, asker.who)?;
        change_perm(&mut object.perm, change)?;
        *object.body.ctime() = asker.now;
        Ok(object)
    }

    /// Removes the object, if the caller owns it.
    pub(super) fn take(&mut self, id: Id, who: &Credentials) -> Result<T, Errno> {
        self.owned(id, who)?;
        Ok(self.remove(id).expect("found just now").body)
    }

    /// Takes away the object's key, so that no get finds the object.
    pub(super) fn unname(&mut self, id: Id) {
        if let Ok(object) = self.get_mut(id) {
            let key = std::mem::replace(&mut object.perm.key, IPC_PRIVATE);
            if key != IPC_PRIVATE {
                self.keys.remove(&key);
            }
        }
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<Object<T>> {
        self.get(id).ok()?;
        self.unname(id);
        let removed = self.slots.remove(&id.slot());
        self.release(removed)
    }

    /// Frees the slot of a removed object.
    fn release(&mut self, removed: Option<Object<T>>) -> Option<Object<T>> {
        if let Some(object) = &removed {
            self.full = self.full.min(object.id.slot());
            self.parts -= object.body.parts();
        }
        removed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Object<T>> {
        self.slots.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Object<T>> {
        self.slots.values_mut()
    }

    /// The parts of all objects, including offered ones.
    pub(super) fn parts(&self) -> u64 {
        self.parts
    }

    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The index of the highest slot in use, as `SHM_INFO` tells; -1 if there is none.
    pub(super) fn highest(&self) -> i32 {
        let last = self.slots.last_key_value();
        last.map_or(-1, |(_, object)| object.id.index())
    }
}

/// The keys of a table of any family.
pub(super) trait Keyed {
    /// Whether an object here has this key.
    fn has(&self, key: i32) -> bool;
    /// The key of an object; `IPC_PRIVATE` if it has none.
    fn key_of(&self, id: Id) -> i32;
    /// The keys of objects here that fall into these buckets, in order.
    fn keys(&self, buckets: Buckets) -> Vec<(i32, Id)>;
    /// Publishes an offered object.
    fn show(&mut self, id: Id);
    /// Discards an offered object.
    fn discard(&mut self, id: Id);
}

impl<T: Body> Keyed for Table<T> {
    fn has(&self, key: i32) -> bool {
        self.keys.contains_key(&key)
    }

    fn key_of(&self, id: Id) -> i32 {
        self.get(id).map_or(IPC_PRIVATE, |object| object.perm.key)
    }

    fn keys(&self, buckets: Buckets) -> Vec<(i32, Id)> {
        let keys = self.keys.iter();
        let here = keys.filter(|(key, _)| buckets.contains(Bucket::of(**key)));
        here.map(|(key, slot)| (*key, self.slots[slot].id))
            .collect()
    }

    fn show(&mut self, id: Id) {
        let slot = id.slot();
        if let Some(object) = self.offered.remove(&slot) {
            if object.perm.key != IPC_PRIVATE {
                self.keys.insert(object.perm.key, slot);
            }
            self.slots.insert(slot, object);
        }
    }

    fn discard(&mut self, id: Id) {
        let discarded = self.offered.remove(&id.slot());
        self.release(discarded);
    }
}

/// The permissions of a new object, which its creator owns.
pub(super) fn new_perm(key: i32, flags: i32, who: &Credentials) -> Perm {
    Perm {
        key,
        uid: who.uid,
        gid: who.gid,
        cuid: who.uid,
        cgid: who.gid,
        mode: (flags & 0o777) as u16,
    }
}

fn change_perm(perm: &mut Perm, change: &Change) -> Result<(), Errno> {
    if change.uid == u32::MAX || change.gid == u32::MAX {
        return Err(Errno::EINVAL);
    }
    perm.uid = change.uid;
    perm.gid = change.gid;
    perm.mode = perm.mode & !0o777 | change.mode & 0o777;
    Ok(())
}

/// Checks rights as the kernel does: those of the owner or creator, of their groups, or of all
/// others. Bits of any of the three groups in `wanted` count.
pub(super) fn check(perm: &Perm, who: &Credentials, wanted: i32) -> Result<(), Errno> {
    let mut granted = i32::from(perm.mode);
    if who.uid == perm.uid || who.uid == perm.cuid {
        granted >>= 6;
    } else if [perm.gid, perm.cgid]
        .iter()
        .any(|group| belongs(who, *group))
    {
        granted >>= 3;
    }
    let wanted = (wanted >> 6 | wanted >> 3 | wanted) & 7;
    if who.uid == 0 || wanted & !granted == 0 {
        Ok(())
    } else {
        Err(Errno::EACCES)
    }
}

fn belongs(who: &Credentials, group: u32) -> bool {
    who.gid == group || who.groups.contains(&group)
}
