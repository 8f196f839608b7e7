//! Stacks in device memory in PTX, where LLVM has the variables of a function in one of `.local` memory, its depot:
//!
//! ```text
//!  .local .align 16 .b8 __local_depot7[96];      the depot
//!  mov.b64        %SPL, __local_depot7;          its address in local memory
//!  cvta.local.u64 %SP, %SPL;                     and among all addresses
//! ```

use super::{ALIGN, FIRST_BYTES, FIRST_SPARE_BYTES, FULL};
use crate::contraction::header;
use crate::ptx::Assembly;
use hostcall_abi::launch::shared_bytes;

/// The name of a depot begins so.
const DEPOT: &str = "__local_depot";

/// The workgroup's words: its memory lies behind the record of its only wave.
fn word(number: u64) -> String {
    format!("[hostcall_shared+{}]", u64::from(shared_bytes(1)) + 8 * number)
}

/// PTX whose functions have their variables in device memory, if it is of a program with `std`.
pub fn with_stacks(ptx: &str) -> String {
    match full(ptx) {
        // Nobody calls them from elsewhere, so that the assembler leaves out those that nobody calls.
        Some(declaration) => moved(&declared(ptx, &declaration).replace(".visible .func", ".func")),
        None => ptx.to_owned(),
    }
}

/// The declaration of [`FULL`], from its definition.
fn full(ptx: &str) -> Option<String> {
    let name = format!(".func {FULL}");
    let at = ptx.rmatch_indices(&name).map(|(at, _)| at).find(|at| is_definition(&ptx[*at..]))?;
    let (header, _) = ptx[at..].split_once('{')?;
    Some(format!("{};\n", header.trim_end()))
}

/// Whether a function that a text begins with has a body.
fn is_definition(text: &str) -> bool {
    matches!((text.find('{'), text.find(';')), (Some(body), end) if end.is_none_or(|end| body < end))
}

/// PTX with the declaration behind its own lines about versions: functions call what stands before them.
fn declared(ptx: &str, declaration: &str) -> String {
    let line = ".address_size 64\n";
    match ptx.split_once(line) {
        Some((before, after)) => format!("{before}{line}{declaration}{after}"),
        None => format!("{declaration}{ptx}"),
    }
}

fn moved(ptx: &str) -> String {
    let mut result = String::with_capacity(ptx.len() + ptx.len() / 8);
    let (mut is_kernel, mut frame, mut assembly) = (false, None, Assembly::default());
    for line in ptx.split_inclusive('\n') {
        if assembly.has(line) {
            result += line;
            continue;
        }
        if header(line).is_some() {
            (is_kernel, frame) = (line.contains(".entry "), None);
        }
        if is_kernel {
            result += line;
            if line.trim_end() == "{" {
                result += &first_stack();
            }
            continue;
        }
        let text = line.trim();
        if let Some(depot) = text.strip_prefix(".local ").filter(|text| text.contains(DEPOT)) {
            frame = size(depot);
        } else if text.starts_with("mov.b64") && text.contains("%SPL, __local_depot") {
            result += &frame.map(enter).unwrap_or_default();
        } else if text.starts_with("cvta.local.u64") && text.contains("%SP, %SPL;") {
            // Both are the same here.
        } else {
            if frame.is_some() && returns(text) {
                result += &format!("\tst.volatile.shared.u64 {}, %hostcall_before;\n", word(0));
            }
            result += &in_device_memory(line);
        }
    }
    result
}

/// Whether an instruction returns, whatever its condition.
fn returns(text: &str) -> bool {
    let text = text
        .strip_prefix('@')
        .and_then(|text| text.split_once(char::is_whitespace))
        .map_or(text, |(_, text)| text);
    matches!(text.trim(), "ret;" | "ret.uni;")
}

/// Bytes and alignment of a depot: `.align 16 .b8 __local_depot7[96];`.
fn size(depot: &str) -> Option<(u64, u64)> {
    let align = depot.split_once(".align ")?.1.split_whitespace().next()?.parse().ok()?;
    let bytes = depot.rsplit_once('[')?.1.split(']').next()?.parse().ok()?;
    Some((bytes, ALIGN.max(align)))
}

/// A kernel gives its workgroup the first stack.
fn first_stack() -> String {
    format!(
        "\t.local .align 16 .b8 \thostcall_first[{FIRST_BYTES}];\n\t.reg .b64 \t%hostcall_<3>;\n\
         \tmov.b64 \t%hostcall_0, hostcall_first;\n\tcvta.local.u64 \t%hostcall_0, %hostcall_0;\n\
         \tadd.s64 \t%hostcall_1, %hostcall_0, {FIRST_BYTES};\n\
         \tadd.s64 \t%hostcall_2, %hostcall_0, {FIRST_SPARE_BYTES};\n\
         \tst.volatile.shared.u64 \t{}, %hostcall_1;\n\tst.volatile.shared.u64 \t{}, %hostcall_2;\n",
        word(0),
        word(1)
    )
}

/// A function takes its frame.
fn enter((bytes, align): (u64, u64)) -> String {
    format!(
        "\t.reg .b64 \t%hostcall_before, %hostcall_end;\n\t.reg .pred \t%hostcall_full;\n\
         \tld.volatile.shared.u64 \t%hostcall_before, {};\n\tld.volatile.shared.u64 \t%hostcall_end, {};\n\
         \tsub.s64 \t%SP, %hostcall_before, {};\n\tand.b64 \t%SP, %SP, -{align};\n\
         \tsetp.lt.u64 \t%hostcall_full, %SP, %hostcall_end;\n\
         \t@!%hostcall_full bra \t$hostcall_taken;\n\tcall.uni \t{FULL}, ();\n\ttrap;\n$hostcall_taken:\n\
         \tst.volatile.shared.u64 \t{}, %SP;\n\tmov.b64 \t%SPL, %SP;\n",
        word(0),
        word(1),
        bytes.next_multiple_of(align),
        word(0)
    )
}

/// A line whose local accesses are ones of any memory. None of them is atomic ([`super::super::layer::HIDDEN`]).
fn in_device_memory(line: &str) -> String {
    let (indent, text) = line.split_at(line.len() - line.trim_start().len());
    let (predicate, text) = match text.starts_with('@') {
        true => text.split_at(text.find([' ', '\t']).map_or(0, |at| at + 1)),
        false => ("", text),
    };
    let (instruction, operands) = text.split_at(text.find([' ', '\t']).unwrap_or(text.len()));
    let changed = match instruction.split('.').next() {
        Some("cvta") if instruction.contains(".local") => "mov.b64".to_owned(),
        Some("ld" | "st") => instruction.replace(".local", ""),
        _ => return line.to_owned(),
    };
    format!("{indent}{predicate}{changed}{operands}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_take_their_variables_from_the_stack() {
        let ptx = "\
.func (.param .b32 func_retval0) f(\n\t.param .b64 f_param_0\n)\n{\n\t.local .align 8 .b8 \t__local_depot3[40];\n\
\t.reg .b64 \t%SP;\n\t.reg .b64 \t%SPL;\n\tmov.b64 \t%SPL, __local_depot3;\n\tcvta.local.u64 \t%SP, %SPL;\n\
\tadd.u64 \t%rd1, %SPL, 8;\n\tst.local.v2.b64 \t[%rd1], {%rd2, %rd3};\n\t@%p1 ld.local.b32 \t%r1, [%SPL+4];\n\
\tcvta.to.local.u64 \t%rd4, %rd5;\n\t@%p2 ret;\n\tret;\n}\n\
.func leaf()\n{\n\tret;\n}\n";
        let made = moved(ptx);
        assert!(!made.contains(".local"), "{made}");
        for line in [
            "\tsub.s64 \t%SP, %hostcall_before, 48;\n\tand.b64 \t%SP, %SP, -16;\n",
            "\tmov.b64 \t%SPL, %SP;\n\tadd.u64 \t%rd1, %SPL, 8;\n\tst.v2.b64 \t[%rd1], {%rd2, %rd3};\n",
            "\t@%p1 ld.b32 \t%r1, [%SPL+4];\n\tmov.b64 \t%rd4, %rd5;\n",
            ".func leaf()\n{\n\tret;\n}\n",
        ] {
            assert!(made.contains(line), "{line}\n{made}");
        }
        assert_eq!(made.matches("%hostcall_before;\n").count(), 2, "{made}");
    }

    #[test]
    fn kernels_keep_theirs_and_give_the_first_stack() {
        let body = "\t.local .align 8 .b8 \t__local_depot0[8];\n\tmov.b64 \t%SPL, __local_depot0;\n\tst.local.b32 \t[%SPL], 1;\n\tret;\n}\n";
        let made = moved(&format!(".visible .entry k()\n{{\n{body}"));
        assert!(made.ends_with(body) && made.contains("hostcall_first[12288]"), "{made}");
    }

    #[test]
    fn programs_with_std_are_known_by_a_function() {
        let other = ".func leaf()\n{\n\tret;\n}\n";
        assert_eq!(with_stacks(other), other);
        let ptx = format!(
            ".address_size 64\n\n.visible .func {FULL}\n()\n.noreturn\n;\n.visible .func {FULL}()\n.noreturn\n{{\n\ttrap;\n}}\n"
        );
        let made = with_stacks(&ptx);
        assert!(made.starts_with(&format!(".address_size 64\n.func {FULL}()\n.noreturn;\n")), "{made}");
    }
}
