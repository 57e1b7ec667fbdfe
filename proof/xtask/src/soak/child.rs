//! Tests as processes: built once, run one at a time, ended when they hang.

use super::plan::Test;
use anyhow::{Context as _, Result, ensure};
use pagemesh_os::netns::make_mortal;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where tests come from: package, and the test program or `lib`.
const PROGRAMS: [(&str, &str); 3] = [
    ("pagemesh-tests", "cluster"),
    ("pagemesh-daemon", "it"),
    ("pagemesh-wire", "lib"),
];

/// Of packages other than that of the clusters, tests with this in their names.
const HOSTILE: &str = "hostile";

/// Longer than any test takes on a busy machine; most end themselves before.
const LIMIT: Duration = Duration::from_secs(400);

/// Variables of tests: how long stress lasts, how many litmus rounds, how many hostile inputs.
/// `PAGEMESH_STRESS_SEED` and `PAGEMESH_KEEP` are added.
const TOLD: [(&str, &str); 3] = [
    ("PAGEMESH_STRESS_SECONDS", "15"),
    ("PAGEMESH_LITMUS_ROUNDS", "10000"),
    ("PROPTEST_CASES", "200000"),
];

/// The programs that were built.
pub(super) struct Programs {
    paths: Vec<PathBuf>,
    tests: Vec<Test>,
    target: PathBuf,
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Well.
    Good,
    /// Because we were told to end.
    Stopped,
    /// With a fault.
    Bad(String),
}

/// A test that runs.
pub(super) struct Running {
    child: Child,
    started: Instant,
}

impl Programs {
    /// Builds all of them, and asks which tests they have.
    pub(super) fn build() -> Result<Self> {
        let built = build()?;
        let mut paths = Vec::new();
        let mut tests = Vec::new();
        for (number, (package, what)) in PROGRAMS.into_iter().enumerate() {
            let path = find(&built, package, what)?;
            let listed = list(&path)?;
            let wanted = |name: &String| what != "lib" || name.contains(HOSTILE);
            tests.extend(listed.into_iter().filter(wanted).map(|name| Test {
                name,
                program: number,
            }));
            paths.push(path);
        }
        // TARGET/debug/deps/PROGRAM
        let target = paths[0].ancestors().nth(3).unwrap_or(Path::new("target"));
        Ok(Self {
            target: target.to_owned(),
            paths,
            tests,
        })
    }

    /// Where cargo builds.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// All tests.
    pub(super) fn tests(&self) -> &[Test] {
        &self.tests
    }

    /// Starts a test, which keeps its output in `directory`.
    pub(super) fn start(&self, test: &Test, seed: u64, directory: &Path) -> Result<Running> {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let log = File::create(directory.join("log")).context("cannot write a log")?;
        let mut command = Command::new(&self.paths[test.program]);
        command
            .args(["--exact", &test.name, "--nocapture"])
            .envs(TOLD)
            .env("PAGEMESH_STRESS_SEED", seed.to_string())
            .env("PAGEMESH_KEEP", directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // The soak blocks the signals that it waits for; processes of a test must be ended by them.
        make_mortal(&mut command);
        Ok(Running {
            child: command.spawn().context("a test does not start")?,
            started: Instant::now(),
        })
    }

    /// The line that runs a test again.
    pub(super) fn again(&self, test: &Test, seed: u64) -> String {
        let (package, what) = PROGRAMS[test.program];
        let what = if what == "lib" {
            "--lib".to_owned()
        } else {
            format!("--test {what}")
        };
        let told: Vec<_> = TOLD
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        format!(
            "PAGEMESH_STRESS_SEED={seed} {} cargo test -p {package} {what} -- --exact {} --nocapture",
            told.join(" "),
            test.name
        )
    }
}

impl Running {
    /// Whether it has ended.
    pub(super) fn look(&mut self) -> Result<Option<End>> {
        if let Some(status) = self.child.try_wait()? {
            let good = status.success();
            return Ok(Some(if good {
                End::Good
            } else {
                End::Bad(status.to_string())
            }));
        }
        if self.started.elapsed() > LIMIT {
            self.stop();
            return Ok(Some(End::Bad(format!("no end within {LIMIT:?}"))));
        }
        Ok(None)
    }

    /// Ends it. Its daemons and programs die with it.
    pub(super) fn stop(&mut self) -> End {
        let _ = self.child.kill();
        let _ = self.child.wait();
        End::Stopped
    }
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
}

/// Whether cargo speaks of this test program of a package, or of the tests of its library.
fn is_target(target: &Value, what: &str) -> bool {
    match what {
        "lib" => target["kind"][0] == "lib",
        test => target["kind"][0] == "test" && target["name"] == test,
    }
}

/// Builds the test programs of all packages, as `make test` does: a package by itself gets other
/// features, and much would be compiled again. Returns what cargo says that it built.
fn build() -> Result<Vec<Value>> {
    let mut command = cargo();
    command.args(["test", "--no-run", "--locked", "--workspace"]);
    command.arg("--message-format=json-render-diagnostics");
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .context("cargo does not start")?;
    ensure!(
        output.status.success(),
        "the test programs cannot be built: cargo has said why"
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let artifacts = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    Ok(artifacts
        .filter(|artifact: &Value| artifact["profile"]["test"] == true)
        .collect())
}

/// The path of one test program.
fn find(built: &[Value], package: &str, what: &str) -> Result<PathBuf> {
    let is_it = |artifact: &&Value| {
        let id = artifact["package_id"].as_str().unwrap_or_default();
        let of = id
            .rsplit(['/', '#'])
            .any(|part| part.split('@').next() == Some(package));
        of && is_target(&artifact["target"], what)
    };
    let found = built.iter().find(is_it);
    let path = found.and_then(|artifact| artifact["executable"].as_str());
    path.map(PathBuf::from)
        .with_context(|| format!("cargo does not say where it put the tests `{what}` of {package}"))
}

/// The tests of a program that are not ignored.
fn list(program: &Path) -> Result<Vec<String>> {
    let ask = |more: &[&str]| -> Result<Vec<String>> {
        let output = Command::new(program)
            .args(["--list", "--format", "terse"])
            .args(more)
            .output()
            .context("a test program does not start")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    };
    let ignored = ask(&["--ignored"])?;
    let mut all = ask(&[])?;
    all.retain(|name| !ignored.contains(name));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagemesh_os::signals::Signals;
    use serde_json::json;

    fn artifact(package: &str, kind: &str, name: &str) -> Value {
        json!({
            "package_id": package,
            "target": {"kind": [kind], "name": name},
            "executable": format!("/built/{name}"),
        })
    }

    #[test]
    fn test_programs_are_found_by_package_and_name() {
        let built = [
            artifact(
                "path+file:///mesh/crates/wire#pagemesh-wire@0.1.0",
                "lib",
                "pagemesh_wire",
            ),
            artifact(
                "path+file:///mesh/crates/daemon#pagemesh-daemon@0.1.0",
                "lib",
                "pagemesh_daemon",
            ),
            artifact(
                "path+file:///mesh/crates/os#pagemesh-os@0.1.0",
                "test",
                "it",
            ),
            artifact(
                "path+file:///mesh/crates/daemon#pagemesh-daemon@0.1.0",
                "test",
                "it-too",
            ),
            artifact(
                "path+file:///mesh/proof/pagemesh-tests#0.1.0",
                "test",
                "cluster",
            ),
        ];
        let path =
            |package, what| find(&built, package, what).map(|path| path.display().to_string());
        assert_eq!(
            path("pagemesh-wire", "lib").unwrap(),
            "/built/pagemesh_wire"
        );
        assert_eq!(path("pagemesh-tests", "cluster").unwrap(), "/built/cluster");
        assert!(
            path("pagemesh-daemon", "it").is_err(),
            "that is of another package"
        );
    }

    /// A soak that begins with an hour's build must not end with a name that is not there.
    #[test]
    fn the_packages_have_these_test_programs() {
        let mut command = cargo();
        command.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
        let said = command.output().unwrap().stdout;
        let said: Value = serde_json::from_slice(&said).unwrap();
        let packages = said["packages"].as_array().unwrap();
        for (name, what) in PROGRAMS {
            let package = packages.iter().find(|package| package["name"] == name);
            let targets = package.expect(name)["targets"].as_array().unwrap();
            let is_there = targets.iter().any(|target| is_target(target, what));
            assert!(is_there, "{name}: {what}");
        }
    }

    #[test]
    fn what_a_test_starts_can_be_interrupted() {
        let _signals = Signals::catch(&[2, 15]).unwrap();
        let mut command = Command::new("grep");
        command.args(["SigBlk", "/proc/self/status"]);
        make_mortal(&mut command);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(said.trim(), "SigBlk:\t0000000000000000");
    }
}
