//! See `llvm_server.rs` beside the host runtime's tests, which run this target's corpus too.
#![no_main]

#[path = "../../host/server/tests/fuzz/llvm_server.rs"]
mod llvm_server;

libfuzzer_sys::fuzz_target!(|data: &[u8]| llvm_server::run(data));
