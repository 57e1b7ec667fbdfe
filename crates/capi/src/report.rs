//! Reports about segments, nodes, counters and time stamps.

use std::ffi::{c_char, c_int, c_uint};

use pagemesh::{
    Health, Manager, Member, Mesh, NodeId, Policy, SegmentInfo, Stamp, StampKind, Window,
};

use crate::error::{Failure, call};
use crate::handle::{array, borrow, fill, put, text};

/// `pagemesh_stat_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CStat {
    pub id: u64,
    pub size: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub home: u32,
    pub attached: u32,
    pub removed: u32,
    pub policy: u32,
    pub manager: u32,
    pub window_ns: i64,
    pub replicas: u64,
    pub name: [c_char; 256],
}

/// `pagemesh_member_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CMember {
    pub node: u32,
    pub health: u32,
    pub name: [c_char; 256],
    pub address: [c_char; 64],
}

/// `pagemesh_counter_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CCounter {
    pub name: [c_char; 64],
    pub value: u64,
}

/// `pagemesh_timestamp_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CStamp {
    pub number: u64,
    pub nanos: u64,
    pub tag: u64,
    pub what: u32,
    pub unused: u32,
}

impl From<&SegmentInfo> for CStat {
    fn from(info: &SegmentInfo) -> Self {
        let policy = info.spec.policy;
        let (manager, window) = policy.sequential().unwrap_or_default();
        Self {
            id: info.id.0,
            size: info.spec.size.0,
            mode: u32::from(info.spec.mode),
            uid: info.owner.0,
            gid: info.owner.1,
            home: u32::from(info.id.home().0),
            attached: u32::try_from(info.attached.len()).unwrap_or(u32::MAX),
            removed: u32::from(info.removed),
            policy: match policy {
                Policy::Sequential { .. } => 0,
                Policy::Release { spread } => 1 + spread as u32,
                Policy::Views { .. } => 4,
                Policy::Private { backing, .. } => 5 + backing as u32,
                Policy::Files => 7,
                Policy::Numbered(number) => 256 + u32::from(number),
            },
            manager: match manager {
                Manager::Dynamic => 0,
                Manager::Fixed => 1,
            },
            window_ns: match window {
                Window::Auto => -1,
                Window::Nanos(nanos) => i64::try_from(nanos).unwrap_or(i64::MAX),
            },
            replicas: u64::from(info.spec.replicas),
            name: array(&info.name),
        }
    }
}

impl From<&Member> for CMember {
    fn from(member: &Member) -> Self {
        Self {
            node: u32::from(member.id.0),
            health: match member.health {
                Health::Alive => 0,
                Health::Left => 1,
                Health::Dead => 2,
                Health::Revoked => 3,
                Health::Forgotten => 4,
            },
            name: array(&member.name),
            address: array(&member.address.to_string()),
        }
    }
}

impl From<&Stamp> for CStamp {
    fn from(stamp: &Stamp) -> Self {
        Self {
            number: stamp.number,
            nanos: stamp.nanos,
            tag: stamp.tag,
            what: match stamp.what {
                StampKind::Program => 0,
                StampKind::Fault => 1,
                StampKind::Asked => 2,
                StampKind::Arrived => 3,
                StampKind::Mapped => 4,
                StampKind::Given => 5,
                StampKind::Invalidated => 6,
            },
            unused: 0,
        }
    }
}

/// Describes one segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_stat(
    mesh: *mut Mesh,
    name: *const c_char,
    stat: *mut CStat,
) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle and a string.
        let (mesh, name) = unsafe { (borrow(mesh)?, text(name)?) };
        let info = mesh.stat(name)?;
        // SAFETY: the header asks for a pointer to write to.
        unsafe { put(stat, CStat::from(&info))? };
        Ok(0)
    })
}

/// Lists all segments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_list(
    mesh: *mut Mesh,
    entries: *mut CStat,
    capacity: usize,
) -> isize {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let all = unsafe { borrow(mesh)? }.list()?;
        // SAFETY: the header asks for an array of this capacity.
        unsafe { fill(entries, capacity, all.iter().map(CStat::from)) }
    })
}

/// Lists all nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_members(
    mesh: *mut Mesh,
    entries: *mut CMember,
    capacity: usize,
) -> isize {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let all = unsafe { borrow(mesh)? }.members()?.members;
        // SAFETY: the header asks for an array of this capacity.
        unsafe { fill(entries, capacity, all.iter().map(CMember::from)) }
    })
}

/// Measures the round trip to a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_probe(mesh: *mut Mesh, node: c_uint, nanos: *mut u64) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let mesh = unsafe { borrow(mesh)? };
        let node = u16::try_from(node).ok().map(NodeId);
        let node = node.filter(|node| node.is_valid());
        let node = node.ok_or_else(|| Failure::invalid("no node has that number"))?;
        let took = mesh.probe(node)?;
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the header asks for a pointer to write to.
        unsafe { put(nanos, took)? };
        Ok(0)
    })
}

/// Lists all counters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_counters(
    mesh: *mut Mesh,
    entries: *mut CCounter,
    capacity: usize,
) -> isize {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let all = unsafe { borrow(mesh)? }.counters()?;
        let entry = |(name, value): &(String, u64)| CCounter {
            name: array(name),
            value: *value,
        };
        // SAFETY: the header asks for an array of this capacity.
        unsafe { fill(entries, capacity, all.iter().map(entry)) }
    })
}

/// Adds a mark to the time stamps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_stamp(mesh: *mut Mesh, tag: u64) -> c_int {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        unsafe { borrow(mesh)? }.stamp(tag)?;
        Ok(0)
    })
}

/// Reads time stamps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagemesh_stamps(
    mesh: *mut Mesh,
    from: u64,
    entries: *mut CStamp,
    capacity: usize,
) -> isize {
    call(-1, || {
        // SAFETY: the header asks for a handle.
        let mut some = unsafe { borrow(mesh)? }.stamps(from)?;
        // Unlike a list, the stream is read in parts: the rest is returned by the next call.
        some.truncate(capacity);
        // SAFETY: the header asks for an array of this capacity.
        unsafe { fill(entries, capacity, some.iter().map(CStamp::from)) }
    })
}
