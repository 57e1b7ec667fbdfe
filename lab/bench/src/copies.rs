//! Copies of one program on the nodes of a sandbox, or one alone: started, waited for
//! together, and asked how long they took.

use super::quota::Quota;
use anyhow::{Context, Result, bail, ensure};
use pagemesh_cli::sandbox::Node;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A copy on a node, or one that needs no daemon; in a group of a quota if told one.
pub(super) fn command(
    node: Option<&Node>,
    group: Option<(&Quota, usize)>,
    program: &Path,
) -> Command {
    let (first, words) = match group {
        None => (program.into(), Vec::new()),
        Some((quota, number)) => quota.wrap(number, program),
    };
    let mut command = match node {
        None => Command::new(first),
        Some(node) => node.command(first),
    };
    command.args(words);
    command
}

/// Starts a copy, which ends when this process does.
pub(super) fn start(command: &mut Command, program: &Path) -> Result<Child> {
    ensure!(
        program.exists(),
        "no program {}; build it with `make -C lab/apps`, or say where with --programs",
        program.display()
    );
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    pagemesh_os::netns::die_with_parent(command);
    let started = command.spawn();
    started.with_context(|| format!("cannot start {}", program.display()))
}

/// Waits for all; if one fails, or all take longer than `patience`, none is left.
pub(super) fn finish(mut copies: Vec<Child>, patience: Duration) -> Result<Vec<Output>> {
    let deadline = Instant::now() + patience;
    let mut failed = None;
    loop {
        let mut running = false;
        for (number, copy) in copies.iter_mut().enumerate() {
            match copy.try_wait()? {
                Some(status) if !status.success() => {
                    failed = failed.or_else(|| Some((number, format!("failed ({status})"))));
                }
                Some(_) => {}
                None => running = true,
            }
        }
        if running && Instant::now() > deadline {
            failed = failed.or_else(|| Some((0, "took too long".to_owned())));
        }
        if !running || failed.is_some() {
            break;
        }
        // Seldom: looking takes the copies' processors from them.
        std::thread::sleep(Duration::from_millis(20));
    }
    if failed.is_some() {
        for copy in &mut copies {
            // It may have ended already.
            let _ = copy.kill();
        }
    }
    let outputs: std::io::Result<Vec<_>> =
        copies.into_iter().map(Child::wait_with_output).collect();
    let outputs = outputs?;
    if let Some((number, how)) = failed {
        let words = String::from_utf8_lossy(&outputs[number].stderr);
        bail!("copy {number} {how}: {}", words.trim());
    }
    Ok(outputs)
}

/// The seconds of a report: `NAME processes=N seconds=S RESULT`.
pub(super) fn seconds(output: &Output) -> Result<f64> {
    let said = String::from_utf8_lossy(&output.stdout);
    let rest = said.split(" seconds=").nth(1);
    let text = rest.and_then(|rest| rest.split_whitespace().next());
    let seconds = text.and_then(|text| text.parse().ok());
    seconds.with_context(|| format!("a program says no time: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let program = Path::new("/bin/sh");
        let mut command = command(None, None, program);
        start(command.args(["-c", script]), program).unwrap()
    }

    #[test]
    fn reports_are_read() {
        let said = |text: &str| finish(vec![shell(text)], Duration::from_secs(20)).unwrap();
        let output = said("echo jacobi processes=2 seconds=0.250000 sum=1.5");
        assert_eq!(seconds(&output[0]).unwrap(), 0.25);
        assert!(seconds(&said("echo jacobi processes=2")[0]).is_err());
        assert!(seconds(&said("true")[0]).is_err());
    }

    #[test]
    fn when_one_fails_none_is_left() {
        let before = Instant::now();
        let copies = vec![shell("exec sleep 60"), shell("echo words >&2; exit 3")];
        let why = finish(copies, Duration::from_secs(50)).unwrap_err();
        assert!(why.to_string().contains("copy 1 failed"), "{why}");
        assert!(why.to_string().ends_with("words"), "{why}");
        let why = finish(vec![shell("exec sleep 60")], Duration::from_millis(50)).unwrap_err();
        assert!(why.to_string().contains("took too long"), "{why}");
        assert!(before.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_missing_program_is_named() {
        let program = Path::new("/nonexistent/jacobi");
        let why = start(&mut command(None, None, program), program).unwrap_err();
        assert!(why.to_string().contains("make -C lab/apps"), "{why}");
    }
}
