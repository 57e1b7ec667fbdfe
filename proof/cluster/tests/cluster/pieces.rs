//! Links that do not carry a page at once.

use crate::support::{Cluster, at_best, eventually, expect, load, store, stress_time};
use pagemesh::Mapping;
use pagemesh_cli::sandbox::{Netns, Plan};
use std::process::Stdio;
use std::time::Instant;

/// Two nodes on links of this MTU that they have found out; none without namespaces.
fn cluster(mut plan: Plan, mtu: u32) -> Option<Cluster> {
    plan.mtu = mtu;
    let cluster = Cluster::of(plan)?;
    if !cluster.isolated() {
        eprintln!("skipped: no network namespaces here; run as root");
        return None;
    }
    eventually("every way is known", || {
        (0..2).all(|node| {
            let paths = cluster.node(node).control().unwrap().paths().unwrap();
            paths.len() == 1 && paths.iter().all(|path| path.found && path.mtu == mtu)
        })
    });
    Some(cluster)
}

/// The nodes store to pages in turn, and load what the other stored.
fn turns(maps: &[Mapping], pages: usize, rounds: usize) {
    for round in 1..=rounds {
        let (writer, reader) = (&maps[round % 2], &maps[(round + 1) % 2]);
        for page in 0..pages {
            let value = (round * 1000 + page) as u64;
            store(writer, page * 4096 + 4088, value);
            assert_eq!(load(reader, page * 4096 + 4088), value);
        }
    }
}

fn count(cluster: &Cluster, name: &str) -> u64 {
    (0..2).map(|node| cluster.counter(node, name)).sum()
}

#[test]
fn a_page_is_one_datagram_where_it_fits_and_three_pieces_where_not() {
    for (mtu, sealed) in [(1500, false), (1500, true), (9000, false), (9000, true)] {
        let mut plan = Plan::new(2);
        (plan.sealed, plan.compress) = (sealed, Some("off".into()));
        let Some(cluster) = cluster(plan, mtu) else {
            return;
        };
        let maps = cluster.share("cut", 4);
        let before = count(&cluster, "datagrams_out");
        turns(&maps, 4, 20);
        let sent = count(&cluster, "datagrams_out") - before;
        let cut = count(&cluster, "messages_cut");
        let what = format!("{mtu} {sealed}: {sent} datagrams, {cut} messages cut");
        eventually("all that was cut is joined", || {
            count(&cluster, "messages_joined") >= cut
        });
        assert_eq!(count(&cluster, "pieces_refused"), 0, "{what}");
        assert_eq!(cut > 0, mtu == 1500, "{what}");
        // Each of them was two datagrams more.
        assert!(cut == 0 || cut >= 80 && sent >= 3 * cut, "{what}");
        assert_eq!(count(&cluster, "paths_shrunk"), 0, "{what}");
    }
}

/// Has a node drop what IP cut; false, with the reason on the error output, if that
/// cannot be done here.
fn drops_fragments(cluster: &Cluster, node: usize) -> bool {
    // Before the kernel puts them together.
    let rule = "table inet cut {\nchain in {\ntype filter hook prerouting priority -500;\n\
                ip frag-off & 0x3fff != 0 counter drop\n}\n}\n";
    let mut nft = cluster.node(node).command("nft");
    let done = nft.arg(rule).stderr(Stdio::null()).status();
    let done = done.is_ok_and(|status| status.success());
    if !done {
        eprintln!("skipped: nft cannot drop fragments here; install nftables");
    }
    done
}

/// Sends a node a datagram that IP has to cut, and sees that it does not arrive.
fn fragments_are_dropped(cluster: &Cluster) {
    let to = cluster.node(0).address().ip();
    let send = format!("head -c 3000 /dev/zero > /dev/udp/{to}/9");
    let mut bash = cluster.node(1).command("bash");
    assert!(bash.args(["-c", &send]).status().unwrap().success());
    eventually("the rule has dropped something", || {
        let mut nft = cluster.node(0).command("nft");
        let rules = nft.args(["list", "table", "inet", "cut"]).output().unwrap();
        let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
        rules.contains("counter packets") && !rules.contains("counter packets 0 ")
    });
}

#[test]
fn pages_pass_where_fragments_do_not() {
    for sealed in [false, true] {
        let mut plan = Plan::new(2);
        plan.sealed = sealed;
        let Some(cluster) = cluster(plan, 1500) else {
            return;
        };
        if !(0..2).all(|node| drops_fragments(&cluster, node)) {
            return;
        }
        fragments_are_dropped(&cluster);
        let maps = cluster.share("walled", 64);
        // IP fragments never arrive: each page would be resent.
        at_best(|| {
            let before = count(&cluster, "resent");
            turns(&maps, 4, 20);
            let resent = count(&cluster, "resent") - before;
            expect(resent < 10, format!("sealed {sealed}: {resent} said again"))
        });
        // Many together, asked for ahead.
        for page in 0..64 {
            store(&maps[0], page * 4096, page as u64 + 1);
        }
        for page in 0..64 {
            assert_eq!(load(&maps[1], page * 4096), page as u64 + 1);
        }
    }
}

#[test]
fn lost_pieces_are_sent_again_by_themselves() {
    for (sealed, loss) in [(false, 0.01), (true, 0.1)] {
        let mut plan = Plan::new(2);
        plan.sealed = sealed;
        plan.compress = Some("off".into());
        (plan.impair.loss, plan.impair.dup) = (loss, 0.02);
        (plan.impair.reorder, plan.impair.seed) = (0.05, 9);
        let Some(cluster) = cluster(plan, 1500) else {
            return;
        };
        let maps = cluster.share("lossy", 32);
        let end = Instant::now() + stress_time();
        let mut rounds = 0;
        while Instant::now() < end || count(&cluster, "pieces_repaired") < 5 {
            turns(&maps, 4, 10);
            rounds += 10;
        }
        let [cut, joined, given_up, repaired, asked] = [
            "messages_cut",
            "messages_joined",
            "messages_given_up",
            "pieces_repaired",
            "pieces_asked",
        ]
        .map(|name| count(&cluster, name));
        let what = format!(
            "{rounds} rounds at {loss}: {cut} cut, {joined} joined, {given_up} given up, \
             {asked} asked, {repaired} repaired"
        );
        eprintln!("{what}");
        // Some pieces are asked for in vain now and then, and their message given up, or lost with
        // all its pieces.
        assert!(given_up <= cut / 20 + 2, "{what}");
        assert!(joined + cut / 20 + 2 >= cut, "{what}");
        assert!(repaired <= 3 * cut * 3, "{what}");
    }
}

#[test]
fn on_loopback_nothing_is_cut() {
    let mut plan = Plan::new(2);
    plan.netns = Netns::Never;
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    eventually("the way is known", || {
        let paths = cluster.node(0).control().unwrap().paths().unwrap();
        paths.iter().all(|path| path.found && path.mtu > 4300)
    });
    let maps = cluster.share("near", 4);
    // Messages cut before that was known do not count.
    let before = count(&cluster, "messages_cut");
    turns(&maps, 4, 10);
    assert_eq!(count(&cluster, "messages_cut"), before);
}
