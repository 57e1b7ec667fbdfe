//! Forecasts for nodes that each have a processor, where there are fewer, which control groups
//! cannot show. Real nodes under a clock of costs ([`pagemesh_forecast`]) that are measured here
//! first; beside real runs on two nodes, so that their error is known.

use super::super::super::cpu_slots::{pin_process, processor};
use super::super::super::report::Samples;
use super::super::super::{Waiting, compress, raw};
use super::document::{Document, Section, number, percent};
use super::faults::{INTERRUPT_BLAST, PLAIN, Pair, Setting};
use super::programs::{Place, alone, together, words};
use anyhow::{Context, Result};
use pagemesh_cli::sandbox::{Plan, Sandbox};
use pagemesh_compress::{Codec, PAGE, pack};
use pagemesh_forecast::{self as forecast, Costs, Steps};
use pagemesh_wire::peer::Window;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Pages of a measurement, and measurements whose median counts.
const PAGES: u32 = 400;
const TURNS: usize = 5;

/// Turns of each player of Battleship.
const GAME: u64 = 200;

/// Sizes of matrices that both do.
const SIZES: [u32; 4] = [120, 240, 360, 480];

/// The paper's wire, and its packets with the headers of Ethernet, IP and UDP.
const RATE: (&str, u64) = ("10mbit", 10_000_000);
const PACKET: u32 = 1024;
const HEADERS: u32 = 54;

/// The stores of single programs into a page, and the name of the pattern.
const PATTERNS: [(&str, &str); 4] = [
    ("EachN, N = 4", "each_4"),
    ("EachN, N = 16", "each_16"),
    ("UptoN, N = 1024", "up_to_1024"),
    ("RandN, N = 300", "random_300"),
];

pub(super) fn measure(programs: &Path, rounds: u32, document: &mut Document) -> Result<()> {
    let Measured {
        costs,
        read,
        upgrade,
    } = costs(document)?;
    let nap = nap();
    document.value("cost nap", micros(nap));
    let head = ["", "MEASURED", "FORECAST", "ERROR"];
    let mut checks = Section::new("Forecasts beside runs on two nodes", &head);
    let mut check = |name: &str, unit: &str, measured: f64, forecast: f64| {
        checks.row([
            name.to_owned(),
            format!("{} {unit}", number(measured)),
            format!("{} {unit}", number(forecast)),
            percent(measured, forecast),
        ]);
        document.value(format!("measured {name} {unit}"), measured);
        document.value(format!("forecast {name} {unit}"), forecast);
        document.value(
            format!("error {name} percent"),
            100.0 * (forecast / measured - 1.0),
        );
    };
    // One after the other: no daemon falls asleep in between.
    let awake = Costs {
        rouse: Duration::ZERO,
        ..costs
    };
    let whole = micros(forecast::fault(&awake)?);
    check("read fault", "us", read, whole);
    check("upgrade", "us", upgrade, micros(forecast::upgrade(&awake)?));
    for (name, kind) in PATTERNS {
        let (took, costs) = scrambled(&costs, kind)?;
        let forecast = micros(forecast::fault(&costs)?);
        check(&format!("{name}, 10 Mbit/s"), "us", took, forecast);
    }
    for (name, window) in [("0", Window::Nanos(0)), ("auto", Window::Auto)] {
        let measured = game(programs, name, rounds)?;
        let forecast = battleship(&costs, programs, window)?;
        check(
            &format!("turn of Battleship, Δ = {name}"),
            "us",
            measured,
            forecast,
        );
    }
    let multiplied = multiplied(programs)?;
    for (n, times) in SIZES.iter().zip(&multiplied) {
        let (measured, forecast) = (times.shared, matrix(&costs, *n, 2, times, nap)?);
        let name = format!("matrix {n} x {n}");
        check(&name, "ms", measured * 1e3, forecast * 1e3);
    }
    checks.note(
        "The fault itself is what the costs are made of, and no check. Measured costs besides: what it takes to take a page \
         away (a store that brings a page, beside a load), to rouse a daemon that sleeps, and to get a processor that a \
         program uses. Each node has one processor, for daemon and program, in forecasts as in runs. \
         Multiplying takes as long as two processes take with the kernel's own System V memory. What \
         schedulers do to a program and a daemon on one processor, when both look for something all the time (Battleship), \
         is not in them. The line of 10 Mbit/s is a token \
         bucket, which fills while the request is under way; that of the forecast is a wire, which does not.",
    );
    document.put(18, checks);
    sites(&costs, &multiplied, nap, document)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn duration(micros: f64) -> Duration {
    Duration::from_secs_f64((micros / 1e6).max(0.0))
}

/// The measurements of faults.
struct Measured {
    costs: Costs,
    /// A load that brings a page, and a store to it afterwards, in microseconds.
    read: f64,
    upgrade: f64,
}

/// Costs, of messages and faults between two nodes that do nothing else: some whose
/// daemons stay awake, and some whose daemons sleep, in turn.
fn costs(document: &mut Document) -> Result<Measured> {
    let mut awake = Pair::raise(plain())?;
    awake.parts(PAGES)?;
    awake.stand_still(true)?;
    let mut asleep = Pair::raise_waiting(plain(), Waiting::Block)?;
    asleep.stand_still(true)?;
    let (mut short, mut page) = <(Samples, Samples)>::default();
    let (mut parts, mut three) = (Vec::new(), [const { Vec::new() }; 3]);
    let (mut drowsy, mut preempted) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        awake.stand_still(false)?;
        awake.raw(raw::REQUEST, PAGES, &mut short)?;
        awake.raw(PAGE + raw::REQUEST, PAGES, &mut page)?;
        parts.push(awake.parts(PAGES)?);
        for (all, one) in three.iter_mut().zip(awake.three(PAGES)?) {
            all.push(one);
        }
        awake.stand_still(true)?;
        asleep.stand_still(false)?;
        drowsy.push(asleep.fault("noise", PAGES)?);
        let busy = Busy::start(processor(1))?;
        preempted.push(asleep.fault("noise", PAGES)?);
        drop(busy);
        asleep.stand_still(true)?;
    }
    parts.sort_by(|one, other| one.total.total_cmp(&other.total));
    let parts = parts.swap_remove(TURNS / 2);
    let [read, upgrade, write] = three.map(median);
    let (drowsy, preempted) = (median(drowsy), median(preempted));
    let short = short.median() / 1000.0;
    let steps = Steps {
        ask: duration(parts.trap),
        request: duration(parts.request),
        transfer: duration(parts.transfer),
        // No stamp tells it from the rest of the fault.
        install: Duration::ZERO,
        total: duration(parts.total),
        short: duration(short / 2.0),
        page: duration(page.median() / 1000.0 - short / 2.0),
    };
    let costs = Costs {
        evict: duration(write - read),
        // Twice for the node that asks, when it faults and when the page comes; once for the owner.
        rouse: duration((drowsy - parts.total) / 3.0),
        // Of the owner, whose processor is busy then instead of asleep.
        preempt: duration((drowsy - parts.total) / 3.0 + preempted - drowsy),
        ..Costs::of(&steps)
    };
    for (name, cost) in [
        ("trap", costs.trap),
        ("fault", costs.fault),
        ("serve", costs.serve),
        ("take", costs.take),
        ("install", costs.install),
        ("wake", costs.wake),
        ("short", costs.short),
        ("page", costs.page),
        ("evict", costs.evict),
        ("rouse", costs.rouse),
        ("preempt", costs.preempt),
    ] {
        document.value(format!("cost {name}"), micros(cost));
    }
    Ok(Measured {
        costs,
        read,
        upgrade,
    })
}

fn plain() -> Setting {
    Setting {
        compress: "off",
        experiment: PLAIN,
        rate: None,
    }
}

/// The real duration of 200 us of sleep, as waiting programs sleep.
fn nap() -> Duration {
    let naps = (0..101).map(|_| {
        let begin = Instant::now();
        std::thread::sleep(Duration::from_micros(200));
        begin.elapsed().as_secs_f64()
    });
    Duration::from_secs_f64(median(naps.collect()))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A program that keeps a processor busy until this is dropped.
struct Busy(Child);

impl Busy {
    fn start(cpu: usize) -> Result<Self> {
        let this = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(this);
        command.args(["burn", "--give-way", &u64::MAX.to_string()]);
        pagemesh_os::netns::die_with_parent(&mut command);
        let child = command.stdout(Stdio::null()).spawn()?;
        let busy = Self(child);
        pin_process(busy.0.id(), cpu).context("cannot pin a process")?;
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // It cannot have ended before; if it has, it is gone as it should be.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A fault on a page of a kind on the paper's wire, and its expected costs.
fn scrambled(costs: &Costs, kind: &str) -> Result<(f64, Costs)> {
    const FEW: u32 = 60;
    let mut pair = Pair::raise(Setting {
        compress: "runs",
        experiment: INTERRUPT_BLAST,
        rate: Some(RATE.0),
    })?;
    let took = pair.fault(kind, FEW)?;
    let page = compress::of_kind(kind).context("no such pages")?[0];
    let mut room = Vec::new();
    let form = pack(Codec::Runs, &page, &mut room);
    let bytes = if form.mark() == 0 { PAGE } else { room.len() };
    let costs = Costs {
        rate: Some(RATE.1),
        page_bytes: bytes as u32,
        packet_bytes: PACKET,
        header_bytes: HEADERS,
        ..*costs
    };
    Ok((took, costs))
}

/// Two nodes, each with a processor for its daemon and its program, as forecasts have it.
fn sandbox() -> Result<Sandbox> {
    let mut plan = Plan::new(2);
    plan.waiting = Some("auto".to_owned());
    plan.compress = Some("off".to_owned());
    let sandbox = Sandbox::start(&plan)?;
    for (number, node) in sandbox.nodes().iter().enumerate() {
        pin_process(node.pid(), processor(number)).context("cannot pin a daemon")?;
    }
    Ok(sandbox)
}

/// Microseconds of a turn of one player on two real nodes.
fn game(programs: &Path, window: &str, rounds: u32) -> Result<f64> {
    let sandbox = sandbox()?;
    let program = programs.join("battleship-mesh");
    let arguments = words(&format!("--yield=1 --turns={GAME}"));
    let environment = [("PAGEMESH_WINDOW", window)];
    let mut all = Vec::new();
    for _ in 0..rounds.max(TURNS as u32) {
        let seconds = together(&sandbox, Place::Own, &program, &arguments, &environment)?;
        all.push(seconds / GAME as f64 * 1e6);
    }
    Ok(median(all))
}

fn battleship(costs: &Costs, programs: &Path, window: Window) -> Result<f64> {
    // On two processors without nodes: four looks, at most.
    let seconds = alone(None, &programs.join("battleship"), &[])?;
    let game = forecast::Battleship {
        turns: GAME,
        look: Duration::from_secs_f64(seconds / 789.0 / 4.0),
        window,
    };
    let played = forecast::battleship(costs, &game)?;
    Ok(micros(played.took) / GAME as f64)
}

/// Seconds of a multiplication.
struct Times {
    /// By two processes on two real nodes.
    shared: f64,
    /// By two processes that share the kernel's own memory.
    local: f64,
    /// By one.
    alone: f64,
}

/// By size, in turn.
fn multiplied(programs: &Path) -> Result<Vec<Times>> {
    let sandbox = sandbox()?;
    let (shared, single) = (programs.join("matrix-mesh"), programs.join("matrix"));
    let environment = [("PAGEMESH_WINDOW", "0")];
    let run = |n: &u32| {
        let [mut shared_by, mut local, mut alone] = [const { Vec::new() }; 3];
        for _ in 0..TURNS {
            let arguments = words(&format!("--n={n} --times=3"));
            local.push(self::alone(None, &single, &arguments)?);
            shared_by.push(together(
                &sandbox,
                Place::Own,
                &shared,
                &arguments,
                &environment,
            )?);
            // The quicker one: above 120 x 120 rows that are padded take longer.
            let mut least = f64::INFINITY;
            for padding in [0, 1] {
                let arguments = words(&format!("--n={n} --padding={padding} --sequential"));
                least = least.min(self::alone(None, &single, &arguments)?);
            }
            alone.push(least);
        }
        Ok(Times {
            shared: median(shared_by),
            local: median(local),
            alone: median(alone),
        })
    };
    SIZES.iter().map(run).collect()
}

/// Computing takes the time that it takes with the kernel's own memory, where both waiting
/// processes sleep half a nap too long.
fn matrix(costs: &Costs, n: u32, sites: u32, times: &Times, nap: Duration) -> Result<f64> {
    let matrix = forecast::Matrix {
        n,
        padding: true,
        sites,
        alone: Duration::from_secs_f64(times.local).saturating_sub(nap),
        nap,
        window: Window::Nanos(0),
    };
    Ok(forecast::matrix(costs, &matrix)?.as_secs_f64())
}

/// Forecasts for numbers of nodes that were not measured.
fn sites(costs: &Costs, times: &[Times], nap: Duration, document: &mut Document) -> Result<()> {
    let head = ["", "2", "3", "4", "5", "6", "7 SITES"];
    let mut section = Section::new("Forecasts for sites with a processor each", &head);
    for (n, times) in SIZES.iter().zip(times) {
        let mut row = vec![format!("{n} x {n}, speedup")];
        for sites in 2..=7 {
            let speedup = times.alone / matrix(costs, *n, sites, times, nap)?;
            document.value(format!("forecast matrix {n} speedup on {sites}"), speedup);
            row.push(number(speedup));
        }
        section.cells(row);
    }
    let mut row = vec!["invalidation, all other sites read, us".to_owned()];
    for sites in 2..=7 {
        let took = micros(forecast::invalidation(costs, sites - 1)?);
        document.value(format!("forecast invalidation {} us", sites - 1), took);
        row.push(number(took));
    }
    section.cells(row);
    section.note(
        "Not measured: this is what the same nodes make of the costs above, pages whole, Δ = 0. Speedups are against one \
         process alone; the first site only loads and collects. How far they can be trusted is the error of two sites.",
    );
    document.put(19, section);
    Ok(())
}
