//! What an image's symbols tell of its kernels.

use hostcall_abi::launch::{KERNEL_INFO_SYMBOL_PREFIX, KERNEL_SYMBOL_PREFIX, kernel_name};
use hostcall_channel::llvm::Version;

/// How an image's kernels call the host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Calls {
    /// By hostcall's own channel. The kernels are listed, ordered by name.
    Hostcall(Vec<KernelSymbol>),
    /// By LLVM's RPC protocol: a whole program that was linked with LLVM's GPU libc.
    Llvm(LlvmProgram),
    /// By LLVM's RPC protocol: kernels that a host of somebody else's launches.
    LlvmKernels(LlvmProgram),
    /// Not at all, as far as its symbols tell.
    Unknown,
}

/// A kernel of an image, which several kernels of an image may have the name of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelSymbol {
    /// What the symbols of the kernel's entry and of its info end with.
    end: String,
}

impl KernelSymbol {
    /// Returns the kernel to whose [`hostcall_abi::launch::KernelInfo`] a symbol belongs.
    pub fn of(info_symbol: &str) -> Option<Self> {
        kernel_name(info_symbol)?;
        Some(Self { end: info_symbol.strip_prefix(KERNEL_INFO_SYMBOL_PREFIX)?.to_owned() })
    }

    /// Returns the kernel's name.
    pub fn name(&self) -> &str {
        self.end.rsplit_once("__").map_or(&self.end, |(name, _)| name)
    }

    /// Returns the symbol of the kernel's entry.
    pub fn entry(&self) -> String {
        format!("{KERNEL_SYMBOL_PREFIX}{}", self.end)
    }

    /// Returns the symbol of the kernel's [`hostcall_abi::launch::KernelInfo`].
    pub fn info(&self) -> String {
        format!("{KERNEL_INFO_SYMBOL_PREFIX}{}", self.end)
    }
}

/// A program that was linked with LLVM's GPU libc, or kernels that were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LlvmProgram {
    /// The protocol's version; `None` when the program makes no calls.
    pub version: Option<Version>,
    /// Names of the variables that hold its constructors' addresses, in the order to call them.
    pub constructors: Vec<String>,
    /// Names of the variables that hold its destructors' addresses, which are to be called from the last to the first.
    pub destructors: Vec<String>,
    /// It has the client's symbol, of this size, which no version of LLVM's has, or beside that of another version.
    pub unknown_client: Option<u64>,
}

impl LlvmProgram {
    /// Takes the client's symbol.
    fn client(&mut self, name: &str, bytes: u64) {
        let version = Version::of_symbol(name, bytes);
        let is_first = self.version.is_none() && self.unknown_client.is_none();
        if version.is_some() && (is_first || version == self.version) {
            self.version = version;
        } else {
            (self.version, self.unknown_client) = (None, Some(bytes));
        }
    }
}

impl LlvmProgram {
    /// Kernel that runs the constructors.
    pub const BEGIN: &str = "_begin";
    /// Kernel that runs `main` in every lane.
    pub const START: &str = "_start";
    /// Kernel that runs the destructors and exits.
    pub const END: &str = "_end";
}

/// Reads an image's symbols: names with their sizes in bytes.
pub(super) fn calls<'a>(symbols: impl IntoIterator<Item = (&'a str, u64)>) -> Calls {
    let mut ours = Vec::new();
    let mut kernels = [false; 3];
    let mut program = LlvmProgram::default();
    let (mut constructors, mut destructors) = (Vec::new(), Vec::new());
    for (name, bytes) in symbols {
        if let Some(kernel) = KernelSymbol::of(name) {
            ours.push(kernel);
        } else if let Some(priority) = priority(name, "__init_array_object_") {
            constructors.push((priority, name.to_owned()));
        } else if let Some(priority) = priority(name, "__fini_array_object_") {
            destructors.push((priority, name.to_owned()));
        } else if name == Version::POINTER_SYMBOL || name == Version::OBJECT_SYMBOL {
            program.client(name, bytes);
        } else {
            // AMD's symbols are those of the kernels' descriptors.
            let kernel = name.strip_suffix(".kd").unwrap_or(name);
            let place = [LlvmProgram::BEGIN, LlvmProgram::START, LlvmProgram::END];
            if let Some(place) = place.iter().position(|place| *place == kernel) {
                kernels[place] = true;
            }
        }
    }
    if !ours.is_empty() {
        ours.sort();
        ours.dedup();
        return Calls::Hostcall(ours);
    }
    if kernels != [true; 3] {
        let has_client = program.version.is_some() || program.unknown_client.is_some();
        return if has_client { Calls::LlvmKernels(program) } else { Calls::Unknown };
    }
    let in_order = |mut objects: Vec<(u16, String)>| {
        // Stable, so that those of a priority stay in the order of the image.
        objects.sort_by_key(|(priority, _)| *priority);
        objects.into_iter().map(|(_, name)| name).collect()
    };
    program.constructors = in_order(constructors);
    program.destructors = in_order(destructors);
    Calls::Llvm(program)
}

/// The priority at the end of the name of a variable with a constructor's or destructor's address.
fn priority(name: &str, prefix: &str) -> Option<u16> {
    name.strip_prefix(prefix)?.rsplit('_').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNELS: [(&str, u64); 3] = [("_begin", 0), ("_start", 0), ("_end", 0)];

    fn program(symbols: &[(&'static str, u64)]) -> LlvmProgram {
        match calls(KERNELS.into_iter().chain(symbols.iter().copied())) {
            Calls::Llvm(program) => program,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn programs_are_told_by_their_kernels() {
        assert_eq!(calls([]), Calls::Unknown);
        assert_eq!(calls([("_start", 8)]), Calls::Unknown);
        assert_eq!(program(&[]), LlvmProgram::default());
        let amd = calls([("_begin.kd", 64), ("_start.kd", 64), ("_end.kd", 64)]);
        assert_eq!(amd, Calls::Llvm(LlvmProgram::default()));
        let symbols = ["hostcall_kernel_info_main__0123abcd", "hostcall_kernel_main__0123abcd"];
        let ours = calls([(symbols[0], 72), (symbols[1], 0), KERNELS[1]]);
        let kernel = KernelSymbol::of(symbols[0]).unwrap();
        assert_eq!(
            (kernel.name(), kernel.info().as_str(), kernel.entry().as_str()),
            ("main", symbols[0], symbols[1])
        );
        assert_eq!(ours, Calls::Hostcall(vec![kernel]));
    }

    #[test]
    fn versions_are_told_by_the_clients_symbol() {
        for version in Version::ALL {
            let found = program(&[(version.symbol(), version.symbol_bytes() as u64)]);
            assert_eq!((found.version, found.unknown_client), (Some(version), None));
        }
        let found = program(&[(Version::OBJECT_SYMBOL, 77)]);
        assert_eq!((found.version, found.unknown_client), (None, Some(77)));
        // Two versions in one image are none.
        let [pointer, object] = [(Version::POINTER_SYMBOL, 8), (Version::OBJECT_SYMBOL, 552)];
        for both in [[pointer, object], [object, pointer]] {
            let found = program(&both);
            assert_eq!((found.version, found.unknown_client), (None, Some(both[1].1)));
        }
        let kernels = LlvmProgram { version: Some(Version::Llvm20), ..LlvmProgram::default() };
        assert_eq!(calls([object, ("work.kd", 64)]), Calls::LlvmKernels(kernels));
    }

    #[test]
    fn constructors_are_sorted_by_priority() {
        let found = program(&[
            ("__init_array_object_last_a_65535", 8),
            ("__init_array_object_first_1_101", 8),
            ("__init_array_object_last_b_65535", 8),
            ("__fini_array_object_f_2", 8),
            ("__init_array_object_none", 8),
            ("__init_array_start", 8),
        ]);
        let expected = ["first_1_101", "last_a_65535", "last_b_65535"];
        assert_eq!(found.constructors, expected.map(|name| format!("__init_array_object_{name}")));
        assert_eq!(found.destructors, ["__fini_array_object_f_2"]);
    }
}
