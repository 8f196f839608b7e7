//! The attribute `#[test]` for programs that have no test harness: it stands in the place of the compiler's own, and numbers
//! the tests of a crate, so that the crate's `main` has a table of them.
//!
//! The compiler expands the attributes of a crate in one process, one after the other.

use proc_macro::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many tests a crate may have.
const MOST: usize = 2048;

/// Tests so far.
static TESTS: AtomicUsize = AtomicUsize::new(0);

/// The environment variable with the tests that are left out: a line each, `NAME<tab>WHY`.
const LEFT_OUT: &str = "SUITE_LEFT_OUT";

/// What is in a test that needs unwinding, or a process, by which it is known without being listed.
const NEEDS: [(&str, &str); 2] = [("catch_unwind", "unwinding"), ("Command", "processes")];

/// Puts a function into the crate's table of tests.
#[proc_macro_attribute]
pub fn test(_: TokenStream, item: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = item.into_iter().collect();
    let mut attributes = Vec::new();
    let mut rest = 0;
    while let [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] = &tokens[rest..] {
        if hash.as_char() != '#' {
            break;
        }
        attributes.push(attribute.clone());
        rest += 2;
    }
    let function = &tokens[rest..];
    let name_of = |attribute: &Group| match attribute.stream().into_iter().next() {
        Some(TokenTree::Ident(name)) => name.to_string(),
        _ => String::new(),
    };
    // The compiler decides first which attributes there are.
    if attributes.iter().any(|attribute| name_of(attribute).starts_with("cfg")) {
        let mut again = tokens[..rest].to_vec();
        again.extend(hash_of("test".parse().unwrap()));
        again.extend_from_slice(function);
        return again.into_iter().collect();
    }
    let Some(name) = name_of_function(function) else { return function.iter().cloned().collect() };

    let mut why = listed(&name.to_string());
    for attribute in &attributes {
        match name_of(attribute).as_str() {
            "should_panic" => _ = why.get_or_insert("unwinding".into()),
            "ignore" => _ = why.get_or_insert(ignored(attribute)),
            _ => {}
        }
    }
    if why.is_none() {
        let needed = NEEDS.iter().find(|(used, _)| uses(function.iter().cloned().collect(), used));
        why = needed.map(|(_, why)| (*why).into());
    }
    let number = TESTS.fetch_add(1, Ordering::Relaxed);
    assert!(number < MOST, "more than {MOST} tests");
    let run = match &why {
        Some(why) => format!("Err({why:?})"),
        None => format!("Ok(|| crate::suite::Outcome::end({name}()))"),
    };
    let case: TokenStream = format!(
        "impl crate::suite::Case for crate::suite::At<{number}> {{
            const TEST: Option<crate::suite::Test> = Some(crate::suite::Test {{
                module: module_path!(), name: {:?}, run: {run},
            }});
        }}",
        name.to_string()
    )
    .parse()
    .unwrap();
    let kept = attributes
        .iter()
        .filter(|&attribute| !["should_panic", "ignore", "test"].contains(&name_of(attribute).as_str()));
    let mut made = TokenStream::new();
    // What is left out may not compile.
    if why.is_none() {
        made.extend(kept.flat_map(|attribute| hash_of(attribute.stream())));
        made.extend(function.iter().cloned());
    }
    made.extend("const _: () =".parse::<TokenStream>().unwrap());
    made.extend([TokenTree::Group(Group::new(Delimiter::Brace, case))]);
    made.extend([TokenTree::Punct(Punct::new(';', Spacing::Alone))]);
    made
}

/// The table of all tests that a crate can have.
#[proc_macro]
pub fn tests(_: TokenStream) -> TokenStream {
    let cases: String = (0..MOST)
        .map(|number| format!("<crate::suite::At<{number}> as crate::suite::Case>::TEST,"))
        .collect();
    format!("[{cases}]").parse().unwrap()
}

fn hash_of(attribute: TokenStream) -> [TokenTree; 2] {
    let hash = Punct::new('#', Spacing::Alone);
    [TokenTree::Punct(hash), TokenTree::Group(Group::new(Delimiter::Bracket, attribute))]
}

fn name_of_function(function: &[TokenTree]) -> Option<Ident> {
    let is_fn = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    let at = function.iter().position(is_fn)?;
    match function.get(at + 1)? {
        TokenTree::Ident(name) => Some(Ident::new(&name.to_string(), Span::call_site())),
        // A macro's fragment.
        TokenTree::Group(group) => match group.stream().into_iter().next()? {
            TokenTree::Ident(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// Why a test is left out that is listed.
fn listed(name: &str) -> Option<String> {
    let list = std::env::var(LEFT_OUT).unwrap_or_default();
    list.lines()
        .find_map(|line| line.split_once('\t').filter(|(of, _)| *of == name).map(|(_, why)| why.into()))
}

/// Why the library itself leaves a test out.
fn ignored(attribute: &Group) -> String {
    match attribute.stream().into_iter().nth(2) {
        Some(why) if why.to_string().contains("unwind") => "unwinding".into(),
        Some(why) => why.to_string().trim_matches('"').into(),
        None => "left out by the library".into(),
    }
}

fn uses(tokens: TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(name) => name.to_string() == word,
        TokenTree::Group(group) => uses(group.stream(), word),
        _ => false,
    })
}
