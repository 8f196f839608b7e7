//! How much stack the lanes of an image need on NVIDIA.
//!
//! The assembler stops counting where a call goes through a pointer, as in a panic's formatting, and the
//! driver then gives every lane of a process 8 KiB. So this module adds up the frames along all calls,
//! recursion once, and writes the sum of the deepest kernel into the image (`hostcall_stack_bytes`); the
//! device raises its stacks when it loads that.

use crate::ptx::{Function, functions, words};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The variable of an image that says how many bytes of stack its lanes need.
const SYMBOL: &str = hostcall_abi::launch::STACK_BYTES_SYMBOL;

/// Bytes of a function's frame besides what the PTX declares: registers that it keeps and spills. ptxas 12.9 makes it 56 on average
/// in the conformance suite, 150 on the way of a call with bytes, and 360 at most.
const KEPT_BYTES: u64 = 160;

/// Calls through pointers on one way: of a value's formatting, and of the writer that it writes to.
const INDIRECT_CALLS: u32 = 2;

/// PTX that declares, at its end, the variable that says how much stack the kernels need.
pub(crate) fn with_stack_bytes(ptx: &str) -> String {
    format!("{ptx}\n.visible .global .align 8 .u64 {SYMBOL} = {};\n", stack_bytes(ptx))
}

/// The most bytes of stack that any kernel of the PTX needs. What calls itself is counted once.
fn stack_bytes(ptx: &str) -> u64 {
    // In the order of their names, so that an image is the same each time it is built.
    let functions: BTreeMap<&str, Function<'_>> =
        functions(ptx).map(|function| (function.name, function)).collect();
    let pointed_at: BTreeSet<&str> = pointed_at(ptx).filter(|word| functions.contains_key(word)).collect();
    let deepest = |names: &mut dyn Iterator<Item = &str>, of_any| {
        let depth = |name| {
            Depths { functions: &functions, known: HashMap::new(), entered: HashSet::new(), of_any }.of(name)
        };
        names.map(depth).max().unwrap_or(0)
    };
    // What is called through a pointer calls through pointers itself.
    let of_any = (0..INDIRECT_CALLS).fold(0, |below, _| deepest(&mut pointed_at.iter().copied(), below));
    let mut entries = functions.values().filter(|function| function.is_entry).map(|entry| entry.name);
    deepest(&mut entries, of_any)
}

/// Words of a PTX text outside of calls and of functions' headers: names among them are addresses.
pub(crate) fn pointed_at(ptx: &str) -> impl Iterator<Item = &str> {
    let holds_addresses = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("mov.") || line.contains(".global ") && line.contains('=')
    };
    ptx.lines().filter(holds_addresses).flat_map(words)
}

/// How deep the stack gets below functions.
struct Depths<'f, 't> {
    functions: &'f BTreeMap<&'t str, Function<'t>>,
    known: HashMap<&'t str, u64>,
    /// Functions on the way to the one that is looked at.
    entered: HashSet<&'t str>,
    /// Below a call through a pointer.
    of_any: u64,
}

impl<'t> Depths<'_, 't> {
    fn of(&mut self, name: &str) -> u64 {
        let Some(function) = self.functions.get(name) else { return 0 };
        if let Some(depth) = self.known.get(function.name) {
            return *depth;
        }
        if !self.entered.insert(function.name) {
            return 0;
        }
        let calls = function.statements.iter().filter(|statement| statement.opcode.starts_with("call"));
        let below = calls.map(|call| match call.words().find(|word| self.functions.contains_key(word)) {
            Some(callee) => self.of(callee),
            None => self.of_any,
        });
        let depth = function.frame_bytes + KEPT_BYTES + below.max().unwrap_or(0);
        self.entered.remove(function.name);
        self.known.insert(function.name, depth);
        depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_way_counts() {
        let function = |name: &str, bytes: u32, body: &str| {
            format!(
                ".func {name}()\n{{\n\t.local .align 8 .b8 \t__local_depot1[{bytes}];\n{body}\tret;\n}}\n"
            )
        };
        let call = |name: &str| format!("\t{{ // callseq 0, 0\n\tcall.uni {name}, ();\n\t}} // callseq 0\n");
        let ptx = [
            ".global .align 8 .u64 table[2] = {0, pointed};\n".to_owned(),
            function("pointed", 3000, ""),
            function("leaf", 100, ""),
            function("again", 50, &call("again")),
            function("deep", 200, &(call("leaf") + &call("%rd1, (), prototype_1") + &call("again"))),
            format!(".visible .entry small()\n{{\n{}\tret;\n}}\n", call("leaf")),
            format!(
                ".visible .entry large()\n{{\n\t.local .align 16 .b8 \t__local_depot7[1000];\n{}\tret;\n}}\n",
                call("deep")
            ),
        ];
        let kept = 3 * KEPT_BYTES;
        assert_eq!(stack_bytes(&ptx.concat()), 1000 + 200 + 3000 + kept);
        assert_eq!(stack_bytes(&ptx[1..].concat()), 1000 + 200 + 100 + kept);
        assert_eq!(stack_bytes(&ptx[1..6].concat()), 100 + 2 * KEPT_BYTES);
        assert!(with_stack_bytes("").ends_with("hostcall_stack_bytes = 0;\n"));
    }
}
