//! Which GPUs there are, and their pools of memory.

use crate::attribute::{self, Answer, Attribute, Text};
use crate::runtime::{Error, Runtime};
use crate::sys::{self, hsa_agent_t, hsa_amd_memory_pool_t, hsa_status_t};
use std::ffi::c_void;

/// Ticks a second of the GPU's fixed clock, where the runtime does not say: that of every GPU since gfx9.
const CLOCK_HZ: u64 = 100_000_000;

/// What is known of a GPU before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Place among the runtime's GPUs, from 0.
    pub index: u32,
    /// The product's name.
    pub name: String,
    /// The processor that code is built for, such as `gfx942`.
    pub processor: String,
    /// Compute units.
    pub compute_units: u32,
    /// Waves that a compute unit holds at once.
    pub waves_per_unit: u32,
    /// Lanes of a wave, 32 or 64.
    pub wave_size: u32,
    /// Most lanes of a workgroup.
    pub workgroup_lanes: u32,
    /// Bytes of local memory that a workgroup can have.
    pub workgroup_bytes: u32,
    /// Bytes of its memory, or of the memory that it shares with the host.
    pub memory_bytes: u64,
    /// Ticks a second of the clock that kernels read.
    pub clock_hz: u64,
    /// Where it is plugged in, such as `0000:4c:00.0`.
    pub pci_bus_id: String,
    /// Most packets of a queue.
    pub queue_packets: u32,
    /// Whether it has no memory of its own but the host's.
    pub shares_memory: bool,
    pub(crate) agent: u64,
    pub(crate) host: u64,
    pub(crate) pools: Pools,
}

/// The pools that memory is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pools {
    /// Memory of the GPU: coarse-grained, or what it shares with the host.
    pub device: u64,
    /// Fine-grained memory of the host, which both sides see at once.
    pub host: u64,
    /// Memory of the host for kernel arguments.
    pub kernarg: u64,
}

/// Collects what a runtime's iterator gives.
unsafe extern "C" fn collect_agent(agent: hsa_agent_t, list: *mut c_void) -> hsa_status_t {
    // SAFETY: `agents` gives the iterator its list.
    unsafe { (*list.cast::<Vec<hsa_agent_t>>()).push(agent) };
    sys::HSA_STATUS_SUCCESS
}

/// Collects what a runtime's iterator gives.
unsafe extern "C" fn collect_pool(pool: hsa_amd_memory_pool_t, list: *mut c_void) -> hsa_status_t {
    // SAFETY: `pools` gives the iterator its list.
    unsafe { (*list.cast::<Vec<hsa_amd_memory_pool_t>>()).push(pool) };
    sys::HSA_STATUS_SUCCESS
}

/// Asks for a property of an agent.
fn property<T: Answer>(
    runtime: &Runtime,
    agent: hsa_agent_t,
    attribute: &Attribute<attribute::Agent, T>,
) -> Result<T, Error> {
    let (number, mut value) = (attribute.number(), T::EMPTY);
    // SAFETY: LOADED; by ATTRIBUTE the result has the property's type, and it lives through the call.
    let status = unsafe { (runtime.functions.hsa_agent_get_info)(agent, number, (&raw mut value).cast()) };
    runtime.check(status, || format!("asking for property {number:#x} of a GPU")).map(|()| value)
}

/// Asks for a text.
fn text(
    runtime: &Runtime,
    agent: hsa_agent_t,
    attribute: &Attribute<attribute::Agent, Text>,
) -> Result<String, Error> {
    let bytes = property(runtime, agent, attribute)?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// A pool, and what it says of itself.
#[derive(Clone, Copy)]
struct Pool {
    handle: u64,
    segment: u32,
    flags: u32,
    bytes: u64,
    may_allocate: bool,
}

impl Pool {
    /// Says whether memory of this kind can be allocated from it.
    fn gives(&self, flag: u32) -> bool {
        self.may_allocate && self.segment == sys::HSA_AMD_SEGMENT_GLOBAL && self.flags & flag != 0
    }
}

fn asking_for_pools() -> String {
    "asking for an agent's memory".to_owned()
}

/// Asks for a property of a pool.
fn pool_property<T: Answer>(
    runtime: &Runtime,
    pool: hsa_amd_memory_pool_t,
    attribute: &Attribute<attribute::Pool, T>,
) -> Result<T, Error> {
    let (number, mut value) = (attribute.number(), T::EMPTY);
    let answer = (&raw mut value).cast();
    // SAFETY: LOADED; by ATTRIBUTE the result has the property's type, and it lives through the call.
    let status = unsafe { (runtime.functions.hsa_amd_memory_pool_get_info)(pool, number, answer) };
    runtime.check(status, asking_for_pools).map(|()| value)
}

fn pools(runtime: &Runtime, agent: hsa_agent_t) -> Result<Vec<Pool>, Error> {
    let mut handles: Vec<hsa_amd_memory_pool_t> = Vec::new();
    let list = (&raw mut handles).cast();
    // SAFETY: LOADED; the callback gets the list that it expects, which lives through the call.
    let status =
        unsafe { (runtime.functions.hsa_amd_agent_iterate_memory_pools)(agent, Some(collect_pool), list) };
    runtime.check(status, asking_for_pools)?;
    let describe = |pool: hsa_amd_memory_pool_t| {
        let segment = pool_property(runtime, pool, &attribute::POOL_SEGMENT)?;
        let bytes = pool_property(runtime, pool, &attribute::POOL_SIZE)?;
        let (mut flags, mut may_allocate) = (0, 0);
        if segment == sys::HSA_AMD_SEGMENT_GLOBAL {
            flags = pool_property(runtime, pool, &attribute::POOL_GLOBAL_FLAGS)?;
            may_allocate = pool_property(runtime, pool, &attribute::POOL_ALLOC_ALLOWED)?;
        }
        Ok(Pool { handle: pool.handle, segment, flags, bytes, may_allocate: may_allocate != 0 })
    };
    handles.into_iter().map(describe).collect()
}

/// Returns the runtime's GPUs that run kernels.
pub(crate) fn gpus(runtime: &'static Runtime) -> Result<Vec<GpuInfo>, Error> {
    let mut agents: Vec<hsa_agent_t> = Vec::new();
    let list = (&raw mut agents).cast();
    // SAFETY: LOADED; the callback gets the list that it expects, which lives through the call.
    let status = unsafe { (runtime.functions.hsa_iterate_agents)(Some(collect_agent), list) };
    runtime.check(status, || "listing the agents".into())?;
    let (mut hosts, mut gpus) = (Vec::new(), Vec::new());
    for agent in agents {
        match property(runtime, agent, &attribute::DEVICE)? {
            sys::HSA_DEVICE_TYPE_CPU => hosts.push(agent),
            sys::HSA_DEVICE_TYPE_GPU => gpus.push(agent),
            _ => {}
        }
    }
    let doing = || "asking for the host's memory".to_owned();
    let &host = hosts.first().ok_or_else(|| Error::own(doing(), "the runtime has no agent for the host"))?;
    let memory = pools(runtime, host)?;
    let find = |flag, what: &str| {
        let pool = memory.iter().find(|pool| pool.gives(flag));
        pool.copied()
            .ok_or_else(|| Error::own(doing(), format!("the runtime has no {what} memory of the host")))
    };
    let fine = find(sys::HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED, "fine-grained")?;
    let kernarg = find(sys::HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT, "kernel argument")?;
    let describe = |(index, agent)| describe(runtime, index, agent, host, fine, kernarg);
    (0..).zip(gpus).map(describe).collect()
}

fn describe(
    runtime: &Runtime,
    index: u32,
    agent: hsa_agent_t,
    host: hsa_agent_t,
    fine: Pool,
    kernarg: Pool,
) -> Result<GpuInfo, Error> {
    let memory = pools(runtime, agent)?;
    // The largest of its coarse-grained pools. A part without memory of its own takes the host's.
    let own = memory.iter().filter(|pool| pool.gives(sys::HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED));
    let own = own.max_by_key(|pool| pool.bytes);
    let device = own.copied().unwrap_or(fine);
    let group = memory.iter().find(|pool| pool.segment == sys::HSA_AMD_SEGMENT_GROUP);
    let (bus, domain) = (
        property(runtime, agent, &attribute::BDFID)?,
        property(runtime, agent, &attribute::DOMAIN).unwrap_or(0),
    );
    let clock_hz = property(runtime, agent, &attribute::TIMESTAMP_FREQUENCY).unwrap_or(0);
    Ok(GpuInfo {
        index,
        name: text(runtime, agent, &attribute::PRODUCT_NAME)?,
        processor: text(runtime, agent, &attribute::NAME)?,
        compute_units: property(runtime, agent, &attribute::COMPUTE_UNIT_COUNT)?,
        waves_per_unit: property(runtime, agent, &attribute::MAX_WAVES_PER_CU)?,
        wave_size: property(runtime, agent, &attribute::WAVEFRONT_SIZE)?,
        workgroup_lanes: property(runtime, agent, &attribute::WORKGROUP_MAX_SIZE)?,
        workgroup_bytes: group.map_or(0, |pool| pool.bytes.min(u32::MAX.into()) as u32),
        memory_bytes: device.bytes,
        clock_hz: if clock_hz == 0 { CLOCK_HZ } else { clock_hz },
        pci_bus_id: format!("{domain:04x}:{:02x}:{:02x}.{}", bus >> 8 & 0xff, bus >> 3 & 0x1f, bus & 7),
        queue_packets: property(runtime, agent, &attribute::QUEUE_MAX_SIZE)?,
        shares_memory: own.is_none(),
        agent: agent.handle,
        host: host.handle,
        pools: Pools { device: device.handle, host: fine.handle, kernarg: kernarg.handle },
    })
}
