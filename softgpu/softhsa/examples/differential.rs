//! Compares generated C programs on the host with the same programs on the software HSA runtime.
//!
//! ```sh
//! cargo run --release -p hostcall-softhsa --example differential -- csmith 1000 [FIRST-SEED [THREADS]]
//! cargo run --release -p hostcall-softhsa --example differential -- lanes 1000 [FIRST-SEED [THREADS]]
//! ```
//!
//! Each program is compiled at -O0, -O1, -O2 and -O3. A line after each 25 programs says how many agree so far, and the
//! seed with which a run that was cut off can go on. Ends with status 1 if a program differs, whose source then lies in `target/differential`.

#[path = "../tests/differential/mod.rs"]
mod differential;

use std::path::Path;
use std::process::ExitCode;

use differential::{LEVELS, Source, compare_all};
use hostcall_softhsa::exec::coverage;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        arguments.get(index).map_or(Ok(default), |text| text.parse()).map_err(|_| ())
    };
    let source = match arguments.first().map(String::as_str) {
        Some("csmith") => Some(Source::Csmith),
        Some("lanes") => Some(Source::Lanes),
        _ => None,
    };
    let (Some(source), Ok(count), Ok(first), Ok(threads)) =
        (source, number(1, 100), number(2, 1), number(3, 2))
    else {
        eprintln!("say what to compare: csmith or lanes, then how many programs, the first seed and threads");
        return ExitCode::from(2);
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/differential");
    let (agreed, differing, skipped) = compare_all(source, first, count, threads as usize, &folder, &LEVELS);
    println!("{agreed} agree, {} differ, {} skipped", differing.len(), skipped.len());
    println!("{}", coverage::Summary::of_process());
    ExitCode::from(u8::from(!differing.is_empty()))
}
