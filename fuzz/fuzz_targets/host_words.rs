//! See `host_words.rs` beside the channel's tests, which run this target's corpus too.
#![no_main]

#[path = "../../core/channel/tests/fuzz/host_words.rs"]
mod host_words;

libfuzzer_sys::fuzz_target!(|data: &[u8]| host_words::run(data));
