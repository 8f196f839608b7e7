//! The library's symbols, with the version that ROCm's runtime gives them, so that programs that were linked
//! with that runtime find them here.
//!
//! Each symbol is a jump to the function. The assembler accepts a version only where the symbol is defined,
//! and which of the compiler's units a Rust function ends in is not known; so the symbols are made here. The
//! versions themselves are declared in `exports.map`, which the build script gives to the linker.

use super::{agents, code, copies, memory_pools, queues, signals};
use crate::api as base;

macro_rules! exports {
    ($module:ident: $($name:ident),* $(,)?) => {$(
        std::arch::global_asm!(
            ".text",
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @function"),
            concat!(stringify!($name), ":"),
            #[cfg(target_arch = "x86_64")]
            "jmp {function}",
            #[cfg(target_arch = "aarch64")]
            "b {function}",
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            concat!(".symver ", stringify!($name), ", ", stringify!($name), "@@ROCR_1"),
            function = sym $module::$name,
        );
    )*};
}

exports! { base:
    hsa_init, hsa_shut_down, hsa_status_string, softhsa_last_failure
}

exports! { agents:
    hsa_agent_get_info, hsa_agent_iterate_isas, hsa_isa_get_info_alt, hsa_iterate_agents,
    hsa_system_get_info
}

exports! { memory_pools:
    hsa_amd_agent_iterate_memory_pools, hsa_amd_agent_memory_pool_get_info, hsa_amd_agents_allow_access,
    hsa_amd_memory_lock, hsa_amd_memory_pool_allocate, hsa_amd_memory_pool_free,
    hsa_amd_memory_pool_get_info, hsa_amd_memory_unlock, hsa_amd_pointer_info
}

exports! { copies:
    hsa_amd_memory_async_copy, hsa_amd_memory_fill, hsa_memory_copy
}

exports! { code:
    hsa_amd_register_system_event_handler, hsa_code_object_deserialize, hsa_code_object_destroy,
    hsa_code_object_reader_create_from_memory, hsa_code_object_reader_destroy,
    hsa_executable_create_alt, hsa_executable_destroy, hsa_executable_freeze,
    hsa_executable_get_symbol_by_name, hsa_executable_load_agent_code_object,
    hsa_executable_load_code_object, hsa_executable_symbol_get_info, hsa_executable_validate
}

exports! { queues:
    hsa_queue_add_write_index_relaxed, hsa_queue_add_write_index_scacq_screl,
    hsa_queue_add_write_index_scacquire, hsa_queue_add_write_index_screlease, hsa_queue_create,
    hsa_queue_destroy, hsa_queue_load_read_index_relaxed, hsa_queue_load_read_index_scacquire,
    hsa_queue_load_write_index_relaxed, hsa_queue_load_write_index_scacquire
}

exports! { signals:
    hsa_amd_signal_async_handler, hsa_amd_signal_create, hsa_signal_add_relaxed,
    hsa_signal_add_scacq_screl, hsa_signal_add_scacquire, hsa_signal_add_screlease,
    hsa_signal_and_scacq_screl, hsa_signal_cas_scacq_screl, hsa_signal_create, hsa_signal_destroy,
    hsa_signal_exchange_scacq_screl, hsa_signal_load_relaxed, hsa_signal_load_scacquire,
    hsa_signal_or_scacq_screl, hsa_signal_silent_store_relaxed, hsa_signal_silent_store_screlease,
    hsa_signal_store_relaxed, hsa_signal_store_release, hsa_signal_store_screlease,
    hsa_signal_subtract_relaxed, hsa_signal_subtract_scacq_screl, hsa_signal_subtract_scacquire,
    hsa_signal_subtract_screlease, hsa_signal_wait_relaxed, hsa_signal_wait_scacquire,
    hsa_signal_xor_scacq_screl
}
