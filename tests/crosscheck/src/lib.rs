//! The parts of a cross-check: LLVM's own server of its RPC protocol, and scripts that a client runs against
//! it or against hostcall's. The command runs one script with one server; the tests compare answers, output,
//! files and ends. The example `speed` times both.

mod caller;
mod llvm;
mod scripts;

pub use caller::{Record, run, write_argument};
pub use llvm::LlvmRpcServer;
pub use scripts::{SCRIPTS, Script};
