//! See `remote_messages.rs` beside the tests of `hostcall-remote`, which run this target's corpus too.
#![no_main]

#[path = "../../host/remote/tests/fuzz/remote_messages.rs"]
mod remote_messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| remote_messages::run(data));
