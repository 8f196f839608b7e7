//! The software HSA runtime as a shared library, `libsofthsa.so`: HSA's C interface with the symbol versions of
//! ROCm's runtime. A program that opens or was linked with `libhsa-runtime64.so.1` runs on it unchanged, if the
//! loader finds it under that name:
//!
//! ```sh
//! cargo build --release -p hostcall-softhsa-library
//! ln -s "$PWD/target/release/libsofthsa.so" /tmp/lib/libhsa-runtime64.so.1
//! LD_LIBRARY_PATH=/tmp/lib SOFTHSA_AGENTS=2 SOFTHSA_THREADS=4 ./client
//! ```
//!
//! It is a package of its own, so that programs that contain the runtime ([`hostcall_softhsa::api::symbol`]) do not
//! have these names, under which they may load ROCm's.
//!
//! Each symbol is a jump to the function. The assembler accepts a version only where the symbol is defined, and
//! which of the compiler's units a Rust function ends in is not known; so the symbols are made here. The versions
//! themselves are declared in `exports.map`, which the build script gives to the linker.

use hostcall_softhsa::api::functions;

macro_rules! export {
    ($($function:ident)*) => {$(
        std::arch::global_asm!(
            ".text",
            concat!(".globl ", stringify!($function)),
            concat!(".type ", stringify!($function), ", @function"),
            concat!(stringify!($function), ":"),
            #[cfg(target_arch = "x86_64")]
            "jmp {function}",
            #[cfg(target_arch = "aarch64")]
            "b {function}",
            concat!(".size ", stringify!($function), ", . - ", stringify!($function)),
            concat!(".symver ", stringify!($function), ", ", stringify!($function), "@@ROCR_1"),
            function = sym functions::$function,
        );
    )*};
}

hostcall_softhsa::hsa_functions!(export);
