//! The platform layer, and where it goes: files of ours beside those of the library, and a few lines at places that are found
//! by the text around them.

/// A file of the layer.
pub struct Added {
    /// Where it lies below the library's folder.
    pub path: &'static str,
    pub text: &'static str,
}

/// Lines that are put into a file of the library's.
pub struct Inserted {
    /// The file below the library's folder.
    pub path: &'static str,
    /// The text that they stand in front of, which the file has once.
    pub before: &'static str,
    pub text: &'static str,
}

macro_rules! added {
    ($($path:literal: $file:literal),* $(,)?) => {
        &[$(Added { path: concat!("std/src/sys/", $path), text: include_str!(concat!("../../std/", $file)) }),*]
    };
}

pub const ADDED: &[Added] = added! {
    "alloc/hostcall.rs": "alloc.rs",
    "args/hostcall.rs": "args.rs",
    "env/hostcall.rs": "env.rs",
    "fs/hostcall.rs": "fs.rs",
    "io/error/hostcall.rs": "io_error.rs",
    "net/connection/hostcall.rs": "net.rs",
    "pal/hostcall/abi.rs": "abi.rs",
    "pal/hostcall/futex.rs": "futex.rs",
    "pal/hostcall/mod.rs": "pal.rs",
    "paths/hostcall.rs": "paths.rs",
    "random/hostcall.rs": "random.rs",
    "stdio/hostcall.rs": "stdio.rs",
    "thread/hostcall.rs": "thread.rs",
    "thread_local/key/hostcall.rs": "thread_local_key.rs",
    "time/hostcall.rs": "time.rs",
};

/// An arm among those of other systems, in front of one of them.
const HERMIT: &str = "    target_os = \"hermit\" => {\n";

/// A condition among those of other systems, in front of one of them.
const OR_HERMIT: &str = "        target_os = \"hermit\",\n";
const OR_US: &str = "        hostcall_std,\n";

const ALL_OF_IT: &str = "    hostcall_std => {\n        mod hostcall;\n        pub use hostcall::*;\n    }\n";
const AS_IMP: &str = "    hostcall_std => {\n        mod hostcall;\n        use hostcall as imp;\n    }\n";

macro_rules! inserted {
    ($($path:literal, $before:expr => $text:expr;)*) => {
        &[$(Inserted { path: concat!("std/", $path), before: $before, text: $text }),*]
    };
}

pub const INSERTED: &[Inserted] = inserted! {
    // Else every crate would have to ask for the library by an unstable feature.
    "build.rs", "        || target_os == \"hermit\"\n"
        => "        || env::var(\"CARGO_CFG_HOSTCALL_STD\").is_ok()\n";
    "src/sys/alloc/mod.rs", "    target_arch = \"wasm64\",\n" => "    hostcall_std,\n";
    "src/sys/alloc/mod.rs", HERMIT => "    hostcall_std => {\n        mod hostcall;\n    }\n";
    "src/sys/args/mod.rs", "    target_os = \"hermit\",\n    target_os = \"motor\",\n" => "    hostcall_std,\n";
    "src/sys/args/mod.rs", "    target_os = \"motor\" => {\n" => ALL_OF_IT;
    "src/sys/env/mod.rs", "    target_os = \"hermit\",\n" => "    hostcall_std,\n";
    "src/sys/env/mod.rs", HERMIT => ALL_OF_IT;
    // SAFETY of what is inserted: `exit` takes any code, and ends the program.
    "src/sys/exit.rs", "        target_os = \"hermit\" => {\n"
        => "        hostcall_std => {\n            unsafe { crate::sys::pal::abi::exit(code) }\n        }\n";
    "src/sys/fs/mod.rs", HERMIT => AS_IMP;
    "src/sys/io/error/mod.rs", HERMIT => ALL_OF_IT;
    "src/sys/net/connection/mod.rs", "    target_os = \"motor\" => {\n" => ALL_OF_IT;
    "src/sys/pal/mod.rs", HERMIT => ALL_OF_IT;
    "src/sys/paths/mod.rs", HERMIT => AS_IMP;
    "src/sys/random/mod.rs", HERMIT => ALL_OF_IT;
    "src/sys/stdio/mod.rs", "    target_os = \"motor\" => {\n" => ALL_OF_IT;
    "src/sys/sync/condvar/mod.rs", OR_HERMIT => OR_US;
    "src/sys/sync/mutex/mod.rs", OR_HERMIT => OR_US;
    "src/sys/sync/once/mod.rs", OR_HERMIT => OR_US;
    "src/sys/sync/rwlock/mod.rs", OR_HERMIT => OR_US;
    "src/sys/sync/thread_parking/mod.rs", OR_HERMIT => OR_US;
    "src/sys/thread/mod.rs", HERMIT => ALL_OF_IT;
    "src/sys/thread_local/mod.rs", "        target_os = \"xous\" => {\n            mod racy;\n" =>
        "        hostcall_std => {\n            mod hostcall;\n            mod racy;\n            \
         pub(crate) use hostcall::end_of_thread;\n            pub(super) use hostcall::{Key, get, set};\n            \
         use hostcall::{create, destroy};\n            pub(super) use racy::LazyKey;\n        }\n";
    "src/sys/time/mod.rs", HERMIT => AS_IMP;
    // For `MATHEMATICS`.
    "src/sys/cmath.rs", "    pub safe fn acos(n: f64) -> f64;\n" =>
        "    pub safe fn cos(n: f64) -> f64;\n    pub safe fn cosf(n: f32) -> f32;\n    \
         pub safe fn exp(n: f64) -> f64;\n    pub safe fn expf(n: f32) -> f32;\n    \
         pub safe fn exp2(n: f64) -> f64;\n    pub safe fn exp2f(n: f32) -> f32;\n    \
         pub safe fn log(n: f64) -> f64;\n    pub safe fn logf(n: f32) -> f32;\n    \
         pub safe fn log2(n: f64) -> f64;\n    pub safe fn log2f(n: f32) -> f32;\n    \
         pub safe fn log10(n: f64) -> f64;\n    pub safe fn log10f(n: f32) -> f32;\n    \
         pub safe fn pow(a: f64, b: f64) -> f64;\n    pub safe fn powf(a: f32, b: f32) -> f32;\n    \
         pub safe fn sin(n: f64) -> f64;\n    pub safe fn sinf(n: f32) -> f32;\n";
    // What a panic says goes to the host too, and the lane ends where a thread would unwind.
    "src/panicking.rs", "    rust_panic(payload)\n}\n"
        => "    #[cfg(hostcall_std)]\n    crate::sys::panicked(&*payload, location);\n";
    // The `unsafe` is the library's own, before which this is inserted.
    "src/panicking.rs", "    let code = unsafe { __rust_start_panic(msg) };\n"
        => "    #[cfg(hostcall_std)]\n    crate::sys::end();\n";
};

macro_rules! on_gpus {
    ($text:expr) => {
        concat!(
            "        #[cfg(all(hostcall_std, any(target_arch = \"nvptx64\", target_arch = \"amdgpu\")))]\n",
            $text
        )
    };
}

macro_rules! functions {
    ($($path:literal: $($intrinsic:literal => $function:literal),*;)*) => {
        &[$($(Inserted {
            path: $path,
            before: concat!("        intrinsics::", $intrinsic, "\n"),
            text: on_gpus!(concat!("        return ", $function, ";\n")),
        },)*)*]
    };
}

/// Lines by which mathematics on GPUs calls C's functions, all of which `compiler_builtins` has: of its own operations LLVM makes
/// calls of them, but takes none to be there on a GPU, and refuses the program. SAFETY of what is inserted: they are C's functions
/// of these names and types, of any numbers.
pub const MATHEMATICS: &[Inserted] = functions! {
    "core/src/num/f32.rs":
        "powif32(x, n)"
            => "{\n            unsafe extern \"C\" {\n                safe fn __powisf2(x: f32, n: i32) -> f32;\n            \
                }\n            __powisf2(x, n)\n        }";
    "core/src/num/f64.rs":
        "powif64(x, n)"
            => "{\n            unsafe extern \"C\" {\n                safe fn __powidf2(x: f64, n: i32) -> f64;\n            \
                }\n            __powidf2(x, n)\n        }";
    "std/src/num/f32.rs":
        "powf32(self, n)" => "cmath::powf(self, n)",
        "expf32(self)" => "cmath::expf(self)",
        "exp2f32(self)" => "cmath::exp2f(self)",
        "logf32(self)" => "cmath::logf(self)",
        "log2f32(self)" => "cmath::log2f(self)",
        "log10f32(self)" => "cmath::log10f(self)",
        "sinf32(self)" => "cmath::sinf(self)",
        "cosf32(self)" => "cmath::cosf(self)";
    "std/src/num/f64.rs":
        "powf64(self, n)" => "cmath::pow(self, n)",
        "expf64(self)" => "cmath::exp(self)",
        "exp2f64(self)" => "cmath::exp2(self)",
        "logf64(self)" => "cmath::log(self)",
        "log2f64(self)" => "cmath::log2(self)",
        "log10f64(self)" => "cmath::log10(self)",
        "sinf64(self)" => "cmath::sin(self)",
        "cosf64(self)" => "cmath::cos(self)";
};

const ATOMIC: &str = "core/src/sync/atomic.rs";

/// What each function of [`ATOMIC`] does first.
const HIDE: &str =
    "    #[cfg(all(hostcall_std, target_arch = \"nvptx64\"))]\n    let dst = hidden(dst as *mut T);\n";

macro_rules! hidden {
    ($($function:literal),* $(,)?) => {
        &[
            Inserted {
                path: ATOMIC,
                before: "#[inline]\n#[cfg(target_has_atomic)]\nfn strongest_failure_ordering(",
                text: concat!(include_str!("../../std/hidden.rs"), "\n"),
            },
            $(Inserted {
                path: ATOMIC,
                before: concat!("    // SAFETY: the caller must uphold the safety contract for `", $function, "`"),
                text: HIDE,
            }),*
        ]
    };
}

/// Lines by which atomic operations on NVIDIA do not know whether a variable lies on a stack. LLVM would make plain loads and
/// stores of them there, since it takes a stack for private memory, which the build's are not ([`super::stacks`]).
pub const HIDDEN: &[Inserted] = hidden![
    "atomic_add",
    "atomic_and",
    "atomic_compare_exchange",
    "atomic_compare_exchange_weak",
    "atomic_load",
    "atomic_max",
    "atomic_min",
    "atomic_nand",
    "atomic_or",
    "atomic_store",
    "atomic_sub",
    "atomic_swap",
    "atomic_umax",
    "atomic_umin",
    "atomic_xor",
];
