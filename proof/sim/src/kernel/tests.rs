use super::*;
use crate::check::Invariant;
use pagemesh_wire::NodeId;
use pagemesh_wire::lockword::LockWord;

pub(crate) fn key(page: u32) -> PageKey {
    PageKey {
        segment: SegmentId::new(NodeId(1), 1),
        page: PageIndex(page),
    }
}

const M: MappingId = MappingId(1);
const N: MappingId = MappingId(2);
const NOW: Time = Time(100);

fn kernel() -> Kernel {
    let mut kernel = Kernel::default();
    kernel.mapped(M, key(0).segment, ClientId(1));
    kernel.mapped(N, key(0).segment, ClientId(2));
    kernel
}

fn lock() -> SyncKey {
    SyncKey {
        segment: key(0).segment,
        number: 5,
    }
}

fn broken<T: std::fmt::Debug>(check: Check<T>) -> Invariant {
    check.unwrap_err().invariant
}

#[test]
fn rights_are_those_of_the_mapping() {
    let mut kernel = kernel();
    kernel.fill(key(0), [7; WORDS]).unwrap();
    kernel.map(NOW, M, key(0), Rights::Write).unwrap();
    kernel.map(NOW, N, key(0), Rights::Read).unwrap();
    assert!(kernel.store(M, key(0), 3, 9));
    assert!(!kernel.store(N, key(0), 3, 10));
    assert_eq!(kernel.load(N, key(0), 3), Some(9));
    kernel.protect(Mappings::All, key(0));
    assert!(!kernel.store(M, key(0), 3, 11));
    assert_eq!(kernel.rights(key(0)), Rights::Read);
    kernel.evict(NOW, key(0), true).unwrap();
    assert_eq!(kernel.load(M, key(0), 3), None);
    assert_eq!(kernel.contents(key(0), Source::Stash, None).unwrap()[3], 9);
    assert_eq!(kernel.rights(key(0)), Rights::None);
}

#[test]
fn one_mapping_is_protected_while_another_stores() {
    let mut kernel = kernel();
    kernel.fill(key(0), [7; WORDS]).unwrap();
    for mapping in kernel.mappings(Mappings::All, key(0).segment) {
        kernel.map(NOW, mapping, key(0), Rights::Write).unwrap();
    }
    kernel.protect(Mappings::One(M), key(0));
    assert!(!kernel.store(M, key(0), 3, 9));
    assert!(kernel.store(N, key(0), 3, 9));
    assert_eq!(kernel.load(M, key(0), 3), Some(9));
}

#[test]
fn the_law_is_asserted() {
    let mut kernel = kernel();
    assert_eq!(
        broken(kernel.map(NOW, M, key(0), Rights::Read)),
        Invariant::FillBeforeMap
    );
    assert_eq!(
        broken(kernel.evict(NOW, key(0), true)),
        Invariant::StashBeforeSend
    );
    assert_eq!(
        broken(kernel.contents(key(0), Source::Frame, None)),
        Invariant::StashBeforeSend
    );
    assert_eq!(
        broken(kernel.contents(key(0), Source::Payload, None)),
        Invariant::StashBeforeSend
    );
    kernel.fill(key(0), [1; WORDS]).unwrap();
    assert_eq!(
        broken(kernel.map(NOW, MappingId(9), key(0), Rights::Read)),
        Invariant::Law
    );
    kernel.map(NOW, M, key(0), Rights::Read).unwrap();
    assert_eq!(
        broken(kernel.fill(key(0), [2; WORDS])),
        Invariant::FillBeforeMap
    );
    assert_eq!(broken(kernel.forget(key(0).segment)), Invariant::Law);
}

#[test]
fn a_page_is_used_when_its_sleepers_have_run() {
    let mut kernel = kernel();
    kernel.sleep(M, key(0), ThreadId(4));
    kernel.sleep(N, key(0), ThreadId(5));
    kernel.fill(key(0), [0; WORDS]).unwrap();
    kernel.map(NOW, M, key(0), Rights::Read).unwrap();
    assert_eq!(kernel.woken, [ThreadId(4)]);
    assert!(!kernel.used(key(0)));
    assert_eq!(kernel.unused_since(key(0)), Some(NOW));
    kernel.ran(ThreadId(4), key(0));
    assert!(kernel.used(key(0)));
    kernel.evict(NOW, key(0), false).unwrap();
    assert_eq!(kernel.woken, [ThreadId(4), ThreadId(5)]);
}

#[test]
fn a_pinned_page_stays() {
    let mut kernel = kernel();
    kernel.fill(key(0), [0; WORDS]).unwrap();
    kernel.pin(key(0), Time(200));
    assert_eq!(broken(kernel.evict(NOW, key(0), true)), Invariant::Pinned);
    assert_eq!(
        broken(kernel.evict(Time(199), key(0), true)),
        Invariant::Pinned
    );
    kernel.unpin(key(0));
    kernel.evict(NOW, key(0), true).unwrap();
}

#[test]
fn pages_travel_as_whole_pages() {
    let words = [1, 2, 3, u64::MAX, 5, 6, 7, 8];
    let mut datagram = Vec::new();
    append_page(&words, &mut datagram);
    assert_eq!(datagram.len(), PAGE_SIZE);
    let kernel = kernel();
    assert_eq!(
        kernel.contents(key(0), Source::Payload, Some(&datagram)),
        Ok(words)
    );
}

#[test]
fn a_lock_word_is_swapped_lent_and_reclaimed() {
    let mut kernel = kernel();
    assert!(!kernel.try_lock(lock(), ClientId(1)));
    assert_eq!(kernel.reclaim(lock()), Returned::UnderWay);
    kernel.lend(lock(), ClientId(1), false).unwrap();
    assert_eq!(
        broken(kernel.lend(lock(), ClientId(2), false)),
        Invariant::OneToken
    );
    assert_eq!(kernel.release(lock(), ClientId(1)), Ok(false));
    assert_eq!(
        broken(kernel.release(lock(), ClientId(1))),
        Invariant::OneToken
    );
    assert!(kernel.try_lock(lock(), ClientId(2)));
    assert_eq!(kernel.reclaim(lock()), Returned::Marked);
    assert_eq!(
        broken(kernel.release(lock(), ClientId(1))),
        Invariant::OneToken
    );
    assert_eq!(kernel.release(lock(), ClientId(2)), Ok(true));
    assert_eq!(kernel.lock_word(lock()), LockWord::Absent);
    kernel.lend(lock(), ClientId(1), false).unwrap();
    kernel.release(lock(), ClientId(1)).unwrap();
    assert_eq!(kernel.reclaim(lock()), Returned::Back);
    kernel.lend(lock(), ClientId(1), true).unwrap();
    assert_eq!(kernel.recover_locks(ClientId(2)), []);
    assert_eq!(kernel.recover_locks(ClientId(1)), [lock()]);
}

#[test]
fn a_dead_client_has_no_rights() {
    let mut kernel = kernel();
    kernel.fill(key(0), [0; WORDS]).unwrap();
    kernel.map(NOW, M, key(0), Rights::Write).unwrap();
    kernel.map(NOW, N, key(0), Rights::Read).unwrap();
    kernel.client_gone(ClientId(1));
    assert_eq!(kernel.rights(key(0)), Rights::Read);
    assert_eq!(
        broken(kernel.map(NOW, M, key(0), Rights::Read)),
        Invariant::Law
    );
}
