//! Opening a device.

use super::backend::Backend;
use super::cpu::Cpu;
use super::cuda::{self, Cuda};
use super::numbers::LaunchNumbers;
use super::slots::{GRANULE, POOL_SLOTS, SlotAllocator};
use super::{Device, Error, Inner, NO_EXIT_CODE, SoftwareDeviceConfig};
use crate::server::{Server, ServerBuilder};
use crate::services::{Builtins, EarlyEnd};
use hostcall_abi::layout::{Layout, SLOT_STATE_BYTES};
use hostcall_abi::service::{AsyncService, Service};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A device that could be opened, or the reason why it cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name to open it by.
    pub name: String,
    /// What it is, in words.
    pub description: String,
    /// Why it cannot be used, with what to do; `None` when it can.
    pub unavailable: Option<String>,
}

/// Lists the devices of this machine, and the kinds of which there is none.
pub fn devices() -> Vec<DeviceInfo> {
    let threads = SoftwareDeviceConfig::default().threads;
    let mut devices = vec![DeviceInfo {
        name: "cpu".into(),
        description: format!("software device, {threads} thread(s), waves of 32 or 64 lanes"),
        unavailable: None,
    }];
    devices.extend(cuda::devices());
    devices.push(DeviceInfo {
        name: "hsa:0".into(),
        description: "AMD GPU".into(),
        unavailable: Some("this version of hostcall does not drive AMD GPUs; use `cpu`".into()),
    });
    devices
}

type ServerSetup = Box<dyn FnOnce(ServerBuilder) -> ServerBuilder>;

/// Builds a [`Device`].
pub struct DeviceBuilder {
    name: String,
    software: SoftwareDeviceConfig,
    slots: Option<u32>,
    ring_entries: Option<u32>,
    bulk_bytes: Option<u32>,
    builtins: Option<Builtins>,
    server: Vec<ServerSetup>,
}

impl DeviceBuilder {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_string(),
            software: SoftwareDeviceConfig::default(),
            slots: None,
            ring_entries: None,
            bulk_bytes: None,
            builtins: None,
            server: Vec::new(),
        }
    }

    /// How the software device is made; other devices do not look at it.
    pub fn software(mut self, config: SoftwareDeviceConfig) -> Self {
        self.software = config;
        self
    }

    /// Lanes of the software device's waves: 32 or 64.
    pub fn wave_size(mut self, lanes: u32) -> Self {
        self.software.wave_size = lanes;
        self
    }

    /// Call slots: at least as many as waves that shall run at once, and 64 for each launch.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = Some(slots);
        self
    }

    /// Entries of each slot's ring of posts, at most: a power of two. Launches of many waves use less, see
    /// [`Layout::ring_entries_for`].
    pub fn ring_entries(mut self, entries: u32) -> Self {
        self.ring_entries = Some(entries);
        self
    }

    /// Bytes of each slot's bulk area: a power of two.
    pub fn bulk_bytes(mut self, bytes: u32) -> Self {
        self.bulk_bytes = Some(bytes);
        self
    }

    /// The built-in services' settings: files, arguments, environment, standard streams.
    pub fn builtins(mut self, builtins: Builtins) -> Self {
        self.builtins = Some(builtins);
        self
    }

    /// Registers a service whose handlers may wait.
    pub fn service(self, service: impl Service) -> Self {
        self.server(|server| server.service(service))
    }

    /// Registers a service whose handlers never wait and take microseconds: they run at once.
    pub fn inline_service(self, service: impl Service) -> Self {
        self.server(|server| server.inline_service(service))
    }

    /// Registers a service whose handlers are futures.
    pub fn async_service(self, service: impl AsyncService) -> Self {
        self.server(|server| server.async_service(service))
    }

    /// Changes the server's settings.
    pub fn server(mut self, setup: impl FnOnce(ServerBuilder) -> ServerBuilder + 'static) -> Self {
        self.server.push(Box::new(setup));
        self
    }

    fn backend(&self) -> Result<Box<dyn Backend>, Error> {
        let name = self.name.as_str();
        let (kind, index) = name.split_once(':').unwrap_or((name, "0"));
        match (kind, index.parse()) {
            ("cpu", _) if name == "cpu" => {
                Ok(Box::new(Cpu::open(self.software.clone()).map_err(Error::Device)?))
            }
            ("cuda", Ok(index)) => match Cuda::open(index) {
                Ok(cuda) => Ok(Box::new(cuda)),
                Err(why) => Err(Error::NoDevice(format!("device {name} cannot be used: {why}"))),
            },
            _ => {
                let listed = devices().into_iter().find(|device| device.name == name);
                Err(Error::NoDevice(match listed.and_then(|device| device.unavailable) {
                    Some(why) => format!("device {name} cannot be used: {why}"),
                    None => format!("there is no device `{name}`; `hostcall devices` lists those there are"),
                }))
            }
        }
    }

    /// Opens the device and starts its server.
    ///
    /// # Errors
    /// When there is no such device, sizes do not fit, or a service was refused.
    pub fn open(self) -> Result<Device, Error> {
        let backend = self.backend()?;
        let default = backend.default_layout();
        let slots = self.slots.unwrap_or(default.slots).next_multiple_of(GRANULE).max(2 * POOL_SLOTS);
        let layout = Layout {
            slots,
            lanes: backend.wave_size(),
            ring_entries: self.ring_entries.unwrap_or(default.ring_entries),
            bulk_bytes: self.bulk_bytes.unwrap_or(default.bulk_bytes),
        };
        let layout = layout.check().map_err(|error| Error::Device(error.to_string()))?;
        let builtins = match self.builtins {
            Some(builtins) => builtins,
            None => Builtins::builder()
                .build()
                .map_err(|error| Error::Device(format!("the built-in services do not start: {error}")))?,
        };
        builtins.heap().provide(backend.heap_memory());
        let memory = Arc::new(backend.shared_memory(layout).map_err(Error::Device)?);
        let states = backend.allocate(slots as usize * SLOT_STATE_BYTES).map_err(Error::Device)?;
        let pool_bitmap = backend.allocate(slots as usize / 8).map_err(Error::Device)?;
        let region_address = memory.address();
        let mut server = Server::builder(memory).reliable_hints(backend.has_reliable_hints());
        if let Some(waker) = backend.waker() {
            server = server.on_answer(waker);
        }
        for handler in builtins.services() {
            server = server.handler(handler);
        }
        for setup in self.server {
            server = setup(server);
        }
        static EPOCH: AtomicU32 = AtomicU32::new(1);
        let inner = Arc::new(Inner {
            name: self.name,
            backend,
            layout,
            server: Arc::new(server.start()?),
            slots: SlotAllocator::new(slots),
            region_address,
            states,
            pool_bitmap,
            epoch: EPOCH.fetch_add(1, Ordering::Relaxed),
            exit_code: AtomicI64::new(NO_EXIT_CODE),
            numbers: LaunchNumbers::new(),
            hostcalls: AtomicU64::new(0),
            running: Mutex::default(),
            closed: false.into(),
            builtins,
        });
        let device = Arc::downgrade(&inner);
        inner.builtins.reports().on_end(move |launch, end: EarlyEnd| {
            if let (Some(device), EarlyEnd::Panicked | EarlyEnd::Exited(_)) = (device.upgrade(), end) {
                device.cancel(launch);
            }
        });
        Ok(Device { inner })
    }
}
