//! The calls that led to a panic on the software device.

use std::backtrace::Backtrace;
use std::string::{String, ToString};
use std::sync::OnceLock;
use std::vec::Vec;

/// Has a panic's message end with the calls that led to it, unless it is 0 or empty.
const VARIABLE: &str = "HOSTCALL_BACKTRACE";

/// Calls that are told of.
const MOST_CALLS: usize = 32;

/// Reads the variable for [`calls`], which is not to wait for others that read or write the environment.
pub(crate) fn prepare() {
    is_wanted();
}

fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty() && value != "0"))
}

/// Returns the end of the message of a panic that the calling lane is in: a line for each call of the kernel's functions, the
/// last one first, or nothing.
pub(crate) fn calls() -> String {
    if !is_wanted() {
        return String::new();
    }
    let trace = Backtrace::force_capture();
    // Names and lines are looked up on a thread, since that takes more stack than a lane has. One that the system does not
    // start, or that panics, says nothing.
    let thread = std::thread::Builder::new().spawn(move || kernels_calls(&trace.to_string()));
    thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
}

/// A call: a function's name, and where in it the next one is called, if the program has that.
struct Call<'t> {
    name: &'t str,
    place: Option<&'t str>,
}

impl Call<'_> {
    /// Says whether it is what `#[kernel]` makes, or the runtime's below it.
    fn is_below_kernel(&self) -> bool {
        ["__hostcall_run", "hostcall_device::target::cpu::enter_cpu", "hostcall_device::kernel::enter_kernel"]
            .iter()
            .any(|name| self.name.contains(name))
    }

    /// The kernel whose function of the image this is, as `hostcall_kernel_sum__0123abcd`. Without debug information it
    /// is all that there is of what was inlined into it.
    fn kernel(&self) -> Option<&str> {
        let (kernel, _) = self.name.strip_prefix("hostcall_kernel_")?.rsplit_once("__")?;
        Some(kernel)
    }

    /// Says whether it is one of the standard library's.
    fn is_in_library(&self) -> bool {
        match self.place {
            Some(place) => ["/library/core/src/", "/library/std/src/", "/library/alloc/src/"]
                .iter()
                .any(|part| place.contains(part)),
            // Compiled into a package without debug information.
            None => ["core::", "std::", "alloc::"]
                .iter()
                .any(|begin| self.name.trim_start_matches('<').starts_with(begin)),
        }
    }

    /// Says whether it is part of panicking.
    fn is_of_panic(&self) -> bool {
        let begins =
            ["core::panicking::", "std::panicking::", "std::backtrace", "hostcall_device::backtrace::"];
        let contains = [
            "rust_begin_unwind",
            "_failed",
            "install_hook",
            "panic_bounds_check",
            "__rust_end_short_backtrace",
        ];
        begins.iter().any(|begin| self.name.trim_start_matches('<').starts_with(begin))
            || contains.iter().any(|part| self.name.contains(part))
    }
}

/// The kernel's own calls, of a backtrace as the standard library displays it.
fn kernels_calls(trace: &str) -> String {
    let mut calls: Vec<Call<'_>> = Vec::new();
    for line in trace.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(call) = calls.last_mut() {
                call.place = Some(place);
            }
        } else if let Some((_, name)) = line.split_once(": ") {
            calls.push(Call { name, place: None });
        }
    }
    let below = calls.iter().position(Call::is_below_kernel).unwrap_or(calls.len());
    let kernel = calls.iter().position(|call| call.kernel().is_some()).map_or(calls.len(), |at| at + 1);
    let end = below.min(kernel);
    let start = calls[..end].iter().rposition(Call::is_of_panic).map_or(0, |at| at + 1);
    // What panics for its caller, such as `Option::expect`.
    let own = calls[start..end].iter().skip_while(|call| call.is_in_library());
    let mut text = String::new();
    for call in own.take(MOST_CALLS) {
        text.push_str("\n  in ");
        text.push_str(call.kernel().unwrap_or(call.name));
        if let Some(place) = call.place {
            text.push_str(" at ");
            text.push_str(place);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_kernels_is_left_out() {
        let trace = "\
   0: hostcall_device::backtrace::calls
             at /src/backtrace.rs:30:17
   1: hostcall_device::target::cpu::install_hook::{{closure}}::{{closure}}
   2: std::panicking::panic_with_hook
             at /rustc/1/library/std/src/panicking.rs:833:13
   3: __rustc::rust_begin_unwind
   4: core::panicking::panic_fmt
   5: core::option::expect_failed
   5: expect<u32>
             at /rustc/1/library/core/src/option.rs:971:21
   6: shop::inner
             at ./src/lib.rs:4:5
   7: shop::walk::walk
   8: shop::walk::__hostcall_run
             at ./src/lib.rs:8:1
   9: hostcall_device::target::cpu::enter_cpu::{{closure}}
  10: std::panicking::catch_unwind
";
        assert_eq!(kernels_calls(trace), "\n  in shop::inner at ./src/lib.rs:4:5\n  in shop::walk::walk");
        assert_eq!(kernels_calls("disabled backtrace"), "");
        // An image without debug information.
        let trace = "\
   0: std::backtrace::Backtrace::force_capture
   1: core::panicking::panic_fmt
   2: core::option::Option<T>::expect
   3: shop::inner
   4: hostcall_kernel_walk_2__83a337ea
   5: run
             at /src/softdev/src/lane.rs:186:33
";
        assert_eq!(kernels_calls(trace), "\n  in shop::inner\n  in walk_2");
    }
}
