//! The client object on a device, for kernels written with the device crate.

use super::code::port_memory;
use crate::device::arguments::{IntoArg, Packer, Sealed};
use crate::device::buffer::DeviceBuffer;
use crate::device::error::{Error, ProgramError};
use crate::device::inner::Device;
use hostcall_channel::llvm::{Layout, PortMemory, Version};
use hostcall_device::llvm::{Client, raw};
use std::sync::Arc;

/// A client of one memory's ports, as kernels take it for an argument.
pub struct LlvmClient {
    object: DeviceBuffer<u64>,
    version: Version,
    memory: Arc<PortMemory>,
}

impl LlvmClient {
    /// Makes so many ports and puts a client object for them on the device. An
    /// [`LlvmServer`](hostcall_server::llvm::LlvmServer) of [`LlvmClient::memory`] is to run before kernels that take the client.
    ///
    /// # Errors
    /// When the version has not so many ports, or there is no room.
    pub fn new(device: &Device, version: Version, ports: u32) -> Result<Self, Error> {
        let layout = Layout::new(version, ports, device.wave_size()).map_err(ProgramError::from)?;
        let memory = Arc::new(port_memory(&device.inner.core, layout)?);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("a word has 8 bytes"));
        let object: Vec<u64> = memory.client_object().chunks_exact(8).map(word).collect();
        Ok(Self { object: device.upload(&object)?, version, memory })
    }

    /// The ports' memory.
    pub fn memory(&self) -> Arc<PortMemory> {
        self.memory.clone()
    }
}

impl Sealed<Client<'_>> for &LlvmClient {}

impl IntoArg<Client<'_>> for &LlvmClient {
    fn pack(&self, packer: &mut Packer<'_>) -> Result<u64, Error> {
        packer.check_device(&self.object.allocation.core)?;
        packer.keep_memory(Arc::new((self.object.clone(), self.memory.clone())));
        Ok(raw(self.object.address().get(), self.version))
    }
}
