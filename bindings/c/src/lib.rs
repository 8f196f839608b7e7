//! `libhostcall`: hosts of kernels that call them while they run, as a C library over the crate `hostcall`.
//! `include/hostcall.h` has the interface, with each function's errors, threads and ownership; cbindgen makes it from these
//! sources, and a test compares the two. `cargo cinstall` (cargo-c) installs library, header and a description for
//! `pkg-config`.
//!
//! # Invariant
//!
//! **CALLER**: the caller keeps to the header: a handle is NULL or one that the library gave and that was not freed, a place
//! for a result is NULL or can be written and is used by nobody else, texts end with a zero byte, as many values lie at a
//! pointer as is said, and functions are of their types.
//!
//! Types and functions have the names that C has for them. Each symbol is a jump to the function, as in
//! `hostcall-amd-hostcall`: the assembler accepts a version only where the symbol is defined. The versions are declared in
//! `exports.map`, which the build script gives to the linker.
#![allow(non_camel_case_types, reason = "the names are those of the header")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the comments are the header's, and all functions ask for CALLER"
)]

pub mod bodies;
pub mod buffer;
pub mod closure;
pub mod device;
pub mod error;
pub mod graph;
mod handle;
pub mod image;
pub mod launch;
pub mod options;
pub mod raw;
pub mod rocm;
pub mod service;
pub mod stream;
pub mod trace;

pub use handle::hostcall_free_function;

macro_rules! export {
    ($($symbol:literal: $function:path)*) => {$(
        std::arch::global_asm!(
            ".text",
            concat!(".globl ", $symbol),
            concat!(".type ", $symbol, ", @function"),
            concat!($symbol, ":"),
            #[cfg(target_arch = "x86_64")]
            "jmp {function}",
            #[cfg(target_arch = "aarch64")]
            "b {function}",
            concat!(".size ", $symbol, ", . - ", $symbol),
            concat!(".symver ", $symbol, ", ", $symbol, "@@@HOSTCALL_1"),
            function = sym $function,
        );
    )*};
}

export! {
    "hostcall_error_status": error::hostcall_error_status
    "hostcall_error_text": error::hostcall_error_text
    "hostcall_error_panic": error::hostcall_error_panic
    "hostcall_error_free": error::hostcall_error_free
    "hostcall_options_new": options::hostcall_options_new
    "hostcall_options_free": options::hostcall_options_free
    "hostcall_options_set": options::hostcall_options_set
    "hostcall_options_dir": options::hostcall_options_dir
    "hostcall_options_argument": options::hostcall_options_argument
    "hostcall_options_variable": options::hostcall_options_variable
    "hostcall_options_output": options::hostcall_options_output
    "hostcall_options_descriptors": options::hostcall_options_descriptors
    "hostcall_options_stall_report": options::hostcall_options_stall_report
    "hostcall_options_service": options::hostcall_options_service
    "hostcall_devices": device::hostcall_devices
    "hostcall_device_list_count": device::hostcall_device_list_count
    "hostcall_device_list_get": device::hostcall_device_list_get
    "hostcall_device_list_free": device::hostcall_device_list_free
    "hostcall_device_open": device::hostcall_device_open
    "hostcall_device_close": device::hostcall_device_close
    "hostcall_device_free": device::hostcall_device_free
    "hostcall_device_target": device::hostcall_device_target
    "hostcall_device_wave_lanes": device::hostcall_device_wave_lanes
    "hostcall_device_flush": device::hostcall_device_flush
    "hostcall_device_statistics": device::hostcall_device_statistics
    "hostcall_device_register": device::hostcall_device_register
    "hostcall_registration_remove": device::hostcall_registration_remove
    "hostcall_registration_free": device::hostcall_registration_free
    "hostcall_image_load": image::hostcall_image_load
    "hostcall_image_load_bytes": image::hostcall_image_load_bytes
    "hostcall_image_free": image::hostcall_image_free
    "hostcall_image_kernel_count": image::hostcall_image_kernel_count
    "hostcall_image_kernel_name": image::hostcall_image_kernel_name
    "hostcall_image_kernel": image::hostcall_image_kernel
    "hostcall_kernel_free": image::hostcall_kernel_free
    "hostcall_type_number": buffer::hostcall_type_number
    "hostcall_type_struct": buffer::hostcall_type_struct
    "hostcall_type_array": buffer::hostcall_type_array
    "hostcall_type_free": buffer::hostcall_type_free
    "hostcall_buffer_alloc": buffer::hostcall_buffer_alloc
    "hostcall_buffer_alloc_of": buffer::hostcall_buffer_alloc_of
    "hostcall_buffer_part": buffer::hostcall_buffer_part
    "hostcall_buffer_free": buffer::hostcall_buffer_free
    "hostcall_buffer_len": buffer::hostcall_buffer_len
    "hostcall_buffer_write": buffer::hostcall_buffer_write
    "hostcall_buffer_read": buffer::hostcall_buffer_read
    "hostcall_pinned_alloc": buffer::hostcall_pinned_alloc
    "hostcall_pinned_data": buffer::hostcall_pinned_data
    "hostcall_pinned_len": buffer::hostcall_pinned_len
    "hostcall_pinned_free": buffer::hostcall_pinned_free
    "hostcall_stream_write": buffer::hostcall_stream_write
    "hostcall_stream_copy": buffer::hostcall_stream_copy
    "hostcall_stream_fill": buffer::hostcall_stream_fill
    "hostcall_stream_new": stream::hostcall_stream_new
    "hostcall_stream_free": stream::hostcall_stream_free
    "hostcall_stream_synchronize": stream::hostcall_stream_synchronize
    "hostcall_stream_synchronize_for": stream::hostcall_stream_synchronize_for
    "hostcall_stream_is_done": stream::hostcall_stream_is_done
    "hostcall_stream_record": stream::hostcall_stream_record
    "hostcall_stream_wait_for": stream::hostcall_stream_wait_for
    "hostcall_stream_host_function": stream::hostcall_stream_host_function
    "hostcall_stream_repeated_function": stream::hostcall_stream_repeated_function
    "hostcall_event_free": stream::hostcall_event_free
    "hostcall_event_is_done": stream::hostcall_event_is_done
    "hostcall_event_wait": stream::hostcall_event_wait
    "hostcall_event_elapsed": stream::hostcall_event_elapsed
    "hostcall_kernel_launch": launch::hostcall_kernel_launch
    "hostcall_launch_free": launch::hostcall_launch_free
    "hostcall_launch_id": launch::hostcall_launch_id
    "hostcall_launch_is_done": launch::hostcall_launch_is_done
    "hostcall_launch_wait": launch::hostcall_launch_wait
    "hostcall_launch_cancel": launch::hostcall_launch_cancel
    "hostcall_launch_cancel_after": launch::hostcall_launch_cancel_after
    "hostcall_closure_new": closure::hostcall_closure_new
    "hostcall_closure_finish": closure::hostcall_closure_finish
    "hostcall_closure_free": closure::hostcall_closure_free
    "hostcall_stream_begin_capture": graph::hostcall_stream_begin_capture
    "hostcall_stream_end_capture": graph::hostcall_stream_end_capture
    "hostcall_stream_add_graph": graph::hostcall_stream_add_graph
    "hostcall_graph_len": graph::hostcall_graph_len
    "hostcall_graph_free": graph::hostcall_graph_free
    "hostcall_graph_instantiate": graph::hostcall_graph_instantiate
    "hostcall_instance_upload": graph::hostcall_instance_upload
    "hostcall_instance_launch": graph::hostcall_instance_launch
    "hostcall_instance_update": graph::hostcall_instance_update
    "hostcall_instance_free": graph::hostcall_instance_free
    "hostcall_replay_free": graph::hostcall_replay_free
    "hostcall_replay_number": graph::hostcall_replay_number
    "hostcall_replay_is_done": graph::hostcall_replay_is_done
    "hostcall_replay_wait": graph::hostcall_replay_wait
    "hostcall_replay_cancel": graph::hostcall_replay_cancel
    "hostcall_replay_cancel_after": graph::hostcall_replay_cancel_after
    "hostcall_condition_word": bodies::hostcall_condition_word
    "hostcall_condition_call": bodies::hostcall_condition_call
    "hostcall_condition_free": bodies::hostcall_condition_free
    "hostcall_graph_if": bodies::hostcall_graph_if
    "hostcall_graph_while": bodies::hostcall_graph_while
    "hostcall_graph_switch": bodies::hostcall_graph_switch
    "hostcall_tracer_new": trace::hostcall_tracer_new
    "hostcall_options_trace": trace::hostcall_options_trace
    "hostcall_tracer_finish": trace::hostcall_tracer_finish
    "hostcall_tracer_free": trace::hostcall_tracer_free
    "hostcall_options_rocm_report": options::hostcall_options_rocm_report
    "hostcall_rocm_code_load": rocm::hostcall_rocm_code_load
    "hostcall_rocm_code_load_bytes": rocm::hostcall_rocm_code_load_bytes
    "hostcall_rocm_code_free": rocm::hostcall_rocm_code_free
    "hostcall_rocm_code_kernel": rocm::hostcall_rocm_code_kernel
    "hostcall_rocm_kernel_free": rocm::hostcall_rocm_kernel_free
    "hostcall_rocm_kernel_argument_count": rocm::hostcall_rocm_kernel_argument_count
    "hostcall_rocm_kernel_argument_bytes": rocm::hostcall_rocm_kernel_argument_bytes
    "hostcall_rocm_kernel_launch": rocm::hostcall_rocm_kernel_launch
    "hostcall_rocm_register_function": rocm::hostcall_rocm_register_function
    "hostcall_rocm_register_service": rocm::hostcall_rocm_register_service
    "hostcall_rocm_statistics": rocm::hostcall_rocm_statistics
    "hostcall_raw_channel_new": raw::hostcall_raw_channel_new
    "hostcall_raw_channel_free": raw::hostcall_raw_channel_free
    "hostcall_raw_channel_next": raw::hostcall_raw_channel_next
    "hostcall_raw_channel_statistics": raw::hostcall_raw_channel_statistics
    "hostcall_raw_page_data": raw::hostcall_raw_page_data
    "hostcall_raw_page_info": raw::hostcall_raw_page_info
    "hostcall_raw_page_free": raw::hostcall_raw_page_free
    "hostcall_caller_place": service::hostcall_caller_place
    "hostcall_reply_words": service::hostcall_reply_words
    "hostcall_reply_bytes": service::hostcall_reply_bytes
}
