//! How many registers a kernel gets on NVIDIA.
//!
//! The assembler gives a kernel as many as the most that any function takes which it can reach, and every checked index
//! reaches the report of a panic, which formats and calls the host: more than 100, with which most waves of a multiprocessor
//! have no room. With a bound on the kernel these functions spill, which costs nothing while they are rare. The bound is
//! what the kernel's own code needs: the values that are needed at the same time, counted in the PTX, since the driver
//! assembles it on the machine where the kernel runs.

use crate::ptx::{Function, Statement, functions};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The least bound, with which a multiprocessor has as many waves as it can. A call takes some 20 by itself.
const LEAST: u32 = 32;

/// So many values fit [`LEAST`] registers; more need [`SPARE`] ones besides.
const FITS_LEAST: u32 = 28;

/// Registers for what is computed on the way to a value.
const SPARE: u32 = 8;

/// What functions of the device crate get, which calls of the host go through.
const CALLS: u32 = 64;

/// Returns the bound of each kernel of the PTX, by its symbol.
pub(crate) fn bounds(ptx: &str) -> HashMap<&str, u32> {
    let functions: HashMap<&str, Function<'_>> =
        functions(ptx).map(|function| (function.name, function)).collect();
    let entries = functions.values().filter(|function| function.is_entry);
    entries.map(|entry| (entry.name, bound(entry, &functions))).collect()
}

/// The most that a kernel needs, or any function that it calls and that is not rare.
fn bound<'t>(entry: &Function<'t>, functions: &HashMap<&'t str, Function<'t>>) -> u32 {
    let own = OwnFunctions::of(entry, functions);
    let of_function = |function: &&Function<'t>| {
        let values = Liveness::of(function).most_values();
        if values <= FITS_LEAST { LEAST } else { values + SPARE }
    };
    let need = own.functions.iter().map(of_function).max().unwrap_or(LEAST);
    need.max(if own.call_others { CALLS } else { LEAST }).next_multiple_of(8)
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
    /// Whether a kernel hardly ever gets there: where nothing returns from (panics), and the end of waves that have slots.
    fn is_rare(&self) -> bool {
        self.name.contains("15hostcall_device6target3gpu8end_part")
            || !self.statements.iter().any(|statement| statement.opcode == "ret")
    }

    /// Whether calls of the host go through it. Mathematics is the kernel's own.
    fn is_of_device_crate(&self) -> bool {
        self.name.contains("15hostcall_device") && !self.name.contains("15hostcall_device4math")
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

/// Which values of a function are needed where.
struct Liveness<'f, 't> {
    statements: &'f [Statement<'t>],
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

impl<'f, 't> Liveness<'f, 't> {
    fn of(function: &'f Function<'t>) -> Self {
        let statements = &function.statements;
        let (constant, other): (Vec<_>, Vec<_>) =
            statements.iter().partition(|statement| statement.is_constant());
        let written = |statements: Vec<&Statement<'t>>| -> HashSet<&'t str> {
            statements.into_iter().flat_map(|statement| registers(statement.sides().0)).collect()
        };
        let constants = if function.is_entry { &written(constant) - &written(other) } else { HashSet::new() };
        let mut liveness = Self { statements, constants, blocks: blocks(statements) };
        liveness.solve();
        liveness
    }

    fn solve(&mut self) {
        let mut changed = true;
        while changed {
            changed = false;
            for at in (0..self.blocks.len()).rev() {
                let live = self.walk(&self.blocks[at], |_| {});
                // What a block needs only grows.
                changed |= live.len() > self.blocks[at].live.len();
                self.blocks[at].live = live;
            }
        }
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

    /// The most registers that values take at one statement.
    fn most_values(&self) -> u32 {
        let mut most = 0;
        for block in &self.blocks {
            self.walk(block, |live| most = most.max(live.iter().map(|register| width(register)).sum()));
        }
        most
    }
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
    fn values_that_a_loop_keeps_are_counted() {
        for (values, registers) in [(1, 32), (28, 32), (29, 40), (32, 40), (33, 48), (100, 112)] {
            assert_eq!(bound_of(values, "panics"), registers, "{values}");
        }
    }

    #[test]
    fn what_returns_counts_and_what_panics_does_not() {
        assert_eq!(bound_of(1, "(retval0), returns"), 32);
        assert_eq!(bound_of(1, "_RNv15hostcall_device4call"), 64);
        assert_eq!(bound_of(1, "_RNv15hostcall_device4math"), 32);
        assert_eq!(bound_of(1, "%rd1"), 64);
        assert_eq!(bound_of(80, "_RNv15hostcall_device4call"), 88);
    }
}
