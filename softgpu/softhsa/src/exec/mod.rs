//! Execution of instructions: the state of a wave, and one semantic function for each instruction.

mod atomic;
mod buffer;
pub mod coverage;
pub mod fault;
mod flat;
pub mod float;
pub mod inst;
mod lanes;
mod lds;
mod matrix;
mod place;
pub mod rounding;
mod salu;
mod scalar_memory;
mod special;
mod valu_compare;
mod valu_convert;
mod valu_cross;
mod valu_divide;
mod valu_float;
mod valu_integer;
mod valu_packed;
pub mod wave;

pub use fault::Fault;
pub use inst::{Flow, Handler, Inst};
pub use special::REALTIME_HZ;
pub use wave::{Env, LANES, Wave};

/// Returns the semantic function of the instruction, or `None` if the interpreter lacks it.
pub fn handler(row: &crate::isa::table::Row) -> Option<Handler> {
    let mnemonic = row.mnemonic();
    let mnemonic = mnemonic.strip_suffix("_e32").unwrap_or(mnemonic);
    salu::handler(mnemonic)
        .or_else(|| special::handler(mnemonic))
        .or_else(|| scalar_memory::handler(mnemonic))
        .or_else(|| valu_integer::handler(mnemonic))
        .or_else(|| valu_float::handler(mnemonic))
        .or_else(|| valu_divide::handler(mnemonic))
        .or_else(|| valu_convert::handler(mnemonic))
        .or_else(|| valu_compare::handler(mnemonic))
        .or_else(|| valu_packed::handler(mnemonic))
        .or_else(|| valu_cross::handler(mnemonic))
        .or_else(|| lds::handler(mnemonic))
        .or_else(|| flat::handler(mnemonic))
        .or_else(|| buffer::handler(mnemonic))
        .or_else(|| matrix::handler(mnemonic))
}

/// Defines a function from mnemonics to handlers. `"name" => driver(arguments)` makes a handler that calls
/// `driver(wave, instruction, environment, arguments)`.
macro_rules! handlers {
    ($($($mnemonic:literal)|+ => $driver:ident($($argument:expr),* $(,)?),)*) => {
        /// Returns the semantic function of the mnemonic.
        pub fn handler(mnemonic: &str) -> Option<$crate::exec::Handler> {
            Some(match mnemonic {
                $($($mnemonic)|+ => {
                    fn run(
                        wave: &mut $crate::exec::Wave,
                        inst: &$crate::exec::Inst,
                        env: &mut $crate::exec::Env<'_>,
                    ) -> $crate::exec::Flow {
                        $driver(wave, inst, env $(, $argument)*)
                    }
                    run
                })*
                _ => return None,
            })
        }
    };
}
use handlers;
