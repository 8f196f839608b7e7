//! See `trace_file.rs` beside the trace's tests, which run this target's corpus too.
#![no_main]

#[path = "../../host/trace/tests/fuzz/trace_file.rs"]
mod trace_file;

libfuzzer_sys::fuzz_target!(|data: &[u8]| trace_file::run(data));
