//! The program's end.

use crate::system::System;
use crate::target;

/// Ends the program with this exit code: the host cancels the launch, and the lane ends. Other lanes end with
/// their next call.
///
/// In a replay of a graph it ends its kernel's launch alone, and nobody gets the code: the replay goes on with
/// the next node. A kernel that is to end a loop of a graph writes the loop's word.
pub fn exit(code: i32) -> ! {
    // A program that cannot tell the host ends all the same.
    let _ = System::exit(code);
    crate::packet::stop_stream(target::here());
    target::exit_lane()
}

/// Ends the program at once with exit code 134, as a program ends that a signal aborted.
pub fn abort() -> ! {
    exit(134)
}
