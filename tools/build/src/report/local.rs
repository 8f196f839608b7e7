//! Arrays on a function's stack that are indexed by what is known only while the kernel runs, found in PTX.

use crate::ptx::{Function, Statement};
use crate::registers::registers;
use std::collections::HashMap;

/// What a register holds, of addresses on the function's own stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Address {
    /// Always the same one, so many bytes from the stack's begin.
    Fixed(i64),
    /// One that depends on other values.
    Varying,
}

/// Whether a function accesses its stack at an address that is not the same each time it comes there. Addresses that
/// it gives to functions do not count, nor those that it stores.
pub(super) fn indexes_its_frame(function: &Function<'_>) -> bool {
    if function.frame_bytes == 0 {
        return false;
    }
    let addresses = addresses(&function.statements);
    function.statements.iter().any(|statement| {
        let name = statement.opcode.split('.').next().unwrap_or_default();
        let Some((_, rest)) = statement.operands.split_once('[') else { return false };
        let address = rest.split(']').next().unwrap_or_default();
        ["ld", "st"].contains(&name)
            && registers(address).any(|register| addresses.get(register) == Some(&Address::Varying))
    })
}

/// What each register holds that ever holds an address of the stack.
fn addresses<'t>(statements: &[Statement<'t>]) -> HashMap<&'t str, Address> {
    let mut addresses = HashMap::from([("%SP", Address::Fixed(0)), ("%SPL", Address::Fixed(0))]);
    let mut changed = true;
    while changed {
        changed = false;
        for statement in statements {
            let (written, read) = statement.sides();
            let Some(to) = written.split([',', ' ', '\t']).find(|word| word.starts_with('%')) else {
                continue;
            };
            let Some(address) = result(statement.opcode, read, &addresses) else { continue };
            let joined = match addresses.get(to) {
                Some(before) if *before != address => Address::Varying,
                _ => address,
            };
            // From nothing to fixed to varying, and never back.
            changed |= addresses.insert(to, joined) != Some(joined);
        }
    }
    addresses
}

/// What an instruction makes of addresses among its operands.
fn result(opcode: &str, read: &str, addresses: &HashMap<&str, Address>) -> Option<Address> {
    let operands = read.split(',').map(str::trim).filter(|word| !word.is_empty());
    let (known, other): (Vec<&str>, Vec<&str>) = operands.partition(|word| addresses.contains_key(word));
    let first = *addresses.get(*known.first()?)?;
    let name = opcode.split('.').next().unwrap_or_default();
    let constant = |word: &str| word.parse::<i64>().ok();
    match (name, first, other[..].first()) {
        ("mov" | "cvta", address, _) => Some(address),
        ("selp", address, _) => {
            Some(if known.iter().all(|word| addresses[word] == address) { address } else { Address::Varying })
        }
        ("add" | "sub" | "or" | "mad", Address::Fixed(at), Some(word))
            if name != "mad" && known.len() == 1 =>
        {
            let sign = if name == "sub" { -1 } else { 1 };
            Some(constant(word).map_or(Address::Varying, |offset| Address::Fixed(at + sign * offset)))
        }
        // The difference of two addresses is none.
        ("sub", ..) if known.len() == 2 => None,
        ("add" | "sub" | "or" | "mad", ..) => Some(Address::Varying),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::functions;

    fn is_indexed(body: &str) -> bool {
        let ptx = format!(
            ".func f()\n{{\n\t.local .align 16 .b8 \t__local_depot0[64];\n\t.reg .b64 \t%SP;\n\t.reg .b64 \t%SPL;\n\
             \tmov.b64 \t%SPL, __local_depot0;\n\tcvta.local.u64 \t%SP, %SPL;\n{body}\tret;\n}}\n"
        );
        indexes_its_frame(&functions(&ptx).next().unwrap())
    }

    #[test]
    fn indices_that_vary_are_found() {
        let by_register =
            "\tadd.u64 \t%rd1, %SPL, 16;\n\tadd.s64 \t%rd2, %rd1, %rd7;\n\tld.local.b32 \t%r1, [%rd2+4];\n";
        assert!(is_indexed(by_register));
        let in_a_loop = "\tadd.u64 \t%rd1, %SP, 16;\n\tmov.b64 \t%rd3, %rd1;\n$L1:\n\tst.b32 \t[%rd3], %r1;\n\
                         \tadd.s64 \t%rd3, %rd3, 4;\n\tbra.uni \t$L1;\n";
        assert!(is_indexed(in_a_loop));
    }

    #[test]
    fn fixed_places_and_addresses_that_are_given_away_are_not() {
        let fixed = "\tadd.u64 \t%rd1, %SPL, 16;\n\tst.local.b32 \t[%rd1+4], %r1;\n\tst.b64 \t[%SP], %rd1;\n\
                     \tst.global.b64 \t[%rd9], %rd1;\n";
        assert!(!is_indexed(fixed));
        let elsewhere = "\tadd.s64 \t%rd2, %rd1, %rd7;\n\tld.global.b32 \t%r1, [%rd2];\n";
        assert!(!is_indexed(elsewhere));
    }
}
