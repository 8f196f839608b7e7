//! Telling the host of a panic.

use crate::lane::place;
use crate::system::System;
use crate::target;

#[cfg(all(target_arch = "nvptx64", hostcall_unformatted))]
pub(crate) mod unformatted;

/// Sends a panic's message and place. The kernel's own text is cut at the host's limit, not here.
pub(crate) fn report(message: &str, file: &str, line: u32, column: u32) {
    let here = target::here();
    let [x, y, z] = place(here.workgroup_index(), here.params().workgroups);
    // Nothing is left to be done for a panic that cannot be reported.
    let _ = System::panic(x, y, z, here.index_in_workgroup(), line, column, message, file);
    crate::packet::stop_stream(here);
}

/// Room for a panic's text on a GPU; what does not fit is cut.
#[cfg(all(feature = "panic-text", any(target_arch = "nvptx64", target_arch = "amdgpu")))]
pub(crate) struct Text {
    bytes: [u8; 256],
    len: usize,
}

#[cfg(all(feature = "panic-text", any(target_arch = "nvptx64", target_arch = "amdgpu")))]
impl Text {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; 256], len: 0 }
    }

    pub(crate) fn as_str(&self) -> &str {
        // Not `from_utf8`: LLVM 22 compiles it wrongly here for AMD's GPUs, and loses the pointer.
        // SAFETY: `write_str` puts whole characters one behind the other.
        unsafe { core::str::from_utf8_unchecked(&self.bytes[..self.len]) }
    }
}

#[cfg(all(feature = "panic-text", any(target_arch = "nvptx64", target_arch = "amdgpu")))]
impl core::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let take = text.floor_char_boundary(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}
