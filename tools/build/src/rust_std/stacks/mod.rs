//! Stacks in device memory, for programs whose threads are waves.
//!
//! What a compiler puts on a GPU's stack lies in private memory, where an address means another place in each lane: a thread that
//! borrows a variable of another one would read something else, without a word. So in such a program each function but the kernels
//! takes room for its variables from a stack in device memory, which the device crate gives each thread
//! (`kernel/device/src/rust_std/threads.rs`):
//!
//! ```text
//!  workgroup's memory    word 0: lowest address of the stack that is taken (down which it grows)
//!                        word 1: the address that it must not come below
//! ```
//!
//! A function that begins takes its frame by lowering word 0, and puts it back when it returns; one that finds no room calls
//! [`FULL`]. A kernel has variables of its own in private memory: first of all it makes some of that the workgroup's stack, until the
//! device crate has another one. Registers that the compiler spills stay in private memory, since nothing has their addresses.
//!
//! On AMD this is done to LLVM's text of the whole program ([`llvm`]), of which clang makes code; on NVIDIA to the PTX
//! ([`ptx`]), which names all that lies on a stack.

pub mod llvm;
pub mod ptx;

/// What a function calls that finds no room.
const FULL: &str = "__hostcall_std_stack_full";

/// Bytes of the stack that a kernel gives its workgroup, and how many of them are left to who tells that it is full.
const FIRST_BYTES: u64 = 12 << 10;
const FIRST_SPARE_BYTES: u64 = 4 << 10;

/// What a frame is at least aligned to.
const ALIGN: u64 = 16;

/// Where variables of these sizes and alignments lie in a frame, and the frame's size and alignment.
fn frame(variables: impl Iterator<Item = (u64, u64)>) -> (Vec<u64>, u64, u64) {
    let (mut places, mut bytes, mut aligned) = (Vec::new(), 0u64, ALIGN);
    for (size, align) in variables {
        bytes = bytes.next_multiple_of(align);
        places.push(bytes);
        bytes += size;
        aligned = aligned.max(align);
    }
    (places, bytes.next_multiple_of(aligned), aligned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_lie_beside_each_other() {
        assert_eq!(frame([(3, 1), (8, 8), (1, 32)].into_iter()), (vec![0, 8, 32], 64, 32));
        assert_eq!(frame([(1, 1)].into_iter()), (vec![0], 16, 16));
    }
}
