//! MR12 to MR14: Battleship, two players on one page; and the effect of the time window on it and
//! on matrix multiply (MB8).

use super::super::super::switch;
use super::document::{Document, Section, number, percent};
use super::faults::SERVER_BLAST;
use super::literature;
use super::programs::{Place, alone, counters, on_one_processor, together, words};
use anyhow::Result;
use pagemesh_cli::sandbox::{Plan, Sandbox};
use std::path::Path;

/// Turns of each player in the paper's game, which seconds are for.
pub(super) const TURNS: u32 = 789;
const PAPER: f64 = TURNS as f64;

/// Nanoseconds of Δ, and how they are called.
const WINDOWS: [(&str, &str); 8] = [
    ("0", "0"),
    ("10000", "10 us"),
    ("30000", "30 us"),
    ("100000", "100 us"),
    ("300000", "300 us"),
    ("1000000", "1 ms"),
    ("20000000", "20 ms"),
    ("auto", "auto"),
];

/// Turns that are enough at the longest window, and at long ones.
const FEW: f64 = 60.0;
const SOME: f64 = 200.0;

/// The program for two sites, and the turns of each player that are played.
struct Game<'a> {
    program: &'a Path,
    turns: f64,
}

impl Game<'_> {
    /// At long windows fewer are enough.
    fn turns_at(&self, window: &str) -> f64 {
        let enough = match window {
            "20000000" => FEW,
            "300000" | "1000000" => SOME,
            _ => PAPER,
        };
        enough.min(self.turns)
    }
}

pub(super) fn measure(
    programs: &Path,
    turns_of_each: u32,
    rounds: u32,
    document: &mut Document,
) -> Result<()> {
    let game = Game {
        program: &programs.join("battleship-mesh"),
        turns: turns_of_each.into(),
    };
    let sandbox = Sandbox::start(&plan("off", "")?)?;
    let by_window = turns(&sandbox, &game, Place::Own, rounds)?;
    let free = turns(&sandbox, &game, Place::Anywhere, rounds)?;
    let held = turn(&sandbox, &game, "0", true, rounds)?;
    let slept = by_ticks(&game, rounds)?;
    let blasted = by_switches(&game, rounds, document)?;
    pattern(&sandbox, &game, document)?;
    table5(
        programs,
        &game,
        (&by_window, &free),
        (held, &slept, &blasted),
        document,
    )?;
    drop(sandbox);
    windows(programs, rounds, document)?;
    compression(&game, rounds, document)
}

fn plan(compress: &str, experiment: &str) -> Result<Plan> {
    let mut plan = Plan::new(2);
    plan.waiting = Some("auto".to_owned());
    plan.compress = Some(compress.to_owned());
    switch(&mut plan, experiment)?;
    Ok(plan)
}

/// Microseconds of a turn of one player, of several games.
#[derive(Default)]
struct Games(Vec<f64>);

impl Games {
    fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    /// `median us (least to most)`
    fn range(&self) -> String {
        let ends = [self.0.first(), self.0.last()].map(|end| number(*end.unwrap_or(&0.0)));
        format!("{} us ({} to {})", number(self.median()), ends[0], ends[1])
    }
}

/// Games by the name of their window.
type ByWindow = [(&'static str, Games)];

/// Games under all windows, in turn, so that a disturbance hits all of them.
fn turns(
    sandbox: &Sandbox,
    game: &Game<'_>,
    place: Place<'_>,
    rounds: u32,
) -> Result<Vec<(&'static str, Games)>> {
    let mut all = WINDOWS.map(|(_, name)| (name, Games::default()));
    for _ in 0..rounds {
        for ((window, _), (_, games)) in WINDOWS.iter().zip(&mut all) {
            games.0.push(play(sandbox, game, place, (window, false))?);
        }
    }
    for (_, games) in &mut all {
        games.0.sort_by(f64::total_cmp);
    }
    Ok(all.into())
}

/// Games under Δ = 20 ms where windows end at ticks of 10 ms: early, or late.
fn by_ticks(game: &Game<'_>, rounds: u32) -> Result<Vec<(&'static str, Games)>> {
    let sleeps = [
        ("early", "20 ms, ticks, woken early"),
        ("strict", "20 ms, ticks, strict minimum"),
    ];
    let slept = sleeps.map(|(sleep, name)| {
        let sandbox = Sandbox::start(&plan("off", &format!("tick=10ms,sleep={sleep}"))?)?;
        let games = (0..rounds).map(|_| play(&sandbox, game, Place::Own, ("20000000", false)));
        let mut games = Games(games.collect::<Result<_>>()?);
        games.0.sort_by(f64::total_cmp);
        Ok((name, games))
    });
    slept.into_iter().collect()
}

/// Games by the paper's switches, S+B: pages in packets of 1 KiB.
fn by_switches(
    game: &Game<'_>,
    rounds: u32,
    document: &mut Document,
) -> Result<Vec<(&'static str, f64)>> {
    let sandbox = Sandbox::start(&plan("off", SERVER_BLAST)?)?;
    let twenty = turn(&sandbox, game, "20000000", false, rounds)?;
    let zero = turn(&sandbox, game, "0", false, rounds)?;
    let held = turn(&sandbox, game, "0", true, rounds)?;
    drop(sandbox);
    let sandbox = Sandbox::start(&plan("runs", SERVER_BLAST)?)?;
    let packed = turn(&sandbox, game, "0", true, rounds)?;
    document.value("battleship S+B s", held * PAPER / 1e6);
    document.value("battleship S+B+C s", packed * PAPER / 1e6);
    Ok(vec![
        ("Δ = 20 ms", twenty),
        ("Δ = 0", zero),
        ("Δ = 0, write locks", held),
    ])
}

/// The median of some games.
fn turn(sandbox: &Sandbox, game: &Game<'_>, window: &str, hold: bool, rounds: u32) -> Result<f64> {
    let games = (0..rounds).map(|_| play(sandbox, game, Place::Own, (window, hold)));
    let mut games = Games(games.collect::<Result<_>>()?);
    games.0.sort_by(f64::total_cmp);
    Ok(games.median())
}

/// Microseconds of a turn of one player, of one game.
fn play(
    sandbox: &Sandbox,
    game: &Game<'_>,
    place: Place<'_>,
    (window, hold): (&str, bool),
) -> Result<f64> {
    let turns = game.turns_at(window);
    let hold = if hold { "1" } else { "0" };
    let arguments = words(&format!("--yield=1 --turns={turns} --hold={hold}"));
    let environment = [("PAGEMESH_WINDOW", window), ("PAGEMESH_HOLD", hold)];
    let seconds = together(sandbox, place, game.program, &arguments, &environment)?;
    Ok(seconds / turns * 1e6)
}

/// MR12: the events of a turn, by counters.
fn pattern(sandbox: &Sandbox, game: &Game<'_>, document: &mut Document) -> Result<()> {
    let names = [
        ("faults_read", "read faults", 1.0),
        ("faults_upgrade", "write faults, page readable", 1.0),
        ("faults_write", "write faults, page absent", 0.0),
        ("pages_out", "pages sent", 1.0),
        ("invalidations_in", "invalidations", 1.0),
        ("datagrams_out", "datagrams", 0.0),
    ];
    let before = counters(sandbox)?;
    let arguments = words(&format!("--yield=1 --games=3 --turns={}", game.turns));
    together(
        sandbox,
        Place::Own,
        game.program,
        &arguments,
        // With `auto` an upgrade is seldom seen, since the right to store comes with the page.
        &[("PAGEMESH_WINDOW", "0")],
    )?;
    let after = counters(sandbox)?;
    let head = ["IN A TURN OF ONE PLAYER", "OURS", "PAPER"];
    let mut section = Section::new("Fig. 5, the pattern of Battleship", &head);
    for (name, words, paper) in names {
        let of = |counters: &std::collections::BTreeMap<String, u64>| counters.get(name).copied();
        let more = of(&after).unwrap_or(0) - of(&before).unwrap_or(0);
        let ours = more as f64 / (3.0 * 2.0 * game.turns);
        let paper = if paper > 0.0 {
            number(paper)
        } else {
            "-".to_owned()
        };
        section.row([words.to_owned(), number(ours), paper]);
    }
    section.note(format!(
        "{} turns of each player, {} together; the paper's are 789 and 1578. Here of three games.",
        game.turns,
        2.0 * game.turns
    ));
    let trace = super::trace::of(sandbox)?;
    if !trace.is_empty() {
        section.note(trace);
    }
    document.put(12, section);
    Ok(())
}

/// What a reader must know of MR13.
const TABLE_5: &str = "The paper's two sites are S+B; rows that do not say S+B are I, the page in one datagram. OURS s is a turn \
     times 789. Two sites yield, too: each program shares a processor with a daemon here, which would wait for the end of a \
     time slice else. Each has a processor of its own, or runs where the kernel likes (not pinned). Windows take turns. A \
     turn is one player's, of two; the paper gives it so. The paper's Δ = 0 without its guard cannot be shown: a page is \
     used here before it leaves, always. Ticks are those of its timesleep, every 10 ms and not at the same moment on both \
     sites: a window ends at one, up to a tick early, or, slept again until it is over, up to a tick late.";

/// MR13.
fn table5(
    programs: &Path,
    game: &Game<'_>,
    (pinned, free): (&ByWindow, &ByWindow),
    (held, slept, blasted): (f64, &ByWindow, &[(&'static str, f64)]),
    document: &mut Document,
) -> Result<()> {
    let one = programs.join("battleship");
    let head = ["", "OURS s", "A TURN us", "PAPER s", "ITS TURN ms", "RATIO"];
    let mut section = Section::new("Table 5, Battleship", &head);
    let mut row = |name: &str, turn: f64, paper: Option<f64>| {
        let seconds = turn * PAPER / 1e6;
        let theirs =
            |scale: f64| paper.map_or_else(|| "-".to_owned(), |paper| number(paper * scale));
        section.row([
            name.to_owned(),
            number(seconds),
            number(turn),
            theirs(1.0),
            theirs(1000.0 / PAPER / 2.0),
            paper
                .map(|paper| format!("{:.5}", seconds / paper))
                .unwrap_or_default(),
        ]);
    };
    // A time slice each turn: some turns are enough.
    let some = game.turns.min(100.0);
    let plain = on_one_processor(&one, &words(&format!("--turns={some}")))? / some * 1e6;
    row(
        "one site, one processor, no yield",
        plain,
        Some(literature::ONE_SITE),
    );
    let all = format!("--turns={}", game.turns);
    let yielding = on_one_processor(&one, &words(&format!("--yield=1 {all}")))? / game.turns * 1e6;
    row(
        "one site, one processor, yield",
        yielding,
        Some(literature::ONE_SITE_YIELD),
    );
    // Now and then the kernel leaves both on one processor.
    let games: Result<Vec<_>> = (0..5).map(|_| alone(None, &one, &words(&all))).collect();
    let mut games = games?;
    games.sort_by(f64::total_cmp);
    let two = games[games.len() / 2] / game.turns * 1e6;
    row("one site, two processors", two, None);
    for (name, took) in blasted {
        let paper = match *name {
            "Δ = 20 ms" => Some(literature::WINDOW_20_MS),
            "Δ = 0, write locks" => Some(literature::LOCKED),
            _ => None,
        };
        row(&format!("two sites, S+B, {name}"), *took, paper);
    }
    for (name, games) in pinned.iter().chain(slept) {
        row(&format!("two sites, Δ = {name}"), games.median(), None);
    }
    for (name, games) in free {
        let name = format!("two sites, not pinned, Δ = {name}");
        row(&name, games.median(), None);
    }
    row("two sites, Δ = 0, write locks", held, None);
    section.note(format!(
        "{} turns of each player are played, but at most 100 on one processor without yield, {FEW} at Δ = 20 ms, and {SOME} at 300 us \
         and 1 ms.",
        game.turns
    ));
    section.note(TABLE_5);
    for (games, name) in [(pinned, "pinned"), (free, "not pinned")] {
        section.note(compared(games, name, document));
    }
    document.put(13, section);
    document.value("battleship locked s", held * PAPER / 1e6);
    Ok(())
}

/// MB8: Δ = `auto` beside 0 and the paper's 20 ms.
fn compared(games: &ByWindow, name: &str, document: &mut Document) -> String {
    let of = |wanted: &str| {
        let found = games.iter().find(|(window, _)| *window == wanted);
        &found.expect("all windows are measured").1
    };
    let [zero, twenty, auto] = ["0", "20 ms", "auto"].map(of);
    for (window, games) in [("0", zero), ("20 ms", twenty), ("auto", auto)] {
        document.value(
            format!("battleship {name} window {window} us"),
            games.median(),
        );
    }
    format!(
        "A turn, {name}, median of {} games and range: {} at Δ = 0, {} with `auto` ({}), {} at 20 ms ({}).",
        zero.0.len(),
        zero.range(),
        auto.range(),
        percent(zero.median(), auto.median()),
        twenty.range(),
        percent(twenty.median(), auto.median()),
    )
}

/// MB8, at the end of MR13: the cost of Δ for a program that does not need it.
fn windows(programs: &Path, rounds: u32, document: &mut Document) -> Result<()> {
    const TIMES: u32 = 5;
    let matrix = programs.join("matrix-mesh");
    let sandbox = Sandbox::start(&plan("off", "")?)?;
    let arguments = words(&format!("--n=240 --times={TIMES}"));
    let mut notes = Vec::new();
    for (place, name) in [(Place::Own, "pinned"), (Place::Anywhere, "not pinned")] {
        let mut all = [WINDOWS[0], WINDOWS[6], WINDOWS[7]].map(|one| (one, Games::default()));
        for _ in 0..rounds {
            for ((window, _), games) in &mut all {
                let environment = [("PAGEMESH_WINDOW", *window)];
                games
                    .0
                    .push(together(&sandbox, place, &matrix, &arguments, &environment)? * 1e6);
            }
        }
        let all = all.map(|((_, window), mut games)| {
            games.0.sort_by(f64::total_cmp);
            document.value(
                format!("matrix 240 {name} window {window} us"),
                games.median(),
            );
            format!("{} at Δ = {window}", games.range())
        });
        notes.push(format!("{name} {}", all.join(", ")));
    }
    if let Some(section) = document.sections.get_mut(&13) {
        section.note(format!(
            "Matrix multiply, 240 x 240, on two sites, median of {rounds} runs of the median of {TIMES}: {}.",
            notes.join("; ")
        ));
    }
    Ok(())
}

/// Packets a turn and games under each compression, in turn.
fn compressed(game: &Game<'_>, rounds: u32) -> Result<Vec<(&'static str, f64, Games)>> {
    let raise = |compress| Ok((compress, Sandbox::start(&plan(compress, "packet=1024")?)?));
    let sides: Result<Vec<_>> = ["off", "runs", "lz4", "auto"]
        .map(raise)
        .into_iter()
        .collect();
    let sides = sides?;
    let sent = |sandbox| Ok::<_, anyhow::Error>(counters(sandbox)?["datagrams_out"]);
    let mut all: Vec<_> = sides.iter().map(|_| (0, Games::default())).collect();
    for _ in 0..rounds {
        for ((_, sandbox), (packets, games)) in sides.iter().zip(&mut all) {
            let before = sent(sandbox)?;
            games.0.push(play(sandbox, game, Place::Own, ("0", true))?);
            *packets += sent(sandbox)? - before;
        }
    }
    let turns = f64::from(rounds) * 2.0 * game.turns;
    let all = sides
        .into_iter()
        .zip(all)
        .map(|((compress, _), (packets, mut games))| {
            games.0.sort_by(f64::total_cmp);
            (compress, packets as f64 / turns, games)
        });
    Ok(all.collect())
}

/// MR14.
fn compression(game: &Game<'_>, rounds: u32, document: &mut Document) -> Result<()> {
    let head = [
        "",
        "PACKETS A TURN",
        "CHANGE",
        "A TURN us",
        "CHANGE",
        "PAPER: PACKETS",
        "TIME",
    ];
    let mut section = Section::new(
        "Fig. 6, Battleship with compression (I+B, Δ = 0, write locks)",
        &head,
    );
    let mut first = None;
    for (compress, packets, games) in compressed(game, rounds)? {
        let took = games.median();
        let (all, time) = *first.get_or_insert((packets, took));
        let paper = if compress == "runs" {
            ["-54 %", "-21 %"]
        } else {
            ["", ""]
        };
        section.cells(vec![
            compress.to_owned(),
            number(packets),
            percent(all, packets),
            number(took),
            percent(time, took),
            paper[0].to_owned(),
            paper[1].to_owned(),
        ]);
        let name = match compress {
            "off" => "I+B",
            "runs" => "I+B+C",
            other => other,
        };
        document.value(format!("battleship {name} s"), took * PAPER / 1e6);
    }
    section.note(
        "Packets are all there are, requests and acknowledgements too. Games in turn, medians.",
    );
    document.put(14, section);
    Ok(())
}
