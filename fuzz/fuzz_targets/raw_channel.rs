//! See `raw_channel.rs` beside the channel's tests, which run this target's corpus too.
#![no_main]

#[path = "../../core/channel/tests/fuzz/raw_channel.rs"]
mod raw_channel;

libfuzzer_sys::fuzz_target!(|data: &[u8]| raw_channel::run(data));
