//! What NVIDIA kernels are spared that do not need it.
//!
//! The compiler sees a part of a program at a time; only the PTX of the whole program says that a kernel makes no calls. So the
//! device crate asks in its code, which is in every kernel, and this module answers (`target/nvptx.rs` there has the questions):
//!
//! - `mov.u32 %r1, 1; // hostcall asks: posts`: do waves of the kernel post? If not, they need not look at barriers for
//!   posts that the host was not told of, nor wait when they end for what those that post ask of the host's memory.
//! - `mov.u32 %r1, 1; // hostcall asks: points`: has the kernel trace points? If not, its waves need no copy of their switch.
//! - `mov.u32 %r1, 1; // hostcall asks: record`: does anything look into the records of the kernel's waves? If not, the waves
//!   make none, and have nothing to do when they end.
//! - `ld.shared.v2.b64 {%rd1, %rd2}, [%r1+240]; // hostcall reads: 32` reads the launch's parameters from the record. A kernel's
//!   entry can read them where the launch put them, at 32 here.
//!
//! To answer no it writes 0 for 1, and leaves out the blocks which only another answer leads to. What answers yes says so by
//! `// hostcall has: posts`, `// hostcall has: points` and `// hostcall has: record`.
//!
//! What the host has to know of a kernel's code goes into [`KernelInfo::found`]: `// hostcall has: pulls` is where bytes of the
//! host's memory are copied.

use crate::calls::Program;
use crate::ptx::{Assembly, Function, functions, words};
use hostcall_abi::launch::{KERNEL_INFO_SYMBOL_PREFIX, KERNEL_SYMBOL_PREFIX, KernelInfo, NEVER_STOPS, PULLS};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Questions whose answer is yes where code that the kernel reaches says so.
const REACHED: [(&str, &str); 2] =
    [("hostcall asks: posts", "hostcall has: posts"), ("hostcall asks: points", "hostcall has: points")];
const ASKS_RECORD: &str = "hostcall asks: record";
const HAS_RECORD: &str = "hostcall has: record";
const HAS_PULLS: &str = "hostcall has: pulls";
const READS: &str = "hostcall reads: ";

/// Where the parameters begin that a wave may have changed in its record, `LaunchParams::sequence` and `launch`.
const CHANGED_AT: &str = "16";

/// PTX with the questions answered.
pub(crate) fn with_answers(ptx: &str) -> String {
    let all: Vec<Function<'_>> = functions(ptx).collect();
    let program = Program::new(ptx, &all);
    // Of functions that several kernels call, the answers must hold in each.
    let (mut having, mut others) = (REACHED.map(|_| BTreeSet::new()), REACHED.map(|_| BTreeSet::new()));
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in all.iter().filter(|function| function.is_entry) {
        let reached = program.reached_by(entry, |function| !function.tells_of_posts());
        let has = |what| reached.iter().any(|name| program.functions[name].body.contains(what));
        if has(HAS_PULLS) {
            *found.entry(entry.name).or_default() |= PULLS;
        }
        for (i, (_, what)) in REACHED.into_iter().enumerate() {
            if has(what) { &mut having[i] } else { &mut others[i] }.extend(reached.iter().copied());
        }
    }

    let (mut answered, mut done) = (String::with_capacity(ptx.len()), 0);
    for function in &all {
        let at = function.body.as_ptr() as usize - ptx.as_ptr() as usize;
        let is_yes: [bool; 2] =
            std::array::from_fn(|i| having[i].contains(function.name) || !others[i].contains(function.name));
        let record = !function.is_entry || program.has_record(function);
        if !record {
            *found.entry(function.name).or_default() |= NEVER_STOPS;
        }
        let is_no = |line: &str| {
            let is_not_reached =
                REACHED.iter().zip(is_yes).any(|((asks, _), yes)| !yes && line.contains(asks));
            is_not_reached || !record && line.contains(ASKS_RECORD)
        };
        answered += &ptx[done..at];
        answered += &answer(function, is_no, |line| parameters(function, line));
        done = at + function.body.len();
    }
    answered += &ptx[done..];
    found.into_iter().fold(answered, |ptx, (entry, found)| with_found(ptx, entry, found))
}

/// A function's body with no for an answer where a line `is_no`, and other lines as `instead` gives them.
pub(crate) fn answer(
    function: &Function<'_>,
    is_no: impl Fn(&str) -> bool,
    instead: impl Fn(&str) -> Option<String>,
) -> String {
    let nos = function.body.lines().filter(|line| is_no(line)).filter_map(|line| words(line).nth(2));
    let known = Known::of(function, &nos.collect());
    let mut body = String::with_capacity(function.body.len());
    for line in function.body.split_inclusive('\n') {
        match instead(line).or_else(|| known.branch(line)) {
            Some(instead) => body += &instead,
            None if is_no(line) => body += &line.replace(", 1;", ", 0;"),
            None => body += line,
        }
    }
    if known.0.is_empty() { body } else { without_dead(&body) }
}

/// PTX in which the info of this entry's kernel says what was found in its code.
fn with_found(mut ptx: String, entry: &str, found: u64) -> String {
    let at = entry.strip_prefix(KERNEL_SYMBOL_PREFIX).and_then(|kernel| {
        let info = ptx.find(&format!(" {KERNEL_INFO_SYMBOL_PREFIX}{kernel}["))?;
        let bytes = info + ptx[info..].find('{')? + 1;
        let commas = ptx[bytes..].match_indices(',').map(|(comma, _)| bytes + comma + 1);
        let start = commas.take(std::mem::offset_of!(KernelInfo, found)).last()?;
        Some(start + ptx[start..].find('0')?)
    });
    if let Some(at) = at {
        ptx.replace_range(at..=at, &found.to_string());
    }
    ptx
}

/// What an entry does instead of the line, if that reads parameters which no wave changes.
fn parameters(function: &Function<'_>, line: &str) -> Option<String> {
    let (read, at) = line.split_once(READS)?;
    let at = at.trim_end();
    let (load, _) = read.split_once('[')?;
    let load = load.replace("ld.shared.", "ld.param.");
    let can = function.is_entry && at != CHANGED_AT;
    can.then(|| format!("{load}[{}_param_0+{at}];\n", function.name))
}

/// Predicates that an answer decides, and what they are.
struct Known<'t>(BTreeMap<&'t str, bool>);

impl<'t> Known<'t> {
    /// Those of a function in which these registers are 0.
    fn of(function: &Function<'t>, zeros: &BTreeSet<&'t str>) -> Self {
        let mut writes: HashMap<&str, u32> = HashMap::new();
        let written = function.statements.iter().flat_map(|statement| words(statement.sides().0));
        written.for_each(|register| *writes.entry(register).or_default() += 1);
        let once = |register: &str| writes.get(register) == Some(&1);
        let tests = function.statements.iter().filter_map(|statement| {
            let is_equal = match statement.opcode {
                "setp.eq.b32" => true,
                "setp.ne.b32" => false,
                _ => return None,
            };
            let mut operands = statement.words();
            let (predicate, register, number) = (operands.next()?, operands.next()?, operands.next()?);
            let is_known = zeros.contains(register) && number == "0" && once(register) && once(predicate);
            is_known.then_some((predicate, is_equal))
        });
        Self(tests.collect())
    }

    /// What to write for a line that branches by one of them.
    fn branch(&self, line: &str) -> Option<String> {
        let (predicate, branch) = line.trim_start().strip_prefix('@')?.split_once([' ', '\t'])?;
        let (wanted, predicate) = predicate.strip_prefix('!').map_or((true, predicate), |rest| (false, rest));
        let target = branch.trim_start().strip_prefix("bra")?.trim_start_matches(".uni").trim_start();
        let is_taken = *self.0.get(predicate)? == wanted;
        Some(if is_taken { format!("\tbra.uni \t{target}") } else { String::new() })
    }
}

/// A body without the blocks that nothing leads to. Inline assembly is left out whole or not at all.
fn without_dead(body: &str) -> String {
    let mut lines: Vec<&str> = body.split_inclusive('\n').collect();
    loop {
        let before = lines.len();
        let targets: HashSet<&str> =
            lines.iter().filter(|line| label(line).is_none()).flat_map(|line| words(line)).collect();
        let (mut is_dead, mut assembly) = (false, Assembly::default());
        lines.retain(|line| {
            if assembly.has(line) {
                return !is_dead;
            }
            is_dead &= label(line).is_none_or(|label| !targets.contains(label));
            let is_kept = !is_dead;
            let opcode = line.split_whitespace().next().unwrap_or_default();
            is_dead |= ["bra.uni", "ret;", "exit;", "trap;"].contains(&opcode);
            is_kept
        });
        if lines.len() == before {
            return lines.concat();
        }
    }
}

/// The label that a line is.
fn label(line: &str) -> Option<&str> {
    let line = line.split("//").next().unwrap_or_default();
    line.trim().strip_suffix(':').filter(|name| name.starts_with('$'))
}

impl<'t> Program<'_, 't> {
    /// Whether anything that the entry reaches looks into the waves' records. The end of waves does only where they are.
    fn has_record(&self, entry: &Function<'t>) -> bool {
        let reached = self.reached_by(entry, |function| !function.is_end_of_waves());
        let looks = |name: &&str| {
            let body = self.functions[name].body;
            if *name == entry.name {
                body.contains(HAS_RECORD) || body.contains(&format!("{READS}{CHANGED_AT}\n"))
            } else {
                // Other functions get no answers of this entry's own.
                ["hostcall asks: ", "hostcall has: ", READS].iter().any(|what| body.contains(what))
            }
        };
        reached.iter().any(looks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: &str = "\tmov.u32 %r1, 1; // hostcall asks: posts\n\tsetp.eq.b32 \t%p1, %r1, 0;\n\t@%p1 bra \t$L__BB0_1;\n\
        \tld.shared.b32 \t%r9, [%r8];\n$L__BB0_1:\n\tmov.u32 %r2, 1; // hostcall asks: record\n";
    const READS_32: &str = "\tld.shared.v2.b64 {%rd1, %rd2}, [%r1+240]; // hostcall reads: 32\n";
    const READS_16: &str = "\tld.shared.v2.b64 {%rd1, %rd2}, [%r1+224]; // hostcall reads: 16\n";
    const LOOKS: &str = "\t{ mov.u64 %hostcall, hostcall_shared; } // hostcall has: record\n";
    const THROUGH_POINTER: &str = "\tcall.uni %rd1, (), prototype_1;\n";

    fn function(name: &str, body: &str) -> String {
        format!(".func {name}()\n{{\n{body}\tret;\n}}\n")
    }

    fn call(name: &str) -> String {
        format!("\tcall.uni {name}, ();\n")
    }

    /// What the kernel of this body is told: whether it posts, and whether it has records.
    fn answers(body: &str, others: &str) -> [bool; 2] {
        let text = format!("{others}.visible .entry kernel()\n{{\n{ASKS}{body}\tret;\n}}\n");
        let answered = with_answers(&text);
        let entry = answered.split_once(".entry kernel()").unwrap().1;
        let [posts, record] = [(1, "posts"), (2, "record")].map(|(register, what)| {
            let answer =
                |yes: u32| entry.contains(&format!("mov.u32 %r{register}, {yes}; // hostcall asks: {what}"));
            assert!(answer(0) != answer(1), "{entry}");
            answer(1)
        });
        assert_eq!(entry.contains("\tbra.uni \t$L__BB0_1;\n"), !posts, "{entry}");
        assert_eq!(entry.contains("ld.shared.b32"), posts, "{entry}");
        [posts, record]
    }

    #[test]
    fn a_kernel_is_told_of_what_it_reaches() {
        let puts = function("puts", "\t// hostcall has: posts\n");
        let looks = function("looks", LOOKS);
        let panics =
            ".func rust_begin_unwind()\n{\n".to_owned() + &call("puts") + &call("looks") + "\ttrap;\n}\n";
        let serves = ".func serves()\n{\n".to_owned() + &call("puts") + "\ttrap;\n}\n";
        let end = ["8end_part", "7end_all"]
            .map(|end| function(&format!("_15hostcall_device6target3gpu{end}"), LOOKS))
            .concat();
        let middle = function("middle", &call("puts"));
        let all = [puts, looks, panics, serves, end, middle].concat();
        assert_eq!(answers("", &all), [false, false]);
        assert_eq!(answers(&call("_15hostcall_device6target3gpu8end_part"), &all), [false, false]);
        assert_eq!(answers(&call("_15hostcall_device6target3gpu7end_all"), &all), [false, false]);
        assert_eq!(answers(&call("looks"), &all), [false, true]);
        assert_eq!(answers(LOOKS, &all), [false, true]);
        assert_eq!(answers(&call("middle"), &all), [true, true]);
        // The call that reports a panic tells the host of posts.
        assert_eq!(answers(&call("rust_begin_unwind"), &all), [false, true]);
        assert_eq!(answers(&call("serves"), &all), [true, true]);
        // Through a pointer it gets to what is pointed at.
        assert_eq!(answers(THROUGH_POINTER, &all), [false, false]);
        let pointed_at = |name: &str| format!("{all}.global .align 8 .u64 table[1] = {{{name}}};\n");
        assert_eq!(answers(THROUGH_POINTER, &pointed_at("looks")), [false, true]);
        assert_eq!(answers(THROUGH_POINTER, &pointed_at("middle")), [true, true]);
    }

    #[test]
    fn waves_copy_the_switch_of_points_where_there_are_points() {
        let asks = "\tmov.u32 %r1, 1; // hostcall asks: points\n\tmov.u32 %r2, 1; // hostcall asks: posts\n";
        let traces =
            function("traces", "\tld.volatile.shared.b64 %rd1, [hostcall_shared]; // hostcall has: points\n");
        let entry = |body: &str| format!("{traces}.visible .entry kernel()\n{{\n{asks}{body}\tret;\n}}\n");
        let [without, with] = ["", &call("traces")].map(|body| with_answers(&entry(body)));
        assert!(without.contains("%r1, 0; // hostcall asks: points"), "{without}");
        assert!(with.contains("%r1, 1; // hostcall asks: points"), "{with}");
        assert!(with.contains("%r2, 0; // hostcall asks: posts"), "{with}");
    }

    #[test]
    fn braces_of_assembly_end_no_function() {
        let braces = "\t// begin inline asm\n\t{\n.reg .u32 t;\n}\n\t// end inline asm\n";
        assert_eq!(answers(&(braces.to_owned() + LOOKS), ""), [false, true]);
    }

    #[test]
    fn what_several_kernels_call_is_told_what_holds_in_each() {
        let asks = function("asks", ASKS);
        let puts = function("puts", "\t// hostcall has: posts\n");
        let kernel = |name: &str, body: &str| format!(".visible .entry {name}()\n{{\n{body}\tret;\n}}\n");
        let of_asks = |text: &str| with_answers(text).split_once("\n}").unwrap().0.to_owned();
        let alone = asks.clone() + &puts + &kernel("a", &call("asks"));
        assert!(of_asks(&alone).contains("%r1, 0;") && of_asks(&alone).contains("%r2, 1;"));
        let both = alone.clone() + &kernel("b", &(call("asks") + &call("puts")));
        assert!(of_asks(&both).contains("%r1, 1;") && of_asks(&both).contains("%r2, 1;"));
        // No kernel calls it, as far as one can see.
        assert!(of_asks(&(asks + &kernel("a", ""))).contains("%r1, 1;"));
        // It looks whether its wave has a slot, so that there must be a record.
        assert_eq!(answers(&call("asks"), &function("asks", ASKS)), [false, true]);
    }

    #[test]
    fn an_entry_reads_parameters_where_the_launch_put_them() {
        let text = format!(".visible .entry kernel()\n{{\n{READS_32}{READS_16}\tret;\n}}\n");
        let answered = with_answers(&text);
        assert!(answered.contains("ld.param.v2.b64 {%rd1, %rd2}, [kernel_param_0+32];\n"), "{answered}");
        assert!(answered.contains(READS_16), "{answered}");
        assert_eq!(answers(READS_32, ""), [false, false]);
        assert_eq!(answers(READS_16, ""), [false, true]);
        let reads = function("reads", READS_32);
        assert!(with_answers(&reads).contains(READS_32));
        assert_eq!(answers(&call("reads"), &reads), [false, true]);
    }

    #[test]
    fn the_host_is_told_of_kernels_that_never_stop_their_stream_and_of_those_that_pull() {
        let info = |kernel: &str, found: u64| {
            let words =
                [[7, 0, 0, 0, 0, 0, 0, 0]; 8].as_flattened().iter().map(u32::to_string).collect::<Vec<_>>();
            let info = format!("{}, {found}, 0, 0, 0, 0, 0, 0, 0, 9", words.join(", "));
            format!(".visible .global .align 8 .b8 hostcall_kernel_info_{kernel}[80] = {{{info}}};\n")
        };
        let kernel = |name: &str, body: &str| {
            format!(".visible .entry hostcall_kernel_{name}()\n{{\n{body}\tret;\n}}\n")
        };
        let pulls = function("pulls", &(LOOKS.to_owned() + "\t// hostcall has: pulls\n"));
        let text = |[a, b, c]: [u64; 3]| {
            let infos = info("a", a) + &info("b", b) + &info("c", c);
            infos + &pulls + &kernel("a", "") + &kernel("b", LOOKS) + &kernel("c", &call("pulls"))
        };
        assert_eq!(with_answers(&text([0; 3])), text([NEVER_STOPS, 0, PULLS]));
    }

    #[test]
    fn blocks_that_nothing_leads_to_are_left_out() {
        let body = "\tbra.uni \t$L_3;\n\tmov.b32 \t%r1, 1;\n$L_1:\n\tmov.b32 \t%r1, 2;\n\t@%p1 bra \t$L_2;\n\
            \tret;\n$L_2:\n\tmov.b32 \t%r1, 3;\n$L_3:\n\t@%p2 bra \t$L_4;\n\tret;\n$L_4:\n\ttrap;\n";
        let kept = "\tbra.uni \t$L_3;\n$L_3:\n\t@%p2 bra \t$L_4;\n\tret;\n$L_4:\n\ttrap;\n";
        assert_eq!(without_dead(body), kept);
        let trap =
            "\t// begin inline asm\n\t{ @p bra GO_ON;\ntrap;\nGO_ON:\n}\n\t// end inline asm\n\tret;\n";
        assert_eq!(without_dead(trap), trap);
        let jump = "\tbra.uni \t$L_1;\n$L_2: // a comment\n\tret;\n$L_1:\n\t@%p1 bra $L_2;\n\ttrap;\n";
        assert_eq!(without_dead(jump), jump);
    }

    #[test]
    fn only_a_predicate_that_is_written_once_is_known() {
        let again = ASKS.replace("\tld.shared", "\tmov.pred \t%p1, %p2;\n\tld.shared");
        let answered = with_answers(&format!(".visible .entry kernel()\n{{\n{again}\tret;\n}}\n"));
        assert!(
            answered.contains("mov.u32 %r1, 0;") && answered.contains("@%p1 bra \t$L__BB0_1;"),
            "{answered}"
        );
    }
}
