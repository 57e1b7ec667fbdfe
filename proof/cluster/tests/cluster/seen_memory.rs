//! Segments of policy `sequential` with a replica: what another node has seen outlives the node that
//! stored it, and so does what that had stored before.

use crate::counting::a_count_goes_on_from_where_it_was_seen;
use crate::replicas::is_kept;
use crate::support::Cluster;
use pagemesh::{Options, PAGE_SIZE};

fn with_replica() -> Options {
    Options {
        replicas: 1,
        ..Options::default()
    }
}

/// A node stores to two pages, and another one looks at the second. Then the first one dies, which was
/// the home of the segment, too; then the node that had the replicas.
#[test]
fn memory_that_others_have_seen_outlives_one_node_after_the_other() {
    let Some(cluster) = Cluster::start(4) else {
        return;
    };
    cluster.make_on(1, "seen", 4, with_replica());
    let mut writer = cluster.scripted_node(1, "seen");
    let mut reader = cluster.scripted_node(3, "seen");
    writer.ask("store 0 7");
    writer.ask(&format!("store {PAGE_SIZE} 8"));
    assert_eq!(reader.ask(&format!("load {PAGE_SIZE}")), "8");
    assert_eq!(writer.ask("lock 1"), "locked");
    writer.ask(&format!("store {} 9", 2 * PAGE_SIZE));
    assert_eq!(writer.ask("unlock 1"), "done");
    assert_eq!(reader.ask("lock 1"), "locked");
    assert_eq!(reader.ask("unlock 1"), "done");
    cluster.kill(1).unwrap();
    let pages = [(0, "7"), (1, "8"), (2, "9"), (3, "0")];
    for (page, value) in pages {
        assert_eq!(reader.ask(&format!("load {}", page * PAGE_SIZE)), value);
    }
    for node in [0, 2, 3] {
        is_kept(&cluster, node, "seen");
    }
    cluster.kill(2).unwrap();
    let mut late = cluster.scripted_node(0, "seen");
    for program in [&mut late, &mut reader] {
        for (page, value) in pages {
            assert_eq!(program.ask(&format!("load {}", page * PAGE_SIZE)), value);
        }
    }
    late.ask("store 0 70");
    assert_eq!(reader.ask("load 0"), "70");
}

#[test]
fn a_count_in_one_memory_goes_on_from_where_it_was_seen() {
    a_count_goes_on_from_where_it_was_seen(with_replica());
}
