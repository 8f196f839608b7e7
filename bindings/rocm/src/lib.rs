//! `libamd_hostcall`: consumers of ROCm's hostcall buffers, as a C library. `include/amd_hostcall.h` has the
//! interface, with each function's errors, threads and ownership; `cargo cinstall` (cargo-c) installs
//! library, header and a description for `pkg-config`.
//!
//! [`functions`] are the interface, `state` is what they change, `handlers` runs the caller's handlers on the
//! server of `hostcall-server`, and `hsa` makes the signals that devices ring. Begin with the header.
//!
//! # Invariants
//!
//! - **CALLER**: the caller keeps to the header: pointers for results are valid, handlers are functions of
//!   their types, and a registered buffer has its bytes until it is deregistered.
//! - **STATE**: a consumer is known by a number that C has as a handle, and a buffer by its address with the
//!   size that it was initialised with. Neither is followed before it is found in a table.
//!
//! Each symbol is a jump to the function, as in `hostcall-softhsa-library`: the assembler accepts a version
//! only where the symbol is defined. The versions themselves are declared in `exports.map`, which the build
//! script gives to the linker. Three `@` rename the symbol, so that a program can be linked with the static
//! library too.

pub mod functions;
mod handlers;
mod hsa;
mod state;

macro_rules! export {
    ($($symbol:literal: $function:ident)*) => {$(
        std::arch::global_asm!(
            ".text",
            concat!(".globl ", $symbol),
            concat!(".type ", $symbol, ", @function"),
            concat!($symbol, ":"),
            #[cfg(target_arch = "x86_64")]
            "jmp {function}",
            #[cfg(target_arch = "aarch64")]
            "b {function}",
            concat!(".size ", $symbol, ", . - ", $symbol),
            concat!(".symver ", $symbol, ", ", $symbol, "@@@AMD_HOSTCALL_1"),
            function = sym functions::$function,
        );
    )*};
}

export! {
    "amd_hostcall_error_string": error_string
    "amd_hostcall_create_consumer": create_consumer
    "amd_hostcall_destroy_consumer": destroy_consumer
    "amd_hostcall_launch_consumer": launch_consumer
    "amd_hostcall_register_service": register_service
    "amd_hostcall_register_printf": register_printf
    "amd_hostcall_get_buffer_size": get_buffer_size
    "amd_hostcall_get_buffer_alignment": get_buffer_alignment
    "amd_hostcall_initialize_buffer": initialize_buffer
    "amd_hostcall_register_buffer": register_buffer
    "amd_hostcall_deregister_buffer": deregister_buffer
    "amd_hostcall_on_error": on_error
    "amd_hostcall_enable_debug": enable_debug
}
