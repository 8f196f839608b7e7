//! The page of costs: its figures that no run makes are those of the report.
//!
//! `HOSTCALL_WRITE_COSTS=1 cargo test -p hostcall-build --test costs` writes them anew.

use hostcall_build::{KernelReport, Request, Target, build, report};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// What the page says of a kernel of `programs/bench/src/costs.rs`: its name there, and what it does; and the most that it may take on
/// `sm_90`: registers, stack and bytes of its own code.
const KERNELS: [(&str, &str, [u64; 3]); 15] = [
    ("cost_nothing", "the loop alone", [24, 8, 2560]),
    ("cost_index", "a checked index", [32, 8, 4480]),
    ("cost_assert", "`assert!(i < count)`", [32, 8, 4096]),
    ("cost_assert_text", "`assert!(.., \"{i} is not below {count}\")`", [32, 48, 4480]),
    ("cost_panic", "`panic!(\"lane {} has come to {i}\", ..)`", [40, 48, 4608]),
    ("cost_call", "a call without arguments", [40, 8, 4352]),
    ("cost_call_words", "a call of seven words, one back", [40, 8, 4736]),
    ("cost_call_bytes", "a call with bytes", [40, 1184, 5632]),
    ("cost_post", "a post of a word", [40, 8, 6528]),
    ("cost_line", "`println!(\"a line\")`", [40, 8, 4480]),
    ("cost_line_numbers", "`println!(\"{i} of {count}: {:.2}\", 0.25)`", [40, 8, 4608]),
    ("cost_line_device", "`println!(\"{:?}\", Some(i))`", [40, 32, 4992]),
    ("cost_span", "`span!`", [32, 24, 5120]),
    ("cost_counter", "`counter!`", [32, 16, 4864]),
    ("cost_event", "`event!(\"step {i}\")`", [32, 16, 4864]),
];

const TARGETS: [&str; 2] = ["sm_90", "gfx942"];

/// Around the table.
const MARKS: [&str; 2] = ["<!-- made by tools/build/tests/costs.rs -->\n", "<!-- until here -->\n"];

/// A figure may be so much off: compilers of another version place things otherwise.
fn is_near(said: u64, is: u64) -> bool {
    said.abs_diff(is) <= 4.max(is / 8)
}

/// What a target's compiler makes of each kernel: registers, stack and bytes of code.
fn figures(name: &str) -> Vec<[u64; 3]> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page");
    let target = Target::parse(name).expect("a target");
    // Where `device_code` builds, so that `core` is compiled once for both.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs/target");
    let request = Request::new(package, target).target_dir(folder).quiet();
    let image = build(&request).unwrap_or_else(|error| panic!("{error}"));
    let report = report(&request, &image).unwrap_or_else(|error| panic!("{error}"));
    let of = |name: &str| {
        let kernel: &KernelReport =
            report.kernels.iter().find(|kernel| kernel.name == name).expect("the kernel");
        [kernel.registers.into(), kernel.stack_bytes, kernel.code_bytes]
    };
    KERNELS.iter().map(|(name, ..)| of(name)).collect()
}

fn table(figures: &[Vec<[u64; 3]>]) -> String {
    let mut text = String::from("| in a kernel |");
    for target in TARGETS {
        write!(text, " {target}: registers | stack | code |").expect("a string takes it");
    }
    text.push_str("\n|---|---|---|---|---|---|---|\n");
    for (at, (_, what, _)) in KERNELS.iter().enumerate() {
        write!(text, "| {what} |").expect("a string takes it");
        for of_target in figures {
            let [registers, stack, code] = of_target[at];
            write!(text, " {registers} | {stack} | {code} |").expect("a string takes it");
        }
        text.push('\n');
    }
    text
}

/// The numbers of the table's lines.
fn numbers(table: &str) -> Vec<Vec<u64>> {
    let cells = |line: &str| line.rsplit('|').filter_map(|cell| cell.trim().parse().ok()).take(6).collect();
    table.lines().skip(2).map(cells).collect()
}

#[test]
fn the_page_has_what_the_report_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/costs.md");
    let page = fs::read_to_string(&file).expect("the page");
    let (before, rest) = page.split_once(MARKS[0]).expect("where the table begins");
    let (said, after) = rest.split_once(MARKS[1]).expect("where the table ends");
    let figures = std::thread::scope(|scope| {
        let threads = TARGETS.map(|target| scope.spawn(move || figures(target)));
        threads.map(|thread| thread.join().expect("the package is built"))
    });
    let is = table(&figures);
    for ((name, _, most), takes) in KERNELS.iter().zip(&figures[0]) {
        assert!(
            takes.iter().zip(most).all(|(takes, most)| takes <= most),
            "{name} takes {takes:?}, more than {most:?}"
        );
    }
    if std::env::var_os("HOSTCALL_WRITE_COSTS").is_some() {
        fs::write(&file, format!("{before}{}{is}{}{after}", MARKS[0], MARKS[1])).expect("the page");
        return;
    }
    let (said, now) = (numbers(said), numbers(&is));
    assert_eq!(now.iter().map(Vec::len).collect::<Vec<_>>(), [6; KERNELS.len()]);
    let near = |(said, is): (&Vec<u64>, &Vec<u64>)| {
        said.len() == is.len() && said.iter().zip(is).all(|(said, is)| is_near(*said, *is))
    };
    assert!(
        said.len() == now.len() && said.iter().zip(&now).all(near),
        "HOSTCALL_WRITE_COSTS=1 cargo test -p hostcall-build --test costs writes\n{is}"
    );
}
