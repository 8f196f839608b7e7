//! Numbers of HSA's attributes, by their names in the headers.

/// `HSA_AGENT_INFO_*` and `HSA_AMD_AGENT_INFO_*`.
pub mod agent {
    pub const NAME: u32 = 0;
    pub const VENDOR_NAME: u32 = 1;
    pub const FEATURE: u32 = 2;
    pub const MACHINE_MODEL: u32 = 3;
    pub const PROFILE: u32 = 4;
    pub const DEFAULT_FLOAT_ROUNDING_MODE: u32 = 5;
    pub const WAVEFRONT_SIZE: u32 = 6;
    pub const WORKGROUP_MAX_DIM: u32 = 7;
    pub const WORKGROUP_MAX_SIZE: u32 = 8;
    pub const GRID_MAX_DIM: u32 = 9;
    pub const GRID_MAX_SIZE: u32 = 10;
    pub const FBARRIER_MAX_SIZE: u32 = 11;
    pub const QUEUES_MAX: u32 = 12;
    pub const QUEUE_MIN_SIZE: u32 = 13;
    pub const QUEUE_MAX_SIZE: u32 = 14;
    pub const QUEUE_TYPE: u32 = 15;
    pub const NODE: u32 = 16;
    pub const DEVICE: u32 = 17;
    pub const CACHE_SIZE: u32 = 18;
    pub const ISA: u32 = 19;
    pub const EXTENSIONS: u32 = 20;
    pub const VERSION_MAJOR: u32 = 21;
    pub const VERSION_MINOR: u32 = 22;
    pub const BASE_PROFILE_DEFAULT_FLOAT_ROUNDING_MODES: u32 = 23;
    pub const FAST_F16_OPERATION: u32 = 24;
    pub const CHIP_ID: u32 = 0xa000;
    pub const CACHELINE_SIZE: u32 = 0xa001;
    pub const COMPUTE_UNIT_COUNT: u32 = 0xa002;
    pub const MAX_CLOCK_FREQUENCY: u32 = 0xa003;
    pub const DRIVER_NODE_ID: u32 = 0xa004;
    pub const MAX_ADDRESS_WATCH_POINTS: u32 = 0xa005;
    pub const BDFID: u32 = 0xa006;
    pub const MEMORY_WIDTH: u32 = 0xa007;
    pub const MEMORY_MAX_FREQUENCY: u32 = 0xa008;
    pub const PRODUCT_NAME: u32 = 0xa009;
    pub const MAX_WAVES_PER_CU: u32 = 0xa00a;
    pub const NUM_SIMDS_PER_CU: u32 = 0xa00b;
    pub const NUM_SHADER_ENGINES: u32 = 0xa00c;
    pub const NUM_SHADER_ARRAYS_PER_SE: u32 = 0xa00d;
    pub const HDP_FLUSH: u32 = 0xa00e;
    pub const DOMAIN: u32 = 0xa00f;
    pub const COOPERATIVE_QUEUES: u32 = 0xa010;
    pub const UUID: u32 = 0xa011;
    pub const ASIC_REVISION: u32 = 0xa012;
    pub const SVM_DIRECT_HOST_ACCESS: u32 = 0xa013;
    pub const COOPERATIVE_COMPUTE_UNIT_COUNT: u32 = 0xa014;
    pub const MEMORY_AVAIL: u32 = 0xa015;
    pub const TIMESTAMP_FREQUENCY: u32 = 0xa016;
    pub const ASIC_FAMILY_ID: u32 = 0xa107;
    pub const UCODE_VERSION: u32 = 0xa108;
    pub const SDMA_UCODE_VERSION: u32 = 0xa109;
    pub const NUM_SDMA_ENG: u32 = 0xa10a;
    pub const NUM_SDMA_XGMI_ENG: u32 = 0xa10b;
    pub const IOMMU_SUPPORT: u32 = 0xa110;
    pub const NUM_XCC: u32 = 0xa111;
    pub const DRIVER_UID: u32 = 0xa112;
    pub const NEAREST_CPU: u32 = 0xa113;
    pub const MEMORY_PROPERTIES: u32 = 0xa114;
    pub const AQL_EXTENSIONS: u32 = 0xa115;
    pub const IMAGE_1D_MAX_ELEMENTS: u32 = 0x3000;
    pub const IMAGE_2D_MAX_ELEMENTS: u32 = 0x3003;
    pub const IMAGE_2DADEPTH_MAX_ELEMENTS: u32 = 0x3006;
    pub const IMAGE_3D_MAX_ELEMENTS: u32 = 0x3007;
    pub const IMAGE_LINEAR_ROW_PITCH_ALIGNMENT: u32 = 0x300c;
}

/// `HSA_CACHE_INFO_*`.
pub mod cache {
    pub const NAME_LENGTH: u32 = 0;
    pub const NAME: u32 = 1;
    pub const LEVEL: u32 = 2;
    pub const SIZE: u32 = 3;
}

/// `HSA_EXECUTABLE_INFO_*`.
pub mod executable {
    pub const PROFILE: u32 = 1;
    pub const STATE: u32 = 2;
    pub const DEFAULT_FLOAT_ROUNDING_MODE: u32 = 3;
}

/// `HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_*`.
pub mod loaded_code_object {
    pub const EXECUTABLE: u32 = 1;
    pub const KIND: u32 = 2;
    pub const AGENT: u32 = 3;
    pub const STORAGE_TYPE: u32 = 4;
    pub const STORAGE_MEMORY_BASE: u32 = 5;
    pub const STORAGE_MEMORY_SIZE: u32 = 6;
    pub const LOAD_DELTA: u32 = 8;
    pub const LOAD_BASE: u32 = 9;
    pub const LOAD_SIZE: u32 = 10;
    pub const URI_LENGTH: u32 = 11;
    pub const URI: u32 = 12;
}

/// `HSA_ISA_INFO_*`.
pub mod isa {
    pub const NAME_LENGTH: u32 = 0;
    pub const NAME: u32 = 1;
    pub const CALL_CONVENTION_COUNT: u32 = 2;
    pub const CALL_CONVENTION_WAVEFRONT_SIZE: u32 = 3;
    pub const CALL_CONVENTION_WAVEFRONTS_PER_COMPUTE_UNIT: u32 = 4;
    pub const MACHINE_MODELS: u32 = 5;
    pub const PROFILES: u32 = 6;
    pub const DEFAULT_FLOAT_ROUNDING_MODES: u32 = 7;
    pub const BASE_PROFILE_DEFAULT_FLOAT_ROUNDING_MODES: u32 = 8;
    pub const FAST_F16_OPERATION: u32 = 9;
    pub const WORKGROUP_MAX_DIM: u32 = 12;
    pub const WORKGROUP_MAX_SIZE: u32 = 13;
    pub const GRID_MAX_DIM: u32 = 14;
    pub const GRID_MAX_SIZE: u32 = 16;
    pub const FBARRIER_MAX_SIZE: u32 = 17;
}

/// `HSA_SYSTEM_INFO_*` and `HSA_AMD_SYSTEM_INFO_*`.
pub mod system {
    pub const VERSION_MAJOR: u32 = 0;
    pub const VERSION_MINOR: u32 = 1;
    pub const TIMESTAMP: u32 = 2;
    pub const TIMESTAMP_FREQUENCY: u32 = 3;
    pub const SIGNAL_MAX_WAIT: u32 = 4;
    pub const ENDIANNESS: u32 = 5;
    pub const MACHINE_MODEL: u32 = 6;
    pub const EXTENSIONS: u32 = 7;
    pub const BUILD_VERSION: u32 = 0x200;
    pub const SVM_SUPPORTED: u32 = 0x201;
    pub const SVM_ACCESSIBLE_BY_DEFAULT: u32 = 0x202;
    pub const MWAITX_ENABLED: u32 = 0x203;
    pub const DMABUF_SUPPORTED: u32 = 0x204;
    pub const VIRTUAL_MEM_API_SUPPORTED: u32 = 0x205;
    pub const XNACK_ENABLED: u32 = 0x206;
}

/// `HSA_AMD_MEMORY_POOL_INFO_*`, and what `HSA_REGION_INFO_*` has besides.
pub mod pool {
    pub const SEGMENT: u32 = 0;
    pub const GLOBAL_FLAGS: u32 = 1;
    pub const SIZE: u32 = 2;
    pub const RUNTIME_ALLOC_ALLOWED: u32 = 5;
    pub const RUNTIME_ALLOC_GRANULE: u32 = 6;
    pub const RUNTIME_ALLOC_ALIGNMENT: u32 = 7;
    pub const REGION_ALLOC_MAX_SIZE: u32 = 4;
    pub const REGION_ALLOC_MAX_PRIVATE_WORKGROUP_SIZE: u32 = 8;
    pub const REGION_HOST_ACCESSIBLE: u32 = 0xa000;
    pub const ACCESSIBLE_BY_ALL: u32 = 15;
    pub const ALLOC_MAX_SIZE: u32 = 16;
    pub const LOCATION: u32 = 17;
    pub const RUNTIME_ALLOC_REC_GRANULE: u32 = 18;
}

/// `HSA_AMD_AGENT_MEMORY_POOL_INFO_*`.
pub mod agent_pool {
    pub const ACCESS: u32 = 0;
    pub const NUM_LINK_HOPS: u32 = 1;
    pub const LINK_INFO: u32 = 2;
}

/// `HSA_EXECUTABLE_SYMBOL_INFO_*`.
pub mod symbol {
    pub const TYPE: u32 = 0;
    pub const NAME_LENGTH: u32 = 1;
    pub const NAME: u32 = 2;
    pub const MODULE_NAME_LENGTH: u32 = 3;
    pub const MODULE_NAME: u32 = 4;
    pub const LINKAGE: u32 = 5;
    pub const VARIABLE_ALLOCATION: u32 = 6;
    pub const VARIABLE_SEGMENT: u32 = 7;
    pub const VARIABLE_ALIGNMENT: u32 = 8;
    pub const VARIABLE_SIZE: u32 = 9;
    pub const VARIABLE_IS_CONST: u32 = 10;
    pub const KERNEL_KERNARG_SEGMENT_SIZE: u32 = 11;
    pub const KERNEL_KERNARG_SEGMENT_ALIGNMENT: u32 = 12;
    pub const KERNEL_GROUP_SEGMENT_SIZE: u32 = 13;
    pub const KERNEL_PRIVATE_SEGMENT_SIZE: u32 = 14;
    pub const KERNEL_DYNAMIC_CALLSTACK: u32 = 15;
    pub const IS_DEFINITION: u32 = 17;
    pub const KERNEL_CALL_CONVENTION: u32 = 18;
    pub const AGENT: u32 = 20;
    pub const VARIABLE_ADDRESS: u32 = 21;
    pub const KERNEL_OBJECT: u32 = 22;
}
