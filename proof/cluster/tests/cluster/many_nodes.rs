//! As many nodes as the documentation promises, each with real memory: `make test-many`.

use crate::support::{Cluster, eventually, load, store};
use pagemesh::{Health, Options};

/// The number of nodes that `pagemesh sandbox` is documented for.
const MANY: usize = 64;

/// Not part of `make test`: 64 daemons take 10 s and more on two processors.
#[test]
#[ignore = "64 daemons: make test-many"]
fn sixty_four_nodes_share_memory_and_lose_none() {
    let Some(cluster) = Cluster::start(MANY) else {
        return;
    };
    eventually("all are members", || {
        let members = cluster.mesh(MANY - 1).members().unwrap().members;
        members
            .iter()
            .filter(|one| one.health == Health::Alive)
            .count()
            == MANY
    });
    let maps = cluster.share_with("many", 1, Options::default());
    for (node, map) in maps.iter().enumerate() {
        let guard = map.segment().lock(1).lock().unwrap();
        assert_eq!(load(map, 0), node as u64);
        store(map, 0, node as u64 + 1);
        drop(guard);
    }
    // All have a copy at once; one store takes it from all of them.
    for map in &maps {
        assert_eq!(load(map, 0), MANY as u64);
    }
    store(&maps[MANY / 2], 0, 7);
    for map in maps.iter().rev() {
        assert_eq!(load(map, 0), 7);
    }
    let members = cluster.mesh(0).members().unwrap().members;
    let dead = members.iter().filter(|one| one.health != Health::Alive);
    assert_eq!(dead.count(), 0, "{members:?}");
}
