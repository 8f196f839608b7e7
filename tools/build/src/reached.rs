//! Leaves out of PTX what no kernel reaches.
//!
//! The functions by which programs with `std` call the host are names of C, which the compiler keeps: a program has all of them,
//! and what they call, whatever it uses. The driver would compile them each time that it sees the program for the first time.

use crate::ptx::{Function, functions, words};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// PTX without the functions that neither an entry reaches nor a variable names.
pub(crate) fn without_unreached(ptx: &str) -> String {
    let all: Vec<Function<'_>> = functions(ptx).collect();
    let by_name: BTreeMap<_, _> = all.iter().map(|function| (function.name, function)).collect();
    let start_of = |part: &str| part.as_ptr().addr() - ptx.as_ptr().addr();
    // With the braces around the body, which is the rest of its line's beginning.
    let span_of = |function: &Function<'_>| {
        let end = start_of(function.body) + function.body.len() + 1;
        start_of(function.header)..end + usize::from(ptx[end..].starts_with('\n'))
    };
    let of_variables = ptx.lines().filter(|line| line.contains('=')).filter(|line| {
        let line = line.trim_start_matches(".visible ").trim_start_matches(".weak ");
        line.starts_with(".global ") || line.starts_with(".const ")
    });
    let mut left: Vec<&str> =
        all.iter().filter(|function| function.is_entry).map(|entry| entry.name).collect();
    left.extend(of_variables.flat_map(words));
    let mut reached = BTreeSet::new();
    while let Some(name) = left.pop() {
        if let Some(function) = by_name.get(name)
            && reached.insert(name)
        {
            left.extend(words(function.body));
        }
    }
    let is_left_out = |name: &str| by_name.contains_key(name) && !reached.contains(name);
    let mut left_out: Vec<_> =
        all.iter().filter(|function| is_left_out(function.name)).map(span_of).collect();
    // The assembler takes a function that is declared for one that is elsewhere.
    left_out.extend(declarations(ptx).filter(|(name, _)| is_left_out(name)).map(|(_, span)| span));
    left_out.sort_unstable_by_key(|span| span.start);
    let (mut text, mut at) = (String::with_capacity(ptx.len()), 0);
    for span in left_out {
        text += &ptx[at..span.start];
        at = span.end;
    }
    text + &ptx[at..]
}

/// Declarations of functions: their names, and where they stand, with their lines' ends.
fn declarations(ptx: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
    let starts = ptx.match_indices("\n.func ").map(|(at, _)| at + 1);
    starts.filter_map(|start| {
        let rest = &ptx[start..];
        let end = rest.find([';', '{']).filter(|end| rest.as_bytes()[*end] == b';')?;
        let header = rest[..end].trim_start_matches(".func ").trim_start();
        // The result stands before the name.
        let name = header.strip_prefix('(').map_or(Some(header), |result| Some(result.split_once(')')?.1))?;
        let name = words(name).next()?;
        let line = rest[end..].find('\n').map_or(rest.len(), |at| end + at + 1);
        Some((name, start..start + line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_kernel_reaches_is_left_out() {
        let function =
            |name: &str, calls: &str| format!(".func {name}()\n{{\n\tcall.uni {calls};\n\tret;\n}}\n");
        let entry = ".visible .entry kernel()\n{\n\tcall.uni called;\n\tret;\n}\n";
        let declared = |name: &str| {
            format!(".func  (.param .b64 func_retval0) {name}\n(\n\t.param .b64 {name}_param_0\n)\n;\n")
        };
        let head = |unused: &str| {
            format!(".version 8.0\n{}{unused}.extern .func elsewhere();\n", declared("called"))
        };
        let variable = ".global .align 8 .u64 table[2] = {pointed_at, 0};\n";
        let kept =
            [function("called", "further"), function("further", "further"), function("pointed_at", "called")];
        let left_out = [function("unused", "also_unused"), function("also_unused", "called")];
        let text = |head: &str, functions: &[&String]| {
            let functions: String = functions.iter().map(|text| &***text).collect();
            format!("{head}{variable}{functions}{entry}// end\n")
        };
        let [called, further, pointed_at] = &kept;
        let [unused, also_unused] = &left_out;
        let all = text(&head(&declared("unused")), &[unused, called, also_unused, further, pointed_at]);
        let kept = text(&head(""), &[called, further, pointed_at]);
        assert_eq!(without_unreached(&all), kept);
        assert_eq!(without_unreached(&kept), kept);
    }
}
