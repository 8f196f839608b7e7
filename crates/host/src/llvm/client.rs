//! The client object on a device, for kernels written with the device crate.

use crate::device::{Device, DeviceBuffer, Error, IntoArg};
use hostcall_channel::llvm::{PortMemory, Version};
use hostcall_device::llvm::{Client, raw};
use std::any::Any;
use std::sync::Arc;

/// A client of one memory's ports, as kernels take it for an argument.
pub struct LlvmClient {
    object: DeviceBuffer<u64>,
    version: Version,
    memory: Arc<PortMemory>,
}

impl LlvmClient {
    /// Puts a client object on the device. There is one for a memory.
    ///
    /// # Errors
    /// When the device's waves have other lanes than the memory's ports, or it has no room.
    pub fn new(device: &Device, memory: Arc<PortMemory>) -> Result<Self, Error> {
        let (lanes, wave) = (memory.layout().lanes(), device.wave_size());
        if lanes != wave {
            return Err(Error::Device(format!("the ports are for waves of {lanes} lanes, not of {wave}")));
        }
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("a word has 8 bytes"));
        let object: Vec<u64> = memory.client_object().chunks_exact(8).map(word).collect();
        Ok(Self { object: device.upload(&object)?, version: memory.layout().version(), memory })
    }
}

impl IntoArg<Client> for &LlvmClient {
    fn raw(&self) -> u64 {
        raw(self.object.address(), self.version)
    }

    fn keep_alive(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new((self.object.clone(), self.memory.clone())))
    }
}
