//! Orders of read-modify-writes on NVIDIA.
//!
//! LLVM, up to version 22, writes each of them but compare-exchange as a bare `atom`, whatever it was asked for: it is relaxed
//! then, and atomic among the lanes of the GPU only. Rust's are the whole system's, and safe code of other crates relies on
//! their order: the last `Arc` frees what other lanes wrote before they dropped theirs. So the order is written into the PTX
//! here, as LLVM's own listing of the program has it, which the compiler gives beside the PTX. The two have the same functions;
//! in one of them all operations of a kind get the strongest order that one of that kind asks for. Inline assembly, by
//! which the device crate's own atomics are written, stays as it is.

use crate::ptx::Assembly;
use std::collections::HashMap;

/// An order, the stronger the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Relaxed,
    Acquire,
    Release,
    AcqRel,
    SeqCst,
}

impl Order {
    /// By LLVM's name.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "monotonic" => Order::Relaxed,
            "acquire" => Order::Acquire,
            "release" => Order::Release,
            "acq_rel" => Order::AcqRel,
            "seq_cst" => Order::SeqCst,
            _ => return None,
        })
    }

    /// The weakest order that is both.
    fn and(self, other: Self) -> Self {
        match (self.min(other), self.max(other)) {
            (Order::Acquire, Order::Release) => Order::AcqRel,
            (_, stronger) => stronger,
        }
    }

    /// As PTX has it. What is more of [`Order::SeqCst`] is a fence before the operation, as the memory model of PTX maps it.
    fn in_ptx(self) -> &'static str {
        match self {
            Order::Relaxed => "relaxed",
            Order::Acquire => "acquire",
            Order::Release => "release",
            Order::AcqRel | Order::SeqCst => "acq_rel",
        }
    }
}

/// What operations of a kind ask for, by the function and the kind's name in PTX.
type Orders<'t> = HashMap<(&'t str, &'t str), Order>;

/// PTX whose read-modify-writes have the orders that LLVM's listing of the same program gives them. Those that it does not have
/// get the strongest.
pub(crate) fn with_order(ptx: &str, listing: &str) -> String {
    let orders = orders(listing);
    let mut ordered = String::with_capacity(ptx.len());
    let (mut function, mut assembly) = ("", Assembly::default());
    for line in ptx.split_inclusive('\n') {
        let is_inline = assembly.has(line);
        function = crate::contraction::header(line).unwrap_or(function);
        match bare_kind(line).filter(|_| !is_inline) {
            None => ordered += line,
            Some(kind) => {
                let order = orders.get(&(function, kind)).copied().unwrap_or(Order::SeqCst);
                if order == Order::SeqCst {
                    ordered += "\tfence.sc.sys;\n";
                }
                ordered += &line.replacen("atom.", &format!("atom.{}.sys.", order.in_ptx()), 1);
            }
        }
    }
    ordered
}

/// Returns what a line's read-modify-write does, if that is one which says nothing of its order.
fn bare_kind(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let text = match text.strip_prefix('@') {
        Some(predicated) => predicated.split_once([' ', '\t'])?.1.trim_start(),
        None => text,
    };
    let (opcode, _) = text.split_once([' ', '\t'])?;
    let mut parts = opcode.strip_prefix("atom.")?.split('.');
    match parts.next()? {
        "relaxed" | "acquire" | "release" | "acq_rel" => None,
        "global" | "shared" | "shared::cta" | "shared::cluster" => parts.next(),
        kind => Some(kind),
    }
}

/// The orders in LLVM's listing.
fn orders(listing: &str) -> Orders<'_> {
    let (mut orders, mut function) = (Orders::new(), "");
    for line in listing.lines() {
        if let Some(header) = line.strip_prefix("define ") {
            function = name(header).unwrap_or_default();
            continue;
        }
        let line = line.trim_start();
        let Some(operation) =
            line.strip_prefix("atomicrmw ").or_else(|| Some(line.split_once(" = atomicrmw ")?.1))
        else {
            continue;
        };
        let mut words =
            operation.split([' ', ',']).filter(|word| !matches!(*word, "" | "volatile" | "elementwise"));
        let (Some(kind), Some(order)) = (words.next().and_then(kind_in_ptx), words.find_map(Order::named))
        else {
            continue;
        };
        let known = orders.entry((function, kind)).or_insert(order);
        *known = known.and(order);
    }
    orders
}

/// The name of the function that a header of LLVM's is of.
fn name(header: &str) -> Option<&str> {
    let (_, rest) = header.split_once('@')?;
    match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split('(').next(),
    }
}

/// What PTX calls an operation of LLVM's. `None` for those that become loops of compare-exchanges, which keep their order.
fn kind_in_ptx(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "add" | "sub" | "fadd" | "fsub" => "add",
        "xchg" => "exch",
        "max" | "umax" | "fmax" => "max",
        "min" | "umin" | "fmin" => "min",
        "and" => "and",
        "or" => "or",
        "xor" => "xor",
        "uinc_wrap" => "inc",
        "udec_wrap" => "dec",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
define ptx_kernel void @counts(ptr %p) {
  %a = atomicrmw add ptr %p, i32 %acquire, monotonic, align 4
  %b = atomicrmw volatile sub ptr addrspace(1) %p, i32 1 syncscope(\"release\") monotonic, align 4
  %c = atomicrmw xchg ptr %p, i64 %v acquire, align 8
  atomicrmw or ptr %p, i8 1 acquire, align 1
  %d = atomicrmw or ptr %p, i32 1 release, align 4
  %e = atomicrmw umax ptr %p, i32 1 seq_cst, align 4
}
define internal fastcc void @\"drops\"(ptr %p) unnamed_addr #0 {
  %a = atomicrmw sub ptr %p, i64 1 release, align 8
}
";

    fn function(name: &str, body: &str) -> String {
        format!(".visible .entry {name}(\n\t.param .b64 p\n)\n{{\n{body}\tret;\n}}\n")
    }

    #[test]
    fn operations_are_ordered_as_they_were_asked_to_be() {
        let kept = "\t// begin inline asm\n\tatom.add.u64 %rd1, [%rd2], 1;\n\t// end inline asm\n\
                    \tatom.acq_rel.sys.global.cas.b32 \t%r1, [%rd1], %r2, %r3;\n";
        let ptx = [
            function(
                "counts",
                &format!(
                    "\tatom.global.add.u32 \t%r1, [%rd1], %r2;\n\t@%p1 atom.exch.b64 \t%rd1, [%rd1], %rd2;\n{kept}\
                     \tatom.shared.or.b32 \t%r1, [%rd1], %r2;\n\tatom.max.u32 \t%r1, [%rd1], %r2;\n"
                ),
            ),
            function("drops", "\tatom.add.u64 \t%rd1, [%rd1], -1;\n"),
            function("unknown", "\tatom.add.u64 \t%rd1, [%rd1], -1;\n"),
        ]
        .concat();
        let expected = [
            function(
                "counts",
                &format!(
                    "\tatom.relaxed.sys.global.add.u32 \t%r1, [%rd1], %r2;\n\
                     \t@%p1 atom.acquire.sys.exch.b64 \t%rd1, [%rd1], %rd2;\n{kept}\
                     \tatom.acq_rel.sys.shared.or.b32 \t%r1, [%rd1], %r2;\n\tfence.sc.sys;\n\
                     \tatom.acq_rel.sys.max.u32 \t%r1, [%rd1], %r2;\n"
                ),
            ),
            function("drops", "\tatom.release.sys.add.u64 \t%rd1, [%rd1], -1;\n"),
            function("unknown", "\tfence.sc.sys;\n\tatom.acq_rel.sys.add.u64 \t%rd1, [%rd1], -1;\n"),
        ]
        .concat();
        assert_eq!(with_order(&ptx, LISTING), expected);
    }
}
