//! Prints a Markdown page: which instructions are exact, approximate or missing, and which of them the processes
//! executed that wrote to the file which `SOFTHSA_COVERAGE` named.
//!
//! ```sh
//! SOFTHSA_COVERAGE=$PWD/target/executed.txt cargo test -p hostcall-softhsa
//! cargo run -p hostcall-softhsa --example instructions -- target/executed.txt > softgpu/softhsa/instructions.md
//! ```
//!
//! With a page as second argument it prints nothing, and ends with status 1 if the page says of an instruction that it was
//! executed and it was not. `tests/page.rs` checks what the page says otherwise.

use std::collections::{BTreeMap, BTreeSet};

use hostcall_softhsa::exec::coverage::{self, Exactness};

/// Why some are missing.
const WHO_NEEDS_THE_REST: &str = "\
Of the missing ones compilers make global wave sync (ds_gws) and s_sendmsghalt where a program names their
builtins. Buffers with formats are for graphics; the rest is made by no compiler for gfx942.";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("give the file that SOFTHSA_COVERAGE named")?;
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let executed: BTreeSet<&str> = text.lines().collect();
    if let Some(page) = std::env::args().nth(2) {
        return check(
            &std::fs::read_to_string(&page).map_err(|error| format!("{page}: {error}"))?,
            &executed,
        );
    }
    let mut lists: BTreeMap<(Exactness, bool), Vec<&str>> = BTreeMap::new();
    for (mnemonic, (exactness, _)) in coverage::report() {
        lists.entry((exactness, executed.contains(mnemonic))).or_default().push(mnemonic);
    }
    println!("# Instructions of gfx942 on the software HSA runtime\n");
    println!("The example `instructions` of `softgpu/softhsa` makes this page; its first lines say how.\n");
    println!("| | executed by the tests | not executed |\n|---|---|---|");
    let count = |exactness, executed| lists.get(&(exactness, executed)).map_or(0, Vec::len);
    for (exactness, what) in [
        (Exactness::Exact, "exact"),
        (Exactness::Approximate, "approximate on the processor, correctly rounded here"),
        (Exactness::Missing, "missing: a launch stops there and names the instruction"),
    ] {
        println!("| {what} | {} | {} |", count(exactness, true), count(exactness, false));
    }
    println!("\n{WHO_NEEDS_THE_REST}");
    for ((exactness, executed), mnemonics) in &lists {
        let executed = if *executed { "executed" } else { "not executed" };
        println!("\n## {exactness:?}, {executed}\n");
        print_lines(mnemonics);
    }
    Ok(())
}

/// Fails if a list of executed instructions in the page names others.
fn check(page: &str, executed: &BTreeSet<&str>) -> Result<(), Box<dyn std::error::Error>> {
    let lists = page.split("\n## ").filter(|section| section.contains(", executed\n"));
    let wrong: Vec<&str> = lists
        .flat_map(|section| section.split('`').skip(1).step_by(2))
        .filter(|mnemonic| !executed.contains(mnemonic))
        .collect();
    match wrong.as_slice() {
        [] => Ok(()),
        wrong => Err(format!("no test executed {}, as the page says", wrong.join(" ")).into()),
    }
}

/// Prints mnemonics in lines of at most 110 columns.
fn print_lines(mnemonics: &[&str]) {
    let mut line = String::new();
    for mnemonic in mnemonics {
        if line.len() + mnemonic.len() + 3 > 110 {
            println!("{}", line.trim_end());
            line.clear();
        }
        line += &format!("`{mnemonic}` ");
    }
    println!("{}", line.trim_end());
}
