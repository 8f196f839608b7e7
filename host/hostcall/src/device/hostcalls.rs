//! What answers calls by ROCm's protocol, of all kernels of a device: one consumer, and a buffer for each version.

use super::core::Core;
use super::error::Error;
use super::waiting::enter_rocm_thread;
use hostcall_locks::Mutex;
use hostcall_seam::{DeviceAddress, Memory};
use hostcall_server::rocm::{
    CallsExpected, Consumer, LaunchError, Layout, MAX_PACKETS, Options, PacketMemory, Services, Statistics,
    Version,
};
use hostcall_server::services::Builtins;
use hostcall_server::{Server, Waiting};
use hostcall_trace::Source;
use std::sync::Arc;

/// Bytes of the state of ROCm's device heap, as ROCm's own runtime gives it.
const HEAP_BYTES: usize = 128 << 10;

/// What a device has for kernels that speak ROCm's protocol.
pub(crate) struct Hostcalls {
    services: Services,
    options: Options,
    /// From the first kernel on that may call.
    serving: Mutex<Option<Arc<Serving>>>,
}

/// What answers, for as long as the device or a launch has it.
pub(crate) struct Serving {
    /// It leaves buffers alone once it is dropped.
    consumer: Consumer,
    memory: Mutex<Shared>,
}

/// What kernels share with the host and with each other, made when a kernel may need it.
#[derive(Default)]
struct Shared {
    buffers: Vec<Arc<PacketMemory>>,
    heap: Option<Arc<dyn Memory>>,
}

/// What a launch keeps until it has ended.
pub(crate) struct Answered {
    _calls: CallsExpected,
    _serving: Arc<Serving>,
}

impl Hostcalls {
    pub fn new(options: Options) -> Self {
        Self { services: Services::new(), options, serving: Mutex::default() }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Returns the handlers, among which are hostcall's where the program has none.
    pub fn services_for(&self, builtins: &Builtins) -> &Services {
        // The program's own handlers stay.
        let _ = self.services.register_printf(builtins);
        let _ = self.services.register_device_heap(builtins);
        let _ = self.services.register_sanitizer_reports();
        &self.services
    }

    pub fn statistics(&self) -> Statistics {
        let serving = self.serving.lock();
        serving.as_ref().map_or_else(Statistics::default, |serving| serving.consumer.statistics())
    }

    /// Returns the packets that wait for their handlers now.
    pub fn waiting(&self) -> Vec<Waiting> {
        let serving = self.serving.lock();
        serving.as_ref().map_or_else(Vec::new, |serving| serving.consumer.waiting())
    }

    /// Returns what answers, which is started for the first kernel.
    pub fn serving(
        &self,
        core: &Core,
        server: &Server,
        builtins: &Builtins,
        trace: Option<Source>,
    ) -> Result<Arc<Serving>, Error> {
        let mut serving = self.serving.lock();
        if let Some(serving) = &*serving {
            return Ok(serving.clone());
        }
        self.services_for(builtins);
        let backend = core.backend.clone();
        let options = self.options.clone().like(server).told_of_launches();
        let mut options = options.on_thread(move || {
            enter_rocm_thread();
            backend.enter_thread();
        });
        if let Some(source) = trace {
            options = options.trace(source);
        }
        let no_thread = |error| Error::NoThread { what: "calls by ROCm's protocol", error };
        let consumer = Consumer::new(&self.services, options).map_err(no_thread)?;
        consumer.launch().map_err(|error| match error {
            LaunchError::Thread(error) => no_thread(error),
            other => unreachable!("the consumer is new: {other}"),
        })?;
        Ok(serving.insert(Arc::new(Serving { consumer, memory: Mutex::default() })).clone())
    }
}

impl Serving {
    /// For a launch that may call.
    pub fn answer(self: &Arc<Self>) -> Answered {
        Answered { _calls: self.consumer.expect_calls(), _serving: self.clone() }
    }

    /// Returns the address of the buffer of this version, with a packet for each wave that the device holds.
    pub fn buffer(&self, core: &Core, version: Version) -> Result<DeviceAddress, Error> {
        let mut shared = self.memory.lock();
        if let Some(buffer) = shared.buffers.iter().find(|buffer| buffer.layout().version() == version) {
            return Ok(DeviceAddress::new(buffer.device_address()));
        }
        let packets = core.backend.properties().resident_waves.clamp(1, MAX_PACKETS);
        let layout = Layout::new(version, packets).expect("the number was clamped");
        let pinned = core.backend.pin(layout.bytes())?;
        let (start, address) = (pinned.host_address(), pinned.address());
        // SAFETY: PACKETS: the memory has so many bytes at a multiple of 256 and is nobody else's; `pinned` keeps it.
        let buffer = unsafe { PacketMemory::from_parts(start, address.get(), layout, Box::new(pinned)) };
        buffer.initialize();
        let buffer = Arc::new(buffer);
        self.consumer.register(&buffer).expect("the buffer is new");
        shared.buffers.push(buffer);
        Ok(address)
    }

    /// Returns the address of the heap's state, which is zeroed at first.
    pub fn heap(&self, core: &Core) -> Result<DeviceAddress, Error> {
        let mut shared = self.memory.lock();
        if shared.heap.is_none() {
            shared.heap = Some(core.backend.allocate(HEAP_BYTES)?);
        }
        Ok(shared.heap.as_ref().expect("it is there now").address())
    }
}
