//! How many registers a kernel gets on NVIDIA.
//!
//! A kernel has as many registers as the most that any function takes which it can reach. Every checked index
//! reaches the report of a panic, which would take more than 100, with which most waves of a multiprocessor have
//! no room. So functions get [`LEAST`] and spill (`FUNCTION_REGISTERS`), which costs nothing while they are rare,
//! and a kernel gets a bound of its own (`.maxnreg`), which the linker checks against what it calls.
//!
//! The bound is what the kernel's own code needs. It is estimated from the PTX, since the driver assembles
//! it on the machine where the kernel runs. Most kernels wait for memory, and are the faster the more of
//! their waves a multiprocessor holds. So what an innermost loop hands from turn to turn counts whole and all
//! else by half: what lies outside of loops spills at little cost, and what a loop only reads or makes anew
//! the assembler makes where it is used. The factors are measured (docs/history, "Registers").

use crate::ptx::{Function, Statement, functions};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The least bound, with which a multiprocessor has as many waves as it can. Functions that kernels call have no more.
pub(crate) const LEAST: u32 = hostcall_abi::launch::FUNCTION_REGISTERS;

/// So many values fit [`LEAST`] registers; more need [`SPARE`] ones besides.
const FITS_LEAST: u32 = 29;

/// Lanes of the workgroups that a kernel has mostly.
pub(crate) const USUAL_LANES: u32 = 256;

/// The most lanes of a workgroup that a grid allows on every device.
pub(crate) const MOST_LANES: u32 = 1024;

/// Registers for what is computed on the way to a value.
const SPARE: u32 = 4;

/// The least for a loop that computes much with what it loads: the assembler unrolls it, and needs registers for the loads of
/// several turns.
const COMPUTES: u32 = 48;

/// Floating-point operations for each value loaded that are much.
const MUCH: usize = 4;

/// What a kernel gets at least that calls functions of the device crate, which calls of the host go through, or any through
/// pointers: what it keeps meanwhile it has in registers that these save, and in a few besides.
const CALLS: u32 = 40;

/// Returns the bound of each kernel of the PTX, by its symbol.
pub(crate) fn bounds(ptx: &str) -> HashMap<&str, u32> {
    let functions: HashMap<&str, Function<'_>> =
        functions(ptx).map(|function| (function.name, function)).collect();
    let entries = functions.values().filter(|function| function.is_entry);
    let mut needs = HashMap::new();
    entries.map(|entry| (entry.name, bound(entry, &functions, &mut needs))).collect()
}

/// The most that a kernel needs, or any function that it calls and that is not rare. `needs` has what was worked out before.
fn bound<'t>(
    entry: &Function<'t>,
    functions: &HashMap<&'t str, Function<'t>>,
    needs: &mut HashMap<&'t str, u32>,
) -> u32 {
    let own = OwnFunctions::of(entry, functions);
    let mut of_function = |function: &&Function<'t>| {
        *needs.entry(function.name).or_insert_with(|| {
            let need = Liveness::of(function).need();
            let values = if need.values <= FITS_LEAST { LEAST } else { need.values + SPARE };
            values.max(if need.computes { COMPUTES } else { LEAST })
        })
    };
    let need = own.functions.iter().map(&mut of_function).max().unwrap_or(LEAST);
    need.max(if own.call_others { CALLS } else { LEAST }).next_multiple_of(8)
}

/// The most registers with which a multiprocessor holds as many workgroups as with `registers`: more cost no wave then.
/// Workgroups have `max_lanes` lanes; where a kernel does not say, mostly [`USUAL_LANES`], but any number must be able to start.
pub(crate) fn as_many_workgroups(registers: u32, max_lanes: Option<u32>) -> u32 {
    // Registers of a multiprocessor of every GPU that images are built for, and the most workgroups of the larger ones.
    const REGISTERS: u32 = 1 << 16;
    const WORKGROUPS: u32 = 32;
    let lanes = max_lanes.unwrap_or(USUAL_LANES);
    // They come by eights.
    let most = |workgroups: u32, lanes: u32| (REGISTERS / (workgroups * lanes) / 8 * 8).min(248);
    let workgroups = (REGISTERS / (registers * lanes)).clamp(1, WORKGROUPS);
    most(workgroups, lanes).min(most(1, max_lanes.unwrap_or(MOST_LANES)))
}

/// A kernel's own code.
pub(crate) struct OwnFunctions<'f, 't> {
    /// The kernel and the functions that it calls, but for those that are rare or of the device crate.
    pub functions: Vec<&'f Function<'t>>,
    /// Whether they call the device crate's functions, or any through pointers.
    pub call_others: bool,
}

impl<'f, 't> OwnFunctions<'f, 't> {
    pub fn of(entry: &'f Function<'t>, functions: &'f HashMap<&'t str, Function<'t>>) -> Self {
        let mut own = Self { functions: vec![entry], call_others: false };
        let (mut seen, mut next) = (HashSet::from([entry.name]), 0);
        while let Some(function) = own.functions.get(next).copied() {
            next += 1;
            for call in function.statements.iter().filter(|statement| statement.opcode.starts_with("call")) {
                match call.words().find_map(|word| functions.get(word)) {
                    Some(callee) if callee.is_rare() => {}
                    Some(callee) if !callee.is_of_device_crate() => {
                        if seen.insert(callee.name) {
                            own.functions.push(callee);
                        }
                    }
                    _ => own.call_others = true,
                }
            }
        }
        own
    }
}

impl Function<'_> {
    /// Whether a kernel hardly ever gets there: where nothing returns from (panics), the end of waves that have slots, and trace
    /// points of a device that is traced.
    fn is_rare(&self) -> bool {
        // Panics do not return.
        self.is_end_of_waves() || !self.returns() || self.name.contains("15hostcall_device5trace")
    }

    /// Whether calls of the host go through it. What computes is the kernel's own.
    fn is_of_device_crate(&self) -> bool {
        let computes = ["15hostcall_device4math", "15hostcall_device4wave", "15hostcall_device9workgroup"];
        self.name.contains("15hostcall_device") && !computes.iter().any(|name| self.name.contains(name))
    }
}

/// Starts of opcodes that write no register.
const WRITE_NOTHING: &[&str] = &[
    "st",
    "bra",
    "brx",
    "ret",
    "exit",
    "trap",
    "call",
    "red",
    "bar",
    "membar",
    "fence",
    "nanosleep",
    "prefetch",
];

impl<'t> Statement<'t> {
    fn label(&self) -> Option<&'t str> {
        self.opcode.strip_suffix(':')
    }

    /// The operands that are written, and those that are read.
    pub(crate) fn sides(&self) -> (&'t str, &'t str) {
        let name = self.opcode.split('.').next().unwrap_or_default();
        if WRITE_NOTHING.contains(&name) || self.label().is_some() {
            return ("", self.operands);
        }
        let end =
            if self.operands.starts_with('{') { self.operands.find('}') } else { self.operands.find(',') };
        self.operands.split_at(end.unwrap_or(self.operands.len()))
    }

    /// Whether what it writes is a constant, which takes a register only for a moment.
    fn is_constant(&self) -> bool {
        let source = self.sides().1;
        let is_parameter = self.opcode.starts_with("ld.param") && source.contains("_param_");
        is_parameter || self.opcode.starts_with("mov") && registers(source).next().is_none()
    }
}

/// The registers among operands, such as `%rd12`.
pub(crate) fn registers(operands: &str) -> impl Iterator<Item = &str> {
    let words = operands.split(|c: char| !c.is_alphanumeric() && c != '%');
    words.filter(|word| word.starts_with('%') && word.ends_with(|c: char| c.is_ascii_digit()))
}

/// Registers of 32 bits that a value takes.
fn width(register: &str) -> u32 {
    match register.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "%p" => 0,
        "%rd" | "%fd" => 2,
        "%rq" => 4,
        _ => 1,
    }
}

/// What a function's own code needs.
struct Need {
    /// Registers for values that are needed at the same time.
    values: u32,
    /// Whether a loop computes much with what it loads.
    computes: bool,
}

/// Which values of a function are needed where.
struct Liveness<'f, 't> {
    statements: &'f [Statement<'t>],
    is_entry: bool,
    /// Registers that hold nothing but constants.
    constants: HashSet<&'t str>,
    blocks: Vec<Block<'t>>,
}

/// Statements that follow each other without a branch or label.
struct Block<'t> {
    statements: Range<usize>,
    next: Vec<usize>,
    /// What is needed where it begins.
    live: HashSet<&'t str>,
}

/// Blocks from which one gets back to the first one of them.
struct Loop<'t> {
    blocks: HashSet<usize>,
    /// Registers that its statements name.
    used: HashSet<&'t str>,
    /// Of these, values that one turn hands to the next.
    carried: HashSet<&'t str>,
    /// Whether it computes much with what it loads, and its lanes do not wait for each other.
    computes: bool,
}

impl<'f, 't> Liveness<'f, 't> {
    fn of(function: &'f Function<'t>) -> Self {
        let statements = &function.statements;
        let (constant, other): (Vec<_>, Vec<_>) =
            statements.iter().partition(|statement| statement.is_constant());
        let written = |statements: Vec<&Statement<'t>>| -> HashSet<&'t str> {
            statements.into_iter().flat_map(|statement| registers(statement.sides().0)).collect()
        };
        let constants = if function.is_entry { &written(constant) - &written(other) } else { HashSet::new() };
        let is_entry = function.is_entry;
        let mut liveness = Self { statements, is_entry, constants, blocks: blocks(statements) };
        liveness.solve();
        liveness
    }

    fn solve(&mut self) {
        let before = self.before();
        // Those after which something has changed since they were looked at.
        let mut due = vec![true; self.blocks.len()];
        while due.contains(&true) {
            for at in (0..self.blocks.len()).rev() {
                if !std::mem::take(&mut due[at]) {
                    continue;
                }
                let live = self.walk(&self.blocks[at], |_| {});
                // What a block needs only grows.
                if live.len() > self.blocks[at].live.len() {
                    before[at].iter().for_each(|&before| due[before] = true);
                }
                self.blocks[at].live = live;
            }
        }
    }

    /// From which blocks one gets to each.
    fn before(&self) -> Vec<Vec<usize>> {
        let mut before = vec![Vec::new(); self.blocks.len()];
        for (at, block) in self.blocks.iter().enumerate() {
            block.next.iter().for_each(|&next| before[next].push(at));
        }
        before
    }

    /// Goes back through a block. `look` sees the values that are held at each statement.
    fn walk(&self, block: &Block<'t>, mut look: impl FnMut(&HashSet<&'t str>)) -> HashSet<&'t str> {
        let mut live: HashSet<&str> = HashSet::new();
        for &next in &block.next {
            live.extend(&self.blocks[next].live);
        }
        for statement in self.statements[block.statements.clone()].iter().rev() {
            let (written, read) = statement.sides();
            let kept = |register: &&str| !self.constants.contains(register);
            live.extend(registers(written).filter(kept));
            look(&live);
            if !statement.is_predicated {
                registers(written).for_each(|register| _ = live.remove(register));
            }
            live.extend(registers(read).chain(registers(statement.predicate)).filter(kept));
        }
        live
    }

    /// What is needed at the statement that needs the most. Of a kernel that loops, the loops count; a function may be called
    /// in one.
    fn need(&self) -> Need {
        let loops = if self.is_entry { self.loops() } else { Vec::new() };
        let mut values = 0;
        for (at, block) in self.blocks.iter().enumerate() {
            let innermost =
                loops.iter().filter(|one| one.blocks.contains(&at)).min_by_key(|one| one.blocks.len());
            self.walk(block, |live| {
                let sum = |counts: &dyn Fn(&&&str) -> bool| -> u32 {
                    live.iter().filter(counts).map(|register| width(register)).sum()
                };
                let need = match innermost {
                    None if loops.is_empty() => sum(&|_| true),
                    None => sum(&|_| true) / 2,
                    Some(one) => {
                        (sum(&|live| one.used.contains(**live)) + sum(&|live| one.carried.contains(**live)))
                            / 2
                    }
                };
                values = values.max(need);
            });
        }
        Need { values, computes: loops.iter().any(|one| one.computes) }
    }

    /// The loops, outer and inner ones.
    fn loops(&self) -> Vec<Loop<'t>> {
        let before = self.before();
        let found = edges_back(&self.blocks).into_iter().map(|(last, first)| {
            let (mut blocks, mut left) = (HashSet::from([first]), vec![last]);
            while let Some(at) = left.pop() {
                if blocks.insert(at) {
                    left.extend(&before[at]);
                }
            }
            self.loop_of(first, blocks)
        });
        found.collect()
    }

    fn loop_of(&self, first: usize, blocks: HashSet<usize>) -> Loop<'t> {
        let statements =
            || blocks.iter().flat_map(|&at| &self.statements[self.blocks[at].statements.clone()]);
        let written: HashSet<&str> =
            statements().flat_map(|statement| registers(statement.sides().0)).collect();
        let named = |statement: &Statement<'t>| {
            registers(statement.operands).chain(registers(statement.predicate)).collect::<Vec<_>>()
        };
        let count = |is: &dyn Fn(&str) -> bool| statements().filter(|one| is(one.opcode)).count();
        let loads: usize = statements()
            .filter(|statement| statement.opcode.starts_with("ld."))
            .map(|load| registers(load.sides().0).count())
            .sum();
        let floats = count(&|opcode| {
            ["add", "sub", "mul", "fma"].iter().any(|name| opcode.starts_with(name))
                && (opcode.ends_with(".f32") || opcode.ends_with(".f64"))
        });
        let waits = count(&|opcode| {
            ["bar", "shfl", "atom", "red", "call"].iter().any(|name| opcode.starts_with(name))
        });
        Loop {
            used: statements().flat_map(named).collect(),
            carried: &written & &self.blocks[first].live,
            computes: loads > 0 && floats >= MUCH * loads && waits == 0,
            blocks,
        }
    }
}

/// The edges that lead back to a block on the way to which one came through: each is the end of a loop's turn.
fn edges_back(blocks: &[Block<'_>]) -> Vec<(usize, usize)> {
    let mut edges = Vec::new();
    let (mut seen, mut is_open) = (vec![false; blocks.len()], vec![false; blocks.len()]);
    // Blocks on the way, with how many of their edges were followed.
    let mut way = if blocks.is_empty() { Vec::new() } else { vec![(0, 0)] };
    while let Some((at, followed)) = way.last_mut() {
        (seen[*at], is_open[*at]) = (true, true);
        let (from, next) = (*at, blocks[*at].next.get(*followed).copied());
        *followed += 1;
        match next {
            Some(next) if is_open[next] => edges.push((from, next)),
            Some(next) if !seen[next] => way.push((next, 0)),
            Some(_) => {}
            None => {
                is_open[from] = false;
                way.pop();
            }
        }
    }
    edges
}

fn blocks<'t>(statements: &[Statement<'t>]) -> Vec<Block<'t>> {
    let leaves = |statement: &Statement<'_>| {
        ["bra", "brx", "ret", "exit", "trap"]
            .contains(&statement.opcode.split('.').next().unwrap_or_default())
    };
    let mut starts: Vec<usize> = (0..statements.len())
        .filter(|&at| at == 0 || statements[at].label().is_some() || leaves(&statements[at - 1]))
        .collect();
    let labels: HashMap<&str, usize> =
        starts.iter().enumerate().filter_map(|(block, &at)| Some((statements[at].label()?, block))).collect();
    starts.push(statements.len());
    let ranges = starts.windows(2).enumerate();
    ranges
        .map(|(block, ends)| {
            let last = &statements[ends[1] - 1];
            let mut next: Vec<usize> = match last.opcode.split('.').next() {
                Some("bra") => last.words().filter_map(|word| labels.get(word).copied()).collect(),
                // Any label may be in its table.
                Some("brx") => labels.values().copied().collect(),
                _ => Vec::new(),
            };
            if (!leaves(last) || last.is_predicated) && block + 2 < starts.len() {
                next.push(block + 1);
            }
            Block { statements: ends[0]..ends[1], next, live: HashSet::new() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PTX of a kernel whose loop needs `values` sums, and which calls `callee`.
    fn kernel(values: u32, callee: &str) -> String {
        let mut text = String::from(
            ".version 7.8\n.func panics\n()\n;\n.func panics()\n{\n\ttrap;\n}\n\
             .func  (.param .b32 func_retval0) returns()\n{\n\tmov.b32 \t%r1, 7;\n\tret;\n}\n\
             .func _RNv15hostcall_device4call()\n{\n\tret;\n}\n\
             .func _RNv15hostcall_device4math()\n{\n\tret;\n}\n\
             .func _RNvNtCs_15hostcall_device5trace5begin()\n{\n\tret;\n}\n\
             .visible .entry hostcall_kernel_k(\n\t.param .b64 k_param_0\n)\n{\n\t.reg .b32 \t%r<99>;\n\
             \tld.param.b64 \t%rd1, [k_param_0];\n",
        );
        for value in 0..values {
            text += &format!("\tmov.b32 \t%r{value}, 0;\n");
        }
        text += "$L__BB0_1:\n";
        for value in 0..values {
            text += &format!("\tadd.s32 \t%r{value}, %r{value}, 1;\n");
        }
        text += "\tsetp.lt.s32 \t%p1, %r0, 9;\n\t@%p1 bra \t$L__BB0_1;\n";
        for value in 0..values {
            text += &format!("\tst.global.b32 \t[%rd1+{value}], %r{value};\n");
        }
        text + "\t{ // callseq 0, 0\n\tcall.uni " + callee + ", ();\n\t} // callseq 0\n\tret;\n}\n"
    }

    fn bound_of(values: u32, callee: &str) -> u32 {
        bounds(&kernel(values, callee))["hostcall_kernel_k"]
    }

    #[test]
    fn values_that_a_loop_hands_on_are_counted() {
        for (values, registers) in [(1, 32), (29, 32), (30, 40), (36, 40), (37, 48), (100, 104)] {
            assert_eq!(bound_of(values, "panics"), registers, "{values}");
        }
    }

    #[test]
    fn what_a_loop_only_reads_counts_by_half_and_what_it_leaves_alone_does_not() {
        let count = |of_loop: u32, others: u32| {
            let mut text = kernel(1, "panics");
            let values = || 100..100 + of_loop + others;
            let set: String =
                values().map(|value| format!("\tld.global.b32 \t%r{value}, [%rd1];\n")).collect();
            let read: String =
                (100..100 + of_loop).map(|value| format!("\tst.global.b32 \t[%rd1], %r{value};\n")).collect();
            let after: String =
                values().map(|value| format!("\tst.global.b32 \t[%rd1], %r{value};\n")).collect();
            text = text.replace("$L__BB0_1:\n", &(set + "$L__BB0_1:\n" + &read));
            text = text.replace("\t{ // callseq", &(after + "\t{ // callseq"));
            bounds(&text)["hostcall_kernel_k"]
        };
        assert_eq!([count(0, 50), count(50, 0), count(60, 0), count(60, 30)], [32, 32, 40, 56]);
    }

    #[test]
    fn a_loop_that_computes_much_with_what_it_loads_has_more() {
        let text = |floats: usize, more: &str| {
            let compute = "\tld.global.b32 \t%r50, [%rd1];\n".to_owned()
                + &"\tfma.rn.f32 \t%r51, %r50, %r50, %r51;\n".repeat(floats)
                + more;
            kernel(1, "panics").replace("$L__BB0_1:\n", &("$L__BB0_1:\n".to_owned() + &compute))
        };
        let bound = |floats, more| bounds(&text(floats, more))["hostcall_kernel_k"];
        // A vector's values are loads of their own.
        let vector = text(4, "").replace("ld.global.b32 \t%r50,", "ld.global.v2.b32 \t{%r50, %r52},");
        assert_eq!(bounds(&vector)["hostcall_kernel_k"], 32);
        assert_eq!([bound(3, ""), bound(4, ""), bound(4, "\tbarrier.sync \t0;\n")], [32, 48, 32]);
    }

    #[test]
    fn what_returns_counts_and_what_panics_does_not() {
        assert_eq!(bound_of(1, "(retval0), returns"), 32);
        assert_eq!(bound_of(1, "_RNv15hostcall_device4call"), 40);
        assert_eq!(bound_of(1, "_RNvNtCs_15hostcall_device5trace5begin"), 32);
        assert_eq!(bound_of(1, "_RNv15hostcall_device4math"), 32);
        assert_eq!(bound_of(1, "%rd1"), 40);
        assert_eq!(bound_of(80, "_RNv15hostcall_device4call"), 88);
    }

    #[test]
    fn registers_that_cost_no_workgroup_are_given() {
        let many = |registers, lanes| as_many_workgroups(registers, Some(lanes));
        assert_eq!([many(32, 256), many(72, 256), many(112, 256), many(200, 256)], [32, 80, 128, 248]);
        // A multiprocessor holds 32 workgroups of 32 lanes, whatever they need.
        assert_eq!([many(32, 32), many(64, 1024), many(112, 1024)], [64, 64, 64]);
        // Any workgroup can start.
        assert_eq!([32, 48, 56, 112].map(|registers| as_many_workgroups(registers, None)), [32, 48, 64, 64]);
    }
}
