//! PTX: what it is for, and its variables and kernels, without compiling it.

use super::symbols::calls;
use super::{ComputeCapability, ImageInfo, Target};

/// Directives between the start of a declaration and its type or name, which say nothing here.
const WORDS_BEFORE_TYPE: &[&str] = &[".visible", ".weak", ".common", ".global", ".const", ".volatile"];

pub(super) fn identify(bytes: &[u8]) -> Option<ImageInfo> {
    let start = bytes.trim_ascii_start();
    if !start.starts_with(b"//") && !start.starts_with(b".version") {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    let target = text.lines().find_map(|line| line.strip_prefix(".target"))?;
    let name = target.split([',', ' ', '\t']).find(|word| !word.is_empty())?;
    let (capability, scope) = ComputeCapability::and_scope(name)?;
    let target = Target::Ptx(capability, scope);
    Some(ImageInfo { target, calls: calls(text.lines().filter_map(symbol)) })
}

/// The symbol that a line defines, and its size in bytes; a kernel's is 0.
fn symbol(line: &str) -> Option<(&str, u64)> {
    if !line.starts_with('.') {
        return None;
    }
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '$');
    let mut words = line.split_ascii_whitespace().peekable();
    let name_at_start = |word: &'_ str| word.len() - word.trim_start_matches(is_name).len();
    let mut unit_bytes = 0;
    while let Some(word) = words.next() {
        match word {
            ".entry" => {
                let name = words.next()?;
                return Some((&name[..name_at_start(name)], 0));
            }
            ".align" => _ = words.next()?,
            word if WORDS_BEFORE_TYPE.contains(&word) => {}
            word if word.starts_with('.') && unit_bytes == 0 => {
                let bits: u64 =
                    word.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().ok()?;
                unit_bytes = bits / 8;
            }
            word if unit_bytes != 0 => {
                let (name, rest) = word.split_at(name_at_start(word));
                let count = match rest.strip_prefix('[') {
                    Some(count) => count.split(']').next()?.parse().ok()?,
                    None => 1,
                };
                return Some((name, unit_bytes.checked_mul(count)?));
            }
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Calls, LlvmProgram, PtxScope, Target, identify};
    use super::*;
    use hostcall_channel::llvm::Version;

    #[test]
    fn definitions() {
        for (line, expected) in [
            (".visible .entry _begin(", Some(("_begin", 0))),
            (".weak .entry a$b()", Some(("a$b", 0))),
            (".visible .global .align 8 .u64 __init_array_start;", Some(("__init_array_start", 8))),
            (".global .align 8 .b8 client[552];", Some(("client", 552))),
            (".visible .const .align 8 .u64 object[1] = {f};", Some(("object", 8))),
            (".extern .global .align 8 .u64 elsewhere;", None),
            (".func  (.param .b32 func_retval0) main(", None),
            (".version 7.8", None),
            ("\t.reg .b64 %rd<3>;", None),
            (".visible .global .align 1 .b8 huge[18446744073709551616];", None),
        ] {
            assert_eq!(symbol(line), expected, "{line}");
        }
    }

    #[test]
    fn a_program() {
        let ptx = "//\n// Generated\n.version 7.8\n.target sm_90a, debug\n.address_size 64\n\
                   .visible .entry _begin(\n.visible .entry _start(\n.visible .entry _end(\n\
                   .visible .global .align 8 .u64 __llvm_libc_rpc_client = client;\n";
        let image = identify(ptx.as_bytes()).unwrap();
        let capability = ComputeCapability { major: 9, minor: 0 };
        assert_eq!(image.target, Target::Ptx(capability, PtxScope::Alone));
        let version = Some(Version::Llvm19);
        assert_eq!(image.calls, Calls::Llvm(LlvmProgram { version, ..LlvmProgram::default() }));
        assert!(identify(b"// a comment of some program\nint main() {}\n").is_err());
    }
}
