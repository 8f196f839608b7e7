//! The functions by their names: for programs that contain this runtime instead of loading it, and for the shared library.

use std::ffi::{CStr, c_void};

use super::runtime::Runtime;
use super::{
    Status, agents, code, copies, extensions, isas, loader, memory_pools, profiling, queues, regions,
    signals, status,
};

/// Says why a function refuses what it is asked for, and returns its status.
pub fn refuse(function: &str, why: &str) -> Status {
    match Runtime::get() {
        Ok(_) => {
            Runtime::note_failure(format!("{function}: {why}"));
            status::ERROR
        }
        Err(status) => status,
    }
}

macro_rules! symbols {
    ($dollar:tt
        served { $($module:ident: $($function:ident $(($($same:ident)*))?)*;)* }
        refused { $($why:literal: $($refused:ident)*;)* }
    ) => {
        /// Returns the address of the function with this name, whose type is that of the HSA headers; `None` if this
        /// runtime does not have it.
        ///
        /// Who looks `softhsa_last_failure` up asks it why a launch failed, so that failures are not printed any more.
        pub fn symbol(name: &CStr) -> Option<*const c_void> {
            if name == c"softhsa_last_failure" {
                Runtime::keep_failures_unprinted();
            }
            Some(match name.to_str().ok()? {
                $($(stringify!($function) $($(| stringify!($same))*)? => $module::$function as *const c_void,)*)*
                $($(stringify!($refused) => refused::$refused as *const c_void,)*)*
                _ => return None,
            })
        }

        /// Functions of the headers that this runtime does not serve: each says why, and returns an error.
        mod refused {
            use super::{Status, refuse};
            $($(
                /// Refuses.
                ///
                /// # Safety
                ///
                /// Contract C.
                pub unsafe extern "C" fn $refused() -> Status {
                    refuse(stringify!($refused), $why)
                }
            )*)*
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
            use super::*;
            $($(
                #[doc(no_inline)]
                pub use $module::$function;
                $($(#[doc(no_inline)] pub use $module::$function as $same;)*)?
            )*)*
            $($(#[doc(no_inline)] pub use refused::$refused;)*)*
        }

        /// Calls a macro with the names of all functions of [`api::functions`](crate::api::functions).
        #[doc(hidden)]
        #[macro_export]
        macro_rules! hsa_functions {
            ($dollar callback:ident) => {
                $dollar callback! { $($($function $($($same)*)?)*)* $($($refused)*)* }
            };
        }
    };
}

use super as this;

// A name in parentheses is another one of the function before it: whatever order of memory a name asks for, the function
// keeps the strongest.
symbols! { $
    served {
        this: hsa_init hsa_shut_down hsa_status_string hsa_amd_async_function softhsa_last_failure;
        agents: hsa_iterate_agents hsa_agent_get_info(hsa_amd_image_get_info_max_dim) hsa_system_get_info
            hsa_agent_iterate_caches hsa_cache_get_info hsa_amd_coherency_get_type hsa_amd_coherency_set_type;
        isas: hsa_agent_iterate_isas hsa_agent_get_exception_policies hsa_isa_from_name hsa_isa_get_info
            hsa_isa_get_info_alt hsa_isa_compatible hsa_isa_get_exception_policies hsa_isa_get_round_method
            hsa_isa_iterate_wavefronts hsa_wavefront_get_info;
        extensions: hsa_extension_get_name hsa_system_extension_supported hsa_system_major_extension_supported
            hsa_agent_extension_supported hsa_agent_major_extension_supported hsa_system_get_extension_table
            hsa_system_get_major_extension_table
            hsa_ven_amd_aqlprofile_version_major(hsa_ven_amd_aqlprofile_version_minor);
        loader: hsa_ven_amd_loader_query_host_address hsa_ven_amd_loader_query_segment_descriptors
            hsa_ven_amd_loader_query_executable hsa_ven_amd_loader_executable_iterate_loaded_code_objects
            hsa_ven_amd_loader_loaded_code_object_get_info
            hsa_ven_amd_loader_code_object_reader_create_from_file_with_offset_size hsa_ven_amd_loader_iterate_executables
            hsa_code_object_reader_create_from_file;
        memory_pools: hsa_amd_agent_iterate_memory_pools hsa_amd_memory_pool_get_info hsa_amd_agent_memory_pool_get_info
            hsa_amd_memory_pool_allocate hsa_amd_memory_pool_free(hsa_memory_free) hsa_amd_memory_pool_can_migrate
            hsa_amd_agents_allow_access hsa_amd_memory_lock hsa_amd_memory_lock_to_pool hsa_amd_memory_unlock
            hsa_amd_pointer_info hsa_amd_pointer_info_set_userdata hsa_amd_register_deallocation_callback
            hsa_amd_deregister_deallocation_callback;
        regions: hsa_agent_iterate_regions hsa_region_get_info hsa_memory_allocate hsa_memory_assign_agent
            hsa_memory_register hsa_memory_deregister;
        copies: hsa_memory_copy hsa_amd_memory_fill hsa_amd_memory_async_copy(hsa_amd_memory_async_copy_on_engine)
            hsa_amd_memory_async_copy_rect hsa_amd_memory_copy_engine_status;
        code: hsa_code_object_reader_create_from_memory hsa_code_object_reader_destroy hsa_code_object_deserialize
            hsa_code_object_destroy hsa_executable_create hsa_executable_create_alt hsa_executable_get_info
            hsa_executable_load_agent_code_object hsa_executable_load_code_object hsa_executable_freeze
            hsa_executable_validate hsa_executable_validate_alt hsa_executable_destroy hsa_executable_get_symbol
            hsa_executable_get_symbol_by_name hsa_executable_iterate_symbols hsa_executable_iterate_agent_symbols
            hsa_executable_iterate_program_symbols hsa_executable_symbol_get_info hsa_amd_register_system_event_handler;
        queues: hsa_queue_create hsa_soft_queue_create hsa_queue_inactivate hsa_queue_destroy
            hsa_queue_add_write_index_scacq_screl(hsa_queue_add_write_index_relaxed hsa_queue_add_write_index_scacquire
            hsa_queue_add_write_index_screlease hsa_queue_add_write_index_acquire hsa_queue_add_write_index_release
            hsa_queue_add_write_index_acq_rel) hsa_queue_cas_write_index_scacq_screl(hsa_queue_cas_write_index_relaxed
            hsa_queue_cas_write_index_scacquire hsa_queue_cas_write_index_screlease hsa_queue_cas_write_index_acquire
            hsa_queue_cas_write_index_release hsa_queue_cas_write_index_acq_rel)
            hsa_queue_load_read_index_scacquire(hsa_queue_load_read_index_relaxed hsa_queue_load_read_index_acquire)
            hsa_queue_load_write_index_scacquire(hsa_queue_load_write_index_relaxed hsa_queue_load_write_index_acquire)
            hsa_queue_store_read_index_screlease(hsa_queue_store_read_index_relaxed hsa_queue_store_read_index_release)
            hsa_queue_store_write_index_screlease(hsa_queue_store_write_index_relaxed hsa_queue_store_write_index_release)
            hsa_amd_queue_set_priority hsa_amd_queue_cu_get_mask hsa_amd_queue_cu_set_mask;
        signals: hsa_signal_create hsa_amd_signal_create hsa_signal_destroy
            hsa_signal_store_screlease(hsa_signal_store_relaxed hsa_signal_store_release hsa_signal_silent_store_relaxed
            hsa_signal_silent_store_screlease) hsa_signal_add_scacq_screl(hsa_signal_add_relaxed hsa_signal_add_scacquire
            hsa_signal_add_screlease hsa_signal_add_acquire hsa_signal_add_release hsa_signal_add_acq_rel)
            hsa_signal_subtract_scacq_screl(hsa_signal_subtract_relaxed hsa_signal_subtract_scacquire
            hsa_signal_subtract_screlease hsa_signal_subtract_acquire hsa_signal_subtract_release
            hsa_signal_subtract_acq_rel) hsa_signal_and_scacq_screl(hsa_signal_and_relaxed hsa_signal_and_scacquire
            hsa_signal_and_screlease hsa_signal_and_acquire hsa_signal_and_release hsa_signal_and_acq_rel)
            hsa_signal_or_scacq_screl(hsa_signal_or_relaxed hsa_signal_or_scacquire hsa_signal_or_screlease
            hsa_signal_or_acquire hsa_signal_or_release hsa_signal_or_acq_rel)
            hsa_signal_xor_scacq_screl(hsa_signal_xor_relaxed hsa_signal_xor_scacquire hsa_signal_xor_screlease
            hsa_signal_xor_acquire hsa_signal_xor_release hsa_signal_xor_acq_rel)
            hsa_signal_exchange_scacq_screl(hsa_signal_exchange_relaxed hsa_signal_exchange_scacquire
            hsa_signal_exchange_screlease hsa_signal_exchange_acquire hsa_signal_exchange_release
            hsa_signal_exchange_acq_rel) hsa_signal_cas_scacq_screl(hsa_signal_cas_relaxed hsa_signal_cas_scacquire
            hsa_signal_cas_screlease hsa_signal_cas_acquire hsa_signal_cas_release hsa_signal_cas_acq_rel)
            hsa_signal_load_scacquire(hsa_signal_load_relaxed hsa_signal_load_acquire)
            hsa_signal_wait_scacquire(hsa_signal_wait_relaxed hsa_signal_wait_acquire) hsa_amd_signal_wait_any
            hsa_signal_group_create hsa_signal_group_destroy
            hsa_signal_group_wait_any_scacquire(hsa_signal_group_wait_any_relaxed) hsa_amd_signal_async_handler
            hsa_amd_signal_value_pointer;
        profiling: hsa_amd_profiling_set_profiler_enabled hsa_amd_profiling_get_dispatch_time
            hsa_amd_profiling_async_copy_enable hsa_amd_profiling_get_async_copy_time
            hsa_amd_profiling_convert_tick_to_system_domain;
    }
    refused {
        "this runtime has no images: the agents' properties say that the largest one has no elements":
            hsa_amd_image_create hsa_ext_image_get_capability hsa_ext_image_get_capability_with_layout
            hsa_ext_image_data_get_info hsa_ext_image_data_get_info_with_layout hsa_ext_image_create
            hsa_ext_image_create_with_layout hsa_ext_image_destroy hsa_ext_image_copy hsa_ext_image_import
            hsa_ext_image_export hsa_ext_image_clear hsa_ext_sampler_create hsa_ext_sampler_destroy;
        "this runtime has no finalizer for HSAIL: load a code object for gfx942": hsa_ext_program_create
            hsa_ext_program_destroy hsa_ext_program_add_module hsa_ext_program_iterate_modules hsa_ext_program_get_info
            hsa_ext_program_finalize hsa_executable_load_program_code_object;
        "symbols are those of an executable: load the code object and ask hsa_executable_get_symbol_by_name":
            hsa_code_object_get_info hsa_code_object_get_symbol hsa_code_object_get_symbol_from_name
            hsa_code_object_iterate_symbols hsa_code_object_serialize hsa_code_symbol_get_info;
        "a code object has to define all of its symbols itself: link those that belong together":
            hsa_executable_global_variable_define hsa_executable_agent_global_variable_define
            hsa_executable_readonly_variable_define;
        "this runtime shares nothing with graphics": hsa_amd_interop_map_buffer hsa_amd_interop_unmap_buffer;
        "this runtime shares nothing with other processes": hsa_amd_portable_export_dmabuf hsa_amd_portable_close_dmabuf
            hsa_amd_ipc_memory_create hsa_amd_ipc_memory_attach
            hsa_amd_ipc_memory_detach hsa_amd_ipc_signal_create hsa_amd_ipc_signal_attach;
        "addresses cannot be reserved apart from memory: allocate from a pool": hsa_amd_vmem_address_reserve
            hsa_amd_vmem_address_free hsa_amd_vmem_handle_create hsa_amd_vmem_handle_release hsa_amd_vmem_map
            hsa_amd_vmem_unmap hsa_amd_vmem_set_access hsa_amd_vmem_get_access hsa_amd_vmem_export_shareable_handle
            hsa_amd_vmem_import_shareable_handle hsa_amd_vmem_retain_alloc_handle
            hsa_amd_vmem_get_alloc_properties_from_handle;
        "scratch memory is limited by waves and not by bytes": hsa_amd_agent_set_async_scratch_limit;
        "memory of a pool stays in it, as hsa_amd_memory_pool_can_migrate says": hsa_amd_memory_migrate;
        "memory of the process is no shared virtual memory, as hsa_system_get_info says: pin it with hsa_amd_memory_lock":
            hsa_amd_svm_attributes_set hsa_amd_svm_attributes_get hsa_amd_svm_prefetch_async;
        "this runtime has no performance counters": hsa_amd_spm_acquire hsa_amd_spm_release hsa_amd_spm_set_dest_buffer
            hsa_ven_amd_aqlprofile_att_marker hsa_ven_amd_aqlprofile_iterate_event_coord
            hsa_ven_amd_aqlprofile_iterate_event_ids hsa_ven_amd_aqlprofile_validate_event hsa_ven_amd_aqlprofile_start
            hsa_ven_amd_aqlprofile_stop hsa_ven_amd_aqlprofile_read hsa_ven_amd_aqlprofile_legacy_get_pm4
            hsa_ven_amd_aqlprofile_get_info hsa_ven_amd_aqlprofile_iterate_data hsa_ven_amd_aqlprofile_error_string;
    }
}
