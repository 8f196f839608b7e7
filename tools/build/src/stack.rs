//! How much stack the lanes of an image need on NVIDIA.
//!
//! The linker adds up the frames of a kernel and of what it calls, and the driver gives the lanes so much. Where a
//! call goes through a pointer, as in formatting, or a function calls itself, it cannot, and the driver gives such
//! a kernel's lanes what is one number for all kernels of a process, for which it takes memory for as many lanes as
//! the GPU can hold: 264 MiB of an H200's for each KiB. So this module adds up the frames of such kernels, and
//! writes the sum of the deepest one into the image (`hostcall_stack_bytes`), 8 KiB at least; the device raises its
//! stacks when it loads that.

use crate::calls::pointed_at;
use crate::ptx::{Function, functions};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The variable of an image that says how many bytes of stack its lanes need.
const SYMBOL: &str = hostcall_abi::launch::STACK_BYTES_SYMBOL;

/// Bytes of a function's frame besides what the PTX declares: registers that it keeps and spills. Of the deepest ways through the
/// benchmarks, wc and hello, whose functions have 32 registers, ptxas 12.9 makes it 130 to 160 on average.
const KEPT_BYTES: u64 = 192;

/// What lanes get at least whose calls cannot be counted.
const UNCOUNTED_BYTES: u64 = 8 << 10;

/// Calls through pointers on one way: of a value's formatting, and of the writer that it writes to.
const INDIRECT_CALLS: u32 = 2;

/// PTX that declares, at its end, the variable that says how much stack the kernels need.
pub(crate) fn with_stack_bytes(ptx: &str) -> String {
    format!("{ptx}\n.visible .global .align 8 .u64 {SYMBOL} = {};\n", stack_bytes(ptx))
}

/// The most bytes of stack that any kernel of the PTX needs which calls through a pointer, or what calls itself, which is counted
/// once: [`UNCOUNTED_BYTES`] at least. 0 where there is none.
fn stack_bytes(ptx: &str) -> u64 {
    // In the order of their names, so that an image is the same each time it is built.
    let functions: BTreeMap<&str, Function<'_>> =
        functions(ptx).map(|function| (function.name, function)).collect();
    let pointed_at: BTreeSet<&str> = pointed_at(ptx).filter(|word| functions.contains_key(word)).collect();
    let depth = |name, of_any| {
        let (known, entered) = Default::default();
        let mut depths = Depths { functions: &functions, known, entered, of_any, is_counted: true };
        (depths.of(name), depths.is_counted)
    };
    // What is called through a pointer calls through pointers itself.
    let of_any = (0..INDIRECT_CALLS)
        .fold(0, |below, _| pointed_at.iter().map(|name| depth(name, below).0).max().unwrap_or(0));
    let entries = functions.values().filter(|function| function.is_entry);
    let uncounted = entries.map(|entry| depth(entry.name, of_any)).filter(|(_, is_counted)| !is_counted);
    uncounted.map(|(bytes, _)| bytes.max(UNCOUNTED_BYTES)).max().unwrap_or(0)
}

/// How deep the stack gets below functions.
struct Depths<'f, 't> {
    functions: &'f BTreeMap<&'t str, Function<'t>>,
    known: HashMap<&'t str, u64>,
    /// Functions on the way to the one that is looked at.
    entered: HashSet<&'t str>,
    /// Below a call through a pointer.
    of_any: u64,
    /// Nothing on the way calls itself, or through a pointer.
    is_counted: bool,
}

impl<'t> Depths<'_, 't> {
    fn of(&mut self, name: &str) -> u64 {
        let Some(function) = self.functions.get(name) else { return 0 };
        if let Some(depth) = self.known.get(function.name) {
            return *depth;
        }
        if !self.entered.insert(function.name) {
            self.is_counted = false;
            return 0;
        }
        let calls = function.statements.iter().filter(|statement| statement.opcode.starts_with("call"));
        let below = calls.map(|call| match call.words().find(|word| self.functions.contains_key(word)) {
            Some(callee) => self.of(callee),
            None => {
                self.is_counted = false;
                self.of_any
            }
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
            function("pointed", 9000, ""),
            function("leaf", 100, ""),
            function("again", 50, &call("again")),
            function("deep", 200, &(call("leaf") + &call("%rd1, (), prototype_1") + &call("again"))),
            format!(".visible .entry small()\n{{\n{}\tret;\n}}\n", call("leaf")),
            format!(
                ".visible .entry large()\n{{\n\t.local .align 16 .b8 \t__local_depot7[1000];\n{}\tret;\n}}\n",
                call("deep")
            ),
        ];
        assert_eq!(stack_bytes(&ptx.concat()), 1000 + 200 + 9000 + 3 * KEPT_BYTES);
        // Through a pointer, whatever it is, or again and again.
        assert_eq!(stack_bytes(&ptx[1..].concat()), UNCOUNTED_BYTES);
        assert_eq!(stack_bytes(&ptx[1..6].concat()), 0, "the linker counts");
        let once =
            [function("again", 50, &call("again")), format!(".entry e()\n{{\n{}\tret;\n}}\n", call("again"))];
        assert_eq!(stack_bytes(&once.concat()), UNCOUNTED_BYTES);
        assert!(with_stack_bytes("").ends_with("hostcall_stack_bytes = 0;\n"));
    }
}
