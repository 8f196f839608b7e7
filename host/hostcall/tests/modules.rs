//! The modules of `device/` use each other in one direction: that of the crate's page.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Modules of tests, which use everything, and what is above all.
const ABOVE: [&str; 2] = ["mod", "tests"];

/// The modules in the order of the crate's page: each uses only those before it.
fn order(sources: &Path) -> HashMap<String, usize> {
    let page = std::fs::read_to_string(sources.join("lib.rs")).unwrap();
    let table = page.split("```text").nth(1).expect("the page has the order").split("```").next().unwrap();
    let names = table.lines().filter_map(|line| line.trim_start_matches("//!").trim().split("  ").next());
    let names = names.flat_map(|names| names.split(", ")).filter(|name| !name.is_empty());
    names.enumerate().map(|(place, name)| (name.to_owned(), place)).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The first names behind `prefix` wherever it stands in a source: those of a list in braces, too.
fn used<'a>(source: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (at, _) in source.match_indices(prefix) {
        let is_whole =
            source[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric() && before != ':');
        if !is_whole {
            continue;
        }
        let behind = &source[at + prefix.len()..];
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        match behind.strip_prefix('{') {
            Some(list) => {
                let mut depth = 0;
                let mut is_first = true;
                for (place, letter) in list.char_indices() {
                    match letter {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => is_first = true,
                        letter if is_first && is_name(letter) => {
                            names.push(list[place..].split(|letter| !is_name(letter)).next().unwrap());
                            is_first = false;
                        }
                        _ => {}
                    }
                }
            }
            None => names.extend(behind.split(|letter| !is_name(letter)).next()),
        }
    }
    names
}

#[test]
fn no_module_of_devices_uses_one_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (order, device) = (order(&root), root.join("device"));
    let mut files = Vec::new();
    sources(&device, &mut files);
    let mut upwards = Vec::new();
    for file in &files {
        let place = file.strip_prefix(&device).unwrap().with_extension("");
        let parts: Vec<&str> = place.iter().map(|part| part.to_str().unwrap()).collect();
        let (module, is_tests) = (parts[0], parts.last() == Some(&"tests"));
        if ABOVE.contains(&module) || is_tests {
            continue;
        }
        let own =
            *order.get(module).unwrap_or_else(|| panic!("{module} is not in the order of the crate's page"));
        let text = std::fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let code: String =
            code.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect();
        // From the file of a folder's module `super` is the folder above.
        let above = parts.len() - usize::from(parts.last() == Some(&"mod"));
        let mut names = used(&code, "crate::device::");
        names.extend(used(&code, &"super::".repeat(above)));
        for name in names.into_iter().filter(|name| *name != module && *name != "super") {
            match order.get(name) {
                Some(other) if *other < own => {}
                Some(_) => upwards.push(format!("{} uses {name}", file.display())),
                None => upwards.push(format!("{} uses {name}: name the module that has it", file.display())),
            }
        }
        let others =
            ["crate::graph", "crate::raw", "crate::server", "crate::services", "crate::llvm", "crate::rocm"];
        upwards.extend(others.iter().filter(|other| !used(&code, other).is_empty()).map(|other| {
            format!("{} uses {other}: name the crate or the module that has it", file.display())
        }));
    }
    assert!(upwards.is_empty(), "{}", upwards.join("\n"));
    assert!(files.len() > 60, "the sources are where they were");
}
