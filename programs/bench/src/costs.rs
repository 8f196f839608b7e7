//! Kernels that do one thing `count` times, for the page that says what each costs (docs/book/src/costs.md). What a thing costs
//! is what its kernel has over [`cost_nothing`].

use hostcall_device::{Global, Lane, counter, event, kernel, println, service, span};

/// What these kernels call.
#[service]
pub trait Costs {
    /// Does nothing.
    fn null();
    /// Takes 56 bytes and gives 8 back.
    fn sum(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64) -> u64;
    /// Gives how many bytes it takes.
    fn len(data: &[u8]) -> u64;
    /// Takes a post of 12 bytes.
    fn event(value: u64);
}

macro_rules! costs {
    ($($(#[$doc:meta])* $name:ident($lane:ident, $i:ident, $count:ident, $failed:ident) $body:block)*) => {$(
        $(#[$doc])*
        #[kernel(max_lanes = 256)]
        pub fn $name($lane: &Lane, ns: &[Global<u64>], $failed: &[Global<u64>], $count: u64) {
            let start = $lane.clock_ns();
            let mut all = true;
            for $i in 0..$count {
                // Else the compiler would leave out what it sees through.
                let $i = core::hint::black_box($i);
                let (_, done): (u64, bool) = ($i, $body);
                all &= done;
            }
            let took = $lane.clock_ns() - start;
            // Without a checked index, which is one of the costs.
            if let (Some(ns), Some(failed)) = (ns.first(), $failed.first()) {
                ns.set(took);
                if !all {
                    failed.set(1);
                }
            }
        }
    )*};
}

costs! {
    /// What the others have besides.
    cost_nothing(lane, i, count, failed) { i < count }
    /// A call without arguments.
    cost_call(lane, i, count, failed) { Costs::null().is_ok() }
    /// A call of seven words, with one back.
    cost_call_words(lane, i, count, failed) { Costs::sum(i, 1, 2, 3, 4, 5, 6) == Ok(i + 21) }
    /// A call with bytes.
    cost_call_bytes(lane, i, count, failed) { Costs::len(&i.to_le_bytes()) == Ok(8) }
    /// A post of a word.
    cost_post(lane, i, count, failed) { Costs::post_event(i).is_ok() }
    /// A line that is a text.
    cost_line(lane, i, count, failed) { println!("a line"); i < count }
    /// A line of numbers.
    cost_line_numbers(lane, i, count, failed) { println!("{i} of {count}: {:.2}", 0.25); i < count }
    /// A line that the device formats.
    cost_line_device(lane, i, count, failed) { println!("{:?}", Some(i)); i < count }
    /// An assertion.
    cost_assert(lane, i, count, failed) { assert!(i < count); true }
    /// An assertion with values in its text.
    cost_assert_text(lane, i, count, failed) { assert!(i < count, "{i} is not below {count}"); true }
    /// A checked index.
    cost_index(lane, i, count, failed) { failed[(i >> 63) as usize].get() == 0 }
    /// A panic that formats.
    cost_panic(lane, i, count, failed) { if i == count { panic!("lane {} has come to {i}", lane.global_id()) } true }
    /// A span.
    cost_span(lane, i, count, failed) { let _span = span!("a span"); i < count }
    /// A counter.
    cost_counter(lane, i, count, failed) { counter!("a counter", i); i < count }
    /// An event with a value.
    cost_event(lane, i, count, failed) { event!("step {i}"); i < count }
}

/// Panics.
#[kernel(max_lanes = 256)]
pub fn panics(lane: &Lane, count: u64) {
    panic!("lane {} has come to {count}", lane.global_id());
}
