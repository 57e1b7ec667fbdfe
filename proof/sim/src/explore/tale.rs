//! A path as a transcript that can be kept and played again.
//!
//! ```text
//! explore nodes=2 home=n1 pages=1 manager=dynamic lost=1
//! thread n1 write 0
//! thread n2 read 0
//! run t1
//! hear n1
//! run t2
//! hear n2
//!   n2->n1 Ask Read a:0 for n2
//! lose n2->n1
//! tick n2
//! ```

use super::lab::{Lab, PacketId};
use super::setting::Setting;
use super::state::{State, Step};
use crate::check::Violation;
use crate::transcript::say;
use pagemesh_wire::peer::Subject;
use std::collections::VecDeque;
use std::fmt::{self, Write};

/// Describes the steps along a path.
pub(super) fn tell(setting: &Setting, path: &[Step]) -> String {
    let steps: Vec<String> = path.iter().map(Step::to_string).collect();
    let script = format!("{setting}{}\n", steps.join("\n"));
    match play(&script) {
        Ok(tale) => tale,
        Err((told, _)) => told,
    }
}

/// Plays a transcript. Returns it with everything indented as it happened now.
///
/// # Errors
/// If a line makes no sense or an invariant breaks; the text says where.
pub fn replay(script: &str) -> Result<String, String> {
    play(script).map_err(|(told, why)| format!("{told}{why}"))
}

fn play(script: &str) -> Result<String, (String, String)> {
    let is_setting = |line: &&str| line.starts_with("explore") || line.starts_with("thread");
    let settings: Vec<&str> = script.lines().filter(is_setting).collect();
    let setting = Setting::parse(&settings.join("\n")).map_err(|why| (String::new(), why))?;
    let mut lab = Lab::new(setting);
    let mut told = String::new();
    let broken = |told: &str, why: Violation| (told.to_owned(), why.to_string());
    let mut state = State::first(&mut lab).map_err(|why| broken(&told, why))?;
    for line in script.lines().filter(|line| !line.starts_with("  ")) {
        let _ = writeln!(told, "{line}");
        if is_setting(&line) || line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line == "read out" {
            state.read_out(&mut lab).map_err(|why| broken(&told, why))?;
            continue;
        }
        let step = step(line).filter(|step| state.steps().contains(step));
        let Some(step) = step else {
            return Err((told, format!("'{line}' cannot happen now\n")));
        };
        let before = state.wires.clone();
        let next = state.after(&mut lab, step);
        let next = next.map_err(|why| broken(&told, why))?;
        state = next.unwrap_or(state);
        said(&lab, &before, &state.wires, &mut told);
    }
    Ok(told)
}

/// Describes the datagrams of a step.
fn said(lab: &Lab, before: &[VecDeque<PacketId>], after: &[VecDeque<PacketId>], told: &mut String) {
    for (before, after) in before.iter().zip(after) {
        let left = (0..=before.len()).find(|taken| {
            let rest = before.iter().skip(*taken);
            after.len() + taken >= before.len() && rest.eq(after.iter().take(before.len() - taken))
        });
        let old = before.len() - left.unwrap_or_default();
        for packet in after.iter().skip(old) {
            let packet = lab.packet(*packet);
            let (from, to) = (packet.from + 1, packet.to + 1);
            let _ = writeln!(told, "  n{from}->n{to} {}", say(&packet.message, &name));
        }
    }
}

fn name(subject: Subject) -> String {
    match subject {
        Subject::Page { page, .. } => format!("a:{page}"),
        Subject::Lock(key) => format!("a/{}", key.number),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |from: &u8, to: &u8| format!("n{}->n{}", from + 1, to + 1);
        match self {
            Self::Run(thread) => write!(f, "run t{}", thread + 1),
            Self::Hear(host) => write!(f, "hear n{}", host + 1),
            Self::Deliver(from, to) => write!(f, "deliver {}", path(from, to)),
            Self::Lose(from, to) => write!(f, "lose {}", path(from, to)),
            Self::Twice(from, to) => write!(f, "twice {}", path(from, to)),
            Self::Hold(from, to) => write!(f, "hold {}", path(from, to)),
            Self::Late(number) => write!(f, "late d{}", number + 1),
            Self::Wait => f.write_str("wait"),
            Self::Tick(host) => write!(f, "tick n{}", host + 1),
            Self::Crash(host) => write!(f, "crash n{}", host + 1),
            Self::DeclareDead(host) => write!(f, "declare_dead n{}", host + 1),
        }
    }
}

/// The step a line says.
fn step(line: &str) -> Option<Step> {
    let (what, whom) = line.split_once(' ').unwrap_or((line, ""));
    let number = |text: &str| text.get(1..)?.parse::<u8>().ok()?.checked_sub(1);
    let path = || {
        let (from, to) = whom.split_once("->")?;
        Some((number(from)?, number(to)?))
    };
    Some(match what {
        "run" => Step::Run(number(whom)?),
        "hear" => Step::Hear(number(whom)?),
        "deliver" => path().map(|(from, to)| Step::Deliver(from, to))?,
        "lose" => path().map(|(from, to)| Step::Lose(from, to))?,
        "twice" => path().map(|(from, to)| Step::Twice(from, to))?,
        "hold" => path().map(|(from, to)| Step::Hold(from, to))?,
        "late" => Step::Late(number(whom)?),
        "wait" => Step::Wait,
        "tick" => Step::Tick(number(whom)?),
        "crash" => Step::Crash(number(whom)?),
        "declare_dead" => Step::DeclareDead(number(whom)?),
        _ => return None,
    })
}
