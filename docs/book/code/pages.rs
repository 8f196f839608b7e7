//! The pages: each is in the table of contents, what they link to and include is there, and all of their Rust is included, as is
//! C that is compiled.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the repository's files are on the web.
const REPOSITORY: &str = "https://github.com/hostcall/hostcall/blob/main/";

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// A page's name and text.
fn pages() -> Vec<(String, String)> {
    let files = fs::read_dir(book()).unwrap().map(|file| file.unwrap());
    let pages =
        files.map(|file| (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap()));
    let mut pages: Vec<_> = pages.filter(|(name, _)| name.ends_with(".md")).collect();
    pages.sort();
    pages
}

fn parse(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

fn links(text: &str) -> Vec<String> {
    let link = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some(dest_url.into_string())
        }
        _ => None,
    };
    parse(text).filter_map(link).collect()
}

/// Language and text of each block of code.
fn blocks(text: &str) -> Vec<(String, String)> {
    let (mut blocks, mut current) = (Vec::new(), None);
    for event in parse(text) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                current = Some((language.into_string(), String::new()));
            }
            Event::Text(text) => {
                if let Some((_, code)) = &mut current {
                    code.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(current.take()),
            _ => {}
        }
    }
    blocks
}

/// Anchors of a page's headings, as mdBook makes them.
fn headings(text: &str) -> BTreeSet<String> {
    let (mut headings, mut current) = (BTreeSet::new(), None);
    for event in parse(text) {
        match (event, &mut current) {
            (Event::Start(Tag::Heading { .. }), _) => current = Some(String::new()),
            (Event::End(TagEnd::Heading(_)), Some(heading)) => {
                let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
                headings.insert(kept.collect::<String>().to_lowercase().replace(' ', "-"));
                current = None;
            }
            (Event::Text(text) | Event::Code(text), Some(heading)) => heading.push_str(&text),
            _ => {}
        }
    }
    headings
}

#[test]
fn the_table_of_contents_has_each_page_once() {
    let all = pages();
    let (_, summary) = all.iter().find(|(name, _)| name == "SUMMARY.md").unwrap();
    let mut listed = links(summary);
    listed.sort();
    let others: Vec<&String> =
        all.iter().map(|(name, _)| name).filter(|name| *name != "SUMMARY.md").collect();
    assert_eq!(listed.iter().collect::<Vec<_>>(), others);
}

#[test]
fn links_lead_somewhere() {
    let repository = book().join("../../..");
    let mut count = 0;
    for (page, text) in pages() {
        for link in links(&text) {
            count += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let path = match file.strip_prefix(REPOSITORY) {
                Some(path) => repository.join(path),
                None if file.starts_with("https://") => continue,
                None if file.is_empty() => book().join(&page),
                None => book().join(file),
            };
            assert!(path.exists(), "{page} links to {link}");
            if !heading.is_empty() {
                let headings = headings(&fs::read_to_string(&path).unwrap());
                assert!(headings.contains(heading), "{page} links to {link}; there are {headings:?}");
            }
        }
    }
    assert!(count > 50, "{count} links");
}

#[test]
fn all_rust_is_included_from_code_that_is_tested() {
    let mut included = BTreeSet::new();
    for (page, text) in pages() {
        for (language, code) in blocks(&text) {
            let include =
                code.trim_end().strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"));
            let Some(include) = include else {
                assert!(!language.starts_with("rust"), "{page} has code of its own: {code}");
                assert!(!code.contains("{{#"), "{page}: {code}");
                assert!(!language.is_empty(), "{page} has a block without a language: {code}");
                continue;
            };
            let (file, anchor) = include.split_once(':').unwrap_or((include, ""));
            // Tests compile all of crates/c/examples, and what lies beside the code here.
            let of_file = match Path::new(file).extension().and_then(|extension| extension.to_str()) {
                Some("c") => "c",
                Some("hip") => "cpp",
                _ => "rust",
            };
            assert_eq!(language, of_file, "{page}: {include}");
            let path =
                book().join(file).canonicalize().unwrap_or_else(|error| panic!("{page}: {file}: {error}"));
            let source = fs::read_to_string(&path).unwrap();
            if !anchor.is_empty() {
                let lines = |mark: &str| {
                    source.lines().filter(|line| line.trim_start().strip_prefix(mark) == Some(anchor)).count()
                };
                let marks = (lines("// ANCHOR: "), lines("// ANCHOR_END: "));
                assert_eq!(marks, (1, 1), "{page}: {include}");
            }
            included.insert((path, anchor.to_owned()));
        }
    }
    // What is marked is used.
    for folder in [
        "../code",
        "../../../examples/src/bin",
        "../../../examples/kernels/src",
        "../../../crates/c/examples",
    ] {
        for file in fs::read_dir(book().join(folder)).unwrap() {
            let path = file.unwrap().path().canonicalize().unwrap();
            for line in fs::read_to_string(&path).unwrap().lines() {
                if let Some(anchor) = line.trim_start().strip_prefix("// ANCHOR: ") {
                    let is_used = included.contains(&(path.clone(), anchor.to_owned()));
                    assert!(is_used, "no page includes {}:{anchor}", path.display());
                }
            }
        }
    }
}

#[test]
fn lines_are_short() {
    for (page, text) in pages() {
        for line in text.lines() {
            assert!(line.chars().count() <= 110 || line.starts_with('|'), "{page}: {line}");
        }
    }
}
