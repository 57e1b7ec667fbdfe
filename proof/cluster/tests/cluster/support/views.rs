//! Segments of policy `views`, mapped in all their views on every node.

use super::{Cluster, load};
use pagemesh::{Access, Options, Policy, View, Views};

pub(crate) const CONSISTENT: View = View {
    consistent: true,
    short: false,
    data_driven: false,
};
pub(crate) const OLD: View = View {
    consistent: false,
    ..CONSISTENT
};
pub(crate) const OLD_SHORT: View = View { short: true, ..OLD };

pub(crate) fn options() -> Options {
    Options {
        policy: Policy::Views { prefix: 32 },
        ..Options::default()
    }
}

/// A new segment of so many pages, made on node 0.
pub(crate) fn share_views(cluster: &Cluster, name: &str, pages: u64) -> Vec<Views> {
    let made = cluster.make_on(0, name, pages, options());
    let nodes = 0..cluster.nodes().len();
    let views = nodes.map(|node| {
        let segment = cluster.mesh(node).open(name, Access::Writable).unwrap();
        segment.map_views().unwrap()
    });
    let views = views.collect();
    drop(made);
    views
}

/// A word as a view shows it.
pub(crate) fn word(views: &Views, view: View, at: usize) -> u64 {
    load(views.view(view).unwrap(), at)
}
