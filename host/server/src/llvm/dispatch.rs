//! Typed functions, as clients call them with `rpc::dispatch` of LLVM's `rpc_dispatch.h`.
//!
//! ```text
//!  client                                                     server
//!  ────────────────────────────────────────────────────────────────────────────────────
//!  for each pointer: what it points to, as bytes ───────────► keeps a copy
//!                    the copy's name, one word   ◄───────────
//!  all arguments, one after the other, in whole packets ────► calls the function
//!  for each pointer: what it points to now       ◄───────────
//!  the result, in whole packets                  ◄───────────
//! ```
//!
//! The name of a copy is no address: the server never reads it back.

use super::call::Call;
use super::handlers::HandlerFailed;
use hostcall_channel::llvm::{BUFFER_BYTES, BUFFER_WORDS};

/// Bytes of a pointer among the arguments.
const POINTER_BYTES: usize = 8;

/// A parameter of a typed function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// A value of so many bytes: a number, a struct, or a pointer to `void` or to a type that the client does not know.
    Value(usize),
    /// A pointer to a value, or to an array of `rpc::span`'s, which the function may change.
    Pointer,
    /// The same, where the function only reads: a `const char *` and other pointers to `const`.
    Input,
}

/// An argument of one lane's call.
#[derive(Debug)]
pub enum Argument<'a> {
    /// A value's bytes.
    Value(&'a [u8]),
    /// A copy of what a pointer points to, as long as the client says, and it stays so long; `None` of a null pointer or of nothing. The text of
    /// a `const char *` has its zero byte.
    Memory(Option<&'a mut Vec<u8>>),
}

impl Parameter {
    fn is_pointer(self) -> bool {
        !matches!(self, Self::Value(_))
    }

    fn bytes(self) -> usize {
        if let Self::Value(bytes) = self { bytes } else { POINTER_BYTES }
    }
}

/// What a lane sent.
#[derive(Default)]
struct LaneArguments {
    lane: u32,
    /// What its pointers point to.
    memory: Vec<Vec<u8>>,
    /// The arguments in whole buffers.
    packed: Vec<u8>,
    result: Vec<u8>,
}

impl LaneArguments {
    /// Returns the arguments, for a function with these parameters.
    fn get(&mut self, parameters: &[Parameter]) -> Vec<Argument<'_>> {
        let mut memory = self.memory.iter_mut();
        let mut rest = &*self.packed;
        let argument = |parameter: &Parameter| {
            let value;
            (value, rest) = rest.split_at(parameter.bytes());
            if !parameter.is_pointer() {
                return Argument::Value(value);
            }
            let memory = memory.next().expect("each pointer's memory was received");
            Argument::Memory((!memory.is_empty()).then_some(memory))
        };
        parameters.iter().map(argument).collect()
    }
}

impl Call {
    /// Answers a client's `rpc::dispatch` of a function with these parameters and a result of so many bytes (0 for `void`):
    /// `function` gets each lane's arguments and where the result goes, which is 0 before. The handler of the opcode does
    /// nothing else with the call.
    ///
    /// # Errors
    /// When `function` fails, or the call has ended.
    pub fn dispatch(
        &mut self,
        parameters: &[Parameter],
        result_bytes: usize,
        mut function: impl FnMut(u32, &mut [Argument<'_>], &mut [u8]) -> Result<(), HandlerFailed>,
    ) -> Result<(), HandlerFailed> {
        let lane = |lane| LaneArguments { lane, ..LaneArguments::default() };
        let mut lanes: Vec<_> = self.lanes().map(lane).collect();
        for name in 1..=parameters.iter().filter(|parameter| parameter.is_pointer()).count() {
            self.receive_more_bytes()?;
            for of in &mut lanes {
                let memory = std::mem::take(self.bytes(of.lane));
                self.words(of.lane)[0] = if memory.is_empty() { 0 } else { name as u64 };
                of.memory.push(memory);
            }
            self.send()?;
        }
        let packed: usize = parameters.iter().map(|parameter| parameter.bytes()).sum();
        for _ in 0..packed.max(1).div_ceil(BUFFER_BYTES) {
            self.receive()?;
            for of in &mut lanes {
                of.packed.extend(self.words(of.lane).iter().flat_map(|word| word.to_le_bytes()));
            }
        }
        for of in &mut lanes {
            let (lane, mut result) = (of.lane, vec![0; result_bytes]);
            let lengths: Vec<_> = of.memory.iter().map(Vec::len).collect();
            function(lane, &mut of.get(parameters), &mut result)?;
            of.result = result;
            // The client writes as much as it gets.
            of.memory.iter_mut().zip(lengths).for_each(|(memory, length)| memory.resize(length, 0));
        }
        let pointers = parameters.iter().filter(|parameter| parameter.is_pointer());
        for (place, parameter) in pointers.enumerate() {
            for of in &mut lanes {
                // The client writes back what it gets, also where it may not: nothing is sent of what did not change.
                let memory = std::mem::take(&mut of.memory[place]);
                *self.bytes(of.lane) = if *parameter == Parameter::Pointer { memory } else { Vec::new() };
            }
            self.send_bytes()?;
        }
        for packet in 0..result_bytes.max(1).div_ceil(BUFFER_BYTES) {
            for of in &lanes {
                let rest = &of.result[(packet * BUFFER_BYTES).min(of.result.len())..];
                *self.words(of.lane) = [0; BUFFER_WORDS];
                for (word, bytes) in self.words(of.lane).iter_mut().zip(rest.chunks(8)) {
                    let mut padded = [0; 8];
                    padded[..bytes.len()].copy_from_slice(bytes);
                    *word = u64::from_le_bytes(padded);
                }
            }
            self.send()?;
        }
        Ok(())
    }
}
