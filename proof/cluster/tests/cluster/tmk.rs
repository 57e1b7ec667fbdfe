//! The interface of TreadMarks programs (T1), and the programs in `lab/apps/` (T22).

use crate::c_examples::{build_library, library_of};
use crate::support::{Cluster, Player, finish_all};
use pagemesh_cli::sandbox::Plan;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub(crate) const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// One copy on every node, each a process of one job.
pub(crate) fn run(
    cluster: &Cluster,
    program: &Path,
    job: &str,
    arguments: &str,
) -> Vec<Vec<String>> {
    let start = |node: usize| {
        let mut command = cluster.node(node).command(program);
        command
            .args(arguments.split_whitespace())
            .env("PAGEMESH_JOB", job);
        Player::run(command, &format!("{job} {arguments}"))
    };
    finish_all((0..cluster.nodes().len()).map(start).collect())
}

/// One copy on every node; what the first that fails says.
fn fail(cluster: &Cluster, program: &Path, job: &str, arguments: &str) -> String {
    let start = |node: usize| {
        let mut command = cluster.node(node).command(program);
        command
            .args(arguments.split_whitespace())
            .env("PAGEMESH_JOB", job)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let copies: Vec<_> = (0..cluster.nodes().len()).map(start).collect();
    let ended: Vec<Output> = copies
        .into_iter()
        .map(|copy| copy.wait_with_output().unwrap())
        .collect();
    let failed = ended.iter().find(|output| !output.status.success());
    let failed = failed.expect("one copy fails");
    assert_eq!(failed.status.code(), Some(1));
    String::from_utf8_lossy(&failed.stderr).into_owned()
}

/// The test program, as the compiler makes it with these arguments.
pub(crate) fn compile(directory: &Path, name: &str, compiler: &str, arguments: &[&str]) -> PathBuf {
    let program = directory.join(name);
    let output = Command::new(compiler)
        .args(["-O1", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-I{HERE}/../../crates/capi/include"))
        .arg(format!("-Wl,-rpath,{}", directory.display()))
        .arg("-L")
        .arg(directory)
        .arg("-o")
        .arg(&program)
        .args(arguments)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {arguments:?}\n{words}");
    program
}

fn source() -> String {
    format!("{HERE}/tests/cluster/c/tmk.c")
}

fn compile_plainly(directory: &Path) -> PathBuf {
    compile(directory, "tmk", "cc", &[&source(), "-lpagemesh"])
}

#[test]
fn every_kind_of_program_shares_variables_and_memory() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let directory = library_of(&cluster);
    let archive = build_library().join("libpagemesh.a");
    let (source, archive) = (source(), archive.display().to_string());
    let cpp = [
        "-std=c++98",
        "-x",
        "c++",
        &source,
        "-x",
        "none",
        "-lpagemesh",
    ];
    let kinds: [(&str, &str, &[&str]); 4] = [
        (
            "movable",
            "cc",
            &["-std=gnu99", "-fPIE", "-pie", &source, "-lpagemesh"],
        ),
        (
            "fixed",
            "cc",
            &["-fno-pie", "-no-pie", &source, "-lpagemesh"],
        ),
        (
            "archive",
            "cc",
            &[&source, &archive, "-lpthread", "-ldl", "-lm"],
        ),
        ("cpp", "c++", &cpp),
    ];
    for (kind, compiler, arguments) in kinds {
        let program = compile(&directory, kind, compiler, arguments);
        let said = run(&cluster, &program, kind, "all -- --heap 1G -n 3");
        for (rank, lines) in said.iter().enumerate() {
            assert_eq!(lines, &[format!("process {rank} of 3 is well")], "{kind}");
        }
    }
}

#[test]
fn a_heap_may_be_larger_than_all_memory() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let program = compile_plainly(&library_of(&cluster));
    run(&cluster, &program, "sparse", "sparse");
    // Its name is gone already, so that it goes with its users.
    let left = cluster.mesh(0).list().unwrap();
    assert!(
        left.iter().all(|info| !info.name.starts_with("heap.")),
        "{left:?}"
    );
}

#[test]
fn locks_are_plentiful() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let program = compile_plainly(&library_of(&cluster));
    run(&cluster, &program, "locks", "locks 5000");
}

#[test]
fn some_processes_meet_and_the_others_go_on() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let program = compile_plainly(&library_of(&cluster));
    for policy in ["sequential", "release"] {
        run(
            &cluster,
            &program,
            policy,
            &format!("some -- --policy {policy}"),
        );
    }
}

#[test]
fn processes_add_without_a_lock() {
    let Some(cluster) = Cluster::start(3) else {
        return;
    };
    let program = compile_plainly(&library_of(&cluster));
    for (policy, copies) in [
        ("release", "apart"),
        ("eager", "apart"),
        ("hybrid", "apart"),
        ("sequential", "together"),
    ] {
        let arguments = format!("sums {copies} -- --policy {policy}");
        run(&cluster, &program, policy, &arguments);
    }
}

#[test]
fn mistaken_sums_end_a_program_with_words() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let program = compile_plainly(&library_of(&cluster));
    for (how, expected) in [
        (
            "elsewhere",
            "are not in shared memory; take it from Tmk_malloc",
        ),
        (
            "beyond",
            "are not in shared memory; take it from Tmk_malloc",
        ),
        ("none", "count is how many there are"),
        (
            "twice",
            "are declared already, and have a byte in common with these",
        ),
        ("unaligned", "is no multiple of 8, where a double begins"),
    ] {
        let arguments = format!("sum {how} -- --policy release");
        let words = fail(&cluster, &program, how, &arguments);
        assert!(words.starts_with("Tmk_sum_doubles: "), "{how}: {words}");
        assert!(words.contains(expected), "{how}: {words}");
    }
}

#[test]
fn mistakes_end_a_program_with_words() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let program = compile_plainly(&library_of(&cluster));
    for (arguments, expected) in [
        (
            "stack",
            "Tmk_distribute: this is no global or static variable",
        ),
        ("free", "Tmk_free: 0x"),
        (
            "release",
            "Tmk_lock_release: this process does not hold lock 3",
        ),
        ("crowd", "77 processes cannot meet; the job has 2"),
        ("all -- -n 5", "-n 5 is wanted, but there are 2"),
        ("all -- --policy loose", "there is sequential"),
        (
            "die",
            "the process that held lock 3 ended without releasing it",
        ),
    ] {
        let words = fail(&cluster, &program, arguments, arguments);
        assert!(words.contains(expected), "{arguments}: {words}");
    }
    let mut alone = Command::new(&program);
    alone.env("PAGEMESH_SOCKET", cluster.directory().join("nobody"));
    let output = alone.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        words.contains("Start this program with `pagemesh run -n N"),
        "{words}"
    );
}

#[test]
fn processes_that_disagree_are_told() {
    let Some(cluster) = Cluster::start(2) else {
        return;
    };
    let program = compile_plainly(&library_of(&cluster));
    let start = |node: usize| {
        let mut command = cluster.node(node).command(&program);
        command
            .args(["sparse", "--", "--heap", ["1G", "2G"][node]])
            .env("PAGEMESH_JOB", "differ")
            .stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let (mut first, second) = (start(0), start(1));
    let second = second.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&second.stderr);
    assert!(
        words.contains("of another size or policy than rank 0"),
        "{words}"
    );
    first.kill().unwrap();
    first.wait().unwrap();
}

/// All programs of `lab/apps/`, with problems small enough for a test.
const APPS: [(&str, &str); 12] = [
    ("jacobi", "--rows=50 --columns=700 --iterations=13 --halo=5"),
    ("jacobi", "--rows=50 --columns=700 --iterations=5 --halo=1"),
    ("tsp", "--cities=11 --alone-below=9 --file=DATA/cities.txt"),
    ("quicksort", "--count=20000"),
    ("water", "--molecules=27 --steps=3"),
    ("water", "--molecules=27 --steps=2 --per-lock=1"),
    (
        "ilink",
        "--loci=DATA/backcross.dat --pedigrees=DATA/backcross.ped",
    ),
    (
        "ilink",
        "--loci=DATA/backcross.dat --pedigrees=DATA/backcross.ped --root=10",
    ),
    ("is", "--count=5000 --range=3000 --iterations=3"),
    ("fft", "--edge=16 --iterations=3"),
    ("lu", "--size=96 --block=16"),
    ("barnes", "--bodies=300 --steps=2"),
];

/// Six children of a double backcross of known phase, none of them recombinant:
/// the score is 6 log10(2 (1 - rate)), by hand.
const BACKCROSS: &str = "rate=0.100 lod=1.5316";

/// Where the programs are, built once.
pub(crate) fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let programs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("apps");
        let made = Command::new("make")
            .args(["-s", "-j2", "-C"])
            .arg(format!("{HERE}/../../lab/apps"))
            .arg(format!("LIBRARIES={}", build_library().display()))
            .arg(format!("OUTPUT={}", programs.display()))
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{words}");
        programs
    })
}

#[test]
fn programs_get_what_they_get_alone() {
    check_programs("sequential");
}

#[test]
fn programs_get_what_they_get_alone_where_changes_travel_with_locks() {
    check_programs("release");
}

fn check_programs(policy: &str) {
    let mut plan = Plan::new(3);
    plan.daemon_args.push("--check-races".to_owned());
    let Some(cluster) = Cluster::of(plan) else {
        return;
    };
    let data = format!("{HERE}/../../lab/apps/data");
    for (turn, (name, arguments)) in APPS.into_iter().enumerate() {
        let arguments = arguments.replace("DATA", &data);
        let arguments = format!("{arguments} --check -- --policy {policy}");
        let job = format!("{name}{turn}{policy}");
        let said = run(&cluster, &programs().join(name), &job, &arguments);
        let first = said[0]
            .first()
            .unwrap_or_else(|| panic!("{name} says nothing"));
        assert!(
            first.starts_with(&format!("{name} processes=3 seconds=")),
            "{first}"
        );
        assert!(name != "ilink" || first.ends_with(BACKCROSS), "{first}");
        for node in 0..3 {
            assert_eq!(cluster.counter(node, "races_found"), 0, "{name} has races");
        }
    }
}

/// The document that `pagemesh-bench paper` prints.
pub(crate) fn bench_paper(arguments: &[&str]) -> serde_json::Value {
    bench("paper", arguments)
}

/// The document that a benchmark prints.
pub(crate) fn bench(name: &str, arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_pagemesh-bench-under-test"))
        .args(["-o", "json", name])
        .args(arguments)
        .env(
            "PAGEMESH_PROGRAM",
            env!("CARGO_BIN_EXE_pagemesh-under-test"),
        )
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_paper_is_measured_again() {
    // Takes the place of a cluster, and tells whether there can be one.
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let report = cluster.directory().join("report.md");
    let document = bench_paper(&[
        "treadmarks",
        "--parts=programs",
        "--only=lu",
        "--rounds=1",
        "--policies=sequential,lazier",
        &format!("--programs={}", programs().display()),
        &format!("--report={}", report.display()),
    ]);
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[1]["nodes"], 2);
    assert_eq!(runs[1]["barriers"], 2 + 2 * 16);
    for what in ["seconds", "messages", "bytes", "pages"] {
        assert!(runs[1][what].as_f64().unwrap() > 0.0, "{what}");
    }
    let missing = document["missing"].to_string();
    assert!(missing.contains("policy `lazier`: not built"), "{missing}");
    assert!(
        std::fs::read_to_string(report)
            .unwrap()
            .contains("| lu | sequential | 2 |")
    );
}
