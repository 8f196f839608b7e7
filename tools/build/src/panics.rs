//! Panics of NVIDIA programs, which the host formats.
//!
//! A panic sends what its message is made of (`panics/unformatted.rs` of the device crate), and knows what a value is by the
//! function that shows it. This module writes the table of these functions, by their names, for the types whose values the host
//! shows. What only a function of the program shows, such as a derived `Debug`, is formatted by the device as it is anywhere else: a
//! function that names such a one, and panics, calls a copy of what panics, `NAME$formats`, which does (`hostcall asks:
//! formats`). All others have no formatting.
//!
//! What no kernel reaches any more is left out. A function whose address is taken has no code in an image in which nothing is
//! called through a pointer: the table has but its address.

use crate::calls::{Program, pointed_at};
use crate::ptx::{Function, functions, words};
use crate::spared::answer;
use hostcall_format::tags;
use hostcall_format::unformatted::{TRAITS, Tag};
use std::collections::{BTreeMap, BTreeSet, HashSet};

const ASKS_FORMATS: &str = "hostcall asks: formats";

/// Where the device crate declares the table.
const DECLARED: &str = ".extern .global .align 8 .b64 hostcall_formatters[];\n";

/// What the name of a function ends with that has its panics formatted.
const FORMATS: &str = "$formats";

/// PTX with the table and the copies. Text of a device crate that formats all panics is left as it is.
pub(crate) fn with_panics(ptx: &str) -> String {
    let Some(declared) = ptx.find(DECLARED) else { return ptx.to_owned() };
    let all: Vec<Function<'_>> = functions(ptx).collect();
    let program = Program::new(ptx, &all);
    let shown: BTreeMap<&str, Option<Tag>> = pointed_at(ptx)
        .filter(|name| program.functions.contains_key(name))
        .filter_map(|name| Some((name, shown_by(name)?)))
        .collect();
    let copies = Copies::of(ptx, &program, &shown);

    let mut text = ptx[..declared].to_owned();
    let first = all.iter().map(|function| offset(ptx, function.header)).min().unwrap_or(ptx.len());
    text += &ptx[declared + DECLARED.len()..first];
    let (mut prototypes, mut done) = (String::new(), first);
    let mut bodies = String::new();
    for function in &all {
        let (at, end) = (offset(ptx, function.header), offset(ptx, function.body) + function.body.len() + 1);
        bodies += &ptx[done..at];
        let no = |line: &str| line.contains(ASKS_FORMATS);
        let to = copies.panicking.get(function.name);
        bodies += function.header;
        bodies += "\n{";
        bodies += &answer(function, no, |line| Some(call_copies(line, to?)).filter(|call| call != line));
        bodies += "}";
        if copies.names.contains(function.name) {
            let header = function.header.replacen(function.name, &format!("{}{FORMATS}", function.name), 1);
            prototypes += &format!("{header}\n;\n");
            let body = function.body.split_inclusive('\n');
            let body: String = body.map(|line| call_copies(line, &copies.names)).collect();
            bodies += &format!("\n{header}\n{{{body}}}");
        }
        done = end;
    }
    bodies += &ptx[done..];
    // The compiler declares a function only where it is named before it is there.
    let declared: HashSet<&str> = text.lines().filter_map(declared_name).collect();
    for name in
        shown.iter().filter(|(name, tag)| tag.is_some() && !declared.contains(*name)).map(|(name, _)| name)
    {
        prototypes += &format!("{}\n;\n", program.functions[name].header);
    }
    text += &prototypes;
    text += &table(&shown);
    without_unreached(&(text + &bodies))
}

/// Where a part of a text begins.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// A line which, if it calls one of these, calls its copy.
fn call_copies(line: &str, names: &BTreeSet<&str>) -> String {
    let is_call = line.trim_start().trim_start_matches("@%p").contains("call");
    match words(line).find(|word| is_call && names.contains(word)) {
        Some(name) => line.replacen(name, &format!("{name}{FORMATS}"), 1),
        None => line.to_owned(),
    }
}

/// The table of functions that show what the host can, with a pair of zeros behind them.
fn table(shown: &BTreeMap<&str, Option<Tag>>) -> String {
    let pairs = shown.iter().filter_map(|(name, tag)| Some(format!("{name}, {}, ", (*tag)?.0)));
    let pairs: Vec<String> = pairs.collect();
    let count = 2 * pairs.len() + 2;
    format!(".global .align 8 .u64 hostcall_formatters[{count}] = {{{}0, 0}};\n", pairs.concat())
}

/// Which functions have copies, and who calls them.
#[derive(Default)]
struct Copies<'t> {
    names: BTreeSet<&'t str>,
    /// Functions that name what only the program shows, and those whose copies each calls.
    panicking: BTreeMap<&'t str, BTreeSet<&'t str>>,
}

impl<'t> Copies<'t> {
    fn of(ptx: &'t str, program: &Program<'_, 't>, shown: &BTreeMap<&str, Option<Tag>>) -> Self {
        let variables = variables(ptx);
        let mut copies = Self::default();
        for function in program.functions.values() {
            // What it names, and what that names.
            let (mut named, mut left) = (HashSet::new(), pointed_at(function.body).collect::<Vec<_>>());
            while let Some(name) = left.pop() {
                if named.insert(name) {
                    left.extend(variables.get(name).into_iter().flatten());
                }
            }
            if named.iter().any(|name| shown.get(name) == Some(&None)) {
                let panics: BTreeSet<_> = panics_called(function, program).into_iter().collect();
                copies.names.extend(&panics);
                copies.panicking.insert(function.name, panics);
            }
        }
        let mut left: Vec<&str> = copies.names.iter().copied().collect();
        while let Some(name) = left.pop() {
            for callee in panics_called(program.functions[name], program) {
                if copies.names.insert(callee) {
                    left.push(callee);
                }
            }
        }
        copies
    }
}

/// What a function calls that does not return, and gets to where panics are sent or formatted.
fn panics_called<'t>(function: &Function<'t>, program: &Program<'_, 't>) -> Vec<&'t str> {
    let panics = |callee: &Function<'t>| {
        let reached = program.reached_by(callee, |function| !function.returns());
        reached.iter().any(|name| program.functions[name].body.contains(ASKS_FORMATS))
    };
    let callees = program.callees(function.name).filter(|callee| !callee.returns() && panics(callee));
    callees.map(|callee| callee.name).collect()
}

/// Names among the values of the text's variables, by variable.
fn variables(ptx: &str) -> BTreeMap<&str, Vec<&str>> {
    let lines = ptx.lines().filter(|line| line.contains(".global ") && line.contains('='));
    let variable = |line: &'_ str| -> Option<(usize, usize)> {
        let declared = line[..line.find('=')?].trim_end();
        let end = if declared.ends_with(']') { declared.rfind('[')? } else { declared.len() };
        Some((line[..end].rfind([' ', '\t'])? + 1, end))
    };
    lines
        .filter_map(|line| {
            let (start, end) = variable(line)?;
            Some((&line[start..end], words(&line[end..]).collect()))
        })
        .collect()
}

/// What the function of this name shows: `None` if it shows nothing, `Some(None)` if its values are shown by nothing else.
fn shown_by(symbol: &str) -> Option<Option<Tag>> {
    let name = format!("{:#}", rustc_demangle::try_demangle(symbol).ok()?);
    let (type_, trait_) = name.strip_prefix('<')?.strip_suffix(">::fmt")?.rsplit_once(" as core::fmt::")?;
    let trait_ = TRAITS.iter().position(|name| *name == trait_)? as u8;
    Some(tag_of(type_, trait_))
}

/// The tag of a type's values, if the host shows them.
fn tag_of(type_: &str, trait_: u8) -> Option<Tag> {
    let (mut type_, mut references) = (type_, 0);
    while let Some(inner) = type_.strip_prefix("&mut ").or_else(|| type_.strip_prefix('&')) {
        (type_, references) = (inner, references + 1);
    }
    let (kind, size_log2) = match type_ {
        "u8" => (tags::UNSIGNED, 0),
        "u16" => (tags::UNSIGNED, 1),
        "u32" => (tags::UNSIGNED, 2),
        "u64" | "usize" => (tags::UNSIGNED, 3),
        "i8" => (tags::I8, 0),
        "i16" => (tags::I16, 0),
        "i32" => (tags::I32, 0),
        "i64" | "isize" => (tags::I64, 0),
        "f32" => (tags::F32, 0),
        "f64" => (tags::F64, 0),
        "bool" => (tags::BOOL, 0),
        "char" => (tags::CHAR, 0),
        "str" if references > 0 => (tags::STR, 0),
        "dyn core::fmt::Debug" if references > 0 => (Tag::DYN, 0),
        "core::fmt::Arguments" => (Tag::ARGUMENTS, 0),
        "hostcall_abi::status::CallError" => (tags::CALL_ERROR, 0),
        "hostcall_abi::io::Error" => (tags::IO_ERROR, 0),
        _ => return None,
    };
    (references < 8).then(|| Tag::new(kind, trait_, size_log2, references))
}

/// A text without the functions that no kernel reaches, and without the code of those whose address alone is taken.
fn without_unreached(ptx: &str) -> String {
    let all: Vec<Function<'_>> = functions(ptx).collect();
    let program = Program::new(ptx, &all);
    let entries = all.iter().filter(|function| function.is_entry).map(|entry| entry.name);
    let reached = program.reached_by_any(entries, |_| true);
    let named: BTreeSet<&str> =
        reached.iter().flat_map(|name| pointed_at(program.functions[name].body)).collect();
    let in_variables: BTreeSet<&str> = variables(ptx).into_values().flatten().collect();
    let is_named = |name: &str| named.contains(name) || in_variables.contains(name);
    let mut text = String::with_capacity(ptx.len());
    let mut done = 0;
    for function in &all {
        let (at, end) = (offset(ptx, function.header), offset(ptx, function.body) + function.body.len() + 1);
        text += &ptx[done..at];
        if reached.contains(function.name) {
            text += &ptx[at..end];
        } else if is_named(function.name) {
            text += &format!("{}\n{{\n\ttrap;\n}}", function.header);
        }
        done = end;
    }
    text += &ptx[done..];
    // Declarations of what is gone.
    let gone: HashSet<&str> = all
        .iter()
        .map(|function| function.name)
        .filter(|name| !reached.contains(name) && !is_named(name))
        .collect();
    without_declarations(&text, &gone)
}

/// The function that a line begins to declare. A definition has its parenthesis on the same line.
fn declared_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(".func ")?.trim_start();
    let name = rest.strip_prefix('(').map_or(rest, |rest| rest.split_once(')').unwrap_or_default().1).trim();
    (!name.is_empty() && !name.contains('(')).then_some(name)
}

/// A text without declarations of these functions, which end in a semicolon on a line of its own.
fn without_declarations(ptx: &str, gone: &HashSet<&str>) -> String {
    let mut kept = String::with_capacity(ptx.len());
    let mut lines = ptx.split_inclusive('\n');
    while let Some(line) = lines.next() {
        if declared_name(line).is_some_and(|name| gone.contains(name)) {
            for line in lines.by_ref() {
                if line.trim() == ";" {
                    break;
                }
            }
        } else {
            kept += line;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_their_names() {
        let tag = |kind, trait_, references| Some(Some(Tag::new(kind, trait_, 0, references)));
        for (symbol, expected) in [
            (
                "_RNvXsi_NtNtNtCs1_4core3fmt3num3impjNtB9_7Display3fmt",
                Some(Some(Tag::new(tags::UNSIGNED, 0, 3, 0))),
            ),
            ("_RNvXs_Cs1_1aRReNtNtCs2_4core3fmt7Display3fmt", tag(tags::STR, 0, 2)),
            ("_RNvXs1g_NtCsanIojcP8aaR_4core3fmtRDNtB6_5DebugEL_Bx_3fmtB8_", tag(Tag::DYN, 1, 1)),
            ("_RNvXs_Cs1_1aNtB2_5OwnedNtNtCs2_4core3fmt5Debug3fmt", Some(None)),
            ("_RNvNtNtCs1_4core5slice5index16slice_index_fail", None),
            ("memcpy", None),
        ] {
            assert_eq!(shown_by(symbol), expected, "{symbol}: {:#}", rustc_demangle::demangle(symbol));
        }
        assert_eq!(tag_of("str", 0), None);
        assert_eq!(tag_of("&&mut core::fmt::Arguments", 0), Some(Tag::new(Tag::ARGUMENTS, 0, 0, 2)));
    }

    const SHOWS: &str = "_RNvXsi_NtNtNtCs1_4core3fmt3num3impjNtB9_7Display3fmt";
    const SHOWS_OWN: &str = "_RNvXs_Cs1_1aNtB2_5OwnedNtNtCs2_4core3fmt5Debug3fmt";

    fn function(name: &str, body: &str) -> String {
        format!(".func {name}(\n\t.param .b64 {name}_param_0\n)\n{{\n{body}}}\n")
    }

    /// A program whose kernels panic with a value of core's and with one of the program's.
    fn program(more: &str) -> String {
        let names = ["panic_fmt", "begin", "texts", "posts", "deep", SHOWS, SHOWS_OWN];
        let declared: String = names
            .iter()
            .map(|name| format!(".func {name}\n(\n\t.param .b64 {name}_param_0\n)\n;\n"))
            .collect();
        let call = |name: &str| format!("\tcall.uni {name}, (param0);\n");
        [
            DECLARED.to_owned(),
            declared,
            format!(".global .align 8 .u64 vtable_1[4] = {{0, 8, 8, {SHOWS_OWN}}};\n"),
            function(SHOWS, "\tret;\n"),
            function(SHOWS_OWN, &(call("deep") + "\tret;\n")),
            function("deep", "\tret;\n"),
            function("posts", "\tret;\n"),
            function("texts", &("\tcall %rd1, (param0), prototype_1;\n".to_owned() + more + "\tret;\n")),
            function(
                "begin",
                &("\tmov.u32 %r1, 1; // hostcall asks: formats\n\tsetp.eq.b32 \t%p1, %r1, 0;\n\
                   \t@%p1 bra \t$L__BB0_2;\n"
                    .to_owned()
                    + &call("texts")
                    + "\tbra.uni \t$L__BB0_3;\n$L__BB0_2:\n"
                    + &call("posts")
                    + "$L__BB0_3:\n\texit;\n"),
            ),
            function("panic_fmt", &(call("begin") + "\t// begin inline asm\n\texit;\n\t// end inline asm\n")),
        ]
        .concat()
    }

    fn kernel(name: &str, body: &str) -> String {
        format!(".visible .entry {name}(\n\t.param .b64 {name}_param_0\n)\n{{\n{body}\tret;\n}}\n")
    }

    fn names(ptx: &str) -> Vec<String> {
        functions(ptx).map(|function| function.name.to_owned()).collect()
    }

    #[test]
    fn what_the_host_shows_is_not_formatted() {
        let body = format!("\tmov.b64 \t%rd1, {SHOWS};\n\tcall.uni panic_fmt, (param0);\n");
        let ptx = with_panics(&(program("") + &kernel("a", &body)));
        let tag = Tag::new(tags::UNSIGNED, 0, 3, 0).0;
        assert!(ptx.contains(&format!("hostcall_formatters[4] = {{{SHOWS}, {tag}, 0, 0}};")), "{ptx}");
        assert!(!ptx.contains(DECLARED) && !ptx.contains("texts, ") && !ptx.contains("deep"), "{ptx}");
        assert_eq!(names(&ptx), [SHOWS, SHOWS_OWN, "posts", "begin", "panic_fmt", "a"]);
        // Nothing is called through a pointer.
        assert!(ptx.contains(&format!("{SHOWS}_param_0\n)\n{{\n\ttrap;\n}}")), "{ptx}");
    }

    #[test]
    fn what_the_program_shows_is_formatted_where_it_is_named() {
        let panics = |name: &str| format!("\tmov.b64 \t%rd1, {name};\n\tcall.uni panic_fmt, (param0);\n");
        for named in [SHOWS_OWN, "vtable_1"] {
            let text = program("") + &kernel("a", &panics(SHOWS)) + &kernel("b", &panics(named));
            let ptx = with_panics(&text);
            let all =
                functions(&ptx).map(|function| (function.name, function.body)).collect::<BTreeMap<_, _>>();
            assert!(all["a"].contains("call.uni panic_fmt, "), "{ptx}");
            assert!(all["b"].contains("call.uni panic_fmt$formats, "), "{ptx}");
            assert!(all["panic_fmt$formats"].contains("call.uni begin$formats, "), "{ptx}");
            assert!(
                all["begin$formats"].contains("call.uni texts, ") && all["begin$formats"].contains("posts")
            );
            assert!(all["begin"].contains("posts") && !all["begin"].contains("texts, "), "{ptx}");
            // What may be called through a pointer has its code.
            assert!(all[SHOWS_OWN].contains("deep") && all.contains_key("deep"), "{ptx}");
            assert!(
                ptx.find("begin$formats\n(").is_none_or(|at| at < ptx.find(".func begin(").unwrap()),
                "{ptx}"
            );
        }
        // It is named, and nothing panics.
        let ptx = with_panics(&(program("") + &kernel("a", &format!("\tmov.b64 \t%rd1, {SHOWS_OWN};\n"))));
        assert!(!ptx.contains(FORMATS), "{ptx}");
    }

    #[test]
    fn text_without_the_question_stays_as_it_is() {
        let text = function("a", "\tret;\n");
        assert_eq!(with_panics(&text), text);
    }
}
