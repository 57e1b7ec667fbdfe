//! Documents that code and documents name exist.

use super::Repository;

pub fn faults(repository: &Repository) -> Vec<String> {
    let mut faults = Vec::new();
    for file in repository.files.iter().filter(|file| is_text(file)) {
        let text = repository.read(file);
        let prose = file.ends_with(".md");
        let lines = text.lines().enumerate();
        for (number, line) in lines.filter(|(_, line)| prose || is_comment(line)) {
            for name in documents_named(line) {
                if !exists(repository, name) {
                    faults.push(format!("{file}:{}: there is no {name}", number + 1));
                }
            }
        }
    }
    faults
}

fn is_text(file: &str) -> bool {
    let end = file.rsplit('.').next().unwrap_or_default();
    ["rs", "py", "pyi", "h", "c", "md", "toml"].contains(&end)
}

fn is_comment(line: &str) -> bool {
    ["//", "#", "*", "/*"]
        .iter()
        .any(|mark| line.trim_start().starts_with(mark))
}

/// Words that end in `.md`.
fn documents_named(line: &str) -> impl Iterator<Item = &str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "./_-".contains(c);
    let words = line.split(move |c| !is_path(c));
    let words = words.map(|word| word.trim_end_matches('.'));
    words.filter(|word| {
        word.strip_suffix(".md")
            .is_some_and(|name| name.ends_with(|c: char| c.is_ascii_alphanumeric()))
    })
}

/// By its path from the root, or from wherever the file lies: the end decides.
fn exists(repository: &Repository, name: &str) -> bool {
    let name = name
        .trim_start_matches("../")
        .trim_start_matches("./")
        .trim_start_matches('/');
    let name = name.rsplit("../").next().unwrap_or(name);
    let end = format!("/{name}");
    repository
        .files
        .iter()
        .any(|file| file == name || file.ends_with(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_found_in_code_and_in_prose() {
        let named = |line| documents_named(line).collect::<Vec<_>>();
        assert_eq!(
            named("// (`DESIGN.md` item 1), see docs/protocol.md."),
            ["DESIGN.md", "docs/protocol.md"]
        );
        assert_eq!(
            named("[x](../a/0001-b.md#c) \"{}.md\" and *.md"),
            ["../a/0001-b.md"]
        );
    }
}
