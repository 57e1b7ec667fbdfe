//! Holds of a whole segment, for a snapshot: loads go on, on every node, whoever else waits.

use crate::common::Cluster;
use core::time::Duration;
use pagemesh_core::{Reply, Request};
use pagemesh_wire::NodeId;
use pagemesh_wire::peer::{Access, Manager, Window};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);

const MANAGERS: [Manager; 2] = [Manager::Dynamic, Manager::Fixed];

/// A cluster of three, with a hold on its first node, the home. With `written`, pages that the second
/// node has stored to, else pages that no node has touched.
fn held(manager: Manager, written: bool) -> Cluster {
    let mut cluster = Cluster::new(3);
    let segment = cluster.segment(manager, Window::Nanos(0)).id;
    if written {
        cluster.touch(N2, 0, Access::Write);
    }
    let hold = cluster.ask(N1, Request::Hold { segment });
    assert_eq!(cluster.reply(hold), Some(&Reply::Done));
    cluster
}

#[test]
fn a_load_under_a_hold_waits_for_no_writer() {
    for (manager, written) in MANAGERS.into_iter().flat_map(|m| [(m, false), (m, true)]) {
        let mut cluster = held(manager, written);
        cluster.touch(N3, 0, Access::Write);
        cluster.forget();
        cluster.touch(N1, 0, Access::Read);
        cluster.pass(Duration::from_millis(50));
        assert!(cluster.mapped(N1), "{manager:?}, written: {written}");
    }
}
