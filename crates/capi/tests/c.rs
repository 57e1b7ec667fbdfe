//! The C interface as C sees it: header, library, examples, installation.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

const HEADERS: [&str; 2] = ["pagemesh.h", "Tmk.h"];

/// Where cargo puts the libraries. Cargo does not build them for this test by
/// itself, since Rust cannot link them.
fn libraries() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let program = std::env::current_exe().unwrap();
        let directory = program.parent().unwrap().parent().unwrap();
        if std::env::var_os("PAGEMESH_BUILT").is_some() {
            return directory.to_path_buf();
        }
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        build
            .args(["build", "--quiet", "--package", "pagemesh-capi"])
            .arg("--target-dir")
            .arg(directory.parent().unwrap())
            .current_dir(HERE);
        if directory.ends_with("release") {
            build.arg("--release");
        }
        run(&mut build);
        directory.to_path_buf()
    })
}

/// A fresh directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("pagemesh-capi-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn examples() -> Vec<PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(Path::new(HERE).join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "c"))
        .collect();
    all.sort();
    assert!(all.len() >= 3);
    all
}

/// Compiles an example against the shared library in `dir`.
fn compile(compiler: &[&str], source: &Path, dir: &Path, program: &Path) {
    run(Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"])
        .arg(format!("-I{HERE}/include"))
        .arg(source)
        .args(["-x", "none", "-o"])
        .arg(program)
        .arg("-L")
        .arg(dir)
        .arg("-lpagemesh"));
}

#[test]
fn examples_are_c99_and_cpp_and_say_what_to_do_without_a_daemon() {
    let scratch = Scratch::new("examples");
    std::fs::copy(
        libraries().join("libpagemesh.so"),
        scratch.0.join("libpagemesh.so"),
    )
    .unwrap();
    std::os::unix::fs::symlink("libpagemesh.so", scratch.0.join("libpagemesh.so.0")).unwrap();
    let c = ["cc", "-std=c99"];
    let cpp = ["c++", "-std=c++11", "-x", "c++"];
    for source in examples() {
        for compiler in [&c[..], &cpp[..]] {
            let program = scratch.0.join("program");
            compile(compiler, &source, &scratch.0, &program);
            let output = Command::new(&program)
                .env("LD_LIBRARY_PATH", &scratch.0)
                .env("PAGEMESH_SOCKET", scratch.0.join("nobody"))
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(1));
            let words = String::from_utf8_lossy(&output.stderr);
            assert!(words.contains("no PageMesh daemon answers"), "{words}");
            assert!(words.contains("pagemesh daemon"), "{words}");
        }
    }
}

#[test]
fn the_headers_stand_alone_in_c_and_old_cpp() {
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];
    for header in HEADERS.map(|name| format!("{HERE}/include/{name}")) {
        run(Command::new("cc")
            .args(["-std=c99", "-x", "c"])
            .args(strict)
            .arg(&header));
        run(Command::new("c++")
            .args(["-std=c++98", "-x", "c++", "-Wno-long-long"])
            .args(strict)
            .arg(&header));
    }
}

#[test]
fn headers_and_library_have_the_same_functions() {
    let library = libraries().join("libpagemesh.so");
    let output = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library));
    let output = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<_> = output
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    let text = |name| std::fs::read_to_string(format!("{HERE}/include/{name}")).unwrap();
    let declared: BTreeSet<_> = HEADERS
        .iter()
        .flat_map(|name| declared(&text(name)))
        .collect();
    let mut declared: BTreeSet<_> = declared.iter().map(String::as_str).collect();
    // Stand in for those of the C library, whose headers declare them.
    declared.extend(["madvise", "mmap", "mmap64", "mremap", "munmap"]);
    // No functions of the library: variables, and what the header itself defines.
    declared.extend(["Tmk_nprocs", "Tmk_proc_id"]);
    declared.retain(|name| !OWN.contains(name));
    assert_eq!(exported, declared);
}

#[test]
fn a_program_links_against_the_build_folder() {
    let scratch = Scratch::new("build-folder");
    let (source, program) = (scratch.0.join("words.c"), scratch.0.join("words"));
    // Two source files with the header, of which one has a Tmk_errexit of its own.
    std::fs::write(
        &source,
        "#include <Tmk.h>\nint main(void) { Tmk_errexit(\"mine\"); }\n",
    )
    .unwrap();
    let own = scratch.0.join("own.c");
    let words = "#include <stdio.h>\n#include <stdlib.h>\n\
                 void Tmk_errexit(const char *format, ...) { puts(format); exit(7); }\n";
    std::fs::write(&own, words).unwrap();
    let folder = libraries();
    for (sources, code) in [(vec![&source], 1), (vec![&source, &own], 7)] {
        run(Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror"])
            .arg(format!("-I{HERE}/include"))
            .args(sources)
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(folder)
            .arg(format!("-Wl,-rpath,{}", folder.display()))
            .args(["-Wl,--no-as-needed", "-lpagemesh"]));
        let output = Command::new(&program).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}");
    }
}

/// What the headers define themselves.
const OWN: [&str; 5] = [
    "Tmk_add_double",
    "Tmk_err",
    "Tmk_errexit",
    "Tmk_perrexit",
    "pagemesh_view",
];

/// The functions of a header: names before a parenthesis, outside of comments.
fn declared(header: &str) -> BTreeSet<String> {
    let mut code = String::new();
    for (place, part) in header.split("/*").enumerate() {
        let outside = if place == 0 {
            part
        } else {
            part.split_once("*/").unwrap().1
        };
        code.push_str(outside);
    }
    let mut names = BTreeSet::new();
    for part in code.split_inclusive('(') {
        let Some(before) = part.strip_suffix('(') else {
            continue;
        };
        let name = before
            .rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .next()
            .unwrap();
        if name.starts_with("pagemesh_") || name.starts_with("Tmk_") {
            names.insert(name.to_owned());
        }
    }
    names
}

#[test]
fn the_library_has_its_name() {
    let library = libraries().join("libpagemesh.so");
    let output = run(Command::new("readelf").arg("-d").arg(library));
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains("soname: [libpagemesh.so.0]"), "{output}");
}

#[test]
fn what_is_installed_links_shared_and_static() {
    let scratch = Scratch::new("install");
    let prefix = scratch.0.join("usr");
    run(Command::new("make")
        .args(["-s", "-C", HERE, "install"])
        .arg(format!("PREFIX={}", prefix.display()))
        .arg(format!("TARGET={}", libraries().display())));
    let lib = prefix.join("lib");
    let pc = std::fs::read_to_string(lib.join("pkgconfig/pagemesh.pc")).unwrap();
    assert!(!pc.contains('@'), "{pc}");
    assert!(pc.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"))));
    let hello = format!("{HERE}/examples/hello.c");
    let include = prefix.join("include");
    let program = scratch.0.join("hello");
    let cc = |last: &[String]| {
        run(Command::new("cc")
            .args(["-std=c99", "-Werror", "-I"])
            .arg(&include)
            .arg(&hello)
            .arg("-o")
            .arg(&program)
            .args(last));
    };
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    // As `pkg-config --libs` and `--libs --static` would say.
    cc(&[format!("-L{}", text(lib.clone())), "-lpagemesh".into()]);
    let nobody = scratch.0.join("nobody");
    let shared = Command::new(&program)
        .env("LD_LIBRARY_PATH", &lib)
        .env("PAGEMESH_SOCKET", &nobody)
        .status();
    assert_eq!(shared.unwrap().code(), Some(1));
    let private = ["-lpthread", "-ldl", "-lm"].map(str::to_owned);
    cc(&[&[text(lib.join("libpagemesh.a"))], &private[..]].concat());
    let alone = Command::new(&program)
        .env("PAGEMESH_SOCKET", &nobody)
        .status();
    assert_eq!(alone.unwrap().code(), Some(1));
}
