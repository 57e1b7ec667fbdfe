//! Compares claims of the documents with the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod checklist;
mod citations;
mod numbering;

/// Prints all differences.
pub fn run() -> anyhow::Result<()> {
    let faults = Repository::open().faults();
    faults.iter().for_each(|fault| eprintln!("{fault}"));
    anyhow::ensure!(faults.is_empty(), "{} faults", faults.len());
    Ok(())
}

/// The files of the repository, by their paths from its root.
struct Repository {
    root: PathBuf,
    files: BTreeSet<String>,
    /// Functions of test files and modules: of Rust with `#[test]`, of Python by their names.
    tests: BTreeSet<String>,
}

impl Repository {
    fn open() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = BTreeSet::new();
        collect(&root, "", &mut files);
        let mut tests = BTreeSet::new();
        for file in &files {
            if file.ends_with(".rs") || file.ends_with(".py") {
                let text = fs::read_to_string(root.join(file)).unwrap_or_default();
                tests.extend(tests_in(&text, file.ends_with(".rs")));
            }
        }
        Self { root, files, tests }
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
    }

    /// Whether there is a file of this name, or with this end of its path.
    fn has_source(&self, name: &str) -> bool {
        let end = format!("/{name}");
        let mut files = self.files.iter();
        files.any(|file| file == name || file.ends_with(&end))
    }

    fn faults(&self) -> Vec<String> {
        let document = self.read("docs/checklist.md");
        let codes = self.read("docs/checklist-codes.txt");
        let mut faults = checklist::faults(&document, &codes, self);
        faults.extend(citations::faults(self));
        faults.extend(numbering::faults(self));
        faults
    }
}

/// Paths below a folder, except build products.
fn collect(root: &Path, below: &str, files: &mut BTreeSet<String>) {
    let entries = fs::read_dir(root.join(below)).unwrap_or_else(|e| panic!("{below}: {e}"));
    for entry in entries.map_while(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() {
            name.clone()
        } else {
            format!("{below}/{name}")
        };
        let kind = entry.file_type();
        if kind.as_ref().is_ok_and(fs::FileType::is_dir) {
            if !name.starts_with('.') && !["target", "build", "__pycache__"].contains(&&*name) {
                collect(root, &path, files);
            }
        } else if kind.is_ok_and(|kind| kind.is_file()) {
            files.insert(path);
        }
    }
}

/// Names of the tests in a file.
fn tests_in(text: &str, rust: bool) -> Vec<String> {
    let mut tests = Vec::new();
    let mut marked = !rust;
    for line in text.lines().map(str::trim) {
        if rust && (line == "#[test]" || line.starts_with("proptest!")) {
            marked = true;
        }
        let name = line
            .strip_prefix("fn ")
            .or_else(|| line.strip_prefix("def test_"));
        if let (true, Some(name)) = (marked, name) {
            let name = name.split('(').next().unwrap_or_default();
            tests.push(if rust {
                name.to_owned()
            } else {
                format!("test_{name}")
            });
            marked = !rust;
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_say_what_is() {
        assert_eq!(Repository::open().faults(), Vec::<String>::new());
    }

    #[test]
    fn tests_are_found_by_their_marks() {
        let rust = "#[test]\n#[ignore]\nfn one() {\nfn helper() {\n  #[test]\n fn two() {}";
        assert_eq!(tests_in(rust, true), ["one", "two"]);
        let python = "def test_one():\n    pass\ndef helper():\nclass T:\n    def test_two(self):";
        assert_eq!(tests_in(python, false), ["test_one", "test_two"]);
    }
}
