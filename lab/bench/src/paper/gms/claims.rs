//! What the paper claims, and whether the figures show it.

use super::super::claims::Claim;
use super::super::figures::Figures;
use super::literature::{
    DISK_RANDOM, DUPLICATE, HIT, OPERATION, PUTPAGE, RAW, READ, SHARED_HIT, SHARED_MISS, SINGLE,
};
use super::models::{IDLE, SIZES, SKEWS, SWITCHES};
use super::nodes::CLIENTS;
use super::programs::PROGRAMS;
use super::shared::{DUPLICATE as CASE_DUPLICATE, SINGLE as CASE_SINGLE};

/// All claims, in the order of their codes.
pub(super) fn all(document: &Figures) -> Vec<Claim> {
    let mut claims = operations(document);
    claims.extend(reads(document));
    claims.push(epochs(document));
    claims.extend(programs(document));
    claims.extend(modelled(document));
    claims.extend(skewed(document));
    claims.extend(clients(document));
    claims
}

/// All numbers, or none if one is missing.
fn every(document: &Figures, names: impl IntoIterator<Item = String>) -> Option<Vec<f64>> {
    names.into_iter().map(|name| document.get(&name)).collect()
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn operations(document: &Figures) -> Vec<Claim> {
    let hit = (|| {
        let (hit, raw) = (
            document.get("costs gms random median us")?,
            document.get("costs raw us")?,
        );
        let ratio = hit / raw;
        let words = format!("{hit:.0} us, {ratio:.2} of the raw exchange of a page ({raw:.0} us)");
        Some((words, ratio <= 1.0))
    })();
    let miss = (|| {
        let slow = document.get("costs slow random us")?;
        let declared = document.get("costs declared random us")?;
        let over = slow - declared;
        let words = format!(
            "{over:.0} us, {:.1} % of an access to a disk of {declared:.0} us; the kernel's fault and the putpage to the disk are in it",
            100.0 * over / declared
        );
        Some((words, over / declared <= 0.004))
    })();
    let putpage = |part: &str| {
        let [sender, target] =
            ["sender", "target"].map(|what| document.get(&format!("{part} putpage {what} us")));
        let (sender, target) = (sender?, target?);
        let words = format!(
            "the sender's daemon works {sender:.1} us more for a read with a putpage than for one without, the target's {target:.1} us more"
        );
        Some((words, target > sender && sender > 0.0))
    };
    let shared_hit = (|| {
        let hit = document.get(&format!("shared {CASE_DUPLICATE} random median us"))?;
        let raw = document.get("costs raw us")?;
        let ratio = hit / raw;
        let words = format!("{hit:.0} us, {ratio:.2} of the raw exchange ({raw:.0} us)");
        Some((words, ratio <= 1.0))
    })();
    let shared_miss = (|| {
        let miss = document.get("shared miss us")?;
        let hit = document.get(&format!("shared {CASE_DUPLICATE} random median us"))?;
        let ratio = miss / hit;
        let words = format!("{miss:.0} us, {ratio:.2} of a hit");
        Some((words, ratio <= 1.5 * SHARED_MISS / SHARED_HIT))
    })();
    vec![
        Claim::of(
            "GR1",
            format!(
                "a getpage that hits takes {HIT} us, {:.2} of the raw exchange of a page ({RAW} us)",
                HIT / RAW
            ),
            hit,
        ),
        Claim::of(
            "GR1",
            "a getpage that misses adds 0.4 % to a disk access at most",
            miss,
        ),
        Claim::of(
            "GR1",
            format!(
                "of a page that is shared a hit takes {SHARED_HIT} us, {:.2} of the raw exchange",
                SHARED_HIT / RAW
            ),
            shared_hit,
        ),
        Claim::of(
            "GR1",
            format!(
                "a miss of a shared page takes {SHARED_MISS} us, {:.2} of a hit; at most half as much again counts",
                SHARED_MISS / SHARED_HIT
            ),
            shared_miss,
        ),
        Claim::of("GR2", putpages(0, "of one node"), putpage("costs")),
        Claim::of("GR2", putpages(1, "that is shared"), putpage("shared")),
    ]
}

fn putpages(at: usize, whose: &str) -> String {
    let (sender, target) = PUTPAGE[at];
    format!(
        "the sender of a putpage of a page {whose} works {sender} us, the target {target} us: more than the sender"
    )
}

fn reads(document: &Figures) -> Vec<Claim> {
    let against = |access: &str, bound: f64| {
        let ratio = document.ratio(
            &format!("costs slow {access} us"),
            &format!("costs gms {access} us"),
        )?;
        let real = document.ratio(
            &format!("costs disk {access} us"),
            &format!("costs gms {access} us"),
        )?;
        let words = format!(
            "{ratio:.1} times as quick as the declared disk; {real:.2} times as quick as this host's file in its page cache"
        );
        Some((words, ratio >= bound))
    };
    vec![
        Claim::of(
            "GR3",
            format!(
                "random reads of private pages are {:.1} times as quick as from the disk",
                DISK_RANDOM / READ
            ),
            against("random", 0.8 * DISK_RANDOM / READ),
        ),
        Claim::of(
            "GR3",
            "reads in order are 1.7 times as quick as from the disk",
            against("sequential", 1.5),
        ),
        Claim::of(
            "GR4",
            format!(
                "a shared read takes {SINGLE} us if the last copy is elsewhere, {DUPLICATE} us if it is a duplicate: {:.2} of it; less than 0.9 counts",
                DUPLICATE / SINGLE
            ),
            shared_reads(document),
        ),
        Claim::of(
            "GR4",
            "a duplicate is dropped without a putpage, a last copy is sent",
            shared_putpages(document),
        ),
        Claim::unshown(
            "GR4",
            "a read from a file server takes 1900 us if the server has the page, 4800 us in order and 16,700 us at random if not",
            "no file server with NFS is here; the declared disk of GR3 stands for a slow one",
        ),
    ]
}

fn shared(document: &Figures, case: &str, what: &str) -> Option<f64> {
    document.get(&format!("shared {case} random {what}"))
}

fn shared_reads(document: &Figures) -> Option<(String, bool)> {
    let [single, duplicate] =
        [CASE_SINGLE, CASE_DUPLICATE].map(|case| shared(document, case, "us"));
    let (single, duplicate) = (single?, duplicate?);
    let ratio = duplicate / single;
    let words = format!("{single:.0} us and {duplicate:.0} us: {ratio:.2} of it, below the view");
    Some((words, ratio < 0.9))
}

fn shared_putpages(document: &Figures) -> Option<(String, bool)> {
    let each =
        |case| Some(shared(document, case, "putpages")? / shared(document, case, "getpages")?);
    let (single, duplicate) = (each(CASE_SINGLE)?, each(CASE_DUPLICATE)?);
    let words = format!(
        "{duplicate:.3} putpages for a getpage of a duplicate, {single:.3} for one of a last copy"
    );
    Some((words, duplicate < 0.01 && single > 0.9))
}

fn epochs(document: &Figures) -> Claim {
    let found = (|| {
        let initiator = document.get("epochs 100 initiator us")?;
        let other = document.get("epochs 100 other us")?;
        let scan = document.get("epochs scan us")?;
        // The shortest epoch of the paper, and as many pages as in its table.
        let scan = scan * 10_192.0;
        let share = |micros: f64| 100.0 * micros / 2e6;
        let (first, rest) = (share(initiator + scan), share(other + scan));
        let words = format!(
            "with 100 nodes and an epoch of 2 s the initiator works {first:.2} % of the time, another node {rest:.2} %, 10,192 pages scanned by each"
        );
        Some((words, first < 0.8 && rest < 0.2))
    })();
    Claim::of(
        "GR5",
        "an epoch of 2 s with 100 nodes takes under 0.8 % of the initiator and under 0.2 % of another node",
        found,
    )
}

fn programs(document: &Figures) -> Vec<Claim> {
    let speedups = |idle: f64| {
        let name = |program: &super::programs::Program| {
            format!("programs {} {idle} speedup", program.name)
        };
        every(document, PROGRAMS.iter().map(name))
    };
    let none = speedups(0.0).map(|all| {
        let words = format!("{:.2} to {:.2}", least(&all), most(&all));
        (words, least(&all) > 0.85 && most(&all) < 1.15)
    });
    let enough = speedups(1.5).map(|all| {
        let words = format!("{:.1} to {:.1}", least(&all), most(&all));
        (words, least(&all) >= 1.5)
    });
    vec![
        Claim::of(
            "GR6",
            "without idle memory programs are as quick as without GMS",
            none,
        ),
        Claim::of(
            "GR6",
            "with enough of it they are 1.5 to 3.5 times as quick",
            enough,
        ),
    ]
}

fn modelled(document: &Figures) -> Vec<Claim> {
    let sizes = every(document, SIZES.map(|size| format!("model nodes {size}"))).map(|all| {
        let words = format!(
            "model: {:.2} with 5 nodes, {:.2} with 20, {:.2} with 100, {:.2} with 1,000",
            all[0], all[3], all[4], all[5]
        );
        (words, least(&all) / most(&all) > 0.9)
    });
    let switches = every(
        document,
        SWITCHES.map(|each| format!("model switch {each}")),
    );
    let switches = switches.map(|all| {
        let [quick, slow] = [all[0], all[all.len() - 1]];
        let words = format!("model: {quick:.2} if they change each second, {slow:.2} each 30 s");
        (words, quick > 1.0 && quick < slow)
    });
    vec![
        Claim::of(
            "GR7",
            "from 5 to 20 nodes, two of five idle, the speedup stays the same",
            sizes,
        ),
        Claim::of(
            "GR8",
            "if idle nodes change every second the speedup is 1.9, every 20 to 30 s 4 % below that without changes",
            switches,
        ),
    ]
}

fn skewed(document: &Figures) -> Vec<Claim> {
    let at = |kind: &str, skew: usize, idle: f64, placement: &str, what: &str| {
        document.get(&format!(
            "{kind} {} {idle} {placement} {what}",
            SKEWS[skew].2
        ))
    };
    let speed = |kind: &str, word: &str| {
        let epoch = at(kind, 0, 1.0, "epoch", "speedup")?;
        let chance = at(kind, 0, 1.0, "n-chance", "speedup")?;
        let more = at(kind, 0, 2.0, "n-chance", "speedup")?;
        let words = format!(
            "{word}: {epoch:.2}; n-chance {chance:.2}, with twice the idle memory {more:.2}"
        );
        Some((words, epoch > chance))
    };
    let even = |kind: &str, word: &str| {
        let epoch = at(kind, 2, 1.0, "epoch", "speedup")?;
        let chance = at(kind, 2, 1.5, "n-chance", "speedup")?;
        let words = format!("{word}: {epoch:.2}, n-chance with half as much again {chance:.2}");
        Some((words, (chance / epoch - 1.0).abs() < 0.15))
    };
    let slowdown = (|| {
        let name = |placement: &str, idle: f64| {
            (0..3)
                .map(|skew| at("model interference", skew, idle, placement, "slowdown"))
                .collect::<Option<Vec<_>>>()
        };
        let epoch = name("epoch", 1.0)?;
        let chance = name("n-chance", 1.0)?;
        let words = format!(
            "model: {:.2} at most; n-chance {:.2}",
            most(&epoch),
            most(&chance)
        );
        Some((words, most(&epoch) < 1.1 && most(&chance) > most(&epoch)))
    })();
    let traffic = |kind: &str, what: &str, word: &str| {
        let epoch = at(kind, 0, 1.0, "epoch", what)?;
        let chance = at(kind, 0, 1.0, "n-chance", what)?;
        let before = kind.trim_end_matches(" interference");
        let kind = if before == "model" {
            "model skew"
        } else {
            kind
        };
        let speed = |placement| at(kind, 0, 1.0, placement, "speedup");
        let (fast, other) = (speed("epoch")?, speed("n-chance")?);
        let words = format!(
            "{word}: {:.2} of n-chance's, at a speedup of {fast:.2}, n-chance's {other:.2}",
            epoch / chance
        );
        // Less traffic counts only at no smaller speedup.
        Some((words, epoch / chance < 0.34 && fast >= other))
    };
    let claim =
        "where a quarter of the nodes has three quarters of the idle memory GMS beats N-chance";
    let rest = IDLE.len();
    debug_assert!(rest == 3, "the paper's three curves");
    vec![
        Claim::of("GR9", claim, speed("skew", "nine nodes")),
        Claim::of("GR9", claim, speed("model skew", "model")),
        Claim::of(
            "GR9",
            "where idle memory is even N-chance is as good, with some to spare",
            even("skew", "nine nodes"),
        ),
        Claim::of(
            "GR10",
            "GMS slows no other program, N-chance by up to 2.5",
            slowdown,
        ),
        Claim::of(
            "GR11",
            "GMS has less than a third of N-chance's traffic at the largest skew",
            traffic("skew", "MB", "nine nodes, bytes"),
        ),
        Claim::of(
            "GR11",
            "the same",
            traffic("model interference", "transfers", "model, pages"),
        ),
    ]
}

fn clients(document: &Figures) -> Vec<Claim> {
    let last = CLIENTS[CLIENTS.len() - 1];
    let speed = (|| {
        let one = document.get("clients 1 speedup")?;
        let many = document.get(&format!("clients {last} speedup"))?;
        let words = format!(
            "{one:.1} with one client, {many:.1} with {last}, on two processors for all of them"
        );
        Some((words, many > 0.7 * one))
    })();
    let donor = document.get(&format!("clients {last} donor us")).map(|micros| {
        let rate = document.get(&format!("clients {last} operations/s")).unwrap_or_default();
        let share = document.get(&format!("clients {last} donor percent")).unwrap_or_default();
        let words = format!("{micros:.1} us for an operation: {rate:.0} a second take {share:.0} % of a processor");
        (words, micros <= OPERATION)
    });
    vec![
        Claim::of(
            "GR12",
            "seven clients of one donor are only moderately slower than one",
            speed,
        ),
        Claim::of(
            "GR13",
            format!("an operation takes {OPERATION} us of the donor's processor"),
            donor,
        ),
    ]
}
