//! The pages: each is in the table of contents, what they link to is there, and all of their Rust is that of code which is
//! tested, as is C that is compiled. A comment says where a block is from, `<!-- ../code/kernels.rs:all -->`: a file, from the
//! page, and an anchor in it. `UPDATE_PAGES=1 cargo test -p hostcall-book` writes the code into the pages.

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
    let names = fs::read_dir(book()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let pages = names.filter(|name| name.ends_with(".md"));
    let mut pages: Vec<_> =
        pages.map(|name| (name.clone(), fs::read_to_string(book().join(name)).unwrap())).collect();
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

/// A block that a page has of a file.
struct Shown {
    file: String,
    anchor: String,
    language: String,
    code: String,
    /// The page's lines that are the code.
    lines: std::ops::Range<usize>,
}

/// The blocks behind a comment that says where they are from.
fn shown(page: &str, text: &str) -> Vec<Shown> {
    let lines: Vec<&str> = text.lines().collect();
    let mut shown = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        // Other comments are sentences.
        let from = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        let Some(from) = from.filter(|from| !from.contains(' ')) else { continue };
        let (file, anchor) = from.split_once(':').unwrap_or((from, ""));
        let language = lines.get(i + 1).and_then(|line| line.strip_prefix("```"));
        let language = language.unwrap_or_else(|| panic!("{page}: no block follows {line}")).to_owned();
        let len = lines[i + 2..].iter().position(|line| *line == "```").expect("a block ends");
        let code = lines[i + 2..][..len].iter().map(|line| format!("{line}\n")).collect();
        let (file, anchor) = (file.to_owned(), anchor.to_owned());
        shown.push(Shown { file, anchor, language, code, lines: i + 2..i + 2 + len });
    }
    shown
}

/// What stands between the marks of an anchor, without other marks and as far left as it goes; or all of a file.
fn anchored(source: &str, anchor: &str) -> Option<String> {
    fn comment(line: &str) -> Option<&str> {
        let line = line.trim_start();
        line.strip_prefix("// ").or_else(|| line.strip_prefix("# "))
    }
    let marked = |line: &str, mark: &str| {
        comment(line)
            .and_then(|comment| comment.strip_prefix(mark))
            .is_some_and(|name| anchor.is_empty() || name == anchor)
    };
    let places = |mark: &str| -> Vec<usize> {
        source.lines().enumerate().filter(|(_, line)| marked(line, mark)).map(|(i, _)| i).collect()
    };
    let lines: Vec<&str> = source.lines().collect();
    let lines = match (anchor, &places("ANCHOR: ")[..], &places("ANCHOR_END: ")[..]) {
        ("", ..) => &lines[..],
        (_, [start], [end]) if start < end => &lines[start + 1..*end],
        _ => return None,
    };
    let is_mark = |line: &&&str| comment(line).is_some_and(|comment| comment.starts_with("ANCHOR"));
    let kept: Vec<_> = lines.iter().filter(|line| !is_mark(line)).collect();
    let indent = |line: &&&&str| line.len() - line.trim_start().len();
    let left = kept.iter().filter(|line| !line.trim().is_empty()).map(|line| indent(&line)).min()?;
    Some(kept.iter().map(|line| format!("{}\n", line.get(left..).unwrap_or_default())).collect())
}

/// The page with this code in place of its blocks'.
fn with_code(text: &str, shown: &[(Shown, String)]) -> String {
    let (mut page, mut next) = (String::new(), 0);
    let lines: Vec<&str> = text.lines().collect();
    for (block, code) in shown {
        page.extend(lines[next..block.lines.start].iter().map(|line| format!("{line}\n")));
        page.push_str(code);
        next = block.lines.end;
    }
    page.extend(lines[next..].iter().map(|line| format!("{line}\n")));
    page
}

#[test]
fn all_rust_is_that_of_code_that_is_tested() {
    let mut used = BTreeSet::new();
    for (page, text) in pages() {
        let mut blocks_of_page = Vec::new();
        for block in shown(&page, &text) {
            let Shown { file, anchor, language, .. } = &block;
            // Tests compile all of bindings/c/examples, and what lies beside the code here.
            let of_file = match Path::new(file).extension().and_then(|extension| extension.to_str()) {
                Some("c") => "c",
                Some("hip" | "cpp") => "cpp",
                // The tests of the Python package run it.
                Some("py") => "python",
                _ => "rust",
            };
            assert_eq!(language, of_file, "{page}: {file}:{anchor}");
            let path =
                book().join(file).canonicalize().unwrap_or_else(|error| panic!("{page}: {file}: {error}"));
            let code = anchored(&fs::read_to_string(&path).unwrap(), anchor);
            let code = code.unwrap_or_else(|| panic!("{page}: {file} has no code of the name {anchor}"));
            used.insert((path, anchor.clone()));
            blocks_of_page.push((block, code));
        }
        let rust = blocks(&text).iter().filter(|(language, _)| language.starts_with("rust")).count();
        let of_files = blocks_of_page.iter().filter(|(block, _)| block.language == "rust").count();
        assert_eq!(rust, of_files, "{page} has Rust of which no comment says where it is from");
        for (language, code) in blocks(&text) {
            assert!(!language.is_empty(), "{page} has a block without a language: {code}");
        }
        if std::env::var_os("UPDATE_PAGES").is_some() {
            fs::write(book().join(&page), with_code(&text, &blocks_of_page)).unwrap();
            continue;
        }
        for (Shown { file, anchor, code: has, .. }, code) in &blocks_of_page {
            assert_eq!(
                has, code,
                "{page}: {file}:{anchor}; `UPDATE_PAGES=1 cargo test -p hostcall-book` mends it"
            );
        }
    }
    // What is marked is used.
    for folder in [
        "../code",
        "../../../examples/src/bin",
        "../../../examples/kernels/src",
        "../../../bindings/c/examples",
    ] {
        for file in fs::read_dir(book().join(folder)).unwrap() {
            let path = file.unwrap().path().canonicalize().unwrap();
            let Ok(source) = fs::read_to_string(&path) else { continue };
            for line in source.lines() {
                if let Some(anchor) = line.trim_start().strip_prefix("// ANCHOR: ") {
                    let is_used = used.contains(&(path.clone(), anchor.to_owned()));
                    assert!(is_used, "no page has {}:{anchor}", path.display());
                }
            }
        }
    }
}

#[test]
fn lines_are_short() {
    for (page, text) in pages() {
        let mut is_code = false;
        for line in text.lines() {
            is_code ^= line.starts_with("```");
            assert!(is_code || line.chars().count() <= 110 || line.starts_with('|'), "{page}: {line}");
        }
    }
}
