//! `pagemesh cache`: nodes that cache files for each other. (C4: G3 to G6, G13, G14, G16, G18 to
//! G20.)

use crate::support::{Cluster, PAGE, eventually};
use pagemesh_cli::sandbox::{Netns, Plan};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Deserializer, Value};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Files that were changed less than this long ago are not cached.
const SETTLED: Duration = Duration::from_millis(3_200);

fn cluster(nodes: usize) -> Option<Cluster> {
    cluster_in(nodes, Netns::default())
}

fn cluster_in(nodes: usize, netns: Netns) -> Option<Cluster> {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: there is no /dev/fuse (modprobe fuse)");
        return None;
    }
    if !rustix::process::geteuid().is_root() && !has("fusermount3") {
        return None;
    }
    let mut plan = Plan::new(nodes);
    plan.daemon_args = ["--memory", "1G", "--lend", "16M"]
        .map(str::to_owned)
        .to_vec();
    plan.netns = netns;
    Cluster::of(plan)
}

/// Whether this program is installed.
fn has(command: &str) -> bool {
    let there = Command::new(command).arg("--version").output().is_ok();
    if !there {
        eprintln!("skipped: there is no {command}");
    }
    there
}

/// A folder for a test; removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("pagemesh-cache-{name}-{id}"));
        fs::create_dir_all(folder.join("dir")).unwrap();
        Self(folder)
    }

    fn dir(&self) -> PathBuf {
        self.0.join("dir")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running `pagemesh cache` of a node.
struct Cached {
    child: Child,
    place: PathBuf,
}

impl Cached {
    fn start(cluster: &Cluster, node: usize, folder: &Folder, arguments: &[&str]) -> Self {
        let place = folder.0.join(format!("node{node}"));
        fs::create_dir_all(&place).unwrap();
        let mut command = command(cluster, node, &folder.dir(), &place);
        command.args(arguments).stderr(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut documents =
            Deserializer::from_reader(child.stdout.as_mut().unwrap()).into_iter::<Value>();
        let began = documents.next().expect("it says that it began").unwrap();
        assert_eq!(began["schema_version"], 1);
        assert_eq!(began["scope"], "host");
        Self { child, place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Ends it as Ctrl-C does; returns what it counted.
    fn end(mut self) -> Value {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let mut text = String::new();
        let mut out = self.child.stdout.take().unwrap();
        out.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        assert!(
            fs::read_dir(&self.place).unwrap().next().is_none(),
            "unmounted"
        );
        serde_json::from_str(&text).expect(&text)
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let _ = Command::new("umount").arg("-l").arg(&self.place).output();
        }
    }
}

fn command(cluster: &Cluster, node: usize, dir: &Path, place: &Path) -> Command {
    let program = env!("CARGO_BIN_EXE_pagemesh-under-test");
    let mut command = cluster.node(node).command(program);
    command.args(["cache", "-o", "json"]).arg(dir).arg(place);
    command
}

/// Contents that nothing else has.
fn contents(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Makes files of these lengths; returns their names.
fn make_tree(dir: &Path, lengths: impl IntoIterator<Item = usize>) -> Vec<String> {
    let make = |(number, length): (usize, usize)| {
        let folder = format!("d{}", number % 5);
        fs::create_dir_all(dir.join(&folder)).unwrap();
        let name = format!("{folder}/f{number}");
        fs::write(dir.join(&name), contents(number as u64, length)).unwrap();
        name
    };
    lengths.into_iter().enumerate().map(make).collect()
}

fn check_tree(cached: &Cached, names: &[String]) {
    check_from(cached, names, 0);
}

/// Reads the files from this one on.
fn check_from(cached: &Cached, names: &[String], first: usize) {
    for (number, name) in names.iter().enumerate().skip(first) {
        let read = fs::read(cached.path(name)).unwrap();
        assert!(
            read == contents(number as u64, read.len()) && !read.is_empty(),
            "{name}"
        );
    }
}

fn number(counted: &Value, name: &str) -> u64 {
    counted[name].as_u64().unwrap()
}

#[test]
fn g18_a_node_reads_what_its_neighbour_has_read_and_leaves_the_directory_alone() {
    let Some(cluster) = cluster(3) else { return };
    let folder = Folder::new("tree");
    // 64 MiB, in files of other lengths than whole pages.
    let names = make_tree(&folder.dir(), (0..64).map(|n| (1 << 20) + 37 * n));
    thread::sleep(SETTLED);
    let [one, two, three] = [0, 1, 2].map(|node| Cached::start(&cluster, node, &folder, &[]));
    check_tree(&one, &names);
    let began = Instant::now();
    check_tree(&two, &names);
    eprintln!("64 MiB from a neighbour in {:?}", began.elapsed());
    check_tree(&three, &names);
    let (first, second, third) = (one.end(), two.end(), three.end());
    let pages = 64 * (1 << 20) / PAGE;
    assert!(number(&first, "pages_from_directory") >= pages, "{first}");
    for counted in [second, third] {
        assert!(
            number(&counted, "pages_from_nodes") >= pages * 9 / 10,
            "{counted}"
        );
        assert!(
            number(&counted, "bytes_from_directory") <= (64 << 20) / 10,
            "{counted}"
        );
    }
    let out: u64 = (0..3)
        .map(|node| cluster.counter(node, "file_pages_out"))
        .sum();
    assert!(out >= 2 * pages * 9 / 10, "{out}");
}

/// The caches of two views are smaller than the files; a third node lends and has no view.
#[test]
fn g3_the_last_copy_goes_to_a_node_that_lends_and_comes_back_from_there() {
    let Some(cluster) = cluster(3) else { return };
    let folder = Folder::new("last");
    let names = make_tree(&folder.dir(), (0..16).map(|n| (1 << 20) + n));
    let pages = 16 * (1 << 20) / PAGE;
    thread::sleep(SETTLED);
    let local = &["--local", "4M"][..];
    let [one, two] = [0, 1].map(|node| Cached::start(&cluster, node, &folder, local));
    check_tree(&one, &names);
    let sum = |name| (0..3).map(|node| cluster.counter(node, name)).sum::<u64>();
    let kept = sum("file_pages_kept");
    assert!(cluster.counter(2, "file_pages_kept") > 0);
    check_tree(&two, &names);
    drop(one.end());
    let counted = two.end();
    let came = number(&counted, "pages_from_nodes") + number(&counted, "pages_here");
    // Those that left before the first epoch had begun were dropped.
    assert!(
        kept > pages / 3 && came > pages / 2,
        "{kept} kept, {came} of {pages} came: {counted}"
    );
}

#[test]
fn g13_a_file_that_is_changed_on_one_node_is_seen_on_another_when_it_is_opened_next() {
    let Some(cluster) = cluster(3) else { return };
    let folder = Folder::new("coherence");
    let length = 200_000;
    fs::write(folder.dir().join("file"), contents(0, length)).unwrap();
    thread::sleep(SETTLED);
    let all = [0, 1, 2].map(|node| Cached::start(&cluster, node, &folder, &[]));
    for round in 0..12_u64 {
        for cached in &all {
            let read = fs::read(cached.path("file")).unwrap();
            assert!(read == contents(round, length), "round {round}");
        }
        // The same length: only the times tell.
        let writer = &all[round as usize % 3];
        let file = File::options()
            .write(true)
            .open(writer.path("file"))
            .unwrap();
        file.write_all_at(&contents(round + 1, length), 0).unwrap();
        drop(file);
        if round % 4 == 3 {
            thread::sleep(SETTLED);
        }
    }
    // Shorter, and changed behind all views.
    fs::write(folder.dir().join("file"), "short").unwrap();
    for cached in &all {
        assert_eq!(fs::read_to_string(cached.path("file")).unwrap(), "short");
        assert_eq!(fs::metadata(cached.path("file")).unwrap().len(), 5);
    }
    all.into_iter().for_each(|cached| drop(cached.end()));
}

#[test]
fn g20_a_killed_node_takes_no_page_with_it_and_the_directory_moves() {
    let Some(cluster) = cluster(3) else { return };
    let folder = Folder::new("killed");
    let names = make_tree(&folder.dir(), (0..16).map(|n| (1 << 20) + n));
    let pages = 16 * (1 << 20) / PAGE;
    thread::sleep(SETTLED);
    let [one, two, three] = [0, 1, 2].map(|node| Cached::start(&cluster, node, &folder, &[]));
    check_tree(&two, &names);
    check_tree(&three, &names);
    // It caches every page, and has a third of the directory.
    cluster.kill(1).unwrap();
    // While nobody knows that it is dead: some pages come from the directory of files.
    check_tree(&one, &names[..2]);
    // Its own view goes on without a daemon.
    check_tree(&two, &names);
    let control = cluster.mesh(0);
    eventually("the node is declared dead", || {
        let status = control.status().unwrap();
        status.dead == 1
    });
    thread::sleep(Duration::from_millis(500));
    let before = cluster.counter(0, "file_pages_in");
    check_from(&one, &names, 2);
    let came = cluster.counter(0, "file_pages_in") - before;
    assert!(
        came >= pages * 14 / 16 * 9 / 10,
        "{came} of {pages} from the node that is left"
    );
    drop((one.end(), two.end(), three.end()));
}

#[test]
fn g19_a_node_that_joins_takes_over_a_part_of_the_directory() {
    let Some(cluster) = cluster_in(2, Netns::Never) else {
        return;
    };
    let folder = Folder::new("joined");
    let names = make_tree(&folder.dir(), (0..16).map(|n| (1 << 20) + n));
    let pages = 16 * (1 << 20) / PAGE;
    thread::sleep(SETTLED);
    let [one, two] = [0, 1].map(|node| Cached::start(&cluster, node, &folder, &[]));
    check_tree(&one, &names);
    let joiner = crate::support::Joiner::start(&cluster, "late", &[]);
    eventually("it is a member", || joiner.is_member());
    thread::sleep(Duration::from_millis(500));
    check_tree(&two, &names);
    drop(one.end());
    let counted = two.end();
    assert!(
        number(&counted, "pages_from_nodes") >= pages * 9 / 10,
        "{counted}"
    );
}

/// Runs it in a folder, and returns what it printed.
fn run(place: &Path, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.current_dir(place).args(arguments);
    for (name, value) in [("NAME", "a"), ("EMAIL", "a@b.example")] {
        command.env(format!("GIT_AUTHOR_{name}"), value);
        command.env(format!("GIT_COMMITTER_{name}"), value);
    }
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = String::from_utf8_lossy(&stdout).into_owned();
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {text}{errors}");
    text
}

#[test]
fn programs_work_in_a_cached_directory() {
    let Some(cluster) = cluster(2) else { return };
    let folder = Folder::new("programs");
    let cached = Cached::start(&cluster, 0, &folder, &[]);
    let other = Cached::start(&cluster, 1, &folder, &[]);
    let place = cached.place.clone();
    fs::write(
        cached.path("hello.c"),
        "#include <stdio.h>\nint main(void) { puts(\"hello\"); }\n",
    )
    .unwrap();
    if has("cc") {
        run(&place, "cc", &["-o", "hello", "hello.c"]);
        assert_eq!(run(&place, "./hello", &[]), "hello\n");
        // Its pages are mapped by another node.
        assert_eq!(run(&other.place, "./hello", &[]), "hello\n");
    }
    if has("git") {
        run(&place, "git", &["init", "-q", "repository"]);
        let repository = place.join("repository");
        fs::write(repository.join("file"), contents(1, 100_000)).unwrap();
        run(&repository, "git", &["add", "."]);
        run(&repository, "git", &["commit", "-q", "-m", "first"]);
        run(&repository, "git", &["fsck", "--strict"]);
        run(&repository, "git", &["gc", "-q"]);
        assert_eq!(run(&repository, "git", &["status", "--short"]), "");
        run(&other.place, "git", &["clone", "-q", "repository", "copy"]);
        assert_eq!(
            fs::read(other.path("copy/file")).unwrap(),
            contents(1, 100_000)
        );
    }
    if has("sqlite3") {
        let make = "create table t (a integer primary key, b text); with recursive n(i) as \
                    (select 1 union all select i + 1 from n where i < 5000) \
                    insert into t select i, hex(randomblob(50)) from n;";
        run(&place, "sqlite3", &["data.db", make]);
        for mode in [
            "pragma mmap_size = 100000000;",
            "pragma journal_mode = wal;",
        ] {
            let look = format!(
                "{mode} update t set b = b || 'x' where a % 7 = 0; pragma integrity_check; select count(*) from t;"
            );
            let said = run(&place, "sqlite3", &["data.db", &look]);
            assert!(said.ends_with("ok\n5000\n"), "{said}");
        }
        let said = run(
            &other.place,
            "sqlite3",
            &["data.db", "select count(*) from t where b like '%x';"],
        );
        assert_eq!(said, "714\n");
    }
    if has("python3") {
        let script = "import mmap,os\n\
            f=open('mapped','wb+'); f.truncate(20000); m=mmap.mmap(f.fileno(),20000); m[5000:5003]=b'abc'; m.flush(); f.close()\n\
            assert open('mapped','rb').read()[5000:5003]==b'abc'\n\
            d=os.open('mapped',os.O_RDONLY|os.O_DIRECT); b=mmap.mmap(-1,8192); n=os.preadv(d,[b],4096); assert n==8192 and b[904:907]==b'abc', n\n";
        run(&place, "python3", &["-c", script]);
        assert_eq!(&fs::read(other.path("mapped")).unwrap()[5000..5003], b"abc");
    }
    drop((cached.end(), other.end()));
}

#[test]
fn trees_are_the_same_everywhere_after_concurrent_writers() {
    let Some(cluster) = cluster(3) else { return };
    let folder = Folder::new("writers");
    const FILES: usize = 12;
    let write = |path: PathBuf, version: u64, file: usize| {
        // Replaced as a whole: who opens it gets one version.
        let length = 30_000 + 4_096 * file + version as usize % 3;
        let mut bytes = version.to_le_bytes().to_vec();
        bytes.extend(contents(version << 8 | file as u64, length));
        let fresh = path.with_extension("new");
        fs::write(&fresh, bytes).unwrap();
        fs::rename(fresh, path).unwrap();
    };
    (0..FILES).for_each(|file| write(folder.dir().join(format!("f{file}")), 0, file));
    thread::sleep(SETTLED);
    let all = [0, 1, 2].map(|node| Cached::start(&cluster, node, &folder, &["--local", "4M"]));
    let ends = AtomicBool::new(false);
    let (reads, dir) = (std::sync::atomic::AtomicU64::new(0), folder.dir());
    thread::scope(|scope| {
        // Two through views, one behind them; each has files of its own.
        for (writer, place) in [&all[0].place, &all[1].place, &dir].into_iter().enumerate() {
            let write = &write;
            scope.spawn(move || {
                for version in 1..40 {
                    for file in (writer..FILES).step_by(3) {
                        write(place.join(format!("f{file}")), version, file);
                    }
                    thread::sleep(Duration::from_millis(if version % 13 == 0 {
                        3_300
                    } else {
                        20
                    }));
                }
            });
        }
        for cached in &all {
            let (ends, reads) = (&ends, &reads);
            scope.spawn(move || {
                let mut seen = [0; FILES];
                while !ends.load(Ordering::Relaxed) {
                    for (file, seen) in seen.iter_mut().enumerate() {
                        let bytes = fs::read(cached.path(&format!("f{file}"))).unwrap();
                        let version = u64::from_le_bytes(*bytes.first_chunk().unwrap());
                        assert!(version >= *seen, "f{file}: {version} after {seen}");
                        let rest = contents(version << 8 | file as u64, bytes.len() - 8);
                        assert!(bytes[8..] == rest, "f{file} of {version}");
                        *seen = version;
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
        scope.spawn(|| {
            let newest = || {
                (0..FILES).all(|file| {
                    let bytes = fs::read(dir.join(format!("f{file}"))).unwrap();
                    bytes[0] == 39
                })
            };
            let until = Instant::now() + Duration::from_secs(120);
            while !newest() && Instant::now() < until {
                thread::sleep(Duration::from_millis(50));
            }
            thread::sleep(SETTLED + Duration::from_secs(1));
            ends.store(true, Ordering::Relaxed);
        });
    });
    assert!(reads.load(Ordering::Relaxed) > 500);
    for file in 0..FILES {
        let name = format!("f{file}");
        let wanted = fs::read(dir.join(&name)).unwrap();
        for cached in &all {
            assert!(fs::read(cached.path(&name)).unwrap() == wanted, "{name}");
        }
    }
    let came: u64 = all
        .into_iter()
        .map(|cached| number(&cached.end(), "pages_from_nodes"))
        .sum();
    assert!(came > 0, "the nodes did cache for each other");
}

#[test]
fn a_cache_that_cannot_be_says_why() {
    let Some(cluster) = cluster(1) else { return };
    let folder = Folder::new("refused");
    let place = folder.0.join("place");
    fs::create_dir_all(place.join("full")).unwrap();
    let refused = |dir: &Path, place: &Path, code: i32, word: &str| {
        let output = command(&cluster, 0, dir, place).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(word), "{said}");
    };
    let dir = folder.dir();
    refused(&dir, &place, 2, "not empty");
    refused(
        &dir.join("none"),
        &place.join("full"),
        2,
        "name a directory",
    );
    refused(&dir, &place.join("none"), 2, "mkdir -p");
    refused(&folder.0, &place.join("full"), 2, "lie in each other");
    let mut command = command(&cluster, 0, &dir, &place.join("full"));
    command.arg("--socket").arg(folder.0.join("none.sock"));
    assert_eq!(command.output().unwrap().status.code(), Some(3));
    // A view that refuses changes.
    let cached = Cached::start(&cluster, 0, &folder, &["--read-only"]);
    let error = fs::write(cached.path("file"), "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    drop(cached.end());
}
