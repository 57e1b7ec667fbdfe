//! The examples of the C interface, on two nodes.

use crate::support::{A_WHILE, Cluster, Player, eventually, finish_all};
use std::path::{Path, PathBuf};
use std::process::Command;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn every_example_runs_on_two_nodes() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let directory = library_of(&cluster);
    for source in examples() {
        let program = directory.join(source.file_stem().unwrap());
        compile(&source, &directory, &program);
        let start = |node: usize| {
            let mut command = cluster.node(node).command(&program);
            // A job of its own: its memory begins with zeros.
            command
                .env("LD_LIBRARY_PATH", &directory)
                .env("PAGEMESH_JOB", program.file_name().unwrap());
            Player::run(command, &source.display().to_string())
        };
        let said = finish_all(vec![start(0), start(1)]);
        assert!(
            said.iter().any(|lines| !lines.is_empty()),
            "{}",
            source.display()
        );
    }
}

#[test]
fn the_library_guards_the_memory_of_segments() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let memory = &cluster.share("guarded", 4)[0];
    let directory = library_of(&cluster);
    let program = directory.join("guard");
    compile(
        Path::new(HERE).join("tests/cluster/c/guard.c").as_path(),
        &directory,
        &program,
    );
    for node in 0..2 {
        let mut command = cluster.node(node).command(&program);
        command.env("LD_LIBRARY_PATH", &directory);
        let said = finish_all(vec![Player::run(command, "guard")]);
        assert_eq!(said[0], ["guarded"]);
    }
    assert_eq!(crate::support::load(memory, 0), 6);
}

#[test]
fn a_c_program_says_what_it_will_need() {
    const PAGES: u64 = 64;
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let memory = &cluster.share("advised", PAGES)[0];
    for page in 0..PAGES {
        crate::support::store(memory, page as usize * 4096, page);
    }
    let directory = library_of(&cluster);
    let program = directory.join("advise");
    compile(
        Path::new(HERE).join("tests/cluster/c/advise.c").as_path(),
        &directory,
        &program,
    );
    let mut command = cluster.node(1).command(&program);
    command.env("LD_LIBRARY_PATH", &directory);
    let mut player = Player::run(command, "advise");
    let faults = || cluster.counter(1, "faults_read");
    player.expect("mapped");
    let came = || cluster.counter(1, "came_ahead");
    let (before_it, before) = (came(), faults());
    assert_eq!(player.ask("go"), "announced");
    eventually("most of what will be needed comes", || {
        came() - before_it > PAGES / 2
    });
    // The daemon does not repeat a request for pages ahead, so one that is lost leaves them out.
    eventually("all comes that will", || {
        let so_far = came();
        std::thread::sleep(A_WHILE);
        came() - before_it >= PAGES || came() == so_far
    });
    let missing = PAGES.saturating_sub(came() - before_it);
    assert_eq!(player.ask("go"), "read");
    let fetched = faults() - before;
    assert!(
        fetched <= missing,
        "{fetched} faults, {missing} pages missing"
    );
    let before = faults();
    assert_eq!(player.ask("go"), "dropped");
    assert_eq!(player.ask("go"), "read again");
    assert_eq!(faults(), before + 2, "what was dropped was fetched again");
    player.tell("go");
}

#[test]
fn e19_a_c_program_hands_a_segment_to_another_one() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let directory = library_of(&cluster);
    let program = directory.join("capability");
    let source = Path::new(HERE).join("tests/cluster/c/capability.c");
    compile(&source, &directory, &program);
    let mut command = cluster.node(1).command(&program);
    command.env("LD_LIBRARY_PATH", &directory);
    let said = finish_all(vec![Player::run(command, "capability")]);
    assert_eq!(said[0], ["handed over"]);
}

#[test]
fn c_programs_share_a_segment_of_policy_release() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let directory = library_of(&cluster);
    let program = directory.join("release");
    compile(
        Path::new(HERE).join("tests/cluster/c/release.c").as_path(),
        &directory,
        &program,
    );
    let start = |node: usize| {
        let mut command = cluster.node(node).command(&program);
        command.arg(node.to_string());
        command.env("LD_LIBRARY_PATH", &directory);
        Player::run(command, "release")
    };
    for said in crate::support::finish_all((0..2).map(start).collect()) {
        assert_eq!(said, ["100"]);
    }
    assert!(
        cluster.counter(0, "diffs_made") > 0,
        "changes travel as diffs"
    );
}

/// A directory with the library, as the dynamic linker looks for it.
pub(crate) fn library_of(cluster: &Cluster) -> PathBuf {
    let libraries = build_library();
    let directory = cluster.directory().join("lib");
    std::fs::create_dir(&directory).unwrap();
    for name in ["libpagemesh.so", "libpagemesh.so.0"] {
        std::os::unix::fs::symlink(libraries.join("libpagemesh.so"), directory.join(name)).unwrap();
    }
    directory
}

fn examples() -> Vec<PathBuf> {
    let directory = format!("{HERE}/../../crates/capi/examples");
    let entries = std::fs::read_dir(directory).unwrap();
    let mut all: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    all.sort();
    assert!(!all.is_empty());
    all
}

/// Where the library is. Cargo does not build it for this test by itself, since
/// Rust cannot link it.
pub(crate) fn build_library() -> PathBuf {
    let player = Path::new(env!("CARGO_BIN_EXE_pagemesh-player"));
    let directory = player.parent().unwrap();
    if pagemesh_tests::libraries_are_built() {
        let library = directory.join("libpagemesh.so");
        assert!(library.exists(), "PAGEMESH_BUILT, but no {library:?}");
        return directory.to_owned();
    }
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    build
        .args([
            "build",
            "--quiet",
            "--package",
            "pagemesh-capi",
            "--target-dir",
        ])
        .arg(directory.parent().unwrap())
        .current_dir(HERE);
    if directory.ends_with("release") {
        build.arg("--release");
    }
    run(&mut build);
    directory.to_owned()
}

fn compile(source: &Path, libraries: &Path, program: &Path) {
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=c99", "-O1", "-Wall", "-Werror"])
        .arg(format!("-I{HERE}/../../crates/capi/include"))
        .arg(source)
        .arg("-o")
        .arg(program)
        .arg("-L")
        .arg(libraries)
        .arg("-lpagemesh");
    run(&mut compiler);
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{words}");
}
