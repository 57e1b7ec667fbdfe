//! What real nodes do: reads of private pages, skewed idle memory, several clients of one donor.

use super::super::super::agent::Order;
use super::super::super::fault::shuffled;
use super::super::super::report::Samples;
use super::super::super::testbed::Testbed;
use super::super::super::{ETHERNET_JUMBO, Waiting, switch};
use super::super::figures::Figures;
use super::literature::{DISK_NEXT, DISK_RANDOM, RAW};
use super::models::{IDLE, SKEWS};
use anyhow::{Context, Result};
use pagemesh_cli::sandbox::Plan;
use std::time::Duration;

/// Pages of the memory for GR1 to GR3, of which a sixteenth is here, and reads at random.
const PAGES: u32 = 8192;
const READS: u32 = 3000;

/// For GR2: pages of another owner that the donor keeps, and how long nobody uses them before.
const OLD: u32 = 1024;
const UNUSED: Duration = Duration::from_secs(12);
const OTHER_OWNER: usize = 2;

/// Traversals with stores, at most, until memory is scarce.
const STORES: u32 = 40;

/// For GR9 and GR11: pages, those of them that are here, and what other nodes must have.
pub(super) const SKEWED: u32 = 4096;
const HERE: u32 = 1024;
const NEED: u32 = SKEWED - HERE;

/// For GR12 and GR13: pages of each client, of which an eighth is here.
const CLIENT: u32 = 2048;

/// Numbers of clients.
pub(super) const CLIENTS: [usize; 3] = [1, 2, 4];

/// Where pages go, and how slow the disk is.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) placement: &'a str,
    /// Of a random read and of the next page, in microseconds; as fast as it is if none.
    pub(super) disk: Option<(f64, f64)>,
}

/// A plan of nodes that lend so many pages each.
pub(super) fn plan(setting: Setting<'_>, lend: &[u32]) -> Result<Plan> {
    let mut plan = Plan::new(lend.len());
    plan.mtu = ETHERNET_JUMBO;
    let words = ["--memory", "4G", "--placement", setting.placement];
    plan.daemon_args = words.map(str::to_owned).to_vec();
    plan.own_args = lend.iter().map(|pages| lends(*pages)).collect();
    let switches = match setting.disk {
        Some((random, next)) => format!("disk={random:.0}us/{next:.0}us"),
        // Nothing but the program of those with a slow disk.
        None => "acknowledge=page".to_owned(),
    };
    switch(&mut plan, &switches)?;
    Ok(plan)
}

fn lends(pages: u32) -> Vec<String> {
    let size = match pages {
        0 => "none".to_owned(),
        pages => format!("{}K", pages * 4),
    };
    vec!["--lend".to_owned(), size]
}

/// The times of the paper's disk, to a network with this raw exchange.
pub(super) fn declared(document: &mut Figures) -> Result<(f64, f64)> {
    let known = document.get("costs raw us");
    let raw = match known {
        Some(raw) => raw,
        None => {
            let mut testbed = Testbed::raise(&Plan::new(2), Waiting::Block)?;
            raw(&mut testbed)?
        }
    };
    Ok((raw * DISK_RANDOM / RAW, raw * DISK_NEXT / RAW))
}

fn raw(testbed: &mut Testbed) -> Result<f64> {
    let mut samples = Samples::default();
    testbed.raw(Testbed::PAGE_REPLY, READS, &mut samples)?;
    Ok(samples.median() / 1e3)
}

/// Microseconds of each.
pub(super) fn mean(times: &[u64], count: usize) -> f64 {
    times.iter().sum::<u64>() as f64 / 1e3 / count.max(1) as f64
}

/// Microseconds of the one in the middle.
pub(super) fn median(times: &[u64]) -> f64 {
    let mut samples = Samples::default();
    samples.extend(times.to_vec());
    samples.percentile(50) / 1e3
}

/// GR1 to GR3: reads of private pages from a donor, from a disk as slow as the paper's, and from the
/// disk as it is.
pub(super) fn costs(document: &mut Figures) -> Result<()> {
    let gms = Setting {
        placement: "epoch",
        disk: None,
    };
    let plan = plan(gms, &[0, 2 * PAGES])?;
    let mut testbed = Testbed::raise(&plan, Waiting::Block)?;
    let raw = raw(&mut testbed)?;
    document.put("costs raw us", raw);
    reads(&mut testbed, "gms", document)?;
    drop(testbed);
    let (random, next) = declared(document)?;
    document.put("costs declared random us", random);
    document.put("costs declared next us", next);
    for (name, disk) in [("slow", Some((random, next))), ("disk", None)] {
        let placement = "none";
        let plan = self::plan(Setting { placement, disk }, &[0, 0])?;
        let mut testbed = Testbed::raise(&plan, Waiting::Block)?;
        reads(&mut testbed, name, document)?;
    }
    scarce(document)
}

/// GR2: memory is scarce, since the donor keeps pages that nobody has used for a while. So it forgets
/// what it sends back, and each read needs a getpage and a putpage.
fn scarce(document: &mut Figures) -> Result<()> {
    let gms = Setting {
        placement: "epoch",
        disk: None,
    };
    let lend = PAGES + PAGES / 4 + OLD;
    let mut testbed = Testbed::raise(&plan(gms, &[0, lend, 0])?, Waiting::Block)?;
    fill(&mut testbed, OTHER_OWNER, 2 * OLD, OLD / 8)?;
    std::thread::sleep(UNUSED);
    fill(&mut testbed, 0, PAGES, PAGES / 16)?;
    until_scarce(&mut testbed)?;
    timed_reads(&mut testbed, "scarce", document)?;
    let get = |what: &str| document.get(&format!("costs {what}"));
    let puts = get("scarce putpages").unwrap_or_default();
    // Without a donor's putpages there is nothing to tell apart.
    if puts < f64::from(READS) / 2.0 {
        return Ok(());
    }
    let donor = |key: &str| {
        let operations = get(&format!("{key} getpages"))? + get(&format!("{key} putpages"))?;
        Some(get(&format!("{key} donor us"))? * operations)
    };
    let owner = |key: &str| Some(get(&format!("{key} owner us"))? * f64::from(READS));
    let of = |spent: &dyn Fn(&str) -> Option<f64>| Some((spent("scarce")? - spent("gms")?) / puts);
    let (sender, target) = (of(&owner), of(&donor));
    for (what, micros) in [("sender", sender), ("target", target)] {
        if let Some(micros) = micros {
            document.put(format!("costs putpage {what} us"), micros);
        }
    }
    Ok(())
}

/// Stores until a plan comes of an epoch in which many pages were replaced: only then a donor forgets,
/// and pages that are read go back to it.
fn until_scarce(testbed: &mut Testbed) -> Result<()> {
    for _ in 0..STORES {
        walk(testbed, true)?;
        // Nothing that was stored is still to be sent.
        walk(testbed, false)?;
        let before = testbed.counters(0)?.of("pages_lent");
        let some = &shuffled(0..PAGES, 5)[..256];
        testbed.touch(0, some, false)?;
        if testbed.counters(0)?.of("pages_lent") - before >= 128 {
            break;
        }
    }
    Ok(())
}

fn fill(testbed: &mut Testbed, agent: usize, pages: u32, local: u32) -> Result<()> {
    let name = format!("gms.{agent}");
    let order = Order::OpenPrivate { name, pages, local };
    testbed.ask(agent, &order)?;
    let write = true;
    testbed.ask(agent, &Order::Walk { pages, write })?;
    Ok(())
}

fn reads(testbed: &mut Testbed, name: &str, document: &mut Figures) -> Result<()> {
    fill(testbed, 0, PAGES, PAGES / 16)?;
    // Once, so that an epoch has begun and the donor has touched its memory.
    walk(testbed, false)?;
    timed_reads(testbed, name, document)
}

fn walk(testbed: &mut Testbed, write: bool) -> Result<Vec<u64>> {
    let pages = PAGES;
    testbed.ask(0, &Order::Walk { pages, write })
}

fn timed_reads(testbed: &mut Testbed, name: &str, document: &mut Figures) -> Result<()> {
    let before = testbed.counters(0)?;
    let times = [testbed.time_of(0)?, testbed.time_of(1)?];
    let order = shuffled(0..PAGES, 1);
    let touched = testbed.touch(0, &order[..READS as usize], false)?;
    let after = testbed.counters(0)?;
    let spent = [
        testbed.time_of(0)? - times[0],
        testbed.time_of(1)? - times[1],
    ];
    let mut put = |what: &str, value| document.put(format!("costs {name} {what}"), value);
    put("random us", mean(&touched, touched.len()));
    put("random median us", median(&touched));
    let count = |what: &str| (after.of(what) - before.of(what)) as f64;
    put("getpages", count("pages_in"));
    put("putpages", count("pages_lent"));
    put("disk reads", count("pages_from_disk"));
    let operations = count("pages_in") + count("pages_lent");
    put("owner us", spent[0] as f64 / 1e3 / f64::from(READS));
    put("donor us", spent[1] as f64 / 1e3 / operations.max(1.0));
    let walked = walk(testbed, false)?;
    put("sequential us", mean(&walked, PAGES as usize));
    Ok(())
}

/// GR9, GR11: idle memory at eight nodes, in skewed parts, and one client.
pub(super) fn skew(document: &mut Figures) -> Result<()> {
    let disk = Some(declared(document)?);
    let none = Setting {
        placement: "none",
        disk,
    };
    let slow = skewed(none, &[0; 9])?;
    document.put("skew none ms", slow.millis);
    for (nodes, share, name) in SKEWS {
        for idle in IDLE {
            let part = |node: usize| {
                let all = f64::from(NEED) * idle;
                let each = match node < nodes {
                    true => all * share / nodes as f64,
                    false => all * (1.0 - share) / (8 - nodes) as f64,
                };
                each as u32
            };
            let lend: Vec<_> = std::iter::once(0).chain((0..8).map(part)).collect();
            for placement in ["epoch", "n-chance"] {
                // The paper has one curve of GMS.
                if placement == "epoch" && idle > 1.0 {
                    continue;
                }
                let run = skewed(Setting { placement, disk }, &lend)?;
                let mut put = |what: &str, value| {
                    document.put(format!("skew {name} {idle} {placement} {what}"), value);
                };
                put("ms", run.millis);
                put("speedup", slow.millis / run.millis);
                put("MB", run.bytes / 1e6);
                put("disk", run.disk);
            }
        }
    }
    Ok(())
}

struct Run {
    millis: f64,
    bytes: f64,
    disk: f64,
}

fn skewed(setting: Setting<'_>, lend: &[u32]) -> Result<Run> {
    let plan = plan(setting, lend)?;
    let mut testbed = Testbed::raise(&plan, Waiting::Block)?;
    fill(&mut testbed, 0, SKEWED, HERE)?;
    let once = shuffled(0..SKEWED, 1);
    // So that pages lie where they come to lie.
    testbed.touch(0, &once, false)?;
    let sent = |testbed: &mut Testbed| -> Result<u64> {
        let all = (0..lend.len()).map(|node| Ok(testbed.counters(node)?.of("bytes_out")));
        all.sum()
    };
    let (bytes, before) = (sent(&mut testbed)?, testbed.counters(0)?);
    let times = testbed.touch(0, &shuffled(0..SKEWED, 2), false)?;
    let after = testbed.counters(0)?;
    Ok(Run {
        millis: times.iter().sum::<u64>() as f64 / 1e6,
        bytes: (sent(&mut testbed)? - bytes) as f64,
        disk: (after.of("pages_from_disk") - before.of("pages_from_disk")) as f64,
    })
}

/// GR12, GR13: several clients at once use the memory of one node.
pub(super) fn clients(document: &mut Figures) -> Result<()> {
    let disk = Some(declared(document)?);
    let none = Setting {
        placement: "none",
        disk,
    };
    let slow = several(none, 1)?;
    document.put("clients none us", slow.micros);
    for clients in CLIENTS {
        let gms = Setting {
            placement: "epoch",
            disk,
        };
        let run = several(gms, clients)?;
        let mut put = |what: &str, value| document.put(format!("clients {clients} {what}"), value);
        put("us", run.micros);
        put("speedup", slow.micros / run.micros);
        put("donor us", run.donor);
        put("operations/s", run.rate);
        put("donor percent", run.share);
    }
    Ok(())
}

struct Several {
    /// Of a read by a client.
    micros: f64,
    /// Processor time of the donor for an operation.
    donor: f64,
    rate: f64,
    share: f64,
}

fn several(setting: Setting<'_>, clients: usize) -> Result<Several> {
    let mut lend = vec![0; clients];
    lend.push(2 * CLIENT * clients as u32);
    let plan = plan(setting, &lend)?;
    let mut testbed = Testbed::raise(&plan, Waiting::Block)?;
    for client in 0..clients {
        fill(&mut testbed, client, CLIENT, CLIENT / 8)?;
        let pages = shuffled(0..CLIENT, 9);
        testbed.touch(client, &pages, false)?;
    }
    let (before, time) = (testbed.counters(clients)?, testbed.time_of(clients)?);
    let began = std::time::Instant::now();
    for client in 0..clients {
        let pages = shuffled(0..CLIENT, client as u32);
        testbed.tell(
            client,
            &Order::Touch {
                pages,
                write: false,
            },
        )?;
    }
    let mut times = Vec::new();
    for client in 0..clients {
        times.extend(testbed.hear(client).context("a client failed")?);
    }
    let took = began.elapsed();
    let (after, spent) = (testbed.counters(clients)?, testbed.time_of(clients)? - time);
    let count = |what: &str| (after.of(what) - before.of(what)) as f64;
    let operations = count("pages_borrowed") + count("pages_returned");
    Ok(Several {
        micros: mean(&times, times.len()),
        donor: spent as f64 / 1e3 / operations.max(1.0),
        rate: operations / took.as_secs_f64(),
        share: 100.0 * spent as f64 / took.as_nanos() as f64,
    })
}
