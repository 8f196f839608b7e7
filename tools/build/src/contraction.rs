//! Contraction of floats on NVIDIA: `a * b + c` as one instruction that rounds once, as nvcc has it.
//!
//! LLVM would contract in every function of an image or in none, for all are compiled together, and the functions of
//! `hostcall_device::math` promise the same bits on every device. So LLVM contracts nothing, and writes each product and each
//! sum with `.rn`, which the assembler must round by itself. Without `.rn` it contracts them (PTX ISA, `mul` and `add`). Here
//! that is taken from the kernels and from what they call, but not from the mathematics and from what that calls, which
//! `hostcall_device` never has inlined.

use crate::ptx::{Function, functions};
use std::collections::{HashMap, HashSet};

/// Parts of the names of functions that are as they were written: the device crate's mathematics, and the library behind it.
const EXACT: &[&str] = &["15hostcall_device4math", "_4libm4math"];

/// Instructions that are contracted once they do not say how they round.
const CONTRACTED: &[&str] = &["mul", "add", "sub"];

/// PTX whose products and sums of `f32` and `f64` the assembler may contract.
pub(crate) fn with_contraction(ptx: &str) -> String {
    let exact = exact(ptx);
    let mut contracted = String::with_capacity(ptx.len());
    let (mut keeps, mut is_inline) = (true, false);
    for line in ptx.split_inclusive('\n') {
        let trimmed = line.trim();
        if let Some(name) = header(line) {
            keeps = exact.contains(name);
        }
        match trimmed {
            "// begin inline asm" => is_inline = true,
            "// end inline asm" => is_inline = false,
            _ => {}
        }
        let (opcode, _) = trimmed.split_once([' ', '\t']).unwrap_or((trimmed, ""));
        match opcode.split_once(".rn.") {
            Some((name, "f32" | "f64")) if !keeps && !is_inline && CONTRACTED.contains(&name) => {
                contracted += &line.replacen(".rn.", ".", 1);
            }
            _ => contracted += line,
        }
    }
    contracted
}

/// The name of the function whose header a line begins.
pub(crate) fn header(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(".entry ").or_else(|| line.split_once(".func "))?;
    // The result stands before the name.
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('(').map_or(rest, |result| result.split_once(')').unwrap_or_default().1);
    rest.trim_start().split(['(', '\n']).next()
}

/// The functions that stay as they are.
fn exact(ptx: &str) -> HashSet<&str> {
    let functions: HashMap<&str, Function<'_>> =
        functions(ptx).map(|function| (function.name, function)).collect();
    let is_exact = |name: &&str| EXACT.iter().any(|part| name.contains(part));
    let mut exact: HashSet<&str> = functions.keys().copied().filter(is_exact).collect();
    let mut next: Vec<&str> = exact.iter().copied().collect();
    while let Some(function) = next.pop().and_then(|name| functions.get(name)) {
        let calls = function.statements.iter().filter(|statement| statement.opcode.starts_with("call"));
        let callees = calls.flat_map(|call| call.words()).filter_map(|word| functions.get(word));
        next.extend(callees.map(|callee| callee.name).filter(|name| exact.insert(name)));
    }
    exact
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: &str =
        "\tmul.rn.f32 \t%r1, %r2, %r3;\n\tadd.rn.f64 \t%rd4, %rd1, %rd5;\n\tsub.rn.f32 \t%r1, %r2, %r3;\n";
    const CONTRACTED_SUM: &str =
        "\tmul.f32 \t%r1, %r2, %r3;\n\tadd.f64 \t%rd4, %rd1, %rd5;\n\tsub.f32 \t%r1, %r2, %r3;\n";
    /// Of the instructions with this word others round by it.
    const OTHERS: &str = "\tdiv.rn.f32 \t%r1, %r2, %r3;\n\tfma.rn.f32 \t%r1, %r2, %r3, %r4;\n\tcvt.rn.f32.s32 \t%r1, %r2;\n\
                          \tadd.rn.f16 \t%rs1, %rs2, %rs3;\n\tadd.rz.f32 \t%r1, %r2, %r3;\n";
    const CALL: &str = "\t{ // callseq 0, 0\n\tcall.uni (retval0), shared, (param0);\n\t} // callseq 0\n";
    const INLINE: &str = "\t// begin inline asm\n\tmul.rn.f32 %r1, %r2, %r3;\n\t// end inline asm\n";

    fn function(name: &str, body: &str) -> String {
        format!(".func  (.param .b32 func_retval0) {name}(\n\t.param .b32 p\n)\n{{\n{body}\tret;\n}}\n")
    }

    #[test]
    fn kernels_are_contracted_and_mathematics_is_not() {
        let image = |sum: &str| {
            [
                function("_RNvXs_NtCsabc_15hostcall_device4mathfNtB5_5Float3sin", &[SUM, CALL].concat()),
                function("_RNvNtNtCsabc_4libm4math4sinf", SUM),
                function("shared", SUM),
                function("own", &[sum, OTHERS].concat()),
                format!(".visible .entry k(\n\t.param .b32 p\n)\n{{\n{sum}{INLINE}{CALL}\tret;\n}}\n"),
            ]
            .concat()
        };
        assert_eq!(with_contraction(&image(SUM)), image(CONTRACTED_SUM));
    }
}
