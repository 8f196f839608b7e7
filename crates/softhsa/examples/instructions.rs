//! Prints a Markdown page: which instructions are exact, approximate or missing, and which of them the processes
//! executed that wrote to the file which `SOFTHSA_COVERAGE` named.
//!
//! ```sh
//! SOFTHSA_COVERAGE=$PWD/target/executed.txt cargo test -p hostcall-softhsa
//! cargo run -p hostcall-softhsa --example instructions -- target/executed.txt > docs/softhsa-instructions.md
//! ```

use std::collections::{BTreeMap, BTreeSet};

use hostcall_softhsa::exec::coverage::{self, Exactness};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("give the file that SOFTHSA_COVERAGE named")?;
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let executed: BTreeSet<&str> = text.lines().collect();
    let mut lists: BTreeMap<(Exactness, bool), Vec<&str>> = BTreeMap::new();
    for (mnemonic, (exactness, _)) in coverage::report() {
        lists.entry((exactness, executed.contains(mnemonic))).or_default().push(mnemonic);
    }
    println!("# Instructions of gfx942 on the software HSA runtime\n");
    println!("The example `instructions` of `crates/softhsa` makes this page; its first lines say how.\n");
    println!("| | executed by the tests | not executed |\n|---|---|---|");
    let count = |exactness, executed| lists.get(&(exactness, executed)).map_or(0, Vec::len);
    for (exactness, what) in [
        (Exactness::Exact, "exact"),
        (Exactness::Approximate, "approximate on the processor, correctly rounded here"),
        (Exactness::Missing, "missing: a launch stops there and names the instruction"),
    ] {
        println!("| {what} | {} | {} |", count(exactness, true), count(exactness, false));
    }
    for ((exactness, executed), mnemonics) in &lists {
        let executed = if *executed { "executed" } else { "not executed" };
        println!("\n## {exactness:?}, {executed}\n");
        print_lines(mnemonics);
    }
    Ok(())
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
