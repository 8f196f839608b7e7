//! The functions by their names: for programs that contain this runtime instead of loading it, and for the shared library.

use std::ffi::{CStr, c_void};

use super::runtime::Runtime;
use super::{agents, code, copies, memory_pools, profiling, queues, signals};

macro_rules! symbols {
    ($dollar:tt $($module:ident: $($function:ident)*;)*) => {
        /// Returns the address of the function with this name, whose type is that of the HSA headers; `None` if this
        /// runtime does not have it.
        ///
        /// Who looks `softhsa_last_failure` up asks it why a launch failed, so that failures are not printed any more.
        pub fn symbol(name: &CStr) -> Option<*const c_void> {
            if name == c"softhsa_last_failure" {
                Runtime::keep_failures_unprinted();
            }
            Some(match name.to_str().ok()? {
                $($(stringify!($function) => $module::$function as *const c_void,)*)*
                _ => return None,
            })
        }

        /// All functions.
        ///
        /// Safe code cannot take from other clients what they use:
        ///
        /// ```compile_fail,E0133
        /// hostcall_softhsa::api::functions::hsa_shut_down();
        /// ```
        /// ```compile_fail,E0133
        /// hostcall_softhsa::api::functions::hsa_amd_memory_pool_free(std::ptr::null_mut());
        /// ```
        /// ```compile_fail,E0133
        /// hostcall_softhsa::api::functions::hsa_signal_store_relaxed(1, 0);
        /// ```
        pub mod functions {
            use super::{agents, code, copies, memory_pools, profiling, queues, signals, this};
            $(#[doc(no_inline)] pub use $module::{$($function),*};)*
        }

        /// Calls a macro with the names of all functions of [`api::functions`](crate::api::functions).
        #[doc(hidden)]
        #[macro_export]
        macro_rules! hsa_functions {
            ($dollar callback:ident) => { $dollar callback! { $($($function)*)* } };
        }
    };
}

use super as this;

symbols! { $
    this: hsa_init hsa_shut_down hsa_status_string softhsa_last_failure;
    agents: hsa_iterate_agents hsa_agent_get_info hsa_agent_iterate_isas hsa_isa_get_info_alt hsa_system_get_info;
    memory_pools: hsa_amd_agent_iterate_memory_pools hsa_amd_memory_pool_get_info hsa_amd_agent_memory_pool_get_info
        hsa_amd_memory_pool_allocate hsa_amd_memory_pool_free hsa_amd_agents_allow_access hsa_amd_memory_lock
        hsa_amd_memory_unlock hsa_amd_pointer_info;
    copies: hsa_memory_copy hsa_amd_memory_fill hsa_amd_memory_async_copy;
    code: hsa_code_object_reader_create_from_memory hsa_code_object_reader_destroy hsa_code_object_deserialize
        hsa_code_object_destroy hsa_executable_create_alt hsa_executable_load_agent_code_object
        hsa_executable_load_code_object hsa_executable_freeze hsa_executable_validate hsa_executable_destroy
        hsa_executable_get_symbol_by_name hsa_executable_symbol_get_info hsa_amd_register_system_event_handler;
    queues: hsa_queue_create hsa_queue_destroy hsa_queue_add_write_index_relaxed
        hsa_queue_add_write_index_scacquire hsa_queue_add_write_index_screlease
        hsa_queue_add_write_index_scacq_screl hsa_queue_load_read_index_scacquire
        hsa_queue_load_read_index_relaxed hsa_queue_load_write_index_scacquire
        hsa_queue_load_write_index_relaxed;
    signals: hsa_signal_create hsa_amd_signal_create hsa_signal_destroy hsa_signal_store_relaxed
        hsa_signal_store_screlease hsa_signal_store_release hsa_signal_silent_store_relaxed
        hsa_signal_silent_store_screlease hsa_signal_add_relaxed hsa_signal_add_scacquire hsa_signal_add_screlease
        hsa_signal_add_scacq_screl hsa_signal_subtract_relaxed hsa_signal_subtract_scacquire
        hsa_signal_subtract_screlease hsa_signal_subtract_scacq_screl hsa_signal_and_scacq_screl
        hsa_signal_or_scacq_screl hsa_signal_xor_scacq_screl hsa_signal_exchange_scacq_screl
        hsa_signal_cas_scacq_screl hsa_signal_load_relaxed hsa_signal_load_scacquire hsa_signal_wait_scacquire
        hsa_signal_wait_relaxed hsa_amd_signal_async_handler hsa_amd_signal_value_pointer;
    profiling: hsa_amd_profiling_set_profiler_enabled hsa_amd_profiling_get_dispatch_time;
}
