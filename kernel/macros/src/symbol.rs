//! Symbols of kernels, which no two kernels of a linked program may share.

use std::collections::HashMap;
use std::sync::Mutex;

/// What tells the crate that is being compiled apart from others that it may be linked with: a package's library, its
/// binary and an older version of it have the same name.
const CRATE: [&str; 4] = ["CARGO_PKG_NAME", "CARGO_PKG_VERSION", "CARGO_CRATE_NAME", "CARGO_BIN_NAME"];

/// Returns the end of the symbols of a kernel with this name, as `hostcall_abi::launch::kernel_name` reads it: the
/// name and eight hexadecimal digits, which come from the crate and from how many kernels of this name it had before.
pub fn unique(name: &str) -> String {
    // A macro's process compiles one crate.
    static BEFORE: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);
    let nth = {
        let mut before = BEFORE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let count = before.get_or_insert_default().entry(name.to_owned()).or_default();
        *count += 1;
        *count
    };
    let mut text = CRATE.map(|variable| std::env::var(variable).unwrap_or_default()).join("\n");
    text.push_str(&format!("\n{name}\n{nth}"));
    format!("{name}__{:08x}", fold(text.as_bytes()))
}

/// FNV-1a in 32 bits.
fn fold(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_different_symbols() {
        let (first, second) = (unique("symbol_test"), unique("symbol_test"));
        assert_ne!(first, second);
        for symbol in [first, second] {
            let digits = symbol.strip_prefix("symbol_test__").unwrap();
            assert!(digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{symbol}");
        }
        assert_eq!(fold(b"foobar"), 0xbf9c_f968); // from the reference vectors of the FNV authors
    }
}
