//! See `rocm_server.rs` beside the server's tests, which run this target's corpus too.
#![no_main]

#[path = "../../host/server/tests/fuzz/rocm_server.rs"]
mod rocm_server;

libfuzzer_sys::fuzz_target!(|data: &[u8]| rocm_server::run(data));
