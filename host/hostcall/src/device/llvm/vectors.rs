//! `argv` and `envp` in the device's memory.

use crate::device::core::Core;
use crate::device::error::{Error, ProgramError};
use hostcall_seam::Memory;
use std::sync::Arc;

/// A program's arguments and environment, as its kernels take them.
pub(super) struct Vectors {
    /// `argc`.
    pub count: u64,
    /// Address of `argv`.
    pub arguments: u64,
    /// Address of `envp`.
    pub environment: u64,
    _memory: Arc<dyn Memory>,
}

impl Vectors {
    /// Puts them into the device's memory: both vectors, which end in null pointers, then the strings.
    pub fn new(core: &Core, arguments: &[Vec<u8>], environment: &[Vec<u8>]) -> Result<Self, Error> {
        if let Some(string) = arguments.iter().chain(environment).find(|string| string.contains(&0)) {
            let string = String::from_utf8_lossy(string).into_owned();
            return Err(ProgramError::ZeroByte { string }.into());
        }
        let vectors_bytes = 8 * (arguments.len() + environment.len() + 2);
        let strings_bytes: usize = arguments.iter().chain(environment).map(|string| string.len() + 1).sum();
        let memory = core.backend.allocate((vectors_bytes + strings_bytes).next_multiple_of(8))?;
        let start = memory.address().get();

        let (mut vectors, mut strings) = (Vec::new(), Vec::new());
        for list in [arguments, environment] {
            for string in list {
                let address = start + (vectors_bytes + strings.len()) as u64;
                vectors.extend(address.to_le_bytes());
                strings.extend(string);
                strings.push(0);
            }
            vectors.extend([0; 8]);
        }
        vectors.append(&mut strings);
        vectors.resize(vectors.len().next_multiple_of(8), 0);
        // SAFETY: the memory is new, and as long.
        unsafe { core.backend.write_now(memory.address(), &vectors) }?;
        Ok(Self {
            count: arguments.len() as u64,
            arguments: start,
            environment: start + 8 * (arguments.len() as u64 + 1),
            _memory: memory,
        })
    }
}
